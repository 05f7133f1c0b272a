//! Cases in which tables must not answer, or must drop answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use supercargo_framework::caching::Caching;
use supercargo_framework::context::Command;
use supercargo_framework::plugin::{
    ExtensionPoints, FilterPlugin, PreFilter, PreFilterPlugin, ScorePlugin, SignPlugin,
};
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{Context, CycleState, LabelSelector, NodeInfo, Plugin, PodInfo, Status};
use supercargo_queue::QueuedPod;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::profile::ProfileIndex;

use super::templates::ZONE;
use crate::attempt::Scope;
use crate::tests::test_bed::{TestBed, WALL, options, plugins};
use crate::{ExtenderSpec, NoCalls, Options, TableStats};

type FilterFn = dyn Fn(&Context<'_>, &CycleState, &NodeInfo) -> Status + Send + Sync;

/// A plugin that signs every pod alike and filters with a closure.
struct Probe {
    filter: Box<FilterFn>,
    /// Whether PreFilter prepares the number of pods on all nodes.
    prepares: bool,
    signs: bool,
    /// If its answers are not to be cached, whether it declares that it never fails.
    alone: Option<bool>,
    /// Every raw score.
    score: Option<i64>,
}

/// The number of pods on all nodes.
#[derive(Clone)]
struct Pods(usize);

impl Probe {
    fn new(filter: impl Fn(&Context<'_>, &CycleState, &NodeInfo) -> Status + Send + Sync + 'static) -> Self {
        Self { filter: Box::new(filter), prepares: false, signs: true, alone: None, score: None }
    }

    /// Beds with three nodes and this plugin beside the in-tree ones; with tables and without.
    fn beds(self) -> [TestBed; 2] {
        let plugin: Arc<Self> = Arc::new(self);
        [false, true].map(|plain| {
            let plugin: Arc<dyn Plugin> = Arc::clone(&plugin) as _;
            let mut bed = TestBed::of(Options { plain, ..options(plugins(vec![plugin])) });
            for name in ["n1", "n2", "n3"] {
                bed.node(big(name));
            }
            bed
        })
    }
}

impl Plugin for Probe {
    fn name(&self) -> &'static str {
        "Probe"
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        let mut points = ExtensionPoints::new().filter(&self).caching(&self);
        if self.prepares {
            points = points.pre_filter(&self);
        }
        if self.signs {
            points = points.sign(&self);
        }
        if self.score.is_some() {
            points = points.score(&self);
        }
        points
    }
}

impl PreFilterPlugin for Probe {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, _: &PodInfo) -> PreFilter {
        state.write(Pods(cx.nodes().iter().map(|(_, node)| node.pods().len()).sum()));
        PreFilter::AllNodes
    }
}

impl FilterPlugin for Probe {
    fn filter(&self, cx: &Context<'_>, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        (self.filter)(cx, state, node)
    }
}

impl ScorePlugin for Probe {
    fn score(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: &NodeInfo) -> Result<i64, Status> {
        Ok(self.score.unwrap_or(0))
    }
}

impl SignPlugin for Probe {
    fn sign(&self, _: &Context<'_>, _: &PodInfo, _: &mut Signer) -> Result<(), Unsignable> {
        Ok(())
    }
}

impl Caching for Probe {
    fn filter_never_fails(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo) -> bool {
        self.alone == Some(true)
    }

    fn stands_alone(&self, _: &PodInfo) -> bool {
        self.alone.is_some()
    }
}

fn big(name: &str) -> NodeBuilder {
    node(name).allocatable("cpu", "64").label(ZONE, "z")
}

/// Schedules six equal pods, with the same effects with tables and without. Returns the statistics
/// of the tables.
fn try_equal_pods(beds: &mut [TestBed; 2]) -> TableStats {
    try_pods(beds, 0, 6)
}

fn try_pods(beds: &mut [TestBed; 2], from: usize, pods: usize) -> TableStats {
    for number in from..from + pods {
        let reported = beds.each_mut().map(|bed| {
            bed.pod(pod(&format!("p{number}")).request("cpu", "100m"));
            while bed.cycle() {}
            bed.effect_lines()
        });
        assert_eq!(reported[0], reported[1]);
    }
    beds[0].scheduler.table_stats()
}

