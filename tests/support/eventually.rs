//! Waiting for something that other processes do.

use std::thread;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(20);

/// What the probe gives as soon as it gives something.
///
/// # Panics
///
/// When it gives nothing in time, with what `state` says.
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

/// Tells whoever watches (`--nocapture`) how far a long test is.
pub(crate) fn say(test: &str, started: Instant, text: &str) {
    eprintln!("{test} {:6.1} s: {text}", started.elapsed().as_secs_f32());
}
