//! What happened to pods: a log of limited size.
//!
//! The scheduler's thread writes it, so an entry costs some reference counts, and a copy of the
//! message if an attempt fails for another reason than the last one. A fork shares all entries but
//! the last few.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::mem::{size_of, take};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use supercargo_framework::hash_seed::HashSeed;
use supercargo_framework::pod::PodKey;
use supercargo_framework::{Now, PodInfo, Text, Timestamp};

use crate::scheduler::Scheduler;
use supercargo_queue::QueuedPod;

/// The entries that are dropped together.
const SEGMENT: usize = 64;
/// The parts of the log. The larger ones make room first, so a namespace that fills the log takes
/// room from the few others in its part.
const PARTS: usize = 64;
/// The longest message that is kept, in bytes.
const LONGEST_MESSAGE: usize = 1024;

/// Something that happened to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happening {
    /// It entered the queue.
    Added,
    /// This PreEnqueue plugin holds it.
    Gated(Text),
    /// No PreEnqueue plugin holds it any more.
    Released,
    /// This made it worth another attempt. Not noted for pods of groups.
    Woken(Arc<str>),
    /// An attempt chose this node.
    Chosen(Arc<str>, Attempt),
    /// This Permit plugin holds it.
    Waits(Text),
    /// Permit no longer holds it.
    Permitted,
    /// It was bound to this node.
    Bound(Arc<str>),
    /// An attempt failed: no node fits, or the binding failed. The message says why.
    Failed(Arc<str>, Attempt),
    /// It preempts this many pods on this node.
    Preempts(Arc<str>, usize),
    /// It was evicted for this pod.
    PreemptedBy(PodKey),
    /// It gave its node up, for this reason, and is tried again at once.
    GaveUp(Text),
    /// Another scheduler bound it to this node.
    BoundElsewhere(Arc<str>),
    /// It was deleted, or left the queue.
    Deleted,
    /// It succeeded or failed, or was deleted at once: the informer does not tell which.
    Ended,
}

/// An attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// Whether the pod was tried because it had waited too long.
    pub after_flush: bool,
}

impl From<&QueuedPod> for Attempt {
    fn from(queued: &QueuedPod) -> Self {
        Self { number: queued.attempts, after_flush: queued.flushed }
    }
}

/// What happened to a pod, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The time.
    pub time: Timestamp,
    /// The pod.
    pub pod: PodKey,
    /// What happened.
    pub what: Happening,
}

impl Entry {
    /// Its memory without a message. Names are shared with the pod, but may outlive it.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.pod.namespace.len() + self.pod.name.len()
    }

    fn message(&self) -> Option<&Arc<str>> {
        match &self.what {
            Happening::Failed(message, _) | Happening::Woken(message) => Some(message),
            _ => None,
        }
    }
}

/// Entries that are no longer written to.
#[derive(Debug)]
struct Segment {
    entries: Vec<Entry>,
    bytes: usize,
}

/// The entries of some namespaces.
#[derive(Clone, Debug, Default)]
struct Part {
    closed: VecDeque<Arc<Segment>>,
    open: Vec<Entry>,
    /// The memory of all closed segments, and of the open one.
    bytes: (usize, usize),
    /// The last message of the open segment. Entries that share it need memory for it once.
    message: Option<Arc<str>>,
    /// Whether entries have been dropped.
    is_cut: bool,
}

impl Part {
    /// Adds an entry. Returns the memory of the segment that this closes.
    fn push(&mut self, entry: Entry) -> usize {
        self.bytes.1 += entry.bytes();
        if let Some(message) = entry.message()
            && !self.message.as_ref().is_some_and(|last| Arc::ptr_eq(last, message))
        {
            self.bytes.1 += message.len();
            self.message = Some(Arc::clone(message));
        }
        self.open.push(entry);
        if self.open.len() < SEGMENT {
            return 0;
        }
        let (entries, bytes) = (take(&mut self.open), take(&mut self.bytes.1));
        self.message = None;
        self.bytes.0 += bytes;
        self.closed.push_back(Arc::new(Segment { entries, bytes }));
        bytes
    }

