//! The status of a node, and the taints that the node lifecycle controller derives from it.

use serde_json::{Value, json};

use super::script::SIMULATE;
use crate::json::{entries, flag, list, object_mut, set_default, text, text_at};
use crate::sim::conditions::{self, Condition};

/// The generated properties of a node.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) address: String,
    pub(super) pod_cidr: String,
}

const TIMES: [&str; 2] = ["lastHeartbeatTime", "lastTransitionTime"];
const VERSION: &str = "v1.37.2";
/// The default capacity of a node.
const CAPACITY: [(&str, &str); 4] =
    [("cpu", "32"), ("ephemeral-storage", "1Ti"), ("memory", "256Gi"), ("pods", "110")];
/// The pressure conditions: type, and reason and message without pressure.
const PRESSURES: [(&str, &str, &str); 3] = [
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
];
/// The taint for each status of a condition.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Whether the simulation makes a node ready.
pub(super) fn is_ready(node: &Value) -> bool {
    let annotations = node.pointer("/metadata/annotations").unwrap_or(&Value::Null);
    text(annotations, SIMULATE) != "not-ready"
}

/// The address in a node's status.
pub(super) fn address(node: &Value) -> &str {
    let addresses = node.get("status").map_or(&[][..], |status| list(status, "addresses"));
    let own = addresses.iter().find(|address| text(address, "type") == "InternalIP");
    own.map_or("", |address| text(address, "address"))
}

/// Sets the status. Existing values are kept, except for the readiness.
pub(super) fn set_status(node: &mut Value, facts: &Facts, now: &str) {
    let name = text_at(node, "/metadata/name").to_owned();
    let uid = text_at(node, "/metadata/uid").to_owned();
    let labels = node.pointer("/metadata/labels").cloned().unwrap_or_default();
    object_mut(node, "status");
    let status = &mut node["status"];
    set_capacity(status);
    if list(status, "addresses").is_empty() {
        status["addresses"] = json!([
            {"type": "InternalIP", "address": facts.address}, {"type": "Hostname", "address": name},
        ]);
    }
    object_mut(status, "nodeInfo");
    let or = |label, other: &'static str| match text(&labels, label) {
        "" => other.to_owned(),
        label => label.to_owned(),
    };
    for (field, value) in [
        ("architecture", or("kubernetes.io/arch", "amd64")),
        ("bootID", uid.clone()),
        ("containerRuntimeVersion", "containerd://2.2.0".to_owned()),
        ("kernelVersion", "6.12.0".to_owned()),
        ("kubeletVersion", VERSION.to_owned()),
        ("machineID", uid.replace('-', "")),
        ("operatingSystem", or("kubernetes.io/os", "linux")),
        ("osImage", "supercargo simulation".to_owned()),
        ("systemUUID", uid),
    ] {
        set_default(&mut status["nodeInfo"], field, value);
    }
    set_conditions(node, now);
}

fn set_capacity(status: &mut Value) {
    let is_empty = |field| entries(status, field).next().is_none();
    match (is_empty("capacity"), is_empty("allocatable")) {
        (true, true) => {
            let capacity: Value =
                CAPACITY.iter().map(|(name, amount)| ((*name).to_owned(), Value::from(*amount))).collect();
            status["allocatable"] = capacity.clone();
            status["capacity"] = capacity;
        }
        (true, false) => status["capacity"] = status["allocatable"].clone(),
        (false, true) => status["allocatable"] = status["capacity"].clone(),
        (false, false) => {}
    }
}

fn set_conditions(node: &mut Value, now: &str) {
    for (kind, reason, message) in PRESSURES {
        if conditions::find(node, kind).is_none() {
            conditions::set(node, Condition::new(kind, false).because(reason, message), &TIMES, now);
        }
    }
    let is_ready = is_ready(node);
    let (reason, message) = if is_ready {
        ("KubeletReady", "kubelet is posting ready status")
    } else {
        ("KubeletNotReady", "container runtime status check may not have completed yet")
    };
    conditions::set(node, Condition::new("Ready", is_ready).because(reason, message), &TIMES, now);
}

/// Sets the other fields: the labels that a kubelet registers, the pod range, and the taints
/// derived from the status.
pub(super) fn set_main(node: &mut Value, facts: &Facts, now: &str) {
    let name = text_at(node, "/metadata/name").to_owned();
    object_mut(&mut node["metadata"], "labels");
    for (label, value) in
        [("kubernetes.io/arch", "amd64"), ("kubernetes.io/hostname", &name), ("kubernetes.io/os", "linux")]
    {
        set_default(&mut node["metadata"]["labels"], label, value);
    }
    object_mut(node, "spec");
    if list(&node["spec"], "podCIDRs").is_empty() && !facts.pod_cidr.is_empty() {
        set_default(&mut node["spec"], "podCIDR", facts.pod_cidr.as_str());
        node["spec"]["podCIDRs"] = json!([facts.pod_cidr]);
    }
    set_taints(node, now);
}

fn set_taints(node: &mut Value, now: &str) {
    let mut due: Vec<(&str, &str)> = Vec::new();
    for (condition, status, key) in TAINTS {
        if conditions::find(node, condition).is_some_and(|found| text(found, "status") == status) {
            due.push((key, "NoSchedule"));
            if condition == "Ready" {
                due.push((key, "NoExecute"));
            }
        }
    }
    if flag(&node["spec"], "unschedulable") {
        due.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let is_due = |taint: &Value| due.contains(&(text(taint, "key"), text(taint, "effect")));
    let is_ours = |taint: &Value| {
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        let is_ready = TAINTS.iter().any(|(condition, _, own)| *condition == "Ready" && *own == key);
        let is_known = key == UNSCHEDULABLE || TAINTS.iter().any(|(_, _, own)| *own == key);
        (effect == "NoSchedule" && is_known) || (effect == "NoExecute" && is_ready)
    };
    let old = list(&node["spec"], "taints");
    let mut taints: Vec<Value> =
        old.iter().filter(|taint| !is_ours(taint) || is_due(taint)).cloned().collect();
    for (key, effect) in due {
        if !taints.iter().any(|taint| text(taint, "key") == key && text(taint, "effect") == effect) {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": now}));
        }
    }
    if taints == old {
        return;
    }
    if taints.is_empty() {
        crate::json::remove(&mut node["spec"], "taints");
    } else {
        node["spec"]["taints"] = taints.into();
    }
}
