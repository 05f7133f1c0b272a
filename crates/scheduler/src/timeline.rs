//! What happened to pods: a log of limited size.
//!
//! The scheduler's thread writes it: it copies names into a segment that is at hand, and touches
//! nothing else. A fork shares all entries but the last few. Entries are unpacked when somebody
//! asks.

mod segment;

use std::hash::BuildHasher as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use supercargo_framework::hash_seed::HashSeed;
use supercargo_framework::pod::PodKey;
use supercargo_framework::{Now, PodInfo, Text, Timestamp};

pub(crate) use self::segment::Noted;
use self::segment::Part;
use crate::scheduler::Scheduler;
use supercargo_queue::QueuedPod;

/// The parts of the log. The larger ones make room first, so a namespace that fills the log takes
/// room from the few others in its part.
const PARTS: usize = 64;

/// Something that happened to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happening<S = Arc<str>> {
    /// It entered the queue.
    Added,
    /// This PreEnqueue plugin holds it.
    Gated(S),
    /// No PreEnqueue plugin holds it any more.
    Released,
    /// This made it worth another attempt. Not noted for pods of groups.
    Woken(S),
    /// An attempt chose this node.
    Chosen(S, Attempt),
    /// This Permit plugin holds it.
    Waits(S),
    /// Permit no longer holds it.
    Permitted,
    /// It was bound to this node.
    Bound(S),
    /// An attempt failed: no node fits, or the binding failed. The message says why.
    Failed(S, Attempt),
    /// It preempts this many pods on this node.
    Preempts(S, usize),
    /// It was evicted for this pod.
    PreemptedBy {
        /// The pod's namespace.
        namespace: S,
        /// Its name.
        name: S,
    },
    /// It gave its node up, for this reason, and is tried again at once.
    GaveUp(S),
    /// Another scheduler bound it to this node.
    BoundElsewhere(S),
    /// It was deleted, or left the queue.
    Deleted,
    /// It succeeded or failed, or was deleted at once: the informer does not tell which.
    Ended,
}

impl<S> Happening<S> {
    /// The same with other texts.
    fn map<'a, T>(&'a self, mut text: impl FnMut(&'a S) -> T) -> Happening<T> {
        match self {
            Self::Added => Happening::Added,
            Self::Gated(plugin) => Happening::Gated(text(plugin)),
            Self::Released => Happening::Released,
            Self::Woken(cause) => Happening::Woken(text(cause)),
            Self::Chosen(node, attempt) => Happening::Chosen(text(node), *attempt),
            Self::Waits(plugin) => Happening::Waits(text(plugin)),
            Self::Permitted => Happening::Permitted,
            Self::Bound(node) => Happening::Bound(text(node)),
            Self::Failed(message, attempt) => Happening::Failed(text(message), *attempt),
            Self::Preempts(node, pods) => Happening::Preempts(text(node), *pods),
            Self::PreemptedBy { namespace, name } => {
                Happening::PreemptedBy { namespace: text(namespace), name: text(name) }
            }
            Self::GaveUp(cause) => Happening::GaveUp(text(cause)),
            Self::BoundElsewhere(node) => Happening::BoundElsewhere(text(node)),
            Self::Deleted => Happening::Deleted,
            Self::Ended => Happening::Ended,
        }
    }
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

/// The latest entries, up to a limit.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    /// The memory limit in bytes. With 0, nothing is kept.
    limit: usize,
    /// The memory of all entries.
    bytes: usize,
    parts: Vec<Part>,
    seed: HashSeed,
    /// The last namespace, and its part.
    last: (Arc<str>, usize),
}

impl Timeline {
    /// Users choose the names of namespaces: see [`HashSeed`].
    pub(crate) fn new(limit: usize, seed: HashSeed) -> Self {
        let parts = vec![Part::default(); if limit > 0 { PARTS } else { 0 }];
        let last = (Arc::default(), part_of(&seed, ""));
        Self { limit, bytes: 0, parts, seed, last }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.limit == 0
    }

    /// Forgets everything, and takes these entries instead.
    pub(crate) fn replace(&mut self, entries: &[Entry]) {
        *self = Self::new(self.limit, self.seed.clone());
        if self.is_off() {
            return;
        }
        for Entry { time, pod, what } in entries {
            self.push(*time, &pod.namespace, &pod.name, what);
        }
    }

    fn push<S: AsRef<str>>(
        &mut self,
        time: Timestamp,
        namespace: &Arc<str>,
        name: &str,
        what: &Happening<S>,
    ) {
        if self.last.0 != *namespace {
            self.last = (Arc::clone(namespace), part_of(&self.seed, namespace));
        }
        self.bytes += self.parts[self.last.1].push(time, (namespace, name), what);
        while self.bytes > self.limit
            && let Some(largest) = self.parts.iter_mut().max_by_key(|part| part.bytes)
            && largest.bytes > 0
        {
            self.bytes -= largest.drop_oldest();
        }
    }

    /// All entries; those of a namespace in their order.
    pub(crate) fn notes(&self) -> impl Iterator<Item = Noted<'_>> {
        self.parts.iter().flat_map(Part::notes)
    }

    /// The entries of a pod, the oldest first.
    fn of(&self, pod: &PodKey) -> History {
        let part = &self.parts[part_of(&self.seed, &pod.namespace)];
        let entries = part.notes().filter(|note| note.is_of(pod)).map(|note| note.entry()).collect();
        History { entries, cut_at: part.notes().next().map(|first| first.time()).filter(|_| part.is_cut) }
    }
}

/// The index of the part that has the entries of a namespace.
fn part_of(seed: &HashSeed, namespace: &str) -> usize {
    seed.hash_one(namespace) as usize % PARTS
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
    pub(crate) fn note(&mut self, now: Now, pod: &PodInfo, what: Happening<&str>) {
        if !self.timeline.is_off() {
            self.timeline.push(now.wall, &pod.namespace, &pod.name, &what);
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
            self.note(now, pod, gate.as_deref().map_or(Happening::Released, Happening::Gated));
        }
    }
}

#[cfg(test)]
mod tests;
