//! Events that requeue pods.

use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::context::Command;
use supercargo_framework::event::{EventRegistration, QueueingHint};
use supercargo_framework::objects::{Body, Object, StorageClass, resources};
use supercargo_framework::plugin::{Nomination, Permit, PreFilter};
use supercargo_framework::testing::{node, object, pod};
use supercargo_framework::{ActionType, EventResource, Status, Text};

use super::fake::Fake;
use super::test_bed::{TestBed, big, with_unschedulable};
use crate::{Input, Notification, Place};

/// A plugin that rejects pods in Permit, at once or by a timeout. Nodes whose name begins with
/// `good` help.
fn late_refuser(held: bool) -> TestBed {
    let hint = |_: &supercargo_framework::PodInfo, change: &supercargo_framework::event::Change| {
        let node = change.new_node().ok_or("no node")?;
        Ok(QueueingHint::queue_if(node.name.starts_with("good")))
    };
    let refuser = Fake::new("Refuser")
        .permit(move |_, pod| match pod.labels.get("kicks") {
            Some(_) => Permit::Allow,
            None if held => Permit::Wait(Duration::from_secs(5)),
            None => Permit::Reject(Status::unschedulable("no")),
        })
        .events(move || vec![EventRegistration::hinted(EventResource::Node, ActionType::ADD, hint)]);
    let mut bed = TestBed::with(vec![refuser.build()]);
    bed.node(node("n1"));
    bed
}

#[test]
fn an_event_during_an_attempt_is_not_lost() {
    let cases: [(&str, &[&str], Place); 4] = [
        ("nothing happened", &[], Place::Unschedulable),
        ("something happened that does not help", &["bad"], Place::Unschedulable),
        ("something happened that helps", &["good"], Place::Backoff),
        ("both", &["bad1", "good", "bad2"], Place::Backoff),
    ];
    for (name, nodes, expected) in cases {
        let mut bed = late_refuser(true);
        bed.node(node("good-before"));
        bed.pod(pod("a"));
        bed.cycle();
        assert_eq!(bed.place("a"), Some(Place::InFlight));
        for name in nodes {
            bed.node(node(name));
        }
        bed.pass_seconds(5);
        assert_eq!(bed.place("a"), Some(expected), "{name}");
    }
}

#[test]
fn a_pod_that_terminates_during_binding_is_rejected() {
    let mut bed = late_refuser(true);
    bed.pod(pod("a"));
    bed.cycle();
    bed.effect_lines();
    bed.update(pod("a"), pod("a").terminating().resource_version("2"));
    assert_eq!(
        bed.effect_lines()[0],
        "a Warning FailedScheduling Scheduling: 0/1 nodes are available: 1 removed."
    );
    assert_eq!((bed.place("a"), bed.node_of("a")), (Some(Place::Unschedulable), None));
}

#[test]
fn activate_moves_waiting_pods_and_is_recorded_for_those_in_flight() {
    let activator = || {
        Fake::new("Activator")
            .permit(|cx, pod| {
                if pod.labels.get("wakes").is_some() {
                    cx.command(Command::Activate(vec![
                        supercargo_framework::testing::pod("a").build().key(),
                    ]));
                }
                if pod.labels.get("waits").is_some() {
                    return Permit::Wait(Duration::from_secs(5));
                }
                Permit::Allow
            })
            .events(Vec::new)
            .build()
    };
    let mut bed = TestBed::with(vec![activator()]);
    bed.node(node("n1"));
    bed.pod(big("a"));
    bed.cycle();
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    bed.pod(pod("b").label("wakes", ""));
    bed.cycle();
    assert_eq!(bed.place("a"), Some(Place::Active));
    assert!(bed.observed().contains(&"Active by ForceActivate".to_owned()));

    let mut bed = TestBed::with(vec![activator()]);
    bed.node(node("n1"));
    bed.pod(pod("a").label("waits", ""));
    bed.cycle();
    bed.pod(pod("b").label("wakes", ""));
    bed.cycle();
    bed.pass_seconds(5);
    assert_eq!(bed.place("a"), Some(Place::Backoff), "it was activated while it was in flight");
}

