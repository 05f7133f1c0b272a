//! Devices: nodes that have some, pods with claims for them, and what happens to both.

use supercargo_apiserver::sim::{
    DEVICE_DRIVER, SIMULATE_DEVICES, SIMULATE_LOST_DEVICES, SIMULATE_SPECIAL_DEVICES,
};

use super::*;
use crate::api::{EXTENDED_RESOURCES, RESOURCE_CLAIMS};

const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
const TAINT_RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The devices of nodes, in turn. Ten need two slices.
const DEVICES: [u64; 8] = [2, 10, 0, 1, 2, 0, 0, 1];
/// The devices of the tainted node: each of the pods that want one gets it.
const DEVICES_OF_PROBES: u64 = 6;
/// The templates of claims. The first needs any device, and the last ones special devices.
const CLAIM_TEMPLATES: [&str; 9] =
    ["one", "two", "many-or-one", "high", "part", "parts", "shared", "worn", "slow"];

/// How much of the resource some nodes have without devices.
const SERVED: &str = "2";

/// What deletion of everything deletes of devices.
pub(super) const PATHS: [&str; 2] = [TAINT_RULES, RESOURCE_CLAIMS];

/// The number of devices of a node, of this many without that for probes.
fn of_node(node: u64, nodes: u64) -> u64 {
    if node < nodes { DEVICES[(node % DEVICES.len() as u64) as usize] } else { DEVICES_OF_PROBES }
}

/// The annotations by which a driver publishes the devices of a node, of this many without that
/// for probes. Every second node has special ones.
pub(super) fn annotations(node: u64, nodes: u64) -> Value {
    let special = if node < nodes && node % 2 == 1 { "ready" } else { "" };
    json!({
        SIMULATE_DEVICES: of_node(node, nodes).to_string(),
        SIMULATE_LOST_DEVICES: "",
        SIMULATE_SPECIAL_DEVICES: special,
    })
}

/// A request for a device of which this holds.
fn selected(attribute: &str, more: Value) -> Value {
    let mut request = json!({ "deviceClassName": DEVICE_DRIVER, "count": 1 });
    let expression = format!("device.attributes['{DEVICE_DRIVER}'].{attribute}");
    request["selectors"] = json!([{ "cel": { "expression": expression } }]);
    for (field, value) in more.as_object().into_iter().flatten() {
        request[field] = value.clone();
    }
    json!({ "exactly": request })
}

/// The spec of the claims of a template.
fn claim(template: &str) -> Value {
    let any = |count: u64| json!({ "deviceClassName": DEVICE_DRIVER, "count": count });
    let mut request = match template {
        "one" => json!({ "exactly": any(1) }),
        "two" => json!({ "exactly": any(2) }),
        "many-or-one" => {
            let [mut many, mut one] = [any(6), any(1)];
            (many["name"], one["name"]) = ("many".into(), "one".into());
            json!({ "firstAvailable": [many, one] })
        }
        // Devices of the second slice.
        "high" => selected("index >= 8", json!({})),
        "parts" => selected("?kind.orValue('') == 'part'", json!({ "count": 2 })),
        "shared" => selected(
            "?kind.orValue('') == 'shared'",
            json!({ "capacity": { "requests": { "memory": "2Gi" } } }),
        ),
        "worn" => {
            selected("?kind.orValue('') == 'worn'", json!({ "tolerations": [{ "operator": "Exists" }] }))
        }
        kind => selected(&format!("?kind.orValue('') == '{kind}'"), json!({})),
    };
    request["name"] = "device".into();
    json!({ "devices": { "requests": [request] } })
}

/// The spec of a pod with claims, beside that of its container.
fn with_claims(entries: Value) -> Value {
    json!({ "resourceClaims": entries })
}

/// Adds a request for a resource to a container.
fn request(container: &mut Value, resource: &str, count: u32) {
    for amounts in ["requests", "limits"] {
        container["resources"][amounts][resource] = count.to_string().into();
    }
}

/// The resources of a node, of which some have that of the class without devices.
pub(super) fn served(node: u64) -> Option<(&'static str, &'static str)> {
    (node % 8 == 2).then_some((EXTENDED_RESOURCES[0], SERVED))
}

fn by_template(template: &str) -> Value {
    with_claims(json!([{ "name": "device", "resourceClaimTemplateName": template }]))
}

impl Workload {
    /// The templates of claims. Nobody deletes them.
    pub(super) async fn add_templates(&mut self) {
        for name in CLAIM_TEMPLATES {
            let template = json!({ "metadata": { "name": name }, "spec": { "spec": claim(name) } });
            self.post(TEMPLATES, template).await;
        }
    }

