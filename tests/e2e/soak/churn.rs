//! Churn: pods with unique labels and annotations, nodes, and the other objects that plugins read.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::Client;
use serde_json::{Value, json};
use supercargo_apiserver::sim::{DEVICE_DRIVER, SIMULATE, SIMULATE_DEVICES};
use tokio::time::{sleep, timeout};

use crate::support::{name_of, node, node_of, priority_class, send};

/// The interval of creations and deletions.
pub(super) const BEAT: Duration = Duration::from_millis(250);
/// Pods per tick: few enough to leave CPU time for other tests.
const PODS: u64 = 2;
/// The number of nodes, and how many of them never change, so that lasting pods keep their place.
const NODES: u64 = 30;
const SPARED: u64 = 10;
/// The number of lasting Deployments, and their replicas.
const STAYING: (u64, u64) = (4, 25);
/// The timeout of a request, and the number of attempts, because faults hit these requests, too.
const PATIENCE: Duration = Duration::from_secs(5);
const ATTEMPTS: u32 = 60;

/// A priority class.
const IMPORTANT: &str = "important";
const CLASSES_PATH: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const PODS_PATH: &str = "/api/v1/namespaces/default/pods";
const NODES_PATH: &str = "/api/v1/nodes";
const CLAIMS_PATH: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const TEMPLATES_PATH: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
/// The template of claims for devices, and the devices of every tenth node.
const DEVICE: &str = "device";
const DEVICES: &str = "2";
/// The driver, class and template of a device that claims share, and how many can.
const SHARED: &str = "shared.example.com";
const SHARES: usize = 4;
const MERGE: &str = "application/merge-patch+json";

/// The objects that exist throughout.
pub(super) struct Furniture {
    pods: usize,
}

impl Furniture {
    pub(super) async fn create(client: &Client) -> Self {
        insist(client, "POST", CLASSES_PATH, Some(&priority_class(IMPORTANT, 1000))).await;
        let shared = json!({ "name": DEVICE, "exactly": { "deviceClassName": SHARED, "capacity": { "requests": { "shares": "1" } } } });
        for (path, object) in [
            of_devices("ResourceClaimTemplate", DEVICE, &json!({ "spec": claim_spec() })),
            of_devices(
                "ResourceClaimTemplate",
                SHARED,
                &json!({ "spec": { "devices": { "requests": [shared] } } }),
            ),
            of_devices(
                "DeviceClass",
                SHARED,
                &json!({ "selectors": [{ "cel": { "expression": format!("device.driver == '{SHARED}'") } }] }),
            ),
            of_devices("ResourceSlice", SHARED, &shared_device()),
        ] {
            insist(client, "POST", path, Some(&object)).await;
        }
        for index in 0..NODES {
            insist(client, "POST", NODES_PATH, Some(&node_of_number(index, 0))).await;
        }
        for index in 0..STAYING.0 {
            let labels = json!({ "app": format!("staying-{index}") });
            let spec = json!({
                "schedulerName": "supercargo",
                "nodeSelector": { "spared": "yes" },
                "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": "50m" } } }],
            });
            let deployment = json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": { "name": format!("staying-{index}"), "namespace": "default" },
                "spec": {
                    "replicas": STAYING.1,
                    "selector": { "matchLabels": labels },
                    "template": { "metadata": { "labels": labels }, "spec": spec },
                },
            });
            insist(client, "POST", "/apis/apps/v1/namespaces/default/deployments", Some(&deployment)).await;
        }
        Self { pods: (STAYING.0 * STAYING.1) as usize }
    }
}

fn node_of_number(index: u64, incarnation: u64) -> Value {
    let (zone, incarnation) = (format!("zone-{}", index % 3), format!("incarnation-{incarnation}"));
    let name = format!("node-{index}");
    let spared = if index < SPARED { "yes" } else { "no" };
    let labels = [
        ("kubernetes.io/hostname", name.as_str()),
        ("topology.kubernetes.io/zone", &zone),
        ("incarnation", &incarnation),
        ("spared", spared),
    ];
    let mut node = node(&name, &labels, &[("cpu", "8"), ("memory", "32Gi")]);
    if index % 10 == 9 {
        node["metadata"]["annotations"] = json!({ SIMULATE_DEVICES: DEVICES });
    }
    node
}

/// The objects that exist for a while.
pub(super) struct Churn {
    client: Client,
    furniture: Furniture,
    /// The objects to delete, with their times, the next first.
    leaving: VecDeque<(Instant, String)>,
    /// The nodes that are unhealthy or deleted, and since when.
    ill: VecDeque<(Instant, u64)>,
    gone: VecDeque<(Instant, u64)>,
    beats: u64,
    pods: u64,
    objects: u64,
    flaps: u64,
    removals: u64,
    /// The most devices that claims had at once, and the most claims that shared one.
    allocations: usize,
    shares: usize,
}