    /// Drops the oldest segment, and returns its memory.
    fn drop_oldest(&mut self) -> usize {
        let bytes = self.closed.pop_front().map_or(0, |oldest| oldest.bytes);
        self.bytes.0 -= bytes;
        self.is_cut = true;
        bytes
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.closed.iter().flat_map(|segment| &segment.entries).chain(&self.open)
    }
}

/// The latest entries, up to a limit.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    /// The memory limit in bytes. With 0, nothing is kept.
    limit: usize,
    /// Of all closed segments.
    bytes: usize,
    parts: Vec<Part>,
    seed: HashSeed,
    /// The last message: many pods fail for the same reason.
    message: Arc<str>,
}

impl Timeline {
    /// Users choose the names of namespaces: see [`HashSeed`].
    pub(crate) fn new(limit: usize, seed: HashSeed) -> Self {
        let parts = if limit > 0 { PARTS } else { 0 };
        Self { limit, bytes: 0, parts: vec![Part::default(); parts], seed, message: Arc::default() }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.limit == 0
    }

    /// Forgets everything, and takes these entries instead.
    pub(crate) fn replace(&mut self, entries: Vec<Entry>) {
        *self = Self::new(self.limit, self.seed.clone());
        if self.is_off() {
            return;
        }
        for mut entry in entries {
            if let Happening::Failed(message, _) = &mut entry.what {
                *message = self.share(message);
            }
            self.push(entry);
        }
    }

    fn push(&mut self, entry: Entry) {
        let part = self.part_of(&entry.pod);
        self.bytes += self.parts[part].push(entry);
        while self.bytes > self.limit
            && let Some(largest) = self.parts.iter_mut().max_by_key(|part| part.bytes.0)
        {
            self.bytes -= largest.drop_oldest();
        }
    }

    /// The index of the part that has the entries of a pod.
    fn part_of(&self, pod: &PodKey) -> usize {
        self.seed.hash_one(&*pod.namespace) as usize % PARTS
    }

    /// The message, shared with the last one if they are equal.
    fn share(&mut self, message: &str) -> Arc<str> {
        let end = message.floor_char_boundary(LONGEST_MESSAGE);
        if *self.message != message[..end] {
            self.message = message[..end].into();
        }
        Arc::clone(&self.message)
    }

    /// All entries; those of a namespace in their order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.parts.iter().flat_map(Part::entries)
    }

    /// The entries of a pod, the oldest first.
    fn of(&self, pod: &PodKey) -> History {
        let part = &self.parts[self.part_of(pod)];
        let entries = part.entries().filter(|entry| entry.pod == *pod).cloned().collect();
        History { entries, cut_at: part.entries().next().map(|first| first.time).filter(|_| part.is_cut) }
    }
}

/// What happened to the pods of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The entries, the oldest first.
    pub entries: Vec<Entry>,
    /// The begin of the log, if what was before was dropped.
    pub cut_at: Option<Timestamp>,
}

impl Scheduler {
    /// What happened to the pods of this name; `None` if it is not noted.
    pub fn history(&self, pod: &PodKey) -> Option<History> {
        (!self.timeline.is_off()).then(|| self.timeline.of(pod))
    }

    /// Notes that something happened to a pod.
    pub(crate) fn note(&mut self, now: Now, pod: &PodInfo, what: impl FnOnce() -> Happening) {
        if !self.timeline.is_off() {
            self.timeline.push(Entry { time: now.wall, pod: pod.key(), what: what() });
        }
    }

    /// Notes the failure of an attempt.
    pub(crate) fn note_failure(&mut self, now: Now, queued: &QueuedPod, message: &str) {
        if !self.timeline.is_off() {
            let message = self.timeline.share(message);
            self.note(now, &queued.pod, || Happening::Failed(message, queued.into()));
        }
    }

