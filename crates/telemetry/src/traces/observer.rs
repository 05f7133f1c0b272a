//! An observer that records attempts. It runs on the scheduler's thread, so it formats nothing and
//! never blocks.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use supercargo_framework::Uid;
use supercargo_runtime::observer::{Observation, ObservedProfile, Observer, Point, TimePoint};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::Drops;
use super::attempt::Attempt;
use super::attempt_record::TimedPoint;
use super::open_attempts::OpenAttempts;

/// The denominator of the sampling rate.
const ALL: u32 = 1_000_000;
/// The number of pods in each of the two generations of attempts in progress.
const GENERATION: usize = 5_000;

/// Records attempts and forwards to the next observer.
pub(super) struct TracingObserver {
    inner: Box<dyn Observer>,
    sample: Sample,
    profiles: Vec<Arc<str>>,
    open_attempts: RefCell<OpenAttempts>,
    attempts: mpsc::Sender<Attempt>,
    drops: Drops,
    /// The wall clock, read once per attempt.
    wall: fn() -> SystemTime,
}

/// The sampled pods. Sampling is by pod, not by attempt, so that traces of a pod are complete and
/// other pods need no memory.
struct Sample {
    keys: RandomState,
    per_million: u32,
}

impl Sample {
    fn has(&self, pod: &Uid) -> bool {
        self.per_million >= ALL || self.keys.hash_one(pod) % u64::from(ALL) < u64::from(self.per_million)
    }
}

impl TracingObserver {
    pub(super) fn new(
        inner: Box<dyn Observer>,
        per_million: u32,
        attempts: mpsc::Sender<Attempt>,
        drops: Drops,
    ) -> Self {
        let open_attempts = OpenAttempts::new(GENERATION, Arc::clone(&drops.unfinished));
        Self {
            inner,
            sample: Sample { keys: RandomState::new(), per_million },
            profiles: Vec::new(),
            open_attempts: RefCell::new(open_attempts),
            attempts,
            drops,
            wall: SystemTime::now,
        }
    }

    /// Like `new`, with another clock.
    #[cfg(test)]
    pub(super) fn with_wall(self, wall: fn() -> SystemTime) -> Self {
        Self { wall, ..self }
    }

    fn note(&self, observation: &Observation<'_>) {
        match *observation {
            Observation::ExtensionPoint { pod, point, status, took, .. }
                if is_traced(point) && self.sample.has(&pod.uid) =>
            {
                self.open_attempts.borrow_mut().of(&pod.uid).add_point(TimedPoint { point, status, took });
            }
            Observation::Plugin { pod, plugin, point, status, took }
                if is_traced(point) && self.sample.has(&pod.uid) =>
            {
                self.open_attempts
                    .borrow_mut()
                    .of(&pod.uid)
                    .add_plugin(plugin, TimedPoint { point, status, took });
            }
            Observation::Attempt { profile, result, pod, attempts, node, message, took, .. }
                if self.sample.has(&pod.uid) =>
            {
                let mut parts = self.open_attempts.borrow_mut().take(&pod.uid);
                self.drops.unfinished.add(parts.forget_before(took.from));
                self.hand_over(Attempt {
                    pod: pod.key(),
                    uid: pod.uid.clone(),
                    profile: self.profiles.get(profile).cloned().unwrap_or_default(),
                    number: attempts,
                    result,
                    node: node.map(Box::from),
                    message: message.into(),
                    took,
                    parts,
                    epoch: self.epoch(),
                });
            }
            _ => {}
        }
    }

    fn hand_over(&self, attempt: Attempt) {
        if let Err(TrySendError::Full(attempt) | TrySendError::Closed(attempt)) =
            self.attempts.try_send(attempt)
        {
            self.drops.queue_full.add(attempt.span_count());
        }
    }

    /// The origin of the clock, computed from the current wall clock, so that setting the clock
    /// tears no trace apart.
    fn epoch(&self) -> u64 {
        let now = (self.wall)().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        now.saturating_sub(self.inner.time_point().0)
    }
}

/// PreEnqueue precedes the attempt, PostBind follows it.
fn is_traced(point: Point) -> bool {
    !matches!(point, Point::PreEnqueue | Point::PostBind)
}

impl Observer for TracingObserver {
    fn observe(&self, observation: Observation<'_>) {
        self.note(&observation);
        self.inner.observe(observation);
    }

    fn profiles(&mut self, profiles: &[ObservedProfile]) {
        self.profiles = profiles.iter().map(|profile| Arc::clone(&profile.scheduler_name)).collect();
        self.inner.profiles(profiles);
    }

    fn time_point(&self) -> TimePoint {
        self.inner.time_point()
    }

    fn watches_plugins(&self) -> bool {
        self.inner.watches_plugins()
    }
}

#[cfg(test)]
mod tests;
