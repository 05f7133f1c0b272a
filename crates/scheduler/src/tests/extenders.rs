//! Extenders.

use std::sync::Arc;

use supercargo_framework::binding::{BindOutcome, Certainty};
use supercargo_framework::event::EventRegistration;
use supercargo_framework::objects::{Body, resources};
use supercargo_framework::plugin::{
    Candidate, ExtensionPoints, NodeStatuses, Nomination, PostFilterPlugin, PreFilter, RunFilters,
};
use supercargo_framework::testing::{PodBuilder, node, object, pod};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, NodeRecord, Plugin, PodInfo, Status, Text,
};

use super::fake::{Fake, Log};
use super::test_bed::{TestBed, big, failed, options, plugins};
use crate::{
    Calls, Effect, ExtenderAnswer, ExtenderQuestion, ExtenderSpec, ExtenderVictims, Input, Notification,
    Options, Place,
};

fn extender(name: &str) -> ExtenderSpec {
    ExtenderSpec { name: name.into(), filters: true, ..ExtenderSpec::default() }
}

type Answer = Box<dyn Fn(&str, &[Arc<str>]) -> Result<ExtenderAnswer, String>>;

/// Extenders whose answers are closures over their name and the nodes. Records the calls.
struct Fakes {
    filter: Answer,
    prioritize: Answer,
    preempt: Answer,
    asked: Vec<String>,
}

impl Fakes {
    fn new() -> Self {
        let keep_all = |_: &str, nodes: &[Arc<str>]| Ok(filtered(nodes, &[], &[]));
        let no_scores = |_: &str, _: &[Arc<str>]| Ok(ExtenderAnswer::Prioritized(Vec::new()));
        let no_room = |_: &str, _: &[Arc<str>]| Ok(ExtenderAnswer::Preempted(Vec::new()));
        Self {
            filter: Box::new(keep_all),
            prioritize: Box::new(no_scores),
            preempt: Box::new(no_room),
            asked: Vec::new(),
        }
    }

    fn filter(
        mut self,
        answer: impl Fn(&str, &[Arc<str>]) -> Result<ExtenderAnswer, String> + 'static,
    ) -> Self {
        self.filter = Box::new(answer);
        self
    }

    fn prioritize(
        mut self,
        answer: impl Fn(&str, &[Arc<str>]) -> Result<ExtenderAnswer, String> + 'static,
    ) -> Self {
        self.prioritize = Box::new(answer);
        self
    }

    fn preempt(
        mut self,
        answer: impl Fn(&str, &[Arc<str>]) -> Result<ExtenderAnswer, String> + 'static,
    ) -> Self {
        self.preempt = Box::new(answer);
        self
    }
}

impl Calls for Fakes {
    fn ask(
        &mut self,
        extender: &ExtenderSpec,
        question: ExtenderQuestion<'_>,
    ) -> Result<ExtenderAnswer, String> {
        let names = |nodes: &[Arc<NodeRecord>]| nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        let (verb, nodes, answer): (_, Vec<_>, _) = match question {
            ExtenderQuestion::Filter { nodes, .. } => ("filter", names(nodes), &self.filter),
            ExtenderQuestion::Prioritize { nodes, .. } => ("prioritize", names(nodes), &self.prioritize),
            ExtenderQuestion::Preempt { candidates, .. } => {
                let nodes = candidates.iter().map(|candidate| Arc::clone(&candidate.node)).collect();
                ("preempt", nodes, &self.preempt)
            }
        };
        self.asked.push(format!("{} {verb} {}", extender.name, nodes.join(" ")));
        answer(&extender.name, &nodes)
    }
}

fn filtered(nodes: &[Arc<str>], failed: &[(&str, &str)], hopeless: &[(&str, &str)]) -> ExtenderAnswer {
    let reasons = |list: &[(&str, &str)]| {
        list.iter().map(|(node, reason)| (Arc::from(*node), String::from(*reason))).collect()
    };
    ExtenderAnswer::Filtered {
        nodes: nodes.to_vec(),
        failed: reasons(failed),
        failed_and_unresolvable: reasons(hopeless),
    }
}

fn with_three_nodes(extenders: Vec<ExtenderSpec>) -> TestBed {
    let mut bed = TestBed::extended(extenders);
    for name in ["n1", "n2", "n3"] {
        bed.node(node(name));
    }
    bed
}

