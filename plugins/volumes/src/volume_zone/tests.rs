use supercargo_framework::objects::{Body, Object};
use supercargo_framework::testing::{
    NodeBuilder, claim, claim_source, node, node_added, node_info, node_updated, nodes, object, object_added,
    object_updated, objects, pod, with_claims, with_volumes,
};
use supercargo_framework::volume::VolumeSource;

use super::*;
use crate::testing::driver;

const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

fn volume(name: &str, labels: &[(&str, &str)]) -> Object {
    let body = Body::PersistentVolume(PersistentVolume::default());
    Object { labels: labels.iter().copied().collect(), ..object(&resources::PERSISTENT_VOLUME, name, body) }
}

fn class(name: &str, waits: Option<bool>) -> Object {
    let body = StorageClass { waits_for_first_consumer: waits, ..StorageClass::default() };
    object(&resources::STORAGE_CLASS, name, Body::StorageClass(body))
}

fn using(claims: &[&str]) -> PodInfo {
    with_claims(pod("p"), claims)
}

fn verdict(pod: &PodInfo, list: Vec<Object>, node: NodeBuilder) -> Status {
    let cluster = nodes([node_info(node.build(), [])]);
    driver(NAME).verdicts(pod, &cluster, &objects(list)).remove(0)
}

fn zone_conflict() -> Status {
    Status::unresolvable("node(s) had no available volume zone")
}

#[test]
fn node_must_be_in_the_zone_of_the_volume() {
    type Pairs<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, Pairs<'_>, Pairs<'_>, bool); 15] = [
        ("the same zone", &[(ZONE, "a")], &[(ZONE, "a")], true),
        ("another zone", &[(ZONE, "a")], &[(ZONE, "b")], false),
        ("a node without a place", &[(ZONE, "a")], &[("rack", "1")], true),
        ("a node with another label of place only", &[(ZONE, "a")], &[(REGION, "r")], false),
        ("one of several zones", &[(ZONE, "a__b")], &[(ZONE, "b")], true),
        ("none of several zones", &[(ZONE, "a__b")], &[(ZONE, "a__b")], false),
        ("spaces around zones", &[(ZONE, " a __ b ")], &[(ZONE, "a")], true),
        ("a list with a gap says nothing", &[(ZONE, "a__")], &[(ZONE, "z")], true),
        ("zone and region", &[(ZONE, "a"), (REGION, "r")], &[(ZONE, "a"), (REGION, "r")], true),
        ("zone but not region", &[(ZONE, "a"), (REGION, "r")], &[(ZONE, "a"), (REGION, "s")], false),
        ("the old label for the old label", &[(BETA_ZONE, "a")], &[(BETA_ZONE, "a")], true),
        ("the new label in place of the old one", &[(BETA_ZONE, "a")], &[(ZONE, "a")], true),
        ("the same for regions", &[(BETA_REGION, "a")], &[(REGION, "b")], false),
        ("the old label takes precedence", &[(BETA_ZONE, "a")], &[(BETA_ZONE, "b"), (ZONE, "a")], false),
        ("the old label does not stand in for the new one", &[(ZONE, "a")], &[(BETA_ZONE, "a")], false),
    ];
    for (name, of_volume, of_node, fits) in cases {
        let node = of_node.iter().fold(node("n"), |node, (key, value)| node.label(key, value));
        let list = vec![claim("default/c", "", "v"), volume("v", of_volume)];
        let expected = if fits { Status::success() } else { zone_conflict() };
        assert_eq!(verdict(&using(&["c"]), list, node), expected, "{name}");
    }
}

#[test]
fn every_volume_of_the_pod_is_checked() {
    let list = || {
        vec![
            claim("default/c", "", "v"),
            claim("default/d", "", "w"),
            volume("v", &[(ZONE, "a")]),
            volume("w", &[(ZONE, "b")]),
        ]
    };
    assert_eq!(verdict(&using(&["c"]), list(), node("n").zone("a")), Status::success());
    assert_eq!(verdict(&using(&["c", "d"]), list(), node("n").zone("a")), zone_conflict());
    let overlapping = || {
        let zones = [volume("v", &[(ZONE, "a__b")]), volume("w", &[(ZONE, "b__c")])];
        list().into_iter().take(2).chain(zones).collect()
    };
    for (zone, expected) in [("a", zone_conflict()), ("b", Status::success()), ("c", zone_conflict())] {
        assert_eq!(verdict(&using(&["c", "d"]), overlapping(), node("n").zone(zone)), expected, "{zone}");
    }
}

