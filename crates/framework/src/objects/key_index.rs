//! An index of objects by one of their fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Object;

/// Keys of objects by a field that scheduling never changes, so that assumed changes are
/// irrelevant. Strangers choose the values, so the index is a tree.
#[derive(Clone, Debug)]
pub(super) struct KeyIndex {
    field: fn(&Object) -> Option<&Arc<str>>,
    keys: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl KeyIndex {
    /// An index by this field. Objects for which it is `None` are not in the index.
    pub(super) fn new(field: fn(&Object) -> Option<&Arc<str>>) -> Self {
        Self { field, keys: BTreeMap::new() }
    }

    /// Updates the index for an object.
    pub(super) fn change(&mut self, old: Option<&Object>, new: Option<&Object>) {
        let (before, after) = (old.and_then(self.field), new.and_then(self.field));
        if before == after {
            return;
        }
        if let (Some(value), Some(old)) = (before, old)
            && let Some(keys) = self.keys.get_mut(value)
        {
            keys.remove(&old.key);
            if keys.is_empty() {
                self.keys.remove(value);
            }
        }
        if let (Some(value), Some(new)) = (after, new) {
            self.keys.entry(Arc::clone(value)).or_default().insert(Arc::clone(&new.key));
        }
    }

    /// The keys of the objects with this value, in order.
    pub(super) fn of(&self, value: &str) -> impl Iterator<Item = &Arc<str>> {
        self.keys.get(value).into_iter().flatten()
    }
}
