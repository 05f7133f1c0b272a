//! The effect of disabled features.

use std::time::Duration;

use supercargo_framework::plugin::Permit;
use supercargo_framework::pod::PodCondition;
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{Feature, Features};

use super::fake::Fake;
use super::test_bed::{TestBed, big, options, plugins};
use crate::{Effect, Options, Place, QueueOptions};

#[test]
fn without_popping_from_backoff_pods_wait_for_its_exact_end() {
    let queue = QueueOptions { pop_from_backoff: false, ..QueueOptions::default() };
    let mut bed = TestBed::of(Options { queue, ..options(plugins(Vec::new())) });
    bed.node(node("n1"));
    bed.pass(Duration::from_millis(300));
    bed.pod(big("a"));
    bed.cycle();
    bed.node(node("n2").allocatable("cpu", "16"));
    assert_eq!(bed.place("a"), Some(Place::Backoff));
    assert!(!bed.scheduler.has_work() && !bed.cycle());
    bed.pass(Duration::from_secs(1));
    assert_eq!(bed.place("a"), Some(Place::Backoff));
    bed.pass(Duration::from_micros(1));
    assert_eq!(bed.place("a"), Some(Place::Active), "within a second");
}

#[test]
fn without_the_expectation_a_pod_on_permit_is_not_nominated() {
    let nominated = |on| {
        let held = Fake::new("Hold").permit(|_, _| Permit::Wait(Duration::from_mins(1))).build();
        let features = Features::default().with(Feature::NominatedNodeNameForExpectation, on);
        let mut bed = TestBed::of(Options { features, ..options(plugins(vec![held])) });
        bed.node(node("n1"));
        bed.pod(pod("a"));
        bed.cycle();
        bed.effect_lines()
    };
    assert_eq!(nominated(false), Vec::<String>::new());
    assert_eq!(nominated(true).len(), 1);
}

#[test]
fn without_tracking_observed_generation_is_kept_only_if_present() {
    let generation = |on, before| {
        let features = Features::default().with(Feature::PodObservedGenerationTracking, on);
        let mut bed = TestBed::of(Options { features, ..options(plugins(Vec::new())) });
        bed.node(node("n1"));
        let received = PodCondition {
            status: "False".into(),
            reason: "Unschedulable".into(),
            message: "another one".into(),
            observed_generation: before,
            last_transition: None,
        };
        bed.pod(big("a").with(|pod| {
            pod.generation = 3;
            pod.status.pod_scheduled = Some(received);
        }));
        bed.cycle();
        let patched = |effect| match effect {
            Effect::PatchPodStatus(patch) => patch.condition,
            _ => None,
        };
        bed.effects().into_iter().find_map(patched).unwrap().observed_generation
    };
    for (on, before, expected) in [
        (true, None, Some(3)),
        (true, Some(2), Some(3)),
        (false, None, None),
        (false, Some(0), None),
        (false, Some(2), Some(3)),
    ] {
        assert_eq!(generation(on, before), expected, "{on} {before:?}");
    }
}
