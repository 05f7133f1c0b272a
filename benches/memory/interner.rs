//! The time to look up a text in an interner.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxBuildHasher;
use serde::Serialize;
use supercargo_codec::Interner;

/// Nanoseconds per text, the best of several passes.
#[derive(Debug, Serialize)]
pub(crate) struct Lookups {
    texts: usize,
    /// A known text, with the seeded hash of production.
    known: f64,
    /// A new text that is dropped at once, with sweeps.
    passing: f64,
    /// A known text, with the unseeded hash.
    known_unseeded: f64,
}

const PASSES: usize = 5;

impl fmt::Display for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { texts, known, passing, known_unseeded } = self;
        write!(
            f,
            "interner with {texts} texts: {known:.0} ns to look up one that is there ({known_unseeded:.0} ns unseeded), \
             {passing:.0} ns for one that comes and goes"
        )
    }
}

/// Measures with this many texts in use.
pub(crate) fn lookups(texts: usize) -> Lookups {
    let words: Vec<_> = (0..texts).map(|i| format!("web-5d9f7c8b6d-{i:06}")).collect();
    let passing: Vec<_> = (0..texts).map(|i| format!("job-5d9f7c8b6d-{i:06}")).collect();
    let (mut seeded, mut unseeded) =
        (Interner::<str, RandomState>::default(), Interner::<str, FxBuildHasher>::default());
    let held = (hold(&mut seeded, &words), hold(&mut unseeded, &words));
    let result = Lookups {
        texts,
        known: best(&mut seeded, &words),
        passing: best(&mut seeded, &passing),
        known_unseeded: best(&mut unseeded, &words),
    };
    drop(held);
    result
}

fn hold<S: BuildHasher>(interner: &mut Interner<str, S>, words: &[String]) -> Vec<Arc<str>> {
    words.iter().map(|word| interner.intern(word.as_str())).collect()
}

fn best<S: BuildHasher>(interner: &mut Interner<str, S>, words: &[String]) -> f64 {
    let passes = (0..PASSES).map(|_| {
        let started = Instant::now();
        for word in words {
            drop(black_box(interner.intern(word.as_str())));
        }
        started.elapsed().as_nanos() as f64 / words.len() as f64
    });
    passes.fold(f64::INFINITY, f64::min)
}
