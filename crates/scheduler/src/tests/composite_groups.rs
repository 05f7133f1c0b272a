//! Groups that consist of groups.

use std::sync::Arc;

use proptest::prelude::*;
use supercargo_framework::objects::{Body, CompositePodGroup, GroupPolicy, GroupSpec, resources};
use supercargo_framework::testing::{NodeBuilder, PodBuilder, object, pod};
use supercargo_framework::{Feature, Features};

use super::groups::{attempts, gang, group_options_with, room, with_cpus};
use super::test_bed::TestBed;
use crate::{Effect, Input, Notification, Options, Place};

fn options(enabled: fn(&str) -> bool) -> Options {
    let features = Features::default()
        .with(Feature::TopologyAwareWorkloadScheduling, true)
        .with(Feature::CompositePodGroup, true);
    group_options_with(features, enabled)
}

fn bed() -> TestBed {
    TestBed::of(options(|name| name != "DefaultPreemption"))
}

fn basic() -> GroupSpec {
    GroupSpec::default()
}

fn of(parent: &str, group: GroupSpec) -> GroupSpec {
    GroupSpec { parent: Some(parent.into()), ..group }
}

fn within(key: &str, group: GroupSpec) -> GroupSpec {
    GroupSpec { topology_key: Some(key.into()), ..group }
}

fn member(name: &str, group: &str, cpus: &str) -> PodBuilder {
    pod(name).group(group).request("cpu", cpus)
}

impl TestBed {
    fn composite(&mut self, name: &str, spec: GroupSpec) {
        let body = Body::CompositePodGroup(CompositePodGroup { spec });
        let group = object(&resources::COMPOSITE_POD_GROUP, &format!("default/{name}"), body);
        self.handle(Input::Object(Notification::Added(Arc::new(group))));
    }

    fn remove_composite(&mut self, name: &str, spec: GroupSpec) {
        let body = Body::CompositePodGroup(CompositePodGroup { spec });
        let group = object(&resources::COMPOSITE_POD_GROUP, &format!("default/{name}"), body);
        self.handle(Input::Object(Notification::Deleted(Arc::new(group))));
    }

    /// A root with gangs `g` of two and `h` of one.
    fn two_gangs(&mut self, root: GroupSpec) {
        self.composite("r", root);
        self.group_named("g", of("r", gang(2)));
        self.group_named("h", of("r", gang(1)));
    }
}

/// What is said of a group or a pod.
fn said<'a>(lines: &'a [String], of: &str) -> &'a str {
    let line = lines.iter().find_map(|line| line.strip_prefix(of));
    line.unwrap_or_else(|| panic!("nothing of {of}: {lines:?}"))
}

#[test]
fn the_pods_of_a_tree_wait_and_start_as_one() {
    let mut bed = bed();
    bed.node(with_cpus("n", "4"));
    bed.pod(member("a", "g", "1"));
    bed.group_named("g", of("r", gang(2)));
    assert_eq!(bed.place("a"), Some(Place::Aside), "the root is missing");
    bed.composite("r", gang(2));
    assert_eq!(bed.place("a"), Some(Place::Gated));
    bed.group_named("h", of("r", gang(1)));
    bed.pod(member("c", "h", "1"));
    assert!(!bed.cycle());
    bed.pod(member("b", "g", "1"));
    assert!(bed.cycle());
    assert_eq!(
        bed.effect_lines(),
        [
            "default/g patch True Scheduled: ",
            "a patch nominated \"n\"",
            "b patch nominated \"n\"",
            "default/h patch True Scheduled: ",
            "a bind to n",
            "b bind to n",
            "c bind to n",
        ]
    );
    assert_eq!(attempts(&mut bed), ["group attempt Scheduled"]);
    assert!(bed.scheduler.inconsistencies().is_empty());
}

#[test]
fn a_tree_starts_with_the_minimum_of_its_groups() {
    let mut bed = bed();
    bed.node(with_cpus("n", "2"));
    bed.two_gangs(basic());
    for (name, group, cpus) in [("a", "g", "1"), ("b", "g", "1"), ("c", "h", "2")] {
        bed.pod(member(name, group, cpus));
    }
    bed.cycle();
    assert_eq!(bed.nodes_of(&["a", "b", "c"]), "n n -");
    let lines = bed.effect_lines();
    let reason = "pod group is unschedulable, 0/1 placements are available, first placement status: minCount (1) cannot be satisfied: 0 scheduled, 0 remaining";
    assert_eq!(said(&lines, "default/h patch False "), format!("Unschedulable: {reason}"));
    assert!(said(&lines, "c Warning FailedScheduling Scheduling: ").contains("1 Insufficient cpu"));
    assert_eq!(bed.place("c"), Some(Place::Active), "the rest is tried again at once");
}

