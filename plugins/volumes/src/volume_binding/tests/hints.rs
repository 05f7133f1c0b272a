//! Queueing hints and signatures.

use std::sync::Arc;

use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::objects::{Object, annotations, resources};
use supercargo_framework::testing::pod;
use supercargo_framework::{ActionType, EventResource, PodInfo, Text, Volume, VolumeSource};

use super::super::NAME;
use super::world::*;
use crate::testing::driver;

fn hint(resource: &Text, pod: &PodInfo, old: Option<Object>, new: Object) -> Option<QueueingHint> {
    let action = if old.is_some() { ActionType::UPDATE } else { ActionType::ADD };
    let change = Change::Object { old: old.map(Arc::new), new: Some(Arc::new(new)) };
    let resource = EventResource::Other(resource.clone());
    driver(NAME).hint(resource, action, pod, &change).map(|hint| hint.unwrap())
}

const QUEUE: Option<QueueingHint> = Some(QueueingHint::Queue);
const SKIP: Option<QueueingHint> = Some(QueueingHint::Skip);

#[test]
fn registered_events_match_upstream() {
    const ADD: ActionType = ActionType::ADD;
    let other = |resource: &Text| EventResource::Other(resource.clone());
    let changed = ADD | ActionType::UPDATE;
    let expected = [
        (other(&resources::STORAGE_CLASS), changed, true),
        (other(&resources::PERSISTENT_VOLUME_CLAIM), changed, true),
        (other(&resources::PERSISTENT_VOLUME), changed, false),
        (EventResource::Node, ADD | ActionType::UPDATE_NODE_LABEL, false),
        (other(&resources::CSI_NODE), changed, true),
        (other(&resources::CSI_DRIVER), ActionType::UPDATE, true),
        (other(&resources::CSI_STORAGE_CAPACITY), changed, true),
    ];
    let registered = driver(NAME).events().into_iter().map(|registration| {
        let hinted = registration.hint.is_some();
        (registration.event.resource, registration.event.action, hinted)
    });
    assert_eq!(registered.collect::<Vec<_>>(), expected);
}

#[test]
fn claims_of_the_pod_wake_it() {
    let waiting = pod_with(&["c"]).build();
    let of = |name: &str| claim(name, |_| {});
    let hint = |pod: &PodInfo, old, new| hint(&resources::PERSISTENT_VOLUME_CLAIM, pod, old, new);
    assert_eq!(hint(&waiting, None, of("c")), QUEUE);
    assert_eq!(hint(&waiting, Some(of("c")), of("c")), QUEUE);
    assert_eq!(hint(&waiting, None, of("d")), SKIP);
    assert_eq!(hint(&pod_with(&["c"]).namespace("other").build(), None, of("c")), SKIP);
    assert_eq!(hint(&pod_with_ephemeral().build(), None, of("p-scratch")), QUEUE);
    assert_eq!(hint(&pod_with_ephemeral().build(), None, of("scratch")), SKIP);
}

#[test]
fn new_or_wider_storage_classes_wake_the_pod() {
    let pod = pod_with(&["c"]).build();
    let hint = |old, new| hint(&resources::STORAGE_CLASS, &pod, old, new);
    let zone = |zone| dynamic_class_for(&[&[("zone", &[zone])]]);
    assert_eq!(hint(None, zone("a")), QUEUE);
    assert_eq!(hint(Some(zone("a")), zone("b")), QUEUE);
    assert_eq!(hint(Some(zone("a")), annotated(zone("a"), "k", "v")), SKIP);
}

#[test]
fn volumes_and_nodes_always_wake_the_pod() {
    let pod = pod_with(&["c"]).build();
    assert_eq!(hint(&resources::PERSISTENT_VOLUME, &pod, None, volume("v", |_| {})), QUEUE);
    assert_eq!(
        hint(&resources::PERSISTENT_VOLUME, &pod, Some(volume("v", |_| {})), volume("v", |_| {})),
        QUEUE
    );
}

