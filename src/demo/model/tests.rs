use proptest::prelude::*;
use supercargo_framework::objects::{
    AllocationResult, Body, ClaimAllocation, Device, ResourceClaim, ResourceSlice, resources,
};
use supercargo_framework::pod::PodCondition;
use supercargo_framework::testing::{node, object, pod};

use super::*;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn ours(name: &str) -> supercargo_framework::testing::PodBuilder {
    pod(name).namespace("default").scheduler("supercargo").request("cpu", "500m").request("memory", "1Gi")
}

fn condition(status: &str, reason: &str, message: &str) -> PodCondition {
    PodCondition {
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: None,
        last_transition: None,
    }
}

fn new(name: &str) -> Arc<PodInfo> {
    Arc::new(ours(name).build())
}

fn waiting(name: &str, why: &str) -> Arc<PodInfo> {
    Arc::new(
        ours(name)
            .with(|pod| pod.status.pod_scheduled = Some(condition("False", "Unschedulable", why)))
            .build(),
    )
}

fn bound(name: &str, node: &str) -> Arc<PodInfo> {
    Arc::new(
        ours(name).node(node).with(|pod| pod.status.pod_scheduled = Some(condition("True", "", ""))).build(),
    )
}

fn gated(name: &str) -> Arc<PodInfo> {
    Arc::new(
        ours(name)
            .gate("hold")
            .with(|pod| pod.status.pod_scheduled = Some(condition("False", GATED, "")))
            .build(),
    )
}

fn ended(name: &str, node: &str) -> Arc<PodInfo> {
    Arc::new(ours(name).node(node).with(|pod| pod.status.terminal = true).build())
}

fn model() -> Model {
    let mut model = Model::new("supercargo");
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        let node = node(name).zone(zone).allocatable("cpu", "2").allocatable("memory", "4Gi").build();
        model.update_node(Duration::ZERO, &Arc::new(node), true);
    }
    model
}

fn activities(model: &Model) -> Vec<String> {
    let text = |(at, activity): &(Duration, Activity)| match activity {
        Activity::Bound { pod, node, took } => {
            format!("{} {} on {node} after {}", at.as_millis(), display_name(pod), took.as_millis())
        }
        Activity::Waits { pod, why } => format!("{} {} waits: {why}", at.as_millis(), display_name(pod)),
        Activity::Note(text) => format!("{} {text}", at.as_millis()),
    };
    model.since(0).0.map(text).collect()
}

#[test]
fn pod_is_counted_from_arrival_to_deletion() {
    let mut model = model();
    model.update_pod(ms(10), &new("p"));
    assert_eq!(model.counts(), Counts { arrived: 1, undecided: 1, ..Counts::default() });
    model.update_pod(ms(13), &bound("p", "n1"));
    assert_eq!(model.counts(), Counts { arrived: 1, bound: 1, ..Counts::default() });
    assert_eq!(activities(&model), ["13 p on n1 after 3"]);
    let loaded = model.nodes().next().unwrap();
    assert_eq!((loaded.name, loaded.zone, loaded.used.pods), ("n1", "a", 1));
    assert_eq!(loaded.used.shares(&loaded.allocatable), (0.25, 0.25));
    assert_eq!(model.latencies(), Some((ms(3), ms(3))));
    model.remove_pod(ms(20), &new("p").key());
    assert_eq!(model.counts(), Counts { arrived: 1, ..Counts::default() });
    assert_eq!(model.total().0.pods, 0);
}

#[test]
fn waiting_pods_are_grouped_by_their_reason() {
    let mut model = model();
    for name in ["a", "b"] {
        model.update_pod(ms(1), &waiting(name, "no room"));
    }
    model.update_pod(ms(2), &waiting("c", "no port"));
    let groups = |model: &Model| {
        let all = model.waiting();
        all.iter().map(|group| format!("{} {}", group.pods.len(), group.why)).collect::<Vec<_>>()
    };
    assert_eq!(groups(&model), ["2 no room", "1 no port"]);
    // Only a new reason is an activity.
    model.update_pod(ms(3), &waiting("a", "no port"));
    model.update_pod(ms(4), &waiting("a", "no port"));
    assert_eq!(groups(&model), ["2 no port", "1 no room"]);
    assert_eq!(activities(&model).last().unwrap(), "3 a waits: no port");
    model.update_pod(ms(5), &bound("b", "n1"));
    assert_eq!(groups(&model), ["2 no port"]);
    // Not bound at the first attempt, so it has no latency.
    assert_eq!(model.latencies(), None);
}

#[test]
fn latency_of_a_gated_pod_starts_when_its_gates_are_removed() {
    let mut model = model();
    model.update_pod(ms(1), &gated("p"));
    assert_eq!((model.counts().gated, model.gated().len()), (1, 1));
    let lifted = ours("p").with(|pod| pod.status.pod_scheduled = Some(condition("False", GATED, ""))).build();
    model.update_pod(ms(500), &Arc::new(lifted));
    assert_eq!(model.counts(), Counts { arrived: 1, undecided: 1, ..Counts::default() });
    model.update_pod(ms(504), &bound("p", "n2"));
    assert_eq!(activities(&model), ["504 p on n2 after 4"]);
    assert!(model.gated().is_empty());
}

#[test]
fn pods_of_other_schedulers_count_only_as_load() {
    let mut model = model();
    let other = pod("other").namespace("default").scheduler("default-scheduler").request("cpu", "1");
    model.update_pod(ms(1), &Arc::new(other.clone().build()));
    assert_eq!(model.counts(), Counts::default());
    model.update_pod(ms(2), &Arc::new(other.node("n1").build()));
    assert_eq!(model.counts(), Counts::default());
    assert_eq!(model.total().0.milli_cpu, 1000);
    assert!(activities(&model).is_empty());
}

