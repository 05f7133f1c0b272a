//! Why a pod has no node, and what helps.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use supercargo_framework::plugin::{ExtensionPoints, FilterPlugin};
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use supercargo_framework::{Context, CycleState, NodeInfo, Now, Plugin, PodInfo, Status, TaintEffect};

use super::fits::{asked, crowd};
use super::test_bed::{TestBed, all_plugins, options};
use crate::{Detail, Effect, Eviction, Fork, Input, NoCalls, Notification, PodFix, Scheduler, Shortage, Why};

fn bed() -> TestBed {
    TestBed::of(options(all_plugins(Vec::new())))
}

fn with_cpus(name: &str, cpus: &str) -> NodeBuilder {
    node(name).allocatable("cpu", cpus).allocatable("memory", "8Gi").allocatable("pods", "10")
}

fn asks(name: &str, cpus: &str) -> PodBuilder {
    pod(name).request("cpu", cpus)
}

fn why(bed: &mut TestBed, pod: PodBuilder) -> Why {
    bed.scheduler.why(bed.now, &Arc::new(pod.build())).unwrap()
}

/// One line for each refusal.
fn lines(why: &Why) -> Vec<String> {
    let line = |refusal: &crate::Refusal| {
        let detail = match &refusal.detail {
            Detail::None | Detail::Nominated => String::new(),
            Detail::Taint(taint) => format!(" {}={}:{}", taint.key, taint.value, taint.effect.as_str()),
            Detail::Short(Shortage { requested, free, node, .. }) => {
                format!(" {free} of {requested} on {node}")
            }
        };
        format!(
            "{}: {}{detail}: {} {} {}",
            refusal.plugin,
            refusal.reason,
            refusal.nodes.len(),
            refusal.only,
            refusal.left
        )
    };
    why.refusals.iter().map(line).collect()
}

/// One line for each fix.
fn fixes(why: &Why) -> Vec<String> {
    why.fixes.iter().map(|fix| format!("{:?} -> {}", fix.changes, fix.node)).collect()
}

#[test]
fn a_cordon_is_one_reason() {
    const CORDON: &str = "node.kubernetes.io/unschedulable";
    let mut bed = bed();
    bed.node(with_cpus("a", "2").unschedulable().taint(CORDON, "", TaintEffect::NoSchedule));
    bed.node(with_cpus("b", "2").taint(CORDON, "", TaintEffect::NoSchedule));
    assert_eq!(
        lines(&why(&mut bed, asks("p", "1"))),
        [
            "NodeUnschedulable: node(s) were unschedulable: 1 1 1".to_owned(),
            format!("TaintToleration: node(s) had untolerated taint(s) {CORDON}=:NoSchedule: 1 1 0"),
        ]
    );
}

#[test]
fn a_priority_with_which_a_pending_pod_takes_the_room_is_not_offered() {
    let mut bed = bed();
    bed.node(with_cpus("a", "1"));
    bed.assigned(asks("low", "1").node("a"));
    assert_eq!(fixes(&why(&mut bed, asks("p", "1"))), ["[Priority(1)] -> a"]);
    bed.pod(asks("rival", "1").priority(5).with_spec(|spec| spec.never_preempts = true));
    bed.cycle();
    assert_eq!(fixes(&why(&mut bed, asks("p", "1"))), ["[Priority(5)] -> a"]);
}

