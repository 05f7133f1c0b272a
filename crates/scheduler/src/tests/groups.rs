//! Groups: gangs are scheduled whole or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use supercargo_framework::binding::ApiCall;
use supercargo_framework::context::Command;
use supercargo_framework::objects::{
    Body, ClaimAllocation, DeviceNodeSelector, GroupPolicy, GroupSpec, ResourceClaim, resources,
};
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::ports::UsedPorts;
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, object, pod};
use supercargo_framework::{Feature, Features, Now, Plugin, PodSpec, PodTotals, Resource, Status};

use super::fake::Fake;
use super::test_bed::{TestBed, in_tree, options};
use crate::{Input, Notification, Options, Place, ProfileSpec};
use supercargo_queue::QueueOptions;

fn bed() -> TestBed {
    TestBed::of(group_options(|name| name != "DefaultPreemption"))
}

pub(super) fn group_options(enabled: fn(&str) -> bool) -> Options {
    group_options_with(Features::default(), enabled)
}

pub(super) fn group_options_with(features: Features, enabled: fn(&str) -> bool) -> Options {
    options_with_plugins(features, enabled, Vec::new())
}

pub(super) fn options_with_plugins(
    features: Features,
    enabled: fn(&str) -> bool,
    more: Vec<Arc<dyn Plugin>>,
) -> Options {
    let features = features.with(Feature::GenericWorkload, true);
    let plugins = in_tree(&features, enabled, |_| serde_json::Value::Null, more);
    let queue = QueueOptions { groups: true, ..QueueOptions::default() };
    let served = |name: &str| ProfileSpec {
        scheduler_name: name.to_owned(),
        percentage_of_nodes_to_score: None,
        plugins: plugins.clone(),
    };
    let profiles = ["supercargo", "other"].map(served).to_vec();
    Options { profiles, queue, features, ..options(plugins.clone()) }
}

impl TestBed {
    pub(super) fn group(&mut self, group: GroupSpec) {
        self.group_named("g", group);
    }

    pub(super) fn group_named(&mut self, name: &str, group: GroupSpec) {
        let group = object(&resources::POD_GROUP, &format!("default/{name}"), Body::PodGroup(group.into()));
        self.handle(Input::Object(Notification::Added(Arc::new(group))));
    }

    /// Nodes with these CPUs, and pods on them that request one each.
    pub(super) fn crowd(&mut self, cpus: &[u32], pods: usize) {
        for (i, cpus) in cpus.iter().enumerate() {
            self.node(with_cpus(&format!("n{i}"), &cpus.to_string()));
        }
        for i in 0..pods {
            self.assigned(pod(&format!("old{i}")).request("cpu", "1").node(&format!("n{}", i % cpus.len())));
        }
    }

