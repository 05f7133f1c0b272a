//! Groups that preempt, and groups that are preempted by them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;
use supercargo_framework::caching::Stateless;
use supercargo_framework::objects::{Body, GroupSpec, PodDisruptionBudget, resources};
use supercargo_framework::plugin::{
    ExtensionPoints, FilterPlugin, PreFilter, PreFilterExtensions, PreFilterPlugin, SignPlugin,
};
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::testing::{NodeBuilder, PodBuilder, object, pod};
use supercargo_framework::{Context, CycleState, Features, NodeInfo, Plugin, PodInfo, Status, Uid};

use super::dry_run::{repelling, spreading};
use super::groups::{attempts, gang, group_options, member, options_with_plugins, room, with_cpus};
use super::test_bed::{TestBed, patched};
use crate::{Effect, Eviction, Input, Notification, Place, VictimEviction};

fn bed(nodes: impl IntoIterator<Item = NodeBuilder>) -> TestBed {
    let mut bed = TestBed::of(group_options(|_| true));
    for node in nodes {
        bed.node(node);
    }
    bed
}

fn important(min_count: i32) -> GroupSpec {
    GroupSpec { priority: 10, ..gang(min_count) }
}

fn worker(name: &str, cpus: &str) -> PodBuilder {
    member(name, cpus).priority(10)
}

fn low(name: &str, cpus: &str, node: &str) -> PodBuilder {
    pod(name).request("cpu", cpus).node(node)
}

/// The first deletion of victims among these effects.
fn first_eviction(effects: &[Effect]) -> (u64, &[VictimEviction]) {
    let of = |effect: &Effect| matches!(effect, Effect::Evict { .. });
    match effects.iter().find(|effect| of(effect)) {
        Some(Effect::Evict { preemption, victims }) => (*preemption, victims),
        _ => panic!("{effects:?}"),
    }
}

/// The UIDs of the victims that these effects delete.
fn victims(effects: &[Effect]) -> Vec<String> {
    let of = |effect: &Effect| match effect {
        Effect::Evict { victims, .. } => victims.iter().map(|victim| victim.uid.to_string()).collect(),
        _ => Vec::new(),
    };
    effects.iter().flat_map(of).collect()
}

impl TestBed {
    fn all_assigned(&mut self, pods: &[PodBuilder]) {
        for pod in pods {
            self.assigned(pod.clone());
        }
    }

    fn pods(&mut self, pods: &[PodBuilder]) {
        for pod in pods {
            self.pod(pod.clone());
        }
    }

    /// Answers the deletions of all victims, and lets them go.
    fn evict(&mut self, pods: &[PodBuilder]) {
        let mut effects = self.effects();
        while let Some(at) = effects.iter().position(|effect| matches!(effect, Effect::Evict { .. })) {
            let Effect::Evict { preemption, victims } = effects.remove(at) else { unreachable!() };
            for victim in &victims {
                let pod = pods.iter().find(|pod| (*pod).clone().build().uid == victim.uid).unwrap();
                self.delete_assigned(pod.clone());
            }
            let outcomes = vec![Eviction::Deleted; victims.len()];
            self.handle(Input::Evicted { preemption, outcomes });
            effects.extend(self.effects());
        }
    }
}

/// The group is refused before one of its pods is tried.
#[test]
fn a_group_that_was_not_tried_preempts_on_no_node_that_is_gone() {
    let mut bed = bed([with_cpus("n0", "1"), with_cpus("n1", "1")]);
    bed.all_assigned(&[low("old", "1", "n1")]);
    bed.pod(pod("first"));
    bed.cycle();
    bed.group(important(2));
    bed.pods(&[worker("a", "1"), worker("b", "1").terminating()]);
    bed.delete_node(with_cpus("n0", "1"));
    bed.effects();
    bed.cycle();
    let lines = bed.effect_lines();
    assert!(lines.iter().any(|line| line.contains("Unschedulable: ")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("panic")), "{lines:?}");
}

