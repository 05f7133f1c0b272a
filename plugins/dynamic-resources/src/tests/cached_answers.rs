//! Answers that are kept for a shape of claims are those that a new cycle gives, whatever has
//! changed.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use supercargo_framework::affinity::{NodeSelectorTerm, RawRequirement};
use supercargo_framework::caching::{Applied, IncrementalPlugin};
use supercargo_framework::objects::{
    CounterConsumption, CounterSet, DeviceCount, DeviceNodeSelector, DeviceTaint, DeviceTaintRule, Objects,
    Quantities, TaintRuleSelector,
};
use supercargo_framework::pod::RareSpec;
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::signature::Signer;
use supercargo_framework::taint::TaintEffect;
use supercargo_framework::testing::caching::{NODES, Step, replay};
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{Context, CycleState, NodeInfo, NodeRecord, Nodes, PodInfo};

use super::*;
use crate::testing::driver;

const CLAIMS: usize = 4;
const POOLS: [&str; 2] = ["p0", "p1"];
const DEVICES: [&str; 3] = ["d0", "d1", "d2"];
const ZONES: [&str; 2] = ["a", "b"];

/// A pod for each claim, by number.
fn pods() -> Vec<PodInfo> {
    let of = |number: usize| {
        let source = PodClaimSource::Claim(format!("c{number}").into());
        let claim = PodClaim { name: "c".into(), source };
        let rare = RareSpec { resource_claims: Box::new([claim]), ..RareSpec::default() };
        pod(&format!("pod-{number}")).with_spec(|spec| spec.rare = Some(Box::new(rare))).build()
    };
    (0..CLAIMS).map(of).collect()
}

fn quantities(list: &[(&str, usize)]) -> Quantities {
    list.iter().map(|(name, amount)| ((*name).into(), amount.to_string().into())).collect()
}

fn place() -> impl Strategy<Value = DevicePlace> {
    let of_zone = |zone: usize| {
        let requirement =
            RawRequirement { key: "zone".into(), operator: "In".into(), values: vec![ZONES[zone].into()] };
        let term = NodeSelectorTerm::parse(vec![requirement], Vec::new());
        DevicePlace::Selector(DeviceNodeSelector { terms: [term].into(), raw: Arc::new(Value::Null) })
    };
    prop_oneof![
        6 => (0..NODES).prop_map(|node| DevicePlace::Node(format!("n{node}").into())),
        1 => Just(DevicePlace::AllNodes),
        2 => (0..ZONES.len()).prop_map(of_zone),
    ]
}

fn slice_with(name: &str, change: impl FnOnce(&mut ResourceSlice)) -> Object {
    let mut body = ResourceSlice { driver: DRIVER.into(), ..ResourceSlice::default() };
    change(&mut body);
    object(&resources::RESOURCE_SLICE, name, Body::ResourceSlice(body))
}

/// A slice with devices, some of which use counters.
fn devices() -> impl Strategy<Value = Object> {
    let device = (0..DEVICES.len(), proptest::option::of(1..3_usize)).prop_map(|(name, used)| {
        let used = used.map(|amount| CounterConsumption {
            counter_set: "set".into(),
            counters: quantities(&[("memory", amount)]),
            has_compatibility_groups: false,
        });
        Device {
            name: DEVICES[name].into(),
            consumes_counters: used.into_iter().collect(),
            ..Device::default()
        }
    });
    (0..6_usize, 0..POOLS.len(), place(), 1..3_i64, 1..3_i64, vec(device, 0..3)).prop_map(
        |(name, pool, place, generation, slice_count, devices)| {
            slice_with(&format!("s{name}"), |slice| {
                slice.pool = POOLS[pool].into();
                (slice.place, slice.generation, slice.slice_count) = (place, generation, slice_count);
                slice.devices = devices.into();
            })
        },
    )
}

