//! Simulated kubelets for nodes of the suite: pods run, complete and terminate, and nodes renew
//! their leases, until a kubelet is stopped like a machine without power.
//!
//! They admit pods by CPU like real kubelets: a pod that does not fit fails with `OutOfcpu`, and
//! its controller replaces it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{interval, sleep};

use crate::support::{Cluster, amount_of, send};

/// The termination time of a pod, so that tests can observe it.
const STOPPING: Duration = Duration::from_secs(1);
/// The run time of job pods.
const RUNNING: Duration = Duration::from_secs(1);
/// The interval of lease renewals. The node lifecycle controller waits about ten times as long.
const HEARTBEAT: Duration = Duration::from_secs(4);
/// The number of attempts of a request that fails for another reason than a server's answer.
const ATTEMPTS: u32 = 10;

type NodeName = String;
type Uid = String;

/// All simulated kubelets.
#[derive(Clone)]
pub(super) struct Kubelets(Arc<Shared>);

struct Shared {
    client: Client,
    machines: Mutex<Machines>,
}

#[derive(Default)]
struct Machines {
    nodes: BTreeMap<NodeName, Node>,
    pods: BTreeMap<Uid, OnNode>,
}

struct Node {
    /// In thousandths.
    cpu: u64,
    runs: bool,
}

/// A pod on a simulated node.
struct OnNode {
    pod: Value,
    /// The phase that it has reached or is about to reach.
    begun: Stage,
    refused: bool,
}

/// The phases of a pod on its node, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Bound,
    Started,
    Completed,
    Gone,
}

/// The next action for a pod.
#[derive(Debug, PartialEq)]
struct Work {
    pod: Value,
    action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Run,
    Refuse,
    Complete,
    End,
}

impl Kubelets {
    /// Starts to watch the cluster's pods.
    pub(super) fn start(cluster: &Cluster) -> Self {
        let kubelets =
            Self(Arc::new(Shared { client: cluster.client().clone(), machines: Mutex::default() }));
        cluster.runtime().spawn(kubelets.clone().follow());
        cluster.runtime().spawn(kubelets.clone().live());
        kubelets
    }

    /// Adds a kubelet for a node that is about to be created.
    pub(super) fn add(&self, name: &str, cpu: u64) {
        self.0.machines.lock().nodes.insert(name.to_owned(), Node { cpu, runs: true });
    }

    /// Removes the kubelet of a deleted node.
    pub(super) fn remove(&self, name: &str) {
        let mut machines = self.0.machines.lock();
        machines.nodes.remove(name);
        machines.pods.retain(|_, on| on.node() != name);
    }

    /// Stops a kubelet, as if its machine lost power.
    pub(super) fn stop(&self, name: &str) {
        if let Some(node) = self.0.machines.lock().nodes.get_mut(name) {
            node.runs = false;
        }
    }

    /// The number of pods that these kubelets have rejected because they did not fit.
    pub(super) fn refusals(&self, nodes: &[String]) -> usize {
        let machines = self.0.machines.lock();
        machines.pods.values().filter(|on| on.refused && nodes.iter().any(|name| name == on.node())).count()
    }

    async fn follow(self) {
        let pods = watcher(Api::<Pod>::all(self.0.client.clone()), watcher::Config::default());
        let mut events = pin!(pods.default_backoff());
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(pod)) => {
                    listed.insert(pod.metadata.uid.clone().unwrap_or_default());
                    self.learn(&pod);
                }
                Ok(watcher::Event::InitDone) => {
                    self.0.machines.lock().pods.retain(|uid, _| listed.contains(uid));
                }
                Ok(watcher::Event::Apply(pod)) => self.learn(&pod),
                Ok(watcher::Event::Delete(pod)) => {
                    let uid = pod.metadata.uid.unwrap_or_default();
                    self.0.machines.lock().pods.remove(&uid);
                }
                // The watch is retried after a while.
                Err(error) => eprintln!("kubelets: {error}"),
            }
        }
    }

    fn learn(&self, pod: &Pod) {
        let pod = serde_json::to_value(pod).unwrap();
        let work = self.0.machines.lock().learn(pod);
        if let Some(work) = work {
            let client = self.0.client.clone();
            tokio::spawn(async move { work.carry_out(&client).await });
        }
    }

    /// Renews the leases of nodes with running kubelets.
    async fn live(self) {
        let mut beat = interval(HEARTBEAT);
        loop {
            beat.tick().await;
            for name in self.running() {
                let client = self.0.client.clone();
                tokio::spawn(async move { renew(&client, &name).await });
            }
        }
    }

    fn running(&self) -> Vec<NodeName> {
        let machines = self.0.machines.lock();
        machines.nodes.iter().filter(|(_, node)| node.runs).map(|(name, _)| name.clone()).collect()
    }
}