#[test]
fn an_event_for_a_pending_plugin_ends_the_backoff() {
    let hint = |_: &_, _: &_| Ok(QueueingHint::Queue);
    let waiter = Fake::new("Waiter")
        .filter(|_, _, _| Status::new(supercargo_framework::Code::Pending, "not yet"))
        .events(move || vec![EventRegistration::hinted(EventResource::Node, ActionType::ADD, hint)]);
    let mut bed = TestBed::with(vec![waiter.build()]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    assert_eq!(bed.queued("a").pending_plugins.iter().map(|p| &**p).collect::<Vec<_>>(), ["Waiter"]);
    bed.node(node("n2"));
    assert_eq!(bed.place("a"), Some(Place::Active));
}

#[test]
fn uncordoning_does_not_count_for_plugins_registered_for_new_nodes() {
    let mut bed = with_unschedulable(big("a"));
    bed.node(node("n2").unschedulable());
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    bed.update_node(node("n2").unschedulable(), node("n2").resource_version("2"));
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
}

#[test]
fn an_error_of_a_hint_queues_the_pod() {
    let hint = |_: &_, _: &_| Err("what?".to_owned());
    let plugin = Fake::new("F")
        .filter(|_, _, _| Status::unschedulable("no"))
        .events(move || vec![EventRegistration::hinted(EventResource::Node, ActionType::ADD, hint)]);
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    bed.observed();
    bed.node(node("n2"));
    assert_eq!(bed.observed(), ["F hints Error", "Backoff by NodeAdd"]);
}

#[test]
fn the_end_of_a_nomination_moves_pods_up_to_its_priority() {
    type Tell = fn(&mut TestBed);
    let received: [(&str, Tell); 2] = [
        ("it was cleared", |bed| {
            let old = pod("big").priority(5).request("cpu", "16").nominated("n1");
            bed.update(old, pod("big").priority(5).request("cpu", "16").resource_version("2"));
        }),
        ("the pod is gone", |bed| {
            bed.delete(pod("big").priority(5).request("cpu", "16").nominated("n1"));
        }),
    ];
    for (name, end) in received {
        let mut bed = TestBed::new();
        bed.node(node("n1"));
        bed.pod(pod("big").priority(5).request("cpu", "16").nominated("n1"));
        bed.pod(big("low").priority(5));
        bed.pod(big("high").priority(6));
        while bed.cycle() {}
        end(&mut bed);
        assert_eq!(
            (bed.place("low"), bed.place("high")),
            (Some(Place::Backoff), Some(Place::Unschedulable)),
            "{name}"
        );
    }
}

#[test]
fn objects_of_other_kinds_move_pods_of_registered_plugins() {
    let class = |version: &str| {
        Arc::new(Object {
            resource_version: version.into(),
            ..object(&"StorageClass".into(), "fast", Body::StorageClass(StorageClass::default()))
        })
    };
    let plugin =
        Fake::new("F").pre_filter(|_| PreFilter::Reject(Status::unresolvable("no class"))).events(|| {
            vec![EventRegistration::always(EventResource::Other("StorageClass".into()), ActionType::UPDATE)]
        });
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    bed.handle(Input::Object(Notification::Added(class("1"))));
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    bed.handle(Input::Object(Notification::Updated { old: class("1"), new: class("2") }));
    assert_eq!(bed.place("a"), Some(Place::Backoff));
    assert!(bed.scheduler.objects().get("StorageClass", "fast").is_some());
    bed.handle(Input::Object(Notification::Deleted(class("2"))));
    assert!(bed.scheduler.objects().get("StorageClass", "fast").is_none());
}

#[test]
fn a_postfilter_nomination_lasts_until_the_next_attempt() {
    let reported = Arc::new(std::sync::Mutex::new(vec![
        (Nomination::Keep, Status::unschedulable("nothing to be done")),
        (Nomination::Override(Some("n1".into())), Status::success()),
    ]));
    let answers = Arc::clone(&reported);
    let preemption =
        Fake::new("Preemption").post_filter(move |_, _| answers.lock().unwrap().pop().unwrap()).build();
    let mut bed = TestBed::with(vec![preemption]);
    bed.node(node("n1"));
    bed.pod(big("a"));
    bed.cycle();
    assert_eq!(bed.scheduler.queue.nominator.on_node("n1").len(), 1);
    bed.node(node("n2").allocatable("cpu", "16").unschedulable());
    bed.cycle();
    assert!(bed.scheduler.queue.nominator.is_empty(), "a nomination without a status ends");
}

#[test]
fn a_rejected_pod_moves_others_but_not_itself() {
    let plugin = Fake::new("Refuser")
        .permit(|_, pod| match pod.labels.get("waits") {
            Some(_) => Permit::Wait(Duration::from_secs(5)),
            None => Permit::Reject(Status::unschedulable("no")),
        })
        .events(|| vec![EventRegistration::always(EventResource::Pod, ActionType::DELETE)]);
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.node(node("n1"));
    bed.pod(pod("b"));
    bed.cycle();
    bed.pod(pod("a").label("waits", ""));
    bed.cycle();
    bed.pass_seconds(5);
    assert_eq!((bed.place("a"), bed.place("b")), (Some(Place::Unschedulable), Some(Place::Active)));
}

#[test]
fn a_plugin_without_events_ignores_attachments_and_custom_kinds() {
    let custom = || Text::from("foos.v1.example.com");
    let everything = |kinds: Vec<EventResource>| {
        move || -> Vec<EventRegistration> {
            kinds.iter().map(|kind| EventRegistration::always(kind.clone(), ActionType::ALL)).collect()
        }
    };
    let rejects = |name| Fake::new(name).filter(|_, _, _| Status::unschedulable("no"));
    // Another plugin has these kinds watched.
    let watched = [EventResource::Other(resources::VOLUME_ATTACHMENT), EventResource::Other(custom())];
    let others = || Fake::new("Others").pre_filter(|_| PreFilter::Skip).events(everything(watched.to_vec()));
    let cases = [
        (resources::PERSISTENT_VOLUME, Place::Backoff, Place::Backoff),
        (resources::VOLUME_ATTACHMENT, Place::Unschedulable, Place::Backoff),
        (custom(), Place::Unschedulable, Place::Backoff),
    ];
    for (kind, without_events, with_all) in cases {
        let all = everything(vec![EventResource::Any]);
        for (plugin, expected) in
            [(rejects("Silent"), without_events), (rejects("Eager").events(all), with_all)]
        {
            let mut bed = TestBed::with(vec![plugin.build(), others().build()]);
            bed.node(node("n1"));
            bed.pod(pod("a"));
            bed.cycle();
            let new = object(&kind, "x", Body::Other(Arc::default()));
            bed.handle(Input::Object(Notification::Added(Arc::new(new))));
            assert_eq!(bed.place("a"), Some(expected), "{kind}");
        }
    }
}
