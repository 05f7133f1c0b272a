//! What users, controllers and nodes do: the changes that schedulers react to.

mod devices;
mod groups;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use supercargo_apiserver::ApiServer;
use supercargo_apiserver::sim::SIMULATE;
use supercargo_framework::testing::giants::{NodeList, PodList};
use tokio::time::sleep;

use crate::api::{self, COMPOSITES, PODS, ask, list, tell};
use crate::extender;
use crate::invariants::InvariantChecker;
use crate::out_of_tree_plugin::LABEL;
use crate::plan::{Plan, exponential};

const NODES: &str = "/api/v1/nodes";
const NAMESPACE: &str = "/api/v1/namespaces/default";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const ZONES: [&str; 3] = ["zone-0", "zone-1", "zone-2"];
/// Classes of volumes that wait for a pod: of the workload, and of the probe at the end.
const DELAYED: &str = "delayed";
const DELAYED_PROBE: &str = "delayed-probe";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
/// The taint of the node for pods at the end of a run.
const PROBE: &str = "example.com/probe";
/// How often volumes are bound that schedulers have chosen.
const VOLUME_PERIOD: Duration = Duration::from_secs(2);
/// The number of kinds of pods.
const KINDS: u64 = 15;
/// The kind of pods that nothing is special about.
const ORDINARY: u64 = 9;
/// The kind that waits for a gate to open.
const GATED: u64 = 2;
/// The first of the kinds that want the same small node: by priority, each preempts those before
/// it.
const CONTENDER: u64 = 12;
/// The number of items in the list of a giant object.
const GIANT: usize = 1_000;
/// What every node has.
const AMOUNTS: [(&str, &str); 3] = [("pods", "20"), ("cpu", "8"), ("memory", "32Gi")];
/// Pods per node at most, so that a run stays small.
const CROWD: u64 = 12;

/// Changes the cluster.
pub struct Workload {
    server: ApiServer,
    checker: Arc<Mutex<InvariantChecker>>,
    random: Rng,
    pause: Duration,
    nodes: u64,
    has_groups: bool,
    has_extended_resources: bool,
    /// The number of objects so far, for names.
    made: u64,
    /// What can be deleted, the oldest first.
    living: VecDeque<String>,
    /// Nodes that have been removed.
    removed: Vec<u64>,
    /// The pod that has what a lonely one waits for.
    lonely: Option<String>,
}

