//! Objects to create, and accessors for objects.

use serde_json::{Map, Value, json};

/// A node with 110 places for pods.
pub(crate) fn node(name: &str, labels: &[(&str, &str)], allocatable: &[(&str, &str)]) -> Value {
    let mut amounts = json!({ "pods": "110" });
    for (resource, amount) in allocatable {
        amounts[*resource] = json!(amount);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": map(labels) },
        "status": { "capacity": amounts, "allocatable": amounts },
    })
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

pub(crate) fn priority_class(name: &str, value: i32) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": { "name": name },
        "value": value,
        "preemptionPolicy": "Never",
    })
}

/// The configuration of a scheduler with a profile for each name.
pub(crate) fn config(scheduler_names: &[&str]) -> String {
    let profiles: Vec<Value> = scheduler_names.iter().map(|name| json!({ "schedulerName": name })).collect();
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": profiles,
    });
    config.to_string()
}

/// A pod with one container and no requests, in the namespace `default`.
pub(crate) fn pod(name: &str) -> PodBuilder {
    PodBuilder(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [{ "name": "main", "image": "none", "resources": {} }] },
    }))
}

/// Small numbered pods for supercargo.
pub(crate) fn pods(prefix: &str, count: usize) -> Vec<Value> {
    let pod = |index| pod(&format!("{prefix}-{index}")).by("supercargo").asking("cpu", "100m").build();
    (0..count).map(pod).collect()
}

/// A pod under construction.
#[derive(Clone)]
pub(crate) struct PodBuilder(Value);

impl PodBuilder {
    pub(crate) fn within(mut self, namespace: &str) -> Self {
        self.0["metadata"]["namespace"] = json!(namespace);
        self
    }

    pub(crate) fn by(self, scheduler_name: &str) -> Self {
        self.spec("schedulerName", json!(scheduler_name))
    }

    /// Restricts the pod to nodes with this label.
    pub(crate) fn on(mut self, label: (&str, &str)) -> Self {
        self.0["spec"]["nodeSelector"][label.0] = json!(label.1);
        self
    }

    pub(crate) fn asking(mut self, resource: &str, amount: &str) -> Self {
        let resources = &mut self.0["spec"]["containers"][0]["resources"];
        resources["requests"][resource] = json!(amount);
        // The API requires a limit for extended resources, because they cannot be overcommitted.
        if resource.contains('/') {
            resources["limits"][resource] = json!(amount);
        }
        self
    }

    /// Sets any field of the spec.
    pub(crate) fn spec(mut self, field: &str, value: Value) -> Self {
        self.0["spec"][field] = value;
        self
    }

    pub(crate) fn build(self) -> Value {
        self.0
    }
}

fn map(pairs: &[(&str, &str)]) -> Map<String, Value> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
}

pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The node that a pod is bound to.
pub(crate) fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str()
}

/// A quantity in thousandths. It reads only plain numbers, `m`, `Mi` and `Gi`.
pub(crate) fn amount_of(amounts: &Value, resource: &str) -> u64 {
    let Some(text) = amounts[resource].as_str() else {
        return 0;
    };
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let number: u64 = digits.parse().unwrap();
    match &text[digits.len()..] {
        "m" => number,
        "" => number * 1000,
        "Mi" => number * (1000 << 20),
        "Gi" => number * (1000 << 30),
        unit => panic!("{text}: what is {unit}?"),
    }
}
