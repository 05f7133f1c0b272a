//! Where a pod waits.

use serde_json::{Value, json};
use supercargo_framework::Timestamp;
use supercargo_scheduler::{Fork, Place};

/// The place of a pod in the queue, and its attempts. Without a place, it is in no queue.
pub fn place(fork: &Fork, namespace: &str, name: &str) -> Value {
    let found = fork.waiting().find(|(_, it)| *it.pod.namespace == *namespace && *it.pod.name == *name);
    let Some((place, queued)) = found else { return json!({ "kind": "Pod", "place": null }) };
    let place = match place {
        Place::Active => "active",
        Place::Backoff => "backoff",
        Place::Unschedulable => "unschedulable",
        Place::Gated => "gated",
        Place::InFlight => "in flight",
        Place::Aside => "with its group",
    };
    json!({
        "kind": "Pod",
        "place": place,
        "attempts": queued.attempts,
        "since": queued.timestamp.to_rfc3339(),
        "firstTried": queued.initial_attempt.map(Timestamp::to_rfc3339),
        "backoffUntil": queued.backoff_until.map(Timestamp::to_rfc3339),
        "priority": queued.pod.priority,
    })
}
