//! Private informers on a fake server, under a paused clock, with each queue.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Pod;
use tokio::task::JoinHandle;

use super::*;
use crate::handler::HandlerFuncs;
use crate::key::Deleted;
use crate::kind::Typed;
use crate::queue::tests::KINDS;
use crate::testing::{EventLog, FakeSource, WatchListSupport, refused, settle};

mod storms;

type Pods = Typed<Pod>;

fn pod(name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.to_owned());
    pod
}

fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap()
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn options(queue: QueueKind) -> ControllerOptions<Pod> {
    ControllerOptions { queue, ..ControllerOptions::default() }
}

/// Records its calls, and the store's content at that time.
#[derive(Clone)]
struct RecordingHandler {
    log: EventLog<Pods>,
    store: Arc<OnceLock<Store<Pod>>>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl RecordingHandler {
    fn look(&self) {
        let received = self.log.take().join("");
        let pods = self.store.get().unwrap().list();
        let mut stored: Vec<_> = pods
            .iter()
            .map(|pod| format!("{}{}", name(pod), pod.metadata.resource_version.as_deref().unwrap_or("-")))
            .collect();
        stored.sort();
        self.seen.lock().push(format!("{received} | {}", stored.join(" ")));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock())
    }
}

impl EventHandler<Pod> for RecordingHandler {
    fn on_add(&mut self, pod: &Arc<Pod>, is_in_initial_list: bool) {
        self.log.on_add(pod, is_in_initial_list);
        self.look();
    }

    fn on_update(&mut self, old: &Arc<Pod>, new: &Arc<Pod>) {
        self.log.on_update(old, new);
        self.look();
    }

    fn on_delete(&mut self, deleted: &Deleted<Pod>) {
        self.log.on_delete(deleted);
        self.look();
    }
}

