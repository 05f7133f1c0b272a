//! Which of several schedulers leads, by a Lease; client-go's rules and timing.
//!
//! ```text
//! Candidacy ──> Elector ──get, create, update──> the lease <── the other candidates
//!     │            │  ^                              │
//!     │            │  └────────── Bell <── watch ────┘
//!     │            └──> Fence ──> every Api that writes
//!     └──> Leadership: who holds the lease, for health checks and metrics
//! ```
//!
//! | module | what |
//! |---|---|
//! | `observed` | what a candidate may do about the lease as it has seen it; pure |
//! | `lease` | the lease as the API has it, and the requests for it |
//! | `elector` | one candidate: takes the lease, keeps it, gives it up |
//! | `bell` | wakes a candidate that waits when the lease changes |
//! | `candidacy` | an elector at work, for whoever waits for its outcome |
//!
//! Time is this machine's monotonic clock. What a lease says of times is its holder's, and is compared with nothing but what the
//! lease said before: clocks that disagree do no harm, as long as they run at about the same rate.

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
pub use elector::{Elector, Loss, Lost};
pub use identity::hostname;

use crate::fence::Fence;
use supercargo_config::LeaderElectionConfig;

/// How long after its end a lease that we hold may stay unrenewed before we call ourselves unhealthy; kube-scheduler's watchdog.
const TOLERANCE: Duration = Duration::from_secs(20);
/// Waits between looks at the lease are up to so many times longer than the retry period; the same as client-go's jitter factor.
const JITTER: f64 = 1.2;

/// Who leads, as far as this candidate knows.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// The name of the lease, which is the election's name in metrics.
    pub lease: Arc<str>,
    /// What this candidate calls itself in the lease.
    pub identity: Arc<str>,
    /// Who holds the lease; `None` when nobody does, or it has not been read.
    pub holder: Option<Arc<str>>,
    /// Whether this candidate leads.
    pub is_leader: bool,
    /// When this candidate last renewed the lease.
    pub last_renewal: Option<Instant>,
    /// How long the lease lasts.
    pub lease_duration: Duration,
}

/// The lease is ours, has not been renewed for too long, and still this process lives.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("failed election to renew leadership on lease {lease}")]
pub struct RenewalOverdue {
    /// The name of the lease.
    pub lease: Arc<str>,
}

impl Leadership {
    /// The check `leaderElection` of health endpoints, same as client-go's `HealthzAdaptor` in kube-scheduler: it fails only
    /// for a leader that has not renewed its lease by 20 s after the lease's end. A candidate that waits is well.
    pub fn check(&self, now: Instant) -> Result<(), RenewalOverdue> {
        let limit = self.lease_duration + TOLERANCE;
        let is_overdue = |last: Instant| now.saturating_duration_since(last) > limit;
        if self.is_leader && self.last_renewal.is_some_and(is_overdue) {
            return Err(RenewalOverdue { lease: Arc::clone(&self.lease) });
        }
        Ok(())
    }
}

/// How often, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl Timing {
    pub(crate) fn of(config: &LeaderElectionConfig) -> Self {
        let LeaderElectionConfig { lease_duration, renew_deadline, retry_period, .. } = *config;
        Self { lease_duration, renew_deadline, retry_period }
    }

    /// How long after the last renewal was sent we still lead: as client-go's tries go, the first a retry period after the
    /// renewal and the last a renew deadline after that. But never longer than others wait.
    fn hold(&self) -> Duration {
        self.lease_duration.min(self.retry_period + self.renew_deadline)
    }

    /// How long one request may take, as in kube-scheduler.
    fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    /// The lease's duration as the lease says it: in whole seconds, and rather longer than shorter.
    fn lease_seconds(&self) -> i64 {
        let seconds = self.lease_duration.as_nanos().div_ceil(1_000_000_000).max(1);
        i64::try_from(seconds).unwrap_or(i64::MAX)
    }
}
