//! Simulates, inside the server, the cluster components that affect a scheduler's input. The
//! simulation sends no requests, so injected faults do not affect it.
//!
//! Kubelets ([`Options::kubelets`]) act on pods and nodes like kubelets, the node lifecycle
//! controller and the pod garbage collector:
//! * A pod bound to an existing node runs after [`Options::start_delay`]. If it does not fit
//!   (resources, ports, node affinity, taints), it fails with upstream's reason and message. It
//!   does not run before its resource claims have an allocation and are reserved for it. Not
//!   simulated: image pulls, volumes, probes (containers are ready at once), hooks, events,
//!   eviction under pressure, and slow init containers.
//! * Annotations control how a pod behaves ([`SIMULATE`]: `run`, `complete`, `fail`, `crash-loop`;
//!   [`SIMULATE_AFTER`]; [`SIMULATE_EXIT_CODE`]). By default the pods of jobs complete after
//!   [`Options::run_time`].
//! * A deleted pod ends after [`Options::stop_delay`], or its grace period if that is shorter. The
//!   pods of a removed node are deleted after 40 seconds.
//! * A resized pod has its new resources at once.
//! * A node gets a status, addresses, a pod range, and a lease that is renewed every
//!   [`Options::heartbeat_period`]. A node without capacity gets a default one. It is ready unless
//!   the annotation [`SIMULATE`] is `not-ready`; the taints for conditions and for
//!   `spec.unschedulable` follow. Not simulated: periodic updates of the node's status, and
//!   taint-based eviction.
//!
//! Workload controllers ([`Options::workloads`]) create pods, and write the statuses that `kubectl
//! rollout status` and `kubectl wait` read. They control only objects that they created, and adopt
//! none.
//! * Deployments: one replica set per template, rolling updates within `maxSurge` and
//!   `maxUnavailable`, `Recreate`, pausing, and revisions for rollback. Not simulated: proportional
//!   scaling during a rollout, progress deadlines.
//! * Replica sets and replication controllers. Not simulated: pod deletion cost.
//! * Stateful sets, ordered or parallel, with their claims. Not simulated: controller revisions
//!   (pods always use the newest template), claim retention.
//! * Daemon sets, whose pods go through the scheduler. Not simulated: `maxSurge`, controller
//!   revisions.
//! * Jobs, indexed or not, suspended or not. Not simulated: back-off between attempts, deadlines,
//!   time to live, per-index limits, failure and success policies.
//! * The status of disruption budgets. Not simulated: cron jobs, autoscalers, endpoints.
//!
//! The controller of resource claims ([`Options::claims`]) creates claims from templates, reserves
//! claims for pods that were created with a node, and frees and deletes claims when their pods are
//! done. Not simulated: claims of pod groups, events.
//!
//! A driver of devices ([`Options::devices`]) publishes a pool for each node with the annotation
//! [`SIMULATE_DEVICES`], in slices of eight devices, and a DeviceClass with its name,
//! [`DEVICE_DRIVER`]. It withdraws the devices that [`SIMULATE_LOST_DEVICES`] lists, and all of
//! them without the first annotation. With [`SIMULATE_SPECIAL_DEVICES`], a node has another pool:
//! parts of a chip, a shared device, a tainted one, and one with a binding condition. The driver
//! reports the condition when the device is allocated. Not simulated: preparing devices on a node;
//! eviction by taints of devices.

mod affinity;
mod claims;
mod conditions;
mod driver;
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
use claims::Claims;
use driver::Driver;
use kubelets::Kubelets;
use kubelets::heartbeat::Heartbeats;
use workloads::Workloads;

pub use driver::{DEVICE_DRIVER, SIMULATE_DEVICES, SIMULATE_LOST_DEVICES, SIMULATE_SPECIAL_DEVICES};
pub use kubelets::{SIMULATE, SIMULATE_AFTER, SIMULATE_EXIT_CODE};

/// The parts to simulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to simulate kubelets, so that pods run and nodes stay alive.
    pub kubelets: bool,
    /// Whether to simulate the controllers of deployments, replica sets, stateful sets, daemon sets
    /// and jobs.
    pub workloads: bool,
    /// Whether to simulate the controller of resource claims.
    pub claims: bool,
    /// Whether to simulate a driver that publishes the devices of nodes.
    pub devices: bool,
    /// The time from binding to running of a pod.
    pub start_delay: Duration,
    /// The time from deletion to the end of a pod.
    pub stop_delay: Duration,
    /// How long pods that complete, fail or crash run by default.
    pub run_time: Duration,
    /// The renewal period of node leases; zero disables the leases.
    pub heartbeat_period: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kubelets: true,
            workloads: true,
            claims: true,
            devices: true,
            start_delay: Duration::from_millis(200),
            stop_delay: Duration::from_millis(100),
            run_time: Duration::from_secs(5),
            heartbeat_period: Duration::from_secs(10),
        }
    }
}

/// A running simulation. Dropping it ends the simulation.
#[derive(Debug)]
#[must_use = "the simulation ends when this is dropped"]
pub struct Simulation {
    _tasks: JoinSet<()>,
}

impl ApiServer {
    /// Starts a simulation. Must be called within a tokio runtime, whose clock measures the delays.
    /// Timestamps in objects come from the server's clock.
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
        if let Some(claims) = Claims::new(&self.shared).filter(|_| options.claims) {
            tasks.spawn(claims.run());
        }
        if let Some(driver) = Driver::new(&self.shared).filter(|_| options.devices) {
            tasks.spawn(driver.run());
        }
        Simulation { _tasks: tasks }
    }
}
