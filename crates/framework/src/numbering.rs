//! Numbers for distinct keys.

use std::borrow::Borrow;
use std::hash::Hash;

use smallvec::SmallVec;

use crate::hash_seed::{HashSeed, SeededMap};
use crate::small_map::FEW;
use crate::steps;

/// Distinct keys, numbered from 0 in the order in which they appear.
///
/// Like a [`SmallMap`](crate::SmallMap), it compares up to [`FEW`] keys. It hashes more with a
/// seed: a pod can bring tens of thousands, and to sort long ones takes several times as long.
#[derive(Debug)]
pub struct Numbering<'s, K> {
    seed: &'s HashSeed,
    expected: usize,
    keys: Keys<K>,
}

#[derive(Debug)]
enum Keys<K> {
    Few(SmallVec<[K; 2]>),
    Many(SeededMap<K, usize>),
}

impl<'s, K: Hash + Eq> Numbering<'s, K> {
    /// No keys yet. If there are many, memory for `expected` ones is reserved.
    pub fn new(seed: &'s HashSeed, expected: usize) -> Self {
        Self { seed, expected, keys: Keys::Few(SmallVec::new()) }
    }

    /// The number of distinct keys.
    pub fn len(&self) -> usize {
        match &self.keys {
            Keys::Few(keys) => keys.len(),
            Keys::Many(numbers) => numbers.len(),
        }
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of a key, if it has appeared.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        match &self.keys {
            Keys::Few(keys) => {
                steps::add(keys.len());
                keys.iter().position(|known| known.borrow() == key)
            }
            Keys::Many(numbers) => {
                steps::add(1);
                numbers.get(key).copied()
            }
        }
    }

    /// The number of a key, which is [`len`](Self::len) before the call if the key is new.
    pub fn number(&mut self, key: K) -> usize {
        let next = self.len();
        match &mut self.keys {
            Keys::Few(keys) => {
                steps::add(keys.len());
                if let Some(number) = keys.iter().position(|known| *known == key) {
                    return number;
                }
                keys.push(key);
                if keys.len() > FEW {
                    let mut numbers = self.seed.map();
                    numbers.reserve(self.expected);
                    numbers.extend(keys.drain(..).zip(0..));
                    self.keys = Keys::Many(numbers);
                }
                next
            }
            Keys::Many(numbers) => {
                steps::add(1);
                *numbers.entry(key).or_insert(next)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_numbered_as_they_appear() {
        let keys: Vec<String> = (0..3 * FEW).map(|i| format!("k{i}")).collect();
        let seed = HashSeed::new(1);
        let mut numbering = Numbering::new(&seed, 2 * FEW);
        assert!(numbering.is_empty());
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(numbering.get(&**key), None);
            assert_eq!((numbering.len(), numbering.number(&**key)), (i, i));
            let known: Vec<_> = keys[..=i].iter().map(|key| numbering.number(key)).collect();
            assert_eq!(known, (0..=i).collect::<Vec<_>>());
            assert_eq!((numbering.get(&**key), numbering.len()), (Some(i), i + 1));
        }
    }
}
