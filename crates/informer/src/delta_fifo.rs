//! The queue that groups changes by object.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::delta::{Batch, Delta, Replacement};
use crate::key::{Deleted, KeyMap, KeySet, ObjectKey};
use crate::queue::{Content, Population};
use crate::store::Store;

/// Changes grouped by object, in the order of each object's first change, as in older informers of
/// client-go. A batch is one object's changes.
pub(crate) struct ByKey<T> {
    deltas: KeyMap<Vec<Delta<T>>>,
    /// The keys of `deltas`.
    order: VecDeque<ObjectKey>,
    population: Population,
    known: Store<T>,
    replaced: bool,
}

impl<T> ByKey<T> {
    /// The queue's consumer writes to `known`. Items of lists are emitted as `replaced` or as
    /// resyncs.
    pub(crate) fn new(known: Store<T>, replaced: bool) -> Self {
        let (deltas, order, population) = (KeyMap::default(), VecDeque::new(), Population::default());
        Self { deltas, order, population, known, replaced }
    }

    fn queue(&mut self, key: ObjectKey, delta: Delta<T>) {
        match self.deltas.entry(key) {
            Entry::Occupied(queued) => append(queued.into_mut(), delta),
            Entry::Vacant(place) => {
                self.order.push_back(place.key().clone());
                place.insert(vec![delta]);
            }
        }
    }

    /// Queues the items of the list, then the missing objects with their newest state.
    fn replace(&mut self, list: Replacement<T>) {
        let listed: KeySet = list.keys().cloned().collect();
        let replaced = self.replaced;
        let mut count: KeySet = KeySet::default();
        for (key, object) in list.objects {
            count.insert(key.clone());
            let delta = if replaced { Delta::Replaced } else { Delta::Sync };
            self.queue(key.clone(), delta(key, object));
        }
        let gone = self.gone(&listed);
        self.population.list(count.len() + gone.len());
        for (key, last) in gone {
            self.queue(key.clone(), Delta::tombstone(key, last));
        }
    }

    fn gone(&self, listed: &KeySet) -> Vec<(ObjectKey, Option<Arc<T>>)> {
        let queued = self.order.iter().filter(|key| !listed.contains(*key));
        let newest = |key| self.deltas.get(key).and_then(|deltas| deltas.last()?.object().cloned());
        let mut gone: Vec<_> = queued.map(|key| (key.clone(), newest(key))).collect();
        let stored = self.known.entries_where(|key| !listed.contains(key) && !self.deltas.contains_key(key));
        gone.extend(stored.into_iter().map(|(key, object)| (key, Some(object))));
        gone
    }

    /// Queues the stored objects again, except those with queued changes, which are newer.
    fn sync(&mut self) {
        for (key, object) in self.known.entries_where(|key| !self.deltas.contains_key(key)) {
            self.queue(key.clone(), Delta::Sync(key, object));
        }
    }
}

/// Appends a change. Merges two consecutive deletions, preferring a final state over a tombstone.
fn append<T>(deltas: &mut Vec<Delta<T>>, delta: Delta<T>) {
    match (deltas.last_mut(), delta) {
        (Some(last @ Delta::Deleted(_, Deleted::FinalStateUnknown { .. })), delta @ Delta::Deleted(..)) => {
            *last = delta;
        }
        (Some(Delta::Deleted(..)), Delta::Deleted(..)) => {}
        (_, delta) => deltas.push(delta),
    }
}

impl<T: Send + Sync + 'static> Content for ByKey<T> {
    type Object = T;

    fn push(&mut self, delta: Delta<T>) {
        match delta {
            Delta::ReplacedAll(list) => self.replace(list),
            Delta::SyncAll => self.sync(),
            // The store may contain only part of a list, so a bookmark would claim too much.
            Delta::Bookmark(_) => {}
            Delta::Added(ref key, _)
            | Delta::Updated(ref key, _)
            | Delta::Deleted(ref key, _)
            | Delta::Replaced(ref key, _)
            | Delta::Sync(ref key, _) => {
                self.population.touch();
                let key = key.clone();
                let gone = matches!(delta, Delta::Deleted(..));
                // The object is unknown, or a list has already reported its deletion.
                if gone && !self.deltas.contains_key(&key) && self.known.get(&key).is_none() {
                    return;
                }
                self.queue(key, delta);
            }
        }
    }

    fn next_batch(&mut self) -> Option<Batch<T>> {
        let Some(deltas) = self.order.pop_front().and_then(|key| self.deltas.remove(&key)) else {
            return self.population.untold();
        };
        Some(self.population.batch(deltas, 1))
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn consults_store(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