/// A private informer with a handler that records.
struct Rig {
    source: FakeSource<Pods>,
    controller: Arc<Controller<Pods>>,
    handler: RecordingHandler,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Rig {
    fn start(pods: &[&str], options: ControllerOptions<Pod>) -> Self {
        let source = FakeSource::typed();
        for name in pods {
            source.apply(pod(name));
        }
        let log = EventLog::new(source.kind());
        let handler = RecordingHandler { log, store: Arc::default(), seen: Arc::default() };
        let controller = Controller::new(source.kind(), source.clone(), handler.clone(), options);
        let _ = handler.store.set(controller.store());
        let stop = CancellationToken::new();
        let running = tokio::spawn(Arc::clone(&controller).run(stop.clone()));
        Self { source, controller, handler, stop, running }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap();
        assert_eq!(self.handler.log.faults(), [""; 0]);
        assert_eq!(self.source.watchers(), 0);
    }

    async fn relist(&self) {
        self.source.reset_watch();
        // The wait before the third list is the longest here, within [3.2, 6.4).
        tokio::time::sleep(secs(7)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_private_handler_sees_each_change_in_the_store() {
    for kind in KINDS {
        let rig = Rig::start(&["a"], options(kind));
        // Handles taken while the store is empty.
        let (store, lister) = (rig.controller.store(), rig.controller.lister());
        assert!(store.is_empty() && !rig.controller.has_synced());
        rig.controller.synced().await;
        assert_eq!(rig.handler.take(), ["add a 2 initial | a2"], "{kind:?}");
        for change in [FakeSource::apply, FakeSource::apply, FakeSource::delete] {
            change(&rig.source, pod("b"));
            settle().await;
        }
        let expected = ["add b 3 | a2 b3", "update b 3>4 | a2 b4", "delete b 5 | a2"];
        assert_eq!(rig.handler.take(), expected, "{kind:?}");
        assert_eq!((store.len(), lister.list().len()), (1, 1));
        assert_eq!(rig.controller.last_sync_resource_version(), "5");
        assert_eq!((rig.controller.last_error(), rig.controller.undecodable()), (None, 0));
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn relist_order_and_store_content_follow_the_queue_kind() {
    let by_list = [
        "tombstone c 4 | a6 b7 d8",
        "update a 2>6 | a6 b7 d8",
        "update b 3>7 | a6 b7 d8",
        "add d 8 | a6 b7 d8",
    ];
    let by_object = [
        "update a 2>6 | a6 b3 c4",
        "update b 3>7 | a6 b7 c4",
        "add d 8 | a6 b7 c4 d8",
        "tombstone c 4 | a6 b7 d8",
    ];
    for kind in KINDS {
        let rig = Rig::start(&["a", "b", "c"], options(kind));
        rig.controller.synced().await;
        let initial = rig.handler.take();
        assert!(
            initial.len() == 3 && initial.iter().all(|received| received.contains("initial")),
            "{initial:?}"
        );
        rig.source.delete_silently(pod("c"));
        for name in ["a", "b", "d"] {
            rig.source.apply_silently(pod(name));
        }
        rig.relist().await;
        let expected = if matches!(kind, QueueKind::RealFifo { .. }) { by_list } else { by_object };
        assert_eq!(rig.handler.take(), expected, "{kind:?}");
        for name in ["a", "b", "d"] {
            rig.source.delete_silently(pod(name));
        }
        rig.relist().await;
        let gone = rig.handler.take();
        assert!(gone.len() == 3 && gone.iter().all(|received| received.starts_with("tombstone")), "{gone:?}");
        rig.source.apply_silently(pod("e"));
        rig.relist().await;
        assert_eq!(rig.handler.take(), ["add e 14 | e14"], "{kind:?}");
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn private_delta_fifo_applies_changes_of_an_object_one_by_one() {
    for kind in KINDS {
        let rig = Rig::start(&["a"], options(kind));
        rig.controller.synced().await;
        rig.handler.take();
        // All of it is queued before anything is processed.
        rig.source.apply(pod("a"));
        rig.source.apply(pod("a"));
        rig.source.delete(pod("a"));
        settle().await;
        let expected = ["update a 2>3 | a3", "update a 3>4 | a4", "delete a 5 | "];
        assert_eq!(rig.handler.take(), expected, "{kind:?}");
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_private_handler_receives_updates_with_equal_version() {
    for kind in KINDS {
        let rig = Rig::start(&["a"], options(kind));
        rig.controller.synced().await;
        rig.handler.take();
        rig.relist().await;
        assert_eq!(rig.handler.take(), ["update a 2>2 | a2"], "{kind:?}");
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_first_list_syncs_a_private_informer() {
    for kind in KINDS {
        let rig = Rig::start(&[], options(kind));
        settle().await;
        assert!(rig.controller.has_synced(), "{kind:?}");
        rig.source.apply(pod("a"));
        settle().await;
        assert_eq!(rig.handler.take(), ["add a 2 | a2"]);
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn delivery_of_unknown_deletions_depends_on_the_queue() {
    for kind in KINDS {
        let rig = Rig::start(&[], options(kind));
        settle().await;
        rig.source.apply_silently(pod("a"));
        rig.source.delete(pod("a"));
        settle().await;
        let passed_on = matches!(kind, QueueKind::RealFifo { .. });
        assert_eq!(rig.handler.take(), vec!["delete a 3 unknown | "; usize::from(passed_on)], "{kind:?}");
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_private_store_has_the_version_of_the_last_change() {
    let rig = Rig::start(&["a"], ControllerOptions::default());
    rig.controller.synced().await;
    let store = rig.controller.store();
    assert_eq!(store.resource_version(), "2");
    rig.source.apply(pod("a"));
    settle().await;
    assert_eq!(
        (rig.handler.take().pop(), store.resource_version()),
        (Some("update a 2>3 | a3".into()), "3".into())
    );
    rig.source.delete(pod("a"));
    settle().await;
    assert_eq!(
        (rig.handler.take().pop(), store.resource_version()),
        (Some("delete a 4 | ".into()), "4".into())
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_store_version_ignores_objects_without_version() {
    let transform: Transform<Pod> = Arc::new(|pod| pod.metadata.resource_version = None);
    let rig = Rig::start(&["a"], ControllerOptions { transform: Some(transform), ..Default::default() });
    rig.controller.synced().await;
    let store = rig.controller.store();
    rig.source.apply(pod("a"));
    settle().await;
    assert_eq!((rig.handler.take().len(), store.resource_version()), (2, "2".to_owned()));
    assert_eq!(rig.controller.last_sync_resource_version(), "3", "the reflector knows more");
    rig.source.apply_silently(pod("a"));
    rig.relist().await;
    assert_eq!(store.resource_version(), "5");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_private_transform_applies_to_every_call_once() {
    for kind in KINDS {
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let transform: Transform<Pod> = Arc::new(move |pod| {
            count.fetch_add(1, Ordering::Relaxed);
            pod.metadata.annotations.get_or_insert_default().insert("seen".to_owned(), String::new());
        });
        let source = FakeSource::typed();
        source.apply(pod("a"));
        let calls = Arc::new(Mutex::new(Vec::new()));
        let note = |what: &'static str| {
            let calls = Arc::clone(&calls);
            move |pods: &[&Arc<Pod>]| {
                let seen =
                    |pod: &&Arc<Pod>| pod.metadata.annotations.iter().flatten().any(|(key, _)| key == "seen");
                calls.lock().push((what, pods.iter().all(seen)));
            }
        };
        let (added, updated, deleted) = (note("add"), note("update"), note("delete"));
        let handler = HandlerFuncs::new()
            .with_add(move |pod, _| added(&[pod]))
            .with_update(move |old, new| updated(&[old, new]))
            .with_delete(move |gone| deleted(&[gone.object().unwrap()]));
        let with = ControllerOptions { transform: Some(transform), resync: secs(10), ..options(kind) };
        let controller = Controller::new(source.kind(), source.clone(), handler, with);
        let stop = CancellationToken::new();
        let running = tokio::spawn(Arc::clone(&controller).run(stop.clone()));
        controller.synced().await;
        source.apply(pod("a"));
        tokio::time::sleep(secs(11)).await;
        source.delete(pod("a"));
        settle().await;
        let expected = [("add", true), ("update", true), ("update", true), ("delete", true)];
        assert_eq!(std::mem::take(&mut *calls.lock()), expected, "{kind:?}");
        assert_eq!(runs.load(Ordering::Relaxed), 3, "once per object read");
        // A tombstone has the object as stored, and is not transformed again.
        source.apply(pod("b"));
        settle().await;
        source.delete_silently(pod("b"));
        source.reset_watch();
        tokio::time::sleep(secs(4)).await;
        assert_eq!(*calls.lock(), [("add", true), ("delete", true)], "{kind:?}");
        assert_eq!(runs.load(Ordering::Relaxed), 4);
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn should_resync_decides_and_resyncs_send_no_request() {
    for kind in KINDS {
        let wanted = Arc::new(AtomicBool::new(false));
        let ask = Arc::clone(&wanted);
        let should_resync: ShouldResync = Arc::new(move || ask.load(Ordering::Relaxed));
        let with =
            ControllerOptions { resync: secs(10), should_resync: Some(should_resync), ..options(kind) };
        let rig = Rig::start(&["a", "b"], with);
        rig.controller.synced().await;
        rig.handler.take();
        tokio::time::sleep(secs(11)).await;
        assert_eq!(rig.handler.take(), [""; 0]);
        wanted.store(true, Ordering::Relaxed);
        tokio::time::sleep(secs(10)).await;
        let mut received = rig.handler.take();
        received.sort();
        assert_eq!(received, ["update a 2>2 | a2 b3", "update b 3>3 | a2 b3"], "{kind:?}");
        assert_eq!(rig.source.requests().len(), 1);
        rig.stop().await;
    }
}

/// Names and seconds.
type Calls = Arc<Mutex<Vec<(String, u64)>>>;

/// A handler that panics on b, with the times and objects of its calls.
fn afraid_of_b() -> (HandlerFuncs<Pod>, Calls) {
    let calls = Calls::default();
    let (seen, start) = (Arc::clone(&calls), tokio::time::Instant::now());
    let handler = HandlerFuncs::new().with_add(move |pod: &Arc<Pod>, _| {
        seen.lock().push((name(pod), start.elapsed().as_secs()));
        assert_ne!(name(pod), "b", "on purpose");
    });
    (handler, calls)
}

#[tokio::test(start_paused = true)]
async fn a_private_handlers_panic_propagates_from_run() {
    for kind in KINDS {
        let source = FakeSource::typed();
        source.apply(pod("b"));
        let (handler, _) = afraid_of_b();
        let controller = Controller::new(source.kind(), source.clone(), handler, options(kind));
        let running = tokio::spawn(Arc::clone(&controller).run(CancellationToken::new()));
        let panic = running.await.unwrap_err().into_panic();
        assert!(panic_message(&panic).contains("on purpose"));
        assert!(controller.is_stopped() && !controller.has_synced());
        assert_eq!(source.watchers(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_skipped_panic_costs_one_change_and_a_second() {
    for kind in KINDS {
        let source = FakeSource::typed();
        for name in ["a", "b", "c"] {
            source.apply(pod(name));
        }
        let (handler, calls) = afraid_of_b();
        let with = ControllerOptions { panic_policy: PanicPolicy::SkipAfter(secs(1)), ..options(kind) };
        let controller = Controller::new(source.kind(), source.clone(), handler, with);
        let stop = CancellationToken::new();
        let running = tokio::spawn(Arc::clone(&controller).run(stop.clone()));
        controller.synced().await;
        source.apply(pod("d"));
        settle().await;
        let expected = [("a", 0), ("b", 0), ("c", 1), ("d", 1)].map(|(name, at)| (name.to_owned(), at));
        assert_eq!(*calls.lock(), expected, "{kind:?}");
        assert_eq!(controller.store().len(), 4, "the store has the change that the handler missed");
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_the_pause_after_a_panic() {
    let source = FakeSource::typed();
    for name in ["b", "c"] {
        source.apply(pod(name));
    }
    let (handler, calls) = afraid_of_b();
    let with = ControllerOptions { panic_policy: PanicPolicy::SkipAfter(secs(3600)), ..Default::default() };
    let controller = Controller::new(source.kind(), source.clone(), handler, with);
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&controller).run(stop.clone()));
    settle().await;
    assert!(!controller.has_synced());
    stop.cancel();
    running.await.unwrap();
    assert_eq!(
        *calls.lock(),
        [("b".to_owned(), 0), ("c".to_owned(), 0)],
        "changes read before the stop are delivered"
    );
}

#[tokio::test(start_paused = true)]
async fn a_panicking_transform_ends_a_private_informer() {
    let transform: Transform<Pod> = Arc::new(|_| panic!("on purpose"));
    let rig = Rig::start(&["a"], ControllerOptions { transform: Some(transform), ..Default::default() });
    assert!(rig.running.await.unwrap_err().is_panic());
    assert!(rig.controller.is_stopped());
}

#[tokio::test(start_paused = true)]
async fn controller_options_reach_their_components() {
    let errors = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&errors);
    let on_error: WatchErrorHandler = Arc::new(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let source = FakeSource::typed().with_watch_list(WatchListSupport::Refused);
    source.apply(pod("a"));
    source.fail_list(refused(403, "Forbidden"));
    let with = ControllerOptions {
        reflector: ReflectorOptions { page_size: Some(2), ..ReflectorOptions::default() },
        watch_error_handler: Some(on_error),
        indexers: crate::store::namespace_indexer(),
        ..ControllerOptions::default()
    };
    let controller = Controller::new(source.kind(), source.clone(), HandlerFuncs::<Pod>::new(), with);
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&controller).run(stop.clone()));
    settle().await;
    assert!(controller.last_error().is_some_and(|error| error.contains("403")));
    controller.synced().await;
    assert_eq!(errors.load(Ordering::Relaxed), 1);
    assert_eq!(source.summaries()[1], "list rv=0 limit=2");
    assert!(controller.store().has_index(crate::store::NAMESPACE_INDEX));
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_controller_runs_once_and_leaves_no_task() {
    let rig = Rig::start(&["a"], ControllerOptions::default());
    let controller = Arc::clone(&rig.controller);
    controller.synced().await;
    Arc::clone(&controller).run(CancellationToken::new()).await;
    controller.add_indexers(crate::store::namespace_indexer()).unwrap();
    assert!(!controller.is_stopped());
    rig.stop().await;
    controller.stopped().await;
    assert_eq!(controller.add_indexers(Indexers::new()), Err(IndexError::Stopped));
    assert_eq!(controller.store().len(), 1, "the last content remains readable");

    let dropped = Rig::start(&["a"], ControllerOptions::default());
    dropped.controller.synced().await;
    dropped.running.abort();
    settle().await;
    assert!(dropped.controller.is_stopped());
    assert_eq!(dropped.source.watchers(), 0);
}
