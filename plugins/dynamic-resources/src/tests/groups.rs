//! Claims of groups (`DRAWorkloadResourceClaims`).

use rustc_hash::FxHashSet;
use supercargo_framework::objects::{GroupSpec, Objects, PodGroup, Typed};
use supercargo_framework::pod::OwnerRef;
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource, PodClaimStatus, PodClaimStatuses};
use supercargo_framework::testing::{node, node_info, nodes, pod};
use supercargo_framework::{Command, Context, CycleState, Feature, Features, PodInfo, QueueContext};

use super::pre_bind::{bind_member, conflict, found, lines, script};
use super::*;
use crate::claims;
use crate::pre_bind::OfGroup;

fn by_name(name: &str, claim: &str) -> PodClaim {
    PodClaim { name: name.into(), source: PodClaimSource::Claim(claim.into()) }
}

fn by_template(name: &str, template: &str) -> PodClaim {
    PodClaim { name: name.into(), source: PodClaimSource::Template(template.into()) }
}

fn generated(entry: &str, claim: &str) -> PodClaimStatus {
    PodClaimStatus { name: entry.into(), claim: Some(claim.into()) }
}

/// Pod `p` of group `g` with these claims, each generated one of which is `c`.
fn member(claims: &[PodClaim]) -> PodInfo {
    let statuses = claims.iter().map(|claim| generated(&claim.name, "c")).collect();
    let member = pod("p").group("g").with_spec(|spec| {
        spec.rare.get_or_insert_default().resource_claims = claims.into();
    });
    let mut member = member.build();
    member.status.claims = Some(Box::new(PodClaimStatuses { generated: statuses, extended: None }));
    member
}

fn group(claims: &[PodClaim], statuses: &[PodClaimStatus]) -> Arc<Object> {
    let spec = GroupSpec::default();
    let group = PodGroup { claims: claims.into(), claim_statuses: statuses.into(), ..PodGroup::from(spec) };
    let object = object(&resources::POD_GROUP, "default/g", Body::PodGroup(group));
    Arc::new(Object { uid: "uid of g".into(), ..object })
}

fn controlled(claim: Object, api_version: &str, kind: &str, name: &str) -> Object {
    let owner = OwnerRef {
        api_version: api_version.into(),
        kind: kind.into(),
        name: name.into(),
        uid: "uid of g".into(),
    };
    Object { controller: Some(Arc::new(owner)), ..claim }
}

fn of_group(group: &Arc<Object>, pod: &PodInfo) -> OfGroup {
    let mut objects = Objects::default();
    objects.insert(Arc::clone(group));
    let cluster = nodes([]);
    OfGroup::new(&Context::at_rest(&cluster, &objects), pod).unwrap()
}

#[test]
fn the_claim_of_the_group_is_reserved_for_it() {
    let shared = by_name("one", "c");
    let group = group(std::slice::from_ref(&shared), &[]);
    let script = script([found(2, json!({})), found(3, json!({}))]);
    let of_group = of_group(&group, &member(&[shared]));
    assert_eq!(bind_member(&script, claim("c", |_| {}), None, Some(of_group)), Ok(()));
    let reserved = &script.requests.lock().unwrap()[1].1["status"]["reservedFor"];
    let expected = json!([
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid of g"},
    ]);
    assert_eq!(*reserved, expected);
}

#[test]
fn a_claim_that_the_group_names_otherwise_is_reserved_for_the_pod() {
    let group = group(&[by_name("two", "c"), by_template("one", "c")], &[]);
    let script = script([found(2, json!({})), found(3, json!({}))]);
    let of_group = of_group(&group, &member(&[by_name("one", "c")]));
    assert_eq!(bind_member(&script, claim("c", |_| {}), None, Some(of_group)), Ok(()));
    let reserved = &script.requests.lock().unwrap()[1].1["status"]["reservedFor"];
    assert_eq!(*reserved, json!([{"resource": "pods", "name": "p", "uid": "p"}]));
}

#[test]
fn a_claim_that_is_reserved_for_the_group_is_not_written_again() {
    let shared = by_name("one", "c");
    let group = group(std::slice::from_ref(&shared), &[]);
    let reserved = |resource: &str| {
        claim("c", |claim| {
            claim.allocation = Some(allocation("gpu-0"));
            let consumer = ClaimConsumer {
                api_group: "scheduling.k8s.io".into(),
                resource: resource.into(),
                name: "g".into(),
                uid: "of an earlier group".into(),
            };
            claim.reserved_for = Box::new([consumer]);
        })
    };
    let pod = member(&[shared]);
    for (resource, answer, requests) in
        [("podgroups", None, &[][..]), ("other", Some(found(2, json!({}))), &["PUT c/status"][..])]
    {
        let (script, of_group) = (script(answer), of_group(&group, &pod));
        assert_eq!(bind_member(&script, reserved(resource), None, Some(of_group)), Ok(()));
        assert_eq!(lines(&script), requests);
    }
}