/// A slice with counters, in place of one with devices.
fn counters() -> impl Strategy<Value = Object> {
    (0..6_usize, 0..POOLS.len(), place(), 1..4_usize).prop_map(|(name, pool, place, amount)| {
        slice_with(&format!("s{name}"), |slice| {
            slice.pool = POOLS[pool].into();
            (slice.place, slice.generation, slice.slice_count) = (place, 1, 2);
            let counters = quantities(&[("memory", amount)]);
            slice.shared_counters = Box::new([CounterSet { name: "set".into(), counters }]);
        })
    })
}

/// A claim of one of four shapes, allocated or not.
fn any_claim() -> impl Strategy<Value = Object> {
    let allocated = proptest::option::weighted(0.3, (0..POOLS.len(), 0..DEVICES.len()));
    (0..CLAIMS, 0..4_usize, allocated).prop_map(|(number, shape, allocated)| {
        claim(&format!("c{number}"), |claim| {
            let of = |name: &str, count| DeviceRequest {
                name: name.into(),
                class: "gpu".into(),
                count,
                ..DeviceRequest::default()
            };
            claim.requests[0].choice = match shape {
                0 => RequestChoice::Exactly(of("", DeviceCount::Exact(1))),
                1 => RequestChoice::Exactly(of("", DeviceCount::Exact(2))),
                2 => RequestChoice::Exactly(of("", DeviceCount::All)),
                _ => RequestChoice::FirstAvailable(Box::new([
                    of("two", DeviceCount::Exact(2)),
                    of("one", DeviceCount::Exact(1)),
                ])),
            };
            claim.allocation = allocated.map(|(pool, device)| {
                let mut allocation = allocation(DEVICES[device]);
                allocation.results[0].device.pool = POOLS[pool].into();
                allocation
            });
        })
    })
}

fn rule() -> impl Strategy<Value = Object> {
    (0..POOLS.len(), 0..DEVICES.len(), any::<bool>()).prop_map(|(pool, device, taints)| {
        let effect = if taints { TaintEffect::NoSchedule } else { TaintEffect::PreferNoSchedule };
        let taint = DeviceTaint { key: "k".into(), value: "".into(), effect };
        let selector = TaintRuleSelector {
            pool: Some(POOLS[pool].into()),
            device: Some(DEVICES[device].into()),
            ..TaintRuleSelector::default()
        };
        let rule = DeviceTaintRule { selector: Some(selector), taint };
        object(&resources::DEVICE_TAINT_RULE, "rule", Body::DeviceTaintRule(rule))
    })
}

fn some_node() -> impl Strategy<Value = NodeInfo> {
    (0..NODES, 0..ZONES.len()).prop_map(|(name, zone)| {
        let record = node(&format!("n{name}")).label("zone", ZONES[zone]).build();
        NodeInfo::new(Arc::new(record))
    })
}

/// A history from a cluster with all nodes, a class and claims. It ends with a pod to schedule.
fn history() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => devices().prop_map(Step::SetObject),
        3 => counters().prop_map(Step::SetObject),
        8 => any_claim().prop_map(Step::SetObject),
        2 => rule().prop_map(Step::SetObject),
        1 => Just(Step::SetObject(class())),
        2 => some_node().prop_map(Step::SetNode),
        1 => (0..NODES).prop_map(Step::RemoveNode),
        12 => (0..CLAIMS).prop_map(Step::Schedule),
    ];
    (vec(any_claim(), 6), vec(devices(), 6), vec(step, 1..40), 0..CLAIMS).prop_map(
        |(claims, slices, steps, last)| {
            let nodes = (0..NODES).map(|i| {
                let record = node(&format!("n{i}")).label("zone", ZONES[i % 2]).build();
                Step::SetNode(NodeInfo::new(Arc::new(record)))
            });
            let objects = [class()].into_iter().chain(claims).chain(slices).map(Step::SetObject);
            nodes.chain(objects).chain(steps).chain([Step::Schedule(last)]).collect()
        },
    )
}

proptest! {
    #[test]
    fn kept_answers_equal_those_of_a_new_cycle(steps in history()) {
        replay(&driver().points, &pods(), steps).map_err(|it| TestCaseError::fail(it.to_string()))?;
    }
}

