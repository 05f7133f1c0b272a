//! A handler that is far behind while the server is listed again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use kube_informers::testing::FakeSource;
use kube_informers::{
    ContentType, DecodeError, Deleted, EventHandler, GroupVersionResource, HandlerOptions, InformerOptions,
    Kind, ObjectKey, SharedInformer,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::support::eventually;

/// The number of objects, and of changes that the handler is behind.
const OBJECTS: usize = 1_000;
const CHANGES: usize = 100_000;
const PATIENCE: Duration = Duration::from_mins(3);

/// An object that is counted while referenced.
#[derive(Debug)]
struct Counted {
    name: String,
    version: String,
    living: Arc<AtomicUsize>,
}

impl Counted {
    fn new(number: usize, living: &Arc<AtomicUsize>) -> Self {
        living.fetch_add(1, Ordering::SeqCst);
        Self { name: format!("o{number}"), version: String::new(), living: Arc::clone(living) }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.living.fetch_add(1, Ordering::SeqCst);
        Self { name: self.name.clone(), version: self.version.clone(), living: Arc::clone(&self.living) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.living.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Counting(GroupVersionResource);

impl Kind for Counting {
    type Object = Counted;

    fn gvr(&self) -> &GroupVersionResource {
        &self.0
    }

    fn key(&self, object: &Counted) -> ObjectKey {
        ObjectKey::new(None, &object.name)
    }

    fn resource_version<'a>(&self, object: &'a Counted) -> &'a str {
        &object.version
    }

    fn decode(&self, content_type: ContentType, _: &[u8]) -> Result<Counted, DecodeError> {
        Err(DecodeError::UnsupportedContentType(content_type))
    }
}

/// Blocks its first call until released, and checks that each call follows from the earlier ones.
struct Stalled {
    go: Receiver<()>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    versions: BTreeMap<String, u64>,
    last: u64,
    calls: usize,
    tombstones: usize,
    faults: Vec<String>,
}

impl Stalled {
    fn note(&mut self, object: &Counted, before: Option<&Counted>) {
        // Once the sender is gone, it no longer blocks.
        let _ = self.go.recv();
        let version = object.version.parse().unwrap();
        let mut seen = self.seen.lock();
        seen.calls += 1;
        let known = seen.versions.insert(object.name.clone(), version);
        let expected = before.map(|before| before.version.parse().unwrap());
        if known != expected {
            let fault = format!("{} {version}: {known:?} known, {expected:?} before", object.name);
            seen.faults.push(fault);
        }
        seen.last = seen.last.max(version);
    }
}

impl EventHandler<Counted> for Stalled {
    fn on_add(&mut self, object: &Arc<Counted>, _: bool) {
        self.note(object, None);
    }

    fn on_update(&mut self, old: &Arc<Counted>, new: &Arc<Counted>) {
        let last = self.seen.lock().last;
        self.note(new, Some(old));
        // Watched changes arrive in the server's order; repetitions by a list do not count.
        let version: u64 = new.version.parse().unwrap();
        if old.version != new.version && version < last {
            self.seen.lock().faults.push(format!("{} {version} after {last}", new.name));
        }
    }

    fn on_delete(&mut self, deleted: &Deleted<Counted>) {
        let mut seen = self.seen.lock();
        seen.calls += 1;
        seen.tombstones += usize::from(deleted.is_final_state_unknown());
        let object = deleted.object().unwrap();
        let known = seen.versions.remove(&object.name);
        if known != object.version.parse().ok() {
            seen.faults.push(format!("{} gone at {}: {known:?} known", object.name, object.version));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_far_behind_gets_every_change_across_a_relist() {
    let living = Arc::new(AtomicUsize::new(0));
    let kind = Arc::new(Counting(GroupVersionResource::cluster("example.dev", "v1", "counted")));
    let source =
        FakeSource::new(kind, |object: &mut Counted, version| version.clone_into(&mut object.version));
    for number in 0..OBJECTS {
        source.apply(Counted::new(number, &living));
    }
    let informer = SharedInformer::new(source.kind(), source.clone(), InformerOptions::default());
    let (free, held) = mpsc::channel();
    let seen = Arc::<Mutex<Seen>>::default();
    let stalled = Stalled { go: held, seen: Arc::clone(&seen) };
    let behind = informer.add_event_handler(stalled, HandlerOptions::named("stalled")).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&informer).run(stop.clone()));
    informer.synced().await;

    for number in 0..CHANGES {
        source.apply(Counted::new(number % OBJECTS, &living));
    }
    wait("all changes wait", || behind.pending() == OBJECTS + CHANGES);
    // Changes without watch events arrive with a list: one object is deleted, one has changed.
    source.delete_silently(Counted::new(0, &living));
    source.apply_silently(Counted::new(1, &living));
    source.reset_watch();
    let of_the_list = OBJECTS;
    wait("the list waits behind them", || behind.pending() == OBJECTS + CHANGES + of_the_list);
    // Each undelivered state is kept once, however many notifications name it: one for every
    // change, and one for every object of either list. The server's own copies, without its
    // discarded history, do not count.
    let pinned = living.load(Ordering::SeqCst) - source.content().len();
    let states = OBJECTS + CHANGES + of_the_list;
    assert!(pinned <= states, "{pinned} objects for {states} states");
    assert_eq!(informer.store().len(), OBJECTS - 1);

    drop(free);
    wait("the handler has caught up", || behind.pending() == 0);
    let expected: BTreeMap<String, u64> =
        source.content().into_iter().map(|(key, version)| (key, version.parse().unwrap())).collect();
    {
        let received = seen.lock();
        assert_eq!(received.faults, Vec::<String>::new());
        assert_eq!((received.calls, received.tombstones), (OBJECTS + CHANGES + of_the_list, 1));
        assert_eq!(received.versions, expected);
    }
    // Only the current objects remain, in the server and the store.
    wait("the rest is let go", || living.load(Ordering::SeqCst) == 2 * (OBJECTS - 1));
    stop.cancel();
    running.await.unwrap();
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    tokio::task::block_in_place(|| eventually(what, PATIENCE, || holds().then_some(()), String::new));
}