/// Pods of a group are bound at once. The first one writes what they share.
#[test]
fn what_another_pod_of_the_group_has_written_counts() {
    let shared = by_name("one", "c");
    let group = group(std::slice::from_ref(&shared), &[]);
    let pod = member(&[shared]);
    let written = |device: &str, reserved_for: &str| {
        found(
            5,
            json!({"status": {
                "allocation": {"devices": {"results": [{"request": "r", "device": device}]}},
                "reservedFor": [{"uid": reserved_for}],
            }}),
        )
    };
    let bind = |answers: Vec<_>| {
        let script = script(answers);
        let result = bind_member(&script, claim("c", |_| {}), None, Some(of_group(&group, &pod)));
        (result, lines(&script).join(" "))
    };
    let all = bind(vec![conflict(), written("gpu-0", "uid of g")]);
    assert_eq!(all, (Ok(()), "PUT c GET c".to_owned()));
    let allocation = bind(vec![conflict(), written("gpu-0", "other"), found(6, json!({}))]);
    assert_eq!(allocation, (Ok(()), "PUT c GET c PUT c/status".to_owned()));
    let elsewhere = bind(vec![conflict(), written("gpu-1", "uid of g")]);
    let error = "claim default/c got allocated elsewhere in the meantime".to_owned();
    assert_eq!(elsewhere, (Err(error), "PUT c GET c".to_owned()));
}

/// A trial is undone, and its state used again: what is undone twice may be another pod's.
#[test]
fn what_is_pending_is_given_back_once() {
    let features = Features::default().with(Feature::GenericWorkload, true);
    let plugin = crate::testing::driver_with_features(&features);
    let mut objects = Objects::default();
    for object in [class(), slice("s", &["gpu-0", "gpu-1"], 1), claim("c", |_| {})] {
        objects.insert(object.into());
    }
    let cluster = nodes([node_info(node("n").build(), [])]);
    let cx = Context::at_rest(&cluster, &objects);
    let (pod, mut state) = (member(&[by_name("one", "c"), by_name("two", "c")]), CycleState::new());
    let points = &plugin.points;
    points.pre_filter.as_ref().unwrap().pre_filter(&cx, &mut state, &pod);
    let reserve = points.reserve.as_ref().unwrap();
    assert!(reserve.reserve(&cx, &mut state, &pod, &"n".into()).is_success());
    for _ in 0..2 {
        reserve.unreserve(&cx, &mut state, &pod, &"n".into());
    }
    let commands = cx.take_commands();
    assert!(
        matches!(&commands[..], [Command::SharePending { .. }, Command::RemovePending(_)]),
        "{commands:?}"
    );
}

#[test]
fn the_group_of_a_pod_may_control_its_claims() {
    let pod = member(&[by_template("one", "t")]);
    let answer = |claim: Object, is_enabled: bool| {
        let mut objects = Objects::default();
        objects.insert(claim.into());
        let features = Features::default().with(Feature::GenericWorkload, true);
        let features = features.with(Feature::DRAWorkloadResourceClaims, is_enabled);
        let plugin = crate::testing::driver_with_features(&features);
        let cx = QueueContext { objects: &objects, preempting: &FxHashSet::default() };
        plugin.points.pre_enqueue.as_ref().unwrap().pre_enqueue(&cx, &pod).message()
    };
    let of = |api_version, kind, name| controlled(claim("c", |_| {}), api_version, kind, name);
    let its = || of("scheduling.k8s.io/v1alpha2", "PodGroup", "g");
    assert_eq!(answer(its(), true), "");
    let refusal = "ResourceClaim default/c was not created for Pod default/p";
    assert_eq!(answer(its(), false), format!("{refusal} (Pod is not owner)"));
    for other in [
        of("scheduling.k8s.io/v1beta1", "PodGroup", "h"),
        of("scheduling.k8s.io/v1beta1", "Workload", "g"),
        of("example.com/v1", "PodGroup", "g"),
        claim("c", |_| {}),
    ] {
        assert_eq!(answer(other, true), format!("{refusal} (neither Pod nor PodGroup g is the owner)"));
    }
}

#[test]
fn claims_of_a_group_are_found_as_those_of_pods() {
    let found = |claims: &[PodClaim], statuses: &[PodClaimStatus]| {
        let group = group(claims, statuses);
        let mut objects = Objects::default();
        objects.insert(claim("c", |_| {}).into());
        objects.insert(controlled(claim("d", |_| {}), "scheduling.k8s.io/v1beta1", "PodGroup", "g").into());
        let group = Typed::<PodGroup>::of(&group).unwrap();
        let claims = claims::named_by(group, |key| objects.get(&resources::RESOURCE_CLAIM, key))?;
        Ok(claims.iter().map(|claim| claim.object.name().to_owned()).collect::<Vec<_>>().join(" "))
    };
    let template = [by_template("two", "t")];
    let named = Ok("c".to_owned());
    assert_eq!(found(&[by_name("one", "c")], &[]), named);
    assert_eq!(found(&template, &[generated("two", "d")]), Ok("d".to_owned()));
    assert_eq!(found(&template, &[generated("two", "c")]), Ok(String::new()), "of another owner");
    assert_eq!(found(&template, &[PodClaimStatus { name: "two".into(), claim: None }]), Ok(String::new()));
    let error = |text: &str| Err(text.to_owned());
    assert_eq!(found(&template, &[]), error("PodGroup default/g: ResourceClaim not created yet"));
    assert_eq!(found(&[by_name("one", "e")], &[]), error("could not find ResourceClaim \"default/e\""));
    let unknown = PodClaim { name: "one".into(), source: PodClaimSource::Unknown };
    assert_eq!(
        found(&[unknown], &[]),
        error("PodGroup default/g, spec.resourceClaim one: none of the supported fields are set")
    );
}
