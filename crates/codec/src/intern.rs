//! One copy of what many objects have in common.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

/// Hands out one shared copy per distinct value.
///
/// Interned values are compared for equality only; nothing may depend on an address or on insertion order. Values no
/// longer used elsewhere are dropped whenever the table has doubled since the last sweep, or has been asked several times for
/// each value in it: so the cost of sweeping is proportional to the cost of interning. With values goes the room they took.
///
/// Whoever may create an object chooses its texts, so they must not be able to choose where these go: the hash has a seed of its
/// own, unless `S` says otherwise.
#[derive(Debug)]
pub struct Interner<T: ?Sized + Eq + Hash, S = RandomState> {
    values: HashSet<Arc<T>, S>,
    sweep_at: usize,
    /// How often it may still be asked before the next sweep.
    patience: usize,
}

const FIRST_SWEEP: usize = 1024;
/// How often the table is asked for each value in it before it is swept.
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

    /// The number of distinct values held.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Drops what nobody else uses.
    pub fn sweep(&mut self) {
        self.values.retain(|value| Arc::strong_count(value) > 1);
        self.sweep_at = (self.values.len() * 2).max(FIRST_SWEEP);
        self.patience = PATIENCE * self.values.len().max(FIRST_SWEEP);
        // Not below what the next values will want again.
        if self.values.capacity() > 2 * self.sweep_at {
            self.values.shrink_to(self.sweep_at);
        }
    }

    /// For how many values there is room.
    pub fn capacity(&self) -> usize {
        self.values.capacity()
    }
}

/// A sized value on its way into an [`Interner`].
#[derive(Debug)]
pub struct Fresh<T>(pub T);

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
    fn values_no_longer_used_are_given_back() {
        let mut strings = Interner::<str>::default();
        for i in 0..10 * FIRST_SWEEP {
            drop(strings.intern(format!("pod-{i}")));
        }
        assert!(strings.len() < FIRST_SWEEP, "{} values held", strings.len());
    }

    #[test]
    fn a_table_that_no_longer_grows_gives_back_as_well_and_the_room_too() {
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
