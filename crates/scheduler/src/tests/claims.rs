//! Resource claims: answers to writes, and pending allocations.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::binding::{ApiCall, BindingReport, DeviceWait, DevicesAwaited, Occurrence};
use supercargo_framework::context::Command;
use supercargo_framework::event::EventRegistration;
use supercargo_framework::objects::{Body, ClaimAllocation, Object, ResourceClaim, resources};
use supercargo_framework::plugin::{Permit, PreFilter};
use supercargo_framework::pod::RareSpec;
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::testing::{node, object, pod};
use supercargo_framework::{ActionType, EventResource, Now, Status};

use super::fake::Fake;
use super::test_bed::TestBed;
use crate::{Input, NoCalls, Notification, Place};

/// A pod that waits for changes of claims, and the claim `c` as the informer has it.
fn waiting_for_claims() -> TestBed {
    let plugin =
        Fake::new("F").pre_filter(|_| PreFilter::Reject(Status::unresolvable("no claim"))).events(|| {
            let claims = EventResource::Other(resources::RESOURCE_CLAIM);
            vec![EventRegistration::always(claims, ActionType::UPDATE.union(ActionType::DELETE))]
        });
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.node(node("n1"));
    bed.handle(Input::Object(Notification::Added(claim("5"))));
    bed
}

fn claim(version: &str) -> Arc<Object> {
    let body = Body::ResourceClaim(ResourceClaim::default());
    let object = object(&resources::RESOURCE_CLAIM, "default/c", body);
    Arc::new(Object { resource_version: version.into(), ..object })
}

/// Whether the input moves a pod that waits for changes of claims.
fn moves(bed: &mut TestBed, name: &str, input: Input) -> bool {
    bed.pod(pod(name));
    bed.cycle();
    assert_eq!(bed.place(name), Some(Place::Unschedulable));
    bed.handle(input);
    bed.place(name) != Some(Place::Unschedulable)
}

#[test]
fn an_answer_to_a_write_is_an_event_that_the_informer_does_not_repeat() {
    let mut bed = waiting_for_claims();
    let updated = |old, new| Input::Object(Notification::Updated { old: claim(old), new: claim(new) });
    assert!(moves(&mut bed, "a", Input::Written(claim("7"))));
    assert!(!moves(&mut bed, "b", updated("5", "6")), "older than the write");
    assert!(!moves(&mut bed, "c", updated("6", "7")), "the write itself");
    assert!(moves(&mut bed, "d", updated("7", "8")));
    assert!(!moves(&mut bed, "e", Input::Written(claim("7"))), "an answer that came late");
    let latest = bed.scheduler.objects().get(&resources::RESOURCE_CLAIM, "default/c").unwrap();
    assert_eq!(&*latest.resource_version, "8");
}

#[test]
fn a_deletion_ends_what_was_written() {
    let mut bed = waiting_for_claims();
    bed.handle(Input::Written(claim("7")));
    assert!(moves(&mut bed, "a", Input::Object(Notification::Deleted(claim("5")))));
    assert!(!moves(&mut bed, "b", Input::Written(claim("9"))), "the claim is gone");
    assert!(bed.scheduler.objects().get(&resources::RESOURCE_CLAIM, "default/c").is_none());
}

fn allocated() -> Arc<Object> {
    let mut object = (*claim("5")).clone();
    let allocation = Some(ClaimAllocation::default());
    object.body = Body::ResourceClaim(ResourceClaim { allocation, ..ResourceClaim::default() });
    Arc::new(object)
}

#[test]
fn an_allocation_is_pending_while_its_binding_is_in_flight() {
    let plugin = Fake::new("F")
        .pre_filter(|pod| match &*pod.name {
            "waits" => PreFilter::Reject(Status::unresolvable("in the process of being allocated")),
            _ => PreFilter::Skip,
        })
        .permit(|cx, _| {
            cx.command(Command::AddPending(allocated()));
            Permit::Wait(Duration::from_secs(5))
        })
        .unreserve(|cx, _, _| cx.command(Command::RemovePending(allocated())))
        .events(|| {
            vec![EventRegistration::always(
                EventResource::Other(resources::RESOURCE_CLAIM),
                ActionType::UPDATE,
            )]
        });
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.node(node("n1"));
    bed.handle(Input::Object(Notification::Added(claim("5"))));
    bed.pod(pod("waits"));
    bed.cycle();
    let entry = PodClaim { name: "c".into(), source: PodClaimSource::Claim("c".into()) };
    let rare = RareSpec { resource_claims: [entry].into(), ..RareSpec::default() };
    bed.pod(pod("a").with_spec(|spec| spec.rare = rare.boxed()));
    bed.cycle();
    let pending = |bed: &TestBed| bed.scheduler.objects().list_pending().count();
    let is_free = |bed: &TestBed| {
        let known = bed.scheduler.objects().get(&resources::RESOURCE_CLAIM, "default/c").unwrap();
        matches!(&known.body, Body::ResourceClaim(claim) if claim.allocation.is_none())
    };
    assert_eq!((pending(&bed), is_free(&bed)), (1, true));
    assert_eq!(bed.place("waits"), Some(Place::Unschedulable), "it is no event");
    bed.pass_seconds(6);
    assert_eq!((pending(&bed), is_free(&bed)), (0, true));
}

#[test]
fn reports_of_a_binding_are_observed_while_it_lasts() {
    let waits = Fake::new("F").permit(|_, _| Permit::Wait(Duration::from_secs(5)));
    let mut bed = TestBed::with(vec![waits.build()]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    let outcome = DeviceWait::Timeout;
    let wait = DevicesAwaited { outcome, drivers: vec!["d".into()], with_conditions: Vec::new() };
    for what in [Occurrence::ClaimCreation { is_created: true }, Occurrence::DevicesAwaited(wait)] {
        for pod in ["a", "gone"] {
            bed.handle(Input::BindingReport(BindingReport { pod: pod.into(), what: what.clone() }));
        }
    }
    let observed = bed.observed();
    let expected = ["claim created: true", "profile 0 awaited [\"d\"]: timeout"];
    assert_eq!(observed[observed.len() - 2..], expected, "{observed:?}");
}

#[test]
fn a_pod_is_not_tried_before_the_writes_for_it_are_answered() {
    let mut bed = TestBed::with(Vec::new());
    bed.node(node("n1"));
    bed.pod(pod("a"));
    let write = || Command::Write {
        resource: resources::RESOURCE_CLAIM,
        call: ApiCall::request("PUT", "/claim".to_owned(), "application/json", Value::Null),
        then: None,
        pod: Some("a".into()),
        retries: false,
    };
    bed.scheduler.execute(Now::default(), vec![write(), write()]);
    let ended = || Input::WriteEnded { pod: "a".into(), retry: false };
    for _ in 0..2 {
        assert!(!bed.scheduler.has_work());
        assert!(!bed.scheduler.schedule_one(Now::default(), &mut NoCalls));
        assert_eq!(bed.place("a"), Some(Place::Active));
        bed.handle(ended());
    }
    assert!(bed.scheduler.has_work() && bed.scheduler.schedule_one(Now::default(), &mut NoCalls));
    assert_ne!(bed.place("a"), Some(Place::Active));
    // An answer that nobody waits for, such as to a request of an earlier process.
    bed.handle(ended());
    assert!(bed.scheduler.unanswered_writes.is_empty());
}