#[test]
fn every_filter_of_every_node_is_reported() {
    let mut bed = bed();
    bed.node(with_cpus("a", "2").taint("gpu", "yes", TaintEffect::NoSchedule));
    bed.node(with_cpus("b", "2").unschedulable());
    bed.node(with_cpus("c", "3"));
    bed.node(with_cpus("d", "8").taint("gpu", "yes", TaintEffect::NoSchedule));
    let why = why(&mut bed, asks("p", "4"));
    assert_eq!(
        lines(&why),
        [
            "NodeUnschedulable: node(s) were unschedulable: 1 0 3",
            "TaintToleration: node(s) had untolerated taint(s) gpu=yes:NoSchedule: 2 1 1",
            "NodeResourcesFit: Insufficient cpu 3000 of 4000 on c: 3 1 0",
        ]
    );
    assert_eq!(
        why.message,
        "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable, 2 node(s) had untolerated taint(s). \
         preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    );
    assert_eq!(
        counted(&why),
        "1 Insufficient cpu, 1 node(s) were unschedulable, 2 node(s) had untolerated taint(s)"
    );
    let plugins: Vec<_> = why.wakes_on.iter().map(|(plugin, _)| &**plugin).collect();
    assert_eq!(plugins, ["NodeUnschedulable", "TaintToleration", "NodeResourcesFit"]);
}

/// The fixes for a pod on these nodes. Each changed pod of `changed` is then created, and gets the
/// node that its fix names.
fn check_fixes(
    nodes: &[NodeBuilder],
    pods: &[PodBuilder],
    asked: PodBuilder,
    changed: &[PodBuilder],
) -> Vec<String> {
    let cluster = || {
        let mut bed = bed();
        for node in nodes {
            bed.node(node.clone());
        }
        for pod in pods {
            bed.assigned(pod.clone());
        }
        bed
    };
    let why = why(&mut cluster(), asked);
    assert_eq!(why.fixes.len(), changed.len(), "{:?}", fixes(&why));
    for (fix, changed) in why.fixes.iter().zip(changed) {
        let mut bed = cluster();
        bed.pod(changed.clone());
        bed.cycle();
        assert_eq!(bed.nodes_of(&["p"]), *fix.node, "{fix:?}");
    }
    fixes(&why)
}

#[test]
fn changes_that_help_are_found_and_do_help() {
    let nodes = [with_cpus("a", "8").taint("gpu", "yes", TaintEffect::NoSchedule), with_cpus("b", "3")];
    let tolerant = asks("p", "4").tolerates("gpu", "yes", TaintEffect::NoSchedule);
    check_fixes(&nodes, &[], asks("p", "4"), &[tolerant, asks("p", "3")]);
}

#[test]
fn constraints_that_can_be_dropped_are_found() {
    let nodes = [with_cpus("a", "8")];
    let picky = asks("p", "4").node_selector("disk", "ssd");
    check_fixes(&nodes, &[], picky, &[asks("p", "4")]);
    let with_port = |name: &str| asks(name, "1").host_port(80).with_spec(|spec| spec.never_preempts = true);
    check_fixes(&nodes, &[with_port("other").node("a")], with_port("p"), &[asks("p", "1")]);
}

#[test]
fn a_node_with_two_taints_needs_two_tolerations() {
    let taint = |node: NodeBuilder, key: &str| node.taint(key, "", TaintEffect::NoSchedule);
    let nodes = [taint(taint(with_cpus("a", "8"), "gpu"), "old")];
    let tolerates = |pod: PodBuilder, key: &str| pod.tolerates(key, "", TaintEffect::NoSchedule);
    let both = tolerates(tolerates(asks("p", "4"), "gpu"), "old");
    check_fixes(&nodes, &[], asks("p", "4"), &[both]);
    let mut bed = bed();
    bed.node(nodes[0].clone());
    let why = why(&mut bed, asks("p", "4"));
    assert_eq!(why.refusals.iter().map(|it| it.only).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(counted(&why), "1 node(s) had untolerated taint(s)");
}

#[test]
fn taints_of_broken_nodes_are_not_to_be_tolerated() {
    let broken = with_cpus("a", "8").taint("node.kubernetes.io/not-ready", "", TaintEffect::NoSchedule);
    assert_eq!(check_fixes(&[broken], &[], asks("p", "4"), &[]), [""; 0]);
}

#[test]
fn two_changes_are_tried_if_one_does_not_help() {
    let mut bed = bed();
    bed.node(with_cpus("a", "3").taint("gpu", "yes", TaintEffect::NoSchedule));
    let why = why(&mut bed, asks("p", "4"));
    let [fix] = &why.fixes[..] else { panic!("{:?}", fixes(&why)) };
    assert_eq!((fix.changes.len(), &*fix.node), (2, "a"));
}

#[test]
fn a_change_that_does_not_help_is_not_offered() {
    let mut bed = bed();
    bed.node(with_cpus("a", "3").unschedulable());
    assert_eq!(fixes(&why(&mut bed, asks("p", "4"))), [""; 0]);
}

fn priority_of(why: &Why) -> Option<(Vec<PodFix>, bool)> {
    let fix = why.fixes.iter().find(|fix| matches!(fix.changes[..], [PodFix::Priority(_)]))?;
    Some((fix.changes.clone(), fix.preempts))
}

#[test]
fn preemption_needs_a_priority_above_the_victim() {
    let mut bed = bed();
    bed.node(with_cpus("a", "4"));
    bed.assigned(asks("bound", "3").priority(7).node("a"));
    let low = why(&mut bed, asks("p", "4").priority(i32::MIN));
    assert_eq!(low.preemption, None);
    assert_eq!(priority_of(&low), Some((vec![PodFix::Priority(8)], true)));
    let high = why(&mut bed, asks("p", "4").priority(8));
    assert_eq!(high.preemption.as_deref(), Some("a"));
    assert!(bed.scheduler.take_effects().is_empty(), "nothing is evicted");
}

#[test]
fn nodes_that_fit_are_listed_with_the_best_first() {
    let mut bed = bed();
    bed.node(with_cpus("a", "2"));
    bed.node(with_cpus("b", "8"));
    let why = why(&mut bed, asks("p", "1"));
    let names: Vec<_> = why.feasible.iter().map(|(node, _)| &**node).collect();
    assert_eq!((names, &*why.message), (vec!["b", "a"], ""));
}

#[test]
fn scores_add_up_to_the_totals_and_explain_the_choice() {
    let mut bed = bed();
    bed.node(with_cpus("a", "2"));
    bed.node(with_cpus("b", "8"));
    let why = why(&mut bed, asks("p", "1"));
    for (node, (name, total)) in why.feasible.iter().enumerate() {
        let points: i64 = why.scores.iter().map(|it| it.scores[node].1 * it.weight).sum();
        assert_eq!(points, *total, "{name}");
    }
    let fit = why.scores.iter().find(|it| *it.plugin == *"NodeResourcesFit").unwrap();
    assert!(fit.scores[0].1 > fit.scores[1].1, "b has more room: {fit:?}");
}

#[test]
fn a_pod_on_a_node_is_judged_as_if_it_had_none() {
    let mut bed = bed();
    bed.node(with_cpus("a", "4"));
    bed.node(with_cpus("b", "8"));
    bed.node(with_cpus("c", "2"));
    let on_a = asks("p", "4").node("a");
    bed.assigned(on_a.clone());
    let before = bed.scheduler.node_views()[0].requested.clone();
    let why = bed.scheduler.why_there(bed.now, &Arc::new(on_a.build())).unwrap();
    assert_eq!(why.feasible.iter().map(|(node, _)| &**node).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(bed.scheduler.node_views()[0].requested, before);
    assert_eq!(bed.scheduler.inconsistencies(), [""; 0]);
}

#[test]
fn room_for_nominated_pods_is_reported() {
    let mut bed = bed();
    bed.node(with_cpus("a", "4"));
    bed.pod(asks("first", "3").priority(5).nominated("a"));
    let why = why(&mut bed, asks("p", "2"));
    assert_eq!(lines(&why), [": the room is reserved for nominated pods: 1 1 0"]);
    assert_eq!(priority_of(&why), Some((vec![PodFix::Priority(6)], false)));
    assert!(why.message.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{}", why.message);
}

#[test]
fn asking_changes_nothing() {
    let mut bed = bed();
    bed.node(with_cpus("a", "4"));
    bed.pod(asks("p", "2"));
    let before = bed.scheduler.queue_lengths();
    why(&mut bed, asks("q", "9"));
    assert_eq!(bed.scheduler.queue_lengths(), before);
    assert!(bed.scheduler.take_effects().is_empty());
    bed.cycle();
    assert_eq!(bed.nodes_of(&["p"]), "a");
}

#[test]
fn nodes_that_pre_filter_does_not_name_are_refused_once() {
    let mut bed = bed();
    bed.node(with_cpus("a", "1"));
    bed.node(with_cpus("b", "8"));
    let why = why(&mut bed, asks("p", "4").required_field("metadata.name", "In", &["a"]));
    assert_eq!(
        lines(&why),
        [
            "NodeAffinity: node(s) didn't satisfy plugin(s) [NodeAffinity]: 1 1 1",
            "NodeResourcesFit: Insufficient cpu 1000 of 4000 on a: 1 1 0",
        ]
    );
}

/// Names each node in its reason, or fails there.
struct Chatty {
    fails: bool,
}

impl Plugin for Chatty {
    fn name(&self) -> &'static str {
        "Chatty"
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().filter(&self)
    }
}

impl FilterPlugin for Chatty {
    fn filter(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        let text = format!("not on {}", node.name());
        if self.fails { Status::error(text) } else { Status::unschedulable(text) }
    }
}

fn chatty(fails: bool) -> TestBed {
    TestBed::of(options(all_plugins(vec![Arc::new(Chatty { fails })])))
}

#[test]
fn reasons_that_name_nodes_are_counted_together() {
    let mut bed = chatty(false);
    for i in 0..80 {
        bed.node(with_cpus(&format!("n{i}"), "4"));
    }
    let why = why(&mut bed, asks("p", "9"));
    let of_plugin = |name: &str| why.refusals.iter().filter(|it| *it.plugin == *name).count();
    assert_eq!((of_plugin("Chatty"), of_plugin("NodeResourcesFit")), (51, 1));
    let others = why.refusals.iter().find(|it| *it.reason == *"other reasons").unwrap();
    assert_eq!((others.nodes.len(), &others.detail), (30, &Detail::None));
}

#[test]
fn a_filter_that_fails_on_a_refused_node_refuses_it() {
    let mut bed = chatty(true);
    bed.node(with_cpus("a", "4"));
    let why = why(&mut bed, asks("p", "9"));
    let plugins: Vec<_> = why.refusals.iter().map(|it| (&*it.plugin, it.only)).collect();
    assert_eq!(plugins, [("NodeResourcesFit", 0), ("Chatty", 0)]);
    let error = bed.scheduler.why(bed.now, &Arc::new(asks("p", "1").build())).unwrap_err();
    assert_eq!(error.to_string(), "running \"Chatty\" filter plugin: not on a");
}

proptest! {
    /// What no refusal leaves out fits.
    #[test]
    fn counts_add_up(cpus in prop::collection::vec((1_u32..9, any::<bool>()), 1..12), asked in 1_u32..9) {
        let mut bed = bed();
        for (i, (cpus, tainted)) in cpus.iter().enumerate() {
            let node = with_cpus(&format!("n{i}"), &cpus.to_string());
            bed.node(if *tainted { node.taint("t", "", TaintEffect::NoSchedule) } else { node });
        }
        let why = why(&mut bed, asks("p", &asked.to_string()));
        let left = why.refusals.last().map_or(why.nodes, |last| last.left);
        prop_assert_eq!(left, why.feasible.len());
        for refusal in &why.refusals {
            prop_assert!(refusal.only <= refusal.nodes.len() && refusal.nodes.len() <= why.nodes);
        }
    }
}

/// Creates the pod, and answers the scheduler's requests until the pod has a node or nothing is
/// left to do.
fn really(fork: Fork, pod: PodInfo) -> Option<String> {
    let (mut now, mut scheduler, uid) = (fork.now(), fork.scheduler, pod.uid.clone());
    scheduler.handle(now, Input::QueuedPod(Notification::Added(Arc::new(pod))));
    for _ in 0..100 {
        while scheduler.schedule_one(now, &mut NoCalls) {}
        for effect in scheduler.take_effects() {
            if let Effect::PatchPodStatus(patch) = &effect
                && let Some(old) = scheduler.pending.get(&patch.pod).cloned()
            {
                let mut new = PodInfo::clone(&old);
                patch.apply(&mut new);
                new.resource_version = "patched".into();
                scheduler.handle(now, Input::QueuedPod(Notification::Updated { old, new: Arc::new(new) }));
            }
            let Effect::Evict { preemption, victims } = effect else { continue };
            let pods: Vec<_> =
                victims.iter().map(|victim| scheduler.cache().pod(&victim.uid).unwrap().clone()).collect();
            let outcomes = vec![Eviction::Deleted; victims.len()];
            scheduler.handle(now, Input::Evicted { preemption, outcomes });
            for pod in pods {
                scheduler.handle(now, Input::AssignedPod(Notification::Deleted(pod)));
            }
        }
        if let Some(node) = scheduler.cache().node_of(&uid) {
            return Some(node.to_string());
        }
        let wait = Duration::from_secs(1);
        now = Now { wall: now.wall.plus(wait), monotonic: now.monotonic + wait };
        scheduler.handle(now, Input::Tick);
    }
    None
}

proptest! {
    /// Whatever the cluster and the pod: a pod with the changes of a fix gets the node that the fix
    /// names.
    #[test]
    fn every_fix_that_is_offered_helps(crowd in crowd(), asked in asked()) {
        let bed = crowd.bed();
        let fork = || bed.scheduler.fork(bed.now, options(all_plugins(Vec::new()))).unwrap();
        let pod = Arc::new(asked.pod("p").build());
        let why = fork().why(&pod).unwrap();
        if !why.feasible.is_empty() {
            return Ok(());
        }
        for fix in &why.fixes {
            let mut changed = PodInfo::clone(&pod);
            for change in &fix.changes {
                changed = change.apply(&changed).expect("the change changes something");
            }
            let node = really(fork(), changed);
            prop_assert_eq!(node.as_deref(), Some(&*fix.node), "{:?}", fix);
        }
    }
}

/// The counts as upstream's message has them.
fn counted(why: &Why) -> String {
    let counts = why.first_reasons();
    let mut parts: Vec<String> = counts.iter().map(|(reason, nodes)| format!("{nodes} {reason}")).collect();
    parts.sort();
    parts.join(", ")
}

/// What was said of a pod before it was tried.
pub(super) struct Explained {
    pod: Arc<PodInfo>,
    why: Why,
    /// Whether any pod is nominated for a node: its room then counts in the message.
    has_nominated: bool,
}

impl Explained {
    /// Explains the pod that is tried next.
    pub(super) fn of(scheduler: &mut Scheduler, now: Now) -> Option<Self> {
        let pod = scheduler.next_pod()?.clone();
        let why = scheduler.why(now, &pod).ok()?;
        let has_nominated = !scheduler.queue.nominator.is_empty();
        Some(Self { pod, why, has_nominated })
    }

    /// Compares that with what became of the pod.
    pub(super) fn compare(&self, scheduler: &Scheduler) -> Result<(), String> {
        let (key, why) = (self.pod.key(), &self.why);
        if let Some(node) = scheduler.cache.node_of(&self.pod.uid) {
            let best = why.feasible.first().map(|(node, _)| node);
            return if best == Some(node) {
                Ok(())
            } else {
                Err(format!("{key} is on {node}, not {best:?}"))
            };
        }
        let message = scheduler.effects.iter().find_map(|effect| match effect {
            Effect::PatchPodStatus(patch) if patch.uid == self.pod.uid => {
                patch.condition.as_ref().filter(|it| &*it.reason == "Unschedulable").map(|it| &it.message)
            }
            _ => None,
        });
        let Some(message) = message else { return Ok(()) };
        if **message != why.message {
            return Err(format!("{key}: the message is {message}, and not {}", why.message));
        }
        // A pod that PreFilter rejects has another message.
        let reasons = message.strip_prefix(&*format!("0/{} nodes are available: ", why.nodes));
        let reasons = reasons.filter(|reasons| reasons.starts_with(|first: char| first.is_ascii_digit()));
        let is_comparable =
            !self.has_nominated && why.refusals.iter().all(|it| *it.reason != *"other reasons");
        let counts = format!("{}.", counted(why));
        match reasons {
            Some(reasons) if is_comparable && !reasons.starts_with(&counts) => {
                Err(format!("{key}: the message is {message}, the counts are {counts}"))
            }
            _ => Ok(()),
        }
    }
}
