//! ResourceClaims in what-if and in counts of pods that fit.

use std::sync::Arc;

use serde_json::json;
use supercargo_framework::Status;
use supercargo_framework::binding::{ApiCall, BindOutcome};
use supercargo_framework::objects::{Object, ObjectBody as _, ResourceClaim, resources};
use supercargo_framework::pod::{OwnerRef, RareSpec};
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource, PodClaimStatus, PodClaimStatuses};
use supercargo_framework::testing::PodBuilder;
use supercargo_framework::volume::{Volume, VolumeSource};

use super::devices::{claim_named, claiming_named, class, requesting, slice};
use super::fits::{asks, with_cpus};
use super::test_bed::{TestBed, all_plugins, options};
use super::what_if::{key, lines, owned, what_if};
use crate::{Input, Notification, Verb, WhyError};

/// Nodes with as many whole devices each. The class provides an extended resource, too.
fn bed(nodes: &[usize]) -> TestBed {
    let mut bed = TestBed::of(options(all_plugins(Vec::new())));
    add(&mut bed, class(true));
    for (node, devices) in nodes.iter().enumerate() {
        bed.node(with_cpus(&format!("n{node}"), 64));
        add(&mut bed, slice(node, *devices));
    }
    bed
}

fn add(bed: &mut TestBed, object: Object) {
    bed.handle(Input::Object(Notification::Added(Arc::new(object))));
}

/// A pod of a ReplicaSet with a claim that was made for it.
fn with_own_claim(bed: &mut TestBed, name: &str) -> PodBuilder {
    let claim = format!("{name}-gpu-x");
    let object = claim_named(&claim, 1, 1, None);
    let owner = OwnerRef {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: name.into(),
        uid: (*asks(name, 1).build().uid.text()).into(),
    };
    add(bed, Object { controller: Some(Arc::new(owner)), ..object });
    let status = PodClaimStatus { name: "gpu".into(), claim: Some(claim.as_str().into()) };
    let statuses = PodClaimStatuses { generated: vec![status].into(), extended: None };
    let entry = PodClaim { name: "gpu".into(), source: PodClaimSource::Template("gpu".into()) };
    owned(asks(name, 1), "ReplicaSet")
        .with_spec(|spec| {
            spec.rare = RareSpec { resource_claims: [entry].into(), ..RareSpec::default() }.boxed();
        })
        .with(|pod| pod.status.claims = Some(Box::new(statuses)))
}

fn fits(bed: TestBed, pod: PodBuilder) -> Result<(usize, String), WhyError> {
    let now = bed.now;
    let fits = bed.scheduler.fits(now, &pod.build(), 1000, &|| false)?;
    let reasons = fits.then.iter().flat_map(|why| &why.refusals).map(|it| it.reason.to_string());
    Ok((fits.count(), reasons.collect::<Vec<_>>().join(", ")))
}

#[test]
fn each_copy_of_a_pod_takes_devices_of_its_own() {
    let mut bed = bed(&[2, 3]);
    let pod = with_own_claim(&mut bed, "p");
    assert_eq!(fits(bed, pod).unwrap(), (5, "cannot allocate all claims".to_owned()));
}

#[test]
fn each_copy_takes_devices_for_its_extended_resources() {
    let (count, _) = fits(bed(&[2, 1]), requesting(asks("p", 1))).unwrap();
    assert_eq!(count, 3);
}

#[test]
fn copies_share_a_claim_that_the_pod_names() {
    let mut bed = bed(&[1, 1]);
    add(&mut bed, claim_named("shared", 1, 1, None));
    let (count, _) = fits(bed, claiming_named(asks("p", 1), "shared")).unwrap();
    assert_eq!(count, 64, "as many as fit on the node with the device");
}

#[test]
fn copies_of_a_pod_whose_claims_are_not_made_yet_are_refused() {
    let mut bed = bed(&[1]);
    let pod = with_own_claim(&mut bed, "p").with(|pod| pod.status.claims = None);
    assert_eq!(fits(bed, pod).unwrap_err(), WhyError::Claims);
}

#[test]
fn copies_that_need_volumes_of_their_own_are_refused() {
    let volume = |source| Volume { name: "data".into(), source };
    let with = |kind: &str, source| {
        owned(asks("p", 1), kind).with_spec(|spec| spec.volumes = [volume(source)].into())
    };
    let claim = || VolumeSource::Claim("data".into());
    for pod in [with("ReplicaSet", VolumeSource::Ephemeral), with("StatefulSet", claim())] {
        assert_eq!(fits(bed(&[1]), pod).unwrap_err(), WhyError::Claims);
    }
    let (count, reasons) = fits(bed(&[1]), with("ReplicaSet", claim())).unwrap();
    assert_eq!((count, reasons.contains("persistentvolumeclaim \"data\" not found")), (0, true), "{reasons}");
}

