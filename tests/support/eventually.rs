//! Waiting for conditions in other processes.

use std::thread;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(20);

/// Waits until the probe returns a value.
///
/// # Panics
///
/// If it returns none in time. The message includes `state`.
pub(crate) fn eventually<T>(
    what: &str,
    within: Duration,
    mut probe: impl FnMut() -> Option<T>,
    state: impl Fn() -> String,
) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        let seconds = within.as_secs_f32();
        assert!(started.elapsed() <= within, "not within {seconds} s: {what}\n{}", state());
        thread::sleep(INTERVAL);
    }
}

/// Prints the progress of a long test (`--nocapture`).
pub(crate) fn say(test: &str, started: Instant, text: &str) {
    eprintln!("{test} {:6.1} s: {text}", started.elapsed().as_secs_f32());
}
