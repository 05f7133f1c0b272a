//! Maps that hold a few entries in nearly all cases.

use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::slice;

use smallvec::SmallVec;

use crate::steps;

/// The number of entries up to which a lookup compares all of them.
pub const FEW: usize = 8;

/// A map that scans up to [`FEW`] entries, and sorts more.
///
/// The author of a pod decides how many keys a map has, and which. Sorted keys bound the cost of a
/// lookup whatever they are; hashed keys do so only with a secret seed. Few entries are in the
/// order of insertion, more in the order of their keys.
#[derive(Clone, Debug)]
pub struct SmallMap<K, V>(Entries<K, V>);

#[derive(Clone, Debug)]
enum Entries<K, V> {
    Few(SmallVec<[(K, V); 2]>),
    Many(BTreeMap<K, V>),
}

/// About how many keys a lookup compares among this many sorted ones.
fn comparisons(entries: usize) -> usize {
    entries.max(1).ilog2() as usize
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self(Entries::Few(SmallVec::new()))
    }
}

impl<K, V> SmallMap<K, V> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        match &self.0 {
            Entries::Few(entries) => entries.len(),
            Entries::Many(entries) => entries.len(),
        }
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The approximate size in bytes, without what keys and values point at. Nodes of a tree are
    /// two thirds full.
    pub fn bytes(&self) -> usize {
        let entries = match &self.0 {
            Entries::Few(entries) if !entries.spilled() => 0,
            Entries::Few(entries) => entries.capacity(),
            Entries::Many(entries) => entries.len() * 3 / 2,
        };
        size_of::<Self>() + entries * size_of::<(K, V)>()
    }

    /// The entries.
    pub fn iter(&self) -> Iter<'_, K, V> {
        match &self.0 {
            Entries::Few(entries) => Iter::Few(entries.iter()),
            Entries::Many(entries) => Iter::Many(entries.iter()),
        }
    }

    /// The keys.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The keys, without the values.
    pub fn into_keys(self) -> Vec<K> {
        match self.0 {
            Entries::Few(entries) => entries.into_iter().map(|(key, _)| key).collect(),
            Entries::Many(entries) => entries.into_keys().collect(),
        }
    }

    /// The values.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The values, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let (few, many) = match &mut self.0 {
            Entries::Few(entries) => (Some(entries), None),
            Entries::Many(entries) => (None, Some(entries)),
        };
        let few = few.into_iter().flatten().map(|(_, value)| value);
        few.chain(many.into_iter().flat_map(BTreeMap::values_mut))
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match &self.0 {
            Entries::Few(entries) => {
                steps::add(entries.len());
                entries.iter().find(|(known, _)| known.borrow() == key).map(|(_, value)| value)
            }
            Entries::Many(entries) => {
                steps::add(comparisons(entries.len()));
                entries.get(key)
            }
        }
    }

    /// The same to change it.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        match &mut self.0 {
            Entries::Few(entries) => {
                steps::add(entries.len());
                entries.iter_mut().find(|(known, _)| (*known).borrow() == key).map(|(_, value)| value)
            }
            Entries::Many(entries) => {
                steps::add(comparisons(entries.len()));
                entries.get_mut(key)
            }
        }
    }

    /// Whether the key has a value.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Sets the value of a key. Returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&key) {
            return Some(std::mem::replace(known, value));
        }
        self.add(key, value);
        None
    }

    /// The value of a key, the default one if it has none yet.
    pub fn or_default(&mut self, key: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        self.or_insert_with(key, V::default)
    }

    /// The value of a key, a new one if it has none yet.
    pub fn or_insert_with(&mut self, key: &K, new: impl FnOnce() -> V) -> &mut V
    where
        K: Clone,
    {
        let place = match &self.0 {
            Entries::Few(entries) => {
                steps::add(entries.len());
                entries.iter().position(|(known, _)| known == key)
            }
            Entries::Many(entries) => {
                steps::add(comparisons(entries.len()));
                entries.contains_key(key).then_some(0)
            }
        };
        if place.is_none() {
            self.add(key.clone(), new());
        }
        match &mut self.0 {
            Entries::Few(entries) => {
                let place = place.unwrap_or(entries.len() - 1);
                &mut entries[place].1
            }
            Entries::Many(entries) => entries.get_mut(key).expect("the key was there or has been added"),
        }
    }

    /// Adds a key that has no value.
    fn add(&mut self, key: K, value: V) {
        match &mut self.0 {
            Entries::Few(entries) if entries.len() < FEW => entries.push((key, value)),
            Entries::Few(entries) => {
                let many = std::mem::take(entries).into_iter().chain([(key, value)]).collect();
                self.0 = Entries::Many(many);
            }
            Entries::Many(entries) => {
                entries.insert(key, value);
            }
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SmallMap<K, V> {
    /// The last value of a key takes precedence.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        let mut entries = entries.into_iter();
        while let Entries::Few(_) = map.0
            && let Some((key, value)) = entries.next()
        {
            map.insert(key, value);
        }
        if let Entries::Many(known) = &mut map.0 {
            // Sorted once.
            let mut others: BTreeMap<K, V> = entries.collect();
            steps::add(others.len());
            known.append(&mut others);
        }
        map
    }
}

/// The entries of a [`SmallMap`].
#[derive(Debug)]
pub enum Iter<'a, K, V> {
    /// Scanned entries.
    Few(slice::Iter<'a, (K, V)>),
    /// Sorted entries.
    Many(btree_map::Iter<'a, K, V>),
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(entries) => entries.next().map(|(key, value)| (key, value)),
            Self::Many(entries) => entries.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Few(entries) => entries.size_hint(),
            Self::Many(entries) => entries.size_hint(),
        }
    }
}

impl<K, V> ExactSizeIterator for Iter<'_, K, V> {}

impl<'a, K, V> IntoIterator for &'a SmallMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_small_map_is_a_map(
            entries in proptest::collection::vec((0..20_u8, 0..9_u8), 0..40),
            asked in 0..20_u8,
        ) {
            let mut expected = BTreeMap::new();
            let mut map = SmallMap::default();
            for (key, value) in entries {
                prop_assert_eq!(map.insert(key, value), expected.insert(key, value));
                prop_assert_eq!(map.len(), expected.len());
                prop_assert_eq!(map.get(&asked), expected.get(&asked));
            }
            let collected: SmallMap<_, _> = expected.iter().chain(&expected).map(|(k, v)| (*k, *v)).collect();
            prop_assert_eq!(collected.iter().collect::<BTreeMap<_, _>>(), expected.iter().collect());
            *map.or_default(&asked) += 1;
            *expected.entry(asked).or_default() += 1;
            let mut found: Vec<_> = map.iter().map(|(key, value)| (*key, *value)).collect();
            prop_assert_eq!(map.keys().len(), found.len());
            found.sort_unstable();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn few_entries_keep_their_order() {
        let map: SmallMap<_, _> = [("b", 1), ("a", 2)].into_iter().collect();
        assert_eq!(map.keys().copied().collect::<Vec<_>>(), ["b", "a"]);
    }
}
