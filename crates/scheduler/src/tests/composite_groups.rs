//! Groups that consist of groups.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use proptest::prelude::*;
use supercargo_framework::objects::{Body, CompositePodGroup, GroupPolicy, GroupSpec, Object, resources};
use supercargo_framework::testing::{NodeBuilder, PodBuilder, object, pod};
use supercargo_framework::{Feature, Features, Plugin, Status};

use super::fake::Fake;
use super::groups::{attempts, gang, group_options_with, options_with_plugins, room, with_cpus};
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
fn groups_with_many_placements_each_go_on_in_the_next_attempts() {
    let mut bed = bed();
    let cpus = [("a", "4"), ("b", "1"), ("c", "1"), ("d", "2")];
    for (name, cpus) in cpus {
        bed.node(with_cpus(name, cpus).label("rack", name));
    }
    bed.scheduler.tries.most = 5;
    bed.composite("r", gang(2));
    // `g` fits on the first rack only, and `h` only on the last one beside it.
    bed.group_named("g", of("r", within("rack", gang(1))));
    bed.group_named("h", of("r", within("rack", gang(1))));
    bed.pod(member("p", "g", "4"));
    bed.pod(member("q", "h", "2"));
    let mut attempts = 0;
    while bed.node_of("p").is_none() {
        assert!(attempts < 16 && bed.cycle());
        attempts += 1;
        bed.pass_seconds(60);
    }
    assert_eq!(bed.nodes_of(&["p", "q"]), "a d");
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
        let mut complete = 0;
        for at in (0..3).rev() {
            let has_pods = |(parent, min, pods): &&(usize, i32, Vec<u32>)| {
                *parent == at && pods.len() >= usize::try_from(*min).unwrap()
            };
            let groups = gangs.iter().filter(has_pods).count() + complete;
            complete = usize::from(groups >= usize::try_from(minima[at]).unwrap());
        }
        prop_assert_eq!(bed.cycle(), complete == 1);
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

    /// Groups come, go and get other parents, also in circles and too deep, and pods come and go: a
    /// pod waits beside the queue exactly while its PodGroup has no root. None is lost.
    #[test]
    fn pods_wait_aside_exactly_while_a_group_is_missing(
        steps in proptest::collection::vec((0..6_u8, 0..6_usize, 0..6_usize), 1..60),
    ) {
        let mut bed = bed();
        // No pod fits.
        bed.node(with_cpus("n", "1"));
        // The parents of composite groups `c0` to `c4`, and of PodGroups `g0` to `g2`. `c5` stands
        // for none.
        let mut parents: [Option<usize>; 8] = [None; 8];
        let mut pods = [false; 6];
        for (action, at, parent) in steps {
            let pod = member(&format!("p{at}"), &format!("g{}", at % 3), "2");
            match action {
                0 | 1 => {
                    let at = if action == 0 { at % 5 } else { 5 + at % 3 };
                    let old = parents[at].replace(parent).map(|parent| group_at(at, parent));
                    let new = group_at(at, parent);
                    bed.handle(Input::Object(match old {
                        Some(old) => Notification::Updated { old, new },
                        None => Notification::Added(new),
                    }));
                }
                2 => {
                    let at = (at + 3 * (parent % 2)) % 8;
                    if let Some(parent) = parents[at].take() {
                        bed.handle(Input::Object(Notification::Deleted(group_at(at, parent))));
                    }
                }
                3 => {
                    pods[at] = !pods[at];
                    if pods[at] { bed.pod(pod) } else { bed.delete(pod) }
                }
                4 => {
                    let has_work = bed.scheduler.has_work();
                    prop_assert_eq!(bed.cycle(), has_work);
                }
                _ => bed.pass_seconds(10 * at as u64),
            }
            for at in (0..6).filter(|at| pods[*at]) {
                let place = bed.place(&format!("p{at}"));
                prop_assert!(place.is_some(), "p{} is lost", at);
                prop_assert_eq!(place == Some(Place::Aside), !has_root(&parents, 5 + at % 3), "p{} is {:?}", at, place);
            }
        }
    }
}

/// Composite group `c0` to `c4` or PodGroup `g0` to `g2`, below a composite group or, with 5, none.
fn group_at(at: usize, parent: usize) -> Arc<Object> {
    let parent = (parent < 5).then(|| format!("c{parent}").into());
    Arc::new(match at.checked_sub(5) {
        None => {
            let body = Body::CompositePodGroup(CompositePodGroup { spec: GroupSpec { parent, ..basic() } });
            object(&resources::COMPOSITE_POD_GROUP, &format!("default/c{at}"), body)
        }
        Some(leaf) => {
            let body = Body::PodGroup(GroupSpec { parent, ..gang(1) }.into());
            object(&resources::POD_GROUP, &format!("default/g{leaf}"), body)
        }
    })
}

