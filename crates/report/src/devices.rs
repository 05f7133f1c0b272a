//! Devices by class and node.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use supercargo_devices::{CensusKey, Tally, census};
use supercargo_framework::objects::{ObjectBody as _, ResourceClaim, resources};
use supercargo_scheduler::Fork;

/// All devices, and how many claims have some.
pub fn devices(fork: &Fork) -> Value {
    let claims = fork.objects().list(&resources::RESOURCE_CLAIM);
    let claims = claims.filter_map(|claim| ResourceClaim::of(&claim.body));
    let (allocated, waiting): (Vec<_>, Vec<_>) = claims.partition(|claim| claim.allocation.is_some());
    json!({
        "kind": "Devices",
        "allocatedClaims": allocated.len(),
        "waitingClaims": waiting.len(),
        "devices": rows(&census(fork.objects())),
    })
}

/// The devices of one node.
pub fn devices_of(fork: &Fork, node: &str) -> Vec<Value> {
    let mut census = census(fork.objects());
    census.retain(|(_, place), _| place.as_deref() == Some(node));
    rows(&census)
}

fn rows(census: &BTreeMap<CensusKey, Tally>) -> Vec<Value> {
    let row = |((class, node), tally): (&CensusKey, &Tally)| {
        json!({
            "class": class,
            "node": node,
            "allocated": tally.allocated,
            "tainted": tally.tainted,
            "free": tally.free,
        })
    };
    census.iter().map(row).collect()
}