    /// The nodes of these pods, `-` for those without one.
    pub(super) fn nodes_of(&self, pods: &[&str]) -> String {
        pods.iter().map(|pod| self.node_of(pod).unwrap_or("-")).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn places(&self, pods: &[&str]) -> Vec<Option<Place>> {
        pods.iter().map(|pod| self.place(pod)).collect()
    }
}

pub(super) fn gang(min_count: i32) -> GroupSpec {
    GroupSpec { policy: GroupPolicy::Gang(min_count), ..GroupSpec::default() }
}

/// A node with this many CPUs.
pub(super) fn with_cpus(name: &str, cpus: &str) -> NodeBuilder {
    node(name).allocatable("cpu", cpus)
}

/// A member that requests this many CPUs.
pub(super) fn member(name: &str, cpus: &str) -> PodBuilder {
    pod(name).group("g").request("cpu", cpus)
}

/// The attempts of groups that metrics count.
pub(super) fn attempts(bed: &mut TestBed) -> Vec<String> {
    bed.observed().into_iter().filter(|line| line.starts_with("group attempt")).collect()
}

#[test]
fn a_gang_is_bound_once_it_is_complete() {
    let mut bed = bed();
    bed.node(with_cpus("n", "4"));
    bed.group(gang(2));
    bed.pod(member("a", "1"));
    assert!(!bed.cycle());
    bed.pod(member("b", "1"));
    assert!(bed.cycle());
    assert_eq!(
        bed.effect_lines(),
        ["default/g patch True Scheduled: ", "a patch nominated \"n\"", "a bind to n", "b bind to n",]
    );
    assert_eq!(attempts(&mut bed), ["group attempt Scheduled"]);
}

#[test]
fn pods_beyond_the_minimum_do_not_wait_on_permit() {
    let mut bed = bed();
    bed.node(with_cpus("n", "4"));
    bed.group(gang(2));
    for name in ["a", "b", "c"] {
        bed.pod(member(name, "1"));
    }
    assert!(bed.cycle());
    let lines = bed.effect_lines();
    let bound = lines.iter().filter(|line| line.ends_with("bind to n")).count();
    assert_eq!(bound, 3, "{lines:?}");
}

#[test]
fn a_queued_gang_goes_on_without_a_deleted_pod() {
    let mut bed = bed();
    bed.group(gang(2));
    bed.pod(member("a", "1"));
    bed.pod(member("b", "1"));
    bed.handle(Input::QueuedPod(Notification::Deleted(Arc::new(member("b", "1").build()))));
    // As upstream, PreEnqueue does not hold it before its attempt.
    assert_eq!(bed.places(&["a"]), [Some(Place::Active)]);
}

#[test]
fn pods_that_are_being_deleted_must_agree_too() {
    let mut bed = bed();
    bed.node(with_cpus("n", "4"));
    bed.group(gang(1));
    bed.pod(member("a", "1"));
    bed.pod(member("b", "1").priority(1).terminating());
    assert!(bed.cycle());
    let lines = bed.effect_lines();
    assert!(lines.iter().any(|line| line.contains("should have the same priority")), "{lines:?}");
}

#[test]
fn a_gang_that_does_not_fit_leaves_all_its_room() {
    let mut bed = bed();
    bed.node(with_cpus("n", "2"));
    bed.group(gang(3));
    for name in ["a", "b", "c"] {
        bed.pod(member(name, "1"));
    }
    assert!(bed.cycle());
    let reason = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining";
    let lines = bed.effect_lines();
    // As upstream, also if nothing was.
    let reason = format!("{reason}, deallocation and deletion of ResourceClaims completed");
    let feasible = format!("Scheduling: pod group is unschedulable, {reason}");
    assert!(lines[0].ends_with(&feasible) && lines[2].ends_with(&feasible), "{lines:?}");
    assert!(lines[4].contains("0/1 nodes are available: 1 Insufficient cpu"), "{lines:?}");
    assert_eq!(lines[6], format!("default/g patch False Unschedulable: {reason}"));
    assert_eq!(bed.places(&["a", "b", "c"]), [Some(Place::Backoff); 3]);
    assert_eq!(attempts(&mut bed), ["group attempt Unschedulable"]);
    bed.pod(pod("single").request("cpu", "2"));
    bed.cycle();
    assert_eq!(bed.node_of("single"), Some("n"));
}

#[test]
fn the_trial_ends_once_the_minimum_is_out_of_reach() {
    let mut bed = bed();
    bed.node(with_cpus("n", "1"));
    bed.group(gang(3));
    for name in ["a", "b", "c", "d", "e"] {
        bed.pod(member(name, "1"));
    }
    bed.cycle();
    let reason = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining";
    let tried = bed.effect_lines();
    let untried = format!("e Warning FailedScheduling Scheduling: {reason}");
    assert!(tried.contains(&untried), "{tried:?}");
}

#[test]
fn pods_on_nodes_count() {
    let mut bed = bed();
    bed.node(with_cpus("n", "4"));
    bed.group(gang(3));
    bed.assigned(member("a", "1").node("n"));
    bed.assigned(member("b", "1").node("n"));
    bed.pod(member("c", "1"));
    bed.cycle();
    assert_eq!(bed.node_of("c"), Some("n"));
}

#[test]
fn more_than_the_minimum_is_scheduled_as_it_fits() {
    let mut bed = bed();
    bed.node(with_cpus("n", "2"));
    bed.group(gang(1));
    for name in ["a", "b", "c"] {
        bed.pod(member(name, "1"));
    }
    bed.cycle();
    let nodes = ["a", "b", "c"].map(|name| bed.node_of(name).map(str::to_owned));
    assert_eq!(nodes, [Some("n".to_owned()), Some("n".to_owned()), None]);
    assert_eq!(bed.place("c"), Some(Place::Active), "the rest keeps its turn");
    let of_group = |line: &String| line.starts_with("default/g patch");
    let lines = bed.effect_lines();
    assert!(lines.iter().any(|line| of_group(line) && line.contains("True Scheduled")), "{lines:#?}");
    bed.cycle();
    let lines = bed.effect_lines();
    assert!(lines.iter().any(|line| line.contains("1 Insufficient cpu")), "{lines:#?}");
    assert!(!lines.iter().any(of_group), "it stays true before the informer reports it: {lines:#?}");
    assert_eq!(bed.place("c"), Some(Place::Backoff));
}

#[test]
fn members_see_those_before_them() {
    let mut bed = bed();
    bed.node(with_cpus("n1", "8").label("kubernetes.io/hostname", "n1"));
    bed.node(with_cpus("n2", "8").label("kubernetes.io/hostname", "n2"));
    bed.group(gang(2));
    for name in ["a", "b"] {
        bed.pod(member(name, "1").host_port(80));
    }
    bed.cycle();
    let nodes = ["a", "b"].map(|name| bed.node_of(name).map(str::to_owned));
    assert!(nodes[0].is_some() && nodes[1].is_some() && nodes[0] != nodes[1], "{nodes:?}");
}

#[test]
fn a_gang_whose_pods_disagree_is_not_tried() {
    let priority = "all pods in a single pod group should have the same priority as the pod group's priority, got 5 and 0";
    let policy = "all pods in a single pod group should have the same preemption policy, got Never and PreemptLowerPriority";
    let cases = [
        (member("b", "1").priority(5), priority),
        (member("b", "1").with_spec(|spec| spec.never_preempts = true), policy),
    ];
    for (other, expected) in cases {
        let mut bed = bed();
        bed.node(with_cpus("n", "8"));
        bed.group(gang(2));
        bed.pod(member("a", "1"));
        bed.pod(other);
        bed.cycle();
        let lines = bed.effect_lines();
        assert!(lines.contains(&format!("default/g patch False SchedulerError: {expected}")), "{lines:?}");
        assert_eq!(bed.places(&["a", "b"]), [Some(Place::Backoff); 2]);
        assert!(attempts(&mut bed).is_empty(), "as upstream, it is not counted");
    }
}

#[test]
fn a_member_that_is_deleted_meanwhile_is_skipped() {
    let mut bed = bed();
    bed.node(with_cpus("n", "8"));
    bed.group(GroupSpec::default());
    bed.pod(member("a", "1"));
    bed.pod(member("b", "1").terminating());
    bed.cycle();
    assert_eq!((bed.node_of("a"), bed.node_of("b")), (Some("n"), None));
}

#[test]
fn a_member_that_fails_to_bind_is_queued_again_alone() {
    let mut bed = bed();
    bed.node(with_cpus("n", "8"));
    bed.group(gang(2));
    bed.pod(member("a", "1"));
    bed.pod(member("b", "1"));
    bed.cycle();
    bed.bound("a", super::test_bed::failed(supercargo_framework::binding::Certainty::Refused, "no"));
    assert_eq!((bed.place("a"), bed.node_of("a"), bed.node_of("b")), (Some(Place::Active), None, Some("n")));
    assert!(bed.cycle());
    assert_eq!(bed.node_of("a"), Some("n"));
}

/// As upstream: pods on Permit give up after five minutes if the last one of their gang is lost.
#[test]
fn a_gang_that_loses_its_last_pod_on_permit_gives_up_after_minutes() {
    // The first call is that of the trial.
    let calls = AtomicU32::new(0);
    let breaks = Fake::new("Breaks").reserve(move |_, pod| {
        let is_commit = &*pod.name == "b" && calls.fetch_add(1, Ordering::Relaxed) == 1;
        if is_commit { Status::unschedulable("no") } else { Status::success() }
    });
    let enabled = |name: &str| name != "DefaultPreemption";
    let plugins: Vec<Arc<dyn Plugin>> = vec![breaks.build()];
    let mut bed = TestBed::of(options_with_plugins(Features::default(), enabled, plugins));
    bed.node(with_cpus("n", "8"));
    bed.group(gang(2));
    bed.pod(member("a", "1"));
    bed.pod(member("b", "1"));
    bed.cycle();
    assert_eq!(bed.nodes_of(&["a", "b"]), "n -");
    assert_eq!(bed.place("b"), Some(Place::Active), "the attempt of the group succeeded");
    bed.delete(member("b", "1"));
    bed.pass_seconds(299);
    assert!(bed.is_assumed("a"));
    bed.effect_lines();
    bed.pass_seconds(1);
    assert_eq!((bed.node_of("a"), bed.place("a")), (None, Some(Place::Gated)));
    let told = "rejected due to timeout after waiting 5m0s at plugin GangScheduling";
    let lines = bed.effect_lines();
    assert!(lines.iter().any(|line| line.contains("FailedScheduling") && line.contains(told)), "{lines:?}");
}

#[test]
fn groups_survive_a_change_of_the_configuration() {
    let mut bed = bed();
    bed.node(with_cpus("n", "8"));
    bed.group(gang(3));
    for (name, scheduler) in [("a", "supercargo"), ("b", "other"), ("c", "supercargo")] {
        bed.pod(member(name, "1").scheduler(scheduler));
    }
    assert_eq!(bed.places(&["a", "b", "c"]), [Some(Place::Active); 3]);
    let with_names = |names: &[&str]| {
        let mut options = group_options(|name| name != "DefaultPreemption");
        let profile = options.profiles.remove(0);
        let renamed = |name: &&str| ProfileSpec { scheduler_name: (*name).to_owned(), ..profile.clone() };
        Options { profiles: names.iter().map(renamed).collect(), ..options }
    };
    bed.reconfigure(with_names(&["another", "supercargo"])).unwrap();
    assert_eq!(bed.places(&["a", "b", "c"]), [Some(Place::Gated), None, Some(Place::Gated)]);
    bed.reconfigure(with_names(&["supercargo", "other"])).unwrap();
    assert_eq!(bed.places(&["a", "b", "c"]), [Some(Place::Active); 3]);
}

#[test]
fn a_group_is_not_tried_before_the_writes_for_its_pods_are_answered() {
    let mut bed = bed();
    bed.node(with_cpus("n", "4"));
    bed.group(gang(2));
    bed.pod(member("a", "1"));
    bed.pod(member("b", "1"));
    let write = Command::Write {
        resource: resources::RESOURCE_CLAIM,
        call: ApiCall::request("PUT", "/claim".to_owned(), "application/json", serde_json::Value::Null),
        then: None,
        pod: Some("b".into()),
        retries: true,
    };
    bed.scheduler.execute(Now::default(), vec![write]);
    assert!(!bed.scheduler.has_work());
    bed.handle(Input::WriteEnded { pod: "b".into(), retry: false });
    assert!(bed.scheduler.has_work());
}

#[test]
fn an_allocation_that_members_share_is_taken_away_once() {
    let mut bed = bed();
    bed.node(with_cpus("n", "4"));
    bed.group(gang(1));
    // It is allocated for no node.
    let node_selector = Some(DeviceNodeSelector::default());
    let allocation = Some(ClaimAllocation { node_selector, ..ClaimAllocation::default() });
    let claim = Body::ResourceClaim(ResourceClaim { allocation, ..ResourceClaim::default() });
    let claim = object(&resources::RESOURCE_CLAIM, "default/c", claim);
    bed.handle(Input::Object(Notification::Added(Arc::new(claim))));
    for name in ["a", "b"] {
        let entry = PodClaim { name: "c".into(), source: PodClaimSource::Claim("c".into()) };
        let claims = Box::new([entry]);
        let with_claims = |spec: &mut PodSpec| spec.rare.get_or_insert_default().resource_claims = claims;
        bed.pod(member(name, "1").with_spec(with_claims));
    }
    bed.cycle();
    let lines = bed.effect_lines();
    assert!(
        lines.iter().filter(|line| line.contains("resourceclaim not available")).count() >= 2,
        "{lines:?}"
    );
    assert_eq!(lines.iter().filter(|line| line.starts_with("write")).count(), 1, "{lines:?}");
}

/// What a trial may not change: what is on a node.
#[derive(Debug, PartialEq)]
pub(super) struct OnNode {
    pods: Vec<String>,
    with_affinity: usize,
    totals: PodTotals,
    requested: Resource,
    non_zero: [i64; 2],
    ports: UsedPorts,
}

pub(super) fn room(bed: &TestBed, nodes: usize) -> Vec<OnNode> {
    let on_node = |i: usize| {
        let node = bed.scheduler.cache().nodes().get(&format!("n{i}")).unwrap();
        let mut pods: Vec<_> = node.pods().iter().map(|pod| pod.uid.to_string()).collect();
        pods.sort();
        OnNode {
            pods,
            with_affinity: node.pods_with_affinity().len(),
            totals: node.totals(),
            requested: node.requested().clone(),
            non_zero: [node.non_zero_milli_cpu(), node.non_zero_memory()],
            ports: node.used_ports().clone(),
        }
    };
    (0..nodes).map(on_node).collect()
}

proptest! {
    /// Random gangs on random nodes: a gang has a node for at least its minimum, or for none of its
    /// pods, and then nothing is left of the trial.
    #[test]
    fn a_gang_starts_whole_or_leaves_no_trace(
        cpus in proptest::collection::vec(1..8_u32, 1..5),
        requests in proptest::collection::vec((1..6_u32, any::<bool>()), 1..8),
        min_count in 1..8_i32,
        on_nodes in 0..3_usize,
    ) {
        let mut bed = bed();
        bed.crowd(&cpus, on_nodes);
        bed.group(gang(min_count));
        for (i, (cpu, has_port)) in requests.iter().enumerate() {
            let member = member(&format!("p{i}"), &cpu.to_string());
            bed.pod(if *has_port { member.host_port(80) } else { member });
        }
        let before = room(&bed, cpus.len());
        let is_complete = requests.len() >= usize::try_from(min_count).unwrap();
        prop_assert_eq!(bed.cycle(), is_complete);
        let placed = (0..requests.len()).filter(|i| bed.node_of(&format!("p{i}")).is_some()).count();
        prop_assert!(placed == 0 || placed >= usize::try_from(min_count).unwrap(), "{} placed", placed);
        if placed == 0 {
            prop_assert_eq!(room(&bed, cpus.len()), before);
        }
        prop_assert_eq!(bed.scheduler.bindings_in_flight(), placed);
        for (node, cpus) in room(&bed, cpus.len()).iter().zip(&cpus) {
            prop_assert!(node.requested.milli_cpu <= i64::from(*cpus) * 1000 || on_nodes > 0);
        }
    }
}
