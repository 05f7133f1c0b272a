//! Pods of a group share claims.

use std::collections::BTreeSet;
use std::sync::Arc;

use supercargo_framework::objects::{
    AllocationResult, Body, ClaimRequest, Device, DeviceClass, DevicePlace, DeviceRequest, Object,
    RequestChoice, ResourceClaim, ResourceSlice, resources,
};
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::testing::{PodBuilder, object};
use supercargo_framework::{Status, Uid};

use super::groups::{gang, group_options, member, with_cpus};
use super::test_bed::TestBed;
use crate::{Input, Notification};

/// Nodes `n0` and `n1` with two devices each, and these claims for one of them.
fn bed(claims: &[&str]) -> TestBed {
    let mut bed = TestBed::of(group_options(|name| name != "DefaultPreemption"));
    let mut add = |object: Object| bed.handle(Input::Object(Notification::Added(Arc::new(object))));
    add(object(&resources::DEVICE_CLASS, "gpu", Body::DeviceClass(DeviceClass::default())));
    for node in ["n0", "n1"] {
        let device = |name: &str| Device { name: name.into(), ..Device::default() };
        let slice = ResourceSlice {
            driver: "gpu.example.com".into(),
            pool: node.into(),
            slice_count: 1,
            place: DevicePlace::Node(node.into()),
            devices: ["gpu-0", "gpu-1"].into_iter().map(device).collect(),
            ..ResourceSlice::default()
        };
        add(object(&resources::RESOURCE_SLICE, node, Body::ResourceSlice(slice)));
    }
    for name in claims {
        let request = DeviceRequest { class: "gpu".into(), ..DeviceRequest::default() };
        let request = ClaimRequest { name: "r".into(), choice: RequestChoice::Exactly(request) };
        let claim = ResourceClaim { requests: Box::new([request]), ..ResourceClaim::default() };
        add(object(&resources::RESOURCE_CLAIM, &format!("default/{name}"), Body::ResourceClaim(claim)));
    }
    for node in ["n0", "n1"] {
        bed.node(with_cpus(node, "4"));
    }
    bed
}

/// A member of group `g` with these claims.
fn with_claims(name: &str, claims: &[&str]) -> PodBuilder {
    let entry =
        |name: &&str| PodClaim { name: (*name).into(), source: PodClaimSource::Claim((*name).into()) };
    let claims: Box<[_]> = claims.iter().map(entry).collect();
    member(name, "1").with_spec(|spec| spec.rare.get_or_insert_default().resource_claims = claims)
}

/// The claims that are about to be allocated, with their device.
fn pending(bed: &TestBed) -> Vec<String> {
    let device = |claim: &Arc<Object>| match &claim.body {
        Body::ResourceClaim(ResourceClaim { allocation: Some(allocation), .. }) => {
            let AllocationResult { device, .. } = &allocation.results[0];
            format!("{} {}/{}", claim.name(), device.pool, device.device)
        }
        other => panic!("{other:?}"),
    };
    bed.scheduler.objects().list_pending().map(device).collect()
}

#[test]
fn pods_of_a_gang_share_what_one_of_them_is_about_to_get() {
    let mut bed = bed(&["c"]);
    bed.group(gang(3));
    let members = ["a", "b", "d"];
    for name in members {
        bed.pod(with_claims(name, &["c"]));
    }
    assert!(bed.cycle());
    let node = bed.node_of("a").unwrap().to_owned();
    assert_eq!(bed.nodes_of(&members), [&*node; 3].join(" "));
    let shared = [format!("c {node}/gpu-0")];
    for name in members {
        assert_eq!(pending(&bed), shared);
        bed.pre_bound(name, Status::error("no"));
    }
    assert!(pending(&bed).is_empty(), "no pod uses it");
}

#[test]
fn a_gang_that_fails_leaves_nothing_pending() {
    let mut bed = bed(&["c"]);
    bed.group(gang(5));
    // A node has room for four of them.
    for name in ["a", "b", "d", "e", "f"] {
        bed.pod(with_claims(name, &["c"]));
    }
    assert!(bed.cycle());
    assert_eq!(bed.node_of("a"), None);
    assert!(pending(&bed).is_empty());
}

/// Each is reserved twice: in the trial, and once more when the trial has succeeded.
#[test]
fn pods_of_a_gang_get_devices_of_their_own() {
    let mut bed = bed(&["c", "d", "e"]);
    bed.group(gang(3));
    for (pod, claim) in [("a", "c"), ("b", "d"), ("x", "e")] {
        bed.pod(with_claims(pod, &[claim]));
    }
    assert!(bed.cycle());
    let pending = pending(&bed);
    let devices: BTreeSet<_> = pending.iter().filter_map(|it| it.split_once(' ')).map(|(_, it)| it).collect();
    assert_eq!((pending.len(), devices.len()), (3, 3), "{pending:?}");
}

#[test]
fn a_pod_gets_its_own_device_beside_the_shared_one() {
    let mut bed = bed(&["c", "own"]);
    bed.group(gang(2));
    bed.pod(with_claims("a", &["c"]));
    bed.pod(with_claims("b", &["c", "own", "c"]));
    assert!(bed.cycle());
    let node = bed.node_of("a").unwrap().to_owned();
    assert_eq!(pending(&bed), [format!("c {node}/gpu-0"), format!("own {node}/gpu-1")]);
    bed.pre_bound("b", Status::error("no"));
    assert_eq!(pending(&bed), [format!("c {node}/gpu-0")]);
}

#[test]
fn pods_of_another_cycle_wait_until_the_claim_is_allocated() {
    let mut bed = bed(&["c"]);
    bed.group(gang(1));
    bed.pod(with_claims("a", &["c"]));
    assert!(bed.cycle());
    bed.effect_lines();
    bed.pod(with_claims("b", &["c"]));
    assert!(bed.cycle());
    let lines = bed.effect_lines();
    let reason = "resource claim default/c is in the process of being allocated";
    assert!(lines.iter().any(|line| line.contains(reason)), "{lines:?}");
    assert!(bed.scheduler.queued(&Uid::from("b")).is_some());
}
