//! A counter on a terminal, and a deadline, for answers that take long.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

/// How a text begins that says that an answer is late.
pub(super) const LATE: &str = "no answer within";

/// The time between two lines, and before the first.
const INTERVAL: Duration = Duration::from_millis(200);

/// When an answer is too late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit, limit }
    }

    /// At this time, which is the end of this limit.
    pub(super) fn at(at: Instant, limit: Duration) -> Self {
        Self { at, limit }
    }

    /// Whether it has passed.
    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.at
    }

    /// What this resolves to, if that is in time.
    pub(super) async fn bound<T>(self, work: impl Future<Output = T>) -> Result<T, Elapsed> {
        timeout_at(self.at, work).await
    }

    /// An error once the deadline has passed.
    pub(super) fn check(self) -> Result<()> {
        ensure!(!self.is_over(), "{LATE} {} s", self.limit.as_secs());
        Ok(())
    }
}

/// Counts steps on standard error, if that is a terminal.
pub(super) struct Progress {
    deadline: Deadline,
    what: &'static str,
    done: usize,
    all: usize,
    last: Instant,
    is_shown: bool,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str, all: usize, deadline: Deadline) -> Self {
        let (last, is_terminal) = (Instant::now(), stderr().is_terminal());
        Self { deadline, what, done: 0, all, last, is_shown: false, is_terminal }
    }

    /// Counts a step. An error once the deadline has passed.
    pub(super) fn step(&mut self) -> Result<()> {
        self.done += 1;
        if self.is_terminal && self.is_due() {
            self.is_shown = true;
            let Self { what, done, all, .. } = self;
            // Nobody may read it.
            let _ = write!(stderr(), "\r{done} of {all} {what} ");
        }
        self.deadline.check()
    }

    /// Whether it is time for a line.
    fn is_due(&mut self) -> bool {
        let is_due = self.last.elapsed() >= INTERVAL;
        if is_due {
            self.last = Instant::now();
        }
        is_due
    }
}

/// Clears the line.
impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(stderr(), "\r{:40}\r", "");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_quick_answer_shows_no_progress() {
        let mut progress = Progress::new("pods", 3, Deadline::after(Duration::from_secs(1)));
        assert!(!progress.is_due());
        advance(INTERVAL).await;
        assert!(progress.is_due());
        assert!(!progress.is_due());
    }
}
