//! What happened to pods: a log of limited size.
//!
//! The scheduler's thread writes it, so an entry costs some reference counts, and a copy of the
//! message if an attempt fails for another reason than the last one. A fork shares all entries but
//! the last few.

use std::collections::VecDeque;
use std::mem::{size_of, take};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use supercargo_framework::pod::PodKey;
use supercargo_framework::{Now, PodInfo, Text, Timestamp};

use crate::scheduler::Scheduler;
use supercargo_queue::QueuedPod;

/// The entries that are dropped together.
const SEGMENT: usize = 256;
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
    /// This made it worth another attempt. Known from a record only.
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
    /// It was deleted, or left the queue.
    Deleted,
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
    /// Its memory. Names are shared with the pod, but may outlive it.
    fn bytes(&self) -> usize {
        let message = match &self.what {
            Happening::Failed(message, _) | Happening::Woken(message) => message.len(),
            _ => 0,
        };
        size_of::<Self>() + self.pod.namespace.len() + self.pod.name.len() + message
    }
}

/// Entries that are no longer written to.
#[derive(Debug)]
struct Segment {
    entries: Vec<Entry>,
    bytes: usize,
}

/// The latest entries, up to a limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    /// The memory limit in bytes. With 0, nothing is kept.
    limit: usize,
    closed: VecDeque<Arc<Segment>>,
    open: Vec<Entry>,
    /// The memory of all closed segments, and of the open one.
    bytes: (usize, usize),
    /// The last message: many pods fail for the same reason.
    message: Arc<str>,
    /// Whether entries have been dropped.
    is_cut: bool,
}

impl Timeline {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.limit == 0
    }

    /// Forgets everything, and takes these entries instead.
    pub(crate) fn replace(&mut self, entries: Vec<Entry>) {
        *self = Self::new(self.limit);
        if !self.is_off() {
            for entry in entries {
                self.push(entry);
            }
        }
    }

    fn push(&mut self, entry: Entry) {
        self.bytes.1 += entry.bytes();
        self.open.push(entry);
        if self.open.len() == SEGMENT {
            let (entries, bytes) = (take(&mut self.open), take(&mut self.bytes.1));
            self.open.reserve_exact(SEGMENT);
            self.bytes.0 += bytes;
            self.closed.push_back(Arc::new(Segment { entries, bytes }));
            while self.bytes.0 > self.limit
                && let Some(oldest) = self.closed.pop_front()
            {
                self.bytes.0 -= oldest.bytes;
                self.is_cut = true;
            }
        }
    }

    /// The message, shared with the last one if they are equal.
    fn share(&mut self, message: &str) -> Arc<str> {
        let end = message.floor_char_boundary(LONGEST_MESSAGE);
        if *self.message != message[..end] {
            self.message = message[..end].into();
        }
        Arc::clone(&self.message)
    }

    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.closed.iter().flat_map(|segment| &segment.entries).chain(&self.open)
    }

    /// The entries of a pod, the oldest first.
    fn of(&self, pod: &PodKey) -> History {
        let entries = self.entries().filter(|entry| entry.pod == *pod).cloned().collect();
        History { entries, cut_at: self.entries().next().map(|first| first.time).filter(|_| self.is_cut) }
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

    #[test]
    fn the_oldest_entries_are_dropped_beyond_the_limit() {
        let limit = entry(0, "p").bytes() * SEGMENT * 2;
        let mut timeline = Timeline::new(limit);
        let key = pod("p").build().key();
        for time in 0..2 * SEGMENT as i64 {
            timeline.push(entry(time, "p"));
        }
        assert_eq!((timeline.of(&key).entries.len(), timeline.of(&key).cut_at), (2 * SEGMENT, None));
        for time in 0..10 * SEGMENT as i64 {
            timeline.push(entry(1000 + time, "p"));
            assert!(timeline.bytes.0 <= limit);
        }
        let history = timeline.of(&key);
        assert_eq!(history.entries.len(), 2 * SEGMENT);
        assert_eq!(history.cut_at, Some(history.entries[0].time));
        assert!(history.entries.is_sorted_by_key(|entry| entry.time));
        assert_eq!(timeline.of(&pod("q").build().key()).entries, []);
    }

    #[test]
    fn equal_messages_share_memory_and_long_ones_are_cut() {
        let mut timeline = Timeline::new(1);
        let (one, same) = (timeline.share("full"), timeline.share("full"));
        assert!(Arc::ptr_eq(&one, &same));
        assert_eq!(&*timeline.share("other"), "other");
        let long = timeline.share(&"é".repeat(1000));
        assert!(long.len() <= LONGEST_MESSAGE && long.ends_with('é'), "{}", long.len());
    }
}
