//! A set whose copies share what none of them has changed.

use std::borrow::Borrow;
use std::hash::{BuildHasher as _, Hash};
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashSet};

/// The number of parts. With a million elements, the first change of one copies four thousand. More
/// parts take more memory: each has free places.
const PARTS: usize = 256;
/// The bits of a hash that choose the part. Within a part, the lowest and the highest bits choose
/// the place.
const PART_BITS: u32 = 32;

/// A hash set. A copy costs as much as its number of parts, and the first change of a part after it
/// copies that part.
#[derive(Clone, Debug)]
pub(crate) struct SharedSet<T> {
    parts: Box<[Arc<FxHashSet<T>>]>,
    len: usize,
}

impl<T> Default for SharedSet<T> {
    fn default() -> Self {
        let empty = Arc::default();
        Self { parts: (0..PARTS).map(|_| Arc::clone(&empty)).collect(), len: 0 }
    }
}

fn part_of<Q: Hash + ?Sized>(key: &Q) -> usize {
    (FxBuildHasher.hash_one(key) >> PART_BITS) as usize % PARTS
}

impl<T: Clone + Eq + Hash> SharedSet<T> {
    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The element of this key.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&T>
    where
        T: Borrow<Q>,
    {
        self.parts[part_of(key)].get(key)
    }

    /// Adds an element, unless an equal one is there.
    pub(crate) fn insert(&mut self, element: T) {
        let part = &mut self.parts[part_of(&element)];
        self.len += usize::from(Arc::make_mut(part).insert(element));
    }

    /// Removes and returns the element of this key.
    pub(crate) fn take<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<T>
    where
        T: Borrow<Q>,
    {
        let part = &mut self.parts[part_of(key)];
        if !part.contains(key) {
            return None;
        }
        self.len -= 1;
        Arc::make_mut(part).take(key)
    }

    /// All elements, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flat_map(|part| &**part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted(set: &SharedSet<u32>) -> Vec<u32> {
        let mut elements: Vec<_> = set.iter().copied().collect();
        elements.sort_unstable();
        elements
    }

    proptest! {
        #[test]
        fn copies_are_independent_sets(
            before in proptest::collection::vec((0..40_u32, any::<bool>()), 0..60),
            after in proptest::collection::vec((0..40_u32, any::<bool>()), 0..60),
        ) {
            let (mut set, mut model) = (SharedSet::default(), std::collections::BTreeSet::new());
            let apply = |set: &mut SharedSet<u32>, model: &mut std::collections::BTreeSet<u32>, changes: &[(u32, bool)]| {
                for (element, comes) in changes {
                    if *comes {
                        set.insert(*element);
                        model.insert(*element);
                    } else {
                        assert_eq!(set.take(element), model.take(element));
                    }
                    assert_eq!((set.get(element), set.len()), (model.get(element), model.len()));
                }
            };
            apply(&mut set, &mut model, &before);
            let (copy, then) = (set.clone(), sorted(&set));
            apply(&mut set, &mut model, &after);
            prop_assert_eq!(sorted(&set), model.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(sorted(&copy), then);
        }
    }
}