/// Follows no change of devices.
struct Deaf;

impl IncrementalPlugin for Deaf {
    fn node_added(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_removed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_changed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn objects_changed(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo) -> Applied {
        Applied::Here
    }
}

#[test]
fn histories_show_whether_devices_are_followed() {
    let mut runner = TestRunner::deterministic();
    let (mut reused, mut found) = (0, 0);
    for _ in 0..100 {
        let steps = history().new_tree(&mut runner).unwrap().current();
        reused += replay(&driver().points, &pods(), steps.clone()).unwrap();
        let mut deaf = driver().points.clone();
        deaf.incremental = Some(Arc::new(Deaf));
        found += usize::from(replay(&deaf, &pods(), steps).is_err());
    }
    assert!(reused > 200 && found > 30, "reused {reused} times, found {found} times");
}

#[test]
fn a_change_in_the_pool_of_a_node_alters_answers_about_this_node() {
    let plugin = driver();
    let mut objects = Objects::default();
    for object in [class(), claim("c0", |_| {}), slice("s", &["gpu-0"], 1)] {
        objects.insert(object.into());
    }
    let (nodes, mut state, pod) = (Nodes::default(), CycleState::new(), pods().remove(0));
    let incremental = plugin.points.incremental.clone().unwrap();
    let mut changed = |objects: &Objects| {
        let cx = Context::at_rest(&nodes, objects);
        if state.read::<crate::Found>().is_none() {
            plugin.points.pre_filter.as_ref().unwrap().pre_filter(&cx, &mut state, &pod);
        }
        incremental.objects_changed(&cx, &mut state, &pod)
    };
    let nodes_of = |names: &[&str]| Applied::Nodes(names.iter().map(|name| (*name).into()).collect());
    assert_eq!(changed(&objects), nodes_of(&[]));
    objects.add_pending(Arc::new(claim("other", |claim| claim.allocation = Some(allocation("gpu-0")))));
    assert_eq!(changed(&objects), nodes_of(&["n"]));
    assert_eq!(changed(&objects), nodes_of(&[]));
    let moved = slice_with("s", |slice| slice.place = DevicePlace::Node("m".into()));
    objects.insert(moved.into());
    assert_eq!(changed(&objects), nodes_of(&["m", "n"]));
    objects.insert(slice_with("everywhere", |slice| slice.place = DevicePlace::AllNodes).into());
    assert_eq!(changed(&objects), Applied::Everywhere);
    assert_eq!(changed(&objects.clone()), Applied::Rebuild, "the objects of another scheduler");
}

#[test]
fn pods_share_answers_if_their_claims_request_the_same() {
    let plugin = driver();
    let sign = |change: fn(&mut ResourceClaim)| {
        let mut objects = Objects::default();
        objects.insert(claim("c0", change).into());
        let mut signer = Signer::default();
        plugin.sign_in(&pods()[0], &Nodes::default(), &objects, &mut signer).map(|()| signer.finish())
    };
    let plain = sign(|_| {});
    assert!(plain.is_ok());
    assert_eq!(plain, sign(|claim| claim.reserved_for = Box::new([consumer("other")])));
    assert!(sign(|claim| claim.allocation = Some(allocation("gpu-0"))).is_err());
    let others: [fn(&mut DeviceRequest); 5] = [
        |request| request.count = DeviceCount::Exact(2),
        |request| request.class = "nic".into(),
        |request| request.selectors = Box::new([Some("true".into())]),
        |request| request.admin_access = Some(true),
        |request| request.capacity = Some(quantities(&[("memory", 1)])),
    ];
    for change in others {
        let mut objects = Objects::default();
        let other = claim("c0", |claim| {
            if let RequestChoice::Exactly(request) = &mut claim.requests[0].choice {
                change(request);
            }
        });
        objects.insert(other.into());
        let mut signer = Signer::default();
        let signed = plugin.sign_in(&pods()[0], &Nodes::default(), &objects, &mut signer);
        assert_ne!(signed.map(|()| signer.finish()), plain);
    }
}
