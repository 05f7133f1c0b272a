//! Changes of a pod that let it be scheduled. Only those that were tried and help are listed.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use supercargo_framework::affinity::NodeAffinity;
use supercargo_framework::context::Command;
use supercargo_framework::plugin::{Nomination, RunFilters as _};
use supercargo_framework::resource::names;
use supercargo_framework::taint::{Taint, Toleration, TolerationOperator};
use supercargo_framework::{CycleState, Labels, NodeIndex, NodeInfo, Now, PodInfo, PodSpec};
use supercargo_runtime::diagnosis::{Diagnosis, FitError};
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::profile::ProfileIndex;

use super::{Detail, Explained, Refusal, Shortage, Why};
use crate::attempt::post_filter;
use crate::dry_run::DryRun;
use crate::node_recheck::Nodes;
use crate::scheduler::Scheduler;
use supercargo_evaluation::cycle::{Cycle, PreFilterOutcome};

/// The most changes that are tried, and the most priorities.
const MOST_TRIALS: usize = 32;
/// Taints with this prefix mark nodes that cannot run pods now: no fix tolerates them.
pub(crate) const NODE_CONDITIONS: &str = "node.kubernetes.io/";
/// The taint of cordoned nodes.
pub(crate) const CORDON: &str = "node.kubernetes.io/unschedulable";

/// A change that lets the pod be scheduled.
#[derive(Clone, Debug)]
pub struct Fix {
    /// What changes; several changes only if no single one helps.
    pub changes: Vec<PodFix>,
    /// The node that the pod then gets, maybe only after preemption.
    pub node: Arc<str>,
    /// Whether other pods are preempted for it.
    pub preempts: bool,
}

/// A change of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodFix {
    /// The pod requests no more of a resource than a node has left.
    Request {
        /// The resource.
        resource: Arc<str>,
        /// The present request; CPU in milli-cores.
        from: i64,
        /// The new one.
        to: i64,
    },
    /// The pod tolerates a taint.
    Tolerate(Taint),
    /// The pod has neither a node selector nor required node affinity.
    NoNodeAffinity,
    /// The pod's topology spread constraints are `ScheduleAnyway`.
    SoftSpread,
    /// The pod has no required affinity or anti-affinity to pods.
    NoPodAffinity,
    /// The pod has no host port.
    NoHostPorts,
    /// The pod has this priority.
    Priority(i32),
}

/// In-tree filters whose refusals only a change of their own kind lifts. Other plugins may read
/// anything.
const INDEPENDENT: &[&str] = &[
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
];

impl PodFix {
    /// Whether the change can lift a refusal.
    fn may_lift(&self, refusal: &Refusal) -> bool {
        let plugin = &*refusal.plugin;
        if !INDEPENDENT.contains(&plugin) {
            return true;
        }
        match self {
            Self::Request { resource, .. } => {
                plugin == "NodeResourcesFit"
                    && refusal.reason.strip_prefix("Insufficient ").is_none_or(|short| *short == **resource)
            }
            // Spreading may leave out nodes with such taints or labels.
            Self::Tolerate(taint) => match &refusal.detail {
                Detail::Taint(refused) => refused == taint,
                _ => matches!(plugin, "TaintToleration" | "PodTopologySpread"),
            },
            Self::NoNodeAffinity => matches!(plugin, "NodeAffinity" | "PodTopologySpread"),
            Self::SoftSpread => plugin == "PodTopologySpread",
            Self::NoPodAffinity => plugin == "InterPodAffinity",
            Self::NoHostPorts => plugin == "NodePorts",
            Self::Priority(_) => false,
        }
    }

    /// Applies the change to a pod; `None` if that is without effect.
    pub fn apply(&self, pod: &PodInfo) -> Option<PodInfo> {
        let mut changed = pod.clone();
        let mut spec = PodSpec::clone(&pod.spec);
        match self {
            Self::Priority(priority) => changed.priority = *priority,
            Self::Request { resource, from, to } => {
                let less = from - to;
                spec.requests.resource.set(resource, *to);
                match &**resource {
                    names::CPU => spec.requests.non_zero_milli_cpu -= less,
                    names::MEMORY => spec.requests.non_zero_memory -= less,
                    _ => {}
                }
                changed.status_requests = None;
            }
            Self::Tolerate(taint) => {
                let mut tolerations = Vec::from(spec.tolerations);
                tolerations.push(Toleration {
                    key: Arc::clone(&taint.key),
                    operator: TolerationOperator::Equal,
                    value: Arc::clone(&taint.value),
                    effect: Some(taint.effect),
                });
                spec.tolerations = tolerations.into();
            }
            Self::NoNodeAffinity => {
                spec.node_selector = Labels::default();
                spec.node_affinity =
                    spec.node_affinity.map(|affinity| NodeAffinity { required: None, ..affinity });
            }
            Self::SoftSpread => {
                for constraint in &mut spec.topology_spread {
                    (constraint.hard, constraint.min_domains) = (false, None);
                }
            }
            Self::NoPodAffinity => {
                if let Some(affinity) = &mut spec.pod_affinity {
                    (affinity.required_affinity, affinity.required_anti_affinity) = Default::default();
                }
            }
            Self::NoHostPorts => spec.host_ports = Vec::new().into(),
        }
        changed.spec = Arc::new(spec);
        (changed != *pod).then_some(changed)
    }
}

