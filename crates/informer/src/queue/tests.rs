//! Tests of all queues, and a notation for the tests of each.
//!
//! `+a1` is a at version 1, added; `~a2` updated; `-a3` deleted; `-a?2` a tombstone with the state
//! at version 2, `-a?` one without; `=a1` and `*a1` a at version 1 as replaced and as resynced;
//! `[a1,b2]` a whole list, `sync` a resync of everything, `@9` a bookmark.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::delta::Replacement;
use crate::handler::EventHandler;
use crate::key::{Deleted, ObjectKey};
use crate::kind::{ContentType, DecodeError, GroupVersionResource, Kind};
use crate::listener::HandlerOptions;
use crate::shared::{InformerOptions, SharedInformer};
use crate::store::StoreChange;
use crate::testing::{EventLog, FakeSource, settle};

/// The simplest possible object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Thing {
    name: String,
    version: String,
}

pub(crate) struct Things(GroupVersionResource);

impl Things {
    pub(crate) fn new() -> Self {
        Self(GroupVersionResource::cluster("example.dev", "v1", "things"))
    }
}

impl Kind for Things {
    type Object = Thing;

    fn gvr(&self) -> &GroupVersionResource {
        &self.0
    }

    fn key(&self, thing: &Thing) -> ObjectKey {
        ObjectKey::new(None, &thing.name)
    }

    fn resource_version<'a>(&self, thing: &'a Thing) -> &'a str {
        &thing.version
    }

    fn decode(&self, content_type: ContentType, _: &[u8]) -> Result<Thing, DecodeError> {
        Err(DecodeError::UnsupportedContentType(content_type))
    }
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len()))
}

fn thing(text: &str) -> (ObjectKey, Arc<Thing>) {
    let (name, version) = split(text);
    (ObjectKey::new(None, name), Arc::new(Thing { name: name.to_owned(), version: version.to_owned() }))
}

/// Parses the notation.
pub(crate) fn delta(text: &str) -> Delta<Thing> {
    if text == "sync" {
        return Delta::SyncAll;
    }
    let (what, text) = text.split_at(1);
    let (key, object) = thing(text);
    match what {
        "+" => Delta::Added(key, object),
        "~" => Delta::Updated(key, object),
        "-" => match text.split_once('?') {
            Some((_, "")) => Delta::tombstone(key, None),
            Some((name, version)) => Delta::tombstone(key, Some(thing(&format!("{name}{version}")).1)),
            None => Delta::Deleted(key, Deleted::Known(object)),
        },
        "@" => Delta::Bookmark(text.to_owned()),
        "[" => {
            let names = text.trim_end_matches(']').split(',').filter(|name| !name.is_empty());
            let objects = names.map(thing).collect();
            Delta::ReplacedAll(Replacement { objects, keep: Vec::new(), resource_version: "9".to_owned() })
        }
        _ => panic!("{what} means nothing"),
    }
}

/// Writes the notation.
pub(crate) fn text(delta: &Delta<Thing>) -> String {
    let show = |thing: &Thing| format!("{}{}", thing.name, thing.version);
    match delta {
        Delta::Added(_, thing) => format!("+{}", show(thing)),
        Delta::Updated(_, thing) => format!("~{}", show(thing)),
        Delta::Replaced(_, thing) => format!("={}", show(thing)),
        Delta::Sync(_, thing) => format!("*{}", show(thing)),
        Delta::Deleted(_, Deleted::Known(thing)) => format!("-{}", show(thing)),
        Delta::Deleted(_, Deleted::FinalStateUnknown { key, last }) => {
            format!("-{key}?{}", last.as_ref().map_or("", |thing| &thing.version))
        }
        Delta::ReplacedAll(list) => {
            let things: Vec<_> = list.objects.iter().map(|(_, thing)| show(thing)).collect();
            format!("[{}]", things.join(","))
        }
        Delta::SyncAll => "sync".to_owned(),
        Delta::Bookmark(version) => format!("@{version}"),
    }
}

/// A store with these objects.
pub(crate) fn known(things: &str) -> Store<Thing> {
    let store = Store::new(Arc::new(Things::new()), Indexers::new());
    let deltas = things.split_whitespace().map(|text| delta(&format!("+{text}"))).collect();
    store.apply(&Things::new(), deltas);
    store
}

/// Pushes the changes of the script, and pops a batch at each `pop`.
pub(crate) fn play<C: Content<Object = Thing>>(queue: &mut C, script: &str) -> Vec<String> {
    let mut popped = Vec::new();
    for word in script.split_whitespace() {
        match word {
            "pop" => popped.extend(queue.next_batch().map(|batch| describe(&batch))),
            word => queue.push(delta(word)),
        }
    }
    popped
}

/// Runs the script, and pops what remains.
pub(crate) fn play_out<C: Content<Object = Thing>>(queue: &mut C, script: &str) -> Vec<String> {
    let mut popped = play(queue, script);
    while let Some(batch) = queue.next_batch() {
        popped.push(describe(&batch));
    }
    popped
}

