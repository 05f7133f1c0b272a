//! Groups that stay within one domain of a topology.

use proptest::prelude::*;
use supercargo_framework::objects::{GroupPolicy, GroupSpec};
use supercargo_framework::testing::{NodeBuilder, pod};
use supercargo_framework::{Feature, Features};

use super::groups::{gang, group_options, group_options_with, member, with_cpus};
use super::test_bed::TestBed;
use crate::{Options, Place};

fn options(enabled: fn(&str) -> bool) -> Options {
    let features = Features::default().with(Feature::TopologyAwareWorkloadScheduling, true);
    group_options_with(features, enabled)
}

fn bed() -> TestBed {
    TestBed::of(options(|name| name != "DefaultPreemption"))
}

/// A node with four CPUs in a rack.
fn in_rack(name: &str, rack: &str) -> NodeBuilder {
    with_cpus(name, "4").label("rack", rack)
}

/// The group is to stay within one rack.
fn within_rack(group: GroupSpec) -> GroupSpec {
    GroupSpec { topology_key: Some("rack".into()), ..group }
}

/// Nodes named after their rack and a number, in this order.
fn racks(bed: &mut TestBed, nodes: &[&str]) {
    for name in nodes {
        bed.node(in_rack(name, &name[..1]));
    }
}

/// The event of a pod that is not scheduled.
fn failure(bed: &mut TestBed, pod: &str) -> String {
    let prefix = format!("{pod} Warning FailedScheduling Scheduling: ");
    let lines = bed.effect_lines();
    let line = lines.iter().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("{pod} has not failed: {lines:?}")).to_owned()
}

#[test]
fn a_gang_goes_to_the_domain_that_has_room_for_all() {
    let mut bed = bed();
    racks(&mut bed, &["b1", "a1", "c1", "a2"]);
    bed.group(within_rack(gang(2)));
    bed.pod(member("p", "3"));
    bed.pod(member("q", "3"));
    bed.cycle();
    assert_eq!(bed.nodes_of(&["p", "q"]), "a1 a2");
    let observed = bed.observed().join(", ");
    let expected = "3 placements, placement fits: true, placement fits: false, placement fits: false, ";
    assert!(observed.contains(expected), "{observed}");
}

#[test]
fn without_the_gate_the_topology_does_not_matter() {
    let mut bed = TestBed::of(group_options(|name| name != "DefaultPreemption"));
    racks(&mut bed, &["a1", "b1"]);
    bed.group(within_rack(gang(2)));
    bed.pod(member("p", "3"));
    bed.pod(member("q", "3"));
    bed.cycle();
    assert_eq!(bed.nodes_of(&["p", "q"]), "a1 b1");
}

#[test]
fn a_gang_that_fits_in_no_domain_leaves_all_its_room() {
    let mut bed = bed();
    racks(&mut bed, &["a1", "b1"]);
    bed.group(within_rack(gang(2)));
    bed.pod(member("p", "3"));
    bed.pod(member("q", "3"));
    bed.cycle();
    assert_eq!(bed.places(&["p", "q"]), [Some(Place::Backoff); 2]);
    assert_eq!(
        failure(&mut bed, "p"),
        "pod group is unschedulable, pod group is unschedulable, 0/2 placements are available, first placement status: minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, "
    );
    for (name, node) in [("x", "a1"), ("y", "b1")] {
        bed.pod(pod(name).request("cpu", "4"));
        bed.cycle();
        assert_eq!(bed.node_of(name), Some(node));
    }
}

#[test]
fn messages_count_the_nodes_of_the_domain() {
    let mut bed = bed();
    racks(&mut bed, &["a1", "b1", "b2"]);
    bed.group(within_rack(gang(1)));
    bed.pod(member("p", "5"));
    bed.cycle();
    assert_eq!(failure(&mut bed, "p"), "0/1 nodes are available: 1 Insufficient cpu.");
}

#[test]
fn a_group_without_a_constraint_may_use_all_nodes() {
    let mut bed = bed();
    racks(&mut bed, &["a1", "b1"]);
    bed.node(with_cpus("big", "64"));
    bed.group(gang(3));
    for name in ["p", "q", "r"] {
        bed.pod(member(name, "4"));
    }
    bed.cycle();
    assert!(!bed.nodes_of(&["p", "q", "r"]).contains('-'));
    assert!(bed.observed().contains(&"1 placements".to_owned()));
}

#[test]
fn empty_constraints_count_as_constraints() {
    for (has_empty_constraints, said) in
        [(true, ""), (false, "deallocation and deletion of ResourceClaims completed")]
    {
        let mut bed = bed();
        racks(&mut bed, &["a1"]);
        bed.group(GroupSpec { has_empty_constraints, ..gang(1) });
        bed.pod(member("p", "5"));
        bed.cycle();
        let lines = bed.effect_lines();
        let ends = format!("0 scheduled, 0 remaining, {said}");
        assert!(
            lines.iter().any(|line| line.starts_with("default/g patch False") && line.ends_with(&ends)),
            "{lines:?}"
        );
    }
}