/// Checks that no cycle was answered by a table.
fn assert_plain(stats: &TableStats) {
    assert_eq!((stats.hits, stats.builds, stats.tables), (0, 0, 0), "{stats:?}");
    assert!(stats.plain >= 6, "{stats:?}");
}

#[test]
fn answers_of_a_plugin_that_signs_are_cached() {
    let stats = try_equal_pods(&mut Probe::new(|_, _, _| Status::success()).beds());
    assert_eq!((stats.hits, stats.builds, stats.plain), (5, 1, 0));
}

#[test]
fn a_plugin_that_does_not_sign_runs_in_every_cycle() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let probe = Probe::new(move |_, _, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Status::success()
    });
    assert_plain(&try_equal_pods(&mut Probe { signs: false, ..probe }.beds()));
    assert_eq!(asked.load(Ordering::Relaxed), 2 * 6 * 3, "two schedulers, six pods, three nodes");
}

#[test]
fn an_uncached_plugin_runs_no_more_than_needed() {
    // The scheduler without tables runs it for three nodes in every cycle.
    for (never_fails, expected) in [(false, 6 * 3), (true, 6)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let probe = Probe::new(move |_, _, _| {
            count.fetch_add(1, Ordering::Relaxed);
            Status::success()
        });
        let stats = try_equal_pods(&mut Probe { alone: Some(never_fails), ..probe }.beds());
        assert_eq!((stats.hits, stats.builds, stats.plain), (5, 1, 0));
        assert_eq!(asked.load(Ordering::Relaxed), 6 * 3 + expected, "never fails: {never_fails}");
    }
}

#[test]
fn an_uncached_rejection_does_not_affect_the_next_pod() {
    for never_fails in [false, true] {
        let turn = Arc::new(AtomicUsize::new(0));
        let now = Arc::clone(&turn);
        let probe = Probe::new(move |_, _, node| {
            let its_turn = **node.name() == *format!("n{}", now.load(Ordering::Relaxed) % 4 + 1);
            if its_turn { Status::success() } else { Status::unschedulable("not its turn") }
        });
        let mut beds = Probe { alone: Some(never_fails), ..probe }.beds();
        for pod in 0..6 {
            turn.store(pod, Ordering::Relaxed);
            try_pods(&mut beds, pod, 1);
        }
        let nodes = |bed: &TestBed| {
            (0..6).map(|pod| bed.node_of(&format!("p{pod}")).map(str::to_owned)).collect::<Vec<_>>()
        };
        let expected = [Some("n1"), Some("n2"), Some("n3"), None, Some("n1"), Some("n2")];
        assert_eq!(nodes(&beds[0]), expected.map(|node| node.map(str::to_owned)));
        let stats = beds[0].scheduler.table_stats();
        assert!(stats.hits >= 4 && stats.builds == 1 && stats.plain > 0, "one pod fits no node: {stats:?}");
    }
}

#[test]
fn answers_from_time_waiting_pods_or_all_nodes_are_not_cached() {
    let early = Probe::new(|cx, _, _| {
        let is_early = cx.now().monotonic.as_secs() < 100;
        if is_early { Status::unschedulable("it is early") } else { Status::success() }
    });
    let mut beds = early.beds();
    try_pods(&mut beds, 0, 1);
    assert_eq!(beds.each_ref().map(|bed| bed.node_of("p0")), [None; 2]);
    for bed in &mut beds {
        bed.pass_seconds(400);
    }
    assert_plain(&try_pods(&mut beds, 1, 6));
    assert!(beds.each_ref().iter().all(|bed| bed.node_of("p1").is_some()));

    let idle = Probe::new(|cx, _, _| {
        if cx.waiting_pods().is_empty() { Status::success() } else { Status::unschedulable("others wait") }
    });
    assert_plain(&try_equal_pods(&mut idle.beds()));

    let fair = Probe::new(|cx, _, node| {
        let least = cx.nodes().iter().map(|(_, node)| node.pods().len()).min();
        if least == Some(node.pods().len()) {
            Status::success()
        } else {
            Status::unschedulable("it has more")
        }
    });
    let mut beds = fair.beds();
    assert_plain(&try_equal_pods(&mut beds));
    for info in beds[0].scheduler.cache().nodes().iter().map(|(_, info)| info) {
        assert_eq!(info.pods().len(), 2, "on {}", info.name());
    }
}

