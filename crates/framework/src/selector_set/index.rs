//! Where the clauses about a label are.

use std::cmp::Ordering;
use std::hash::Hasher as _;

use rustc_hash::FxHasher;

use super::Clause;
use crate::steps;

/// How a clause is found, beside its label: by the value if one value decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Decided<'a> {
    Presence,
    Value(&'a str),
    Number,
}

/// The places of clauses by their keys, which are sorted beside that: whoever makes the hashes of
/// keys equal gains no more than a binary search.
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
    /// The places of clauses in the order of their keys.
    pub(super) fn new(clauses: &[Clause]) -> Self {
        let (mut runs, mut has, mut first) = (Vec::new(), [false; 3], 0);
        for run in clauses.chunk_by(|one, other| one.key() == other.key()) {
            let (key, end) = (run[0].key(), first + run.len() as u32);
            runs.push(Run { hash: hash(key), first, end });
            first = end;
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
    pub(super) fn find(&self, clauses: &[Clause], key: &str, value: &str) -> [(usize, usize); 3] {
        let all = [Decided::Presence, Decided::Value(value), Decided::Number];
        let mut places = [(0, 0); 3];
        for ((place, decided), has) in places.iter_mut().zip(all).zip(self.has) {
            if has {
                *place = self.run(clauses, (key, decided));
            }
        }
        places
    }

    fn run(&self, clauses: &[Clause], key: (&str, Decided<'_>)) -> (usize, usize) {
        let hash = hash(key);
        let part = leading(hash, self.bits) as usize;
        let runs = &self.runs[self.starts[part] as usize..self.starts[part + 1] as usize];
        let order = |run: &Run| {
            steps::add(1);
            run.hash.cmp(&hash).then_with(|| clauses[run.first as usize].key().cmp(&key))
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

fn hash((key, decided): (&str, Decided<'_>)) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(key.as_bytes());
    match decided {
        Decided::Presence => hasher.write_u8(0),
        Decided::Number => hasher.write_u8(1),
        Decided::Value(value) => hasher.write(value.as_bytes()),
    }
    // In tests, many hashes are equal.
    let mask = if cfg!(test) { 0xf << 60 } else { u64::MAX };
    hasher.finish() & mask
}
