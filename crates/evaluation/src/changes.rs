//! The log of changes that evaluation tables catch up with.

use std::collections::VecDeque;
use std::sync::Arc;

use supercargo_framework::{NodeIndex, NodeRecord, PodInfo, Text};

/// A change of something that plugins read.
#[derive(Clone, Debug)]
pub(crate) enum CacheChange {
    /// A pod was added to a node; the node is as it was then.
    PodAdded { index: NodeIndex, node: Arc<NodeRecord>, pod: Arc<PodInfo> },
    /// A pod was removed from a node.
    PodRemoved { index: NodeIndex, node: Arc<NodeRecord>, pod: Arc<PodInfo> },
    /// A node was added without pods. Its pods follow as further changes.
    NodeAdded { index: NodeIndex, node: Arc<NodeRecord> },
    /// A node was removed. The removals of its pods precede this change.
    NodeRemoved { index: NodeIndex, node: Arc<NodeRecord> },
    /// A node object changed.
    NodeChanged { index: NodeIndex, old: Arc<NodeRecord>, new: Arc<NodeRecord> },
    /// An object of another kind was added, removed or changed.
    Object { resource: Text, key: Arc<str> },
}

impl CacheChange {
    /// The node that the change is about.
    pub(crate) fn index(&self) -> Option<NodeIndex> {
        match self {
            Self::PodAdded { index, .. }
            | Self::PodRemoved { index, .. }
            | Self::NodeAdded { index, .. }
            | Self::NodeRemoved { index, .. }
            | Self::NodeChanged { index, .. } => Some(*index),
            Self::Object { .. } => None,
        }
    }
}

/// A position in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor(u64);

impl Cursor {
    /// The position after the next change.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The maximum number of changes kept.
const MAX_KEPT: usize = 1 << 16;
/// The maximum per pod and node in the cache. A reader that is further behind starts over, which
/// costs no more by then.
const MAX_KEPT_EACH: usize = 4;
/// The number of changes kept in any case.
const MIN_KEPT: usize = 1024;

/// The latest changes.
#[derive(Debug)]
pub(crate) struct ChangeLog {
    changes: VecDeque<CacheChange>,
    end: u64,
    /// The maximum number of changes kept.
    pub(crate) kept: usize,
}

impl Default for ChangeLog {
    fn default() -> Self {
        Self { changes: VecDeque::new(), end: 0, kept: MAX_KEPT }
    }
}

impl ChangeLog {
    /// Adds a change. `objects` is the number of pods and nodes in the cache.
    pub(crate) fn push(&mut self, change: CacheChange, objects: usize) {
        let kept = self.kept.min(MIN_KEPT.max(MAX_KEPT_EACH * objects)).max(1);
        self.changes.drain(..(self.changes.len() + 1).saturating_sub(kept));
        self.changes.push_back(change);
        self.end += 1;
    }

    /// A log at the same position that has forgotten all changes.
    pub(crate) fn forgetful(&self) -> Self {
        Self { changes: VecDeque::new(), ..*self }
    }

    /// The number of changes kept.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// The position after the latest change.
    pub(crate) fn end(&self) -> Cursor {
        Cursor(self.end)
    }

    /// The number of changes since a position; `None` if some of them are no longer kept.
    pub(crate) fn lag(&self, cursor: Cursor) -> Option<usize> {
        let lag = (self.end - cursor.0) as usize;
        (lag <= self.changes.len()).then_some(lag)
    }

    /// The changes since a position, each with its own, in order. Changes that are no longer kept
    /// are left out.
    pub(crate) fn since(&self, cursor: Cursor) -> impl Iterator<Item = (Cursor, &CacheChange)> {
        let lag = self.lag(cursor).unwrap_or(self.changes.len());
        let first = self.end - lag as u64;
        let changes = self.changes.range(self.changes.len() - lag..);
        changes.enumerate().map(move |(i, change)| (Cursor(first + i as u64), change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str) -> CacheChange {
        CacheChange::Object { resource: "Service".into(), key: key.into() }
    }

    #[test]
    fn changes_are_read_from_a_position_while_they_are_kept() {
        let mut log = ChangeLog::default();
        let start = log.end();
        assert_eq!(log.lag(start), Some(0));
        log.push(object("a"), MAX_KEPT);
        let middle = log.end();
        log.push(object("b"), MAX_KEPT);
        let keys = |log: &ChangeLog, from| {
            let keys = log.since(from).map(|(_, change)| match change {
                CacheChange::Object { key, .. } => key.to_string(),
                other => panic!("{other:?}"),
            });
            keys.collect::<Vec<_>>()
        };
        assert_eq!(keys(&log, start), ["a", "b"]);
        assert_eq!(keys(&log, middle), ["b"]);
        assert_eq!(log.since(start).map(|(at, _)| at).collect::<Vec<_>>(), [start, middle]);
        for _ in 0..MAX_KEPT {
            log.push(object("c"), MAX_KEPT);
        }
        assert_eq!((log.lag(start), log.lag(middle)), (None, None));
        assert_eq!(keys(&log, log.end()), Vec::<String>::new());
    }

    #[test]
    fn number_of_kept_changes_is_proportional_to_the_cache() {
        let mut log = ChangeLog::default();
        let fill = |log: &mut ChangeLog, objects| {
            (0..2 * MAX_KEPT).for_each(|_| log.push(object("a"), objects));
            log.len()
        };
        assert_eq!(fill(&mut log, 1_000_000), MAX_KEPT);
        assert_eq!(fill(&mut log, 1_000), 4_000, "excess changes are dropped");
        assert_eq!(fill(&mut log, 0), MIN_KEPT);
    }
}
