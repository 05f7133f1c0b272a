use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::objects::{Body, CsiNodeDriver, CsiSource, Object, StorageClass};
use supercargo_framework::pod::OwnerRef;
use supercargo_framework::testing::{
    Driver, claim, claim_source, node, node_info, nodes, object, object_added, object_deleted,
    object_updated, objects, pod, pod_deleted, with_claims, with_volumes,
};
use supercargo_framework::volume::VolumeSource;

use super::*;
use crate::testing::{driver, driver_with_features};

const DRIVER: &str = "csi.example.com";

fn csi_node(name: &str, drivers: &[(&str, Option<i32>)]) -> Object {
    let driver = |(name, limit): &(&str, Option<i32>)| CsiNodeDriver { name: (*name).into(), limit: *limit };
    let body = CsiNode { drivers: drivers.iter().map(driver).collect() };
    object(&resources::CSI_NODE, name, Body::CsiNode(body))
}

fn volume(name: &str, driver: &str, migrated_from: Option<&str>) -> Object {
    let source = CsiSource {
        driver: driver.into(),
        handle: format!("handle-{name}").into(),
        migrated_from: migrated_from.map(Into::into),
    };
    let body = PersistentVolume { csi: Some(source), ..PersistentVolume::default() };
    object(&resources::PERSISTENT_VOLUME, name, Body::PersistentVolume(body))
}

fn class(name: &str, provisioner: &str) -> Object {
    let body = StorageClass { provisioner: provisioner.into(), ..StorageClass::default() };
    object(&resources::STORAGE_CLASS, name, Body::StorageClass(body))
}

fn attachment(name: &str, node: &str, driver: &str, volume: Option<&str>) -> Object {
    let body = VolumeAttachment {
        attacher: driver.into(),
        volume_name: volume.map(Into::into),
        ..VolumeAttachment::default()
    };
    let object = object(&resources::VOLUME_ATTACHMENT, name, Body::VolumeAttachment(body));
    Object { node_name: Some(node.into()), ..object }
}

fn using(name: &str, claims: &[&str]) -> PodInfo {
    with_claims(pod(name), claims)
}

/// Claims `a` to `e` with volumes of the driver, `x` of another driver, `m` of a migrated plugin,
/// and the unbound claims `late` and `later`.
fn storage() -> Vec<Object> {
    let mut list = vec![class("slow", DRIVER), class("ebs", "kubernetes.io/aws-ebs")];
    for name in ["a", "b", "c", "d", "e"] {
        list.extend([claim(&format!("default/{name}"), "", name), volume(name, DRIVER, None)]);
    }
    list.extend([claim("default/x", "", "x"), volume("x", "other.example.com", None)]);
    list.extend([claim("default/m", "", "m"), volume("m", "ebs.csi.aws.com", Some("kubernetes.io/aws-ebs"))]);
    list.extend([claim("default/late", "slow", ""), claim("default/later", "slow", "gone")]);
    list.push(claim("default/late-ebs", "ebs", ""));
    list
}

fn verdict_of(driver: &Driver, pod: &PodInfo, pods: Vec<PodInfo>, list: Vec<Object>) -> Status {
    let cluster = nodes([node_info(node("n").build(), pods)]);
    driver.verdicts(pod, &cluster, &objects(list)).remove(0)
}

fn verdict(pod: &PodInfo, pods: Vec<PodInfo>, list: Vec<Object>) -> Status {
    verdict_of(&driver(NAME), pod, pods, list)
}

fn with_limit(limit: i32, more: impl IntoIterator<Item = Object>) -> Vec<Object> {
    let limited = csi_node("n", &[(DRIVER, Some(limit)), ("ebs.csi.aws.com", Some(limit)), ("free", None)]);
    storage().into_iter().chain([limited]).chain(more).collect()
}

fn too_many() -> Status {
    Status::unschedulable("node(s) exceed max volume count")
}

