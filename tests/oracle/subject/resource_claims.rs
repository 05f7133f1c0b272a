//! The API server's part in writes to ResourceClaims.

use serde_json::{Value, json};
use supercargo_framework::binding::{ApiError, Certainty};

use super::world::{World, modified, not_found, pruned};
use crate::oracle::answer::Write;
use crate::oracle::history::Reference;

const RESOURCE: &str = "resourceclaims";
/// Its name in messages.
const FULL_RESOURCE: &str = "resourceclaims.resource.k8s.io";

/// A claim and whether the request is for its status, from the path of a request. All claims of a
/// namespace have no name.
fn target(path: &str) -> Option<(Reference, bool)> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let ["apis", "resource.k8s.io", version, "namespaces", namespace, RESOURCE, ref rest @ ..] = parts[..]
    else {
        return None;
    };
    let claim = Reference {
        api_version: format!("resource.k8s.io/{version}"),
        kind: "ResourceClaim".to_owned(),
        namespace: namespace.to_owned(),
        name: rest.first().copied().unwrap_or_default().to_owned(),
    };
    Some((claim, rest.get(1) == Some(&"status")))
}

impl World {
    /// A request for a claim: creates, reads or deletes it, replaces it or its status, or patches
    /// its status. `None` if the path is of something else.
    pub(super) fn resource_claim_request(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Option<Result<Value, ApiError>> {
        let (mut claim, is_status) = target(path)?;
        let verb = match (method, is_status) {
            ("GET", false) => {
                return Some(self.get(&claim).cloned().ok_or_else(|| not_found(FULL_RESOURCE, &claim.name)));
            }
            ("POST", false) => "create",
            ("DELETE", false) => "delete",
            ("PUT", false) => "update",
            ("PUT", true) => "update status",
            ("PATCH", true) => "patch status",
            _ => return None,
        };
        if verb == "create" {
            body["metadata"]["generateName"].as_str().unwrap_or_default().clone_into(&mut claim.name);
        }
        self.writes.push(Write {
            verb: verb.to_owned(),
            resource: RESOURCE.to_owned(),
            name: claim.name.clone(),
            body: body.clone(),
        });
        Some(match verb {
            "create" => Ok(self.create_resource_claim(claim, body)),
            "delete" => self.delete_resource_claim(&claim),
            _ => self.write_resource_claim(&claim, method, is_status, body),
        })
    }

    /// Creates a claim whose name begins with that of the reference.
    fn create_resource_claim(&mut self, mut claim: Reference, body: &Value) -> Value {
        let version = self.new_version();
        claim.name.push_str(&version);
        let mut new = body.clone();
        new["metadata"]["name"] = json!(claim.name);
        new["metadata"]["uid"] = json!(format!("uid-{version}"));
        new["metadata"]["resourceVersion"] = json!(version);
        self.apply(new);
        self.get(&claim).cloned().unwrap_or_default()
    }

    fn delete_resource_claim(&mut self, claim: &Reference) -> Result<Value, ApiError> {
        let deleted = self.get(claim).cloned().ok_or_else(|| not_found(FULL_RESOURCE, &claim.name))?;
        self.delete(claim);
        Ok(deleted)
    }

    fn write_resource_claim(
        &mut self,
        claim: &Reference,
        method: &str,
        is_status: bool,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let known = self.get(claim).ok_or_else(|| not_found(FULL_RESOURCE, &claim.name))?;
        let mut new = known.clone();
        if method == "PATCH" {
            let (wanted, found) = (&body["metadata"]["uid"], &known["metadata"]["uid"]);
            if wanted != found {
                let (wanted, found) = (wanted.as_str().unwrap_or(""), found.as_str().unwrap_or(""));
                let message = format!(
                    "Operation cannot be fulfilled on {FULL_RESOURCE} {:?}: Precondition failed: UID in \
                     precondition: {wanted}, UID in object meta: {found}",
                    claim.name
                );
                return Err(ApiError { certainty: Certainty::Conflict, message });
            }
            drop_reservations(&mut new, &body["status"]["reservedFor"]);
        } else {
            if known["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                return Err(modified(FULL_RESOURCE, &claim.name));
            }
            if is_status {
                new["status"] = body["status"].clone();
            } else {
                new = body.clone();
                new["status"] = known["status"].clone();
            }
        }
        // A write without a change has no effect.
        if pruned(known) != pruned(&new) {
            self.write(claim, |object| *object = new);
        }
        Ok(self.get(claim).cloned().unwrap_or_default())
    }
}

/// The strategic merge patch of a list of consumers, of which the scheduler only deletes.
fn drop_reservations(claim: &mut Value, patch: &Value) {
    let deletions = patch.as_array().into_iter().flatten().filter(|entry| entry["$patch"] == "delete");
    for deletion in deletions {
        if let Some(reserved) = claim["status"]["reservedFor"].as_array_mut() {
            reserved.retain(|consumer| consumer["uid"] != deletion["uid"]);
        }
    }
    if claim["status"]["reservedFor"] == json!([])
        && let Some(status) = claim["status"].as_object_mut()
    {
        status.remove("reservedFor");
    }
}
