//! The scheduling cycle: finds a node, or the reasons why there is none.

use std::sync::Arc;

use supercargo_framework::plugin::{Nomination, PreFilter};
use supercargo_framework::testing::{PodBuilder, node, pod};
use supercargo_framework::{Code, NodeInfo, Status};

use super::fake::{Fake, Log};
use super::test_bed::{TestBed, options, plugins};
use crate::{Options, Place, PluginLists, ProfileSpec};

fn fit_only(more: Vec<Fake>) -> PluginLists {
    let more = more.into_iter().map(Fake::build).collect();
    PluginLists { score: Vec::new(), ..plugins(more) }
}

/// The message of the pod's failure with these plugins and `nodes` nodes.
fn failure(nodes: usize, plugins: Vec<Fake>) -> String {
    let mut bed = TestBed::with(plugins.into_iter().map(Fake::build).collect());
    for i in 0..nodes {
        bed.node(node(&format!("n{i}")));
    }
    bed.pod(pod("a"));
    bed.cycle();
    bed.effect_lines()[0].split_once("Scheduling: ").unwrap().1.to_owned()
}

/// A PostFilter plugin that keeps nominations.
fn keeper() -> Fake {
    Fake::new("Keeper").post_filter(|_, _| (Nomination::Keep, Status::unschedulable("later")))
}

fn names(names: &[&str]) -> PreFilter {
    PreFilter::Nodes(names.iter().map(|name| Arc::from(*name)).collect())
}

#[test]
fn among_equal_nodes_the_first_in_zone_order_wins() {
    let mut bed = TestBed::new();
    for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b")] {
        bed.node(node(name).zone(zone));
    }
    for name in ["a", "b", "c"] {
        bed.pod(pod(name).request("cpu", "1").request("memory", "1Gi"));
        bed.cycle();
    }
    assert_eq!(
        bed.effect_lines(),
        ["a bind to n1", "b bind to n3", "c bind to n2"],
        "the least loaded, then the first"
    );
}

#[test]
fn every_reason_is_counted() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.node(node("n2").unschedulable());
    bed.node(node("n3").taint("k", "v", supercargo_framework::TaintEffect::NoSchedule));
    bed.node(node("n4"));
    bed.pod(pod("a").request("cpu", "8"));
    bed.cycle();
    let message = "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 \
                   Insufficient cpu.";
    assert_eq!(
        bed.effect_lines(),
        [
            format!("a Warning FailedScheduling Scheduling: {message}"),
            format!("a patch False Unschedulable: {message}"),
        ]
    );
    let to_blame: Vec<_> = bed.queued("a").unschedulable_plugins.iter().map(ToString::to_string).collect();
    assert_eq!(to_blame, ["NodeResourcesFit", "NodeUnschedulable", "TaintToleration"]);
}

#[test]
fn without_nodes_no_plugin_is_blamed() {
    let log = Log::default();
    let lines = log.clone();
    let post_filter = Fake::new("P").post_filter(move |_, _| {
        lines.add("asked");
        (Nomination::Keep, Status::success())
    });
    let mut bed = TestBed::with(vec![post_filter.build()]);
    bed.pod(pod("a").nominated("n1"));
    bed.cycle();
    assert_eq!(
        bed.effect_lines(),
        [
            "a Warning FailedScheduling Scheduling: no nodes available to schedule pods",
            "a patch False Unschedulable: no nodes available to schedule pods nominated \"\"",
        ]
    );
    assert!(log.take().is_empty() && bed.queued("a").unschedulable_plugins.is_empty());
}

#[test]
fn prefilter_rejects_names_nodes_or_fails() {
    let reject = |name, code, reason: &'static str| {
        Fake::new(name).pre_filter(move |_| PreFilter::Reject(Status::new(code, reason)))
    };
    let nodes = |name, list: &'static [&'static str]| Fake::new(name).pre_filter(move |_| names(list));
    use Code::{Error, Pending, Unschedulable, UnschedulableAndUnresolvable};
    let cases: Vec<(Vec<Fake>, &str)> = vec![
        (vec![reject("P", UnschedulableAndUnresolvable, "never")], "0/2 nodes are available: never."),
        (
            vec![reject("P", Unschedulable, "first"), reject("Q", Unschedulable, "second")],
            "0/2 nodes are available: second.",
        ),
        (
            vec![reject("P", Unschedulable, "first"), reject("Q", UnschedulableAndUnresolvable, "never")],
            "0/2 nodes are available: never.",
        ),
        (vec![reject("P", Error, "broken")], "running PreFilter plugin \"P\": broken"),
        (vec![reject("P", Pending, "soon")], "running PreFilter plugin \"P\": soon"),
        (vec![nodes("P", &[])], "0/2 nodes are available: node(s) didn't satisfy plugin P."),
        (
            vec![nodes("Q", &["n0"]), nodes("P", &["n1"])],
            "0/2 nodes are available: node(s) didn't satisfy plugin(s) [P Q] simultaneously.",
        ),
        (vec![nodes("P", &["n9"])], "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [P]."),
        (
            vec![nodes("P", &["n0", "n1"]), nodes("Q", &["n1", "n2"]), {
                Fake::new("F").filter(|_, _, _| Status::unschedulable("no"))
            }],
            "0/2 nodes are available: 1 no, 1 node(s) didn't satisfy plugin(s) [P Q].",
        ),
    ];
    for (plugins, expected) in cases {
        assert_eq!(failure(2, plugins), expected);
    }
}