#[test]
fn csi_volume_limits_are_per_driver_and_node() {
    type Claims<'a> = &'a [&'a str];
    let cases: [(&str, Claims<'_>, &[Claims<'_>], i32, bool); 12] = [
        ("room for one", &["a"], &[], 1, true),
        ("room for none", &["a"], &[], 0, false),
        ("one more than fits", &["a", "b"], &[&["c"]], 2, false),
        ("just enough", &["a", "b"], &[&["c"]], 3, true),
        ("a volume that is on the node already", &["a"], &[&["a"], &["b"]], 2, true),
        ("already too many, but nothing new", &["a"], &[&["a", "b", "c"]], 2, true),
        ("two pods share a volume", &["a"], &[&["b"], &["b"]], 2, true),
        ("one volume twice in a pod", &["a", "a"], &[], 1, true),
        ("volumes of another driver", &["x"], &[&["a", "b"]], 1, true),
        ("another driver's on the node", &["a"], &[&["x"]], 1, true),
        ("a volume that is yet to be made", &["late"], &[&["a"]], 1, false),
        ("two that are yet to be made", &["late", "later"], &[], 1, false),
    ];
    for (name, wanted, had, limit, fits) in cases {
        let pods = had.iter().enumerate().map(|(i, claims)| using(&format!("q{i}"), claims)).collect();
        let status = verdict(&using("p", wanted), pods, with_limit(limit, []));
        assert_eq!(status, if fits { Status::success() } else { too_many() }, "{name}");
    }
}

#[test]
fn only_volumes_of_limited_drivers_count() {
    let wanted = using("p", &["a"]);
    assert_eq!(verdict(&wanted, vec![], storage()), Status::success(), "no CSINode");
    let unlimited = storage().into_iter().chain([csi_node("n", &[(DRIVER, None)])]).collect();
    assert_eq!(verdict(&wanted, vec![], unlimited), Status::success(), "no limit");
    let elsewhere = storage().into_iter().chain([csi_node("m", &[(DRIVER, Some(0))])]).collect();
    assert_eq!(verdict(&wanted, vec![], elsewhere), Status::success(), "another node's limit");
    let uncounted = [
        claim("default/classless", "", ""),
        claim("default/lost", "no such class", ""),
        claim("default/nfs", "", "nfs"),
        object(&resources::PERSISTENT_VOLUME, "nfs", Body::PersistentVolume(PersistentVolume::default())),
        class("vsphere", "kubernetes.io/vsphere-volume"),
        claim("default/vsphere", "vsphere", ""),
    ];
    let inline = with_volumes(pod("p"), &[("v", VolumeSource::Csi(DRIVER.into()))]);
    assert_eq!(verdict(&inline, vec![], with_limit(0, [])), Status::success(), "inline CSI volumes");
    let wanted = using("p", &["classless", "lost", "nfs", "vsphere"]);
    assert_eq!(verdict(&wanted, vec![], with_limit(0, uncounted)), Status::success());
}

#[test]
fn attached_volumes_count_with_those_of_pods() {
    let attached = |volume: Option<&str>| attachment("va", "n", DRIVER, volume);
    let cases = [
        ("a volume of no pod", vec![attached(Some("b"))], false),
        ("a volume that a pod uses", vec![attached(Some("c"))], true),
        ("on another node", vec![attachment("va", "m", DRIVER, Some("b"))], true),
        ("by another driver", vec![attachment("va", "n", "other", Some("b"))], true),
        ("a volume that is gone", vec![attached(Some("gone"))], true),
        ("an inline volume", vec![attached(None)], true),
        ("an in-tree volume", vec![attached(Some("m"))], true),
        ("one volume twice", vec![attached(Some("c")), attachment("vb", "n", DRIVER, Some("c"))], true),
        ("the new volume itself, which counts twice", vec![attached(Some("a"))], false),
    ];
    for (name, attachments, fits) in cases {
        let status = verdict(&using("p", &["a"]), vec![using("q", &["c"])], with_limit(2, attachments));
        assert_eq!(status, if fits { Status::success() } else { too_many() }, "{name}");
    }
}

#[test]
fn missing_claims_matter_for_the_incoming_pod_only() {
    let status = verdict(&using("p", &["missing"]), vec![], with_limit(1, []));
    let text = "looking up PVC default/missing: persistentvolumeclaim \"missing\" not found";
    assert_eq!(status, Status::unresolvable(text));
    let status = verdict(&using("p", &["a"]), vec![using("q", &["missing"])], with_limit(1, []));
    assert_eq!(status, Status::success());
    let nameless = Status::error("PersistentVolumeClaim had no name");
    assert_eq!(verdict(&using("p", &[""]), vec![], storage()), nameless);
    assert_eq!(verdict(&using("p", &["a"]), vec![using("q", &[""])], with_limit(1, [])), nameless);
    let without_limit = using("p", &["x"]);
    assert_eq!(verdict(&without_limit, vec![using("q", &[""])], with_limit(1, [])), nameless, "as upstream");
}

