//! Coexistence with another scheduler that binds pods to the same nodes.

use supercargo_framework::Status;
use supercargo_framework::binding::BindOutcome;
use supercargo_framework::plugin::PreFlight;
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, pod};

use super::fake::Fake;
use super::test_bed::TestBed;
use crate::Place;

/// A plugin with work in PreBind.
fn preparer() -> Fake {
    Fake::new("Preparer")
        .pre_flight(|_| PreFlight::Work { allow_parallel: false, work: Box::new(()) })
        .events(Vec::new)
}

fn small(name: &str) -> NodeBuilder {
    node(name).allocatable("cpu", "2")
}

fn waiting() -> PodBuilder {
    pod("a").request("cpu", "2")
}

/// A bed with the node `n1` and the pod `a`, which waits for PreBind.
fn bed(plugins: Vec<Fake>) -> TestBed {
    let mut bed = TestBed::with(plugins.into_iter().map(Fake::build).collect());
    bed.node(small("n1"));
    bed.pod(waiting());
    bed.cycle();
    assert_eq!((bed.node_of("a"), bed.is_assumed("a")), (Some("n1"), true));
    bed.effect_lines();
    bed.observed();
    bed
}

#[test]
fn a_pod_whose_node_was_taken_is_retried_at_once() {
    let mut bed = bed(vec![preparer()]);
    bed.node(small("n2"));
    bed.assigned(pod("foreign").scheduler("another").request("cpu", "1").node("n1"));
    bed.pre_bound("a", Status::success());
    assert_eq!(bed.place("a"), Some(Place::Active), "there is no backoff");
    assert!(bed.effect_lines().is_empty(), "there is no failure to report");
    let observed = bed.observed();
    assert!(observed.contains(&"node taken".to_owned()), "{observed:?}");
    assert!(observed.contains(&"Active by NodeTaken".to_owned()), "{observed:?}");
    bed.cycle();
    bed.pre_bound("a", Status::success());
    assert!(bed.effect_lines().contains(&"a bind to n2".to_owned()));
    bed.bound("a", BindOutcome::Bound);
}

#[test]
fn a_pod_whose_changed_node_still_fits_is_bound() {
    let mut bed = bed(vec![preparer()]);
    bed.assigned(pod("foreign").scheduler("another").node("n1"));
    bed.pre_bound("a", Status::success());
    assert_eq!(bed.effect_lines(), ["a bind to n1"]);
    assert!(bed.is_assumed("a"));
}

#[test]
fn a_pod_whose_node_was_deleted_is_not_bound_to_it() {
    let mut bed = bed(vec![preparer()]);
    bed.delete_node(small("n1"));
    bed.pre_bound("a", Status::success());
    assert_eq!((bed.place("a"), bed.node_of("a")), (Some(Place::Active), None));
    bed.node(small("n2"));
    bed.cycle();
    bed.pre_bound("a", Status::success());
    assert!(bed.effect_lines().contains(&"a bind to n2".to_owned()));
}

#[test]
fn the_recheck_skips_plugins_that_reserved_something() {
    let jealous = Fake::new("Jealous")
        .reserve(|_, _| Status::success())
        // As a plugin that takes its own reservation for another pod's.
        .filter(|_, _, node| match node.pods().len() {
            0 => Status::success(),
            _ => Status::unschedulable("taken"),
        })
        .events(Vec::new);
    let mut bed = bed(vec![preparer(), jealous]);
    bed.assigned(pod("foreign").scheduler("another").node("n1"));
    bed.pre_bound("a", Status::success());
    assert_eq!(bed.effect_lines(), ["a bind to n1"]);
}

#[test]
fn a_panic_in_the_recheck_does_not_stop_the_binding() {
    let shy = Fake::new("Shy")
        .filter(|_, _, node| match node.pods().len() {
            0 => Status::success(),
            _ => panic!("seen"),
        })
        .events(Vec::new);
    let mut bed = bed(vec![preparer(), shy]);
    bed.assigned(pod("foreign").scheduler("another").node("n1"));
    bed.pre_bound("a", Status::success());
    assert_eq!(bed.effect_lines(), ["a bind to n1"]);
    assert!(bed.is_assumed("a"), "it stays assumed");
}

#[test]
fn a_pod_bound_by_a_rival_is_not_bound_again() {
    let mut bed = bed(vec![preparer()]);
    bed.assigned(waiting().resource_version("9").node("n1"));
    bed.delete(waiting());
    bed.pre_bound("a", Status::success());
    assert!(bed.effect_lines().is_empty());
    assert!(bed.observed().contains(&"lost race".to_owned()));
}
