//! Where a pod waits.

use serde_json::{Value, json};
use supercargo_framework::Timestamp;
use supercargo_scheduler::{Fork, Place};

use super::Parameters;

/// The place of a pod in the queue, and its attempts. Without a place, it is in no queue.
pub(super) fn pod(fork: &Fork, parameters: &Parameters) -> Option<Value> {
    let (namespace, name) = (parameters.get("namespace")?, parameters.get("name")?);
    let found = fork.waiting().find(|(_, it)| *it.pod.namespace == **namespace && *it.pod.name == **name);
    let Some((place, queued)) = found else { return Some(json!({ "kind": "Pod", "place": null })) };
    let place = match place {
        Place::Active => "active",
        Place::Backoff => "backoff",
        Place::Unschedulable => "unschedulable",
        Place::Gated => "gated",
        Place::InFlight => "in flight",
        Place::Aside => "with its group",
    };
    Some(json!({
        "kind": "Pod",
        "place": place,
        "attempts": queued.attempts,
        "since": queued.timestamp.to_rfc3339(),
        "firstTried": queued.initial_attempt.map(Timestamp::to_rfc3339),
        "backoffUntil": queued.backoff_until.map(Timestamp::to_rfc3339),
        "priority": queued.pod.priority,
    }))
}
