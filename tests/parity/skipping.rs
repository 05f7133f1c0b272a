//! A clock that can be put forward while the scheduler has nothing to do.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use supercargo::clock::{Clock, SystemClock};
use supercargo_framework::Now;

/// How long the scheduler sleeps before it looks at the clock again.
const SLICE: Duration = Duration::from_micros(200);

/// The machine's time, and what has been skipped. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub(super) struct SkippingClock(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    machine: SystemClock,
    state: Mutex<State>,
    waits: Condvar,
}

#[derive(Debug, Default)]
struct State {
    skipped: Duration,
    /// How often the scheduler's thread asked for the time: once per look at its mailbox, and once per thing to do.
    asked: u64,
    /// How often it had nothing to do.
    waited: u64,
    /// How often it had something to do, as of when it last had nothing.
    acted: u64,
    /// How long it had nothing to do, the last time.
    idle: Duration,
}

impl SkippingClock {
    fn state<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The time.
    pub(super) fn time(&self) -> Duration {
        self.0.machine.now().monotonic + self.skipped()
    }

    /// How much has been skipped.
    pub(super) fn skipped(&self) -> Duration {
        self.state(|state| state.skipped)
    }

    /// Lets this time pass at once.
    pub(super) fn skip(&self, time: Duration) {
        self.state(|state| state.skipped += time);
    }

    /// How long the scheduler has nothing to do, as it said last.
    pub(super) fn idle(&self) -> Duration {
        self.state(|state| state.idle)
    }

    /// How much the scheduler has done: stays the same while it looks in vain for something to do.
    pub(super) fn activity(&self) -> u64 {
        self.state(|state| state.acted)
    }

    /// Waits until the scheduler has found twice that there is nothing to do. Once is not enough: what came after
    /// it looked into its mailbox, and before it said so, is found the second time.
    pub(super) fn await_idleness(&self, deadline: Instant) -> Result<()> {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = state.waited + 2;
        let patience = deadline.saturating_duration_since(Instant::now());
        let waiting = self.0.waits.wait_timeout_while(state, patience, |state| state.waited < enough);
        let timed_out = waiting.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        ensure!(!timed_out, "supercargo does not come to rest");
        Ok(())
    }
}

impl Clock for SkippingClock {
    fn now(&self) -> Now {
        let skipped = self.state(|state| {
            state.asked += 1;
            state.skipped
        });
        let now = self.0.machine.now();
        Now { wall: now.wall.plus(skipped), monotonic: now.monotonic + skipped }
    }

    fn wait(&self, idle: Duration) -> Duration {
        self.state(|state| {
            state.waited += 1;
            state.acted = state.asked.saturating_sub(state.waited);
            state.idle = idle;
        });
        self.0.waits.notify_all();
        idle.min(SLICE)
    }
}