impl Workload {
    /// The cluster in the beginning, and what changes it.
    pub async fn new(server: ApiServer, checker: Arc<Mutex<InvariantChecker>>, plan: &Plan) -> Self {
        let random = Rng::with_seed(plan.seed ^ 0x776f_726b);
        let mut workload = Self {
            server,
            checker,
            random,
            pause: plan.pause,
            nodes: plan.nodes,
            has_groups: plan.has_groups,
            has_extended_resources: plan.has_extended_resources,
            made: 0,
            living: VecDeque::new(),
            removed: Vec::new(),
            lonely: None,
        };
        for (name, value) in [("important", 1000), ("urgent", 100_000)] {
            let class = json!({ "metadata": { "name": name }, "value": value });
            workload.post("/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
        }
        for name in [DELAYED, DELAYED_PROBE] {
            let class = json!({
                "metadata": { "name": name },
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            });
            workload.post("/apis/storage.k8s.io/v1/storageclasses", class).await;
        }
        workload.add_templates().await;
        if plan.has_extended_resources {
            workload.add_class().await;
        }
        for index in 0..plan.nodes {
            workload.add_node(index).await;
        }
        workload
    }

    /// The time until the next change.
    pub fn pause(&mut self) -> Duration {
        exponential(&mut self.random, self.pause)
    }

    /// Binds claims to the volumes that schedulers chose for them, forever, except while it stalls.
    /// In a real cluster the volume controller does this.
    pub async fn bind_volumes(server: ApiServer, stalls: Arc<AtomicBool>) {
        loop {
            sleep(VOLUME_PERIOD).await;
            if stalls.load(Ordering::Relaxed) {
                continue;
            }
            for volume in list(&server, VOLUMES).await {
                let claim = api::text(&volume, "/spec/claimRef/name");
                if claim.is_empty() || api::text(&volume, "/status/phase") == "Bound" {
                    continue;
                }
                let (path, bound) = (format!("{CLAIMS}/{claim}"), json!({ "status": { "phase": "Bound" } }));
                let change = json!({
                    "metadata": { "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
                    "spec": { "volumeName": api::name(&volume) },
                });
                tell(&server, Method::PATCH, &path, Some(&change)).await;
                tell(&server, Method::PATCH, &format!("{path}/status"), Some(&bound)).await;
                let path = format!("{VOLUMES}/{}/status", api::name(&volume));
                tell(&server, Method::PATCH, &path, Some(&bound)).await;
            }
        }
    }

    /// Nodes are as in the beginning, or there might be none for pods that fit.
    pub async fn heal_nodes(&mut self) {
        while !self.removed.is_empty() {
            self.return_node().await;
        }
        for index in 0..self.nodes {
            let mut annotations = self.devices(index);
            annotations[SIMULATE] = Value::Null;
            let change = json!({
                "metadata": { "annotations": annotations },
                "spec": { "unschedulable": null },
            });
            let name = format!("node-{index}");
            let status = tell(&self.server, Method::PATCH, &format!("{NODES}/{name}"), Some(&change)).await;
            // A restored etcd may be older than the node. Pods that get it would be deleted.
            if status == StatusCode::NOT_FOUND {
                self.add_node(index).await;
            }
        }
    }

    /// Creates pods of which all must get a node, although requests are lost: for the end of a run.
    /// Beside them come pods that must say why they wait, and a node that later ones find full.
    pub async fn add_probes(&mut self, count: usize) -> Vec<String> {
        let index = self.probe_node();
        self.add_node(index).await;
        let taint = json!({ "spec": { "taints": [{ "key": PROBE, "effect": "NoSchedule" }] } });
        tell(&self.server, Method::PATCH, &format!("{NODES}/node-{index}"), Some(&taint)).await;
        for _ in 0..2 {
            let name = self.name("filler");
            self.post(PODS, pod(&name, self.on_probe_node("important"), CONTENDER)).await;
        }
        for _ in 0..count {
            let name = self.name("nowhere");
            self.post(PODS, pod(&name, spec(1), 1)).await;
        }
        self.lonely = Some(self.add_lonely().await);
        let claim = self.name("claim");
        // In one zone, all nodes may be full of pods as important. A claim that lost its volume
        // may take one of the same class.
        self.add_claim(&claim, "urgent", (DELAYED_PROBE, &ZONES)).await;
        let mut paths = self.add_pods_that_fit(count).await;
        paths.push(format!("{PODS}/{claim}"));
        paths.push(self.add_device_probe().await);
        paths.extend(self.add_gang_probes().await);
        paths
    }

    /// Creates pods of which all must get a node: for the time after the last fault.
    pub async fn add_late_probes(&mut self, count: usize) -> Vec<String> {
        let contender = self.name("contender");
        self.post(PODS, pod(&contender, self.on_probe_node("urgent"), CONTENDER)).await;
        let mut paths = self.add_pods_that_fit(count).await;
        paths.push(format!("{PODS}/{contender}"));
        paths.push(self.add_lonely().await);
        paths.push(self.add_device_probe().await);
        paths.extend(self.add_extended_probe().await);
        paths.extend(self.add_gang_probes().await);
        paths
    }

    /// Whether it is a lonely pod of the end.
    pub fn is_lonely(path: &str) -> bool {
        path.contains("/lonely-")
    }

    /// Whether it is a pod of the end that fits nowhere.
    pub fn is_nowhere(name: &str) -> bool {
        name.starts_with("nowhere-")
    }

    /// Deletes the pod that a lonely one waits for. Returns pods of groups that must get a node,
    /// since no fault meets them any more.
    pub async fn make_way(&mut self) -> Vec<String> {
        if let Some(path) = self.lonely.take() {
            self.checker.lock().note(format_args!("deleted {path}"));
            tell(&self.server, Method::DELETE, &path, None).await;
        }
        self.add_gang_probes().await
    }

    /// A lonely pod that wants the tainted node.
    async fn add_lonely(&mut self) -> String {
        let name = self.name("lonely");
        let mut lonely = pod(&name, self.on_probe_node("urgent"), 1);
        lonely["metadata"]["labels"][LABEL] = json!("yes");
        self.post(PODS, lonely).await;
        format!("{PODS}/{name}")
    }

    async fn add_pods_that_fit(&mut self, count: usize) -> Vec<String> {
        let mut paths = Vec::new();
        for _ in 0..count {
            let name = self.name("probe");
            self.post(PODS, pod(&name, json!({ "priorityClassName": "urgent" }), 1)).await;
            paths.push(format!("{PODS}/{name}"));
        }
        paths
    }

    /// The number of the tainted node. Extenders accept it.
    fn probe_node(&self) -> u64 {
        if extender::accepts(&format!("node-{}", self.nodes)) { self.nodes } else { self.nodes + 1 }
    }

    /// What is special about pods that want the tainted node.
    fn on_probe_node(&self, priority: &str) -> Value {
        json!({
            "priorityClassName": priority,
            "nodeSelector": { HOSTNAME: format!("node-{}", self.probe_node()) },
            "tolerations": [{ "key": PROBE, "operator": "Exists" }],
        })
    }

    /// Deletes everything but nodes.
    pub async fn clear(&mut self) {
        let paths = [DEPLOYMENTS, JOBS, BUDGETS, PODS, CLAIMS, VOLUMES];
        for path in paths.into_iter().chain(devices::PATHS).chain(groups::PATHS) {
            for object in list(&self.server, path).await {
                let path = format!("{path}/{}", api::name(&object));
                let now = json!({ "gracePeriodSeconds": 0, "propagationPolicy": "Background" });
                tell(&self.server, Method::DELETE, &path, Some(&now)).await;
            }
        }
    }

    /// Changes an object this often, so that a log of changes has nothing else.
    pub async fn fill_logs(&self, times: usize) {
        for time in 0..times {
            let change = json!({ "metadata": { "labels": { "time": time.to_string() } } });
            tell(&self.server, Method::PATCH, NAMESPACE, Some(&change)).await;
        }
    }

    fn is_crowded(&self) -> bool {
        self.living.len() as u64 > self.nodes * CROWD / 4
    }

    /// Changes the cluster.
    pub async fn act(&mut self) {
        if self.is_crowded() {
            self.delete_oldest().await;
        }
        if self.has_groups && self.random.u32(..8) == 0 {
            return self.act_on_groups().await;
        }
        match self.random.u32(..120) {
            0..35 => self.add_pod().await,
            35..50 => self.add_deployment().await,
            50..58 => self.add_job().await,
            58..63 => {
                let name = self.name("claim");
                let zone = ZONES[self.random.usize(..ZONES.len())];
                self.add_claim(&name, "", (DELAYED, &[zone])).await;
            }
            63..66 => self.add_budget().await,
            66..80 => self.delete_oldest().await,
            80..83 => self.open_a_gate().await,
            83 => self.add_hostile().await,
            84 => self.add_giant().await,
            85..90 => {
                self.flip(
                    "/metadata/annotations",
                    json!({ "metadata": { "annotations": { SIMULATE: "not-ready" } } }),
                )
                .await
            }
            90..95 => self.flip("/spec/unschedulable", json!({ "spec": { "unschedulable": true } })).await,
            95..97 => self.remove_node().await,
            97..100 => self.return_node().await,
            _ => self.act_on_devices().await,
        }
    }

    fn name(&mut self, what: &str) -> String {
        self.made += 1;
        format!("{what}-{}", self.made)
    }

    async fn post(&mut self, path: &str, object: Value) {
        let status = tell(&self.server, Method::POST, path, Some(&object)).await;
        self.checker.lock().note(format_args!("created {path}/{} {}", api::name(&object), status.as_u16()));
        assert!(status.is_success() || status.as_u16() == 409, "{path}: {status} for {object}");
    }

    async fn add(&mut self, path: &str, object: Value) {
        self.living.push_back(format!("{path}/{}", api::name(&object)));
        self.post(path, object).await;
    }

    async fn delete_oldest(&mut self) {
        let Some(path) = self.living.pop_front() else { return };
        self.delete(&path).await;
    }

    async fn delete(&self, path: &str) {
        self.checker.lock().note(format_args!("deleted {path}"));
        if let Some(name) = path.strip_prefix(COMPOSITES) {
            self.checker.lock().lose_tree(name.trim_start_matches('/'));
        }
        if self.has_groups && path.starts_with(PODS) {
            let pod = ask(&self.server, Method::GET, path, None).await.1;
            InvariantChecker::lose_member(&self.checker, &self.server, &pod).await;
        }
        tell(&self.server, Method::DELETE, path, Some(&json!({ "propagationPolicy": "Background" }))).await;
    }

    async fn add_pod(&mut self) {
        let (name, kind) = (self.name("pod"), self.random.u64(..KINDS));
        self.add(PODS, pod(&name, spec(kind), kind)).await;
    }

    async fn add_deployment(&mut self) {
        let (name, kind) = (self.name("deployment"), self.random.u64(3..KINDS));
        let mut template = pod(&name, spec(kind), kind);
        template["metadata"]["labels"]["app"] = json!(name);
        let deployment = json!({
            "metadata": { "name": name },
            "spec": {
                "replicas": self.random.u64(1..8),
                "selector": { "matchLabels": { "app": name } },
                "template": { "metadata": { "labels": template["metadata"]["labels"] }, "spec": template["spec"] },
            },
        });
        self.add(DEPLOYMENTS, deployment).await;
    }

    async fn add_job(&mut self) {
        let name = self.name("job");
        let count = self.random.u64(1..6);
        self.add(JOBS, job(&name, count, json!({ "restartPolicy": "Never" }))).await;
    }

    /// A pod with a claim for a volume of this class in these zones, which its scheduler chooses.
    async fn add_claim(&mut self, name: &str, priority: &str, (class, zones): (&str, &[&str])) {
        let size = json!({ "storage": "1Gi" });
        let volume = json!({
            "metadata": { "name": name },
            "spec": {
                "storageClassName": class, "capacity": size, "accessModes": ["ReadWriteOnce"],
                "local": { "path": "/disk" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": ZONE, "operator": "In", "values": zones },
                ] }] } },
            },
        });
        let claim = json!({
            "metadata": { "name": name },
            "spec": {
                "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": size },
            },
        });
        self.add(VOLUMES, volume).await;
        // In a real cluster the volume controller finds it so.
        let available = json!({ "status": { "phase": "Available" } });
        tell(&self.server, Method::PATCH, &format!("{VOLUMES}/{name}/status"), Some(&available)).await;
        self.add(CLAIMS, claim).await;
        let special = json!({
            "priorityClassName": priority,
            "volumes": [{ "name": "disk", "persistentVolumeClaim": { "claimName": name } }],
        });
        self.add(PODS, pod(name, special, ORDINARY)).await;
    }

    async fn add_budget(&mut self) {
        let (name, kind) = (self.name("budget"), self.random.u64(3..KINDS));
        let selector = json!({ "matchLabels": { "kind": format!("kind-{kind}") } });
        self.add(
            BUDGETS,
            json!({ "metadata": { "name": name }, "spec": { "minAvailable": 1, "selector": selector } }),
        )
        .await;
    }

    /// A pod with one enormous list.
    async fn add_giant(&mut self) {
        let name = self.name("giant");
        let lists: Vec<_> = PodList::ALL.into_iter().filter(|list| !list.is_beside_pod()).collect();
        let list = lists[self.random.usize(..lists.len())];
        let mut giant = list.pod(&name, GIANT);
        giant["spec"]["terminationGracePeriodSeconds"] = json!(1);
        self.add(PODS, new(giant)).await;
    }

    /// A pod with values that no user needs.
    async fn add_hostile(&mut self) {
        let name = self.name("hostile");
        if self.random.bool() {
            return self.add_pod_with_hostile_claim(&name).await;
        }
        let mut hostile = pod(&name, json!({}), ORDINARY);
        let most = i64::MAX.to_string();
        let amounts = json!({ "cpu": most, "memory": most, "example.com/nothing": most });
        hostile["spec"]["containers"][0]["resources"] = json!({ "requests": amounts, "limits": amounts });
        self.add(PODS, hostile).await;
        let nominated = json!({ "status": { "nominatedNodeName": "no-such-node" } });
        tell(&self.server, Method::PATCH, &format!("{PODS}/{name}/status"), Some(&nominated)).await;
    }

    async fn open_a_gate(&mut self) {
        let pods = list(&self.server, &format!("{PODS}?labelSelector=kind%3Dkind-{GATED}")).await;
        let gated = pods
            .iter()
            .find(|pod| pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()));
        if let Some(pod) = gated {
            let path = format!("{PODS}/{}", api::name(pod));
            self.checker.lock().note(format_args!("opened {path}"));
            tell(&self.server, Method::PATCH, &path, Some(&json!({ "spec": { "schedulingGates": null } })))
                .await;
        }
    }

    async fn add_node(&mut self, index: u64) {
        let name = format!("node-{index}");
        let amounts: Value = self.amounts(index).collect();
        let node = json!({
            "metadata": {
                "name": name,
                "labels": { HOSTNAME: name, ZONE: ZONES[index as usize % ZONES.len()] },
                "annotations": self.devices(index),
            },
            "status": { "capacity": amounts, "allocatable": amounts },
        });
        self.checker.lock().touch(&name);
        self.post(NODES, node).await;
    }

    /// What a node has.
    fn amounts(&self, index: u64) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let served = devices::served(index).filter(|_| self.has_extended_resources);
        AMOUNTS.into_iter().chain(served)
    }

    /// The annotations of a node by which it has its devices.
    fn devices(&self, index: u64) -> Value {
        devices::annotations(index, self.nodes)
    }

    /// Adds a node with one enormous list.
    async fn add_giant_node(&mut self, index: u64) {
        let list = NodeList::ALL[self.random.usize(..NodeList::ALL.len())];
        let name = format!("node-{index}");
        let mut node = new(list.node(&name, GIANT));
        node["metadata"]["labels"][ZONE] = json!(ZONES[index as usize % ZONES.len()]);
        node["metadata"]["annotations"] = self.devices(index);
        for amounts in ["capacity", "allocatable"] {
            for (what, amount) in self.amounts(index) {
                node["status"][amounts][what] = json!(amount);
            }
        }
        self.checker.lock().touch(&name);
        self.post(NODES, node).await;
    }

    async fn remove_node(&mut self) {
        let index = self.random.u64(..self.nodes);
        // A third of the nodes may be away.
        if self.removed.contains(&index) || self.removed.len() as u64 * 3 >= self.nodes {
            return;
        }
        self.removed.push(index);
        let path = format!("{NODES}/node-{index}");
        {
            let mut checker = self.checker.lock();
            checker.touch(&format!("node-{index}"));
            checker.note(format_args!("deleted {path}"));
        }
        tell(&self.server, Method::DELETE, &path, None).await;
    }

    async fn return_node(&mut self) {
        let Some(index) = self.removed.pop() else { return };
        if self.random.u32(..4) == 0 {
            self.add_giant_node(index).await;
        } else {
            self.add_node(index).await;
        }
    }

    /// Changes a node, or undoes that.
    async fn flip(&mut self, pointer: &str, change: Value) {
        let path = format!("{NODES}/node-{}", self.random.u64(..self.nodes));
        let (status, node) = ask(&self.server, Method::GET, &path, None).await;
        if !status.is_success() {
            return;
        }
        let is_changed = match pointer {
            "/spec/unschedulable" => node["spec"]["unschedulable"] == true,
            _ => node["metadata"]["annotations"][SIMULATE].is_string(),
        };
        let change = match (is_changed, pointer) {
            (false, _) => change,
            (true, "/spec/unschedulable") => json!({ "spec": { "unschedulable": null } }),
            (true, _) => json!({ "metadata": { "annotations": { SIMULATE: null } } }),
        };
        self.checker.lock().note(format_args!("changed {path} {change}"));
        tell(&self.server, Method::PATCH, &path, Some(&change)).await;
    }
}