#[test]
fn a_group_that_fails_voids_the_groups_that_fit() {
    let mut bed = bed();
    bed.node(with_cpus("n", "2"));
    bed.two_gangs(gang(2));
    for (name, group, cpus) in [("a", "g", "1"), ("b", "g", "1"), ("c", "h", "2")] {
        bed.pod(member(name, group, cpus));
    }
    bed.cycle();
    assert_eq!(bed.nodes_of(&["a", "b", "c"]), "- - -");
    assert_eq!(bed.places(&["a", "b", "c"]), [Some(Place::Backoff); 3]);
    let lines = bed.effect_lines();
    let root = "pod group is unschedulable, 0/1 placements are available, first placement status: minCount (2) cannot be satisfied: 1 scheduled, 0 remaining";
    // The group shares its reason with the root. PodGroupPostFilter has nothing to add to either.
    assert_eq!(said(&lines, "default/g patch False "), format!("Unschedulable: {root}, , "));
    assert_eq!(said(&lines, "a Warning FailedScheduling Scheduling: "), root);
    assert!(said(&lines, "default/h patch False ").contains("minCount (1) cannot be satisfied"));
    assert!(said(&lines, "c Warning FailedScheduling Scheduling: ").contains("1 Insufficient cpu"));
    bed.pod(pod("single").request("cpu", "2"));
    bed.cycle();
    assert_eq!(bed.node_of("single"), Some("n"));
}

#[test]
fn groups_stay_within_the_placement_of_the_group_above() {
    let mut bed = bed();
    let in_rack = |name: &str, rack: &str, zone: &str| -> NodeBuilder {
        with_cpus(name, "2").label("rack", rack).label("zone", zone)
    };
    // Each gang needs a rack of two nodes. Only zone `b` has two such racks.
    let nodes = [
        ("a1", "r1", "a"),
        ("a2", "r1", "a"),
        ("a3", "r2", "a"),
        ("b1", "r3", "b"),
        ("b2", "r3", "b"),
        ("b3", "r4", "b"),
        ("b4", "r4", "b"),
    ];
    for (name, rack, zone) in nodes {
        bed.node(in_rack(name, rack, zone));
    }
    bed.composite("r", within("zone", gang(2)));
    bed.group_named("g", of("r", within("rack", gang(2))));
    bed.group_named("h", of("r", within("rack", gang(2))));
    for (name, group) in [("a", "g"), ("b", "g"), ("c", "h"), ("d", "h")] {
        bed.pod(member(name, group, "2"));
    }
    bed.cycle();
    assert_eq!(bed.nodes_of(&["a", "b", "c", "d"]), "b1 b2 b3 b4");
}

#[test]
fn a_tree_that_loses_a_group_waits_for_it() {
    let mut bed = bed();
    bed.node(with_cpus("n", "4"));
    bed.composite("r", gang(2));
    bed.composite("m", of("r", basic()));
    bed.group_named("g", of("m", gang(1)));
    bed.group_named("h", of("r", gang(1)));
    bed.pod(member("a", "g", "1"));
    bed.pod(member("b", "h", "1"));
    assert_eq!(bed.places(&["a", "b"]), [Some(Place::Active); 2]);
    bed.remove_composite("m", of("r", basic()));
    assert_eq!(bed.places(&["a", "b"]), [Some(Place::Aside), Some(Place::Gated)]);
    bed.composite("m", of("r", basic()));
    assert_eq!(bed.places(&["a", "b"]), [Some(Place::Active); 2]);
    bed.remove_composite("r", gang(2));
    assert_eq!(bed.places(&["a", "b"]), [Some(Place::Aside); 2]);
    assert!(bed.scheduler.inconsistencies().is_empty());
    bed.composite("r", gang(2));
    bed.cycle();
    assert_eq!(bed.nodes_of(&["a", "b"]), "n n");
}

