//! Disruption budgets, computed like upstream's disruption controller.
//!
//! The controller is not part of this server. The status of a budget that no controller has
//! observed (`observedGeneration` is not set) is computed from the current pods; otherwise the
//! stored status is used.

use std::cmp::max;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::labels;
use super::super::traits::Lookup;
use super::{conditions, is_going};
use crate::json::{entries, flag, int, list, present, text, text_at};
use crate::time::timestamp;

/// How long an evicted pod that still exists counts as disrupted.
const PATIENCE_SECONDS: i64 = 120;

/// Whether a controller maintains the status of a budget.
pub(crate) fn is_kept(budget: &Value) -> bool {
    budget.get("status").and_then(|status| int(status, "observedGeneration")).is_some()
}

/// Whether a budget covers a pod.
pub(crate) fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = budget.get("spec").and_then(|spec| present(spec, "selector"));
    let labels = pod.pointer("/metadata/labels").unwrap_or(&Value::Null);
    let is_here = text_at(budget, "/metadata/namespace") == text_at(pod, "/metadata/namespace");
    is_here && selector.is_some_and(|selector| labels::selects(selector, labels))
}

/// Computes the status of a budget from the pods of its namespace and the replicas of their
/// controllers.
pub(crate) fn compute_status<'a>(
    budget: &Value,
    pods: impl IntoIterator<Item = &'a Value>,
    objects: &dyn Lookup,
    now: Timestamp,
) -> Value {
    let covered: Vec<&Value> = pods.into_iter().filter(|pod| covers(budget, pod)).collect();
    let disrupted = still_disrupted(budget, &covered, now);
    let is_healthy = |pod: &&&Value| {
        let name = text_at(pod, "/metadata/name");
        !is_going(pod) && !disrupted.contains_key(name) && conditions::is_true(pod, "Ready")
    };
    let current = covered.iter().filter(is_healthy).count().try_into().unwrap_or(i64::MAX);
    let (expected, desired) = wanted(budget, &covered, objects);
    let allowed = if expected == 0 { 0 } else { max(0, current - desired) };
    let mut status = json!({
        "currentHealthy": current,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = Value::Object(disrupted);
    }
    if let Some(known) = budget.pointer("/status/conditions") {
        status["conditions"] = known.clone();
    }
    set_condition(&mut status, &timestamp(now));
    status
}

/// Recently evicted pods that still exist.
fn still_disrupted(budget: &Value, covered: &[&Value], now: Timestamp) -> Map<String, Value> {
    let Some(status) = budget.get("status") else { return Map::new() };
    let is_recent = |since: &Value| {
        let since = since.as_str().and_then(|since| since.parse::<Timestamp>().ok());
        since.is_some_and(|since| now.as_second() - since.as_second() <= PATIENCE_SECONDS)
    };
    let is_there =
        |name: &str| covered.iter().any(|pod| !is_going(pod) && text_at(pod, "/metadata/name") == name);
    entries(status, "disruptedPods")
        .filter(|(name, since)| is_there(name) && is_recent(since))
        .map(|(name, since)| (name.to_owned(), since.clone()))
        .collect()
}

/// The expected number of pods, and the number that must be healthy.
fn wanted(budget: &Value, covered: &[&Value], objects: &dyn Lookup) -> (i64, i64) {
    let null = Value::Null;
    let spec = budget.get("spec").unwrap_or(&null);
    let count = covered.len().try_into().unwrap_or(i64::MAX);
    if let Some(most) = present(spec, "maxUnavailable") {
        let expected = expected_by_controllers(covered, objects);
        return (expected, max(0, expected - scaled(most, expected)));
    }
    match present(spec, "minAvailable") {
        Some(least @ Value::String(_)) => {
            let expected = expected_by_controllers(covered, objects);
            (expected, scaled(least, expected))
        }
        Some(least) => (count, least.as_i64().unwrap_or_default()),
        None => (count, 0),
    }
}

/// A number, or a percentage of the total, rounded up.
fn scaled(value: &Value, whole: i64) -> i64 {
    if let Some(number) = value.as_i64() {
        return number;
    }
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse().ok());
    let product = whole.saturating_mul(percent.unwrap_or_default());
    product / 100 + i64::from(product % 100 > 0)
}

/// The sum of the replicas of the pods' controllers; a pod without a controller counts as one.
fn expected_by_controllers(covered: &[&Value], objects: &dyn Lookup) -> i64 {
    let mut known: Vec<String> = Vec::new();
    let mut expected = 0_i64;
    for pod in covered {
        match controller(pod, objects) {
            Some((uid, _)) if known.contains(&uid) => {}
            Some((uid, replicas)) => {
                known.push(uid);
                expected = expected.saturating_add(replicas);
            }
            None => expected = expected.saturating_add(1),
        }
    }
    expected
}

/// The UID and replicas of an object's topmost controller.
fn controller(object: &Value, objects: &dyn Lookup) -> Option<(String, i64)> {
    let namespace = text_at(object, "/metadata/namespace");
    let metadata = object.get("metadata")?;
    let owner = list(metadata, "ownerReferences").iter().find(|owner| flag(owner, "controller"))?;
    let (group, resource) = match (text(owner, "kind"), text(owner, "apiVersion")) {
        ("ReplicaSet", version) if version.starts_with("apps/") => ("apps", "replicasets"),
        ("StatefulSet", version) if version.starts_with("apps/") => ("apps", "statefulsets"),
        ("Deployment", version) if version.starts_with("apps/") => ("apps", "deployments"),
        ("ReplicationController", "v1") => ("", "replicationcontrollers"),
        _ => return None,
    };
    let own = objects.get(group, resource, namespace, text(owner, "name"))?;
    if text_at(&own, "/metadata/uid") != text(owner, "uid") {
        return None;
    }
    let above = if resource == "replicasets" { controller(&own, objects) } else { None };
    above.or_else(|| {
        let replicas = own.get("spec").and_then(|spec| int(spec, "replicas")).unwrap_or(1);
        Some((text(owner, "uid").to_owned(), replicas))
    })
}

/// Sets the condition for whether disruptions are allowed. `now` is in the format of the API.
pub(crate) fn set_condition(status: &mut Value, now: &str) {
    let allowed = int(status, "disruptionsAllowed").unwrap_or_default() > 0;
    let (state, reason) = if allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let mut condition = json!({
        "type": "DisruptionAllowed", "status": state, "reason": reason, "message": "",
        "lastTransitionTime": now,
    });
    if let Some(generation) = int(status, "observedGeneration") {
        condition["observedGeneration"] = generation.into();
    }
    let is_own = |condition: &&mut Value| text(condition, "type") == "DisruptionAllowed";
    let known = status.get_mut("conditions").and_then(Value::as_array_mut);
    match known {
        None => status["conditions"] = json!([condition]),
        Some(known) => match known.iter_mut().find(is_own) {
            None => known.push(condition),
            Some(own) => {
                if text(own, "status") == state {
                    condition["lastTransitionTime"] = own["lastTransitionTime"].clone();
                }
                *own = condition;
            }
        },
    }
}
