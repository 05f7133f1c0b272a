use supercargo_framework::Nodes;
use supercargo_framework::objects::{Body, Object, Objects};
use supercargo_framework::testing::{
    claim, claim_source, node, node_added, node_info, nodes, object, object_added, objects, pod, pod_deleted,
    with_claims, with_volumes,
};
use supercargo_framework::volume::VolumeSource;

use super::*;
use crate::testing::driver;

fn gce(name: &str, read_only: bool) -> VolumeSource {
    VolumeSource::GcePersistentDisk { pd_name: name.into(), read_only }
}

fn ebs(id: &str, read_only: bool) -> VolumeSource {
    VolumeSource::AwsElasticBlockStore { volume_id: id.into(), read_only }
}

fn iscsi(portal: &str, iqn: &str, read_only: bool) -> VolumeSource {
    VolumeSource::Iscsi { target_portal: portal.into(), iqn: iqn.into(), lun: 0, read_only }
}

fn rbd(monitors: &[&str], pool: &str, image: &str, read_only: bool) -> VolumeSource {
    VolumeSource::Rbd {
        monitors: monitors.iter().map(|monitor| Arc::from(*monitor)).collect(),
        pool: pool.into(),
        image: image.into(),
        read_only,
    }
}

/// A claim that only one pod can use at a time.
fn exclusive(key: &str) -> Object {
    let body = PersistentVolumeClaim {
        access_modes: [READ_WRITE_ONCE_POD.into()].into(),
        ..PersistentVolumeClaim::default()
    };
    object(&resources::PERSISTENT_VOLUME_CLAIM, key, Body::PersistentVolumeClaim(body))
}

fn using(name: &str, namespace: &str, claims: &[&str]) -> PodInfo {
    with_claims(pod(name).namespace(namespace), claims)
}

const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use \
                      by another pod";

#[test]
fn exclusive_disks_allow_one_pod_per_node() {
    let cases = [
        ("the same GCE disk", gce("a", false), gce("a", false), false),
        ("the same GCE disk, one reads", gce("a", true), gce("a", false), false),
        ("the same GCE disk, both read", gce("a", true), gce("a", true), true),
        ("another GCE disk", gce("a", false), gce("b", false), true),
        ("the same EBS volume", ebs("a", false), ebs("a", false), false),
        ("the same EBS volume, both read", ebs("a", true), ebs("a", true), false),
        ("another EBS volume", ebs("a", false), ebs("b", false), true),
        ("a GCE disk and an EBS volume of one name", gce("a", false), ebs("a", false), true),
        ("the same iSCSI name by another portal", iscsi("x", "a", false), iscsi("y", "a", false), false),
        ("the same iSCSI name, both read", iscsi("x", "a", true), iscsi("x", "a", true), true),
        ("another iSCSI name", iscsi("x", "a", false), iscsi("x", "b", false), true),
        (
            "an RBD image by a common monitor",
            rbd(&["m", "n"], "p", "i", false),
            rbd(&["n", "o"], "p", "i", true),
            false,
        ),
        ("an RBD image by other monitors", rbd(&["m"], "p", "i", false), rbd(&["n"], "p", "i", false), true),
        ("an RBD image of another pool", rbd(&["m"], "p", "i", false), rbd(&["m"], "q", "i", false), true),
        ("another RBD image", rbd(&["m"], "p", "i", false), rbd(&["m"], "p", "j", false), true),
        ("an RBD image, both read", rbd(&["m"], "p", "i", true), rbd(&["m"], "p", "i", true), true),
        ("Cinder is not looked at", VolumeSource::Cinder("a".into()), VolumeSource::Cinder("a".into()), true),
    ];
    for (name, wanted, had, fits) in cases {
        let other = with_volumes(pod("other").namespace("elsewhere"), &[("v", had)]);
        let node = node_info(node("n").build(), [other]);
        let status = driver(NAME).filter(&with_volumes(pod("p"), &[("v", wanted)]), &node);
        let expected =
            if fits { Status::success() } else { Status::unschedulable("node(s) had no available disk") };
        assert_eq!(status, expected, "{name}");
    }
}