#[test]
fn a_plugin_whose_prefilter_skips_does_not_filter() {
    let skipper =
        || Fake::new("S").pre_filter(|_| PreFilter::Skip).filter(|_, _, _| Status::unschedulable("no"));
    let mut bed = TestBed::with(vec![skipper().build()]);
    bed.node(node("n1"));
    bed.pod(pod("a"));
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["a bind to n1"]);
}

#[test]
fn an_error_of_a_filter_ends_the_attempt() {
    let plugins = vec![Fake::new("F").filter(|_, _, node| match &**node.name() {
        "n0" => Status::unschedulable("no"),
        _ => Status::error("broken"),
    })];
    assert_eq!(failure(2, plugins), "running \"F\" filter plugin: broken");
}

#[test]
fn scores_are_checked_and_their_errors_named() {
    let scorer = |score: Result<i64, &'static str>| {
        Fake::new("S").score(move |_| score.map_err(Status::error)).events(Vec::new)
    };
    let cases: Vec<(Fake, &str)> = vec![
        (
            scorer(Ok(101)),
            "applying score defaultWeights on Score plugins: plugin \"S\" returns an invalid score 101, it should in \
             the range of [0, 100] after normalizing",
        ),
        (scorer(Err("broken")), "running Score plugins: plugin \"S\" failed with: broken"),
        (scorer(Ok(0)).pre_score(|_| Status::error("broken")), "running PreScore plugin \"S\": broken"),
    ];
    for (plugin, expected) in cases {
        assert_eq!(failure(2, vec![plugin]), expected);
    }
}

#[test]
fn skipping_plugins_and_single_nodes_are_not_scored() {
    let broken = || Fake::new("S").score(|_| Err(Status::error("broken"))).events(Vec::new);
    for (plugin, nodes) in [(broken().pre_score(|_| Status::skip()), 2), (broken(), 1)] {
        let mut bed = TestBed::with(vec![plugin.build()]);
        for i in 0..nodes {
            bed.node(node(&format!("n{i}")));
        }
        bed.pod(pod("a"));
        bed.cycle();
        assert_eq!(bed.effect_lines(), ["a bind to n0"]);
    }
}

#[test]
fn a_nominated_node_that_fits_wins_over_higher_scores() {
    let scorer = Fake::new("S").score(|node| Ok(if &**node.name() == "n1" { 0 } else { 100 }));
    let mut bed = TestBed::with(vec![scorer.build()]);
    bed.node(node("n1"));
    bed.node(node("n2"));
    bed.pod(pod("a").nominated("n1"));
    bed.pod(pod("b"));
    bed.pod(pod("c").nominated("n9"));
    while bed.cycle() {}
    assert_eq!(bed.effect_lines(), ["a bind to n1", "b bind to n2", "c bind to n2"]);
}

#[test]
fn a_nominated_node_that_does_not_fit_counts_once() {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.node(node("n2"));
    bed.pod(pod("a").request("cpu", "8").nominated("n1"));
    bed.cycle();
    assert!(bed.effect_lines()[0].ends_with("0/2 nodes are available: 2 Insufficient cpu."));
}

#[test]
fn nominated_pods_of_at_least_equal_priority_count_on_their_node() {
    for (name, priority, expected) in
        [("less", -1, "a bind to n1"), ("the same", 0, "a bind to n2"), ("more", 5, "a bind to n2")]
    {
        let mut bed = TestBed::with(vec![keeper().build()]);
        bed.node(node("n1"));
        // It does not fit yet, and waits for n1.
        let nominated = pod("big").priority(priority).request("cpu", "3").request("memory", "64Gi");
        bed.pod(nominated.nominated("n1"));
        bed.cycle();
        bed.node(node("n2").allocatable("cpu", "2"));
        bed.effect_lines();
        bed.pod(pod("a").request("cpu", "2"));
        bed.cycle();
        assert_eq!(bed.effect_lines(), [expected], "{name}");
    }
}

