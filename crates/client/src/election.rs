//! Leader election by a Lease, with client-go's rules and timing.
//!
//! ```text
//! Candidacy ──> Elector ──get, create, update──> the lease <── other candidates
//!     │            │  ^                              │
//!     │            │  └─────── LeaseWatch <─ watch ───┘
//!     │            └──> Fence ──> every Api that writes
//!     └──> Leadership: the holder, for health checks and metrics
//! ```
//!
//! | module | content |
//! |---|---|
//! | `observed` | the action that a candidate may take on the observed lease; pure |
//! | `lease` | the Lease object and its requests |
//! | `elector` | a candidate: acquires, renews and releases the lease |
//! | `lease_watch` | wakes a waiting candidate when the lease changes |
//! | `leader_events` | Kubernetes events about leadership |
//! | `identity` | the candidate's name, and jitter |
//! | `candidacy` | an elector in a task |
//!
//! Time is the monotonic clock of this machine. Times in a lease are compared only with earlier
//! times in the same lease. So clocks may differ, as long as they run at about the same rate.

mod candidacy;
mod elector;
mod identity;
mod leader_events;
mod lease;
mod lease_watch;
mod observed;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

pub use candidacy::Candidacy;
pub use elector::{Elector, Loss, LossReason};
pub use lease::LeaseName;

use crate::fence::Fence;

/// How long an expired lease may stay unrenewed before its holder reports unhealthy; as
/// kube-scheduler's watchdog.
const TOLERANCE: Duration = Duration::from_secs(20);
/// Jitter factor of the retry period, as in client-go.
const JITTER: f64 = 1.2;

/// The leader, as observed by this candidate.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// The name of the lease, which is the election's name in metrics.
    pub lease: Arc<str>,
    /// The identity of this candidate.
    pub identity: Arc<str>,
    /// The holder of the lease; `None` if it is free or not read yet.
    pub holder: Option<Arc<str>>,
    /// Whether this candidate leads.
    pub is_leader: bool,
    /// The last renewal by this candidate.
    pub last_renewal: Option<Instant>,
    /// The duration of the lease.
    pub lease_duration: Duration,
}

/// This process still holds an expired lease that it could not renew.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("failed election to renew leadership on lease {lease}")]
pub struct RenewalOverdue {
    /// The name of the lease.
    pub lease: Arc<str>,
}

impl Leadership {
    /// The health check `leaderElection`, as client-go's `HealthzAdaptor` in kube-scheduler. It
    /// fails only for a leader that has not renewed its lease within 20 s after expiry. Candidates
    /// are healthy.
    pub fn check(&self, now: Instant) -> Result<(), RenewalOverdue> {
        let limit = self.lease_duration + TOLERANCE;
        let is_overdue = |last: Instant| now.saturating_duration_since(last) > limit;
        if self.is_leader && self.last_renewal.is_some_and(is_overdue) {
            return Err(RenewalOverdue { lease: Arc::clone(&self.lease) });
        }
        Ok(())
    }
}

/// Timing of the election.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long candidates wait after the last observed renewal before one takes the lease.
    pub lease_duration: Duration,
    /// How long the leader retries a renewal before it gives up leading.
    pub renew_deadline: Duration,
    /// Time between attempts to acquire or renew the lease.
    pub retry_period: Duration,
}

impl Timing {
    /// How long this process leads after sending a renewal. client-go first retries after a retry
    /// period, and stops a renew deadline later. Never longer than other candidates wait.
    fn hold(&self) -> Duration {
        self.lease_duration.min(self.retry_period + self.renew_deadline)
    }

    /// The timeout of a request, as in kube-scheduler.
    fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    /// The duration in the lease: whole seconds, rounded up.
    fn lease_seconds(&self) -> i64 {
        let seconds = self.lease_duration.as_nanos().div_ceil(1_000_000_000).max(1);
        i64::try_from(seconds).unwrap_or(i64::MAX)
    }
}
