//! A counter on a terminal, for answers that take long.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use tokio::time::Instant;

/// The time between two lines.
const INTERVAL: Duration = Duration::from_millis(200);

/// Counts steps on standard error, if that is a terminal.
pub(super) struct Progress {
    what: &'static str,
    done: usize,
    all: usize,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str, all: usize) -> Self {
        Self { what, done: 0, all, shown: None, is_terminal: stderr().is_terminal() }
    }

    /// Counts a step.
    pub(super) fn step(&mut self) {
        self.done += 1;
        let is_due = self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL);
        if self.is_terminal && is_due {
            self.shown = Some(Instant::now());
            let Self { what, done, all, .. } = self;
            // Nobody may read it.
            let _ = write!(stderr(), "\r{done} of {all} {what} ");
        }
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