#[test]
fn a_gang_preempts_single_pods_and_is_nominated_for_their_nodes() {
    let mut bed = bed([with_cpus("n1", "2"), with_cpus("n2", "2")]);
    let lows = [low("x", "2", "n1"), low("y", "1", "n2"), low("z", "1", "n2")];
    bed.all_assigned(&lows);
    bed.group(important(2));
    bed.pods(&[worker("a", "2"), worker("b", "1")]);
    assert!(bed.cycle());
    let effects = bed.effects();
    let lines: Vec<_> = effects.iter().map(super::test_bed::line).collect();
    assert_eq!(victims(&effects), ["x"], "and another one after it: {lines:?}");
    let reason = "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, \
                  pod group preemption: found a placement for podgroup, preempting 2 victims";
    assert!(lines.contains(&format!("default/g patch False Unschedulable: {reason}")), "{lines:?}");
    let nominated =
        |name: &str| lines.iter().find(|line| line.starts_with(&format!("{name} patch"))).unwrap();
    assert!(nominated("a").ends_with("2 Insufficient cpu. nominated \"n1\""), "{lines:?}");
    let untried = "b patch False Unschedulable: minCount (2) cannot be satisfied: 0 scheduled, 1 remaining \
                   nominated \"n2\"";
    assert_eq!(nominated("b"), untried);
    assert_eq!(attempts(&mut bed), ["group attempt WaitingOnPreemption"]);
}

#[test]
fn a_gang_waits_for_its_last_victim_and_starts_then() {
    let mut bed = bed([with_cpus("n", "2")]);
    let lows = [low("x", "1", "n"), low("y", "1", "n")];
    bed.all_assigned(&lows);
    bed.group(important(2));
    bed.pods(&[worker("a", "1"), worker("b", "1")]);
    bed.cycle();
    bed.pass_seconds(60);
    assert!(!bed.cycle(), "deletions are in flight");
    assert_eq!(bed.places(&["a", "b"]), [Some(Place::Gated); 2]);
    bed.evict(&lows);
    bed.pass_seconds(60);
    assert!(bed.cycle());
    assert_eq!(["a", "b"].map(|name| bed.node_of(name)), [Some("n"); 2]);
}

#[test]
fn victims_hear_of_the_group() {
    let mut bed = bed([with_cpus("n", "1")]);
    bed.assigned(low("x", "1", "n"));
    bed.group(important(1));
    bed.pod(worker("a", "1"));
    bed.cycle();
    let effects = bed.effects();
    let (preemption, victims) = first_eviction(&effects);
    let message = &victims[0].condition.as_ref().unwrap().message;
    assert_eq!(&**message, "supercargo: preempting to accommodate a higher priority podgroup");
    bed.handle(Input::Evicted { preemption, outcomes: vec![Eviction::Deleted] });
    let uid = &bed.scheduler.objects().get(&resources::POD_GROUP, "default/g").unwrap().uid;
    let expected = format!("x Normal Preempted Preempting: Preempted by podgroup {uid} on node cluster");
    assert!(bed.effect_lines().contains(&expected));
}

#[test]
fn no_pod_goes_for_a_group_that_may_not_preempt() {
    const NEVER: &str = "its policy";
    let unhelped = "minCount (1) cannot be satisfied: 0 scheduled, 0 remaining, ";
    let claims = "deallocation and deletion of ResourceClaims completed, ";
    let cases = [
        (NEVER, 0, true, claims, "not eligible due to preemptionPolicy=Never."),
        // As upstream, a reason that is final drops those of other plugins.
        ("equal priority", 10, false, "", "No preemption victims found for incoming preemptor"),
        ("too little room", 0, false, claims, "minCount (1) cannot be satisfied: 0 scheduled, 0 remaining"),
    ];
    for (name, priority, never, claims, reason) in cases {
        let mut bed = bed([with_cpus("n", "1")]);
        bed.assigned(low("x", "1", "n").priority(priority));
        bed.group(important(1));
        let cpus = if name == "too little room" { "2" } else { "1" };
        bed.pod(worker("a", cpus).with_spec(|spec| spec.never_preempts = never));
        let before = room_of(&bed, "n");
        bed.cycle();
        let effects = bed.effects();
        assert!(victims(&effects).is_empty(), "{name}");
        let expected =
            format!("default/g patch False Unschedulable: {unhelped}{claims}pod group preemption: {reason}");
        let lines: Vec<_> = effects.iter().map(super::test_bed::line).collect();
        assert!(lines.contains(&expected), "{name}: {lines:?}");
        assert_eq!(room_of(&bed, "n"), before, "{name}");
        let is_search = |line: &String| line.starts_with("victims searched");
        assert_eq!(bed.observed().iter().any(is_search), name != NEVER, "{name}");
    }
}

