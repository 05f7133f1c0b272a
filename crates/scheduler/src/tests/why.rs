//! Why a pod has no node, and what helps.

use std::sync::Arc;

use proptest::prelude::*;
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use supercargo_framework::{Now, PodInfo, TaintEffect};

use super::bed::{Bed, all_plugins, options};
use crate::{Detail, Effect, PodChange, Scheduler, Shortage, Why};

fn bed() -> Bed {
    Bed::of(options(all_plugins(Vec::new())))
}

fn with_cpus(name: &str, cpus: &str) -> NodeBuilder {
    node(name).allocatable("cpu", cpus).allocatable("memory", "8Gi").allocatable("pods", "10")
}

fn asks(name: &str, cpus: &str) -> PodBuilder {
    pod(name).request("cpu", cpus)
}

fn why(bed: &mut Bed, pod: PodBuilder) -> Why {
    bed.scheduler.why(bed.now, &Arc::new(pod.build())).unwrap()
}

/// One line for each refusal.
fn lines(why: &Why) -> Vec<String> {
    let line = |refusal: &crate::Refusal| {
        let detail = match &refusal.detail {
            Detail::None => String::new(),
            Detail::Taint(taint) => format!(" {}={}:{}", taint.key, taint.value, taint.effect.as_str()),
            Detail::Short(Shortage { requested, free, node, .. }) => {
                format!(" {free} of {requested} on {node}")
            }
        };
        format!(
            "{}: {}{detail}: {} {} {}",
            refusal.plugin, refusal.reason, refusal.nodes, refusal.only, refusal.left
        )
    };
    why.refusals.iter().map(line).collect()
}

/// One line for each fix.
fn fixes(why: &Why) -> Vec<String> {
    why.fixes.iter().map(|fix| format!("{:?} -> {}", fix.changes, fix.node)).collect()
}

#[test]
fn every_filter_of_every_node_is_told() {
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

#[test]
fn changes_that_help_are_found_and_do_help() {
    let mut bed = bed();
    bed.node(with_cpus("a", "8").taint("gpu", "yes", TaintEffect::NoSchedule));
    bed.node(with_cpus("b", "3"));
    let why = why(&mut bed, asks("p", "4"));
    assert_eq!(why.fixes.len(), 2, "{:?}", fixes(&why));
    for fix in &why.fixes {
        let [change] = &fix.changes[..] else { panic!("{fix:?}") };
        let mut bed = self::bed();
        bed.node(with_cpus("a", "8").taint("gpu", "yes", TaintEffect::NoSchedule));
        bed.node(with_cpus("b", "3"));
        let changed = change.apply(&asks("p", "4").build()).unwrap();
        bed.handle(crate::Input::QueuedPod(crate::Notification::Added(Arc::new(changed))));
        bed.cycle();
        assert_eq!(bed.nodes_of(&["p"]), *fix.node);
    }
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

#[test]
fn preemption_needs_a_priority_above_the_victim() {
    let mut bed = bed();
    bed.node(with_cpus("a", "4"));
    bed.assigned(asks("bound", "3").priority(7).node("a"));
    let why_low = why(&mut bed, asks("p", "4"));
    assert_eq!(why_low.preemption, None);
    let priority = why_low.fixes.iter().find(|fix| matches!(fix.changes[..], [PodChange::Priority(_)]));
    assert_eq!(priority.map(|fix| fix.changes.clone()), Some(vec![PodChange::Priority(8)]));
    let why_high = why(&mut bed, asks("p", "4").priority(8));
    assert_eq!(why_high.preemption.as_deref(), Some("a"));
    assert!(bed.effect_lines().iter().all(|line| !line.contains("evict")), "nothing is evicted");
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
fn promised_room_is_told() {
    let mut bed = bed();
    bed.node(with_cpus("a", "4"));
    bed.pod(asks("first", "3").priority(5).nominated("a"));
    let why = why(&mut bed, asks("p", "2"));
    assert_eq!(lines(&why), [": room on the node is promised to nominated pods: 1 1 0"]);
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
    assert_eq!(bed.effect_lines(), [""; 0]);
    bed.cycle();
    assert_eq!(bed.nodes_of(&["p"]), "a");
}

proptest! {
    /// Many distinct reasons of one plugin do not grow without bound.
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
            prop_assert!(refusal.only <= refusal.nodes && refusal.nodes <= why.nodes);
        }
    }
}

/// The counts as upstream's message has them.
fn counted(why: &Why) -> String {
    let mut parts: Vec<String> =
        why.first.iter().map(|(reason, nodes)| format!("{nodes} {reason}")).collect();
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
