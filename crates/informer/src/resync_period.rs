//! Randomized resync periods, so that the informers of a program do not resync all at once.

use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;

use crate::backoff::random;

/// Returns a function that picks periods between `min` and twice that; same as the controller
/// manager's `ResyncPeriod`.
///
/// ```
/// use std::time::Duration;
///
/// let period = kube_informers::resync_period(Duration::from_secs(12 * 3600));
/// assert!((12..24).contains(&(period().as_secs() / 3600)));
/// ```
pub fn resync_period(min: Duration) -> impl Fn() -> Duration + Send + Sync {
    seeded(min, None)
}

/// Extends `period` by a random share of up to `factor`; same as client-go's `wait.Jitter`. Useful,
/// for example, for the pauses between starting controllers. A factor of zero or less counts as 1,
/// as in client-go.
pub fn jitter(period: Duration, factor: f64) -> Duration {
    jittered(period, factor, &mut random(None))
}

fn seeded(min: Duration, seed: Option<u64>) -> impl Fn() -> Duration + Send + Sync {
    let random = Mutex::new(random(seed));
    move || jittered(min, 1.0, &mut random.lock())
}

fn jittered(period: Duration, factor: f64, random: &mut Rng) -> Duration {
    let factor = if factor > 0.0 { factor } else { 1.0 };
    let extra = period.as_secs_f64() * factor * random.f64();
    // An overflow yields the longest duration.
    period.saturating_add(Duration::try_from_secs_f64(extra).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resync_periods_vary_between_minimum_and_twice_that() {
        let min = Duration::from_mins(10);
        let period = seeded(min, Some(3));
        let periods: Vec<Duration> = (0..1000).map(|_| period()).collect();
        assert!(periods.iter().all(|period| (min..2 * min).contains(period)));
        assert!(periods.iter().any(|period| *period < min.mul_f64(1.05)), "the whole range is used");
        assert!(periods.iter().any(|period| *period > min.mul_f64(1.95)), "the whole range is used");
        let unseeded = resync_period(min);
        assert_ne!((unseeded(), unseeded()), (unseeded(), unseeded()));
    }

    #[test]
    fn jitter_extends_a_period_by_at_most_the_factor() {
        let (second, mut random) = (Duration::from_secs(1), random(Some(3)));
        for (factor, most) in [(0.5, 1.5), (3.0, 4.0), (0.0, 2.0), (-1.0, 2.0)] {
            let pauses: Vec<f64> =
                (0..1000).map(|_| jittered(second, factor, &mut random).as_secs_f64()).collect();
            assert!(pauses.iter().all(|pause| (1.0..most).contains(pause)), "{factor}");
            assert!(pauses.iter().any(|pause| *pause > 0.9 * most), "{factor}");
        }
        assert!(jitter(Duration::MAX, f64::INFINITY) == Duration::MAX && jitter(second, 1.0) >= second);
        assert_eq!(resync_period(Duration::ZERO)(), Duration::ZERO);
    }
}
