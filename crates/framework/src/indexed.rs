//! Lists that are searched by key.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::small_map::FEW;
use crate::steps;

/// An item of an [`Indexed`] list.
pub trait Keyed {
    /// What items are found by.
    type Key<'a>: Ord
    where
        Self: 'a;

    /// The item's key. Several items can have one key.
    fn key(&self) -> Self::Key<'_>;
}

impl Keyed for Arc<str> {
    type Key<'a> = &'a str;

    fn key(&self) -> &str {
        self
    }
}

/// An immutable list in its API order, with an index if it has more than [`FEW`] items.
///
/// Lists of a pod are searched for each node. They have few items, but the API server accepts a
/// hundred thousand.
#[derive(Clone, Deserialize)]
#[serde(from = "Vec<T>", bound(deserialize = "T: Keyed + Deserialize<'de>"))]
pub struct Indexed<T> {
    items: Box<[T]>,
    /// The places of items in the order of their keys; empty for few items.
    sorted: Box<[u32]>,
}

impl<T: Keyed> Indexed<T> {
    /// A list of these items.
    pub fn new(items: impl Into<Box<[T]>>) -> Self {
        let items = items.into();
        let mut sorted: Vec<u32> = Vec::new();
        if items.len() > FEW {
            sorted.extend(0..items.len() as u32);
            sorted.sort_by(|a, b| items[*a as usize].key().cmp(&items[*b as usize].key()));
        }
        Self { items, sorted: sorted.into() }
    }

    /// The items whose key compares as equal. The comparison must agree with the order of keys.
    pub fn find_by<'a>(
        &'a self,
        compare: impl Fn(T::Key<'a>) -> Ordering + Copy + 'a,
    ) -> impl Iterator<Item = &'a T> + 'a {
        let order_of = move |item: &'a T| {
            steps::add(1);
            compare(item.key())
        };
        let at = |place: &u32| &self.items[*place as usize];
        let start = self.sorted.partition_point(|place| order_of(at(place)).is_lt());
        let rest = &self.sorted[start..];
        let matches = |place: &&u32| order_of(at(place)).is_eq();
        // Mostly one item is found, sometimes thousands.
        let few = rest.iter().take(FEW).take_while(matches).count();
        let found = if few < FEW { few } else { rest.partition_point(|place| matches(&place)) };
        let scanned = if self.is_scanned() { &*self.items } else { &[] };
        let scanned = scanned.iter().filter(move |item| order_of(item).is_eq());
        scanned.chain(rest[..found].iter().map(at))
    }

    /// All items. Of many, those with equal keys are neighbours.
    pub fn grouped(&self) -> impl Iterator<Item = &T> {
        let scanned = if self.is_scanned() { &*self.items } else { &[] };
        scanned.iter().chain(self.sorted.iter().map(|place| &self.items[*place as usize]))
    }

    /// Whether a search visits every item.
    #[inline]
    pub fn is_scanned(&self) -> bool {
        self.sorted.is_empty()
    }
}

impl Indexed<Arc<str>> {
    /// Whether the text is in the list.
    #[inline]
    pub fn has(&self, text: &str) -> bool {
        if self.is_scanned() {
            steps::add(self.items.len());
            return self.items.iter().any(|known| **known == *text);
        }
        self.has_sorted(text)
    }

    /// Apart from the scan, so that this can be inlined.
    #[inline(never)]
    fn has_sorted(&self, text: &str) -> bool {
        self.find_by(|known| known.cmp(text)).next().is_some()
    }
}

impl<T> Default for Indexed<T> {
    fn default() -> Self {
        Self { items: Box::default(), sorted: Box::default() }
    }
}

impl<T> Deref for Indexed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<'a, T> IntoIterator for &'a Indexed<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<T: Keyed> FromIterator<T> for Indexed<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::new(Box::from_iter(items))
    }
}

impl<T: Keyed> From<Vec<T>> for Indexed<T> {
    fn from(items: Vec<T>) -> Self {
        Self::new(items)
    }
}

impl<T: Keyed, const N: usize> From<[T; N]> for Indexed<T> {
    fn from(items: [T; N]) -> Self {
        Self::new(items)
    }
}

impl<T> From<Indexed<T>> for Vec<T> {
    fn from(list: Indexed<T>) -> Self {
        list.items.into_vec()
    }
}

impl<T: Serialize> Serialize for Indexed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.items.serialize(serializer)
    }
}

impl<T: fmt::Debug> fmt::Debug for Indexed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Indexed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl<T: Eq> Eq for Indexed<T> {}

impl<T: PartialOrd> PartialOrd for Indexed<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.items.partial_cmp(&other.items)
    }
}

impl<T: Ord> Ord for Indexed<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.items.cmp(&other.items)
    }
}

impl<T: Hash> Hash for Indexed<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.items.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_item_with_the_key_is_found(items in proptest::collection::vec("[a-e]{1,2}", 0..30), asked in "[a-f]{1,2}") {
            let list: Indexed<Arc<str>> = items.iter().map(|item| Arc::from(&**item)).collect();
            let expected = items.iter().filter(|item| **item == asked).count();
            prop_assert_eq!(list.find_by(|key| key.cmp(&asked)).count(), expected);
            prop_assert_eq!(list.has(&asked), expected > 0);
            let prefix = &asked[..1];
            let with_prefix = items.iter().filter(|item| item.starts_with(prefix)).count();
            prop_assert_eq!(list.find_by(|key| key[..1].cmp(prefix)).count(), with_prefix);
            prop_assert_eq!(list.iter().map(ToString::to_string).collect::<Vec<_>>(), items);
        }
    }

    #[test]
    fn an_index_is_not_part_of_the_value() {
        let long = || (0..20).map(|i| Arc::from(format!("{}", 20 - i)));
        let list: Indexed<Arc<str>> = long().collect();
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(text, serde_json::to_string(&long().collect::<Vec<Arc<str>>>()).unwrap());
        let read: Indexed<Arc<str>> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, list);
        assert!(read.has("7") && !read.has("21"));
    }
}