#[test]
fn read_write_once_pod_claims_in_use_reject_every_node() {
    let objects =
        objects([exclusive("default/own"), claim("default/shared", "", ""), exclusive("other/own")]);
    let holding = |namespace, name: &str| {
        let holder = using("holder", namespace, &[name]);
        nodes([node_info(node("a").build(), [holder]), node_info(node("b").build(), [])])
    };
    let cases = [
        ("in use", holding("default", "own"), &["own"][..], Status::unschedulable(IN_USE)),
        (
            "in use beside a shared one",
            holding("default", "own"),
            &["shared", "own"],
            Status::unschedulable(IN_USE),
        ),
        ("in use in another namespace", holding("other", "own"), &["own"], Status::success()),
        ("a shared one in use", holding("default", "shared"), &["shared"], Status::success()),
        (
            "not there",
            holding("default", "own"),
            &["own", "missing"],
            Status::unresolvable("persistentvolumeclaim \"missing\" not found"),
        ),
    ];
    for (name, cluster, claims, expected) in cases {
        let pod = using("p", "default", claims);
        assert_eq!(driver(NAME).verdicts(&pod, &cluster, &objects), [expected.clone(), expected], "{name}");
    }
}

/// The state that PreFilter writes for a pod in a cluster.
fn prepared(pod: &PodInfo, cluster: &Nodes, objects: &Objects) -> (PreFilter, CycleState) {
    let mut state = CycleState::new();
    let cx = Context::at_rest(cluster, objects);
    let answer = VolumeRestrictions.pre_filter(&cx, &mut state, pod);
    (answer, state)
}

#[test]
fn dry_runs_remove_and_restore_claim_users() {
    let objects = objects([exclusive("default/own")]);
    let holder = using("holder", "default", &["own"]);
    let cluster = nodes([node_info(node("a").build(), [holder.clone()])]);
    let (pod, empty) = (using("p", "default", &["own"]), node_info(node("a").build(), []));
    let (_, mut state) = prepared(&pod, &cluster, &objects);
    let cx = Context::at_rest(&cluster, &objects);
    let verdict = |state: &CycleState| VolumeRestrictions.filter(&cx, state, &pod, &empty);
    assert_eq!(verdict(&state), Status::unschedulable(IN_USE));
    assert!(VolumeRestrictions.remove_pod(&mut state, &pod, &holder, &empty).is_success());
    assert_eq!(verdict(&state), Status::success());
    assert!(VolumeRestrictions.add_pod(&mut state, &pod, &holder, &empty).is_success());
    assert_eq!(verdict(&state), Status::unschedulable(IN_USE));
    let namesake = using("namesake", "elsewhere", &["own"]);
    assert!(VolumeRestrictions.remove_pod(&mut state, &pod, &namesake, &empty).is_success());
    assert_eq!(verdict(&state), Status::success(), "a claim of the same name counts in any namespace");
}

#[test]
fn pods_without_possible_conflict_skip_filter() {
    let objects = objects([exclusive("default/own"), claim("default/shared", "", "")]);
    let free = nodes([node_info(node("a").build(), [])]);
    let cases = [
        ("no volume", using("p", "default", &[]), true, false),
        ("a claim that nobody uses", using("p", "default", &["own"]), true, true),
        ("a shared claim", using("p", "default", &["shared"]), true, false),
        ("a disk", with_volumes(pod("p"), &[("v", gce("a", true))]), false, true),
    ];
    for (name, pod, skips, prepares) in cases {
        let (answer, state) = prepared(&pod, &free, &objects);
        assert_eq!(matches!(answer, PreFilter::Skip), skips, "{name}");
        assert_eq!(state.read::<Exclusive>().is_some(), prepares, "{name}");
    }
}

