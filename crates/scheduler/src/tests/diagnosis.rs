//! Events and conditions of failures.

use supercargo_framework::plugin::Nomination;
use supercargo_framework::testing::{PodBuilder, node, pod};
use supercargo_framework::{PodInfo, Status};

use super::fake::Fake;
use super::test_bed::{TestBed, WALL, patched};
use crate::Effect;

fn big() -> PodBuilder {
    pod("a").request("cpu", "8").with(|pod: &mut PodInfo| pod.generation = 3)
}

/// The effects of another attempt for the pod `a`.
fn retried(bed: &mut TestBed) -> Vec<Effect> {
    bed.effects();
    bed.delete_node(node("wake"));
    bed.node(node("wake").allocatable("cpu", "8").unschedulable());
    bed.pass_seconds(20);
    assert!(bed.cycle());
    bed.effects()
}

#[test]
fn the_condition_has_generation_and_transition_time() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.pod(big());
    bed.pass(std::time::Duration::from_millis(2_700));
    bed.cycle();
    let effects = bed.effects();
    let [Effect::RecordEvent(event), Effect::PatchPodStatus(patch)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!((&*event.scheduler_name, &*event.resource_version), ("supercargo", "1"));
    let condition = patch.condition.as_ref().unwrap();
    assert_eq!(condition.observed_generation, Some(3));
    let since = condition.last_transition.unwrap();
    assert_eq!(since, WALL.plus(std::time::Duration::from_secs(2)), "the API keeps whole seconds");
    assert_eq!(patch.nomination, Nomination::Keep, "there is nothing to clear");
}

#[test]
fn an_unchanged_failure_is_not_patched_again() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.node(node("wake").unschedulable());
    bed.pod(big());
    bed.cycle();
    let effects = bed.effects();
    // As upstream, the generation is not compared.
    bed.update(big(), patched(big(), &effects).with(|pod| pod.generation = 4));
    let effects = retried(&mut bed);
    assert!(matches!(&effects[..], [Effect::RecordEvent(_)]), "{effects:?}");
}

#[test]
fn a_new_message_is_patched_with_the_old_transition_time() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.pod(big());
    bed.cycle();
    let first = bed.effects();
    bed.update(big(), patched(big(), &first));
    let second = retried(&mut bed);
    let condition = |effects: &[Effect]| match &effects[1] {
        Effect::PatchPodStatus(patch) => patch.condition.clone().unwrap(),
        other => panic!("{other:?}"),
    };
    let (first, second) = (condition(&first), condition(&second));
    assert_ne!(first.message, second.message);
    assert_eq!(first.last_transition, second.last_transition);
}

#[test]
fn a_condition_that_was_true_gets_a_new_transition_time() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    let was_true = big().with(|pod| {
        pod.status.pod_scheduled = Some(supercargo_framework::pod::PodCondition {
            status: "True".into(),
            reason: "".into(),
            message: "".into(),
            observed_generation: None,
            last_transition: Some(supercargo_framework::Timestamp(0)),
        });
    });
    bed.pod(was_true);
    bed.cycle();
    match &bed.effects()[1] {
        Effect::PatchPodStatus(patch) => {
            assert_eq!(patch.condition.as_ref().unwrap().last_transition, Some(WALL));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_the_event_is_truncated_to_1024_bytes() {
    let long = "é".repeat(800);
    let reason = long.clone();
    let plugin = Fake::new("F").filter(move |_, _, _| Status::unschedulable(reason.clone()));
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    let effects = bed.effects();
    let [Effect::RecordEvent(event), Effect::PatchPodStatus(patch)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert!(event.note.len() <= 1024 && event.note.ends_with(" ..."));
    let message = &patch.condition.as_ref().unwrap().message;
    assert_eq!(**message, *format!("0/1 nodes are available: 1 {long}."));
}

#[test]
fn a_stale_nomination_is_cleared_once() {
    let plugin = Fake::new("P")
        .post_filter(|_, _| (Nomination::Override(None), Status::unschedulable("no candidates")));
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.node(node("n1"));
    bed.pod(big().nominated("n1"));
    bed.cycle();
    let effects = bed.effects();
    let nominated = |effects: &[Effect]| match &effects[1] {
        Effect::PatchPodStatus(patch) => patch.nomination.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(nominated(&effects), Nomination::Override(None));
    bed.update(big().nominated("n1"), patched(big().nominated("n1"), &effects));
    assert_eq!(nominated(&retried(&mut bed)), Nomination::Keep);
}

#[test]
fn a_failed_pod_that_is_gone_is_not_reported() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    bed.delete(pod("a"));
    bed.pod(pod("a").uid("a2"));
    bed.effects();
    bed.bound("a", super::test_bed::failed(supercargo_framework::binding::Certainty::Refused, "no"));
    assert!(bed.effect_lines().is_empty());
    assert!(bed.place("a").is_none() && bed.place("a2").is_some());
}