#[test]
fn ephemeral_volumes_count_by_their_owned_claim() {
    let ephemeral = |name: &str| with_volumes(pod(name), &[("v", VolumeSource::Ephemeral)]);
    let owned = |by: &str| {
        let owner = OwnerRef { uid: by.into(), ..OwnerRef::default() };
        Object { controller: Some(Arc::new(owner)), ..claim("default/p-v", "", "e") }
    };
    let stolen = Status::error("PVC default/p-v was not created for pod default/p (pod is not owner)");
    assert_eq!(verdict(&ephemeral("p"), vec![], with_limit(1, [owned("p")])), Status::success());
    assert_eq!(verdict(&ephemeral("p"), vec![], with_limit(0, [owned("p")])), too_many());
    assert_eq!(verdict(&ephemeral("p"), vec![], with_limit(1, [owned("q")])), stolen);
    let status = verdict(&using("q", &["a"]), vec![ephemeral("p")], with_limit(1, [owned("p")]));
    assert_eq!(status, too_many(), "on the node, too");
    let status = verdict(&using("q", &["a"]), vec![ephemeral("p")], with_limit(1, [owned("q")]));
    assert_eq!(status, stolen);
}

#[test]
fn in_tree_volumes_count_if_the_node_has_a_csi_node() {
    let sources = [
        ("pd.csi.storage.gke.io", VolumeSource::GcePersistentDisk { pd_name: "d".into(), read_only: true }),
        (
            "ebs.csi.aws.com",
            VolumeSource::AwsElasticBlockStore { volume_id: "vol-1".into(), read_only: false },
        ),
        (
            "disk.csi.azure.com",
            VolumeSource::AzureDisk { disk_name: "d".into(), disk_uri: "/subscriptions/d".into() },
        ),
        ("cinder.csi.openstack.org", VolumeSource::Cinder("d".into())),
        ("pxd.portworx.com", VolumeSource::Portworx("d".into())),
    ];
    for (driver, source) in sources {
        let new = with_volumes(pod("p"), &[("v", source.clone())]);
        let full = csi_node("n", &[(driver, Some(0))]);
        assert_eq!(verdict(&new, vec![], vec![full]), too_many(), "{driver}");
        assert_eq!(verdict(&new, vec![], vec![]), Status::success(), "{driver}");
        let one = csi_node("n", &[(driver, Some(1))]);
        let same = with_volumes(pod("q"), &[("w", source)]);
        assert_eq!(verdict(&new, vec![same], vec![one]), Status::success(), "{driver}");
    }
    for claim in ["m", "late-ebs"] {
        assert_eq!(verdict(&using("p", &[claim]), vec![], with_limit(0, [])), too_many(), "{claim}");
        assert_eq!(verdict(&using("p", &[claim]), vec![], storage()), Status::success(), "{claim}");
    }
}

#[test]
fn ebs_volumes_are_identified_by_the_end_of_their_url() {
    let ebs = |id: &str| {
        let source = VolumeSource::AwsElasticBlockStore { volume_id: id.into(), read_only: false };
        with_volumes(pod(id), &[("v", source)])
    };
    let limits = || vec![csi_node("n", &[("ebs.csi.aws.com", Some(1))])];
    let same = [ebs("vol-1"), ebs("aws://us-east-1a/vol-1"), ebs("aws:///vol-1/"), ebs("aws://x/vol-1?y#z")];
    for id in same {
        assert_eq!(verdict(&ebs("vol-1"), vec![id.clone()], limits()), Status::success(), "{}", id.name);
    }
    assert_eq!(verdict(&ebs("vol-1"), vec![ebs("vol-2")], limits()), too_many());
    for id in ["aws://vol-1", "aws://x/disk-1", "aws://x/vol-1/y"] {
        let text = "converting volume(v) from inline to csi: failed to translate Kubernetes ID to EBS Volume ID \
                    Invalid format for AWS volume";
        let error = Status::error(format!("{text} ({id})"));
        assert_eq!(verdict(&ebs(id), vec![], limits()), error);
        assert_eq!(verdict(&ebs("vol-1"), vec![ebs(id)], limits()), error, "on the node");
        assert_eq!(
            verdict(&ebs(id), vec![], vec![]),
            Status::success(),
            "without a CSINode nothing is checked"
        );
    }
}