impl Machines {
    /// Processes a pod event and returns the next actions.
    fn learn(&mut self, pod: Value) -> Option<Work> {
        let uid = pod["metadata"]["uid"].as_str()?.to_owned();
        let runs = self.nodes.get(pod["spec"]["nodeName"].as_str()?)?.runs;
        match self.pods.get_mut(&uid) {
            Some(known) => known.pod = pod,
            None => drop(self.pods.insert(uid.clone(), OnNode { pod, begun: Stage::Bound, refused: false })),
        }
        if runs { self.next(&uid) } else { None }
    }

    fn next(&mut self, uid: &str) -> Option<Work> {
        let on = self.pods.get(uid)?;
        let wanted = on.wanted();
        if wanted <= on.begun {
            return None;
        }
        let action = match wanted {
            Stage::Bound => return None,
            Stage::Started if self.has_room(on) => Action::Run,
            Stage::Started => Action::Refuse,
            Stage::Completed => Action::Complete,
            Stage::Gone => Action::End,
        };
        let on = self.pods.get_mut(uid)?;
        on.begun = wanted;
        on.refused |= action == Action::Refuse;
        Some(Work { pod: on.pod.clone(), action })
    }

    /// Whether the pod fits beside the admitted pods of its node.
    fn has_room(&self, new: &OnNode) -> bool {
        let holds = |on: &&OnNode| on.node() == new.node() && on.begun != Stage::Bound && !on.is_over();
        let taken: u64 = self.pods.values().filter(holds).map(OnNode::cpu).sum();
        self.nodes.get(new.node()).is_some_and(|node| taken + new.cpu() <= node.cpu)
    }
}

impl OnNode {
    fn node(&self) -> &str {
        self.pod["spec"]["nodeName"].as_str().unwrap_or_default()
    }

    fn cpu(&self) -> u64 {
        let containers = self.pod["spec"]["containers"].as_array().into_iter().flatten();
        containers.map(|container| amount_of(&container["resources"]["requests"], "cpu")).sum()
    }