#[test]
fn claims_without_a_volume_have_upstreams_reasons() {
    let unresolvable = |text: &'static str| Status::unresolvable(text);
    let classes = || [class("late", Some(true)), class("now", Some(false)), class("unset", None)];
    let cases = [
        ("no name", "", None, unresolvable("PersistentVolumeClaim had no name")),
        ("no claim", "c", None, unresolvable("persistentvolumeclaim \"c\" not found")),
        ("no volume", "c", Some(("", "v")), unresolvable("persistentvolume \"v\" not found")),
        (
            "no volume and no class named",
            "c",
            Some(("", "")),
            unresolvable("PersistentVolumeClaim had no pv name and storageClass name"),
        ),
        ("no class", "c", Some(("gone", "")), unresolvable("storageclass.storage.k8s.io \"gone\" not found")),
        (
            "no binding mode",
            "c",
            Some(("unset", "")),
            unresolvable("VolumeBindingMode not set for StorageClass \"unset\""),
        ),
        ("a class that binds at once", "c", Some(("now", "")), unresolvable("PersistentVolume had no name")),
        ("a class that waits", "c", Some(("late", "")), Status::success()),
    ];
    for (name, claimed, found, expected) in cases {
        let found = found.map(|(class, volume)| claim("default/c", class, volume));
        let list = classes().into_iter().chain(found).collect();
        assert_eq!(verdict(&using(&[claimed]), list, node("n").zone("a")), expected, "{name}");
    }
}

#[test]
fn ephemeral_volumes_are_ignored() {
    let pod = with_volumes(pod("p"), &[("e", VolumeSource::Ephemeral)]);
    let list = vec![claim("default/p-e", "", "v"), volume("v", &[(ZONE, "a")])];
    assert_eq!(verdict(&pod, list, node("n").zone("b")), Status::success());
    assert!(matches!(driver(NAME).pre_filter(&pod), PreFilter::Skip));
}

#[test]
fn filter_without_pre_filter_computes_its_state() {
    let list = objects([claim("default/c", "", "v"), volume("v", &[(ZONE, "a")])]);
    let cluster = nodes([node_info(node("n").zone("b").build(), [])]);
    let cx = Context::at_rest(&cluster, &list);
    let node = cluster.get("n").expect("the node is there");
    assert_eq!(VolumeZone.filter(&cx, &CycleState::new(), &using(&["c"]), node), zone_conflict());
}

#[test]
fn added_or_moved_objects_wake_the_pod() {
    use QueueingHint::{Queue, Skip};
    let (added, updated) = (ActionType::ADD, ActionType::UPDATE);
    let in_zone = |zone| volume("v", &[(ZONE, zone)]);
    let cases = [
        ("a class that waits", added, object_added(class("c", Some(true))), Some(Queue)),
        ("a class that does not", added, object_added(class("c", Some(false))), Some(Skip)),
        ("a class without a mode", added, object_added(class("c", None)), Some(Skip)),
        ("a class that changes", updated, object_updated(class("c", None), class("c", Some(true))), None),
        ("the pod's claim", added, object_added(claim("default/c", "", "")), Some(Queue)),
        ("another claim", added, object_added(claim("default/d", "", "")), Some(Skip)),
        ("a namesake", added, object_added(claim("other/c", "", "")), Some(Skip)),
        ("an ephemeral volume's", added, object_added(claim("default/p-e", "", "")), Some(Skip)),
        (
            "the pod's claim changes",
            updated,
            object_updated(claim("default/c", "", ""), claim("default/c", "", "v")),
            Some(Queue),
        ),
        ("a volume", added, object_added(in_zone("a")), Some(Queue)),
        ("a volume that moves", updated, object_updated(in_zone("a"), in_zone("b")), Some(Queue)),
        ("a volume that gets a place", updated, object_updated(volume("v", &[]), in_zone("b")), Some(Queue)),
        (
            "the same zones in a different order",
            updated,
            object_updated(in_zone("a__b"), in_zone("b__a")),
            Some(Skip),
        ),
        (
            "another label",
            updated,
            object_updated(in_zone("a"), volume("v", &[(ZONE, "a"), ("x", "y")])),
            Some(Skip),
        ),
    ];
    let waiting = with_volumes(pod("p"), &[("c", claim_source("c")), ("e", VolumeSource::Ephemeral)]);
    for (name, action, change, expected) in cases {
        let Change::Object { new: Some(new), .. } = &change else { panic!("every event here has an object") };
        let resource = EventResource::Other(new.resource.clone());
        let hint = driver(NAME).hint(resource, action, &waiting, &change);
        assert_eq!(hint, expected.map(Ok), "{name}");
    }
    let plugin = driver(NAME);
    let change = node_added(node("n").build());
    assert_eq!(plugin.hint(EventResource::Node, added, &waiting, &change), Some(Ok(Queue)));
    let change = node_updated(node("n").build(), node("n").zone("a").build());
    let label = ActionType::UPDATE_NODE_LABEL;
    assert_eq!(plugin.hint(EventResource::Node, label, &waiting, &change), Some(Ok(Queue)));
}
