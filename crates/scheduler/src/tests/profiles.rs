//! Profiles: validation, and the pods that each one serves.

use std::sync::Arc;

use supercargo_framework::event::EventRegistration;
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{ActionType, EventResource, Now, Plugin, Status};

use super::fake::{Fake, Log};
use super::test_bed::{TestBed, big, options, plugins};
use crate::{BuildError, Options, Place, PluginLists, ProfileError, ProfileSpec, Scheduler};

fn spec(name: &str, plugins: PluginLists) -> ProfileSpec {
    ProfileSpec { scheduler_name: name.to_owned(), percentage_of_nodes_to_score: None, plugins }
}

#[test]
fn invalid_profiles_are_rejected() {
    let good = || plugins(Vec::new());
    let sorts = || Fake::new("Sort").less(|_, _| false).build();
    let cases: Vec<(&str, Vec<ProfileSpec>, &str)> = vec![
        (
            "none",
            vec![],
            "profiles need distinct names, and at least one is required; \"\" is repeated or missing",
        ),
        (
            "two of one name",
            vec![spec("a", good()), spec("b", good()), spec("a", good())],
            "profiles need distinct names, and at least one is required; \"a\" is repeated or missing",
        ),
        (
            "two orders",
            vec![spec("a", plugins(vec![sorts()]))],
            "profile \"a\": exactly one queueSort plugin is needed, 2 are enabled",
        ),
        (
            "no order",
            vec![spec("a", PluginLists { queue_sort: vec![], ..good() })],
            "profile \"a\": exactly one queueSort plugin is needed, 0 are enabled",
        ),
        (
            "no bind plugin",
            vec![spec("a", PluginLists { bind: vec![], ..good() })],
            "profile \"a\": at least one bind plugin is needed",
        ),
        (
            "a plugin where it does not take part",
            vec![spec("a", PluginLists { filter: vec![sorts()], ..good() })],
            "profile \"a\": plugin \"Sort\" does not take part in filter",
        ),
    ];
    for (name, profiles, expected) in cases {
        let error = Scheduler::new(Options { profiles, ..Options::default() }).err().unwrap();
        assert_eq!(error.to_string(), expected, "{name}");
        assert!(matches!(error, BuildError::Profile(_)));
    }
    let nameless = ProfileError::NoBind { profile: String::new() };
    assert_ne!(nameless, ProfileError::Names(String::new()));
}

#[test]
fn inconsistencies_of_plugins_are_those_of_the_scheduler() {
    let leaky = Fake::new("Leaky").less(|_, _| false).inconsistencies(|| vec!["one leaks".to_owned()]);
    let mut lists = plugins(Vec::new());
    lists.queue_sort = vec![leaky.build()];
    let scheduler = Scheduler::new(options(lists)).unwrap();
    assert_eq!(scheduler.inconsistencies(), ["Leaky: one leaks"]);
}

#[test]
fn pods_use_their_own_profile_and_others_are_ignored() {
    let refuser: Arc<dyn Plugin> =
        Fake::new("Refuser").filter(|_, _, _| Status::unschedulable("not here")).build();
    let strict = spec("strict", plugins(vec![refuser]));
    let mut all = options(plugins(Vec::new()));
    all.profiles.push(strict);
    let mut bed = TestBed::of(all);
    bed.node(node("n1"));
    for (name, scheduler) in [("a", "supercargo"), ("b", "strict"), ("c", "stranger")] {
        bed.pod(pod(name).scheduler(scheduler));
    }
    assert!(bed.scheduler.is_responsible_for("strict") && !bed.scheduler.is_responsible_for("stranger"));
    while bed.cycle() {}
    let reported = bed.effect_lines();
    assert_eq!(reported[0], "a bind to n1");
    assert!(reported[1].starts_with("b Warning FailedScheduling") && reported.len() == 3);
    assert_eq!(bed.place("c"), None);
}

/// The plugin that holds a pod may register for other events in another profile. Upstream does not
/// distinguish them.
#[test]
fn a_gate_is_rechecked_on_events_registered_in_any_profile() {
    let log = Log::default();
    let gate = |action: ActionType| {
        let log = log.clone();
        Fake::new("Gate")
            .pre_enqueue(move |_| {
                log.add("asked");
                // Passes once, and again after the log is read.
                if log.len() == 1 { Status::success() } else { Status::unschedulable("shut") }
            })
            .events(move || vec![EventRegistration::always(EventResource::Node, action)])
            .build()
    };
    for (elsewhere, place) in [(ActionType::ADD, Place::Backoff), (ActionType::DELETE, Place::Gated)] {
        let mut all = options(plugins(vec![gate(ActionType::DELETE)]));
        all.profiles.push(spec("other", plugins(vec![gate(elsewhere)])));
        let mut bed = TestBed::of(all);
        bed.node(node("n1"));
        bed.pod(big("a"));
        bed.cycle();
        // The node helps against the rejection, and then the gate holds the pod.
        bed.node(node("n2").allocatable("cpu", "16"));
        assert_eq!((bed.place("a"), log.take().len()), (Some(Place::Gated), 2));
        bed.node(node("n3").allocatable("cpu", "16"));
        assert_eq!(bed.place("a"), Some(place), "{elsewhere:?}");
        log.take();
    }
}

#[test]
fn pods_of_one_template_have_one_signature() {
    let bed = TestBed::new();
    let sign = |pod: supercargo_framework::testing::PodBuilder| {
        bed.scheduler.signature(Now::default(), &pod.build())
    };
    let first = sign(pod("a").request("cpu", "1").label("unique", "a"));
    assert!(first.is_some());
    assert_eq!(first, sign(pod("b").uid("x").priority(7).request("cpu", "1").label("unique", "b")));
    assert_ne!(first, sign(pod("a").request("cpu", "2")));
    assert_eq!(sign(pod("a").scheduler("stranger")), None);
}