    /// The class of the driver's devices, which would create it without the name of a resource.
    pub(super) async fn add_class(&mut self) {
        let selector = json!({ "cel": { "expression": format!("device.driver == '{DEVICE_DRIVER}'") } });
        let class = json!({
            "metadata": { "name": DEVICE_DRIVER },
            "spec": { "selectors": [selector], "extendedResourceName": EXTENDED_RESOURCES[0] },
        });
        self.post(CLASSES, class).await;
    }

    /// Changes something about devices.
    pub(super) async fn act_on_devices(&mut self) {
        if self.has_extended_resources && self.random.u32(..3) == 0 {
            return self.add_pods_with_extended_resource().await;
        }
        match self.random.u32(..20) {
            0..6 => self.add_pod_with_device().await,
            6..9 => self.add_job_with_devices().await,
            9..12 => self.add_shared_claim().await,
            12 => self.add_allocated_claim().await,
            13 | 14 => self.lose_devices().await,
            15 => self.fail_devices().await,
            16 => self.stop_driver().await,
            17 => self.add_taint_rule().await,
            _ => self.return_devices().await,
        }
    }

    /// A pod whose claim has a selector that fails, or one that takes long and selects nothing.
    pub(super) async fn add_pod_with_hostile_claim(&mut self, name: &str) {
        let numbers: Vec<u32> = (0..30).collect();
        let expression = if self.random.bool() {
            format!("device.attributes['{DEVICE_DRIVER}'].missing > 1")
        } else {
            format!("{numbers:?}.exists(a, {numbers:?}.exists(b, a + b > 58))")
        };
        let mut spec = claim(CLAIM_TEMPLATES[0]);
        spec["devices"]["requests"][0]["exactly"]["selectors"] =
            json!([{ "cel": { "expression": expression } }]);
        self.add(RESOURCE_CLAIMS, json!({ "metadata": { "name": name }, "spec": spec })).await;
        let entries = json!([{ "name": "device", "resourceClaimName": name }]);
        self.add(PODS, pod(name, with_claims(entries), ORDINARY)).await;
    }

    /// A pod that must get a device of the tainted node.
    pub(super) async fn add_device_probe(&mut self) -> String {
        let name = self.name("device-probe");
        let mut special = self.on_probe_node("urgent");
        special["resourceClaims"] = by_template(CLAIM_TEMPLATES[0])["resourceClaims"].take();
        self.post(PODS, pod(&name, special, 1)).await;
        format!("{PODS}/{name}")
    }

    /// A pod with a device for an extended resource, of the tainted node. It must meet no fault: as
    /// upstream, a pod whose claim was left without an allocation waits for the flush once that is
    /// deleted.
    pub(super) async fn add_extended_probe(&mut self) -> Vec<String> {
        if !self.has_extended_resources {
            return Vec::new();
        }
        let name = self.name("extended-probe");
        let mut probe = pod(&name, self.on_probe_node("urgent"), 1);
        request(&mut probe["spec"]["containers"][0], EXTENDED_RESOURCES[0], 1);
        self.post(PODS, probe).await;
        vec![format!("{PODS}/{name}")]
    }

    /// Pods that request the resource of the class: one, with a claim of its own or an init
    /// container, or those of a job.
    async fn add_pods_with_extended_resource(&mut self) {
        let name = self.name("extended");
        let resource = EXTENDED_RESOURCES[self.random.usize(..EXTENDED_RESOURCES.len())];
        let (how, count) = (self.random.u32(..8), self.random.u32(1..3));
        if how < 3 {
            let mut job = job(&name, self.random.u64(2..6), json!({ "restartPolicy": "Never" }));
            request(&mut job["spec"]["template"]["spec"]["containers"][0], resource, count);
            return self.add(JOBS, job).await;
        }
        let special = if how == 3 { by_template(CLAIM_TEMPLATES[0]) } else { json!({}) };
        let mut pod = pod(&name, special, ORDINARY);
        request(&mut pod["spec"]["containers"][0], resource, count);
        if how == 4 {
            let mut init = json!({ "name": "init", "image": "init" });
            request(&mut init, resource, 1);
            pod["spec"]["initContainers"] = json!([init]);
        }
        self.add(PODS, pod).await;
    }