#[test]
fn a_gated_pod_is_nominated() {
    let mut bed = TestBed::new();
    bed.pod(pod("a").nominated("n1").gate("g"));
    assert_eq!(bed.scheduler.queue.nominator.on_node("n1").len(), 1);
    bed.update(pod("a").nominated("n1").gate("g"), pod("a").nominated("n1").resource_version("2"));
    assert_eq!(bed.scheduler.queue.nominator.on_node("n1").len(), 1);
}

#[test]
fn a_failing_add_pod_is_an_error_unless_the_plugin_skipped() {
    let fails = |skips: bool| {
        Fake::new("P")
            .pre_filter(move |_| if skips { PreFilter::Skip } else { PreFilter::AllNodes })
            .pod_added(|_, added| Status::error(format!("cannot add {}", added.name)))
            .events(Vec::new)
    };
    for (skips, expected) in
        [(true, "a bind to n1"), (false, "running AddPod on PreFilter plugin \"P\": cannot add big")]
    {
        let mut bed = TestBed::with(vec![fails(skips).build(), keeper().build()]);
        bed.node(node("n1"));
        bed.pod(pod("big").priority(1).request("cpu", "8").nominated("n1"));
        bed.pod(pod("a"));
        bed.cycle();
        bed.effect_lines();
        bed.cycle();
        assert!(bed.effect_lines()[0].ends_with(expected), "skips: {skips}");
    }
}

#[test]
fn postfilter_sets_the_nomination_and_extends_the_message() {
    let answer = |name, nomination: &Nomination, status: &Status| {
        let (nomination, status) = (nomination.clone(), status.clone());
        Fake::new(name).post_filter(move |_, _| (nomination.clone(), status.clone()))
    };
    let (keep, clear) = (Nomination::Keep, Nomination::Override(None));
    let set = Nomination::Override(Some("n1".into()));
    let no = |reason: &'static str| Status::unschedulable(reason);
    let base = "0/1 nodes are available: 1 Insufficient cpu.";
    type Case<'a> = (&'a str, Vec<(&'a Nomination, Status)>, String, Option<&'a str>);
    let cases: Vec<Case<'_>> = vec![
        ("no plugin clears", vec![], base.to_owned(), Some("")),
        ("one that finds a way", vec![(&set, Status::success())], base.to_owned(), Some("n1")),
        ("reasons are joined", vec![(&keep, no("x")), (&keep, no("y"))], format!("{base} x, y"), None),
        (
            "the last override wins",
            vec![(&clear, no("x")), (&keep, no("y"))],
            format!("{base} x, y"),
            Some(""),
        ),
        (
            "a way found makes up for the others",
            vec![(&keep, no("x")), (&set, Status::success())],
            base.to_owned(),
            Some("n1"),
        ),
        (
            "an unresolvable status ends it",
            vec![(&clear, no("x")), (&keep, Status::unresolvable("y")), (&set, Status::success())],
            format!("{base} y"),
            None,
        ),
        ("an error keeps", vec![(&clear, no("x")), (&set, Status::error("e"))], format!("{base} e"), None),
    ];
    for (name, answers, message, nominated) in cases {
        let plugins = answers.iter().zip(["A", "B", "C"]).map(|((n, s), name)| answer(name, n, s).build());
        let mut bed = TestBed::with(plugins.collect());
        bed.node(node("n1"));
        bed.pod(pod("a").request("cpu", "8").nominated("old"));
        bed.cycle();
        let nominated = nominated.map_or(String::new(), |node| format!(" nominated {node:?}"));
        assert_eq!(
            bed.effect_lines()[1],
            format!("a patch False Unschedulable: {message}{nominated}"),
            "{name}"
        );
    }
}

#[test]
fn postfilter_sees_the_status_of_each_node() {
    let log = Log::default();
    let lines = log.clone();
    let plugin = Fake::new("P").post_filter(move |cx, statuses| {
        for (index, status) in statuses.iter() {
            lines.add(format!("{} {}", cx.node(index).name(), status.message()));
        }
        lines.add(statuses.absent.as_ref().map_or(String::new(), Status::message));
        (Nomination::Keep, Status::success())
    });
    let namer = Fake::new("N").pre_filter(|_| names(&["n2"])).events(Vec::new);
    let mut bed = TestBed::with(vec![plugin.build(), namer.build()]);
    bed.node(node("n1"));
    bed.node(node("n2"));
    bed.pod(pod("a").request("cpu", "8"));
    bed.cycle();
    assert_eq!(log.take(), ["n2 Insufficient cpu", "node(s) didn't satisfy plugin(s) [N]"]);
}

fn crowd(percentage: Option<i32>, plugins: PluginLists) -> TestBed {
    let mut bed = TestBed::of(Options { percentage_of_nodes_to_score: percentage, ..options(plugins) });
    for i in 0..300 {
        bed.node(node(&format!("n{i}")));
    }
    bed
}

