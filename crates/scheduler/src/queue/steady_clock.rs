//! The queue's own time, which a wall clock that is set back does not stop.

use std::time::Duration;

use supercargo_framework::Now;

/// The wall clock as far as it goes forward. Where it is set back, as many whole seconds are added from then on: pods
/// would wait for their backoff until it has come back to where it was. Seconds still begin when the wall clock's do.
#[derive(Default)]
pub(super) struct SteadyClock {
    last: Option<Now>,
    added: Duration,
}

impl SteadyClock {
    /// Takes note of the present, and returns it as the queue has it.
    pub(super) fn observe(&mut self, now: Now) -> Now {
        self.added = self.added_at(now);
        self.last = Some(now);
        shifted(now, self.added)
    }

    /// The present as the queue has it.
    pub(super) fn at(&self, now: Now) -> Now {
        shifted(now, self.added_at(now))
    }

    /// What passes is told by the monotonic clock; what the wall clock is behind that, it was set back.
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
    fn time_goes_on_when_the_wall_clock_is_set_back() {
        let mut clock = SteadyClock::default();
        let mut seen = Vec::new();
        let mut observe = |wall, monotonic| {
            let now = at(wall, monotonic);
            let before = clock.at(now);
            assert_eq!(clock.observe(now), before, "looking does not change what is seen");
            seen.push(before.wall.0 / 1000);
        };
        observe(100_000, 0);
        observe(101_000, 1_000);
        // By more than an hour, and by some of a second that stays missing.
        observe(-3_498_300, 2_000);
        observe(-3_497_300, 3_000);
        // By less than a second: a clock that is being adjusted, not set.
        observe(-3_496_900, 4_000);
        // And forward.
        observe(200_000, 5_000);
        assert_eq!(seen, [100_000, 101_000, 101_700, 102_700, 103_100, 3_800_000]);
    }
}