#[test]
fn priority_of_the_root_orders_and_must_be_that_of_all_pods() {
    let mut bed = bed();
    bed.node(with_cpus("n", "1"));
    bed.two_gangs(GroupSpec { priority: 5, ..basic() });
    bed.pod(pod("single").priority(1).request("cpu", "1"));
    bed.pod(member("c", "h", "1").priority(5));
    bed.cycle();
    assert_eq!(bed.nodes_of(&["c", "single"]), "n -");
    bed.effect_lines();
    bed.pod(member("d", "h", "1"));
    bed.cycle();
    let lines = bed.effect_lines();
    let error = "all pods in a single pod group should have the same priority as the pod group's priority, got 0 and 5";
    assert!(said(&lines, "d Warning FailedScheduling Scheduling: ").ends_with(error), "{lines:?}");
    assert_eq!(said(&lines, "default/g patch False "), format!("SchedulerError: {error}"));
}

/// A bed with preemption, whose nodes have these CPUs.
fn preempting(cpus: &[&str]) -> TestBed {
    let mut bed = TestBed::of(options(|_| true));
    for (i, cpus) in cpus.iter().enumerate() {
        let name = format!("n{i}");
        bed.node(with_cpus(&name, cpus).label("name", &name));
    }
    bed
}

/// The victims that the first effect of preemption deletes, and those of the next ones.
fn victims(bed: &mut TestBed) -> Vec<String> {
    let mut gone = Vec::new();
    loop {
        let effects = bed.effects();
        let found = effects.into_iter().find_map(|effect| match effect {
            Effect::Evict { preemption, victims } => Some((preemption, victims)),
            _ => None,
        });
        let Some((preemption, victims)) = found else { break };
        gone.extend(victims.iter().map(|victim| victim.uid.to_string()));
        let outcomes = vec![crate::Eviction::Deleted; victims.len()];
        bed.handle(Input::Evicted { preemption, outcomes });
    }
    gone.sort();
    gone
}

#[test]
fn the_highest_group_that_is_disrupted_whole_is_preempted_whole() {
    let whole = |spec| GroupSpec { is_disrupted_whole: true, ..spec };
    for (root, expected) in [(whole(basic()), &["x", "y", "z"][..]), (basic(), &["x", "y"])] {
        let mut bed = preempting(&["1", "1", "1"]);
        bed.composite("old", root);
        bed.group_named("g", of("old", whole(gang(1))));
        bed.group_named("h", of("old", gang(1)));
        bed.assigned(member("x", "g", "1").node("n0"));
        bed.assigned(member("y", "g", "1").node("n1"));
        bed.assigned(member("z", "h", "1").node("n2"));
        bed.pod(pod("high").priority(10).request("cpu", "1").node_selector("name", "n0"));
        bed.cycle();
        assert_eq!(victims(&mut bed), expected);
    }
}

#[test]
fn a_tree_preempts_for_all_its_groups() {
    let mut bed = preempting(&["1", "1", "1"]);
    bed.two_gangs(GroupSpec { priority: 10, ..gang(2) });
    for i in 0..3 {
        bed.assigned(pod(&format!("low{i}")).request("cpu", "1").node(&format!("n{i}")));
    }
    for (name, group) in [("a", "g"), ("b", "g"), ("c", "h")] {
        bed.pod(member(name, group, "1").priority(10));
    }
    bed.cycle();
    let lines = bed.effect_lines();
    let preempts = "pod group preemption: found a placement for podgroup, preempting 3 victims";
    assert!(said(&lines, "default/g patch False ").ends_with(preempts), "{lines:?}");
    assert!(said(&lines, "default/h patch False ").ends_with(preempts), "{lines:?}");
    assert_eq!(attempts(&mut bed), ["group attempt WaitingOnPreemption"]);
    assert_eq!(bed.nodes_of(&["a", "b", "c"]), "- - -");
    assert_eq!(bed.places(&["a", "b", "c"]), [Some(Place::Gated); 3]);
}

