//! The namespace and nodes of a test.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde_json::{Value, json};

use super::kubelets::lease;
use super::site::Site;
use crate::support::{Cluster, amount_of, eventually, name_of, node_of, say};

/// The time limit for one condition. In a cluster with default settings, a stopped machine is
/// noticed after a minute, and pods of a deleted node are collected after another.
pub(super) const PATIENCE: Duration = Duration::from_mins(3);
/// The time limit for the deletion of a namespace with its content.
const TIDYING: Duration = Duration::from_mins(1);
/// The label and taint key of a scenario's nodes; the value is the namespace. The taint repels
/// other pods.
pub(super) const LABEL: &str = "supercargo.dev/e2e";

/// Held while a scenario uses the schedulers that all scenarios share.
static SCHEDULERS: RwLock<()> = RwLock::new(());

/// A scenario's hold on the shared schedulers.
enum Hold {
    /// They stay as they are.
    Shared(#[expect(dead_code, reason = "held until it is dropped")] RwLockReadGuard<'static, ()>),
    /// The scenario may stop them. A killed leader loses the events that it has not written yet.
    Exclusive(#[expect(dead_code, reason = "held until it is dropped")] RwLockWriteGuard<'static, ()>),
}

/// A test's part of the cluster. It is deleted with this value.
pub(super) struct Scenario {
    pub(super) site: &'static Site,
    pub(super) namespace: String,
    name: &'static str,
    began: Instant,
    nodes: Mutex<Vec<String>>,
    /// The paths of cluster-scoped objects.
    globals: Mutex<Vec<String>>,
    _schedulers: Hold,
}

impl Scenario {
    /// Starts a scenario, or returns `None` if no cluster is available.
    pub(super) fn begin(name: &'static str) -> Option<Self> {
        let site = Site::shared_or_skip()?;
        // `read` would wait behind a scenario that waits to be alone.
        Some(Self::on(site, name, Hold::Shared(SCHEDULERS.read_recursive())))
    }

    /// Starts a scenario that may stop the schedulers, while no other scenario runs.
    pub(super) fn begin_alone(name: &'static str) -> Option<Self> {
        let site = Site::shared_or_skip()?;
        Some(Self::on(site, name, Hold::Exclusive(SCHEDULERS.write())))
    }

    fn on(site: &'static Site, name: &'static str, schedulers: Hold) -> Self {
        // Leftovers of an earlier run that was killed do not interfere.
        let namespace = format!("e2e-{name}-{:x}", Timestamp::now().as_millisecond() & 0xff_ffff);
        site.cluster.namespace(&namespace);
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        let found = || site.cluster.find(&account);
        eventually("the namespace has an account for its pods", PATIENCE, found, String::new);
        let (nodes, globals) = (Mutex::default(), Mutex::default());
        Self { site, namespace, name, began: Instant::now(), nodes, globals, _schedulers: schedulers }
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.site.cluster
    }

    pub(super) fn say(&self, text: &str) {
        say(&format!("suite, {}", self.name), self.began, text);
    }

    /// Waits until the probe returns a value. A failure shows the pods.
    pub(super) fn eventually<T>(&self, what: &str, probe: impl FnMut() -> Option<T>) -> T {
        eventually(what, PATIENCE, probe, || self.state())
    }

    /// Adds ready nodes with this CPU in thousandths.
    pub(super) fn nodes(&self, count: usize, cpu: u64) -> Vec<String> {
        let first = self.nodes.lock().len();
        let names: Vec<_> =
            (first..first + count).map(|index| format!("{}-{index}", self.namespace)).collect();
        for name in &names {
            self.site.kubelets.add(name, cpu);
            self.nodes.lock().push(name.clone());
            self.cluster().create(&self.node(name, cpu));
        }
        // The node lifecycle controller removes the not-ready taint of a new node.
        let path = format!("/api/v1/nodes?labelSelector={LABEL}%3D{}", self.namespace);
        self.eventually("the nodes have no taint but their own", || {
            let nodes = self.cluster().list(&path);
            let clean = |node: &&Value| node["spec"]["taints"].as_array().is_some_and(|all| all.len() == 1);
            let new = |node: &&Value| names.iter().any(|name| name == name_of(node));
            (nodes.iter().filter(new).filter(clean).count() == count).then_some(())
        });
        names
    }

    fn node(&self, name: &str, cpu: u64) -> Value {
        let amounts = json!({ "cpu": format!("{cpu}m"), "memory": "16Gi", "pods": "110" });
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": { LABEL: self.namespace, "kubernetes.io/hostname": name },
            },
            "spec": { "taints": [{ "key": LABEL, "value": self.namespace, "effect": "NoSchedule" }] },
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
            },
        })
    }

    /// Makes a node's kubelet report a condition.
    pub(super) fn report(&self, node: &str, condition: &str, status: bool) {
        let status = if status { "True" } else { "False" };
        let mut conditions = vec![json!({ "type": condition, "status": status, "reason": "Reported" })];
        if condition != "Ready" {
            conditions.push(json!({ "type": "Ready", "status": "True", "reason": "KubeletReady" }));
        }
        let change = json!({ "status": { "conditions": conditions } });
        self.cluster().patch(&format!("/api/v1/nodes/{node}/status"), &change);
    }

    /// The keys of a node's taints, without the scenario's own.
    pub(super) fn taints(&self, node: &str) -> Vec<String> {
        let node = self.cluster().get(&format!("/api/v1/nodes/{node}"));
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let keys = taints
            .filter_map(|taint| Some(format!("{}:{}", taint["key"].as_str()?, taint["effect"].as_str()?)));
        keys.filter(|key| !key.starts_with(LABEL)).collect()
    }

    /// Deletes a node.
    pub(super) fn delete_node(&self, node: &str) {
        self.delete(&format!("/api/v1/nodes/{node}"));
        self.site.kubelets.remove(node);
    }

    /// Creates a cluster-scoped object, which is deleted with the scenario.
    pub(super) fn create_global(&self, collection: &str, object: &Value) {
        self.globals.lock().push(format!("{collection}/{}", name_of(object)));
        self.cluster().create(object);
    }

    /// A pod template for the tested scheduler on the scenario's nodes.
    pub(super) fn template(&self, app: &str, cpu: u64) -> Value {
        json!({
            "metadata": { "labels": { "app": app } },
            "spec": {
                "schedulerName": "supercargo",
                "nodeSelector": { LABEL: self.namespace },
                "tolerations": [{ "key": LABEL, "value": self.namespace, "effect": "NoSchedule" }],
                "containers": [{
                    "name": "main",
                    "image": "none",
                    "resources": { "requests": { "cpu": format!("{cpu}m") } },
                }],
            },
        })
    }

    /// Creates a workload: a Deployment, StatefulSet, DaemonSet or ReplicaSet, with further fields
    /// of its spec.
    pub(super) fn workload(&self, kind: &str, name: &str, template: &Value, more: &Value) -> String {
        let mut spec = json!({ "selector": { "matchLabels": { "app": name } }, "template": template });
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        self.create(
            &json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name }, "spec": spec }),
        );
        format!("/apis/apps/v1/namespaces/{}/{}s/{name}", self.namespace, kind.to_lowercase())
    }

    /// Creates a pod from a template.
    pub(super) fn pod(&self, name: &str, template: &Value) {
        let mut pod = template.clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(name);
        self.create(&pod);
    }

    /// Creates an object in the scenario's namespace.
    pub(super) fn create(&self, object: &Value) {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(self.namespace);
        self.cluster().create(&object);
    }

    pub(super) fn scale(&self, workload: &str, replicas: usize) {
        self.cluster().patch(workload, &json!({ "spec": { "replicas": replicas } }));
    }

    /// Deletes the object at a path, if it exists.
    pub(super) fn delete(&self, path: &str) {
        match self.cluster().request("DELETE", path, None) {
            Ok(_) | Err((404, _)) => {}
            Err(refusal) => panic!("DELETE {path}: {refusal:?}"),
        }
    }

    pub(super) fn pods(&self) -> Vec<Value> {
        self.cluster().pods(&self.namespace)
    }

    /// The pods of a workload that are not terminating.
    pub(super) fn pods_of(&self, app: &str) -> Vec<Value> {
        let stays = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_null();
        let pods = self.pods().into_iter();
        pods.filter(|pod| pod["metadata"]["labels"]["app"] == app && stays(pod)).collect()
    }

    /// Waits until a workload has exactly this many pods and all run.
    pub(super) fn await_running(&self, app: &str, count: usize) -> Vec<Value> {
        self.eventually(&format!("{count} pods of {app} run"), || {
            let pods: Vec<_> = self.pods_of(app).into_iter().filter(|pod| phase(pod) != "Failed").collect();
            (pods.len() == count && pods.iter().all(|pod| phase(pod) == "Running")).then_some(pods)
        })
    }

    /// Waits until a pod is bound and returns its node.
    pub(super) fn await_bound(&self, pod: &str) -> String {
        self.eventually(&format!("pod {pod} is bound"), || {
            let path = format!("/api/v1/namespaces/{}/pods/{pod}", self.namespace);
            Some(node_of(&self.cluster().find(&path)?)?.to_owned())
        })
    }

    /// Waits for the message that a pod is unschedulable.
    pub(super) fn await_unschedulable(&self, pod: &str) -> String {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}", self.namespace);
        self.eventually(&format!("pod {pod} is unschedulable"), || {
            let pod = self.cluster().find(&path)?;
            let conditions = pod["status"]["conditions"].as_array()?;
            let reported = conditions.iter().find(|condition| condition["reason"] == "Unschedulable")?;
            Some(reported["message"].as_str()?.to_owned())
        })
    }

    /// The scheduler that reports the binding of a pod.
    pub(super) fn scheduled_by(&self, pod: &str) -> String {
        self.eventually(&format!("somebody says that pod {pod} is scheduled"), || {
            let events = self.cluster().events(&self.namespace, pod);
            let event = events.iter().find(|event| event["reason"] == "Scheduled")?;
            Some(event["reportingController"].as_str()?.to_owned())
        })
    }

    /// The number of pods on each node. Asserts that no node's CPU is overcommitted.
    pub(super) fn fill(&self, cpu: u64) -> BTreeMap<String, usize> {
        let (mut counts, mut taken) = (BTreeMap::new(), BTreeMap::<String, u64>::new());
        for pod in self.pods().iter().filter(|pod| !["Succeeded", "Failed"].contains(&phase(pod))) {
            let Some(node) = node_of(pod) else { continue };
            *counts.entry(node.to_owned()).or_default() += 1;
            let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
            *taken.entry(node.to_owned()).or_default() += amount_of(requests, "cpu");
        }
        for (node, taken) in taken {
            assert!(taken <= cpu, "{node} has {cpu}m, and {taken}m are taken\n{}", self.state());
        }
        counts
    }

    fn state(&self) -> String {
        let line = |pod: &Value| {
            let status = &pod["status"];
            let going = if pod["metadata"]["deletionTimestamp"].is_null() { "" } else { ", going" };
            format!(
                "{} on {:?}: {}{going}, nominated {}, {}",
                name_of(pod),
                node_of(pod),
                phase(pod),
                status["nominatedNodeName"],
                status["conditions"]
            )
        };
        let pods: Vec<String> = self.pods().iter().map(line).collect();
        format!("{}: {} pods\n{}\n{}", self.namespace, pods.len(), pods.join("\n"), self.site.logs())
    }
}

impl Drop for Scenario {
    /// Cleans up, also after a failed test.
    fn drop(&mut self) {
        let cluster = self.cluster();
        let _ = cluster.request("DELETE", &format!("/api/v1/namespaces/{}", self.namespace), None);
        // The kubelets must release the pods before their nodes are deleted.
        let began = Instant::now();
        while began.elapsed() < TIDYING && !thread::panicking() && !self.pods().is_empty() {
            thread::sleep(Duration::from_millis(100));
        }
        for node in self.nodes.lock().iter() {
            for path in [format!("/api/v1/nodes/{node}"), lease(node)] {
                let _ = cluster.request("DELETE", &path, None);
            }
            self.site.kubelets.remove(node);
        }
        for path in self.globals.lock().iter() {
            let _ = cluster.request("DELETE", path, None);
        }
        self.say("over");
    }
}

pub(super) fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}