#[test]
fn a_plugin_that_issues_commands_runs_in_every_cycle() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let probe = Probe::new(move |cx, _, _| {
        count.fetch_add(1, Ordering::Relaxed);
        cx.command(Command::Activate(Vec::new()));
        Status::success()
    });
    assert_plain(&try_equal_pods(&mut probe.beds()));
    // In the first cycle tables run it, too, and their commands are dropped.
    assert_eq!(asked.load(Ordering::Relaxed), 2 * 6 * 3 + 3);
}

#[test]
fn a_state_without_incremental_hooks_is_prepared_in_every_cycle() {
    let probe = Probe::new(|_, state, node| {
        let Some(Pods(pods)) = state.read() else { return Status::error("not prepared") };
        // One node after the other gets two pods.
        let turn = pods / 2 + 1;
        if **node.name() == *format!("n{turn}") {
            Status::success()
        } else {
            Status::unschedulable("not its turn")
        }
    });
    let mut beds = Probe { prepares: true, ..probe }.beds();
    assert_plain(&try_equal_pods(&mut beds));
    let nodes = ["p0", "p1", "p2", "p3", "p4", "p5"].map(|pod| beds[0].node_of(pod).unwrap().to_owned());
    assert_eq!(nodes, ["n1", "n1", "n2", "n2", "n3", "n3"]);
}

#[test]
fn a_panic_drops_all_cached_answers() {
    let panics = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&panics);
    let mut beds = Probe::new(move |_, _, _| {
        assert!(!flag.load(Ordering::Relaxed), "it broke");
        Status::success()
    })
    .beds();
    let before = try_equal_pods(&mut beds);
    assert_eq!((before.hits, before.builds), (5, 1));
    panics.store(true, Ordering::Relaxed);
    let broken = try_pods(&mut beds, 6, 1);
    assert_eq!(beds.each_ref().map(|bed| bed.node_of("p6")), [None; 2]);
    assert_eq!((broken.hits, broken.builds, broken.plain), (5, 1, 0), "no path answered");
    panics.store(false, Ordering::Relaxed);
    let after = try_pods(&mut beds, 7, 6);
    // The failed pod is still in backoff.
    assert_eq!((after.hits, after.builds, after.tables), (10, 2, 1), "everything was rebuilt once");
    assert!(beds.iter().all(|bed| bed.node_of("p12").is_some()));
}

#[test]
fn errors_are_reported_by_the_plain_path() {
    let fails = Probe::new(|_, _, node| {
        if **node.name() == *"n2" { Status::error("n2 is not to be judged") } else { Status::success() }
    });
    let mut beds = fails.beds();
    let stats = try_equal_pods(&mut beds);
    assert_eq!((stats.hits, stats.builds), (0, 0), "{stats:?}");
    assert!(beds.iter().all(|bed| bed.node_of("p0").is_none()));

    let exaggerates = Probe { score: Some(101), ..Probe::new(|_, _, _| Status::success()) };
    let mut beds = exaggerates.beds();
    let stats = try_equal_pods(&mut beds);
    assert_eq!((stats.hits, stats.builds), (0, 0), "{stats:?}");
    assert!(beds.iter().all(|bed| bed.node_of("p0").is_none()), "the score is out of range");
}