/// An object as a client creates it.
fn new(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| field != "uid" && field != "resourceVersion");
    }
    object
}

fn pod(name: &str, mut spec: Value, kind: u64) -> Value {
    spec["schedulerName"] = json!("supercargo");
    spec["terminationGracePeriodSeconds"] = json!(1);
    let cpu = match kind {
        0 => 100_000,
        CONTENDER.. => 3_000,
        _ => 100 + kind * 90,
    };
    let requests = json!({ "cpu": format!("{cpu}m"), "memory": format!("{}Mi", 64 + kind * 100) });
    let mut container =
        json!({ "name": "main", "image": format!("image-{kind}"), "resources": { "requests": requests } });
    if kind == 7 {
        container["ports"] = json!([{ "containerPort": 80, "hostPort": 8080 }]);
    }
    spec["containers"] = json!([container]);
    let mut labels = json!({ "kind": format!("kind-{kind}") });
    if kind == 11 {
        labels[LABEL] = json!("yes");
    }
    json!({ "metadata": { "name": name, "labels": labels }, "spec": spec })
}

/// A job of this many pods at once, whose spec has this beside that of the container.
fn job(name: &str, pods: u64, spec: Value) -> Value {
    let mut template = pod(name, spec, ORDINARY);
    template["metadata"]["labels"]["app"] = json!(name);
    json!({
        "metadata": { "name": name },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": { "metadata": { "labels": template["metadata"]["labels"] }, "spec": template["spec"] },
        },
    })
}

