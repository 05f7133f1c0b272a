//! The answer about a pod's group: what keeps it from its start.

use std::sync::Arc;

use proptest::prelude::*;
use supercargo_framework::testing::pod;

use super::groups::{gang, group_options, member, room, with_cpus};
use super::test_bed::TestBed;
use crate::{Obstacle, WhyGroup};

fn bed() -> TestBed {
    TestBed::of(group_options(|_| true))
}

/// The answer about a pending pod's group.
fn ask(bed: &mut TestBed, name: &str) -> Option<WhyGroup> {
    let asked = Arc::clone(bed.scheduler.pod(&pod(name).build().key()).expect("the pod is known"));
    let nodes = bed.scheduler.cache().nodes().len();
    let before = room(bed, nodes);
    let why = bed.scheduler.why_there(bed.now, &asked).unwrap();
    assert_eq!(room(bed, nodes), before, "the trial leaves a trace");
    assert!(bed.scheduler.take_effects().is_empty());
    why.group
}

#[test]
fn a_gang_that_is_complete_and_fits_would_start() {
    let mut bed = bed();
    bed.node(with_cpus("n0", "4"));
    bed.pod(member("a", "1"));
    assert_eq!(ask(&mut bed, "a").unwrap().obstacle, Some(Obstacle::Missing));
    bed.group(gang(2));
    let why = ask(&mut bed, "a").unwrap();
    assert_eq!((why.waiting, why.min_count, why.obstacle), (1, 2, Some(Obstacle::Incomplete)));
    bed.pod(member("b", "1"));
    let why = ask(&mut bed, "a").unwrap();
    assert_eq!((why.waiting, why.placed, why.scheduled, why.obstacle), (2, 2, 0, None));
    assert_eq!((why.node.as_deref(), why.refused), (Some("n0"), None));
    assert!(bed.cycle());
    assert_eq!(bed.nodes_of(&["a", "b"]), "n0 n0");
}

#[test]
fn a_pod_that_fits_alone_names_the_member_that_does_not() {
    let mut bed = bed();
    bed.node(with_cpus("n0", "3"));
    bed.group(gang(3));
    for name in ["a", "b", "c"] {
        bed.pod(member(name, "2"));
    }
    let why = ask(&mut bed, "c").unwrap();
    assert_eq!((why.waiting, why.placed, why.node.as_deref()), (3, 1, None));
    let message = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining";
    assert_eq!(why.obstacle, Some(Obstacle::Unschedulable(message.to_owned(), false)));
    let (refused, message) = why.refused.unwrap();
    assert_eq!(refused.to_string(), "default/b");
    assert!(message.starts_with("0/1 nodes are available: 1 Insufficient cpu"), "{message}");
}

#[test]
fn a_gang_waits_for_the_gates_of_its_pods() {
    let mut bed = bed();
    bed.node(with_cpus("n0", "4"));
    bed.group(gang(2));
    bed.pod(member("a", "1"));
    bed.pod(member("b", "1").gate("wait"));
    let why = ask(&mut bed, "a").unwrap();
    assert_eq!((why.placed, why.obstacle), (2, Some(Obstacle::Gated(1))));
    assert!(!bed.cycle());
}

#[test]
fn a_pod_without_a_group_has_no_answer_about_one() {
    let mut bed = bed();
    bed.node(with_cpus("n0", "4"));
    bed.pod(pod("a"));
    assert!(ask(&mut bed, "a").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// The next cycle of the group does what the answer says.
    #[test]
    fn the_answer_about_a_group_comes_true(
        cpus in proptest::collection::vec(1..8_u32, 1..4),
        requests in proptest::collection::vec(1..6_u32, 1..6),
        min_count in 1..6_i32,
        victims in 0..4_usize,
        priority in 0..2_i32,
    ) {
        let mut bed = bed();
        bed.crowd(&cpus, victims);
        let names: Vec<String> = (0..requests.len()).map(|i| format!("p{i}")).collect();
        bed.group(supercargo_framework::objects::GroupSpec { priority, ..gang(min_count) });
        for (name, cpu) in names.iter().zip(&requests) {
            bed.pod(member(name, &cpu.to_string()).priority(priority));
        }
        let why = ask(&mut bed, "p0").unwrap();
        let is_tried = bed.cycle();
        prop_assert_eq!(!is_tried, why.obstacle == Some(Obstacle::Incomplete));
        let placed = names.iter().filter(|name| bed.node_of(name).is_some()).count();
        prop_assert_eq!(placed, if why.obstacle.is_none() { why.placed } else { 0 });
        let effects = bed.effect_lines();
        if let Some(Obstacle::Unschedulable(message, preempts)) = why.obstacle {
            let reports = effects.iter().any(|it| it.starts_with("default/g patch False") && it.contains(&message));
            prop_assert!(reports, "{:?} without {}", effects, message);
            let evicts = bed.observed().iter().any(|line| line.starts_with("preempts"));
            prop_assert_eq!(preempts, evicts);
        }
        prop_assert_eq!(why.node.as_deref().filter(|_| placed > 0), bed.node_of("p0").filter(|_| placed > 0));
    }
}
