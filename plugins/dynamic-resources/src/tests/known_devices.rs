//! The devices that the plugin knows are those of the objects, whatever has changed.

use std::sync::Arc;

use proptest::prelude::*;
use supercargo_devices::Features;
use supercargo_framework::objects::{
    Body, DeviceTaint, DeviceTaintRule, Object, Objects, TaintRuleSelector, resources,
};
use supercargo_framework::taint::TaintEffect;
use supercargo_framework::testing::{node, object};
use supercargo_framework::{Context, NodeRecord, Nodes};

use super::*;
use crate::devices::Devices;

/// A change of objects.
#[derive(Clone, Debug)]
enum Change {
    Slice(usize, Vec<usize>),
    SliceGone(usize),
    Rule(usize),
    RuleGone,
    Claim(usize, Option<usize>),
    ClaimGone(usize),
    Assume(usize, usize),
    Pending(usize, usize),
    PendingGone(usize),
    /// The objects of another scheduler.
    Copy,
}

const DEVICES: [&str; 4] = ["gpu-0", "gpu-1", "gpu-2", "gpu-3"];

fn change() -> impl Strategy<Value = Change> {
    let device = 0..DEVICES.len();
    let which = 0..3_usize;
    prop_oneof![
        (which.clone(), proptest::collection::vec(device.clone(), 0..3))
            .prop_map(|(slice, devices)| Change::Slice(slice, devices)),
        which.clone().prop_map(Change::SliceGone),
        device.clone().prop_map(Change::Rule),
        Just(Change::RuleGone),
        (which.clone(), proptest::option::of(device.clone()))
            .prop_map(|(claim, device)| Change::Claim(claim, device)),
        which.clone().prop_map(Change::ClaimGone),
        (which.clone(), device.clone()).prop_map(|(claim, device)| Change::Assume(claim, device)),
        (which.clone(), device).prop_map(|(claim, device)| Change::Pending(claim, device)),
        which.prop_map(Change::PendingGone),
        Just(Change::Copy),
    ]
}

fn held(number: usize, device: Option<usize>, version: u64) -> Arc<Object> {
    let claim = claim(&format!("c{number}"), |claim| {
        claim.allocation = device.map(|device| allocation(DEVICES[device]));
    });
    Arc::new(Object { resource_version: version.to_string().into(), ..claim })
}

fn apply(objects: &mut Objects, change: &Change, version: u64) {
    match change {
        Change::Slice(number, devices) => {
            let names: Vec<&str> = devices.iter().map(|device| DEVICES[*device]).collect();
            objects.insert(Arc::new(slice(&format!("s{number}"), &names, 1)));
        }
        Change::SliceGone(number) => {
            objects.remove(&resources::RESOURCE_SLICE, &format!("s{number}"));
        }
        Change::Rule(device) => {
            let taint = DeviceTaint { key: "k".into(), value: "".into(), effect: TaintEffect::NoSchedule };
            let selector = TaintRuleSelector { device: Some(DEVICES[*device].into()), ..Default::default() };
            let rule = DeviceTaintRule { selector: Some(selector), taint };
            objects.insert(object(&resources::DEVICE_TAINT_RULE, "rule", Body::DeviceTaintRule(rule)).into());
        }
        Change::RuleGone => drop(objects.remove(&resources::DEVICE_TAINT_RULE, "rule")),
        Change::Claim(number, device) => drop(objects.insert(held(*number, *device, version))),
        Change::ClaimGone(number) => {
            objects.remove(&resources::RESOURCE_CLAIM, &format!("default/c{number}"));
        }
        Change::Assume(number, device) => drop(objects.assume(held(*number, Some(*device), version))),
        Change::Pending(number, device) => drop(objects.add_pending(held(*number, Some(*device), version))),
        Change::PendingGone(number) => drop(objects.remove_pending(&format!("uid-default/c{number}"))),
        Change::Copy => *objects = objects.clone(),
    }
}

/// How many devices are free on the node, and which comes first.
fn free(devices: &mut Devices, objects: &Objects, node: &NodeRecord) -> String {
    let nodes = Nodes::default();
    let cx = Context::at_rest(&nodes, objects);
    let wanted: Vec<Arc<Object>> =
        (0..3).map(|number| Arc::new(claim(&format!("new-{number}"), |_| {}))).collect();
    let found = (1..=wanted.len()).map(|count| {
        let demand = devices.demand(&cx, &wanted[..count]);
        let found = devices.allocate(&demand, node, &mut || None);
        let claims = |found: supercargo_devices::Allocation| {
            (0..count).flat_map(|claim| found.devices(claim).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        format!("{:?}", found.map(|found| found.map(claims)))
    });
    found.collect::<Vec<_>>().join("\n")
}

proptest! {
    #[test]
    fn devices_that_follow_changes_equal_those_from_scratch(
        changes in proptest::collection::vec(change(), 1..30),
        with_rules: bool,
    ) {
        let new = || Devices::new(Features::default(), with_rules);
        let mut objects = Objects::default();
        objects.insert(class().into());
        let (mut following, node) = (new(), node("n").build());
        for (version, change) in changes.iter().enumerate() {
            apply(&mut objects, change, version as u64 + 1);
            prop_assert_eq!(following.inconsistencies(&objects), Vec::<String>::new());
            prop_assert_eq!(free(&mut following, &objects, &node), free(&mut new(), &objects, &node));
        }
    }
}

#[test]
fn devices_of_claims_and_of_pending_allocations_are_taken() {
    let mut objects = Objects::default();
    for object in [class(), slice("s", &["gpu-0", "gpu-1", "gpu-2"], 1)] {
        objects.insert(object.into());
    }
    let (mut devices, node) = (Devices::new(Features::default(), true), node("n").build());
    let mut first = |objects: &Objects| {
        let text = free(&mut devices, objects, &node);
        text.lines().next().unwrap().split("device: ").nth(1).map(|rest| rest[..7].to_owned())
    };
    assert_eq!(first(&objects).as_deref(), Some("\"gpu-0\""));
    objects.insert(held(0, Some(0), 1));
    assert_eq!(first(&objects).as_deref(), Some("\"gpu-1\""));
    objects.add_pending(held(1, Some(1), 1));
    assert_eq!(first(&objects).as_deref(), Some("\"gpu-2\""));
    objects.remove(&resources::RESOURCE_CLAIM, "default/c0");
    assert_eq!(first(&objects).as_deref(), Some("\"gpu-0\""));
}

#[test]
fn claims_that_are_gone_are_not_held_until_the_next_cycle() {
    let mut objects = Objects::default();
    objects.insert(class().into());
    objects.insert(held(0, Some(0), 1));
    let mut devices = Devices::new(Features::default(), true);
    free(&mut devices, &objects, &node("n").build());
    let gone = objects.remove(&resources::RESOURCE_CLAIM, "default/c0").unwrap();
    assert_eq!(Arc::strong_count(&gone), 1);
}