/// The pods of a node in order, and their requests.
fn room_of(bed: &TestBed, node: &str) -> (Vec<Uid>, i64) {
    let node = bed.scheduler.cache().nodes().get(node).unwrap();
    (node.pods().iter().map(|pod| pod.uid.clone()).collect(), node.requested().milli_cpu)
}

#[test]
fn a_group_that_is_disrupted_whole_goes_whole_or_stays() {
    let mut bed = bed([with_cpus("n1", "2"), with_cpus("n2", "0.5")]);
    let whole = GroupSpec { is_disrupted_whole: true, ..gang(1) };
    bed.group_named("old", whole);
    bed.assigned(pod("x").group("old").request("cpu", "1").node("n1"));
    bed.assigned(pod("y").group("old").request("cpu", "0.5").node("n2"));
    bed.assigned(low("single", "1", "n1"));
    bed.group(important(1));
    bed.pod(worker("a", "1"));
    bed.cycle();
    assert_eq!(victims(&bed.effects()), ["single"], "one pod is less than two");

    let mut bed = self::bed([with_cpus("n1", "1"), with_cpus("n2", "1")]);
    bed.group_named("old", GroupSpec { is_disrupted_whole: true, ..gang(1) });
    for (name, node) in [("x", "n1"), ("y", "n2")] {
        bed.assigned(pod(name).group("old").request("cpu", "1").node(node));
    }
    bed.group(important(1));
    bed.pod(worker("a", "1"));
    bed.cycle();
    let first = bed.effects();
    let (preemption, victims) = first_eviction(&first);
    assert_eq!(victims.len(), 1, "the last one goes after it");
    bed.handle(Input::Evicted { preemption, outcomes: vec![Eviction::Deleted] });
    assert_eq!(self::victims(&bed.effects()).len(), 1);
    assert!(bed.observed().contains(&"preempts 2: 1 of groups, 0 protected".to_owned()));
}

#[test]
fn the_priority_of_a_victim_is_that_of_its_group() {
    let mut bed = bed([with_cpus("n", "1")]);
    bed.group_named("old", GroupSpec { priority: 10, ..gang(1) });
    bed.assigned(pod("x").group("old").request("cpu", "1").node("n"));
    bed.group(important(1));
    bed.pod(worker("a", "1"));
    bed.cycle();
    assert!(victims(&bed.effects()).is_empty());
}

#[test]
fn a_budget_spares_a_pod_if_another_one_helps() {
    let important = low("important", "1", "n").priority(5);
    let cases = [
        (important, "important", "preempts 1"),
        (low("other", "1", "n").priority(10), "protected", "preempts 1: 0 of groups, 1 protected"),
    ];
    for (other, victim, observed) in cases {
        let mut bed = bed([with_cpus("n", "2")]);
        let labels = pod("db").label("app", "db").build().labels;
        let selector = Some(LabelSelector::parse(&labels, []).unwrap());
        let budget = PodDisruptionBudget { selector, ..PodDisruptionBudget::default() };
        let budget =
            object(&resources::POD_DISRUPTION_BUDGET, "default/b", Body::PodDisruptionBudget(budget));
        bed.handle(Input::Object(Notification::Added(Arc::new(budget))));
        bed.assigned(low("protected", "1", "n").label("app", "db"));
        bed.assigned(other);
        bed.group(self::important(1));
        bed.pod(worker("a", "1"));
        bed.cycle();
        assert_eq!(victims(&bed.effects()), [victim]);
        assert!(bed.observed().contains(&observed.to_owned()), "{victim}");
    }
}