#[test]
fn a_group_with_many_placements_goes_on_in_its_next_attempt() {
    let mut bed = bed();
    racks(&mut bed, &["a1", "b1", "c1", "d1", "e1", "f1", "f2"]);
    bed.scheduler.tries.most = 6;
    bed.group(within_rack(gang(2)));
    // Only rack `f` has room for both.
    bed.pod(member("p", "4"));
    bed.pod(member("q", "4"));
    let mut attempts = 0;
    while bed.node_of("p").is_none() {
        bed.observed();
        assert!(bed.cycle());
        let tried = bed.observed().iter().filter(|line| line.starts_with("placement fits")).count();
        assert!((1..=3).contains(&tried), "{tried} placements");
        attempts += 1;
        assert!(
            attempts < 6
                && bed.places(&["p", "q"]).iter().all(|place| place.is_none_or(|it| it == Place::Backoff))
        );
        bed.pass_seconds(60);
    }
    assert_eq!((attempts, bed.nodes_of(&["p", "q"])), (3, "f1 f2".to_owned()));
}

#[test]
fn a_group_tries_fewer_placements_at_once_if_they_have_many_nodes() {
    for (nodes, expected) in [(2, 2), (1, 1)] {
        let mut bed = bed();
        racks(&mut bed, &["a1", "a2", "b1", "b2", "c1", "c2"]);
        (bed.scheduler.tries.most, bed.scheduler.tries.nodes) = (6, nodes);
        bed.group(within_rack(gang(2)));
        bed.pod(member("p", "64"));
        bed.pod(member("q", "64"));
        bed.cycle();
        let tried = bed.observed().iter().filter(|line| line.starts_with("placement fits")).count();
        assert_eq!(tried, expected, "{nodes} nodes count once");
    }
}

#[test]
fn a_group_preempts_only_after_all_placements_were_tried() {
    for (free, expected) in [("b1", "b1 -"), ("none", "- -")] {
        let mut bed = TestBed::of(options(|_| true));
        racks(&mut bed, &["a1", "b1"]);
        bed.scheduler.tries.most = 2;
        for node in ["a1", "b1"].into_iter().filter(|node| *node != free) {
            bed.assigned(pod(&format!("on-{node}")).request("cpu", "3").node(node));
        }
        bed.group(within_rack(GroupSpec { priority: 10, ..gang(1) }));
        bed.pod(member("p", "3").priority(10));
        bed.cycle();
        let lines = bed.effect_lines().join("\n");
        let tried = "0/2 placements are available, 1 tried, first placement status: ";
        assert!(lines.contains(tried) && !lines.contains("evict"), "{lines}");
        bed.pass_seconds(60);
        bed.cycle();
        let lines = bed.effect_lines().join("\n");
        assert_eq!(
            (bed.nodes_of(&["p", "x"]), lines.contains("evict")),
            (expected.to_owned(), free == "none")
        );
    }
}

#[test]
fn without_a_labelled_node_there_is_no_placement() {
    let mut bed = bed();
    bed.node(with_cpus("n", "4"));
    bed.group(within_rack(gang(1)));
    bed.pod(member("p", "1"));
    bed.cycle();
    assert_eq!(failure(&mut bed, "p"), "no feasible placements found");
}

#[test]
fn pods_on_nodes_pin_their_domain() {
    let mut bed = bed();
    racks(&mut bed, &["a1", "a2", "b1", "b2"]);
    bed.group(within_rack(gang(2)));
    bed.assigned(member("there", "1").node("b1"));
    bed.pod(member("p", "4"));
    bed.cycle();
    assert_eq!(bed.node_of("p"), Some("b2"));
    bed.pod(member("q", "4"));
    bed.cycle();
    assert_eq!(bed.node_of("q"), None, "only the other rack has room");
}

#[test]
fn pods_on_nodes_must_agree_on_their_domain() {
    let cases = [
        ("b1", "more than 1 domain found for pod group: a, b"),
        ("n", "no topology domain found for pod default/there-2"),
        ("gone", "getting node for pod default/there-2: nodeinfo not found for node name \"gone\""),
    ];
    for (second, reason) in cases {
        let mut bed = bed();
        racks(&mut bed, &["a1", "b1"]);
        bed.node(with_cpus("n", "4"));
        bed.group(within_rack(gang(2)));
        bed.assigned(member("there-1", "1").node("a1"));
        bed.assigned(member("there-2", "1").node(second));
        bed.pod(member("p", "1"));
        bed.cycle();
        let expected = format!("cannot determine domain for already scheduled pods: {reason}");
        assert_eq!(failure(&mut bed, "p"), expected);
    }
}

