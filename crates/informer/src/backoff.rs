//! Exponential backoff with jitter, and the random numbers for it.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

/// Longer than any process lives, and short enough not to overflow in sums.
pub(crate) const FOR_EVER: Duration = Duration::from_hours(24 * 365 * 100);

/// How waits between attempts grow.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BackoffPolicy {
    /// The first wait, before jitter.
    pub initial: Duration,
    /// The longest wait, before jitter.
    pub max: Duration,
    /// The factor between consecutive waits.
    pub factor: f64,
    /// A wait of `d` is extended to a random value between `d` and `d * (1 + jitter)`.
    pub jitter: f64,
    /// The wait returns to `initial` after this time without an attempt.
    pub reset: Duration,
}

impl Default for BackoffPolicy {
    /// client-go's reflector: 800 ms, doubling to 30 s, each extended by up to 100%, reset after 2
    /// minutes.
    ///
    /// The reset differs: client-go resets 2 minutes after the last reset, even if every attempt
    /// fails.
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(800),
            max: Duration::from_secs(30),
            factor: 2.0,
            jitter: 1.0,
            reset: Duration::from_mins(2),
        }
    }
}

impl BackoffPolicy {
    /// Waits that grow from `initial` to `max`, and are otherwise the default.
    pub fn between(initial: Duration, max: Duration) -> Self {
        Self { initial, max, ..Self::default() }
    }

    /// Sets [`factor`](field@Self::factor).
    pub fn factor(self, factor: f64) -> Self {
        Self { factor, ..self }
    }

    /// Sets [`jitter`](field@Self::jitter).
    pub fn jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// Sets [`reset`](field@Self::reset).
    pub fn reset(self, reset: Duration) -> Self {
        Self { reset, ..self }
    }
}

#[derive(Debug)]
pub(crate) struct Backoff {
    policy: BackoffPolicy,
    next: Duration,
    last_used: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(policy: BackoffPolicy) -> Self {
        Self { policy, next: policy.initial, last_used: None }
    }

    /// Returns to the initial wait.
    pub(crate) fn reset(&mut self) {
        self.next = self.policy.initial;
    }

    /// The wait before the next attempt.
    pub(crate) fn next(&mut self, random: &mut Rng) -> Duration {
        let now = Instant::now();
        if self.last_used.is_some_and(|last| now - last > self.policy.reset) {
            self.next = self.policy.initial;
        }
        let wait = stretched(self.next, 1.0 + self.policy.jitter * random.f64(), FOR_EVER);
        self.next = stretched(self.next, self.policy.factor, self.policy.max);
        // The wait itself does not count as idle time.
        self.last_used = Some(now + wait);
        wait
    }
}

/// Unlike `Duration::mul_f64`, never panics, whatever the numbers of a policy.
pub(crate) fn stretched(duration: Duration, factor: f64, max: Duration) -> Duration {
    let seconds = duration.as_secs_f64() * factor;
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(max).min(max)
}

/// A generator with this seed, or a random one. That comes from the operating system, by way of the
/// standard library's hashers; fastrand's own comes from the clock.
pub(crate) fn random(seed: Option<u64>) -> Rng {
    Rng::with_seed(seed.unwrap_or_else(|| RandomState::new().hash_one(0_u8)))
}

/// Uniform over the whole seconds of the range.
pub(crate) fn seconds(random: &mut Rng, range: Range<Duration>) -> Duration {
    let (low, high) = (range.start.as_secs_f64(), range.end.as_secs_f64());
    Duration::from_secs((low + (high - low) * random.f64()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_cap_with_jitter() {
        let mut random = random(Some(1));
        let mut backoff = Backoff::new(BackoffPolicy::default());
        for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let wait = backoff.next(&mut random);
            assert!((base..2.0 * base).contains(&wait.as_secs_f64()), "{wait:?} for {base}");
            tokio::time::sleep(wait).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_idle_minutes_reset_the_waits() {
        let mut random = random(Some(1));
        let mut backoff = Backoff::new(BackoffPolicy { jitter: 0.0, ..BackoffPolicy::default() });
        let mut wait = async |quiet| {
            let wait = backoff.next(&mut random);
            tokio::time::sleep(wait + Duration::from_secs(quiet)).await;
            wait.as_millis()
        };
        assert_eq!([wait(0).await, wait(119).await, wait(121).await, wait(0).await], [800, 1600, 3200, 800]);
    }

    #[test]
    fn random_numbers_repeat_only_with_a_seed() {
        let draw = |seed| random(seed).u64(..);
        assert_eq!(draw(Some(7)), draw(Some(7)));
        assert_ne!(draw(None), draw(None));
        let mut random = random(None);
        let range = Duration::from_mins(5)..Duration::from_mins(10);
        assert!((0..1000).all(|_| range.contains(&seconds(&mut random, range.clone()))));
    }
}
