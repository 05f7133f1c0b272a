//! Properties of a pod's spec that several checks use.

use serde_json::Value;

use crate::json::{list, text};

/// The annotation of mirror pods.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// The owner of a spec: a pod or a template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpecOwner<'a> {
    /// The pod's annotations and name; `None` for a template.
    pub pod: Option<&'a Value>,
}

/// Whether the pod is a mirror of a static pod.
pub(super) fn is_mirror(pod: &Value) -> bool {
    pod.pointer("/metadata/annotations").is_some_and(|annotations| annotations.get(MIRROR).is_some())
}

/// The names of a pod's resource claims.
pub(super) fn claim_names(spec: &Value) -> Vec<&str> {
    let claims = list(spec, "resourceClaims").iter().map(|claim| text(claim, "name"));
    claims.filter(|name| !name.is_empty()).collect()
}