impl Scheduler {
    /// The changes that help, of those that the refusals suggest: single ones, or else pairs. Then
    /// a higher priority.
    pub(super) fn fixes(
        &self,
        now: Now,
        profile: ProfileIndex,
        pod: &Arc<PodInfo>,
        explained: &Explained,
    ) -> Vec<Fix> {
        let Explained { why, failure, .. } = explained;
        let try_all = |changes: &[&PodFix]| {
            let candidates = self.candidates(changes, explained);
            if candidates.is_empty() {
                return None;
            }
            let mut changed = PodInfo::clone(pod);
            for change in changes {
                changed = change.apply(&changed)?;
            }
            let nodes = Nodes { candidates: Some(&candidates), ..Nodes::default() };
            let Placed { node, .. } = self.with_profile(
                now,
                &Arc::new(changed),
                (profile, self.profiles.get(profile)),
                nodes,
                |cycle| placed(cycle, false),
            )?;
            Some(Fix { changes: changes.iter().copied().cloned().collect(), node, preempts: false })
        };
        let changes = suggested(why);
        let mut fixes: Vec<Fix> =
            changes.iter().take(MOST_TRIALS).filter_map(|change| try_all(&[change])).collect();
        if fixes.is_empty() {
            let others = |i: usize| changes[i + 1..].iter();
            let pairs =
                changes.iter().enumerate().flat_map(|(i, one)| others(i).map(move |other| [one, other]));
            fixes = pairs.take(MOST_TRIALS).filter_map(|pair| try_all(&pair)).collect();
        }
        if why.preemption.is_none() {
            fixes.extend(self.higher_priority(now, profile, pod, failure.as_ref()));
        }
        fixes
    }

    /// The nodes that nothing refuses but what the changes may lift.
    fn candidates(&self, changes: &[&PodFix], Explained { why, rows, .. }: &Explained) -> Vec<NodeIndex> {
        let is_lifted = |refusal| changes.iter().any(|change| change.may_lift(refusal));
        let lifted: Vec<bool> = why.refusals.iter().map(is_lifted).collect();
        let may_fit =
            |index: &NodeIndex| rows.get(index).is_none_or(|rows| rows.iter().all(|row| lifted[*row]));
        self.cache.nodes().order().iter().copied().filter(may_fit).collect()
    }

    /// The least priority with which the pod fits, or preempts others and keeps their room. It is
    /// that of a pending pod, or one above that of another pod.
    fn higher_priority(
        &self,
        now: Now,
        profile: ProfileIndex,
        pod: &Arc<PodInfo>,
        failure: Option<&(CycleState, Box<FitError>)>,
    ) -> Option<Fix> {
        // Filters do not see the priority, unless room is reserved for others.
        let failure = failure.filter(|_| self.queue.nominator.is_empty());
        let nominator = &self.queue.nominator;
        let nominated = nominator.nodes().flat_map(|node| self.queue.nominated_on(node));
        let on_nodes = self.cache.nodes().iter().flat_map(|(_, info)| info.priorities());
        let others = on_nodes.chain(nominated.map(|pod| pod.priority));
        let above = others.filter_map(|priority| priority.checked_add(1));
        let waiting = self.pending.values().map(|pod| pod.priority);
        let priorities: BTreeSet<i32> =
            above.chain(waiting).filter(|priority| *priority > pod.priority).collect();
        priorities.into_iter().take(MOST_TRIALS).find_map(|priority| {
            let change = PodFix::Priority(priority);
            let changed = Arc::new(change.apply(pod)?);
            let trial = |cycle: &Cycle<'_>| match failure {
                Some((state, error)) => preempting(cycle, state, error.clone()),
                None => placed(cycle, true),
            };
            let Placed { node, victims } = self.with_cycle(now, &changed, profile, trial)?;
            let preempts = victims.is_some();
            let keeps = victims.is_none_or(|victims| !self.has_rival(now, &changed, &node, &victims));
            keeps.then(|| Fix { changes: vec![change], node, preempts })
        })
    }

    /// Whether a pending pod of higher priority takes the room of the victims. After too many
    /// trials, this is assumed.
    fn has_rival(&self, now: Now, pod: &PodInfo, node: &str, victims: &[Arc<PodInfo>]) -> bool {
        let Some(node) = self.cache.nodes().get(node) else { return false };
        let is_tried =
            |rival: &PodInfo| self.queue.get(&rival.uid).is_some_and(|queued| queued.gating_plugin.is_none());
        let rivals = self.pending.values().filter(|rival| rival.priority > pod.priority && is_tried(rival));
        rivals.enumerate().any(|(trials, rival)| {
            let fits = |cycle: &Cycle<'_>| fits_without(cycle, node, victims);
            trials >= MOST_TRIALS
                || self.profile_of(rival).is_some_and(|profile| self.with_cycle(now, rival, profile, fits))
        })
    }
}

