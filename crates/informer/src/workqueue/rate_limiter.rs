//! How long what failed has to wait.

use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::time::Instant;

use super::Key;

/// Says how long a key is to wait before it is tried again. Same as client-go's `workqueue.RateLimiter`.
pub trait RateLimiter<T>: Send + 'static {
    /// How long the key is to wait. Asking counts as a failure of the key.
    fn when(&mut self, key: &T) -> Duration;

    /// The key is done with, successfully or not: its failures count no longer.
    fn forget(&mut self, key: &T);

    /// How many failures of the key count.
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

/// What controllers use unless they have a reason not to: the longer of 5 ms, doubling with each failure of
/// the key up to 1000 s, and what a bucket of 100 tries, 10 more per second, has for all keys together.
pub fn default_controller_rate_limiter<T: Key>() -> MaxOfRateLimiter<T> {
    let per_item =
        ItemExponentialFailureRateLimiter::new(Duration::from_millis(5), Duration::from_secs(1000));
    MaxOfRateLimiter::new([
        Box::new(per_item) as Box<dyn RateLimiter<T>>,
        Box::new(BucketRateLimiter::new(10.0, 100)),
    ])
}

/// A first delay that doubles with each failure of the key.
pub struct ItemExponentialFailureRateLimiter<T> {
    failures: FxHashMap<T, u32>,
    base: Duration,
    max: Duration,
}

impl<T: Key> ItemExponentialFailureRateLimiter<T> {
    /// From `base` up to `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { failures: FxHashMap::default(), base, max }
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

/// A short delay for some failures of the key, and a long one for those after.
pub struct ItemFastSlowRateLimiter<T> {
    failures: FxHashMap<T, u32>,
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
}

impl<T: Key> ItemFastSlowRateLimiter<T> {
    /// `fast` for the first `fast_attempts` failures, then `slow`.
    pub fn new(fast: Duration, slow: Duration, fast_attempts: u32) -> Self {
        Self { failures: FxHashMap::default(), fast, slow, fast_attempts }
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

/// Counts one more failure, and says how many that makes.
fn count<T: Key>(failures: &mut FxHashMap<T, u32>, key: &T) -> u32 {
    let count = failures.entry(key.clone()).or_default();
    *count = count.saturating_add(1);
    *count
}

fn counted<T: Key>(failures: &FxHashMap<T, u32>, key: &T) -> usize {
    failures.get(key).map_or(0, |count| usize::try_from(*count).unwrap_or(usize::MAX))
}

/// A bucket of tries for all keys together, which fills at a steady rate. Who finds it empty waits for a try
/// that is not there yet, in turn.
#[derive(Clone, Debug)]
pub struct BucketRateLimiter {
    per_second: f64,
    burst: f64,
    /// Below zero by the tries that have been given out in advance.
    tokens: f64,
    as_of: Option<Instant>,
}

impl BucketRateLimiter {
    /// A full bucket for `burst` tries that gets `per_second` more. With a rate that is not above zero, or no
    /// burst, waits never end, as with client-go's.
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

    /// Nothing: tries are not a key's own.
    fn forget(&mut self, _: &T) {}

    /// Always 0.
    fn num_requeues(&self, _: &T) -> usize {
        0
    }
}

/// The longest wait and the highest count that any of several limiters has.
///
/// A bucket among them may seem to let through more than its burst, where keys that had a try from it were
/// made to wait for longer by another.
pub struct MaxOfRateLimiter<T>(Vec<Box<dyn RateLimiter<T>>>);

impl<T: 'static> MaxOfRateLimiter<T> {
    /// With none there is no wait.
    pub fn new(limiters: impl IntoIterator<Item = Box<dyn RateLimiter<T>>>) -> Self {
        Self(limiters.into_iter().collect())
    }
}

impl<T: 'static> RateLimiter<T> for MaxOfRateLimiter<T> {
    fn when(&mut self, key: &T) -> Duration {
        // All are asked, or the failure would not count with some.
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

/// Another limiter, whose waits are cut off.
#[derive(Clone, Debug)]
pub struct WithMaxWaitRateLimiter<L> {
    limiter: L,
    max: Duration,
}

impl<L> WithMaxWaitRateLimiter<L> {
    /// No wait of `limiter` is longer than `max`.
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