#[test]
fn required_drivers_must_be_installed() {
    let driver = |demands| {
        let body = CsiDriver { prevents_scheduling_if_missing: demands, ..CsiDriver::default() };
        object(&resources::CSI_DRIVER, DRIVER, Body::CsiDriver(body))
    };
    let missing = || Status::unschedulable("csi.example.com CSI driver is not installed on the node");
    let there = || csi_node("n", &[(DRIVER, None)]);
    let cases = [
        ("missing", vec![driver(true), csi_node("n", &[("other", None)])], missing()),
        ("without a CSINode", vec![driver(true)], missing()),
        ("there", vec![driver(true), there()], Status::success()),
        ("missing and not demanding", vec![driver(false)], Status::success()),
        ("unknown", vec![], Status::success()),
    ];
    let off = Features::default().with(Feature::VolumeLimitScaling, false);
    for (name, more, expected) in cases {
        let list: Vec<_> = storage().into_iter().chain(more).collect();
        let pod = using("p", &["a"]);
        assert_eq!(verdict(&pod, vec![], list.clone()), expected, "{name}");
        let status = verdict_of(&driver_with_features(NAME, &off), &pod, vec![], list);
        assert_eq!(status, Status::success(), "{name}, with the feature off");
    }
}

#[test]
fn csi_drivers_are_read_only_with_volume_limit_scaling() {
    let reads =
        |features: &Features| from_args(&Value::Null, features).expect("no arguments are fine").reads();
    let off = Features::default().with(Feature::VolumeLimitScaling, false);
    assert!(reads(&Features::default()).contains(&resources::CSI_DRIVER));
    assert_eq!(reads(&off), [resources::PERSISTENT_VOLUME, resources::STORAGE_CLASS]);
}

#[test]
fn pods_without_countable_volumes_skip_filter() {
    let cases = [
        ("none", with_volumes(pod("p"), &[]), true),
        ("inline CSI", with_volumes(pod("p"), &[("v", VolumeSource::Csi(DRIVER.into()))]), true),
        ("a claim", using("p", &["a"]), false),
        ("ephemeral", with_volumes(pod("p"), &[("v", VolumeSource::Ephemeral)]), false),
        ("in-tree", with_volumes(pod("p"), &[("v", VolumeSource::Cinder("d".into()))]), false),
    ];
    for (name, pod, skips) in cases {
        assert_eq!(matches!(driver(NAME).pre_filter(&pod), PreFilter::Skip), skips, "{name}");
    }
}

fn hint(resource: Text, action: ActionType, pod: &PodInfo, change: &Change) -> Option<QueueingHint> {
    let hint = driver(NAME).hint(EventResource::Other(resource), action, pod, change)?;
    Some(hint.expect("the event has its objects"))
}

#[test]
fn new_csi_nodes_and_raised_limits_wake_the_pod() {
    use QueueingHint::{Queue, Skip};
    let with = |drivers: &[(&str, Option<i32>)]| csi_node("n", drivers);
    let cases = [
        ("more", with(&[("a", Some(1))]), with(&[("a", Some(2))]), Queue),
        ("fewer", with(&[("a", Some(2))]), with(&[("a", Some(1))]), Skip),
        ("the same", with(&[("a", Some(2))]), with(&[("a", Some(2))]), Skip),
        ("a new driver", with(&[]), with(&[("a", Some(1))]), Queue),
        ("a new driver without limit", with(&[]), with(&[("a", None)]), Skip),
        ("a limit that is lifted", with(&[("a", Some(1))]), with(&[("a", None)]), Skip),
        (
            "one of two",
            with(&[("a", Some(1)), ("b", Some(1))]),
            with(&[("a", Some(0)), ("b", Some(2))]),
            Queue,
        ),
    ];
    let waiting = using("p", &["a"]);
    for (name, old, new, expected) in cases {
        let change = object_updated(old, new);
        assert_eq!(
            hint(resources::CSI_NODE, ActionType::UPDATE, &waiting, &change),
            Some(expected),
            "{name}"
        );
    }
    let added = object_added(with(&[]));
    assert_eq!(hint(resources::CSI_NODE, ActionType::ADD, &waiting, &added), Some(Queue));
}

