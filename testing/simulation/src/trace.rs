//! What happened, as a hash that two runs of a seed share, and as text on demand.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The trace of a run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    /// Whether lines are printed.
    prints: bool,
    counts: BTreeMap<&'static str, u64>,
}

impl Trace {
    /// An empty trace.
    pub fn new(prints: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, prints, counts: BTreeMap::new() }
    }

    /// Adds a line.
    pub fn add(&mut self, at: Duration, what: fmt::Arguments<'_>) {
        let line = format!("{} {what}", Stamp(at));
        // FNV-1a.
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.prints {
            println!("{line}");
        }
    }

    /// Counts something for the summary.
    pub fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what).or_default() += by;
    }

    /// Keeps the greatest value.
    pub fn greatest(&mut self, what: &'static str, value: u64) {
        let entry = self.counts.entry(what).or_default();
        *entry = value.max(*entry);
    }

    /// The hash of all lines.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The counts.
    pub fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }
}

/// A simulated time as `h:mm:ss.mmm`.
pub struct Stamp(pub Duration);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        write!(f, "{}:{:02}:{:02}.{millis:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}
