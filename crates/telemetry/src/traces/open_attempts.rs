//! Attempts in progress.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use supercargo_framework::Uid;

use super::attempt_record::AttemptRecord;
use crate::metrics::Counter;

/// The observed parts of attempts in progress, by pod.
///
/// Some attempts never end: the pod may be deleted or bound elsewhere. So there are two
/// generations. When the younger one is full it replaces the older one, and attempts without
/// observations since then are dropped.
pub(super) struct OpenAttempts {
    young: HashMap<Uid, AttemptRecord>,
    old: HashMap<Uid, AttemptRecord>,
    /// The number of pods in a full generation.
    generation: usize,
    dropped: Arc<Counter>,
}

impl OpenAttempts {
    pub(super) fn new(generation: usize, dropped: Arc<Counter>) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), generation, dropped }
    }

    /// The parts of this pod's attempt, to add to.
    pub(super) fn of(&mut self, pod: &Uid) -> &mut AttemptRecord {
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
    pub(super) fn take(&mut self, pod: &Uid) -> AttemptRecord {
        self.young.remove(pod).or_else(|| self.old.remove(pod)).unwrap_or_default()
    }

    /// Adds an attempt to the younger generation.
    fn renew(&mut self, pod: &Uid) {
        let parts = self.old.remove(pod).unwrap_or_default();
        if self.young.len() >= self.generation {
            let gone = mem::replace(&mut self.old, mem::take(&mut self.young));
            self.dropped.add(gone.values().map(AttemptRecord::count).sum());
        }
        self.young.insert(pod.clone(), parts);
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::Code;
    use supercargo_runtime::observer::{Point, Timespan};

    use super::*;
    use crate::traces::attempt_record::TimedPoint;

    fn see(open_attempts: &mut OpenAttempts, pod: &str) {
        let part = TimedPoint { point: Point::Filter, status: Code::Success, took: Timespan::default() };
        open_attempts.of(&pod.into()).add_point(part);
    }

    #[test]
    fn abandoned_attempts_are_dropped_and_active_ones_kept() {
        let dropped = Arc::<Counter>::default();
        let mut open_attempts = OpenAttempts::new(2, Arc::clone(&dropped));
        for pod in ["stuck", "busy", "a", "busy", "b", "busy", "c", "busy", "d"] {
            see(&mut open_attempts, pod);
        }
        assert_eq!(open_attempts.take(&"stuck".into()).count(), 0);
        assert_eq!(open_attempts.take(&"busy".into()).count(), 4);
        assert_eq!(open_attempts.take(&"d".into()).count(), 1);
        assert!(open_attempts.young.len() + open_attempts.old.len() <= 4);
        let kept: usize =
            open_attempts.young.values().chain(open_attempts.old.values()).map(AttemptRecord::count).sum();
        assert_eq!(dropped.get(), 9 - 5 - kept as u64);
    }

    #[test]
    fn parts_of_a_pod_are_bounded() {
        let dropped = Arc::<Counter>::default();
        let mut open_attempts = OpenAttempts::new(2, Arc::clone(&dropped));
        for _ in 0..10_000 {
            see(&mut open_attempts, "pod");
        }
        let kept = open_attempts.take(&"pod".into()).count();
        assert!(kept < 1000, "{kept}");
        assert_eq!(dropped.get(), 10_000 - kept as u64);
    }
}