#[test]
fn deleted_pods_with_volumes_wake_the_pod() {
    use QueueingHint::{Queue, Skip};
    let ephemeral = [("v", VolumeSource::Ephemeral)];
    let inline = [("v", VolumeSource::Portworx("d".into()))];
    let csi = [("v", VolumeSource::Csi(DRIVER.into()))];
    let cases = [
        ("a claim", with_volumes(pod("q").node("n"), &[("v", claim_source("z"))]), Queue),
        ("nominated", with_volumes(pod("q").nominated("n"), &[("v", claim_source("z"))]), Queue),
        ("waiting", with_volumes(pod("q"), &[("v", claim_source("z"))]), Skip),
        ("ephemeral", with_volumes(pod("q").node("n"), &ephemeral), Queue),
        ("in-tree", with_volumes(pod("q").node("n"), &inline), Queue),
        ("Azure file", with_volumes(pod("q").node("n"), &[("v", VolumeSource::AzureFile)]), Queue),
        ("vSphere", with_volumes(pod("q").node("n"), &[("v", VolumeSource::Vsphere)]), Queue),
        ("inline CSI", with_volumes(pod("q").node("n"), &csi), Skip),
        ("no volume", pod("q").node("n").build(), Skip),
    ];
    for (name, gone, expected) in cases {
        let change = pod_deleted(gone);
        let plugin = driver(NAME);
        let hint = plugin.hint(EventResource::AssignedPod, ActionType::DELETE, &using("p", &["a"]), &change);
        assert_eq!(hint, Some(Ok(expected)), "{name}");
    }
}

#[test]
fn added_claims_of_the_pod_wake_it() {
    use QueueingHint::{Queue, Skip};
    let waiting = with_volumes(pod("p"), &[("c", claim_source("own")), ("e", VolumeSource::Ephemeral)]);
    let cases = [
        ("default/own", Queue),
        ("default/p-e", Queue),
        ("default/other", Skip),
        ("elsewhere/own", Skip),
        ("elsewhere/p-e", Skip),
    ];
    for (key, expected) in cases {
        let change = object_added(claim(key, "", ""));
        let answer = hint(resources::PERSISTENT_VOLUME_CLAIM, ActionType::ADD, &waiting, &change);
        assert_eq!(answer, Some(expected), "{key}");
    }
}

#[test]
fn detached_volumes_wake_pods_with_claims_or_of_the_driver() {
    use QueueingHint::{Queue, Skip};
    let inline = |source| with_volumes(pod("p"), &[("v", source)]);
    let ebs = |id: &str| VolumeSource::AwsElasticBlockStore { volume_id: id.into(), read_only: false };
    let cases = [
        ("any claim", using("p", &["unrelated"]), Queue),
        ("an in-tree volume of the driver", inline(ebs("vol-1")), Queue),
        ("an in-tree volume of another driver", inline(VolumeSource::Cinder("d".into())), Skip),
        ("an ephemeral volume is not thought of", inline(VolumeSource::Ephemeral), Skip),
    ];
    let change = object_deleted(attachment("va", "n", "ebs.csi.aws.com", Some("b")));
    for (name, waiting, expected) in cases {
        let answer = hint(resources::VOLUME_ATTACHMENT, ActionType::DELETE, &waiting, &change);
        assert_eq!(answer, Some(expected), "{name}");
    }
    for (driver, source) in
        [("file.csi.azure.com", VolumeSource::AzureFile), ("csi.vsphere.vmware.com", VolumeSource::Vsphere)]
    {
        for (attacher, expected) in [(driver, Queue), (DRIVER, Skip)] {
            let change = object_deleted(attachment("va", "n", attacher, Some("b")));
            let answer =
                hint(resources::VOLUME_ATTACHMENT, ActionType::DELETE, &inline(source.clone()), &change);
            assert_eq!(answer, Some(expected), "{driver} {attacher}");
        }
        let full = csi_node("n", &[(driver, Some(0))]);
        let verdict = verdict(&inline(source), vec![], vec![full]);
        assert_eq!(verdict, Status::success(), "{driver} does not count");
    }
    let broken = inline(ebs("aws://x/y"));
    let plugin = driver(NAME);
    let resource = EventResource::Other(resources::VOLUME_ATTACHMENT);
    let answer = plugin.hint(resource, ActionType::DELETE, &broken, &change);
    assert!(matches!(answer, Some(Err(_))), "an error counts as Queue");
}

#[test]
fn raising_a_limit_never_rejects_more() {
    let pods = || vec![using("q", &["b", "c"]), using("r", &["c", "x", "late"])];
    let verdicts: Vec<_> = (0..7)
        .map(|limit| verdict(&using("p", &["a", "d"]), pods(), with_limit(limit, [])).is_success())
        .collect();
    assert_eq!(verdicts, [false, false, false, false, false, true, true]);
}
