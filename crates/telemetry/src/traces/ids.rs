//! Random ids of traces and spans. Zero is invalid.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU64;

use serde::{Serialize, Serializer};

/// The id of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceId(pub(super) NonZeroU64, pub(super) NonZeroU64);

/// The id of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanId(pub(super) NonZeroU64);

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}{:016x}", self.0, self.1))
    }
}

impl Serialize for SpanId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

/// Generates ids from the standard library's hash keys, which differ per process.
#[derive(Default)]
pub(super) struct Ids {
    keys: RandomState,
    drawn: u64,
}

impl Ids {
    pub(super) fn trace(&mut self) -> TraceId {
        TraceId(self.draw(), self.draw())
    }

    pub(super) fn span(&mut self) -> SpanId {
        SpanId(self.draw())
    }

    fn draw(&mut self) -> NonZeroU64 {
        loop {
            self.drawn += 1;
            if let Some(number) = NonZeroU64::new(self.keys.hash_one(self.drawn)) {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_across_processes_and_spans() {
        let (mut here, mut there) = (Ids::default(), Ids::default());
        let ids: BTreeSet<_> = (0..1000).flat_map(|_| [here.span().0, there.span().0]).collect();
        assert_eq!(ids.len(), 2000);
    }
}