#[test]
fn a_victim_whose_affinity_is_in_the_way_goes() {
    let mut bed = bed([with_cpus("n", "4").label("kubernetes.io/hostname", "n")]);
    bed.assigned(low("x", "1", "n").label("app", "a"));
    bed.assigned(low("y", "1", "n"));
    bed.group(important(2));
    for name in ["a", "b"] {
        bed.pod(repelling(worker(name, "1"), "a", "kubernetes.io/hostname"));
    }
    bed.cycle();
    assert_eq!(victims(&bed.effects()), ["x"]);
}

#[test]
fn only_members_that_found_a_node_lose_their_nominations() {
    let mut bed = bed([with_cpus("n", "1")]);
    bed.assigned(low("equal", "0.5", "n").priority(10));
    bed.group(important(3));
    for (name, cpus) in [("a", "0.5"), ("b", "1"), ("c", "0.5")] {
        bed.pod(worker(name, cpus).nominated("n"));
    }
    bed.cycle();
    let lines = bed.effect_lines();
    let cleared: Vec<_> = lines.iter().filter(|line| line.ends_with("nominated \"\"")).collect();
    assert!(cleared.len() == 1 && cleared[0].starts_with("a "), "{lines:?}");
}

#[test]
fn a_single_pod_preempts_a_group_whole_on_all_its_nodes() {
    let mut bed = bed([with_cpus("n1", "1"), with_cpus("n2", "1")]);
    bed.group_named("old", GroupSpec { is_disrupted_whole: true, ..gang(1) });
    for (name, node) in [("x", "n1"), ("y", "n2")] {
        bed.assigned(pod(name).group("old").request("cpu", "1").node(node));
    }
    bed.pod(pod("a").request("cpu", "1").priority(10));
    bed.cycle();
    let first = bed.effects();
    let (preemption, victims) = first_eviction(&first);
    let mut gone = self::victims(&first);
    bed.handle(Input::Evicted { preemption, outcomes: vec![Eviction::Deleted; victims.len()] });
    gone.extend(self::victims(&bed.effects()));
    gone.sort();
    assert_eq!(gone, ["x", "y"]);
}

#[test]
fn a_single_pod_preempts_by_the_priority_of_the_group() {
    for (of_group, of_pod, goes) in [(0, 10, true), (10, 0, false)] {
        let mut bed = bed([with_cpus("n", "1")]);
        bed.group_named("old", GroupSpec { priority: of_group, ..gang(1) });
        bed.assigned(pod("x").group("old").request("cpu", "1").node("n").priority(of_pod));
        bed.pod(pod("a").request("cpu", "1").priority(5));
        bed.cycle();
        assert_eq!(!victims(&bed.effects()).is_empty(), goes, "group {of_group}, pod {of_pod}");
    }
}

#[test]
fn a_pod_of_a_group_is_spared_before_a_single_pod() {
    let mut bed = bed([with_cpus("n", "2")]);
    bed.group_named("old", gang(1));
    bed.assigned(low("single", "1", "n"));
    bed.assigned(pod("member").group("old").request("cpu", "1").node("n"));
    bed.pod(pod("a").request("cpu", "1").priority(5));
    bed.cycle();
    assert_eq!(victims(&bed.effects()), ["single"]);
}

