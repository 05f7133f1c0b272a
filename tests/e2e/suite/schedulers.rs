//! The tested schedulers, as a Deployment or as processes: how they are replaced and killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::{Cluster, Supercargo, eventually, name_of};

/// The namespace and name of the manifests.
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/supercargo-system/deployments/supercargo";
const PODS: &str =
    "/api/v1/namespaces/supercargo-system/pods?labelSelector=app.kubernetes.io%2Fname%3Dsupercargo";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/supercargo";

/// The time limit for a rollout of the Deployment, or the end of a process.
const PATIENCE: Duration = Duration::from_mins(3);

pub(super) enum Schedulers {
    /// A Deployment in the cluster.
    Installed(Mutex<()>),
    /// Processes of the suite; the first one leads.
    Started { kubeconfig: PathBuf, running: Mutex<Vec<Supercargo>> },
}

impl Schedulers {
    /// Uses the Deployment, if it exists.
    pub(super) fn installed(cluster: &Cluster) -> Option<Self> {
        cluster.find(DEPLOYMENT).map(|_| Self::Installed(Mutex::default()))
    }

    /// Starts a leader and a standby.
    pub(super) fn start(kubeconfig: &Path) -> Self {
        let leader = candidate(kubeconfig);
        await_lead(&leader);
        let running = Mutex::new(vec![leader, ready(kubeconfig)]);
        Self::Started { kubeconfig: kubeconfig.to_owned(), running }
    }

    /// Replaces each scheduler, as an upgrade does: gracefully, and the leader last.
    pub(super) fn upgrade(&self, cluster: &Cluster) {
        match self {
            Self::Installed(turn) => {
                let _turn = turn.lock();
                let now = Timestamp::now().to_string();
                let annotations = json!({ "supercargo.dev/restarted-at": now });
                cluster.patch(
                    DEPLOYMENT,
                    &json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } }),
                );
                await_rollout(cluster);
            }
            Self::Started { kubeconfig, running } => {
                let mut running = running.lock();
                // Like a Deployment: a new process is ready before an old one ends. The leader
                // comes last, so that its successor is new.
                for old in running.split_off(1) {
                    running.push(ready(kubeconfig));
                    old.stop();
                }
                let leader = running.remove(0);
                leader.stop();
                await_lead(&running[0]);
                running.push(ready(kubeconfig));
            }
        }
    }

    /// Kills the leader. Another one takes over.
    pub(super) fn kill_leader(&self, cluster: &Cluster) {
        match self {
            Self::Installed(turn) => {
                let _turn = turn.lock();
                cluster.delete_pod("supercargo-system", &leader(cluster));
                await_rollout(cluster);
            }
            Self::Started { kubeconfig, running } => {
                let mut running = running.lock();
                running.remove(0).kill();
                await_lead(&running[0]);
                running.push(ready(kubeconfig));
            }
        }
    }

    /// The last log lines of the suite's processes.
    pub(super) fn log(&self) -> String {
        match self {
            Self::Installed(_) => String::new(),
            Self::Started { running, .. } => {
                running.lock().iter().map(Supercargo::log_tail).collect::<Vec<_>>().join("\n")
            }
        }
    }
}

/// Starts a process with leader election.
fn candidate(kubeconfig: &Path) -> Supercargo {
    Supercargo::start(kubeconfig, None, &["--leader-elect=true"])
}

/// Starts a process and waits until its informers have synced.
fn ready(kubeconfig: &Path) -> Supercargo {
    let candidate = candidate(kubeconfig);
    candidate.wait_until_synced();
    candidate
}

/// Waits until it leads. The lease of a killed leader must expire first.
fn await_lead(candidate: &Supercargo) {
    candidate
        .eventually("it leads", PATIENCE, || candidate.log().contains("scheduling begins").then_some(()));
}

/// The pod that holds the lease, or any pod without a lease.
fn leader(cluster: &Cluster) -> String {
    let pods: Vec<String> = cluster.list(PODS).iter().map(|pod| name_of(pod).to_owned()).collect();
    let lease = cluster.find(LEASE).unwrap_or_default();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    let leads = |name: &&String| holder.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('_'));
    pods.iter().find(leads).or(pods.first()).cloned().expect("the Deployment has pods")
}

/// Waits until the Deployment has all of its pods from its newest template.
fn await_rollout(cluster: &Cluster) {
    let deployment = || cluster.get(DEPLOYMENT);
    eventually(
        "supercargo's Deployment has its pods",
        PATIENCE,
        || {
            let deployment = deployment();
            let (wanted, status) = (&deployment["spec"]["replicas"], &deployment["status"]);
            let is_seen = status["observedGeneration"] == deployment["metadata"]["generation"];
            let counts = ["replicas", "updatedReplicas", "availableReplicas"];
            let all: fn(&Value, &Value, &str) -> bool = |status, wanted, count| status[count] == *wanted;
            (is_seen && counts.iter().all(|count| all(status, wanted, count))).then_some(())
        },
        || deployment()["status"].to_string(),
    );
}