/// Whether all groups above one are there, within four levels.
fn has_root(parents: &[Option<usize>; 8], at: usize) -> bool {
    let mut at = Some(at);
    for _ in 0..4 {
        match at.and_then(|at| parents[at]) {
            None => return false,
            Some(5) => return true,
            parent => at = parent,
        }
    }
    false
}

/// The reservations of pods that a plugin holds.
type Reserved = Arc<Mutex<BTreeMap<String, i32>>>;

fn tree_with(plugins: Vec<Arc<dyn Plugin>>) -> TestBed {
    let features = Features::default()
        .with(Feature::TopologyAwareWorkloadScheduling, true)
        .with(Feature::CompositePodGroup, true);
    let mut bed = TestBed::of(options_with_plugins(features, |name| name != "DefaultPreemption", plugins));
    bed.node(with_cpus("n0", "4"));
    bed.two_gangs(gang(2));
    for (name, group) in [("a", "g"), ("b", "g"), ("c", "h")] {
        bed.pod(member(name, group, "1"));
    }
    bed
}

#[test]
fn a_reserve_that_fails_inside_a_tree_is_undone_exactly() {
    let cases = ["a", "b", "c"].into_iter().flat_map(|pod| (1..5).map(move |call| (pod, call)));
    for ((fails, call), panics) in cases.flat_map(|case| [(case, false), (case, true)]) {
        let reserved = Reserved::default();
        let (takes, gives) = (Arc::clone(&reserved), Arc::clone(&reserved));
        let counts = Fake::new("Counts")
            .reserve(move |_, pod| {
                *takes.lock().unwrap().entry(pod.name.to_string()).or_default() += 1;
                Status::success()
            })
            .unreserve(move |_, _, pod| {
                *gives.lock().unwrap().entry(pod.name.to_string()).or_default() -= 1;
            });
        let calls = Mutex::new(0);
        let breaks = Fake::new("Breaks").reserve(move |_, pod| {
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            *calls += i32::from(*pod.name == *fails);
            match *pod.name == *fails && *calls == call {
                true if panics => panic!("oh"),
                true => Status::unschedulable("no"),
                false => Status::success(),
            }
        });
        let mut bed = tree_with(vec![counts.build(), breaks.build()]);
        let empty = room(&bed, 1);
        let case = format!("call {call} for {fails}, panics {panics}");
        assert!(bed.cycle(), "{case}");
        let placed: Vec<_> = ["a", "b", "c"].into_iter().filter(|name| bed.node_of(name).is_some()).collect();
        let reserved: Vec<_> = reserved
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, count)| **count != 0)
            .map(|(name, count)| (name.clone(), *count))
            .collect();
        let expected: Vec<_> = placed.iter().map(|name| ((*name).to_owned(), 1)).collect();
        assert_eq!(reserved, expected, "{case}");
        if placed.is_empty() {
            assert_eq!(room(&bed, 1), empty, "{case}");
        }
        for name in ["a", "b", "c"].into_iter().filter(|name| !placed.contains(name)) {
            assert!(bed.place(name).is_some(), "{case}: {name} is lost");
        }
    }
}

#[test]
fn a_failed_preemption_requeues_all_trees_that_its_pods_are_in() {
    for comes_back in [false, true] {
        let mut bed = preempting(&["1", "1"]);
        bed.composite("r", GroupSpec { priority: 10, ..basic() });
        for name in ["g", "h"] {
            bed.group_named(name, of("r", gang(1)));
        }
        for i in 0..2 {
            bed.assigned(pod(&format!("low{i}")).request("cpu", "1").node(&format!("n{i}")));
        }
        for (name, group) in [("a", "g"), ("b", "h")] {
            bed.pod(member(name, group, "1").priority(10));
        }
        bed.cycle();
        let effects = bed.effects();
        let evict = effects.iter().find_map(|effect| match effect {
            Effect::Evict { preemption, victims } => Some((*preemption, victims.len())),
            _ => None,
        });
        let (preemption, victims) = evict.unwrap();
        let group = object(&resources::POD_GROUP, "default/g", Body::PodGroup(of("r", gang(1)).into()));
        bed.handle(Input::Object(Notification::Deleted(Arc::new(group))));
        assert_eq!(bed.places(&["a", "b"]), [Some(Place::Aside), Some(Place::Gated)]);
        if comes_back {
            bed.group_named("g", GroupSpec { priority: 10, ..gang(1) });
            // As upstream, the preemption holds the root for which it began, and no other.
            assert_eq!(bed.places(&["a", "b"]), [Some(Place::Active), Some(Place::Gated)], "in two trees");
        }
        let outcomes = vec![crate::Eviction::Failed("no".into()); victims];
        bed.handle(Input::Evicted { preemption, outcomes });
        let place = if comes_back { Place::Active } else { Place::Aside };
        assert_eq!(bed.places(&["a", "b"]), [Some(place), Some(Place::Active)]);
    }
}
