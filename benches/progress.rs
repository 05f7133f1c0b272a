//! Progress on a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};

/// A progress line on a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// On stderr, if that is a terminal.
    #[expect(clippy::new_without_default, reason = "it looks at the process's stderr")]
    pub fn new() -> Self {
        Self { shown: stderr().is_terminal() }
    }

    /// Shows the progress, at most a hundred times per step.
    pub fn at(self, target: &str, what: &str, index: usize, count: usize) {
        if self.shown && index.is_multiple_of(count.div_ceil(100)) {
            let percent = index * 100 / count;
            // Progress is not worth failing for.
            let _ = write!(stderr(), "\r\x1b[K{target}: {what} {percent} %");
        }
    }

    /// Clears the line.
    pub fn clear(self) {
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// A number such as `12,345`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
