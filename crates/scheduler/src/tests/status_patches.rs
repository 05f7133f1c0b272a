//! Patches of pods' status.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use supercargo_framework::Status;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::testing::{node, pod};

use super::fake::Fake;
use super::test_bed::{TestBed, all_plugins, big, line, options, patched};
use crate::{Effect, Eviction, Input, StatusPatch};

impl TestBed {
    /// Waits until the pod is tried again, and returns its patches.
    fn tried_again(&mut self) -> Vec<StatusPatch> {
        self.pass_seconds(330);
        assert!(self.cycle());
        self.patches()
    }

    fn patches(&mut self) -> Vec<StatusPatch> {
        let patch = |effect| match effect {
            Effect::PatchPodStatus(patch) => Some(patch),
            _ => None,
        };
        self.effects().into_iter().filter_map(patch).collect()
    }
}

/// A bed whose pods are rejected with the message of this number.
fn rejecting() -> (TestBed, Arc<AtomicUsize>) {
    let number = Arc::<AtomicUsize>::default();
    let answered = Arc::clone(&number);
    let messages = ["zero", "one", "two"];
    let filter = move |_: &_, _: &_, _: &_| Status::unschedulable(messages[answered.load(Ordering::Relaxed)]);
    let mut bed = TestBed::with(vec![Fake::new("Rejects").filter(filter).build()]);
    bed.node(node("n1"));
    (bed, number)
}

#[test]
fn a_nomination_that_is_on_its_way_is_cleared() {
    let mut bed = TestBed::of(options(all_plugins(Vec::new())));
    let small = || node("n1").allocatable("cpu", "4");
    bed.node(small());
    bed.assigned(pod("low").request("cpu", "4").node("n1"));
    bed.pod(pod("high").request("cpu", "4").priority(10));
    bed.cycle();
    assert_eq!(bed.patches()[0].nomination, Nomination::Override(Some("n1".into())));
    bed.handle(Input::Evicted { preemption: 1, outcomes: vec![Eviction::Failed("it broke".to_owned())] });
    bed.update_node(small(), small().unschedulable().resource_version("2"));
    assert!(bed.cycle());
    let patches = bed.patches();
    assert_eq!(patches.len(), 1);
    assert_eq!(patches[0].nomination, Nomination::Override(None), "although the informer shows none");
}

#[test]
fn a_preemptor_clears_lower_nominations_that_are_on_their_way() {
    let mut bed = TestBed::of(options(all_plugins(Vec::new())));
    bed.node(node("n1").allocatable("cpu", "4"));
    bed.assigned(pod("low").request("cpu", "4").node("n1"));
    bed.pod(pod("middle").request("cpu", "4").priority(5));
    bed.cycle();
    bed.handle(Input::Evicted { preemption: 1, outcomes: vec![Eviction::Failed("it broke".to_owned())] });
    bed.effects();
    bed.pod(pod("high").request("cpu", "4").priority(10));
    assert!(bed.cycle());
    let lines: Vec<_> = bed.effects().iter().map(line).collect();
    assert!(lines.contains(&"middle patch nominated \"\"".to_owned()), "{lines:?}");
}

#[test]
fn a_condition_that_is_on_its_way_is_replaced_by_the_reported_one() {
    let (mut bed, message) = rejecting();
    bed.pod(pod("a"));
    bed.cycle();
    let first = bed.effects();
    bed.update(pod("a"), patched(pod("a"), &first));
    message.store(1, Ordering::Relaxed);
    assert_eq!(bed.tried_again().len(), 1);
    message.store(0, Ordering::Relaxed);
    let patches = bed.tried_again();
    let condition = patches[0].condition.as_ref().unwrap();
    assert!(condition.message.contains("zero"), "{condition:?}");
    assert!(bed.tried_again().is_empty(), "the last one asked for is the reported one");
}

#[test]
fn a_condition_that_was_not_written_is_patched_again() {
    let (mut bed, _) = rejecting();
    bed.pod(pod("a"));
    bed.cycle();
    let message = |patches: &[StatusPatch]| match patches {
        [patch] => patch.condition.as_ref().map(|condition| condition.message.clone()),
        _ => None,
    };
    let first = message(&bed.patches());
    assert!(first.is_some());
    assert_eq!(message(&bed.tried_again()), first);
}

#[test]
fn what_the_informer_confirmed_is_not_compared_again() {
    let (mut bed, _) = rejecting();
    bed.pod(pod("a"));
    bed.cycle();
    let first = bed.effects();
    let reported = patched(pod("a"), &first);
    assert_eq!(bed.scheduler.unconfirmed_patches.uids().count(), 1);
    bed.update(pod("a"), reported.clone());
    assert_eq!(bed.scheduler.unconfirmed_patches.uids().count(), 0);
    let changed = |pod: &mut supercargo_framework::PodInfo| {
        pod.status.pod_scheduled.as_mut().unwrap().message = "by another".into();
    };
    bed.update(reported.clone(), reported.resource_version("3").with(changed));
    assert_eq!(bed.tried_again().len(), 1, "someone else's condition is replaced");
    assert_eq!(bed.scheduler.unconfirmed_patches.uids().count(), 1);
    bed.delete(pod("a"));
    assert_eq!(bed.scheduler.unconfirmed_patches.uids().count(), 0);
}

#[test]
fn observed_generation_goes_along_with_a_nomination_only() {
    for (nominated, expected) in [(None, None), (Some("n1"), Some(Some(2)))] {
        let mut bed = TestBed::new();
        bed.node(node("n1"));
        bed.pod(big("a"));
        bed.cycle();
        let first = bed.effects();
        let reported = patched(big("a"), &first).with(|pod| {
            pod.generation = 2;
            pod.status.nominated_node_name = nominated.map(Into::into);
        });
        bed.update(big("a"), reported);
        let generation = |patch: &StatusPatch| patch.condition.as_ref().map(|it| it.observed_generation);
        let patches = bed.tried_again();
        assert_eq!(patches.first().and_then(generation), expected, "{nominated:?}");
        assert_eq!(patches.len(), usize::from(nominated.is_some()));
    }
}