#[test]
fn a_group_waits_while_a_pod_leaves_its_nominated_node() {
    let mut bed = bed([with_cpus("n1", "1"), with_cpus("n2", "1")]);
    let lows = [low("x", "1", "n1"), low("y", "1", "n2")];
    bed.all_assigned(&lows);
    bed.group(important(1));
    let a = worker("a", "1");
    bed.pod(a.clone());
    bed.cycle();
    let effects = bed.effects();
    let victim =
        lows.iter().find(|pod| victims(&effects) == [(*pod).clone().build().uid.to_string()]).unwrap();
    bed.update(a.clone(), patched(a, &effects));
    let (preemption, evicted) = first_eviction(&effects);
    let condition = evicted[0].condition.clone();
    let leaving = victim.clone().resource_version("2").terminating();
    let leaving = leaving.with(|pod| pod.status.disruption_target = condition.map(Box::new)).build();
    let old = Arc::new(victim.clone().build());
    bed.handle(Input::AssignedPod(Notification::Updated { old, new: Arc::new(leaving) }));
    assert_eq!(bed.place("a"), Some(Place::Gated));
    bed.handle(Input::Evicted { preemption, outcomes: vec![Eviction::Deleted] });
    assert_eq!(bed.place("a"), Some(Place::Backoff));
    bed.effects();
    for backoff in [1, 2, 4] {
        assert!(!bed.cycle());
        // A backoff that begins with a second ends after the next one.
        bed.pass_seconds(backoff + 1);
        assert!(bed.cycle());
        let lines = bed.effect_lines();
        assert!(
            lines.iter().any(|line| line.ends_with("ongoing preemption on nominated nodes")),
            "{lines:?}"
        );
        assert!(!lines.iter().any(|line| line.starts_with("evict")), "{lines:?}");
    }
    bed.delete_assigned(victim.clone());
    assert_eq!(bed.place("a"), Some(Place::Active), "without a backoff");
}

/// Counts the pods that PreFilter states follow, and says for each that the state stays. Counts
/// calls of Filter.
#[derive(Default)]
struct Indifferent {
    followed: AtomicUsize,
    filtered: AtomicUsize,
}

impl Plugin for Indifferent {
    fn name(&self) -> &'static str {
        "Indifferent"
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        let points = ExtensionPoints::new().pre_filter(&self).filter(&self);
        points.sign(&self).incremental(&Arc::new(Stateless))
    }
}

