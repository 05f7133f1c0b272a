//! What a cluster has beside an API server and a scheduler, simulated inside the server, as far as a scheduler's input depends
//! on it. No fault that was ordered hits it, since it sends no requests.
//!
//! Kubelets ([`Options::kubelets`]) do to pods and nodes what kubelets do, and the node lifecycle controller and the pod
//! garbage collector:
//! * A pod with a node that is there runs after [`Options::start_delay`], unless it does not fit (amounts, ports, node
//!   affinity, taints): then it fails, with upstream's reason and message. Not simulated: pulling of images, volumes, probes
//!   (containers are ready at once), hooks, events, eviction under pressure, init containers that take time.
//! * Annotations say what becomes of it ([`SIMULATE`]: `run`, `complete`, `fail`, `crash-loop`; [`SIMULATE_AFTER`];
//!   [`SIMULATE_EXIT_CODE`]). The pods of jobs complete after [`Options::run_time`] unless they say otherwise.
//! * A pod that is deleted ends after [`Options::stop_delay`], or its grace period if that is shorter. The pods of a node that
//!   is gone are deleted after 40 seconds.
//! * A pod that is resized has its new amounts at once.
//! * A node gets a status, addresses, a range for its pods, and a lease that is renewed every [`Options::heartbeat_period`]. One
//!   that says no capacity gets some. It is ready unless the annotation [`SIMULATE`] says `not-ready`; the taints that follow
//!   from conditions and from `spec.unschedulable` come and go. Not simulated: periodic writes of the node's status,
//!   eviction of pods by taints.
//!
//! Controllers of workloads ([`Options::workloads`]) make pods, and write statuses that `kubectl rollout status` and
//! `kubectl wait` look at. They control what they made; they adopt nothing.
//! * Deployments: one replica set for each template, rolling updates within `maxSurge` and `maxUnavailable`, `Recreate`, pausing,
//!   revisions to go back to. Not simulated: scaling in proportion during a rollout, progress deadlines.
//! * Replica sets and replication controllers. Not simulated: pod deletion cost.
//! * Stateful sets, in order or in parallel, with their claims. Not simulated: controller revisions (a pod is always made of the
//!   newest template), claim retention.
//! * Daemon sets, whose pods the scheduler binds. Not simulated: `maxSurge`, controller revisions.
//! * Jobs, indexed or not, suspended or not. Not simulated: back-off between attempts, deadlines, time to live, limits per
//!   index, failure and success policies.
//! * Disruption budgets: their status. Not simulated: cron jobs, autoscalers, endpoints.

mod affinity;
mod conditions;
mod feed;
mod kubelets;
mod objects;
#[cfg(test)]
mod tests;
mod timers;
mod workloads;

use std::time::Duration;

use tokio::task::JoinSet;

use crate::server::ApiServer;
use kubelets::Kubelets;
use kubelets::heartbeat::Heartbeats;
use workloads::Workloads;

pub use kubelets::{SIMULATE, SIMULATE_AFTER, SIMULATE_EXIT_CODE};

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether pods run and nodes live.
    pub kubelets: bool,
    /// Whether workloads have pods: deployments, replica sets, stateful sets, daemon sets, jobs.
    pub workloads: bool,
    /// How long it takes until a bound pod runs.
    pub start_delay: Duration,
    /// How long it takes until a pod that is deleted has ended.
    pub stop_delay: Duration,
    /// How long pods run that complete, fail or crash and do not say after how long.
    pub run_time: Duration,
    /// How often nodes renew their leases; nodes have none if it is zero.
    pub heartbeat_period: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kubelets: true,
            workloads: true,
            start_delay: Duration::from_millis(200),
            stop_delay: Duration::from_millis(100),
            run_time: Duration::from_secs(5),
            heartbeat_period: Duration::from_secs(10),
        }
    }
}

/// A simulation at work. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the simulation ends when this is dropped"]
pub struct Simulation {
    _tasks: JoinSet<()>,
}

impl ApiServer {
    /// Begins to simulate. Must be called within a tokio runtime. Delays are by its clock, times in objects by the server's.
    pub fn simulate(&self, options: &Options) -> Simulation {
        let mut tasks = JoinSet::new();
        if options.kubelets {
            if let Some(kubelets) = Kubelets::new(&self.shared, options) {
                tasks.spawn(kubelets.run());
            }
            let period = options.heartbeat_period;
            if let Some(heartbeats) = Heartbeats::new(&self.shared, period).filter(|_| !period.is_zero()) {
                tasks.spawn(heartbeats.run());
            }
        }
        if let Some(workloads) = Workloads::new(&self.shared).filter(|_| options.workloads) {
            tasks.spawn(workloads.run());
        }
        Simulation { _tasks: tasks }
    }
}
