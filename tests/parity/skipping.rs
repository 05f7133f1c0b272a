//! A clock that can skip time while the scheduler is idle.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use supercargo_client::host::{Clock, SystemClock};
use supercargo_framework::Now;

/// The scheduler's longest sleep before it reads the clock again.
const SLICE: Duration = Duration::from_micros(200);

/// The machine's time plus the skipped time. Clones share the time.
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
    /// How often the scheduler's thread has read the clock: once per look at its mailbox, and once
    /// per action.
    asked: u64,
    /// How often it had nothing to do.
    waited: u64,
    /// The number of actions when it last had nothing to do.
    acted: u64,
    /// Its last idle time.
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

    /// The skipped time.
    pub(super) fn skipped(&self) -> Duration {
        self.state(|state| state.skipped)
    }

    /// Skips this time.
    pub(super) fn skip(&self, time: Duration) {
        self.state(|state| state.skipped += time);
    }

    /// The time until the scheduler's next deadline, as last reported.
    pub(super) fn idle(&self) -> Duration {
        self.state(|state| state.idle)
    }

    /// The number of the scheduler's actions. Idle turns do not change it.
    pub(super) fn activity(&self) -> u64 {
        self.state(|state| state.acted)
    }

    /// Waits until the scheduler has had nothing to do twice. The second time covers input that
    /// arrived between its look at the mailbox and its report.
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
