//! An index of PersistentVolumes by storage class.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Body, Object};

/// Names of volumes by storage class. Scheduling never changes a volume's class, so assumed changes
/// are irrelevant.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassIndex {
    names: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl ClassIndex {
    /// Updates the index for an object; other kinds are ignored.
    pub(super) fn change(&mut self, old: Option<&Object>, new: Option<&Object>) {
        let (before, after) = (old.and_then(class_of), new.and_then(class_of));
        if before == after {
            return;
        }
        if let (Some(class), Some(old)) = (before, old)
            && let Some(names) = self.names.get_mut(class)
        {
            names.remove(&old.key);
            if names.is_empty() {
                self.names.remove(class);
            }
        }
        if let (Some(class), Some(new)) = (after, new) {
            self.names.entry(Arc::clone(class)).or_default().insert(Arc::clone(&new.key));
        }
    }

    /// The volumes of a class, ordered by name.
    pub(super) fn names(&self, class: &str) -> impl Iterator<Item = &Arc<str>> {
        self.names.get(class).into_iter().flatten()
    }
}

fn class_of(object: &Object) -> Option<&Arc<str>> {
    match &object.body {
        Body::PersistentVolume(volume) => Some(&volume.storage_class),
        _ => None,
    }
}