#[test]
fn tables_stay_within_the_memory_limit() {
    const LIMIT: usize = 120_000;
    let mut beds = [false, true].map(|plain| {
        let mut bed = TestBed::of(Options { plain, table_memory: LIMIT, ..options(plugins(Vec::new())) });
        for number in 0..20 {
            bed.node(big(&format!("n{number}")));
        }
        bed
    });
    let mut largest = 0;
    let (mut fewest, mut most) = (usize::MAX, 0);
    for number in 0..400_usize {
        // Some templates are frequent, most are rare.
        let kind = if number.is_multiple_of(4) { number % 3 } else { 3 + number % 170 };
        let reported = beds.each_mut().map(|bed| {
            bed.pod(pod(&format!("p{number}")).request("cpu", &format!("{}m", 10 + kind)));
            while bed.cycle() {}
            bed.effect_lines()
        });
        assert_eq!(reported[0], reported[1]);
        let stats = beds[0].scheduler.table_stats();
        if number == 0 {
            largest = stats.bytes;
        }
        assert!(stats.bytes <= LIMIT + largest, "{stats:?}, one of them takes {largest}");
        if number > 200 {
            (fewest, most) = (fewest.min(stats.tables), most.max(stats.tables));
        }
    }
    let stats = beds[0].scheduler.table_stats();
    assert!(stats.hits > 70 && stats.builds > 200, "{stats:?}");
    assert!(fewest > 0 && fewest < most, "a part is evicted at a time: {fewest} to {most} tables");
}

/// Answers leave out topology keys that no node has, and must notice when a node gets one.
#[test]
fn topology_keys_that_nodes_gain_count() {
    let averse = |name: &str| {
        let selector = LabelSelector::parse(&[("app", "x")].into_iter().collect(), []).ok();
        let term = PodAffinityTerm { selector, topology_key: "rack".into(), ..PodAffinityTerm::default() };
        let affinity = PodAffinity { required_anti_affinity: [term].into(), ..PodAffinity::default() };
        pod(name).label("app", "x").with_spec(|spec| spec.pod_affinity = Some(Box::new(affinity)))
    };
    for plain in [false, true] {
        let mut bed = TestBed::of(Options { plain, ..options(plugins(Vec::new())) });
        let place_of = |bed: &mut TestBed, name: &str| {
            bed.pod(averse(name));
            bed.cycle();
            bed.node_of(name).map(str::to_owned)
        };
        bed.node(big("a"));
        assert_eq!(place_of(&mut bed, "p1").as_deref(), Some("a"));
        assert_eq!(place_of(&mut bed, "p2").as_deref(), Some("a"), "without the label nothing is averse");
        bed.update_node(big("a"), big("a").label("rack", "1"));
        assert_eq!(place_of(&mut bed, "p3"), None, "plain: {plain}");
        bed.node(big("b").label("rack", "2"));
        assert_eq!(place_of(&mut bed, "p4").as_deref(), Some("b"), "plain: {plain}");
        assert_eq!(place_of(&mut bed, "p5"), None, "plain: {plain}");
    }
}

/// A pod that prefers to be spread over the domains of this label.
fn spread(name: &str, key: &str) -> PodBuilder {
    let constraint = TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.into(),
        hard: false,
        selector: None,
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Box::default(),
    };
    pod(name).with_spec(|spec| spec.topology_spread = [constraint].into())
}

#[test]
fn keys_of_strangers_do_not_displace_tables_in_use() {
    const LIMIT: usize = 1_500_000;
    let mut bed = TestBed::of(Options { table_memory: LIMIT, ..options(plugins(Vec::new())) });
    for number in 0..100 {
        bed.node(big(&format!("n{number}")));
    }
    let mut cycle = |pod| {
        let before = bed.scheduler.table_stats();
        bed.pod(pod);
        while bed.cycle() {}
        let after = bed.scheduler.table_stats();
        assert!(after.bytes <= LIMIT, "{after:?}");
        after.hits - before.hits
    };
    let mut hits = 0;
    for number in 0..1000 {
        cycle(spread(&format!("s{number}"), &format!("key-{number}")));
        hits += cycle(pod(&format!("p{number}")).request("cpu", "1m"));
    }
    assert!(hits > 980, "{hits} of 1000 pods of one template found their table");
}

/// They choose nodes by what tables do not know.
#[test]
fn extenders_bypass_tables() {
    let counts = |extenders: Vec<ExtenderSpec>| {
        let mut bed = TestBed::extended(extenders);
        bed.node(big("n"));
        for name in ["a", "b"] {
            bed.pod(pod(name));
            assert!(bed.cycle());
        }
        let stats = bed.scheduler.table_stats();
        (stats.builds, stats.hits)
    };
    assert_eq!(counts(Vec::new()), (1, 1));
    let binder = ExtenderSpec { name: "x".into(), ..ExtenderSpec::default() };
    assert_eq!(counts(vec![binder]), (0, 0));
}