#[test]
fn each_extender_filters_the_result_of_the_last() {
    let mut bed = with_three_nodes(vec![extender("x"), extender("y")]);
    let mut calls = Fakes::new().filter(|name, nodes| match name {
        "x" => Ok(filtered(&nodes[1..], &[("n1", "x does not like it")], &[])),
        _ => Ok(filtered(&nodes[1..], &[], &[("n2", "y does not like it")])),
    });
    bed.pod(pod("a"));
    bed.cycle_with(&mut calls);
    assert_eq!(calls.asked, ["x filter n1 n2 n3", "y filter n2 n3"]);
    assert_eq!(bed.effect_lines(), ["a bind to n3"]);
}

#[test]
fn nodes_rejected_by_extenders_count_and_any_event_requeues() {
    let mut bed = with_three_nodes(vec![extender("x")]);
    let mut calls = Fakes::new().filter(|_, _| {
        Ok(filtered(&[], &[("n1", "full"), ("n2", "full"), ("n3", "no")], &[("n2", "never")]))
    });
    bed.pod(pod("a"));
    bed.cycle_with(&mut calls);
    let message = "0/3 nodes are available: 1 full, 1 never, 1 no.";
    assert_eq!(bed.effect_lines()[1], format!("a patch False Unschedulable: {message}"));
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    assert_eq!(bed.queued("a").unschedulable_plugins.iter().map(|p| &**p).collect::<Vec<_>>(), ["Extender"]);
    bed.assigned(pod("x").node("n1"));
    assert_eq!(bed.place("a"), Some(Place::Backoff));
}

#[test]
fn after_an_extender_attachments_and_custom_kinds_requeue_nothing() {
    let custom = || Text::from("foos.v1.example.com");
    // A plugin has all kinds watched.
    let watches = Fake::new("Watches").pre_filter(|_| PreFilter::Skip).events(move || {
        let kinds = [resources::VOLUME_ATTACHMENT, custom(), resources::CSI_NODE];
        let resources = kinds.into_iter().map(EventResource::Other);
        resources.map(|resource| EventRegistration::always(resource, ActionType::ALL)).collect()
    });
    let extenders = vec![extender("x")];
    let mut bed = TestBed::of(Options { extenders, ..options(plugins(vec![watches.build()])) });
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle_with(&mut Fakes::new().filter(|_, _| Ok(filtered(&[], &[("n1", "full")], &[]))));
    for (kind, expected) in [
        (resources::VOLUME_ATTACHMENT, Place::Unschedulable),
        (custom(), Place::Unschedulable),
        (resources::CSI_NODE, Place::Backoff),
    ] {
        let new = object(&kind, "x", Body::Other(Arc::default()));
        bed.handle(Input::Object(Notification::Added(Arc::new(new))));
        assert_eq!(bed.place("a"), Some(expected), "{kind}");
    }
}

#[test]
fn a_failed_extender_fails_the_attempt_unless_ignorable() {
    for (ignorable, expected) in [(true, "a bind to n"), (false, "a patch False SchedulerError: down")] {
        let mut bed = with_three_nodes(vec![ExtenderSpec { ignorable, ..extender("x") }]);
        bed.pod(pod("a"));
        bed.cycle_with(&mut Fakes::new().filter(|_, _| Err("down".to_owned())));
        assert!(bed.effect_lines().last().unwrap().starts_with(expected));
    }
}

#[test]
fn scores_of_extenders_count_ten_times_their_weight() {
    for (weight, expected) in [(1, "a bind to n2"), (100, "a bind to n3")] {
        let prioritizes = ExtenderSpec { filters: false, weight: Some(weight), ..extender("x") };
        let mut bed = with_three_nodes(vec![prioritizes]);
        bed.assigned(pod("load1").request("cpu", "1").node("n1"));
        bed.assigned(pod("load3").request("cpu", "3").node("n3"));
        let mut calls = Fakes::new().prioritize(|_, _| {
            Ok(ExtenderAnswer::Prioritized(vec![("n3".into(), 2), ("n1".into(), 1), ("n9".into(), 10)]))
        });
        bed.pod(pod("a").request("cpu", "1"));
        bed.cycle_with(&mut calls);
        assert_eq!(calls.asked, ["x prioritize n1 n2 n3"]);
        assert_eq!(bed.effect_lines(), [expected], "weight {weight}");
    }
}

#[test]
fn an_extender_that_fails_to_prioritize_is_ignored() {
    let prioritizes = ExtenderSpec { filters: false, weight: Some(5), ..extender("x") };
    let mut bed = with_three_nodes(vec![prioritizes]);
    bed.pod(pod("a"));
    bed.cycle_with(&mut Fakes::new().prioritize(|_, _| Err("down".to_owned())));
    assert_eq!(bed.effect_lines(), ["a bind to n1"]);
}

