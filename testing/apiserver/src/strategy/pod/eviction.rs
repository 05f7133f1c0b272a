//! Eviction: the deletion of pods subject to disruption budgets.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::traits::Lookup;
use super::{conditions, is_going, pdb};
use crate::json::{int, list, object_mut, present, text, text_at};
use crate::status::{Details, Result, Status, StatusCause};
use crate::time::timestamp;

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// The maximum number of pods that are disrupted at a time.
const MOST_DISRUPTED: usize = 2000;

/// The outcome of an allowed eviction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Eviction {
    /// The budget with its new status, to be stored before the deletion of the pod.
    pub budget: Option<Value>,
    /// Whether the deletion requires the current version of the pod. If the pod has changed, the
    /// eviction starts over.
    pub only_this_version: bool,
}

/// Checks an `Eviction` against the name in the path.
pub(crate) fn check(eviction: &Value, name: &str) -> Result<()> {
    if text_at(eviction, "/metadata/name") == name {
        Ok(())
    } else {
        Err(Status::bad_request("name in URL does not match name in Eviction object"))
    }
}

/// Decides by the budgets of the namespace whether a pod may be evicted.
pub(crate) fn decide(pod: &Value, objects: &dyn Lookup, now: Timestamp) -> Result<Eviction> {
    let phase = text_at(pod, "/status/phase");
    let is_over = matches!(phase, "Succeeded" | "Failed") || is_going(pod);
    if is_over || phase == "Pending" {
        return Ok(Eviction { budget: None, only_this_version: !is_over });
    }
    let namespace = text_at(pod, "/metadata/namespace");
    let mut budgets = objects.list("policy", "poddisruptionbudgets", namespace);
    budgets.retain(|budget| pdb::covers(budget, pod));
    if budgets.len() > 1 {
        return Err(Status {
            code: StatusCode::INTERNAL_SERVER_ERROR,
            reason: "",
            message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                .to_owned(),
            details: Box::default(),
        });
    }
    let Some(mut budget) = budgets.pop() else {
        return Ok(Eviction { budget: None, only_this_version: false });
    };
    if !pdb::is_kept(&budget) {
        let pods = objects.list("", "pods", namespace);
        let status = pdb::compute_status(&budget, &pods, objects, now);
        budget["status"] = status;
    } else if is_behind(&budget) {
        return Err(being_processed(&budget));
    }
    if !conditions::is_true(pod, "Ready") && may_go_unhealthy(&budget) {
        return Ok(Eviction { budget: None, only_this_version: true });
    }
    take(&mut budget, text_at(pod, "/metadata/name"), &timestamp(now))?;
    Ok(Eviction { budget: Some(budget), only_this_version: false })
}

/// Marks a pod as evicted.
pub(crate) fn mark(pod: &mut Value, now: &str) {
    let why = ("EvictionByEvictionAPI", "Eviction API: evicting");
    conditions::set(pod, "DisruptionTarget", "True", why, now);
}

/// The error for a pod that changed during its eviction.
pub(crate) fn being_processed(budget: &Value) -> Status {
    let name = text_at(budget, "/metadata/name");
    let why = format!("The disruption budget {name} is still being processed by the server.");
    refused(why, 10)
}

/// Whether the budget changed after its status was computed.
fn is_behind(budget: &Value) -> bool {
    let of = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    of("/status/observedGeneration") < of("/metadata/generation")
}

/// Whether unready pods may be evicted regardless of the budget.
fn may_go_unhealthy(budget: &Value) -> bool {
    let status = &budget["status"];
    let of = |field| int(status, field).unwrap_or_default();
    text_at(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow"
        || (of("currentHealthy") >= of("desiredHealthy") && of("desiredHealthy") > 0)
}

/// Takes one disruption from the budget, or rejects the eviction.
fn take(budget: &mut Value, pod: &str, now: &str) -> Result<()> {
    let name = text_at(budget, "/metadata/name").to_owned();
    let status = &budget["status"];
    let allowed = int(status, "disruptionsAllowed").unwrap_or_default();
    let disrupted =
        present(status, "disruptedPods").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    if allowed < 0 {
        return Err(forbidden(&name, "pdb disruptions allowed is negative"));
    }
    if disrupted > MOST_DISRUPTED {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(forbidden(&name, why));
    }
    if allowed == 0 {
        return Err(refused(why_not(&name, status), 0));
    }
    let Some(status) = budget.get_mut("status") else { return Ok(()) };
    status["disruptionsAllowed"] = (allowed - 1).into();
    if allowed == 1 {
        pdb::set_condition(status, now);
    }
    if let Some(disrupted) = object_mut(status, "disruptedPods") {
        disrupted.insert(pod.to_owned(), now.into());
    }
    Ok(())
}

fn why_not(name: &str, status: &Value) -> String {
    let of = |field| int(status, field).unwrap_or_default();
    let own = |condition: &&Value| text(condition, "type") == "DisruptionAllowed";
    let condition = list(status, "conditions")
        .iter()
        .find(own)
        .filter(|condition| text(condition, "status") == "False" && !text(condition, "message").is_empty());
    match condition {
        Some(condition) if text(condition, "reason") == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            text(condition, "message")
        ),
        _ if of("currentHealthy") <= of("desiredHealthy") => format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            of("desiredHealthy"),
            of("currentHealthy")
        ),
        Some(condition) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            text(condition, "reason"),
            text(condition, "message")
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

fn refused(why: String, seconds: u32) -> Status {
    let cause = StatusCause { reason: "DisruptionBudget", message: why, field: String::new() };
    Status::too_many_requests(REFUSED, seconds).because(vec![cause])
}

fn forbidden(name: &str, why: &str) -> Status {
    const RESOURCE: &str = "poddisruptionbudget";
    Status {
        code: StatusCode::FORBIDDEN,
        reason: "Forbidden",
        message: format!("{RESOURCE}.policy {name:?} is forbidden: {why}"),
        details: Box::new(Details {
            name: name.to_owned(),
            group: "policy".to_owned(),
            kind: RESOURCE.to_owned(),
            ..Details::default()
        }),
    }
}

/// The response to a successful eviction.
pub(crate) fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