#[test]
fn finished_pod_counts_as_bound_but_not_as_load() {
    let mut model = model();
    model.update_pod(ms(1), &bound("p", "n1"));
    model.update_pod(ms(2), &ended("p", "n1"));
    assert_eq!(model.counts(), Counts { arrived: 1, bound: 1, ..Counts::default() });
    assert_eq!(model.total().0.milli_cpu, 0);
}

#[test]
fn changes_of_nodes_are_activities() {
    let mut model = model();
    let n3 = node("n3").zone("a");
    model.update_node(ms(1), &Arc::new(n3.clone().build()), false);
    model.update_node(ms(2), &Arc::new(n3.clone().unschedulable().build()), false);
    model.update_node(ms(3), &Arc::new(node("n3").zone("c").build()), false);
    model.remove_node(ms(4), "n3");
    model.remove_node(ms(5), "n3");
    let expected =
        ["1 node n3 joins", "2 node n3 is cordoned", "3 node n3 is uncordoned", "4 node n3 leaves"];
    assert_eq!(activities(&model), expected);
    assert_eq!(model.nodes().len(), 2);
}

/// A slice with this many devices.
pub(in crate::demo) fn slice(devices: usize) -> Object {
    let devices = (0..devices).map(|_| Device::default()).collect();
    let body = ResourceSlice { devices, ..ResourceSlice::default() };
    object(&resources::RESOURCE_SLICE, "s", Body::ResourceSlice(body))
}

/// A claim that has as many devices.
pub(in crate::demo) fn claim(devices: usize, admin_access: bool) -> Object {
    let result = |_| AllocationResult { admin_access, ..AllocationResult::default() };
    let allocation =
        ClaimAllocation { results: (0..devices).map(result).collect(), ..ClaimAllocation::default() };
    let body = ResourceClaim { allocation: Some(allocation), ..ResourceClaim::default() };
    object(&resources::RESOURCE_CLAIM, "default/c", Body::ResourceClaim(body))
}

#[test]
fn devices_are_counted_while_their_slices_and_claims_exist() {
    let mut model = model();
    let mut counted = |old: Option<Object>, new: Option<Object>| {
        model.replace_object(old.as_ref(), new.as_ref());
        (model.devices().allocated, model.devices().all)
    };
    assert_eq!(counted(None, Some(slice(8))), (0, 8));
    assert_eq!(counted(None, Some(claim(2, false))), (2, 8));
    assert_eq!(counted(None, Some(claim(3, true))), (2, 8));
    assert_eq!(counted(Some(slice(8)), Some(slice(7))), (2, 7));
    assert_eq!(counted(Some(claim(2, false)), None), (0, 7));
    assert_eq!(counted(Some(slice(7)), None), (0, 0));
}

#[test]
fn model_is_settled_when_all_pods_are_decided_and_nothing_changes() {
    let mut model = model();
    model.update_pod(ms(100), &new("p"));
    assert!(!model.is_settled(ms(5000), ms(500)));
    model.update_pod(ms(5000), &waiting("p", "no room"));
    assert!(!model.is_settled(ms(5400), ms(500)));
    assert!(model.is_settled(ms(5500), ms(500)));
}

#[test]
fn old_activities_are_dropped() {
    let mut model = model();
    for number in 0..MAX_ACTIVITIES + 10 {
        model.note(ms(1), number.to_string());
    }
    let (new, next) = model.since(5);
    assert_eq!((new.count(), next), (MAX_ACTIVITIES, MAX_ACTIVITIES + 10));
    assert_eq!(model.since(next - 1).0.count(), 1);
}

proptest! {
    #[test]
    fn counts_and_load_equal_the_sums_over_pods(
        steps in proptest::collection::vec((0_usize..6, 0_usize..7), 0..80)
    ) {
        let mut model = model();
        let mut truth = BTreeMap::new();
        for (at, (which, what)) in steps.into_iter().enumerate() {
            let (name, at) = (format!("p{which}"), ms(at as u64));
            let pod = match what {
                0 => new(&name),
                1 => gated(&name),
                2 => waiting(&name, "one"),
                3 => waiting(&name, "two"),
                4 => bound(&name, "n1"),
                5 => ended(&name, "n1"),
                _ => {
                    truth.remove(&name);
                    model.remove_pod(at, &new(&name).key());
                    continue;
                }
            };
            model.update_pod(at, &pod);
            truth.insert(name, pod);
        }
        let count = |wanted: fn(&PodState) -> bool| truth.values().filter(|p| wanted(&PodState::of(p))).count();
        let counts = model.counts();
        prop_assert_eq!(counts.undecided, count(|s| *s == PodState::New));
        prop_assert_eq!(counts.gated, count(|s| *s == PodState::Gated));
        prop_assert_eq!(counts.waiting, count(|s| matches!(s, PodState::Waiting(_))));
        prop_assert_eq!(counts.bound, count(|s| matches!(s, PodState::Bound(_) | PodState::Ended)));
        prop_assert_eq!(model.total().0.pods as usize, count(|s| matches!(s, PodState::Bound(_))));
        prop_assert_eq!(model.waiting().iter().map(|group| group.pods.len()).sum::<usize>(), counts.waiting);
        prop_assert_eq!(model.gated().len(), counts.gated);
    }
}