/// Binds a pod with the devices that the scheduler chooses, as the API server would show it.
fn start(bed: TestBed, pods: &[PodBuilder]) -> TestBed {
    let mut bed = bed;
    for pod in pods {
        bed.pod(pod.clone());
        assert!(bed.cycle());
        let info = pod.clone().build();
        let node = bed.node_of(&info.name).expect("it fits").to_owned();
        bed.scheduler.write_claims(bed.now, &info);
        bed.pre_bound(&info.name, Status::success());
        bed.bound(&info.name, BindOutcome::Bound);
        bed.confirm(pod.clone(), &node);
    }
    bed
}

#[test]
fn pods_that_leave_a_node_find_devices_elsewhere() {
    let mut two = bed(&[2, 1]);
    let pods = [with_own_claim(&mut two, "a"), with_own_claim(&mut two, "b")];
    // The third device is free on the other node.
    let bed = start(two, &pods);
    let nodes: Vec<_> = ["a", "b"].map(|pod| bed.node_of(pod).unwrap_or_default().to_owned()).into();
    let drained = nodes[0].clone();
    let outcome = lines(&what_if(bed, &[Verb::Drain(vec![drained.as_str().into()])]));
    assert!(!outcome.is_empty() && outcome.iter().all(|line| !line.contains("unknown")), "{outcome:?}");
}

#[test]
fn new_pods_take_devices_until_none_is_left() {
    let mut bed = bed(&[2]);
    let pod = with_own_claim(&mut bed, "p");
    let bed = start(bed, &[pod]);
    let more = [Verb::AddPods { like: key("p"), count: 2 }];
    let lines = lines(&what_if(bed, &more));
    assert_eq!(lines, ["p-copy-1: none to n0", "p-copy-2: none to pending: cannot allocate all claims"]);
}

#[test]
fn a_pod_that_goes_gives_its_devices_to_others() {
    for extended in [false, true] {
        let mut bed = bed(&[1]);
        let [first, second] = if extended {
            ["p", "q"].map(|name| requesting(owned(asks(name, 1), "ReplicaSet")))
        } else {
            [with_own_claim(&mut bed, "p"), with_own_claim(&mut bed, "q")]
        };
        let mut bed = start(bed, &[first]);
        bed.pod(second);
        let lines = lines(&what_if(bed, &[Verb::Delete(key("p"))]));
        assert_eq!(lines, ["q: none to n0"], "extended: {extended}");
    }
}

#[test]
fn requests_take_devices_away_or_delete_a_claim() {
    let mut bed = bed(&[1]);
    add(&mut bed, claim_named("shared", 1, 1, None));
    let pods = ["p", "q"].map(|name| claiming_named(asks(name, 1), "shared"));
    let mut bed = start(bed, &pods);
    let claim = |bed: &TestBed| -> Option<(bool, usize)> {
        let claim = bed.scheduler.objects.get(&resources::RESOURCE_CLAIM, "default/shared")?;
        let body = ResourceClaim::of(&claim.body)?;
        Some((body.allocation.is_some(), body.reserved_for.len()))
    };
    assert_eq!(claim(&bed), Some((true, 2)));
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/shared";
    let request = |method: &str, body| ApiCall::request(method, format!("{path}/status"), "", body);
    let (now, uid) = (bed.now, pods[0].clone().build().uid.text().to_string());
    let unreserve = json!({ "status": { "reservedFor": [{ "$patch": "delete", "uid": uid }] } });
    for (call, deletes, expected) in [
        (request("PATCH", unreserve), false, Some((true, 1))),
        (request("PUT", json!({})), false, Some((false, 0))),
        (request("PUT", json!({})), true, None),
        (request("PUT", json!({})), true, None),
    ] {
        bed.scheduler.write_claim(now, &call, deletes);
        assert_eq!(claim(&bed), expected);
    }
}

#[test]
fn a_shared_claim_is_free_once_its_last_pod_goes() {
    let mut bed = bed(&[1]);
    add(&mut bed, claim_named("shared", 1, 1, None));
    add(&mut bed, claim_named("other", 1, 1, None));
    let pods = ["p", "q"].map(|name| claiming_named(asks(name, 1), "shared"));
    let mut bed = start(bed, &pods);
    bed.pod(claiming_named(asks("w", 1), "other"));
    let delete = |name: &str| Verb::Delete(key(name));
    let shared = bed.scheduler.objects.get(&resources::RESOURCE_CLAIM, "default/shared").unwrap();
    assert_eq!(ResourceClaim::of(&shared.body).unwrap().reserved_for.len(), 2);
    assert_eq!(lines(&what_if(bed, &[delete("p"), delete("q")])), ["w: none to n0"]);
}