/// What is special about pods of a kind. Those of the first three kinds fit nowhere or wait.
fn spec(kind: u64) -> Value {
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let selector = json!({ "matchLabels": { "kind": format!("kind-{kind}") } });
    let term = |key: &str| json!({ "labelSelector": selector, "topologyKey": key });
    match kind {
        1 => json!({ "nodeSelector": { "nowhere": "at-all" } }),
        GATED => json!({ "schedulingGates": [{ "name": "example.com/wait" }] }),
        3 => json!({ "affinity": { "podAntiAffinity": { REQUIRED: [term(HOSTNAME)] } } }),
        4 => {
            json!({ "affinity": { "podAffinity": { PREFERRED: [{ "weight": 10, "podAffinityTerm": term(ZONE) }] } } })
        }
        5 => json!({ "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector,
        }] }),
        6 => json!({ "priorityClassName": "important" }),
        8 => json!({ "tolerations": [{ "operator": "Exists" }] }),
        10 => json!({ "affinity": { "podAffinity": { REQUIRED: [term(ZONE)] } } }),
        CONTENDER.. => {
            let priority = ["", "important", "urgent"][(kind - CONTENDER) as usize];
            json!({ "nodeSelector": { HOSTNAME: "node-0" }, "priorityClassName": priority })
        }
        _ => json!({}),
    }
}
