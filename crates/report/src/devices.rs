//! Devices by class and node.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use supercargo_devices::{CensusKey, Tally, census};
use supercargo_framework::objects::{ObjectBody as _, Objects, ResourceClaim, resources};
use supercargo_scheduler::Fork;

/// All devices, and how many claims have some.
pub fn devices(fork: &Fork) -> Value {
    let (allocated, waiting) = claims(fork.objects());
    let census = census(fork.objects(), fork.features(), None);
    json!({
        "kind": "Devices",
        "allocatedClaims": allocated,
        "waitingClaims": waiting,
        "devices": rows(&census.tallies),
        "cut": census.is_cut,
    })
}

/// The devices of one node.
pub(crate) fn devices_of(fork: &Fork, node: &str) -> Vec<Value> {
    rows(&census(fork.objects(), fork.features(), Some(node)).tallies)
}

/// How many claims have devices, also those of pods in binding, and how many have none.
fn claims(objects: &Objects) -> (usize, usize) {
    let has_devices = objects.list(&resources::RESOURCE_CLAIM).filter_map(|claim| {
        let is_allocated = ResourceClaim::of(&claim.body)?.allocation.is_some();
        Some(is_allocated || objects.pending(&claim.uid).is_some())
    });
    let (allocated, waiting): (Vec<bool>, Vec<bool>) = has_devices.partition(|has_devices| *has_devices);
    (allocated.len(), waiting.len())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use supercargo_framework::objects::{Body, ClaimAllocation};
    use supercargo_framework::testing::{object, objects};

    use super::*;

    #[test]
    fn a_claim_in_binding_does_not_wait() {
        let claim = |name: &str, allocation| {
            let claim = ResourceClaim { allocation, ..ResourceClaim::default() };
            object(&resources::RESOURCE_CLAIM, name, Body::ResourceClaim(claim))
        };
        let allocation = || Some(ClaimAllocation::default());
        let mut objects = objects([claim("ns/a", None), claim("ns/b", None), claim("ns/c", allocation())]);
        assert_eq!(claims(&objects), (1, 2));
        assert!(objects.add_pending(Arc::new(claim("ns/b", allocation()))));
        assert_eq!(claims(&objects), (2, 1));
    }
}
