//! What a process asks of its machine: a name, the time and randomness. They are parameters, so
//! that a simulation decides about them.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustc_hash::FxHasher;
use supercargo_framework::{Now, Timestamp};

/// The machine of a process.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its name; in a pod, the pod's name.
    pub name: Arc<str>,
    /// Its clocks.
    pub clock: Arc<dyn Clock>,
    /// The source of all random numbers of the process. Some of them are public, as in the identity
    /// of a candidate.
    pub seed: Seed,
    /// The seed of maps whose keys strangers choose. It does not follow from the other one.
    pub hash_seed: Seed,
}

/// The clocks of a machine. Timers are tokio's, which a runtime can pause.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The current time.
    fn now(&self) -> Now;

    /// How long the machine has been suspended since it started. The monotonic clock, by which Rust
    /// measures time, stands still meanwhile.
    fn suspended(&self) -> Duration {
        Duration::ZERO
    }

    /// How long to wait for messages when nothing else is due for `idle`. A clock that skips idle
    /// time returns less.
    fn wait(&self, idle: Duration) -> Duration {
        idle
    }
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

/// Where the random numbers of a process come from. Each purpose has its own.
#[derive(Clone, Copy, Debug)]
pub struct Seed(pub u64);

impl Host {
    /// This machine, with a random seed.
    pub fn local() -> Self {
        let clock = Arc::new(SystemClock::default());
        Self { name: hostname().into(), clock, seed: Seed::random(), hash_seed: Seed::random() }
    }

    /// The wall-clock time.
    pub fn wall(&self) -> jiff::Timestamp {
        // Clocks are not set to years beyond 9999.
        jiff::Timestamp::from_microsecond(self.clock.now().wall.0).unwrap_or_default()
    }
}

/// The wall-clock time of this machine, for credentials: connections are opened before there is a
/// host, and a simulation opens none.
#[expect(clippy::disallowed_methods, reason = "this module reads the machine's clocks")]
pub(crate) fn machine_time() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this module reads the machine's clocks")]
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this module reads the machine's clocks")]
    fn now(&self) -> Now {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { wall: Timestamp::default().plus(since_epoch), monotonic: self.0.elapsed() }
    }

    #[cfg(target_os = "linux")]
    fn suspended(&self) -> Duration {
        use rustix::time::{ClockId, Timespec, clock_gettime};
        // Clocks since the start are not negative.
        let time = |Timespec { tv_sec, tv_nsec }| Duration::new(tv_sec as u64, tv_nsec as u32);
        let monotonic = time(clock_gettime(ClockId::Monotonic));
        time(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic)
    }
}

impl Seed {
    /// A seed from the operating system, by the standard library's hash keys.
    pub fn random() -> Self {
        Self(RandomState::new().hash_one(0_u8))
    }

    /// A number for a purpose. The same seed and purpose give the same number.
    pub fn number(self, purpose: &str) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write_u64(self.0);
        hasher.write(purpose.as_bytes());
        hasher.finish()
    }

    /// Random numbers for a purpose.
    pub fn numbers(self, purpose: &str) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.number(purpose))
    }
}

/// The host name; in a pod, the pod's name.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"));
    name.map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_repeat_and_purposes_differ() {
        let seed = Seed(7);
        assert_eq!(seed.number("hash"), Seed(7).number("hash"));
        assert_ne!(seed.number("hash"), seed.number("jitter"));
        assert_ne!(seed.number("hash"), Seed(8).number("hash"));
        assert_ne!(Seed::random().0, Seed::random().0);
    }

    #[test]
    fn time_of_suspension_does_not_pass_while_the_machine_runs() {
        // The two clocks are read one after the other.
        let clock = SystemClock::default();
        assert!(clock.suspended().abs_diff(clock.suspended()) < Duration::from_secs(1));
    }
}