#[test]
fn an_extender_is_called_only_for_pods_with_its_resources() {
    let managed_resources = vec!["example.com/gpu".into()];
    let mut bed = with_three_nodes(vec![ExtenderSpec { managed_resources, ..extender("x") }]);
    bed.node(node("g").allocatable("example.com/gpu", "1"));
    let mut calls = Fakes::new();
    bed.pod(pod("a"));
    bed.cycle_with(&mut calls);
    assert!(calls.asked.is_empty());
    bed.pod(pod("b").request("example.com/gpu", "1"));
    bed.cycle_with(&mut calls);
    assert_eq!(calls.asked, ["x filter g"]);
}

#[test]
fn the_search_continues_if_an_extender_rejects_the_nominated_node() {
    let mut bed = with_three_nodes(vec![extender("x")]);
    let mut calls = Fakes::new().filter(|_, nodes| {
        let kept: Vec<_> = nodes.iter().filter(|node| ***node != *"n2").cloned().collect();
        Ok(filtered(&kept, &[("n2", "no")], &[]))
    });
    bed.pod(pod("a").nominated("n2"));
    bed.cycle_with(&mut calls);
    assert_eq!(calls.asked, ["x filter n2", "x filter n1 n2 n3"]);
    let reported = bed.effect_lines();
    assert!(["a bind to n1", "a bind to n3"].contains(&reported[0].as_str()), "{reported:?}");
}

#[test]
fn with_a_filtering_extender_large_clusters_are_sampled() {
    let mut bed = TestBed::extended(vec![extender("x")]);
    for i in 0..300 {
        bed.node(node(&format!("n{i}")));
    }
    let mut calls = Fakes::new();
    bed.pod(pod("a"));
    bed.cycle_with(&mut calls);
    assert_eq!(calls.asked[0].split(' ').count() - 2, 144, "48 % of 300");
}

#[test]
fn ties_follow_the_order_of_a_filtering_extenders_answer() {
    // Nothing scores, so only the order of the answer matters.
    let mut options = options(plugins(Vec::new()));
    options.profiles[0].plugins.score.clear();
    options.percentage_of_nodes_to_score = Some(100);
    let mut bed = TestBed::of(Options { extenders: vec![extender("x"), extender("y")], ..options });
    for name in ["n1", "n2", "n3"] {
        bed.node(node(name));
    }
    let mut calls = Fakes::new().filter(|_, nodes| {
        let mut backwards: Vec<Arc<str>> = nodes.iter().rev().cloned().collect();
        // Unknown and repeated nodes in the answer are ignored.
        backwards.extend(["n9".into(), "n1".into()]);
        Ok(filtered(&backwards, &[], &[]))
    });
    bed.pod(pod("a"));
    bed.cycle_with(&mut calls);
    assert_eq!(calls.asked, ["x filter n1 n2 n3", "y filter n3 n2 n1"]);
}

#[test]
fn scores_of_extenders_add_up_even_for_a_repeated_node() {
    let prioritizes =
        |name: &str, weight| ExtenderSpec { filters: false, weight: Some(weight), ..extender(name) };
    let mut bed = with_three_nodes(vec![prioritizes("x", 1), prioritizes("y", 2)]);
    let mut calls = Fakes::new().prioritize(|name, _| {
        let scores: &[(&str, i64)] =
            if name == "x" { &[("n1", 5), ("n2", 3), ("n2", 3)] } else { &[("n3", 4)] };
        Ok(ExtenderAnswer::Prioritized(
            scores.iter().map(|(node, score)| (Arc::from(*node), *score)).collect(),
        ))
    });
    bed.pod(pod("a"));
    bed.cycle_with(&mut calls);
    assert_eq!(calls.asked, ["x prioritize n1 n2 n3", "y prioritize n1 n2 n3"]);
    assert_eq!(bed.effect_lines(), ["a bind to n3"], "5, 6 and 8 times 10");
}

