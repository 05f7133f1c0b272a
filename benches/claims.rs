//! Devices of nodes, and ResourceClaims of pods as kube-controller-manager makes them of a
//! template.

use serde_json::{Value, json};

/// The name of a pod's only claim within the pod.
const CLAIM: &str = "claim";

/// The ResourceSlices of a node, of these templates. They are a pool with the node's name.
pub fn slices(templates: &[Value], node: &str) -> impl Iterator<Item = Value> {
    templates.iter().enumerate().map(move |(number, slice)| {
        let mut slice = slice.clone();
        slice["metadata"]["name"] = json!(format!("{node}-slice-{number}"));
        slice["spec"]["nodeName"] = json!(node);
        slice["spec"]["pool"] =
            json!({ "name": node, "generation": 1, "resourceSliceCount": templates.len() });
        slice
    })
}

/// The name of a pod's claim.
pub fn claim_name(pod: &str) -> String {
    format!("{pod}-{CLAIM}")
}

/// Makes a pod that is created want a claim of a template.
pub fn want_claim(pod: &mut Value) {
    pod["spec"]["resourceClaims"] = json!([{ "name": CLAIM, "resourceClaimTemplateName": "template" }]);
}

/// The part of a pod's status that names its claim.
pub fn claim_statuses(pod: &str) -> Value {
    json!([{ "name": CLAIM, "resourceClaimName": claim_name(pod) }])
}

/// The claim of a pod.
pub fn claim(template: &Value, namespace: &str, pod: &str, uid: &str) -> Value {
    let mut claim = template.clone();
    claim["metadata"]["name"] = json!(claim_name(pod));
    claim["metadata"]["namespace"] = json!(namespace);
    claim["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": true,
    }]);
    claim
}
