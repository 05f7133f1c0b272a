//! A counter on a terminal, and a deadline, for answers that take long.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

/// The time between two lines.
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
    fn check(self) -> Result<()> {
        ensure!(!self.is_over(), "no answer within {} s", self.limit.as_secs());
        Ok(())
    }
}

/// Counts steps on standard error, if that is a terminal.
pub(super) struct Progress {
    deadline: Deadline,
    what: &'static str,
    done: usize,
    all: usize,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str, all: usize, deadline: Deadline) -> Self {
        Self { deadline, what, done: 0, all, shown: None, is_terminal: stderr().is_terminal() }
    }

    /// Counts a step. An error once the deadline has passed.
    pub(super) fn step(&mut self) -> Result<()> {
        self.done += 1;
        let is_due = self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL);
        if self.is_terminal && is_due {
            self.shown = Some(Instant::now());
            let Self { what, done, all, .. } = self;
            // Nobody may read it.
            let _ = write!(stderr(), "\r{done} of {all} {what} ");
        }
        self.deadline.check()
    }
}

/// Clears the line.
impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(stderr(), "\r{:40}\r", "");
        }
    }
}