#[test]
fn filter_without_pre_filter_fails() {
    let (nodes, objects) = (Nodes::default(), Objects::default());
    let cx = Context::at_rest(&nodes, &objects);
    let node = node_info(node("n").build(), []);
    assert_eq!(
        VolumeRestrictions.filter(&cx, &CycleState::new(), &using("p", "default", &["own"]), &node),
        Status::error("cannot read \"PreFilterVolumeRestrictions\" from cycleState")
    );
}

#[test]
fn deleted_pods_with_a_shared_volume_wake_the_pod() {
    use QueueingHint::{Queue, Skip};
    let waiting = with_volumes(pod("p"), &[("d", gce("a", false)), ("c", claim_source("own"))]);
    let cases = [
        ("the disk", with_volumes(pod("q"), &[("v", gce("a", false))]), Queue),
        ("another disk", with_volumes(pod("q"), &[("v", gce("b", false))]), Skip),
        ("the claim, waiting itself", using("q", "default", &["own"]), Queue),
        ("another claim", using("q", "default", &["other"]), Skip),
        ("the claim's namesake", using("q", "elsewhere", &["own"]), Skip),
        (
            "the disk in another namespace",
            with_volumes(pod("q").namespace("x"), &[("v", gce("a", false))]),
            Skip,
        ),
    ];
    for (name, gone, expected) in cases {
        let change = pod_deleted(gone);
        let hint = driver(NAME).hint(EventResource::AssignedPod, ActionType::DELETE, &waiting, &change);
        assert_eq!(hint, Some(Ok(expected)), "{name}");
    }
}

#[test]
fn added_claims_wake_pods_that_use_them() {
    use QueueingHint::{Queue, Skip};
    let waiting = with_volumes(pod("p"), &[("c", claim_source("own")), ("e", VolumeSource::Ephemeral)]);
    let hint = |action, key| {
        let resource = EventResource::Other(resources::PERSISTENT_VOLUME_CLAIM);
        driver(NAME).hint(resource, action, &waiting, &object_added(claim(key, "", "")))
    };
    assert_eq!(hint(ActionType::ADD, "default/own"), Some(Ok(Queue)));
    assert_eq!(hint(ActionType::ADD, "elsewhere/own"), Some(Ok(Skip)));
    assert_eq!(hint(ActionType::ADD, "default/other"), Some(Ok(Skip)));
    assert_eq!(hint(ActionType::ADD, "default/p-e"), Some(Ok(Skip)), "ephemeral volumes are ignored");
    assert_eq!(hint(ActionType::UPDATE, "default/own"), None);
    let added = node_added(node("n").build());
    let hint = driver(NAME).hint(EventResource::Node, ActionType::ADD, &waiting, &added);
    assert_eq!(hint, Some(Ok(Queue)), "every added node helps");
}

#[test]
fn state_changes_only_with_users_of_exclusive_claims() {
    let objects = objects([exclusive("default/own"), claim("default/shared", "", "")]);
    let pod = using("p", "default", &["own", "shared"]);
    let cases = [
        ("a user", using("q", "default", &["own"]), Applied::Rebuild),
        ("a user of a namesake", using("q", "elsewhere", &["own"]), Applied::Here),
        ("a user of a shared claim", using("q", "default", &["shared"]), Applied::Here),
    ];
    let (_, mut state) = prepared(&pod, &Nodes::default(), &objects);
    for (name, other, expected) in cases {
        let node = node("n").build();
        assert_eq!(VolumeRestrictions.pod_added(&mut state, &pod, &other, &node), expected, "{name}");
        assert_eq!(VolumeRestrictions.pod_removed(&mut state, &pod, &other, &node), expected, "{name}");
        assert_eq!(VolumeRestrictions.node_added(&mut state, &pod, &node), Applied::Here);
        assert_eq!(VolumeRestrictions.node_removed(&mut state, &pod, &node), Applied::Here);
    }
}
