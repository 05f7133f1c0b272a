//! Tests of the decoders.

mod devices;
mod equivalence;
mod errors;
mod features;
mod full;
mod generate;
mod nodes;
mod objects;
mod pods;
mod protobuf;
mod raw;
mod sharing;

use super::{NodeKind, PodKind};
use serde_json::Value;

/// The annotations that the kinds in these tests keep.
const DECLARED: [&str; 3] = ["example.com/declared", "a", "example.com/key"];

fn pod_kind() -> PodKind {
    PodKind::new(DECLARED)
}

fn node_kind() -> NodeKind {
    NodeKind::new(DECLARED)
}

/// A pod of a deployment as the API server sends it.
const TYPICAL_POD: &[u8] = include_bytes!("tests/fixtures/pod-typical.json");
/// A bound pod with a sidecar, an image volume and a resize in progress.
const RUNNING_POD: &[u8] = include_bytes!("tests/fixtures/pod-running.json");
/// A pending pod with every constraint.
const PENDING_POD: &[u8] = include_bytes!("tests/fixtures/pod-pending.json");
const NODE: &[u8] = include_bytes!("tests/fixtures/node.json");

/// A pod `default/p` with this spec and status.
fn pod_json(spec: Value, status: Value) -> Vec<u8> {
    let metadata = serde_json::json!({"namespace": "default", "name": "p", "uid": "u"});
    serde_json::json!({"metadata": metadata, "spec": spec, "status": status}).to_string().into_bytes()
}
