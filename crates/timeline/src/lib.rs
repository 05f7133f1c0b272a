//! What happened to pods: a log of limited size.
//!
//! The scheduler's thread writes it: it copies names into a segment that is at hand, and touches
//! nothing else. A copy of the log shares all entries but the last few. Entries are unpacked when
//! somebody asks.

mod entry;
mod segment;

use std::collections::BinaryHeap;
use std::hash::BuildHasher as _;
use std::iter::Peekable;
use std::sync::Arc;

use supercargo_framework::Timestamp;
use supercargo_framework::hash_seed::HashSeed;
use supercargo_framework::pod::PodKey;

pub use self::entry::{Attempt, Entry, Happening};
pub use self::segment::Noted;
use self::segment::Part;

/// The parts of the log. The larger ones make room first, so a namespace that fills the log takes
/// room from the few others in its part.
const PARTS: usize = 64;

/// The latest entries, up to a limit.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The memory limit in bytes. With 0, nothing is kept.
    limit: usize,
    /// The memory of all entries.
    bytes: usize,
    parts: Vec<Part>,
    seed: HashSeed,
    /// The last namespace, and its part.
    last: (Arc<str>, usize),
    /// When the log began whose entries this one took over, if it had dropped any.
    begin: Option<Timestamp>,
}

impl Timeline {
    /// An empty log of at most `limit` bytes. Users choose the names of namespaces: see
    /// [`HashSeed`].
    pub fn new(limit: usize, seed: HashSeed) -> Self {
        let parts = vec![Part::default(); if limit > 0 { PARTS } else { 0 }];
        let last = (Arc::default(), part_of(&seed, ""));
        Self { limit, bytes: 0, parts, seed, last, begin: None }
    }

    /// Whether it keeps nothing.
    pub fn is_off(&self) -> bool {
        self.limit == 0
    }

    /// Forgets everything, and takes these entries and the [begin](Self::begin) of another log.
    pub fn replace(&mut self, entries: &[Entry], begin: Option<Timestamp>) {
        *self = Self { begin, ..Self::new(self.limit, self.seed.clone()) };
        if self.is_off() {
            return;
        }
        for Entry { time, pod, what } in entries {
            self.push(*time, &pod.namespace, &pod.name, what);
        }
    }

    /// Adds an entry, and drops the oldest ones beyond the limit. Texts are cut after 1,024 bytes.
    pub fn push<S: AsRef<str>>(
        &mut self,
        time: Timestamp,
        namespace: &Arc<str>,
        name: &str,
        what: &Happening<S>,
    ) {
        if self.is_off() {
            return;
        }
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
    pub fn notes(&self) -> impl Iterator<Item = Noted<'_>> {
        self.parts.iter().flat_map(Part::notes)
    }

    /// All entries, the newest first.
    pub fn newest(&self) -> impl Iterator<Item = Noted<'_>> {
        let mut parts: Vec<_> = self.parts.iter().map(|part| part.notes().rev().peekable()).collect();
        let next = |(at, part): (usize, &mut Peekable<_>)| Some((Noted::time(part.peek()?), at));
        let mut heads: BinaryHeap<_> = parts.iter_mut().enumerate().filter_map(next).collect();
        std::iter::from_fn(move || {
            let (_, at) = heads.pop()?;
            let newest = parts[at].next();
            heads.extend(next((at, &mut parts[at])));
            newest
        })
    }

    /// The time from which on nothing was dropped; `None` if nothing was.
    pub fn begin(&self) -> Option<Timestamp> {
        self.parts.iter().filter_map(Part::cut_at).chain(self.begin).max()
    }

    /// The entries of a pod, the oldest first.
    pub fn of(&self, pod: &PodKey) -> History {
        let Some(part) = self.parts.get(part_of(&self.seed, &pod.namespace)) else {
            return History::default();
        };
        let entries = part.notes().filter(|note| note.is_of(pod)).map(|note| note.entry()).collect();
        History { entries, cut_at: part.cut_at().max(self.begin) }
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

#[cfg(test)]
mod tests;
