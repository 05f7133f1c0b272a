//! Nodes.

use serde_json::{Map, Value, json};

use super::generator::Generator;
use super::mix::Kind;

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
pub(super) const REGION: &str = "topology.kubernetes.io/region";
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
pub(super) const ZONES: [&str; 3] = ["a", "b", "c"];
pub(super) const DISKS: [&str; 2] = ["ssd", "hdd"];
pub(super) const IMAGES: [&str; 4] = ["app:1", "registry.example/web", "registry.example:5000/db:2", "tool"];

/// Taints by key, value and effect.
pub(super) const TAINTS: [(&str, &str, &str); 6] = [
    ("dedicated", "db", "NoSchedule"),
    ("dedicated", "web", "NoExecute"),
    ("spot", "", "PreferNoSchedule"),
    ("spot", "yes", "PreferNoSchedule"),
    ("node.kubernetes.io/not-ready", "", "NoSchedule"),
    ("level", "5", "NoSchedule"),
];

impl Generator<'_> {
    /// A new node.
    pub(super) fn node(&mut self, name: &str) -> Value {
        let labels = self.node_labels(name);
        let allocatable = self.allocatable();
        let taints = self.taints();
        let cordons = self.mix.of(Kind::Cordons) / 4;
        let metadata = self.metadata("", name);
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": {},
            "status": {
                "capacity": allocatable,
                "allocatable": allocatable,
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        });
        node["metadata"]["labels"] = labels;
        if !taints.is_empty() {
            node["spec"]["taints"] = json!(taints);
        }
        if self.random.chance(cordons) {
            node["spec"]["unschedulable"] = json!(true);
        }
        if self.mix.of(Kind::Features) > 0 {
            node["status"]["declaredFeatures"] = json!(self.features());
        }
        if self.mix.of(Kind::Images) > 0 {
            node["status"]["images"] = self.node_images();
        }
        node
    }

    pub(super) fn features(&mut self) -> Vec<&'static str> {
        self.random.some(60, &["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"])
    }

    pub(super) fn node_labels(&mut self, name: &str) -> Value {
        let mut labels = Map::new();
        let random = &mut self.random;
        if random.chance(95) {
            labels.insert(HOSTNAME.to_owned(), json!(name));
        }
        if random.chance(85) {
            let zone = *random.pick(&ZONES);
            labels.insert(ZONE.to_owned(), json!(zone));
            if random.chance(30) {
                labels.insert(BETA_ZONE.to_owned(), json!(zone));
            }
            if random.chance(50) {
                labels.insert(REGION.to_owned(), json!(random.pick(&["north", "south"])));
            }
        }
        if random.chance(70) {
            labels.insert("disk".to_owned(), json!(random.pick(&DISKS)));
        }
        if random.chance(50) {
            labels.insert("generation".to_owned(), json!(random.between(1, 9).to_string()));
        }
        Value::Object(labels)
    }

    pub(super) fn allocatable(&mut self) -> Value {
        let random = &mut self.random;
        let mut allocatable = json!({
            "cpu": random.pick(&["1", "2", "4", "1500m", "8"]),
            "memory": random.pick(&["1Gi", "2Gi", "4Gi", "8Gi"]),
            "pods": random.pick(&["2", "4", "10", "110"]),
        });
        if random.chance(60) {
            allocatable["ephemeral-storage"] = json!(random.pick(&["2Gi", "20Gi"]));
        }
        if random.chance(30) {
            allocatable["example.com/gpu"] = json!(random.pick(&["1", "2", "0"]));
        }
        if random.chance(15) {
            allocatable["hugepages-2Mi"] = json!("64Mi");
        }
        allocatable
    }

    pub(super) fn taints(&mut self) -> Vec<Value> {
        let percent = self.mix.of(Kind::Taints) / 3;
        let taints = self.random.some(percent, &TAINTS);
        taints
            .into_iter()
            .map(|(key, value, effect)| {
                let mut taint = json!({ "key": key, "effect": effect });
                if !value.is_empty() {
                    taint["value"] = json!(value);
                }
                taint
            })
            .collect()
    }

    pub(super) fn node_images(&mut self) -> Value {
        let images = self.random.some(50, &IMAGES);
        let sized = images.into_iter().map(|image| {
            // Image names on nodes are fully qualified.
            let name = if image.contains(":1") || image.contains(":2") {
                image.to_owned()
            } else {
                format!("{image}:latest")
            };
            let megabytes = 20 + 400 * image.len() % 900;
            json!({ "names": [name], "sizeBytes": megabytes * 1024 * 1024 })
        });
        sized.collect()
    }
}