proptest! {
    /// Random trees on random nodes: enough groups of each group that starts do, or nothing is left
    /// of the trial.
    #[test]
    fn a_tree_starts_with_its_minimum_or_leaves_no_trace(
        cpus in proptest::collection::vec(1..6_u32, 1..5),
        gangs in proptest::collection::vec((0..3_usize, 1..4_i32, proptest::collection::vec(1..4_u32, 1..4)), 1..5),
        minima in proptest::collection::vec(1..3_i32, 3),
        is_narrow in any::<bool>(),
    ) {
        let mut bed = bed();
        for (i, cpus) in cpus.iter().enumerate() {
            let node = with_cpus(&format!("n{i}"), &cpus.to_string());
            bed.node(node.label("zone", if i % 2 == 0 { "a" } else { "b" }));
        }
        // The root is `c0`, which has `c1`, which has `c2`; each gang is of one of these.
        let policy = |min: i32| GroupSpec { policy: GroupPolicy::Gang(min), ..basic() };
        bed.composite("c0", if is_narrow { within("zone", policy(minima[0])) } else { policy(minima[0]) });
        bed.composite("c1", of("c0", policy(minima[1])));
        bed.composite("c2", of("c1", policy(minima[2])));
        for (i, (parent, min_count, _)) in gangs.iter().enumerate() {
            bed.group_named(&format!("g{i}"), of(&format!("c{parent}"), gang(*min_count)));
        }
        for (i, (.., requests)) in gangs.iter().enumerate() {
            for (j, cpus) in requests.iter().enumerate() {
                bed.pod(member(&format!("p{i}-{j}"), &format!("g{i}"), &cpus.to_string()));
            }
        }
        let before = room(&bed, cpus.len());
        bed.cycle();
        let starts: Vec<bool> = gangs.iter().enumerate().map(|(i, (_, min_count, requests))| {
            let placed = (0..requests.len()).filter(|j| bed.node_of(&format!("p{i}-{j}")).is_some()).count();
            assert!(placed == 0 || placed >= usize::try_from(*min_count).unwrap());
            placed > 0
        }).collect();
        let of_parent = |at: usize| gangs.iter().zip(&starts).filter(|((parent, ..), starts)| *parent == at && **starts).count();
        let mut above = 0;
        for at in (0..3).rev() {
            let groups = of_parent(at) + usize::from(above > 0);
            prop_assert!(groups == 0 || groups >= usize::try_from(minima[at]).unwrap(), "{} below c{}", groups, at);
            above = groups;
        }
        if !starts.contains(&true) {
            prop_assert_eq!(room(&bed, cpus.len()), before);
        }
        prop_assert_eq!(bed.scheduler.inconsistencies(), Vec::<String>::new());
    }

    /// Groups, trees and pods come and go in any order: a pod waits beside the queue exactly while
    /// a group above it is missing.
    #[test]
    fn pods_wait_aside_exactly_while_a_group_is_missing(
        steps in proptest::collection::vec((0..4_u8, 0..6_usize), 1..40),
    ) {
        let mut bed = bed();
        // No pod fits.
        bed.node(with_cpus("n", "1"));
        let parents = [None, Some("c0"), Some("c1")];
        let composite = |at: usize| GroupSpec { parent: parents[at].map(Into::into), ..basic() };
        let of_group = [Some("c2"), Some("c1"), None];
        let (mut composites, mut groups, mut pods) = ([false; 3], [false; 3], [false; 6]);
        for (action, at) in steps {
            let (third, name) = (at % 3, format!("p{at}"));
            let pod = member(&name, &format!("g{third}"), "2");
            match action {
                0 => {
                    composites[third] = !composites[third];
                    let name = format!("c{third}");
                    if composites[third] {
                        bed.composite(&name, composite(third));
                    } else {
                        bed.remove_composite(&name, composite(third));
                    }
                }
                1 => {
                    groups[third] = !groups[third];
                    let parent = of_group[third].map(Into::into);
                    let group = Body::PodGroup(GroupSpec { parent, ..gang(1) }.into());
                    let group = object(&resources::POD_GROUP, &format!("default/g{third}"), group).into();
                    bed.handle(Input::Object(if groups[third] {
                        Notification::Added(group)
                    } else {
                        Notification::Deleted(group)
                    }));
                }
                2 => {
                    pods[at] = !pods[at];
                    if pods[at] { bed.pod(pod) } else { bed.delete(pod) }
                }
                _ => {
                    bed.cycle();
                    bed.pass_seconds(at as u64);
                }
            }
            prop_assert_eq!(bed.scheduler.inconsistencies(), Vec::<String>::new());
            for at in (0..6).filter(|at| pods[*at]) {
                let has_root = groups[at % 3] && match at % 3 {
                    0 => composites[..3].iter().all(|known| *known),
                    1 => composites[..2].iter().all(|known| *known),
                    _ => true,
                };
                let place = bed.place(&format!("p{at}"));
                prop_assert_eq!(place == Some(Place::Aside), !has_root, "p{} is {:?}", at, place);
            }
        }
    }
}