#[test]
fn the_domain_for_most_pods_wins() {
    let mut bed = bed();
    racks(&mut bed, &["a1", "a2", "b1", "b2", "b3"]);
    bed.group(within_rack(GroupSpec { policy: GroupPolicy::Basic, ..GroupSpec::default() }));
    for name in ["p", "q", "r"] {
        bed.pod(member(name, "3"));
    }
    bed.cycle();
    assert_eq!(bed.nodes_of(&["p", "q", "r"]), "b1 b2 b3");
}

#[test]
fn of_equal_numbers_the_fullest_domain_wins() {
    let mut bed = bed();
    racks(&mut bed, &["a1", "a2", "b1", "b2", "c1", "c2"]);
    bed.assigned(pod("there").request("cpu", "2").node("b1"));
    bed.group(within_rack(gang(2)));
    bed.pod(member("p", "1"));
    bed.pod(member("q", "1"));
    bed.cycle();
    let nodes = bed.nodes_of(&["p", "q"]);
    assert!(nodes.split(' ').all(|node| node.starts_with('b')), "{nodes}");
}

#[test]
fn weights_of_placement_scores_count() {
    let in_b = |weight_of_fullness: i32| {
        let mut options = options(|name| name != "DefaultPreemption");
        for profile in &mut options.profiles {
            let scorers = profile.plugins.placement_score.iter_mut();
            for (_, weight) in scorers.filter(|(plugin, _)| plugin.name() == "NodeResourcesFit") {
                *weight = weight_of_fullness;
            }
        }
        let mut bed = TestBed::of(options);
        // Two of three pods fit in the full rack, all in the empty one.
        racks(&mut bed, &["a1", "b1", "b2", "b3", "b4"]);
        bed.group(within_rack(gang(1)));
        for name in ["p", "q", "r"] {
            bed.pod(member(name, "2"));
        }
        bed.cycle();
        bed.nodes_of(&["p", "q", "r"]).matches('b').count()
    };
    assert_eq!([in_b(1), in_b(100)], [3, 0]);
}

#[test]
fn a_group_preempts_within_one_domain() {
    let mut bed = TestBed::of(options(|_| true));
    racks(&mut bed, &["a1", "b1", "b2"]);
    for node in ["a1", "b1", "b2"] {
        bed.assigned(pod(&format!("on-{node}")).request("cpu", "3").node(node));
    }
    bed.group(within_rack(GroupSpec { priority: 10, ..gang(2) }));
    for name in ["p", "q"] {
        bed.pod(member(name, "3").priority(10));
    }
    bed.cycle();
    let lines = bed.effect_lines().join("\n");
    assert!(lines.contains("found a placement for podgroup, preempting 2 victims"), "{lines}");
    assert!(lines.contains("nominated \"b1\"") && lines.contains("nominated \"b2\""), "{lines}");
    assert!(lines.contains("evict on-b1") && !lines.contains("on-a1"), "{lines}");
}

proptest! {
    /// Within a rack, a gang is placed as in a cluster that has no other nodes. A gang that does
    /// not fit in any rack leaves no trace.
    #[test]
    fn a_domain_is_a_cluster_of_its_own(
        nodes in proptest::collection::vec((0..3_u8, 1..6_u32), 1..8),
        requests in proptest::collection::vec((1..4_u32, any::<bool>()), 1..6),
        min_count in 1..6_i32,
    ) {
        let alone = |rack: Option<u8>| {
            let mut bed = if rack.is_some() { TestBed::of(group_options(|name| name != "DefaultPreemption")) } else { bed() };
            for (i, (of, cpus)) in nodes.iter().enumerate().filter(|(_, (of, _))| rack.is_none_or(|rack| rack == *of)) {
                bed.node(with_cpus(&format!("n{i}"), &cpus.to_string()).label("rack", &of.to_string()));
            }
            bed.group(within_rack(gang(min_count)));
            for (i, (cpu, has_port)) in requests.iter().enumerate() {
                let member = member(&format!("p{i}"), &cpu.to_string());
                bed.pod(if *has_port { member.host_port(80) } else { member });
            }
            bed.cycle();
            (0..requests.len()).map(|i| bed.node_of(&format!("p{i}")).map(str::to_owned)).collect::<Vec<_>>()
        };
        let of_racks: Vec<_> = (0..3).filter(|rack| nodes.iter().any(|(of, _)| of == rack)).map(|rack| alone(Some(rack))).collect();
        let placed = alone(None);
        if placed.iter().any(Option::is_some) {
            prop_assert!(of_racks.contains(&placed), "{:?} is none of {:?}", placed, of_racks);
        } else {
            prop_assert!(of_racks.iter().flatten().all(Option::is_none), "{:?}", of_racks);
        }
    }
}