impl Churn {
    pub(super) fn new(client: Client, furniture: Furniture) -> Self {
        let (leaving, ill, gone) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self {
            client,
            furniture,
            leaving,
            ill,
            gone,
            beats: 0,
            pods: 0,
            objects: 0,
            flaps: 0,
            removals: 0,
            allocations: 0,
            shares: 0,
        }
    }

    /// Creates some objects and deletes some.
    pub(super) async fn go_on(&mut self) {
        self.beats += 1;
        let now = Instant::now();
        let mut coming = Vec::new();
        for _ in 0..PODS {
            self.pods += 1;
            let pod = pod(self.pods);
            let stays = Duration::from_secs(2 + self.pods % 7);
            self.leave(now + stays, format!("{PODS_PATH}/{}", name_of(&pod)));
            coming.push((PODS_PATH.to_owned(), pod));
        }
        if self.beats.is_multiple_of(4) {
            self.objects += 1;
            let (path, object) = object(self.objects);
            self.leave(now + Duration::from_secs(10), format!("{path}/{}", name_of(&object)));
            coming.push((path, object));
        }
        let client = &self.client;
        join_all(coming.iter().map(|(path, object)| insist(client, "POST", path, Some(object)))).await;
        let due: Vec<String> = self.due(now);
        join_all(due.iter().map(|path| insist(&self.client, "DELETE", path, None))).await;
        self.trouble_nodes(now).await;
        if self.beats.is_multiple_of(4) {
            self.check_devices().await;
        }
    }

    /// No device is allocated twice, and no more than there is of the shared one.
    async fn check_devices(&mut self) {
        let claims = self.list(CLAIMS_PATH).await;
        let (mut owners, mut shares) = (BTreeMap::<String, &str>::new(), 0);
        for claim in &claims {
            let results = claim["status"]["allocation"]["devices"]["results"].as_array();
            for result in results.into_iter().flatten() {
                shares += usize::from(result["consumedCapacity"]["shares"] == "1");
                let device = format!("{}/{}/{}", result["pool"], result["device"], result["shareID"]);
                if let Some(other) = owners.insert(device.clone(), name_of(claim)) {
                    panic!("{other} and {} have device {device}", name_of(claim));
                }
            }
        }
        assert!(shares <= SHARES, "{shares} claims share a device");
        self.allocations = self.allocations.max(owners.len() - shares);
        self.shares = self.shares.max(shares);
    }

    fn leave(&mut self, when: Instant, path: String) {
        let place = self.leaving.partition_point(|(other, _)| *other <= when);
        self.leaving.insert(place, (when, path));
    }

    fn due(&mut self, now: Instant) -> Vec<String> {
        let count = self.leaving.partition_point(|(when, _)| *when <= now);
        self.leaving.drain(..count).map(|(_, path)| path).collect()
    }

    /// Makes nodes unhealthy and healthy again, deletes and replaces them.
    async fn trouble_nodes(&mut self, now: Instant) {
        if self.beats.is_multiple_of(8) {
            self.flaps += 1;
            let index = SPARED + self.flaps * 7 % (NODES - SPARED);
            self.simulate(index, &json!("not-ready")).await;
            self.ill.push_back((now, index));
        }
        if self.ill.front().is_some_and(|(since, _)| now - *since > Duration::from_secs(4))
            && let Some((_, index)) = self.ill.pop_front()
        {
            self.simulate(index, &Value::Null).await;
        }
        if self.beats.is_multiple_of(24) {
            self.removals += 1;
            let index = SPARED + self.removals * 11 % (NODES - SPARED);
            insist(&self.client, "DELETE", &format!("{NODES_PATH}/node-{index}"), None).await;
            self.gone.push_back((now, index));
        }
        if self.gone.front().is_some_and(|(since, _)| now - *since > Duration::from_secs(3))
            && let Some((_, index)) = self.gone.pop_front()
        {
            let node = node_of_number(index, self.removals);
            insist(&self.client, "POST", NODES_PATH, Some(&node)).await;
        }
    }

    async fn simulate(&self, index: u64, what: &Value) {
        let change = json!({ "metadata": { "annotations": { SIMULATE: what } } });
        insist(&self.client, "PATCH", &format!("{NODES_PATH}/node-{index}"), Some(&change)).await;
    }

