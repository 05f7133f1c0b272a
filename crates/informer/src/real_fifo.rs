//! The queue that keeps every change, in order across all objects.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::delta::{Batch, Delta, Replacement};
use crate::key::{KeySet, ObjectKey};
use crate::queue::{Content, Population};
use crate::store::Store;

/// The maximum number of keys per batch: large enough to amortize the store's lock, small enough
/// not to hold it for long.
const MAX_BATCH: usize = 1000;

/// Changes in order, the default. Lists and resyncs are one change each. With a store to compare
/// them with, they are split into one change per object. The queue's consumer writes to this store.
pub(crate) struct InOrder<T> {
    deltas: VecDeque<Delta<T>>,
    population: Population,
    known: Option<Store<T>>,
}

impl<T> InOrder<T> {
    pub(crate) fn new(known: Option<Store<T>>) -> Self {
        Self { deltas: VecDeque::new(), population: Population::default(), known }
    }

    /// Queues the deletions of missing objects, then the items of the list.
    fn replace_each(&mut self, known: &Store<T>, list: Replacement<T>) {
        for (key, last) in self.gone(known, &list) {
            self.deltas.push_back(Delta::tombstone(key, last));
        }
        self.deltas.extend(list.objects.into_iter().map(|(key, object)| Delta::Replaced(key, object)));
        self.population.list(self.deltas.len());
    }

    /// Known objects that are missing from the list, with their newest state: queued objects in
    /// order of appearance, then stored ones.
    fn gone(&self, known: &Store<T>, list: &Replacement<T>) -> Vec<(ObjectKey, Option<Arc<T>>)> {
        let listed: HashSet<_> = list.keys().collect();
        let mut order = Vec::new();
        let mut newest = HashMap::new();
        for delta in &self.deltas {
            if let Some(key) = delta.key()
                && newest.insert(key, delta).is_none()
            {
                order.push(key);
            }
        }
        let queued = order.into_iter().filter(|key| !listed.contains(key));
        let queued = queued.filter_map(|key| match newest.get(key)? {
            // Already deleted.
            Delta::Deleted(..) => None,
            delta => Some((key.clone(), delta.object().cloned())),
        });
        let mut gone: Vec<_> = queued.collect();
        let stored = known.entries_where(|key| !listed.contains(key) && !newest.contains_key(key));
        gone.extend(stored.into_iter().map(|(key, object)| (key, Some(object))));
        gone
    }

    /// Queues the stored objects again, except those with queued changes, which are newer.
    fn sync_each(&mut self, known: &Store<T>) {
        let queued: HashSet<_> = self.deltas.iter().filter_map(Delta::key).collect();
        let idle = known.entries_where(|key| !queued.contains(key));
        self.deltas.extend(idle.into_iter().map(|(key, object)| Delta::Sync(key, object)));
    }

    fn joins(&self, seen: &mut KeySet) -> bool {
        match self.deltas.front() {
            Some(Delta::Bookmark(_)) => true,
            Some(delta) => delta.key().is_some_and(|key| seen.insert(key.clone())),
            None => false,
        }
    }
}

impl<T: Send + Sync + 'static> Content for InOrder<T> {
    type Object = T;

    fn push(&mut self, delta: Delta<T>) {
        match (&self.known, delta) {
            (None, list @ Delta::ReplacedAll(_)) => {
                self.deltas.push_back(list);
                self.population.list(self.deltas.len());
            }
            (Some(known), Delta::ReplacedAll(list)) => {
                let known = known.clone();
                self.replace_each(&known, list);
            }
            (Some(known), Delta::SyncAll) => {
                let known = known.clone();
                self.sync_each(&known);
            }
            // The store may contain only part of a list, so a bookmark would claim too much.
            (Some(_), Delta::Bookmark(_)) => {}
            (None, delta @ (Delta::SyncAll | Delta::Bookmark(_))) => self.deltas.push_back(delta),
            (_, delta) => {
                self.population.touch();
                self.deltas.push_back(delta);
            }
        }
    }

    fn next_batch(&mut self) -> Option<Batch<T>> {
        let Some(first) = self.deltas.pop_front() else {
            return self.population.untold();
        };
        let limit = self.population.remaining().map_or(MAX_BATCH, |left| left.min(MAX_BATCH));
        let mut seen = KeySet::default();
        // Growing the set step by step would cost more than all other work here.
        seen.reserve(limit.min(self.deltas.len() + 1));
        seen.extend(first.key().cloned());
        // A change of all objects is its own batch, so handlers see one state of the server at a
        // time.
        let alone = seen.is_empty() && !matches!(first, Delta::Bookmark(_));
        let mut deltas = vec![first];
        while !alone && deltas.len() < limit && self.joins(&mut seen) {
            deltas.extend(self.deltas.pop_front());
        }
        let popped = deltas.len();
        Some(self.population.batch(deltas, popped))
    }

    fn len(&self) -> usize {
        self.deltas.len()
    }

    fn consults_store(&self) -> bool {
        self.known.is_some()
    }
}

#[cfg(test)]
mod tests;