/// A node for the pod.
struct Placed {
    node: Arc<str>,
    /// The pods that it preempts there, if the cycle does not choose the node.
    victims: Option<Vec<Arc<PodInfo>>>,
}

/// The node that the cycle chooses; or one on which the pod preempts others, if it may.
fn placed(cycle: &Cycle<'_>, may_preempt: bool) -> Option<Placed> {
    let mut state = CycleState::default();
    match cycle.run(&mut state).0 {
        Ok(index) => Some(Placed { node: Arc::clone(cycle.cx.node(index).name()), victims: None }),
        Err(FailureKind::Fit(error)) if may_preempt => preempting(cycle, &state, error),
        Err(_) => None,
    }
}

/// A node on which the pod preempts others.
fn preempting(cycle: &Cycle<'_>, state: &CycleState, mut error: Box<FitError>) -> Option<Placed> {
    let Nomination::Override(node) = post_filter(cycle, state, &mut error) else { return None };
    let victims = cycle.cx.take_commands().into_iter().flat_map(|command| match command {
        Command::Preempt { victims, .. } => victims.pods,
        _ => Vec::new(),
    });
    Some(Placed { node: node?, victims: Some(victims.collect()) })
}

/// Whether the pod fits on a node once the victims have left it.
fn fits_without(cycle: &Cycle<'_>, node: &NodeInfo, victims: &[Arc<PodInfo>]) -> bool {
    let mut state = CycleState::default();
    let Ok(PreFilterOutcome::Nodes(names)) = cycle.pre_filter(&mut state, &mut Diagnosis::default()) else {
        return false;
    };
    if names.is_some_and(|names| !names.contains(node.name())) {
        return false;
    }
    let (mut node, filters) = (node.clone(), DryRun::new(cycle, &state));
    let has_left = |victim: &Arc<PodInfo>| {
        node.remove_pod(&victim.uid);
        filters.remove_pod(&mut state, cycle.pod, victim, &node).is_success()
    };
    victims.iter().all(has_left) && filters.run_filters(&state, cycle.pod, &node).is_success()
}

/// The changes that refusals suggest: of each kind the one that helps most nodes, then the others.
fn suggested(why: &Why) -> Vec<PodFix> {
    let mut refusals: Vec<_> = why.refusals.iter().collect();
    refusals.sort_by_key(|refusal| Reverse((refusal.only, refusal.nodes.len())));
    let mut changes: Vec<PodFix> = Vec::new();
    let mut others = Vec::new();
    for change in refusals.into_iter().filter_map(suggestion) {
        let is_of_kind = |it: &PodFix| std::mem::discriminant(it) == std::mem::discriminant(&change);
        if changes.iter().any(is_of_kind) { others.push(change) } else { changes.push(change) }
    }
    others.retain(|change| !changes.contains(change));
    others.dedup();
    changes.extend(others);
    changes
}

fn suggestion(refusal: &Refusal) -> Option<PodFix> {
    Some(match (&refusal.detail, &*refusal.plugin) {
        (Detail::Taint(taint), _) if taint.key.starts_with(NODE_CONDITIONS) => return None,
        (Detail::Taint(taint), _) => PodFix::Tolerate(taint.clone()),
        (Detail::Short(Shortage { resource, requested, free, .. }), _) if *free > 0 => {
            PodFix::Request { resource: Arc::clone(resource), from: *requested, to: *free }
        }
        (_, "NodeAffinity") => PodFix::NoNodeAffinity,
        (_, "PodTopologySpread") => PodFix::SoftSpread,
        (_, "InterPodAffinity") => PodFix::NoPodAffinity,
        (_, "NodePorts") => PodFix::NoHostPorts,
        _ => return None,
    })
}