#[test]
fn new_or_migrating_csi_nodes_wake_the_pod() {
    let pod = pod_with(&["c"]).build();
    let hint = |old, new| hint(&resources::CSI_NODE, &pod, old, new);
    let unannotated =
        || Object { annotations: supercargo_framework::Labels::default(), ..csi_node("n", "x") };
    assert_eq!(hint(None, csi_node("n", "x")), QUEUE);
    assert_eq!(hint(Some(csi_node("n", "x")), csi_node("n", "x,y")), QUEUE);
    assert_eq!(hint(Some(csi_node("n", "x")), csi_node("n", "x")), SKIP);
    assert_eq!(hint(Some(csi_node("n", "")), unannotated()), SKIP);
    assert_eq!(hint(Some(unannotated()), csi_node("n", "x")), QUEUE);
}

#[test]
fn drivers_that_stop_counting_storage_wake_inline_users() {
    let inline = |driver: &str| {
        let volume = Volume { name: "v".into(), source: VolumeSource::Csi(driver.into()) };
        pod("p").with_spec(|spec| spec.volumes = [volume].into()).build()
    };
    let hint = |pod: &PodInfo, old, new| hint(&resources::CSI_DRIVER, pod, old, new);
    assert_eq!(hint(&inline(DRIVER), Some(csi_driver(true)), csi_driver(false)), QUEUE);
    assert_eq!(hint(&inline(DRIVER), Some(csi_driver(false)), csi_driver(true)), SKIP);
    assert_eq!(hint(&inline(DRIVER), Some(csi_driver(true)), csi_driver(true)), SKIP);
    assert_eq!(hint(&inline("other"), Some(csi_driver(true)), csi_driver(false)), SKIP);
    assert_eq!(hint(&pod_with(&["c"]).build(), Some(csi_driver(true)), csi_driver(false)), SKIP);
    assert_eq!(hint(&inline(DRIVER), None, csi_driver(false)), None, "an added driver is not registered");
}

#[test]
fn new_or_larger_storage_capacity_wakes_the_pod() {
    let pod = pod_with(&["c"]).build();
    let hint = |old, new| hint(&resources::CSI_STORAGE_CAPACITY, &pod, old, new);
    let of = |capacity, max| storage("s", Some("a"), capacity, max);
    assert_eq!(hint(None, of(None, None)), QUEUE);
    let cases = [
        ((Some(5), None), (Some(6), None), QUEUE),
        ((Some(5), None), (Some(5), None), SKIP),
        ((Some(5), None), (Some(4), None), SKIP),
        ((None, None), (Some(1), None), QUEUE),
        ((Some(5), None), (None, None), SKIP),
        ((Some(5), Some(3)), (Some(9), Some(3)), SKIP),
        ((Some(5), Some(3)), (Some(5), Some(4)), QUEUE),
    ];
    for ((old, old_max), (new, new_max), expected) in cases {
        assert_eq!(hint(Some(of(old, old_max)), of(new, new_max)), expected, "{old:?} {new:?}");
    }
}

#[test]
fn events_without_their_object_are_errors() {
    let resource = EventResource::Other(resources::STORAGE_CLASS);
    let pod = pod("p").build();
    for change in [
        Change::Unspecified,
        Change::Object {
            old: None,
            new: Some(Arc::new(annotated(csi_driver(true), annotations::SELECTED_NODE, "n"))),
        },
    ] {
        let hint = driver(NAME).hint(resource.clone(), ActionType::ADD, &pod, &change);
        assert!(hint.unwrap().is_err());
    }
}

#[test]
fn signatures_are_equal_for_equal_claims() {
    let driver = driver(NAME);
    let sign = |pod: PodInfo| driver.sign(&pod);
    assert_eq!(sign(pod("a").build()), sign(pod("b").namespace("other").build()));
    let rename = |pod: &mut PodInfo| pod.name = "q".into();
    assert_eq!(sign(pod_with(&["c"]).build()), sign(pod_with(&["c"]).with(rename).build()));
    assert_ne!(sign(pod_with(&["c"]).build()), sign(pod_with(&["d"]).build()));
    assert_ne!(sign(pod_with(&["c"]).build()), sign(pod_with(&["c"]).namespace("other").build()));
    let mut signer = supercargo_framework::signature::Signer::default();
    assert!(
        driver.try_sign(&pod_with_ephemeral().build(), &mut signer).is_err(),
        "its claims belong to the pod"
    );
}
