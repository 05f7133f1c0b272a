//! Admission of new pods: priority, runtime overhead, default tolerations and topology labels.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::super::priority_class;
use super::super::traits::Lookup;
use super::{limits, validate};
use crate::json::{entries, list, object_mut, present, text, text_at};
use crate::kinds::{self, Kind};
use crate::quantity::Quantity;
use crate::status::{Result, Status};

/// The kind of pods.
pub(super) static KIND: LazyLock<Kind> = LazyLock::new(|| {
    let is_pods = |kind: &&Kind| kind.group.is_empty() && kind.resource == "pods";
    // The table of kinds is constant, and a test checks that it contains pods.
    kinds::built_in().iter().find(is_pods).cloned().expect("pods are built in")
});

const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];
const TOLERATED: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const TOLERATED_SECONDS: i64 = 300;

/// Admits or rejects a new pod.
pub(super) fn pod(pod: &mut Value, objects: &dyn Lookup) -> Result<()> {
    if !pod.get("spec").is_some_and(Value::is_object) {
        return Ok(());
    }
    let node = text_at(pod, "/spec/nodeName");
    if !node.is_empty() {
        let labels = topology_labels(node, objects);
        set_labels(pod, labels);
    }
    let ranges = limits::ranges(pod, objects);
    for range in &ranges {
        limits::default(pod, range);
    }
    priority(pod, objects)?;
    tolerations(pod);
    let has_class_overhead = runtime_class(pod, objects)?;
    match ranges.iter().find_map(|range| limits::refusal(pod, range)) {
        None if has_class_overhead || present(&pod["spec"], "overhead").is_none() => Ok(()),
        // Upstream validates the pod's own fields first.
        _ if !validate::create(pod).is_empty() => Ok(()),
        Some(why) => Err(forbidden(pod, why)),
        None => {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            Err(forbidden(pod, why))
        }
    }
}

/// The labels that pods copy from their node.
pub(super) fn topology_labels(node: &str, objects: &dyn Lookup) -> Vec<(&'static str, Value)> {
    objects.labels("", "nodes", "", node, &TOPOLOGY)
}

/// Sets labels, overwriting existing ones.
pub(super) fn set_labels(pod: &mut Value, labels: Vec<(&'static str, Value)>) {
    if labels.is_empty() {
        return;
    }
    if let Some(own) = pod.get_mut("metadata").and_then(|metadata| object_mut(metadata, "labels")) {
        own.extend(labels.into_iter().map(|(key, value)| (key.to_owned(), value)));
    }
}

/// By default a pod tolerates an unready or unreachable node for a while.
pub(super) fn tolerations(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    let tolerates = |key: &str| {
        list(spec, "tolerations").iter().any(|toleration| {
            let (own, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (own.is_empty() || own == key) && (effect.is_empty() || effect == "NoExecute")
        })
    };
    let missing: Vec<Value> = TOLERATED
        .into_iter()
        .filter(|key| !tolerates(key))
        .map(|key| {
            json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED_SECONDS,
            })
        })
        .collect();
    if !missing.is_empty() {
        append(spec, "tolerations", missing);
    }
}

fn append(object: &mut Value, field: &str, items: Vec<Value>) {
    if let Some(list) = object.get_mut(field).and_then(Value::as_array_mut) {
        list.extend(items);
    } else {
        object[field] = items.into();
    }
}

fn forbidden(pod: &Value, why: impl std::fmt::Display) -> Status {
    priority_class::forbidden(&KIND, pod, why)
}

/// Sets the priority from the pod's class, or from the default class.
fn priority(pod: &mut Value, objects: &dyn Lookup) -> Result<()> {
    let different = |given: i64, computed: i64| {
        format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
             controller computed {computed} from the given PriorityClass name"
        )
    };
    priority_class::admit(pod, "pod", different, forbidden, objects)
}

/// Sets the overhead and node selector of the pod's runtime class. Returns whether there is an
/// overhead.
fn runtime_class(pod: &mut Value, objects: &dyn Lookup) -> Result<bool> {
    let class = match text_at(pod, "/spec/runtimeClassName") {
        "" => None,
        name => {
            let class = objects.get("node.k8s.io", "runtimeclasses", "", name);
            let missing = || forbidden(pod, format!("pod rejected: RuntimeClass {name:?} not found"));
            Some(class.ok_or_else(missing)?)
        }
    };
    let fixed = class.as_ref().and_then(|class| class.pointer("/overhead/podFixed"));
    let has_overhead = pod["spec"].get("overhead").and_then(Value::as_object).is_some();
    if let Some(fixed) = fixed {
        if has_overhead && !same_amounts(&pod["spec"]["overhead"], fixed) {
            let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
            return Err(forbidden(pod, why));
        }
        pod["spec"]["overhead"] = fixed.clone();
    }
    let Some(scheduling) = class.as_ref().and_then(|class| class.get("scheduling")) else {
        return Ok(fixed.is_some());
    };
    for (key, value) in entries(scheduling, "nodeSelector") {
        let own = pod["spec"].get("nodeSelector").and_then(|selector| selector.get(key));
        if let Some(own) = own.filter(|own| *own != value) {
            let (own, value) = (own.as_str().unwrap_or_default(), value.as_str().unwrap_or_default());
            return Err(forbidden(
                pod,
                format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
                ),
            ));
        }
        if let Some(selector) = object_mut(&mut pod["spec"], "nodeSelector") {
            selector.insert(key.to_owned(), value.clone());
        }
    }
    let own = list(&pod["spec"], "tolerations");
    let more: Vec<Value> =
        list(scheduling, "tolerations").iter().filter(|item| !own.contains(item)).cloned().collect();
    if !more.is_empty() {
        append(&mut pod["spec"], "tolerations", more);
    }
    Ok(fixed.is_some())
}

fn same_amounts(own: &Value, other: &Value) -> bool {
    let amounts = |value: &Value| -> Vec<(String, Quantity)> {
        let map = value.as_object();
        let mut all: Vec<_> =
            map.into_iter().flatten().map(|(name, amount)| (name.clone(), Quantity::of(amount))).collect();
        all.sort();
        all
    };
    amounts(own) == amounts(other)
}