fn bound_to(bed: &mut TestBed, pod: PodBuilder) -> String {
    bed.pod(pod);
    bed.cycle();
    bed.effect_lines().pop().unwrap().rsplit_once(' ').unwrap().1.to_owned()
}

#[test]
fn a_sampled_search_continues_where_the_last_one_ended() {
    let mut bed = crowd(Some(40), plugins(Vec::new()));
    let small = |name| pod(name);
    assert_eq!(bound_to(&mut bed, small("a")), "n0");
    assert_eq!(bed.scheduler.next_start_node, 120);
    assert_eq!(bound_to(&mut bed, small("b")), "n120");
    assert_eq!(bound_to(&mut bed, small("c")), "n240");
    assert_eq!(bed.scheduler.next_start_node, 60, "round");
    bed.pod(pod("d").request("cpu", "8"));
    bed.cycle();
    assert_eq!(bed.scheduler.next_start_node, 60, "a search of every node ends where it began");
    let field = pod("e").required_field("metadata.name", "In", &["n7"]);
    bed.effect_lines();
    assert_eq!(bound_to(&mut bed, field), "n7");
    assert_eq!(bed.scheduler.next_start_node, 61, "only filtered nodes count");
}

#[test]
fn a_sampled_search_counts_rejected_nodes() {
    let mut bed =
        TestBed::of(Options { percentage_of_nodes_to_score: Some(40), ..options(plugins(Vec::new())) });
    for i in 0..300 {
        let node = node(&format!("n{i}"));
        bed.node(if i < 10 { node.unschedulable() } else { node });
    }
    assert_eq!(bound_to(&mut bed, pod("a")), "n10");
    assert_eq!(bed.scheduler.next_start_node, 130);
}

#[test]
fn the_profiles_percentage_takes_precedence() {
    let profile = ProfileSpec {
        scheduler_name: "supercargo".to_owned(),
        percentage_of_nodes_to_score: Some(50),
        plugins: plugins(Vec::new()),
    };
    let options =
        Options { profiles: vec![profile], percentage_of_nodes_to_score: Some(100), ..Options::default() };
    let mut bed = TestBed::of(options);
    for i in 0..300 {
        bed.node(node(&format!("n{i}")));
    }
    bound_to(&mut bed, pod("a"));
    assert_eq!(bed.scheduler.next_start_node, 150);
}

#[test]
fn by_default_every_node_is_filtered() {
    let mut bed = crowd(None, plugins(Vec::new()));
    assert_eq!(bound_to(&mut bed, pod("a").request("cpu", "1")), "n0");
    assert_eq!(bound_to(&mut bed, pod("b").request("cpu", "1")), "n1");
    assert_eq!(bed.scheduler.next_start_node, 0);
}

#[test]
fn without_scores_the_first_fitting_node_is_chosen_in_turn() {
    let mut bed = crowd(None, fit_only(Vec::new()));
    for (name, expected) in [("a", "n0"), ("b", "n1"), ("c", "n2")] {
        assert_eq!(bound_to(&mut bed, pod(name)), expected);
    }
}

#[test]
fn nodes_may_change_between_two_cycles() {
    let log = Log::default();
    let lines = log.clone();
    // Plugins may read every node whenever they run.
    let plugin = Fake::new("R")
        .unreserve(move |cx, _, _| {
            let names: Vec<_> = cx.nodes().iter().map(|(_, info)| info.name().to_string()).collect();
            lines.add(names.join(" "));
        })
        .events(Vec::new);
    let mut bed = TestBed::with(vec![plugin.build()]);
    bed.node(node("n1"));
    bed.node(node("n2"));
    bed.pod(pod("a"));
    bed.cycle();
    bed.delete_node(node("n1"));
    bed.bound("a", super::test_bed::failed(supercargo_framework::binding::Certainty::Refused, "no node"));
    assert_eq!(log.take(), ["n2"]);
    assert_eq!(bed.place("a"), Some(Place::Backoff));
}

#[test]
fn the_node_with_a_wrong_sum_is_named() {
    let mut bed = TestBed::new();
    for name in ["right", "wrong"] {
        bed.node(node(name));
    }
    let names = ["right".into(), "wrong".into(), "gone".into()];
    assert!(bed.scheduler.nodes_with_wrong_sums(&names).is_empty());
    let nodes = bed.scheduler.cache.nodes_mut();
    let index = nodes.index_of("wrong").unwrap();
    nodes.update(index, NodeInfo::spoil_sums);
    assert_eq!(bed.scheduler.nodes_with_wrong_sums(&names), ["wrong".into()]);
}