    /// Restores the cluster and waits for that.
    pub(super) async fn tidy(&mut self, within: Duration) {
        let paths: Vec<String> = self.leaving.drain(..).map(|(_, path)| path).collect();
        for path in paths {
            insist(&self.client, "DELETE", &path, None).await;
        }
        (self.ill, self.gone) = (VecDeque::new(), VecDeque::new());
        for index in 0..NODES {
            insist(&self.client, "POST", NODES_PATH, Some(&node_of_number(index, 0))).await;
            self.simulate(index, &Value::Null).await;
        }
        let began = Instant::now();
        loop {
            let pods = self.list(PODS_PATH).await;
            let homeless = pods.iter().filter(|pod| node_of(pod).is_none()).count();
            let claims = self.list(CLAIMS_PATH).await.len();
            if pods.len() == self.furniture.pods && homeless == 0 && claims == 0 {
                return;
            }
            let (left, wanted) = (pods.len(), self.furniture.pods);
            assert!(
                began.elapsed() < within,
                "{left} pods instead of {wanted}, {homeless} without a node, {claims} claims"
            );
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Updates every lasting object without effect, so that it is decoded again.
    pub(super) async fn touch(&self) {
        let touched =
            json!({ "metadata": { "annotations": { "touched": format!("{:?}", Instant::now()) } } });
        for path in [PODS_PATH, NODES_PATH] {
            let objects = self.list(path).await;
            let paths: Vec<String> =
                objects.iter().map(|object| format!("{path}/{}", name_of(object))).collect();
            join_all(paths.iter().map(|path| insist(&self.client, "PATCH", path, Some(&touched)))).await;
        }
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        let mut list = insist(&self.client, "GET", path, None).await;
        match list["items"].take() {
            Value::Array(items) => items,
            other => panic!("GET {path}: {other}"),
        }
    }

    /// Has a pod find its claim allocated, as one does whose binding was refused. The scheduler
    /// keeps the answers for such a pod apart from those for pods that still need devices.
    pub(super) async fn share_a_claim(&mut self, within: Duration) {
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": { "name": "shared", "namespace": "default" },
            "spec": claim_spec(),
        });
        insist(&self.client, "POST", CLAIMS_PATH, Some(&claim)).await;
        for name in ["sharer-1", "sharer-2"] {
            let mut pod = pod(KIND_WITH_CLAIM);
            pod["metadata"]["name"] = json!(name);
            pod["spec"]["resourceClaims"] = json!([{ "name": DEVICE, "resourceClaimName": "shared" }]);
            let path = format!("{PODS_PATH}/{name}");
            insist(&self.client, "POST", PODS_PATH, Some(&pod)).await;
            self.wait_until_bound(&path, within).await;
            self.leave(Instant::now(), path);
        }
        self.leave(Instant::now(), format!("{CLAIMS_PATH}/shared"));
    }

    async fn wait_until_bound(&self, path: &str, within: Duration) {
        let began = Instant::now();
        while node_of(&insist(&self.client, "GET", path, None).await).is_none() {
            assert!(began.elapsed() < within, "{path} is not bound");
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until another pod is scheduled, to show that nothing is stuck.
    pub(super) async fn see_one_more_bound(&mut self, within: Duration) {
        self.pods = self.pods.next_multiple_of(KINDS_OF_PODS) + KINDS_OF_PODS - 1;
        let pod = pod(self.pods);
        let path = format!("{PODS_PATH}/{}", name_of(&pod));
        insist(&self.client, "POST", PODS_PATH, Some(&pod)).await;
        self.wait_until_bound(&path, within).await;
    }

    /// The number of the pods that would fit an empty cluster.
    pub(super) fn pods_that_fit(&self) -> usize {
        usize::try_from(self.pods / KINDS_OF_PODS * (KINDS_OF_PODS - KINDS_WITHOUT_PLACE)).unwrap()
    }

    /// Whether every kind of object has occurred.
    pub(super) fn has_had_all(&self) -> bool {
        let has_had_objects = self.objects > 0 && self.allocations > 1 && self.shares > 1;
        self.pods > 2 * KINDS_OF_PODS && has_had_objects && self.flaps > 0 && self.removals > 0
    }
}

impl fmt::Display for Churn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pods, objects, flaps, removals, allocations, shares, .. } = self;
        write!(
            f,
            "{pods} pods, {objects} other objects, {allocations} devices and {shares} shares at once, \
             {flaps} nodes ill, {removals} gone"
        )
    }
}

