//! Waiting for conditions in other processes.

use std::thread;
use std::time::{Duration, Instant};

/// The shortest and the longest time between two probes. Probes that wait long are rarer: each
/// costs the processes of the test time.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));
/// What a slow or busy machine may take more.
const SLOWNESS: u32 = 4;

/// Waits until the probe returns a value, for [`SLOWNESS`] times as long as given.
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
    let (started, within) = (Instant::now(), within * SLOWNESS);
    loop {
        if let Some(value) = probe() {
            return value;
        }
        let (seconds, waited) = (within.as_secs_f32(), started.elapsed());
        assert!(waited <= within, "not within {seconds} s: {what}\n{}", state());
        thread::sleep((waited / 10).clamp(INTERVAL.0, INTERVAL.1));
    }
}

/// Prints the progress of a long test (`--nocapture`).
pub(crate) fn say(test: &str, started: Instant, text: &str) {
    eprintln!("{test} {:6.1} s: {text}", started.elapsed().as_secs_f32());
}