/// A batch in the notation. The prefix `!` marks the first list, the suffix `.` its completion.
fn describe(batch: &Batch<Thing>) -> String {
    let deltas: Vec<_> = batch.deltas.iter().map(text).collect();
    let (initial, synced) =
        (if batch.in_initial_list { "!" } else { "" }, if batch.synced { "." } else { "" });
    format!("{initial}{}{synced}", deltas.join(" "))
}

pub(crate) const KINDS: [QueueKind; 4] = [
    QueueKind::RealFifo { atomic: true },
    QueueKind::RealFifo { atomic: false },
    QueueKind::DeltaFifo { replaced: true },
    QueueKind::DeltaFifo { replaced: false },
];

fn queue(kind: QueueKind) -> Arc<InformerQueue<Thing>> {
    Arc::new(InformerQueue::new(kind, &kind.store(Arc::new(Things::new()), Indexers::new())))
}

#[tokio::test(start_paused = true)]
async fn closing_wakes_all_waiting_consumers() {
    for kind in KINDS {
        let queue = queue(kind);
        let mut waiting = JoinSet::new();
        for _ in 0..10 {
            let queue = Arc::clone(&queue);
            waiting.spawn(async move { queue.process_next(drop).await.is_none() });
        }
        tokio::task::yield_now().await;
        queue.close();
        queue.push(delta("+late1"));
        assert_eq!(waiting.join_all().await, [true; 10], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn queued_changes_can_be_popped_after_close() {
    for kind in KINDS {
        let queue = queue(kind);
        queue.push(delta("+a1"));
        queue.close();
        queue.push(delta("+b1"));
        let batch = queue.process_next(|batch| describe(&batch)).await;
        assert_eq!(batch.as_deref(), Some("+a1."), "{kind:?}");
        assert!(queue.process_next(drop).await.is_none());
    }
}

#[test]
fn queue_length_counts_changes_or_grouped_objects() {
    for kind in KINDS {
        let queue = queue(kind);
        let mut lengths = vec![queue.len()];
        for change in ["+a1", "+b1", "~a2"] {
            queue.push(delta(change));
            lengths.push(queue.len());
        }
        let in_objects = matches!(kind, QueueKind::DeltaFifo { .. });
        assert_eq!(lengths, [0, 1, 2, if in_objects { 2 } else { 3 }], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_store_reading_queues_lock_during_processing() {
    for kind in KINDS {
        let queue = queue(kind);
        queue.push(delta("+a1"));
        let locked = queue.process_next(|_| queue.state.try_lock().is_none());
        assert_eq!(locked.await, Some(kind != QueueKind::default()), "{kind:?}");
    }
}

#[tokio::test]
async fn each_producers_changes_stay_in_order() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for kind in KINDS {
        let queue = queue(kind);
        let mut producers = JoinSet::new();
        for name in ["a", "b"] {
            let queue = Arc::clone(&queue);
            let produce = async move {
                for n in 0..500 {
                    queue.push(delta(&format!("+{name}{n}")));
                }
            };
            producers.spawn_on(produce, runtime.handle());
        }
        let mut seen = BTreeMap::from([("a".to_owned(), Vec::new()), ("b".to_owned(), Vec::new())]);
        while seen.values().any(|versions| versions.len() < 500) {
            let deltas = queue.process_next(|batch| batch.deltas).await.unwrap();
            for thing in deltas.iter().filter_map(Delta::object) {
                seen.get_mut(&thing.name).unwrap().push(thing.version.parse::<usize>().unwrap());
            }
        }
        assert!(seen.into_values().all(|versions| versions == (0..500).collect::<Vec<_>>()), "{kind:?}");
    }
    runtime.shutdown_background();
}

#[test]
fn the_default_queue_keeps_lists_whole_and_versions_the_store() {
    assert_eq!(QueueKind::default(), QueueKind::RealFifo { atomic: true });
    for kind in KINDS {
        let store = kind.store(Arc::new(Things::new()), Indexers::new());
        store.apply(&Things::new(), vec![delta("[a1]"), delta("+b2"), delta("@3")]);
        let expected = if kind == QueueKind::default() { "3" } else { "" };
        assert_eq!(store.resource_version(), expected, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shared_handlers_see_a_relist_in_queue_order() {
    for kind in KINDS {
        let set_version = |thing: &mut Thing, version: &str| version.clone_into(&mut thing.version);
        let source = FakeSource::new(Arc::new(Things::new()), set_version);
        let change = |what: fn(&FakeSource<Things>, Thing), name: &str| {
            what(&source, Thing { name: name.to_owned(), version: String::new() });
        };
        let options = InformerOptions { queue: kind, ..InformerOptions::default() };
        let informer = SharedInformer::new(source.kind(), source.clone(), options);
        let log = EventLog::new(source.kind());
        let registration = informer.add_event_handler(log.clone(), HandlerOptions::default()).unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(Arc::clone(&informer).run(stop.clone()));
        registration.synced().await;
        assert!(informer.has_synced(), "also for an empty list");
        for name in ["a", "b", "c"] {
            change(FakeSource::apply, name);
        }
        settle().await;
        assert_eq!(log.take(), ["add a 2", "add b 3", "add c 4"], "{kind:?}");
        change(FakeSource::delete_silently, "c");
        change(FakeSource::apply_silently, "b");
        change(FakeSource::apply_silently, "d");
        source.reset_watch();
        tokio::time::sleep(Duration::from_secs(4)).await;
        let mut expected = vec!["tombstone c 4", "update a 2>2", "update b 3>6", "add d 7"];
        if matches!(kind, QueueKind::DeltaFifo { .. }) {
            expected.rotate_left(1);
        }
        assert_eq!(log.take(), expected, "{kind:?}");
        let version = if kind == QueueKind::default() { source.version() } else { String::new() };
        assert_eq!(informer.store().resource_version(), version);
        stop.cancel();
        running.await.unwrap();
    }
}

/// A change at the server, or a fault on the way from it.
#[derive(Clone, Debug)]
enum Step {
    Put { name: u8, lost: bool, misnamed: bool },
    Delete { name: u8, lost: bool },
    List,
    Resync,
    Bookmark,
    Process(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (name, lost) = (0..5_u8, prop::bool::weighted(0.2));
    prop_oneof![
        8 => (name.clone(), lost, any::<bool>())
            .prop_map(|(name, lost, misnamed)| Step::Put { name, lost, misnamed }),
        5 => (name, lost).prop_map(|(name, lost)| Step::Delete { name, lost }),
        2 => Just(Step::List),
        2 => Just(Step::Resync),
        1 => Just(Step::Bookmark),
        4 => (1..4_u8).prop_map(Step::Process),
    ]
}

/// A queue, the store behind it, and its handlers.
struct Rig {
    kind: QueueKind,
    queue: Box<dyn Content<Object = Thing>>,
    store: Store<Thing>,
    log: EventLog<Things>,
    synced: bool,
}

impl Rig {
    fn new(kind: QueueKind) -> Self {
        let store = kind.store(Arc::new(Things::new()), Indexers::new());
        let queue: Box<dyn Content<Object = Thing>> = match kind {
            QueueKind::RealFifo { atomic } => Box::new(InOrder::new((!atomic).then(|| store.clone()))),
            QueueKind::DeltaFifo { replaced } => {
                Box::new(crate::delta_fifo::ByKey::new(store.clone(), replaced))
            }
        };
        Self { kind, queue, store, log: EventLog::new(Arc::new(Things::new())), synced: false }
    }

    /// Returns `false` if there is nothing to process.
    fn process(&mut self) -> bool {
        let Some(batch) = self.queue.next_batch() else {
            return false;
        };
        assert!(!self.synced || !batch.in_initial_list, "the first list ends once");
        for change in self.store.apply(&Things::new(), batch.deltas) {
            match change {
                StoreChange::Added(thing) => self.log.on_add(&thing, batch.in_initial_list),
                StoreChange::Updated(old, new) => self.log.on_update(&old, &new),
                StoreChange::Deleted(deleted) => self.log.on_delete(&deleted),
            }
        }
        self.synced |= batch.synced;
        true
    }

    fn stored(&self) -> BTreeMap<String, String> {
        self.store.list().iter().map(|thing| (thing.name.clone(), thing.version.clone())).collect()
    }
}

fn listing(server: &BTreeMap<String, String>) -> Delta<Thing> {
    let things: Vec<_> = server.iter().map(|(name, version)| format!("{name}{version}")).collect();
    delta(&format!("[{}]", things.join(",")))
}

fn run(kind: QueueKind, steps: &[Step]) {
    let mut rig = Rig::new(kind);
    let mut server = BTreeMap::<String, String>::new();
    for (version, step) in steps.iter().enumerate() {
        match *step {
            Step::Put { name, lost, misnamed } => {
                let name = char::from(b'a' + name).to_string();
                let is_new = server.insert(name.clone(), version.to_string()).is_none();
                let what = if is_new == misnamed { "~" } else { "+" };
                if !lost {
                    rig.queue.push(delta(&format!("{what}{name}{version}")));
                }
            }
            Step::Delete { name, lost } => {
                let name = char::from(b'a' + name).to_string();
                if server.remove(&name).is_some() && !lost {
                    rig.queue.push(delta(&format!("-{name}{version}")));
                }
            }
            Step::List => rig.queue.push(listing(&server)),
            Step::Resync => rig.queue.push(Delta::SyncAll),
            Step::Bookmark => rig.queue.push(delta(&format!("@{version}"))),
            Step::Process(batches) => {
                for _ in 0..batches {
                    rig.process();
                }
            }
        }
    }
    // Lost changes become visible with a list.
    rig.queue.push(listing(&server));
    while rig.process() {}
    assert_eq!(rig.stored(), server, "the store has what the server has");
    assert_eq!(rig.log.content(), server, "the notifications add up to it");
    assert_eq!(rig.log.faults(), [""; 0], "each notification follows from the previous one");
    assert!(rig.synced);
    if matches!(rig.kind, QueueKind::DeltaFifo { .. }) {
        assert!(!rig.log.lines().iter().any(|line| line.ends_with("unknown")), "{:?}", rig.log.lines());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_queues_lead_to_the_same_content(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        for kind in KINDS {
            run(kind, &steps);
        }
    }
}