/// An object of dynamic resource allocation, and its collection.
fn of_devices(kind: &str, name: &str, spec: &Value) -> (&'static str, Value) {
    let path = match kind {
        "DeviceClass" => "/apis/resource.k8s.io/v1/deviceclasses",
        "ResourceSlice" => "/apis/resource.k8s.io/v1/resourceslices",
        _ => TEMPLATES_PATH,
    };
    let metadata = json!({ "name": name });
    (path, json!({ "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec }))
}

/// The spec of the slice with the shared device, on a node that does not change.
fn shared_device() -> Value {
    let capacity = json!({ "shares": { "value": SHARES.to_string() } });
    json!({
        "driver": SHARED,
        "pool": { "name": "node-0", "generation": 1, "resourceSliceCount": 1 },
        "nodeName": "node-0",
        "devices": [{ "name": "device-0", "allowMultipleAllocations": true, "capacity": capacity }],
    })
}

/// The spec of a claim for one device.
fn claim_spec() -> Value {
    let request = json!({ "name": DEVICE, "exactly": { "deviceClassName": DEVICE_DRIVER } });
    json!({ "devices": { "requests": [request] } })
}

/// The number of pod variants besides names, labels and annotations.
const KINDS_OF_PODS: u64 = 12;
/// The number of variants that no node fits, or that are gated.
const KINDS_WITHOUT_PLACE: u64 = 3;
/// The variants with a claim for a device, and for the shared one.
const KIND_WITH_CLAIM: u64 = 9;
const KIND_WITH_SHARE: u64 = 10;

/// The pod of a number.
fn pod(number: u64) -> Value {
    let kind = number % KINDS_OF_PODS;
    let selector = json!({ "matchLabels": { "kind": format!("kind-{kind}") } });
    let term = |topology: &str| json!({ "labelSelector": selector, "topologyKey": topology });
    let mut spec = json!({
        "schedulerName": "supercargo",
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "main",
            "image": format!("image-{kind}"),
            "resources": { "requests": { "cpu": format!("{}m", 100 + kind), "memory": "64Mi" } },
        }],
    });
    let affinity = |name: &str, rule: &str, value: Value| json!({ name: { rule: [value] } });
    match kind {
        // Fits nowhere, which causes warnings.
        0 => spec["containers"][0]["resources"]["requests"]["cpu"] = json!("100"),
        1 => spec["nodeSelector"] = json!({ "nowhere": "at-all" }),
        2 => spec["schedulingGates"] = json!([{ "name": "example.com/never" }]),
        3 => {
            let rule = "requiredDuringSchedulingIgnoredDuringExecution";
            spec["affinity"] = affinity("podAntiAffinity", rule, term("kubernetes.io/hostname"));
        }
        4 => {
            let weighted = json!({ "weight": 10, "podAffinityTerm": term("topology.kubernetes.io/zone") });
            spec["affinity"] =
                affinity("podAffinity", "preferredDuringSchedulingIgnoredDuringExecution", weighted);
        }
        5 => {
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            }]);
        }
        6 => spec["priorityClassName"] = json!(IMPORTANT),
        7 => spec["containers"][0]["ports"] = json!([{ "containerPort": 80, "hostPort": 8080 }]),
        8 => spec["tolerations"] = json!([{ "operator": "Exists" }]),
        KIND_WITH_CLAIM => {
            spec["resourceClaims"] = json!([{ "name": DEVICE, "resourceClaimTemplateName": DEVICE }]);
        }
        KIND_WITH_SHARE => {
            spec["resourceClaims"] = json!([{ "name": DEVICE, "resourceClaimTemplateName": SHARED }]);
        }
        _ => {}
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("passing-{number}"),
            "namespace": "default",
            "labels": { "kind": format!("kind-{kind}"), "number": format!("number-{number}") },
            "annotations": { "example.com/number": format!("annotation-{number}") },
        },
        "spec": spec,
    })
}

/// An object of a number that is neither pod nor node, and its collection.
fn object(number: u64) -> (String, Value) {
    let name = format!("passing-{number}");
    let labels = json!({ "number": format!("object-{number}") });
    let (path, version, kind, spec) = match number % 3 {
        0 => ("/api/v1/namespaces", "v1", "Namespace", json!({})),
        1 => {
            let spec = json!({ "selector": labels, "ports": [{ "port": 80 }] });
            ("/api/v1/namespaces/default/services", "v1", "Service", spec)
        }
        _ => {
            let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": labels } });
            (
                "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
                "policy/v1",
                "PodDisruptionBudget",
                spec,
            )
        }
    };
    let metadata = json!({ "name": name, "labels": labels });
    (path.to_owned(), json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec }))
}

/// Sends a request until it succeeds or is obsolete, because the server has faults.
async fn insist(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Value {
    let content_type = if method == "PATCH" { MERGE } else { "application/json" };
    for _ in 0..ATTEMPTS {
        match timeout(PATIENCE, send(client, method, path, content_type, body)).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err((404 | 409, _))) if method != "GET" => return Value::Null,
            Ok(Err((code @ (400 | 403 | 405 | 422), message))) => panic!("{method} {path}: {code} {message}"),
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("{method} {path}: the server does not come round");
}