#[test]
fn ties_between_scored_nodes_spread_pods_reproducibly() {
    let filters_only = extender("x");
    let rates = ExtenderSpec { filters: false, weight: Some(1), ..extender("x") };
    for spec in [filters_only, rates] {
        let choices = || {
            let mut bed = with_three_nodes(vec![spec.clone()]);
            let mut calls = Fakes::new().prioritize(|_, nodes| {
                Ok(ExtenderAnswer::Prioritized(nodes.iter().map(|node| (Arc::clone(node), 3)).collect()))
            });
            let choose = |i: usize| {
                let name = format!("pod-{i}");
                bed.pod(pod(&name));
                bed.cycle_with(&mut calls);
                let line = bed.effect_lines().remove(0);
                bed.delete(pod(&name));
                bed.effect_lines();
                String::from(&line[line.len() - 2..])
            };
            (0..150).map(choose).collect::<Vec<_>>()
        };
        let first = choices();
        for node in ["n1", "n2", "n3"] {
            let count = first.iter().filter(|chosen| *chosen == node).count();
            assert!((25..=75).contains(&count), "{count} of 150 on {node}");
        }
        assert_eq!(choices(), first);
    }
}

#[test]
fn a_scored_node_wins_ties_with_unscored_ones() {
    let rates = ExtenderSpec { filters: false, weight: Some(1), ..extender("x") };
    let mut bed = with_three_nodes(vec![rates]);
    let mut calls = Fakes::new().prioritize(|_, _| Ok(ExtenderAnswer::Prioritized(vec![("n2".into(), 0)])));
    bed.pod(pod("a"));
    bed.cycle_with(&mut calls);
    assert_eq!(bed.effect_lines(), ["a bind to n2"]);
}

/// A PostFilter plugin that proposes victims on `n1` and `n2`, and logs what extenders leave of
/// them.
struct Proposes(Log);

impl Plugin for Proposes {
    fn name(&self) -> &'static str {
        "Proposes"
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().post_filter(&self)
    }
}

impl PostFilterPlugin for Proposes {
    fn post_filter(
        &self,
        cx: &Context<'_>,
        _: &CycleState,
        pod: &Arc<PodInfo>,
        _: &NodeStatuses,
        filters: &dyn RunFilters,
    ) -> (Nomination, Status) {
        let candidate = |name: &str| {
            let victims = cx.node(cx.nodes().index_of(name).unwrap()).pods().to_vec();
            Candidate { node: name.into(), victims, pdb_violations: 0 }
        };
        self.0.add(match filters.extend_preemption(pod, vec![candidate("n1"), candidate("n2")]) {
            Ok(left) => left.iter().map(line).collect::<Vec<_>>().join(" "),
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        });
        (Nomination::Keep, Status::unschedulable("no room"))
    }
}

/// A bed with one pod on `n1` and `n3`, two on `n2`, and a preemptor.
fn preempting(extenders: Vec<ExtenderSpec>, log: &Log) -> TestBed {
    let lists = plugins(vec![Arc::new(Proposes(log.clone()))]);
    let mut bed = TestBed::of(Options { extenders, ..options(lists) });
    for name in ["n1", "n2", "n3"] {
        bed.node(node(name));
    }
    for (name, on) in [("v1", "n1"), ("v2", "n2"), ("v3", "n2"), ("v4", "n3")] {
        bed.assigned(pod(name).node(on));
    }
    bed.pod(big("a"));
    bed
}

fn line(candidate: &Candidate) -> String {
    let victims: Vec<_> = candidate.victims.iter().map(|pod| &*pod.name).collect();
    format!("{}:{}:{}", candidate.node, victims.join("+"), candidate.pdb_violations)
}

fn agreed(on: &[(&str, &[&str], i64)]) -> ExtenderAnswer {
    let one = |(node, victims, pdb_violations): &(&str, &[&str], i64)| ExtenderVictims {
        node: Arc::from(*node),
        victims: victims.iter().map(|uid| (*uid).into()).collect(),
        pdb_violations: *pdb_violations,
    };
    ExtenderAnswer::Preempted(on.iter().map(one).collect())
}

fn preempter(name: &str) -> ExtenderSpec {
    ExtenderSpec { filters: false, preempts: true, ..extender(name) }
}