    fn is_over(&self) -> bool {
        self.refused || matches!(self.pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    }

    fn is_of_a_job(&self) -> bool {
        let owners = self.pod["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| owner["kind"] == "Job")
    }

    /// The target phase of a pod.
    fn wanted(&self) -> Stage {
        match self.pod["status"]["phase"].as_str() {
            _ if !self.pod["metadata"]["deletionTimestamp"].is_null() => Stage::Gone,
            Some("Pending") | None => Stage::Started,
            Some("Running") if self.is_of_a_job() => Stage::Completed,
            _ => Stage::Bound,
        }
    }
}

impl Work {
    async fn carry_out(self, client: &Client) {
        let meta = &self.pod["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let path = format!("/api/v1/namespaces/{}/pods/{}", text(&meta["namespace"]), text(&meta["name"]));
        match self.action {
            Action::Run => patch(client, &path, self.status("Running", true)).await,
            Action::Complete => {
                sleep(RUNNING).await;
                patch(client, &path, self.status("Succeeded", false)).await;
            }
            Action::Refuse => {
                let status = json!({
                    "phase": "Failed",
                    "reason": "OutOfcpu",
                    "message": "Pod was rejected: Node didn't have enough resource: cpu",
                });
                patch(client, &path, json!({ "metadata": { "uid": meta["uid"] }, "status": status })).await;
            }
            Action::End => {
                sleep(STOPPING).await;
                let now = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": meta["uid"] } });
                insist(client, "DELETE", &path, "application/json", &now).await;
            }
        }
    }

    /// A status patch for this phase, with running or terminated containers.
    fn status(&self, phase: &str, ready: bool) -> Value {
        let now = Timestamp::now().to_string();
        let state = if ready {
            json!({ "running": { "startedAt": now } })
        } else {
            json!({ "terminated": { "exitCode": 0, "reason": "Completed", "finishedAt": now } })
        };
        let of = |container: &Value| {
            json!({
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": ready,
                "started": ready,
                "restartCount": 0,
                "state": state,
            })
        };
        let containers = self.pod["spec"]["containers"].as_array().into_iter().flatten();
        let containers: Vec<Value> = containers.map(of).collect();
        let is = |kind: &str, holds: bool| json!({ "type": kind, "status": if holds { "True" } else { "False" }, "lastTransitionTime": now });
        let conditions = [is("Initialized", true), is("ContainersReady", ready), is("Ready", ready)];
        json!({
            "metadata": { "uid": self.pod["metadata"]["uid"] },
            "status": {
                "phase": phase,
                "startTime": now,
                "conditions": conditions,
                "containerStatuses": containers,
            },
        })
    }
}

/// Patches a pod's status with a strategic merge.
async fn patch(client: &Client, path: &str, change: Value) {
    let path = format!("{path}/status");
    insist(client, "PATCH", &path, "application/strategic-merge-patch+json", &change).await;
}

/// Sends a request until the server has accepted it or it is obsolete.
async fn insist(client: &Client, method: &str, path: &str, content_type: &str, body: &Value) {
    for attempt in 1..=ATTEMPTS {
        match send(client, method, path, content_type, Some(body)).await {
            Ok(_) | Err((404 | 409, _)) => return,
            Err((code, message)) if attempt == ATTEMPTS => {
                eprintln!("kubelets: {method} {path}: {code} {message}");
            }
            Err(_) => sleep(Duration::from_millis(100) * attempt).await,
        }
    }
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// The path of a node's lease.
pub(super) fn lease(node: &str) -> String {
    format!("{LEASES}/{node}")
}

async fn renew(client: &Client, node: &str) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": node },
        "spec": { "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now },
    });
    let (path, merge) = (self::lease(node), "application/merge-patch+json");
    if let Err((404, _)) = send(client, "PATCH", &path, merge, Some(&lease)).await {
        insist(client, "POST", LEASES, "application/json", &lease).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(name: &str, cpu: &str, phase: &str) -> Value {
        json!({
            "metadata": { "name": name, "namespace": "default", "uid": name },
            "spec": {
                "nodeName": "n",
                "containers": [{ "name": "main", "resources": { "requests": { "cpu": cpu } } }],
            },
            "status": { "phase": phase },
        })
    }

    fn machines(runs: bool) -> Machines {
        let mut machines = Machines::default();
        machines.nodes.insert("n".to_owned(), Node { cpu: 1000, runs });
        machines
    }

    fn action(machines: &mut Machines, pod: Value) -> Option<Action> {
        machines.learn(pod).map(|work| work.action)
    }

    #[test]
    fn simulated_node_runs_what_fits_and_rejects_the_rest() {
        let mut machines = machines(true);
        assert_eq!(action(&mut machines, bound("a", "600m", "Pending")), Some(Action::Run));
        assert_eq!(action(&mut machines, bound("a", "600m", "Pending")), None, "it is about to run");
        assert_eq!(action(&mut machines, bound("b", "600m", "Pending")), Some(Action::Refuse));
        assert_eq!(action(&mut machines, bound("c", "400m", "Pending")), Some(Action::Run));
        machines.pods.remove("a");
        assert_eq!(action(&mut machines, bound("d", "600m", "Pending")), Some(Action::Run));
    }

    #[test]
    fn simulated_job_pods_complete_and_deleted_pods_end() {
        let mut machines = machines(true);
        let mut pod = bound("a", "1", "Running");
        assert_eq!(action(&mut machines, pod.clone()), None);
        pod["metadata"]["ownerReferences"] = json!([{ "kind": "Job" }]);
        assert_eq!(action(&mut machines, pod.clone()), Some(Action::Complete));
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(action(&mut machines, pod), Some(Action::End));
    }

    #[test]
    fn stopped_kubelet_does_nothing() {
        let mut machines = machines(false);
        assert_eq!(action(&mut machines, bound("a", "1", "Pending")), None);
    }
}
