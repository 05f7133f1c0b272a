//! Delays after failures.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Key;

/// Determines the delay before a key is retried. Same as client-go's `workqueue.RateLimiter`.
pub trait RateLimiter<T>: Send + 'static {
    /// The delay of the key. Each call counts as a failure of the key.
    fn when(&mut self, key: &T) -> Duration;

    /// Resets the key's failures, once its processing has succeeded or was given up.
    fn forget(&mut self, key: &T);

    /// The number of failures counted for the key.
    fn num_requeues(&self, key: &T) -> usize;
}

impl<T: 'static> RateLimiter<T> for Box<dyn RateLimiter<T>> {
    fn when(&mut self, key: &T) -> Duration {
        (**self).when(key)
    }

    fn forget(&mut self, key: &T) {
        (**self).forget(key);
    }

    fn num_requeues(&self, key: &T) -> usize {
        (**self).num_requeues(key)
    }
}

/// The default rate limiter of controllers. Uses the longer of two delays: 5 ms, doubling with each
/// failure of the key up to 1000 s; and a bucket for all keys with 100 retries, refilled by 10 per
/// second.
pub fn default_controller_rate_limiter<T: Key>() -> MaxOfRateLimiter<T> {
    let per_item =
        ItemExponentialFailureRateLimiter::new(Duration::from_millis(5), Duration::from_secs(1000));
    MaxOfRateLimiter::new([
        Box::new(per_item) as Box<dyn RateLimiter<T>>,
        Box::new(BucketRateLimiter::new(10.0, 100)),
    ])
}

/// A delay that doubles with each failure of the key.
pub struct ItemExponentialFailureRateLimiter<T> {
    failures: HashMap<T, u32>,
    base: Duration,
    max: Duration,
}

impl<T: Key> ItemExponentialFailureRateLimiter<T> {
    /// Doubles from `base` up to `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { failures: HashMap::default(), base, max }
    }
}

impl<T: Key> RateLimiter<T> for ItemExponentialFailureRateLimiter<T> {
    fn when(&mut self, key: &T) -> Duration {
        let exponent = count(&mut self.failures, key) - 1;
        let doubled =
            1_u128.checked_shl(exponent).and_then(|factor| self.base.as_nanos().checked_mul(factor));
        match doubled {
            Some(nanos) if nanos < self.max.as_nanos() => Duration::from_nanos_u128(nanos),
            _ if self.base.is_zero() => Duration::ZERO,
            _ => self.max,
        }
    }

    fn forget(&mut self, key: &T) {
        self.failures.remove(key);
    }

    fn num_requeues(&self, key: &T) -> usize {
        counted(&self.failures, key)
    }
}

/// A short delay for the first failures of a key, then a long one.
pub struct ItemFastSlowRateLimiter<T> {
    failures: HashMap<T, u32>,
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
}

impl<T: Key> ItemFastSlowRateLimiter<T> {
    /// `fast` for the first `fast_attempts` failures, then `slow`.
    pub fn new(fast: Duration, slow: Duration, fast_attempts: u32) -> Self {
        Self { failures: HashMap::default(), fast, slow, fast_attempts }
    }
}

impl<T: Key> RateLimiter<T> for ItemFastSlowRateLimiter<T> {
    fn when(&mut self, key: &T) -> Duration {
        if count(&mut self.failures, key) <= self.fast_attempts { self.fast } else { self.slow }
    }

    fn forget(&mut self, key: &T) {
        self.failures.remove(key);
    }

    fn num_requeues(&self, key: &T) -> usize {
        counted(&self.failures, key)
    }
}

/// Counts one more failure, and returns the total.
fn count<T: Key>(failures: &mut HashMap<T, u32>, key: &T) -> u32 {
    let count = failures.entry(key.clone()).or_default();
    *count = count.saturating_add(1);
    *count
}

fn counted<T: Key>(failures: &HashMap<T, u32>, key: &T) -> usize {
    failures.get(key).map_or(0, |count| usize::try_from(*count).unwrap_or(usize::MAX))
}

/// A token bucket for all keys together. Keys that find it empty reserve future tokens, in order.
#[derive(Clone, Debug)]
pub struct BucketRateLimiter {
    per_second: f64,
    burst: f64,
    /// Negative by the number of reserved tokens.
    tokens: f64,
    as_of: Option<Instant>,
}

impl BucketRateLimiter {
    /// A full bucket of `burst` tokens, refilled by `per_second`. Without a positive rate or burst,
    /// delays are infinite, as in client-go.
    pub fn new(per_second: f64, burst: u32) -> Self {
        Self { per_second, burst: burst.into(), tokens: burst.into(), as_of: None }
    }
}

impl<T> RateLimiter<T> for BucketRateLimiter {
    fn when(&mut self, _: &T) -> Duration {
        if self.per_second == f64::INFINITY {
            return Duration::ZERO;
        }
        let fills = self.per_second > 0.0;
        if self.burst < 1.0 {
            return Duration::MAX;
        }
        let now = Instant::now();
        let passed = self.as_of.replace(now).map_or(Duration::ZERO, |as_of| now - as_of);
        if fills {
            self.tokens = self.burst.min(self.tokens + passed.as_secs_f64() * self.per_second);
        }
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        if !fills {
            return Duration::MAX;
        }
        Duration::try_from_secs_f64(-self.tokens / self.per_second).unwrap_or(Duration::MAX)
    }

    /// Does nothing: tokens are not counted per key.
    fn forget(&mut self, _: &T) {}

    /// Always 0.
    fn num_requeues(&self, _: &T) -> usize {
        0
    }
}

/// The longest delay and the highest count of several limiters.
///
/// A bucket among them can seem to exceed its burst, if another limiter delays keys that already
/// have a token.
pub struct MaxOfRateLimiter<T>(Vec<Box<dyn RateLimiter<T>>>);

impl<T: 'static> MaxOfRateLimiter<T> {
    /// Without limiters, there is no delay.
    pub fn new(limiters: impl IntoIterator<Item = Box<dyn RateLimiter<T>>>) -> Self {
        Self(limiters.into_iter().collect())
    }
}

impl<T: 'static> RateLimiter<T> for MaxOfRateLimiter<T> {
    fn when(&mut self, key: &T) -> Duration {
        // Calls all limiters, because each must count the failure.
        self.0.iter_mut().map(|limiter| limiter.when(key)).max().unwrap_or_default()
    }

    fn forget(&mut self, key: &T) {
        for limiter in &mut self.0 {
            limiter.forget(key);
        }
    }

    fn num_requeues(&self, key: &T) -> usize {
        self.0.iter().map(|limiter| limiter.num_requeues(key)).max().unwrap_or_default()
    }
}

/// Limits the delays of another limiter.
#[derive(Clone, Debug)]
pub struct WithMaxWaitRateLimiter<L> {
    limiter: L,
    max: Duration,
}

impl<L> WithMaxWaitRateLimiter<L> {
    /// Limits the delays of `limiter` to `max`.
    pub fn new(limiter: L, max: Duration) -> Self {
        Self { limiter, max }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for WithMaxWaitRateLimiter<L> {
    fn when(&mut self, key: &T) -> Duration {
        self.limiter.when(key).min(self.max)
    }

    fn forget(&mut self, key: &T) {
        self.limiter.forget(key);
    }

    fn num_requeues(&self, key: &T) -> usize {
        self.limiter.num_requeues(key)
    }
}
