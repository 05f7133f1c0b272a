//! A count of comparisons and lookups, for tests of how cost grows with the size of an object.
//!
//! Without the cargo feature `steps` nothing is counted. The count is that of the process: tests
//! that read it must not run beside others.

#[cfg(feature = "steps")]
mod counter {
    use std::sync::atomic::{AtomicU64, Ordering};

    static STEPS: AtomicU64 = AtomicU64::new(0);

    /// Counts steps.
    pub fn add(steps: usize) {
        STEPS.fetch_add(steps as u64, Ordering::Relaxed);
    }

    /// The steps so far.
    pub fn taken() -> u64 {
        STEPS.load(Ordering::Relaxed)
    }
}

#[cfg(feature = "steps")]
pub use counter::{add, taken};

/// Counts steps.
#[cfg(not(feature = "steps"))]
#[inline(always)]
pub fn add(_: usize) {}