#[test]
fn extenders_remove_candidates_and_victims_in_turn() {
    type Agree = fn(&str) -> Result<ExtenderAnswer, String>;
    let not_there = "Error: extender: x claims to preempt pod (UID: &{v9}) on node: n1, but the pod is not found on that \
                     node";
    let cases: [(&str, Agree, &str, &[&str]); 7] = [
        (
            "nothing",
            |_| Ok(agreed(&[("n2", &["v2", "v3"], 0), ("n1", &["v1"], 0)])),
            "n1:v1:0 n2:v2+v3:0",
            &["n1 n2"; 2],
        ),
        ("a victim", |_| Ok(agreed(&[("n2", &["v3"], 1)])), "n2:v3:1", &["n1 n2", "n2"]),
        ("all", |_| Ok(agreed(&[])), "", &["n1 n2"]),
        (
            "none, but adds one",
            |_| Ok(agreed(&[("n3", &["v4"], 0), ("n2", &["v2"], -1)])),
            "n2:v2:0 n3:v4:0",
            &["n1 n2", "n2 n3"],
        ),
        ("by a pod elsewhere", |_| Ok(agreed(&[("n1", &["v9"], 0)])), not_there, &["n1 n2"]),
        (
            "on a node that is none",
            |_| Ok(agreed(&[("n9", &["v1"], 0)])),
            "Error: nodeinfo not found for node name \"n9\"",
            &["n1 n2"],
        ),
        (
            "every victim",
            |_| Ok(agreed(&[("n1", &[], 0)])),
            "Error: expected at least one victim pod on node \"n1\"",
            &["n1 n2"],
        ),
    ];
    for (name, answer, expected, asked) in cases {
        let log = Log::default();
        let mut bed = preempting(vec![preempter("x"), preempter("y")], &log);
        let mut calls = Fakes::new().preempt(move |name, _| answer(name));
        bed.cycle_with(&mut calls);
        assert_eq!(log.take(), [expected], "removes {name}");
        let names = ["x", "y"].into_iter().zip(asked);
        assert_eq!(calls.asked, names.map(|(x, nodes)| format!("{x} preempt {nodes}")).collect::<Vec<_>>());
    }
}

#[test]
fn an_ignorable_extenders_failure_and_empty_candidates_are_ignored() {
    type Agree = fn(&str) -> Result<ExtenderAnswer, String>;
    let cases: [(Agree, &str); 3] = [
        (|_| Err("down".to_owned()), "n1:v1:0 n2:v2+v3:0"),
        (|_| Ok(agreed(&[("n9", &["v1"], 0)])), "n1:v1:0 n2:v2+v3:0"),
        (|_| Ok(agreed(&[("n1", &[], 0), ("n2", &["v2"], 0)])), "n2:v2:0"),
    ];
    for (answer, expected) in cases {
        let log = Log::default();
        let mut bed = preempting(vec![ExtenderSpec { ignorable: true, ..preempter("x") }], &log);
        bed.cycle_with(&mut Fakes::new().preempt(move |name, _| answer(name)));
        assert_eq!(log.take(), [expected]);
    }
}

#[test]
fn a_failed_extender_in_preemption_is_a_postfilter_error() {
    let log = Log::default();
    let mut bed = preempting(vec![extender("only filters"), preempter("x")], &log);
    bed.cycle_with(&mut Fakes::new().preempt(|_, _| Err("down".to_owned())));
    assert_eq!(log.take(), ["Error: down"]);
}

fn binder(managed: &[&str]) -> ExtenderSpec {
    let managed_resources = managed.iter().map(|name| Arc::from(*name)).collect();
    ExtenderSpec { filters: false, binds: true, managed_resources, ..extender("x") }
}

fn binders_of(bed: &mut TestBed, pod: PodBuilder) -> Vec<String> {
    bed.pod(pod);
    bed.cycle();
    match &bed.effects()[..] {
        [Effect::Bind { extenders, binders, .. }] => {
            let extenders = extenders.iter().map(|extender| extender.name.to_string());
            extenders.chain(binders.iter().map(|binder| binder.name.to_string())).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_binding_extender_takes_precedence_over_bind_plugins() {
    let mut bed = with_three_nodes(vec![binder(&["example.com/gpu"])]);
    bed.node(node("g").allocatable("example.com/gpu", "1"));
    assert_eq!(binders_of(&mut bed, pod("a")), ["DefaultBinder"]);
    assert_eq!(binders_of(&mut bed, pod("b").request("example.com/gpu", "1")), ["x", "DefaultBinder"]);
}

#[test]
fn an_extenders_bind_error_is_reported_unchanged() {
    let mut bed = TestBed::extended(vec![binder(&[])]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    bed.effect_lines();
    let outcome = failed(Certainty::Refused, "failed bind with extender at URL http://x/bind, code 500");
    bed.handle(Input::Bound { pod: "a".into(), by: "".into(), outcome });
    let message = "failed bind with extender at URL http://x/bind, code 500";
    assert_eq!(bed.effect_lines()[1], format!("a patch False SchedulerError: {message}"));
    bed.pass_seconds(2);
    bed.cycle();
    bed.effect_lines();
    bed.handle(Input::Bound { pod: "a".into(), by: "".into(), outcome: BindOutcome::Bound });
    assert_eq!(bed.effect_lines(), ["a Normal Scheduled Binding: Successfully assigned default/a to n1"]);
}