    /// The PreEnqueue plugin that holds a pod, if the timeline is on.
    pub(crate) fn gate(&self, pod: &PodInfo) -> Option<Text> {
        let queued = self.queue.get(&pod.uid).filter(|_| !self.timeline.is_off())?;
        queued.gating_plugin.clone()
    }

    /// Notes that the gate of a pod is another one than `before`.
    pub(crate) fn note_gate(&mut self, now: Now, pod: &PodInfo, before: Option<&Text>) {
        let gate = self.gate(pod);
        if gate.as_ref() != before {
            self.note(now, pod, || gate.map_or(Happening::Released, Happening::Gated));
        }
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::pod;

    use super::*;

    fn entry(time: i64, name: &str) -> Entry {
        Entry { time: Timestamp(time), pod: pod(name).build().key(), what: Happening::Added }
    }

    fn timeline(limit: usize) -> Timeline {
        Timeline::new(limit, HashSeed::new(7))
    }

    #[test]
    fn the_oldest_entries_are_dropped_beyond_the_limit() {
        let limit = entry(0, "p").bytes() * SEGMENT * 2;
        let mut timeline = timeline(limit);
        let key = pod("p").build().key();
        for time in 0..2 * SEGMENT as i64 {
            timeline.push(entry(time, "p"));
        }
        assert_eq!((timeline.of(&key).entries.len(), timeline.of(&key).cut_at), (2 * SEGMENT, None));
        for time in 0..10 * SEGMENT as i64 {
            timeline.push(entry(1000 + time, "p"));
            assert!(timeline.bytes <= limit);
        }
        let history = timeline.of(&key);
        assert_eq!(history.entries.len(), 2 * SEGMENT);
        assert_eq!(history.cut_at, Some(history.entries[0].time));
        assert!(history.entries.is_sorted_by_key(|entry| entry.time));
        assert_eq!(timeline.of(&pod("q").build().key()).entries, []);
    }

    #[test]
    fn a_namespace_that_fills_the_log_drops_its_own_entries() {
        let limit = entry(0, "p").bytes() * SEGMENT * 8;
        let mut timeline = timeline(limit);
        let quiet: Vec<Entry> = (0..PARTS)
            .map(|number| Entry {
                pod: PodKey { namespace: format!("quiet-{number}").into(), name: "p".into() },
                ..entry(0, "p")
            })
            .filter(|quiet| timeline.part_of(&quiet.pod) != timeline.part_of(&entry(0, "p").pod))
            .collect();
        for _ in 0..SEGMENT {
            timeline.push(quiet[0].clone());
        }
        for time in 0..100 * SEGMENT as i64 {
            timeline.push(entry(time, "p"));
        }
        let history = timeline.of(&quiet[0].pod);
        assert_eq!((history.entries.len(), history.cut_at), (SEGMENT, None));
        assert!(timeline.of(&entry(0, "p").pod).cut_at.is_some());
        assert!(quiet.len() > PARTS / 2, "most namespaces are in other parts");
    }

    #[test]
    fn equal_messages_share_memory_and_long_ones_are_cut() {
        let mut timeline = timeline(1);
        let (one, same) = (timeline.share("full"), timeline.share("full"));
        assert!(Arc::ptr_eq(&one, &same));
        assert_eq!(&*timeline.share("other"), "other");
        let long = timeline.share(&"é".repeat(1000));
        assert!(long.len() <= LONGEST_MESSAGE && long.ends_with('é'), "{}", long.len());
    }

    #[test]
    fn a_shared_message_counts_once_in_a_segment() {
        let mut timeline = timeline(1 << 20);
        let attempt = Attempt { number: 1, after_flush: false };
        let failed =
            |message: &str| Entry { what: Happening::Failed(message.into(), attempt), ..entry(0, "p") };
        timeline.replace((0..2 * SEGMENT).map(|_| failed(&"x".repeat(1000))).collect());
        assert_eq!(timeline.bytes, 2 * (SEGMENT * entry(0, "p").bytes() + 1000));
    }
}
