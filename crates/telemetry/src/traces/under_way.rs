//! Attempts in progress.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use supercargo_framework::Uid;

use super::parts::Parts;
use crate::metrics::Counter;

/// The observed parts of attempts in progress, by pod.
///
/// Some attempts never end: the pod may be deleted or bound elsewhere. So there are two
/// generations. When the younger one is full it replaces the older one, and attempts without
/// observations since then are dropped.
pub(super) struct UnderWay {
    young: HashMap<Uid, Parts>,
    old: HashMap<Uid, Parts>,
    /// The number of pods in a full generation.
    generation: usize,
    dropped: Arc<Counter>,
}

impl UnderWay {
    pub(super) fn new(generation: usize, dropped: Arc<Counter>) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), generation, dropped }
    }

    /// The parts of this pod's attempt, to add to.
    pub(super) fn of(&mut self, pod: &Uid) -> &mut Parts {
        if !self.young.contains_key(pod) {
            self.renew(pod);
        }
        let parts = self.young.entry(pod.clone()).or_default();
        if parts.is_full() {
            self.dropped.add(mem::take(parts).count());
        }
        parts
    }

    /// Removes and returns the parts of a finished attempt.
    pub(super) fn take(&mut self, pod: &Uid) -> Parts {
        self.young.remove(pod).or_else(|| self.old.remove(pod)).unwrap_or_default()
    }

    /// Adds an attempt to the younger generation.
    fn renew(&mut self, pod: &Uid) {
        let parts = self.old.remove(pod).unwrap_or_default();
        if self.young.len() >= self.generation {
            let gone = mem::replace(&mut self.old, mem::take(&mut self.young));
            self.dropped.add(gone.values().map(Parts::count).sum());
        }
        self.young.insert(pod.clone(), parts);
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::Code;
    use supercargo_runtime::observer::{Point, Timespan};

    use super::*;
    use crate::traces::parts::Part;

    fn see(under_way: &mut UnderWay, pod: &str) {
        let part = Part { point: Point::Filter, status: Code::Success, took: Timespan::default() };
        under_way.of(&pod.into()).add_point(part);
    }

    #[test]
    fn abandoned_attempts_are_dropped_and_active_ones_kept() {
        let dropped = Arc::<Counter>::default();
        let mut under_way = UnderWay::new(2, Arc::clone(&dropped));
        for pod in ["stuck", "busy", "a", "busy", "b", "busy", "c", "busy", "d"] {
            see(&mut under_way, pod);
        }
        assert_eq!(under_way.take(&"stuck".into()).count(), 0);
        assert_eq!(under_way.take(&"busy".into()).count(), 4);
        assert_eq!(under_way.take(&"d".into()).count(), 1);
        assert!(under_way.young.len() + under_way.old.len() <= 4);
        let kept: usize = under_way.young.values().chain(under_way.old.values()).map(Parts::count).sum();
        assert_eq!(dropped.get(), 9 - 5 - kept as u64);
    }

    #[test]
    fn parts_of_a_pod_are_bounded() {
        let dropped = Arc::<Counter>::default();
        let mut under_way = UnderWay::new(2, Arc::clone(&dropped));
        for _ in 0..10_000 {
            see(&mut under_way, "pod");
        }
        let kept = under_way.take(&"pod".into()).count();
        assert!(kept < 1000, "{kept}");
        assert_eq!(dropped.get(), 10_000 - kept as u64);
    }
}
