//! The queue's clock, which never goes back.

use std::time::Duration;

use supercargo_framework::Now;

/// The wall clock without its steps back. When it is set back, the same number of whole seconds is
/// added from then on. Otherwise pods in backoff would wait until the wall clock catches up.
/// Seconds still begin with those of the wall clock.
#[derive(Clone, Default)]
pub(crate) struct SteadyClock {
    last: Option<Now>,
    added: Duration,
}

impl SteadyClock {
    /// Updates the clock and returns the queue's time.
    pub(crate) fn observe(&mut self, now: Now) -> Now {
        self.added = self.added_at(now);
        self.last = Some(now);
        shifted(now, self.added)
    }

    /// The queue's time.
    pub(crate) fn at(&self, now: Now) -> Now {
        shifted(now, self.added_at(now))
    }

    /// The monotonic clock tells how much time passed. The wall clock was set back by what it
    /// lacks.
    fn added_at(&self, now: Now) -> Duration {
        let set_back = self.last.map_or(Duration::ZERO, |last| {
            let passed = now.monotonic.saturating_sub(last.monotonic);
            last.wall.plus(passed).since(now.wall)
        });
        self.added + Duration::from_secs(set_back.as_secs())
    }
}

fn shifted(now: Now, added: Duration) -> Now {
    Now { wall: now.wall.plus(added), ..now }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::Timestamp;

    use super::*;

    fn at(wall_millis: i64, monotonic_millis: u64) -> Now {
        Now { wall: Timestamp(wall_millis * 1000), monotonic: Duration::from_millis(monotonic_millis) }
    }

    #[test]
    fn time_advances_when_the_wall_clock_is_set_back() {
        let mut clock = SteadyClock::default();
        let mut seen = Vec::new();
        let mut observe = |wall, monotonic| {
            let now = at(wall, monotonic);
            let before = clock.at(now);
            assert_eq!(clock.observe(now), before, "reading does not advance the clock");
            seen.push(before.wall.0 / 1000);
        };
        observe(100_000, 0);
        observe(101_000, 1_000);
        // By more than an hour. The fraction of a second stays missing.
        observe(-3_498_300, 2_000);
        observe(-3_497_300, 3_000);
        // By less than a second: the clock is adjusted, not set.
        observe(-3_496_900, 4_000);
        // And forward.
        observe(200_000, 5_000);
        assert_eq!(seen, [100_000, 101_000, 101_700, 102_700, 103_100, 3_800_000]);
    }
}