    fn template(&mut self) -> &'static str {
        CLAIM_TEMPLATES[self.random.usize(..CLAIM_TEMPLATES.len())]
    }

    async fn add_pod_with_device(&mut self) {
        let (name, template) = (self.name("device"), self.template());
        self.add(PODS, pod(&name, by_template(template), ORDINARY)).await;
    }

    /// Pods that come together, and free their devices when they are done.
    async fn add_job_with_devices(&mut self) {
        let (name, template) = (self.name("device-job"), self.template());
        let mut spec = by_template(template);
        spec["restartPolicy"] = "Never".into();
        let count = self.random.u64(2..6);
        self.add(JOBS, job(&name, count, spec)).await;
    }

    /// A claim that several pods share. It is deleted before them.
    async fn add_shared_claim(&mut self) {
        let (name, template) = (self.name("shared"), self.template());
        self.add(RESOURCE_CLAIMS, json!({ "metadata": { "name": name }, "spec": claim(template) })).await;
        for _ in 0..self.random.u64(1..4) {
            let sharer = self.name("sharer");
            let mut entries = json!([{ "name": "shared", "resourceClaimName": name }]);
            if self.random.u32(..3) == 0 {
                let own = json!({ "name": "own", "resourceClaimTemplateName": CLAIM_TEMPLATES[0] });
                entries.as_array_mut().expect("it is a list").push(own);
            }
            self.add(PODS, pod(&sharer, with_claims(entries), ORDINARY)).await;
        }
    }

    /// A claim that somebody else has allocated, for a device that only a zone can reach, and its
    /// pod.
    async fn add_allocated_claim(&mut self) {
        let (name, zone) = (self.name("allocated"), format!("zone-{}", self.random.u64(..3)));
        let claim = json!({ "metadata": { "name": name, "finalizers": [FINALIZER] }, "spec": claim("one") });
        self.add(RESOURCE_CLAIMS, claim).await;
        let result = json!({
            "request": "device", "driver": "network.example.com", "pool": "racks", "device": name,
        });
        let reached = json!([{ "key": ZONE, "operator": "In", "values": [zone] }]);
        let status = json!({ "allocation": {
            "devices": { "results": [result] },
            "nodeSelector": { "nodeSelectorTerms": [{ "matchExpressions": reached }] },
        } });
        let path = format!("{RESOURCE_CLAIMS}/{name}/status");
        tell(&self.server, Method::PATCH, &path, Some(&json!({ "status": status }))).await;
        let entries = json!([{ "name": "device", "resourceClaimName": name }]);
        self.add(PODS, pod(&name, with_claims(entries), ORDINARY)).await;
    }

    /// The driver of a node withdraws some of its devices, in use or not.
    async fn lose_devices(&mut self) {
        let lost: Vec<String> =
            (0..self.random.u64(1..4)).map(|_| self.random.u64(..10).to_string()).collect();
        let node = self.random.u64(..self.nodes);
        self.annotate(node, json!({ SIMULATE_LOST_DEVICES: lost.join(",") })).await;
    }

    async fn stop_driver(&mut self) {
        let node = self.random.u64(..self.nodes);
        self.annotate(node, json!({ SIMULATE_DEVICES: "0", SIMULATE_SPECIAL_DEVICES: "" })).await;
    }

    /// The driver of a node fails to prepare devices.
    async fn fail_devices(&mut self) {
        let node = self.random.u64(..self.nodes);
        self.annotate(node, json!({ SIMULATE_SPECIAL_DEVICES: "failing" })).await;
    }

    /// The driver of a node runs, and publishes all of its devices.
    async fn return_devices(&mut self) {
        let node = self.random.u64(..self.nodes);
        self.annotate(node, annotations(node, self.nodes)).await;
    }

    async fn annotate(&self, node: u64, annotations: Value) {
        let path = format!("{NODES}/node-{node}");
        let change = json!({ "metadata": { "annotations": annotations } });
        self.checker.lock().note(format_args!("changed {path} {change}"));
        tell(&self.server, Method::PATCH, &path, Some(&change)).await;
    }

    /// A taint on the devices of a node, or on one device of every node.
    async fn add_taint_rule(&mut self) {
        let name = self.name("taint");
        let selector = if self.random.bool() {
            json!({ "driver": DEVICE_DRIVER, "pool": format!("node-{}", self.random.u64(..self.nodes)) })
        } else {
            json!({ "device": format!("gpu-{}", self.random.u64(..3)) })
        };
        let rule = json!({
            "metadata": { "name": name },
            "spec": { "deviceSelector": selector, "taint": { "key": "example.com/broken", "effect": "NoSchedule" } },
        });
        self.add(TAINT_RULES, rule).await;
        self.checker.lock().see_taint_rule(&name);
    }
}
