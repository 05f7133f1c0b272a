//! One copy of what many objects have in common.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashSet;

/// Hands out one shared copy per distinct value.
///
/// Interned values are compared for equality only; nothing may depend on an address or on insertion order. Values no
/// longer used elsewhere are dropped whenever the table has doubled since the last sweep, so the cost of sweeping is
/// proportional to the cost of interning.
#[derive(Debug)]
pub struct Interner<T: ?Sized + Eq + Hash> {
    values: FxHashSet<Arc<T>>,
    sweep_at: usize,
}

const FIRST_SWEEP: usize = 1024;

impl<T: ?Sized + Eq + Hash> Default for Interner<T> {
    fn default() -> Self {
        Self { values: FxHashSet::default(), sweep_at: FIRST_SWEEP }
    }
}

impl<T: ?Sized + Eq + Hash> Interner<T> {
    /// The shared copy of `value`.
    pub fn intern<V>(&mut self, value: V) -> Arc<T>
    where
        V: AsRef<T> + Into<Arc<T>>,
    {
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
}
