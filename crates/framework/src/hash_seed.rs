//! The seed of maps whose keys strangers choose.
//!
//! The author of a pod chooses its name. With a hash function that is known, names can be chosen
//! that all fall into one bucket, and each lookup then compares all of them. So these maps hash
//! with SipHash and a seed that only this process knows, as do maps of topology domains. Elsewhere
//! such keys are ordered. Maps that are keyed by UIDs, names of nodes or plugins hash without a
//! seed: the API server or an administrator chooses these. `FIXED_HASHES` in
//! `xtask/tests/rules.rs` lists them. The queue's UID of a group is a hash of its name with the
//! seed.
//!
//! No decision depends on the order of such a map, and so none depends on the seed.

use std::hash::{BuildHasher, DefaultHasher, Hasher as _};

/// A map that hashes with a seed.
#[expect(clippy::disallowed_types, reason = "its order follows from the seed, which the caller chooses")]
pub type SeededMap<K, V> = std::collections::HashMap<K, V, HashSeed>;

/// A set that hashes with a seed.
#[expect(clippy::disallowed_types, reason = "its order follows from the seed, which the caller chooses")]
pub type SeededSet<T> = std::collections::HashSet<T, HashSeed>;

/// The seed of all such maps of a scheduler.
#[derive(Clone, Debug)]
pub struct HashSeed(u64);

impl HashSeed {
    /// The seed of this number.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An empty map.
    pub fn map<K, V>(&self) -> SeededMap<K, V> {
        SeededMap::with_hasher(self.clone())
    }

    /// An empty set.
    pub fn set<T>(&self) -> SeededSet<T> {
        SeededSet::with_hasher(self.clone())
    }
}

impl BuildHasher for HashSeed {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_collide_under_one_seed_do_not_under_another() {
        let bucket = |seed: u64, key: u64| HashSeed::new(seed).hash_one(key) % 1024;
        let colliding: Vec<u64> = (0..200_000).filter(|key| bucket(1, *key) == 0).take(64).collect();
        assert_eq!(colliding.len(), 64);
        let under_another = colliding.iter().filter(|key| bucket(2, **key) == 0).count();
        assert!(under_another < 8, "{under_another} of 64 collide");
    }
}