impl PreFilterPlugin for Indifferent {
    fn pre_filter(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo) -> PreFilter {
        PreFilter::AllNodes
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl PreFilterExtensions for Indifferent {
    fn add_pod(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeInfo) -> Status {
        self.followed.fetch_add(1, Relaxed);
        Status::skip()
    }

    fn remove_pod(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeInfo) -> Status {
        Status::skip()
    }
}

impl FilterPlugin for Indifferent {
    fn filter(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: &NodeInfo) -> Status {
        self.filtered.fetch_add(1, Relaxed);
        Status::success()
    }
}

impl SignPlugin for Indifferent {
    fn sign(&self, _: &Context<'_>, _: &PodInfo, _: &mut Signer) -> Result<(), Unsignable> {
        Ok(())
    }
}

#[test]
fn a_pod_that_changes_no_state_is_passed_to_one_of_equal_members() {
    let plugin = Arc::new(Indifferent::default());
    let more: Vec<Arc<dyn Plugin>> = vec![Arc::clone(&plugin) as _];
    let mut bed = TestBed::of(options_with_plugins(Features::default(), |_| true, more));
    bed.node(with_cpus("n", "4"));
    bed.all_assigned(&["w", "x", "y", "z"].map(|name| low(name, "1", "n")));
    bed.group(important(3));
    bed.pods(&["a", "b", "c"].map(|name| worker(name, "1")));
    bed.cycle();
    assert!(!victims(&bed.effects()).is_empty());
    assert_eq!(plugin.followed.load(Relaxed), 4, "each pod comes back once");
}

#[test]
fn a_victim_that_stays_one_is_tried_once() {
    let filtered = |count: usize| {
        let plugin = Arc::new(Indifferent::default());
        let more: Vec<Arc<dyn Plugin>> = vec![Arc::clone(&plugin) as _];
        let mut bed = TestBed::of(options_with_plugins(Features::default(), |_| true, more));
        for i in 0..count {
            let node = format!("n{i}");
            bed.node(with_cpus(&node, "1"));
            bed.assigned(low(&format!("low{i}"), "1", &node));
        }
        bed.group(important(i32::try_from(count).unwrap()));
        for i in 0..count {
            bed.pod(worker(&format!("p{i}"), "1"));
        }
        bed.cycle();
        plugin.filtered.load(Relaxed)
    };
    let (some, twice) = (filtered(40), filtered(80));
    assert!(twice < 3 * some, "{some} calls for 40 victims, {twice} for 80");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Members with affinity and spread constraints: `still_fits` asserts that those of unchanged
    /// nodes and states still fit.
    #[test]
    fn members_whose_state_stays_still_fit(
        lows in proptest::collection::vec((0..4_usize, 0..3_usize), 1..10),
        kinds in proptest::collection::vec(0..5_u8, 1..6),
    ) {
        let mut bed = bed((0..4).map(|i| {
            let name = format!("n{i}");
            with_cpus(&name, "3").label("kubernetes.io/hostname", &name).label("zone", &format!("z{}", i % 2))
        }));
        for (i, (node, app)) in lows.iter().enumerate() {
            let pod = low(&format!("low{i}"), "1", &format!("n{node}"));
            bed.assigned(pod.label("app", ["a", "b", "c"][*app]));
        }
        bed.group(important(1));
        for (i, kind) in kinds.iter().enumerate() {
            let pod = worker(&format!("p{i}"), "2").label("app", "a");
            bed.pod(match kind {
                0 => pod,
                1 => repelling(pod, "a", "kubernetes.io/hostname"),
                2 => repelling(pod, "b", "zone"),
                3 => spreading(pod, "a"),
                _ => spreading(pod, "b"),
            });
        }
        let before = room(&bed, 4);
        bed.cycle();
        if (0..kinds.len()).all(|i| bed.node_of(&format!("p{i}")).is_none()) {
            prop_assert_eq!(room(&bed, 4), before);
        }
    }
}

/// Pods on a node: CPUs, priority, whether they have a host port, and their group, which is
/// disrupted whole.
type Lows = Vec<(usize, u32, i32, bool, Option<u8>)>;

fn with_lows(cpus: &[u32], lows: &Lows, without: &[String]) -> (TestBed, BTreeMap<String, PodBuilder>) {
    let mut bed =
        bed(cpus.iter().enumerate().map(|(i, cpus)| with_cpus(&format!("n{i}"), &cpus.to_string())));
    let mut pods = BTreeMap::new();
    for group in 0..2_u8 {
        bed.group_named(
            &format!("old{group}"),
            GroupSpec { is_disrupted_whole: true, priority: 1, ..gang(1) },
        );
    }
    for (i, (node, cpu, priority, has_port, group)) in lows.iter().enumerate() {
        let name = format!("low{i}");
        let pod = low(&name, &cpu.to_string(), &format!("n{}", node % cpus.len())).priority(*priority);
        let pod = if *has_port { pod.host_port(80) } else { pod };
        let pod = group.map_or(pod.clone(), |group| pod.group(&format!("old{group}")));
        if !without.contains(&name) {
            bed.assigned(pod.clone());
        }
        pods.insert(name, pod);
    }
    (bed, pods)
}

/// The nodes that pods are nominated for, by the pods' names.
fn nominated_nodes(effects: &[Effect]) -> BTreeMap<String, String> {
    let of = |effect: &Effect| {
        let line = super::test_bed::line(effect);
        let node = line.split("nominated \"").nth(1)?.strip_suffix('"')?.to_owned();
        Some((line.split(' ').next()?.to_owned(), node))
    };
    effects.iter().filter_map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a group preempts: nothing is left of the search, the victims are less important and
    /// of whole groups, and the group fits without them. It would not fit on its nodes beside any
    /// one of them.
    #[test]
    fn victims_are_enough_and_none_could_be_spared(
        cpus in proptest::collection::vec(1..6_u32, 1..4),
        lows in proptest::collection::vec(
            (0..4_usize, 1..3_u32, 0..12_i32, any::<bool>(), proptest::option::of(0..2_u8)), 0..8,
        ),
        requests in proptest::collection::vec((1..4_u32, any::<bool>()), 1..5),
        min_count in 1..5_i32,
    ) {
        let start = |without: &[String], nominated: &BTreeMap<String, String>| {
            let (mut bed, pods) = with_lows(&cpus, &lows, without);
            bed.group(important(min_count));
            for (i, (cpu, has_port)) in requests.iter().enumerate() {
                let name = format!("p{i}");
                let worker = worker(&name, &cpu.to_string());
                let worker = if *has_port { worker.host_port(80) } else { worker };
                bed.pod(match nominated.get(&name) {
                    Some(node) => worker.nominated(node),
                    None => worker,
                });
            }
            (bed, pods)
        };
        let (mut bed, pods) = start(&[], &BTreeMap::new());
        let before = room(&bed, cpus.len());
        bed.cycle();
        if (0..requests.len()).any(|i| bed.node_of(&format!("p{i}")).is_some()) {
            return Ok(());
        }
        prop_assert_eq!(room(&bed, cpus.len()), before);
        let mut effects = bed.effects();
        let nominated = nominated_nodes(&effects);
        let mut gone = Vec::new();
        while let Some(at) = effects.iter().position(|effect| matches!(effect, Effect::Evict { .. })) {
            let Effect::Evict { preemption, victims } = effects.remove(at) else { unreachable!() };
            gone.extend(victims.iter().map(|victim| victim.uid.to_string()));
            bed.handle(Input::Evicted { preemption, outcomes: vec![Eviction::Deleted; victims.len()] });
            effects.extend(bed.effects());
        }
        if gone.is_empty() {
            return Ok(());
        }
        let group_of = |name: &String| pods[name].clone().build().group_key();
        let priority = |name: &String| group_of(name).map_or(pods[name].clone().build().priority, |_| 1);
        prop_assert!(gone.iter().all(|name| priority(name) < 10), "{:?}", gone);
        for name in pods.keys().filter(|name| !gone.contains(name)) {
            let shares = |other: &String| group_of(name).is_some() && group_of(other) == group_of(name);
            prop_assert!(!gone.iter().any(shares), "{} stays, {:?} go", name, gone);
        }
        // What is on a node, or would be: its CPUs, and whether pods have a host port.
        let on = |node: usize, spared: &[&String]| {
            let stay = pods.keys().filter(|name| !gone.contains(name) || spared.contains(name));
            let stay = stay.map(|name| &lows[name["low".len()..].parse::<usize>().unwrap()]);
            let stay = stay.filter(|(of, ..)| of % cpus.len() == node).map(|low| (low.1, low.3));
            let come = nominated.iter().filter(|(_, of)| **of == format!("n{node}"));
            let come = come.map(|(name, _)| requests[name["p".len()..].parse::<usize>().unwrap()]);
            stay.chain(come).collect::<Vec<_>>()
        };
        let fits = |spared: &[&String]| (0..cpus.len()).all(|node| {
            let on = on(node, spared);
            on.iter().map(|(cpu, _)| cpu).sum::<u32>() <= cpus[node] && on.iter().filter(|it| it.1).count() <= 1
        });
        for name in &gone {
            let unit = gone.iter().filter(|other| *other == name || group_of(name).is_some() && group_of(other) == group_of(name));
            prop_assert!(!fits(&unit.collect::<Vec<_>>()), "{} could stay of {:?}, with {:?}", name, gone, nominated);
        }
        // Without its nominations, the group might choose nodes that do not fit all of it.
        let (mut bed, _) = start(&gone, &nominated);
        bed.cycle();
        let placed = (0..requests.len()).filter(|i| bed.node_of(&format!("p{i}")).is_some()).count();
        prop_assert!(placed >= usize::try_from(min_count).unwrap(), "{} placed without {:?}", placed, gone);
    }
}