#[test]
fn reasons_that_a_kept_table_adds_count_towards_the_limit() {
    const LIMIT: usize = 400_000;
    let asked = AtomicUsize::new(0);
    let verbose = Probe::new(move |_, _, _| {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        Status::unschedulable(format!("{number:>20000}"))
    });
    let mut bed = TestBed::of(Options { table_memory: LIMIT, ..options(plugins(vec![Arc::new(verbose)])) });
    bed.node(big("n"));
    // Fewer cycles than between two counts.
    for number in 0..40 {
        let change = |number: usize| big("n").allocatable("memory", &number.to_string());
        bed.update_node(change(number), change(number + 1));
        bed.pod(pod(&format!("p{number}")));
        assert!(bed.cycle());
        let stats = bed.scheduler.table_stats();
        assert!(stats.bytes <= LIMIT, "after {number} changes of the node: {stats:?}");
    }
    assert!(bed.scheduler.table_stats().hits > 30);
}

#[test]
fn domains_of_many_keys_count_towards_the_limit() {
    const LIMIT: usize = 200_000;
    let mut bed = TestBed::of(Options { table_memory: LIMIT, ..options(plugins(Vec::new())) });
    bed.node(big("n"));
    // Fewer cycles than between two counts.
    for number in 0..10 {
        let term = |key| PodAffinityTerm {
            selector: LabelSelector::parse(&[("app", "x")].into_iter().collect(), []).ok(),
            topology_key: format!("key-{number}-{key}").into(),
            ..PodAffinityTerm::default()
        };
        let affinity =
            PodAffinity { required_anti_affinity: (0..500).map(term).collect(), ..PodAffinity::default() };
        bed.pod(pod(&format!("p{number}")).with_spec(|spec| spec.pod_affinity = Some(Box::new(affinity))));
        assert!(bed.cycle());
        let stats = bed.scheduler.table_stats();
        assert!(stats.bytes <= LIMIT, "after {number} pods: {stats:?}");
    }
}

#[test]
fn a_table_larger_than_half_of_the_limit_is_not_kept() {
    let mut bed = TestBed::of(Options { table_memory: 20_000, ..options(plugins(Vec::new())) });
    for number in 0..1000 {
        bed.node(big(&format!("n{number}")));
    }
    for number in 0..3 {
        bed.pod(pod(&format!("p{number}")));
        assert!(bed.cycle());
        let stats = bed.scheduler.table_stats();
        assert!((stats.tables, stats.columns) == (0, 0) && stats.bytes < 20_000, "{stats:?}");
    }
    assert_eq!(bed.effect_lines().len(), 3, "each pod is bound");
}

#[test]
fn pods_that_are_alike_share_their_reasons_until_something_changes() {
    let mut bed = TestBed::of(options(plugins(Vec::new())));
    for name in ["n1", "n2"] {
        bed.node(node(name).allocatable("cpu", "1"));
    }
    let statuses = |bed: &mut TestBed, name: &str| {
        let pod = Arc::new(pod(name).request("cpu", "2").build());
        let queued = QueuedPod::new(pod, ProfileIndex(0), WALL);
        let (now, scope) = (bed.now, Scope::Member(None));
        let found =
            bed.scheduler.choose_node(now, &queued, &mut CycleState::new(), &mut NoCalls, scope).unwrap_err();
        let FailureKind::Fit(error) = found.kind else { panic!("{}", found.kind) };
        error.diagnosis.statuses
    };
    let first = statuses(&mut bed, "p1");
    assert!(Arc::ptr_eq(&first, &statuses(&mut bed, "p2")));
    bed.node(node("n3").allocatable("cpu", "1"));
    let later = statuses(&mut bed, "p3");
    assert_eq!((first.len(), later.len()), (2, 3));
    assert!(Arc::ptr_eq(&later, &statuses(&mut bed, "p4")));
}
