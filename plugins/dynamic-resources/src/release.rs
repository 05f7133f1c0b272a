//! Requests that give claims back.

use serde_json::{Value, json};
use supercargo_framework::binding::ApiCall;
use supercargo_framework::objects::Object;
use supercargo_framework::{Command, PodInfo};

use super::write::{Written, path};

/// Takes the allocation of a claim away, and every reservation. If it fails, the pod is tried
/// again.
pub(super) fn deallocate(claim: &Object, pod: &PodInfo) -> Command {
    let mut written = Written::of(claim);
    written.deallocate();
    let call = request("PUT", claim, "application/json", written.into_value());
    Command::Write {
        resource: claim.resource.clone(),
        call,
        then: None,
        pod: Some(pod.uid.clone()),
        retries: true,
    }
}

/// Deletes a claim that the scheduler has created, its finalizer first. If it fails, `pod` is tried
/// again.
pub(super) fn delete(claim: &Object, pod: Option<&PodInfo>) -> Command {
    let mut written = Written::of(claim);
    written.remove_finalizer();
    Command::Write {
        resource: claim.resource.clone(),
        call: ApiCall::request("PUT", path(claim, ""), "application/json", written.into_value()),
        then: Some(ApiCall::request("DELETE", path(claim, ""), "application/json", Value::Null)),
        pod: pod.map(|pod| pod.uid.clone()),
        retries: true,
    }
}

/// Removes the reservation with this UID, for the pod. The patch names the entry alone, so that it
/// does not depend on the version of the claim.
pub(super) fn unreserve(claim: &Object, uid: &str, pod: &PodInfo) -> Command {
    let patch = json!({
        "metadata": { "uid": claim.uid },
        "status": { "reservedFor": [{ "$patch": "delete", "uid": uid }] },
    });
    let call = request("PATCH", claim, "application/strategic-merge-patch+json", patch);
    Command::Write {
        resource: claim.resource.clone(),
        call,
        then: None,
        pod: Some(pod.uid.clone()),
        retries: false,
    }
}

fn request(method: &str, claim: &Object, content_type: &str, body: Value) -> ApiCall {
    ApiCall::request(method, path(claim, "/status"), content_type, body)
}
