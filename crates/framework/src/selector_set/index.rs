//! Where clauses about a label are, in a list that is sorted by their keys.

use std::cmp::Ordering;
use std::hash::Hasher as _;

use rustc_hash::FxHasher;

use crate::steps;

/// The key of a clause: its label, and what decides about it.
pub(super) type Key<'a> = (&'a str, Decided<'a>);

/// What decides: one value if possible.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Decided<'a> {
    Presence,
    Value(&'a str),
    Number,
}

/// The places of clauses by their keys. Keys with equal hashes are sorted, so that an attacker who
/// makes hashes equal causes a binary search only.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// By hash, then by key.
    runs: Box<[Run]>,
    /// The first run of each leading part of hashes, and the number of runs.
    starts: Box<[u32]>,
    /// The number of bits of that part.
    bits: u32,
    /// Whether there are clauses about presence, values and numbers.
    has: [bool; 3],
}

/// Clauses with one key.
#[derive(Clone, Copy, Debug)]
struct Run {
    hash: u64,
    first: u32,
    end: u32,
}

impl Index {
    /// The places of clauses with these keys, which are sorted.
    pub(super) fn new<'a>(keys: impl Iterator<Item = Key<'a>>) -> Self {
        let (mut runs, mut has, mut last) = (Vec::<Run>::new(), [false; 3], None);
        for (place, key) in keys.enumerate() {
            let place = place as u32;
            match runs.last_mut() {
                Some(run) if last == Some(key) => run.end = place + 1,
                _ => runs.push(Run { hash: hash(key), first: place, end: place + 1 }),
            }
            last = Some(key);
            has[match key.1 {
                Decided::Presence => 0,
                Decided::Value(_) => 1,
                Decided::Number => 2,
            }] = true;
        }
        runs.sort_by_key(|run| run.hash);
        let bits = runs.len().next_power_of_two().trailing_zeros();
        let start = |part: u64| runs.partition_point(|run| leading(run.hash, bits) < part) as u32;
        let starts = (0..=1_u64 << bits).map(start).collect();
        Self { runs: runs.into(), starts, bits, has }
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.runs) + size_of_val(&*self.starts)
    }

    /// The places of the clauses about this label: about its presence, this value, and numbers.
    /// `key_at` is the key of the clause at a place. `next` is the first place after the last
    /// clauses that were found: labels come in the order of keys, too.
    pub(super) fn find<'a>(
        &self,
        label: &str,
        value: &str,
        next: &mut usize,
        key_at: impl Fn(usize) -> Option<Key<'a>>,
    ) -> [(usize, usize); 3] {
        let all = [Decided::Presence, Decided::Value(value), Decided::Number];
        let mut places = [(0, 0); 3];
        for ((place, decided), has) in places.iter_mut().zip(all).zip(self.has) {
            if has {
                *place = self.run((label, decided), *next, &key_at);
                *next = (*next).max(place.1);
            }
        }
        places
    }

    fn run<'a>(
        &self,
        key: Key<'_>,
        next: usize,
        key_at: impl Fn(usize) -> Option<Key<'a>>,
    ) -> (usize, usize) {
        steps::add(1);
        if key_at(next) == Some(key) && key_at(next + 1) != Some(key) {
            return (next, next + 1);
        }
        let hash = hash(key);
        let part = leading(hash, self.bits) as usize;
        let runs = &self.runs[self.starts[part] as usize..self.starts[part + 1] as usize];
        let order = |run: &Run| {
            steps::add(1);
            run.hash.cmp(&hash).then_with(|| key_at(run.first as usize).cmp(&Some(key)))
        };
        let start = runs.partition_point(|run| order(run) == Ordering::Less);
        match runs.get(start) {
            Some(run) if order(run) == Ordering::Equal => (run.first as usize, run.end as usize),
            _ => (0, 0),
        }
    }
}

/// The leading bits.
fn leading(hash: u64, bits: u32) -> u64 {
    hash.checked_shr(u64::BITS - bits).unwrap_or_default()
}

fn hash((label, decided): Key<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(label.as_bytes());
    match decided {
        Decided::Presence => hasher.write_u8(0),
        Decided::Number => hasher.write_u8(1),
        Decided::Value(value) => hasher.write(value.as_bytes()),
    }
    // In tests, many hashes are equal.
    let mask = if cfg!(test) { 0xf << 60 } else { u64::MAX };
    hasher.finish() & mask
}
