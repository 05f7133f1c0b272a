//! Which objects have changed, so that what plugins derive from them can follow.

use std::collections::VecDeque;
use std::sync::Arc;

/// The number of changes of a kind that are kept. Who is further behind derives from scratch.
const KEPT: usize = 8192;

/// A position in the changes of one kind of [`Objects`](super::Objects).
#[derive(Clone, Debug)]
pub struct Revision {
    /// The identity of the log. A clone of [`Objects`](super::Objects) goes its own way.
    log: Arc<()>,
    number: u64,
}

/// The keys of the objects that changed, the latest last.
#[derive(Debug, Default)]
pub(super) struct ChangedKeys {
    identity: Arc<()>,
    keys: VecDeque<Arc<str>>,
    /// The number of changes that are no longer kept.
    dropped: u64,
}

impl Clone for ChangedKeys {
    fn clone(&self) -> Self {
        Self { identity: Arc::default(), keys: VecDeque::new(), dropped: 0 }
    }
}

impl ChangedKeys {
    pub(super) fn add(&mut self, key: &Arc<str>) {
        if self.keys.len() == KEPT {
            self.keys.pop_front();
            self.dropped += 1;
        }
        self.keys.push_back(Arc::clone(key));
    }

    pub(super) fn revision(&self) -> Revision {
        let number = self.dropped + self.keys.len() as u64;
        Revision { log: Arc::clone(&self.identity), number }
    }

    /// The keys since a revision, repetitions included; `None` if they are unknown.
    pub(super) fn since(&self, revision: &Revision) -> Option<impl Iterator<Item = &Arc<str>>> {
        let kept = revision.number.checked_sub(self.dropped)?;
        let skipped = usize::try_from(kept).ok()?;
        Arc::ptr_eq(&self.identity, &revision.log).then(|| self.keys.iter().skip(skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(changes: usize) -> ChangedKeys {
        let mut log = ChangedKeys::default();
        (0..changes).for_each(|number| log.add(&number.to_string().into()));
        log
    }

    fn since(log: &ChangedKeys, revision: &Revision) -> Option<Vec<String>> {
        log.since(revision).map(|keys| keys.map(ToString::to_string).collect())
    }

    #[test]
    fn changes_since_a_revision_are_those_after_it() {
        let mut log = log(2);
        let revision = log.revision();
        assert_eq!(since(&log, &revision), Some(Vec::new()));
        log.add(&"a".into());
        log.add(&"a".into());
        assert_eq!(since(&log, &revision), Some(vec!["a".to_owned(), "a".to_owned()]));
    }

    #[test]
    fn changes_that_are_not_kept_are_unknown() {
        let mut log = log(1);
        let early = log.revision();
        (0..KEPT).for_each(|_| log.add(&"b".into()));
        assert_eq!(since(&log, &early).map(|keys| keys.len()), Some(KEPT));
        log.add(&"c".into());
        assert_eq!(since(&log, &early), None);
    }

    #[test]
    fn a_clone_does_not_know_the_revisions_of_the_original() {
        let original = log(3);
        let clone = original.clone();
        assert_eq!(since(&clone, &original.revision()), None);
        assert_eq!(since(&original, &clone.revision()), None);
    }
}
