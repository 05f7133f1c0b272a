//! Interning: one shared copy of equal values.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use supercargo_framework::steps;

/// Returns one shared copy per distinct value.
///
/// Interned values are compared for equality only; nothing may depend on an address or on insertion
/// order.
///
/// Unused values are dropped in sweeps. A sweep runs when the table has doubled since the last one,
/// or after several lookups per value. So sweeping costs no more than interning does, up to a
/// constant factor. A sweep also releases unused capacity.
///
/// The values come from objects that any user may create. The default hasher is randomly seeded, so
/// that users cannot cause collisions.
#[derive(Debug)]
pub struct Interner<T: ?Sized + Eq + Hash, S = RandomState> {
    values: HashSet<Arc<T>, S>,
    sweep_at: usize,
    /// Lookups until the next sweep.
    patience: usize,
}

const FIRST_SWEEP: usize = 1024;
/// Lookups per value between two sweeps.
const PATIENCE: usize = 4;

impl<T: ?Sized + Eq + Hash, S: Default> Default for Interner<T, S> {
    fn default() -> Self {
        Self { values: HashSet::default(), sweep_at: FIRST_SWEEP, patience: PATIENCE * FIRST_SWEEP }
    }
}

impl<T: ?Sized + Eq + Hash, S: BuildHasher> Interner<T, S> {
    /// The shared copy of `value`.
    pub fn intern<V>(&mut self, value: V) -> Arc<T>
    where
        V: AsRef<T> + Into<Arc<T>>,
    {
        steps::add(1);
        self.patience = self.patience.saturating_sub(1);
        if self.patience == 0 {
            self.sweep();
        }
        if let Some(known) = self.values.get(value.as_ref()) {
            return Arc::clone(known);
        }
        let shared: Arc<T> = value.into();
        self.values.insert(Arc::clone(&shared));
        if self.values.len() >= self.sweep_at {
            self.sweep();
        }
        shared
    }

    /// The number of distinct values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Drops unused values.
    pub fn sweep(&mut self) {
        steps::add(self.values.len());
        self.values.retain(|value| Arc::strong_count(value) > 1);
        self.sweep_at = (self.values.len() * 2).max(FIRST_SWEEP);
        self.patience = PATIENCE * self.values.len().max(FIRST_SWEEP);
        // Keep room for the values until the next sweep.
        if self.values.capacity() > 2 * self.sweep_at {
            self.values.shrink_to(self.sweep_at);
        }
    }

    /// The capacity of the table.
    pub fn capacity(&self) -> usize {
        self.values.capacity()
    }
}

/// Wraps a sized value for [`Interner::intern`].
#[derive(Debug)]
pub(crate) struct Fresh<T>(pub(crate) T);

impl<T> AsRef<T> for Fresh<T> {
    fn as_ref(&self) -> &T {
        &self.0
    }
}

impl<T> From<Fresh<T>> for Arc<T> {
    fn from(fresh: Fresh<T>) -> Self {
        Self::new(fresh.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_one_copy() {
        let mut strings = Interner::<str>::default();
        let a = strings.intern("zone-a");
        let b = strings.intern(String::from("zone-a"));
        assert!(Arc::ptr_eq(&a, &b));
        assert_eq!(strings.len(), 1);
    }

    #[test]
    fn unused_values_are_dropped() {
        let mut strings = Interner::<str>::default();
        for i in 0..10 * FIRST_SWEEP {
            drop(strings.intern(format!("pod-{i}")));
        }
        assert!(strings.len() < FIRST_SWEEP, "{} values held", strings.len());
    }

    #[test]
    fn a_table_of_constant_size_releases_values_and_capacity() {
        let mut strings = Interner::<str>::default();
        let kept = strings.intern("kept");
        let many: Vec<_> = (0..100_000).map(|i| strings.intern(format!("pod-{i}"))).collect();
        assert!(strings.len() > 100_000 && strings.capacity() > 100_000);
        drop(many);
        for _ in 0..PATIENCE * 200_000 {
            assert!(Arc::ptr_eq(&strings.intern("kept"), &kept));
        }
        assert_eq!(strings.len(), 1);
        assert!(strings.capacity() <= 4 * FIRST_SWEEP, "room for {}", strings.capacity());
    }
}
