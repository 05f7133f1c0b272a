//! The effect of the reflector on an informer's store.

use super::*;
use crate::handler::HandlerFuncs;
use crate::kind::GroupVersionResource;
use crate::listener::HandlerOptions;
use crate::shared::{InformerOptions, SharedInformer};
use crate::testing::EventLog;

type Errors = Arc<Mutex<Vec<String>>>;

fn logger(errors: &Errors) -> WatchErrorHandler {
    let errors = Arc::clone(errors);
    Arc::new(move |_: &GroupVersionResource, error: &ReflectorError| errors.lock().push(error.to_string()))
}

fn lists(source: &FakeSource<Typed<Pod>>) -> usize {
    source.requests().iter().filter(|request| !request.watch).count()
}

/// Resource versions by key.
fn content(informer: &SharedInformer<Typed<Pod>>) -> std::collections::BTreeMap<String, String> {
    let (_, objects) = informer.store().snapshot();
    objects
        .into_iter()
        .map(|(key, pod)| (key.to_string(), pod.metadata.resource_version.clone().unwrap()))
        .collect()
}

fn run(source: &FakeSource<Typed<Pod>>, options: ReflectorOptions) -> Arc<SharedInformer<Typed<Pod>>> {
    let options = InformerOptions { reflector: options, ..InformerOptions::default() };
    SharedInformer::new(source.kind(), source.clone(), options)
}

#[tokio::test(start_paused = true)]
async fn errors_keep_the_store_until_the_next_list() {
    let source = FakeSource::<Typed<Pod>>::typed();
    source.apply(pod("a", ""));
    source.apply(pod("b", ""));
    let informer = run(&source, ReflectorOptions { watch_list: false, ..ReflectorOptions::default() });
    let (first, errors) = (Errors::default(), Errors::default());
    informer.set_watch_error_handler(logger(&first)).unwrap();
    informer.set_watch_error_handler(logger(&errors)).unwrap();
    let log = EventLog::new(source.kind());
    informer.add_event_handler(log.clone(), HandlerOptions::default()).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&informer).run(stop.clone()));
    sleep(5.0).await;
    let before = content(&informer);
    source.delete_silently(pod("a", ""));
    source.apply_silently(pod("c", ""));
    source.fail_watch(refused(500, "InternalError"));
    source.fail_list(refused(500, "InternalError"));
    source.close_watches();
    // The watch is refused, and soon the list is, too.
    settle().await;
    assert_eq!((errors.lock().len(), content(&informer)), (1, before.clone()));
    sleep(1.61).await;
    assert_eq!((errors.lock().len(), content(&informer)), (2, before));
    sleep(4.0).await;
    assert_eq!(content(&informer), source.content());
    assert_eq!(log.content(), source.content());
    assert_eq!(log.faults(), Vec::<String>::new());
    let errors: Vec<_> =
        errors.lock().iter().map(|error| error.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(errors, ["failed to watch", "failed to list"]);
    assert!(first.lock().is_empty(), "the handler set last is the one");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_deletion_removes_the_object_by_relist() {
    let source = FakeSource::<Typed<Pod>>::typed().with_watch_list(WatchListSupport::Refused);
    for name in ["a", "b"] {
        source.apply(pod(name, ""));
    }
    // A window for internal errors does not apply to this error.
    let window = Duration::from_secs(30);
    let informer =
        run(&source, ReflectorOptions { internal_error_retry: window, ..ReflectorOptions::default() });
    let log = EventLog::new(source.kind());
    informer.add_event_handler(log.clone(), HandlerOptions::default()).unwrap();
    tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
    settle().await;
    source.apply(pod("corrupt", ""));
    settle().await;
    assert_eq!((content(&informer).len(), lists(&source)), (3, 1));
    log.take();
    source.delete_silently(pod("corrupt", ""));
    source.send(|| WatchEvent::Error(refusal(500, "StorageReadError")));
    sleep(2.0).await;
    assert_eq!((content(&informer), lists(&source)), (source.content(), 2));
    assert_eq!(log.lines(), ["tombstone ns/corrupt 4", "update ns/a 2>2", "update ns/b 3>3"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_resync_period_there_are_no_resyncs() {
    let source = FakeSource::<Typed<Pod>>::typed();
    source.apply(pod("a", ""));
    let informer = run(&source, ReflectorOptions::default());
    let log = EventLog::new(source.kind());
    informer.add_event_handler(log.clone(), HandlerOptions::default()).unwrap();
    tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
    sleep(24.0 * 3600.0).await;
    assert_eq!(log.lines(), ["add ns/a 2 initial"]);
    assert_eq!(lists(&source), 0, "a watch that ends is resumed");
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_without_end_bookmark_never_syncs() {
    let source = FakeSource::<Typed<Pod>>::typed().with_watch_list(WatchListSupport::NoEnd);
    source.apply(pod("a", ""));
    let informer =
        run(&source, ReflectorOptions { initial_events_timeout: None, ..ReflectorOptions::default() });
    let registration = informer.add_event_handler(HandlerFuncs::new(), HandlerOptions::default()).unwrap();
    tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
    sleep(250.0).await;
    assert_eq!(source.summaries(), ["watch-list rv="]);
    assert!(!informer.has_synced() && !registration.has_synced() && informer.store().is_empty());
    assert_eq!(informer.last_sync_resource_version(), "");
    // The watch itself can end without the bookmark, after five to ten minutes. Another one then
    // starts over.
    sleep(400.0).await;
    let asked = source.summaries();
    assert!((2..=3).contains(&asked.len()), "{asked:?}");
    assert!(asked.iter().all(|request| request == "watch-list rv="), "{asked:?}");
    assert!(!informer.has_synced() && informer.store().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_resync_delivers_cached_objects_without_requests() {
    let source = FakeSource::<Typed<Pod>>::typed();
    source.apply(pod("a", ""));
    let options = InformerOptions { resync: Duration::from_mins(1), ..InformerOptions::default() };
    let informer = SharedInformer::new(source.kind(), source.clone(), options);
    let updates = Arc::<Mutex<Vec<(Arc<Pod>, Arc<Pod>)>>>::default();
    let log = Arc::clone(&updates);
    let handler = HandlerFuncs::new().with_update(move |old: &Arc<Pod>, new: &Arc<Pod>| {
        log.lock().push((Arc::clone(old), Arc::clone(new)));
    });
    informer.add_event_handler(handler, HandlerOptions::default()).unwrap();
    tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
    sleep(150.0).await;
    let cached = informer.store().get("ns/a").unwrap();
    let updates = updates.lock();
    assert_eq!(updates.len(), 2);
    assert!(updates.iter().all(|(old, new)| Arc::ptr_eq(old, new) && Arc::ptr_eq(new, &cached)));
    assert_eq!(source.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_object_is_freed_while_its_list_remains() {
    let source = FakeSource::<Typed<Pod>>::typed().with_watch_list(WatchListSupport::Refused);
    for name in ["a", "b"] {
        source.apply(pod(name, ""));
    }
    let informer = run(&source, ReflectorOptions::default());
    informer.add_event_handler(HandlerFuncs::new(), HandlerOptions::default()).unwrap();
    tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
    settle().await;
    let [gone, stays] = ["ns/a", "ns/b"].map(|key| Arc::downgrade(&informer.store().get(key).unwrap()));
    source.delete(pod("a", ""));
    settle().await;
    assert!(gone.upgrade().is_none() && stays.upgrade().is_some());
}
