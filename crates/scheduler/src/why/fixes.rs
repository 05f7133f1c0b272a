//! Changes of a pod that let it be scheduled. Only those that were tried and help are listed.

use std::sync::Arc;

use supercargo_framework::affinity::NodeAffinity;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::taint::{Taint, Toleration, TolerationOperator};
use supercargo_framework::{CycleState, Labels, Now, PodInfo, PodSpec};
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::profile::ProfileIndex;

use super::{Detail, Shortage, Why};
use crate::attempt::post_filter;
use crate::cycle::Cycle;
use crate::scheduler::Scheduler;

/// The most changes that are tried.
const MOST_TRIALS: usize = 32;
/// The greatest priority that a user's PriorityClass may have.
const HIGHEST_PRIORITY: i32 = 1_000_000_000;

/// A change that lets the pod be scheduled.
#[derive(Clone, Debug)]
pub struct Fix {
    /// What changes; several changes only if no single one helps.
    pub changes: Vec<Change>,
    /// The node that the pod then gets.
    pub node: Arc<str>,
}

/// A change of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
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
    /// The pod has no topology spread constraint that nodes must meet.
    NoHardSpread,
    /// The pod has no required affinity or anti-affinity to pods.
    NoPodAffinity,
    /// The pod has no host port.
    NoHostPorts,
    /// The pod has this priority, and preempts others.
    Priority(i32),
}

impl Change {
    /// Applies the change to a pod; `None` if that is without effect.
    pub fn apply(&self, pod: &PodInfo) -> Option<PodInfo> {
        let mut changed = pod.clone();
        if let Self::Priority(priority) = self {
            changed.priority = *priority;
            return Some(changed);
        }
        let mut spec = PodSpec::clone(&pod.spec);
        match self {
            Self::Request { resource, to, .. } => {
                spec.requests.resource.set(resource, *to);
                spec.container_requests = None;
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
            Self::NoHardSpread => {
                let soft = spec.topology_spread.into_iter().filter(|constraint| !constraint.hard);
                spec.topology_spread = soft.collect();
            }
            Self::NoPodAffinity => spec.pod_affinity = None,
            Self::NoHostPorts => spec.host_ports = Vec::new().into(),
            Self::Priority(_) => {}
        }
        changed.spec = Arc::new(spec);
        (changed.spec != pod.spec).then_some(changed)
    }
}

impl Scheduler {
    /// The changes that help, of those that the refusals suggest; single ones first.
    pub(super) fn fixes(&self, now: Now, profile: ProfileIndex, pod: &Arc<PodInfo>, why: &Why) -> Vec<Fix> {
        let mut left = MOST_TRIALS;
        let mut try_all = |changes: &[&Change]| -> Option<Fix> {
            left = left.checked_sub(1)?;
            let mut changed = PodInfo::clone(pod);
            for change in changes {
                changed = change.apply(&changed)?;
            }
            let node = self.with_cycle(now, &Arc::new(changed), profile, placed)?;
            Some(Fix { changes: changes.iter().map(|change| (*change).clone()).collect(), node })
        };
        let changes = suggested(why);
        let mut fixes: Vec<Fix> = changes.iter().filter_map(|change| try_all(&[change])).collect();
        if fixes.is_empty() {
            let pairs = changes
                .iter()
                .enumerate()
                .flat_map(|(i, one)| changes[i + 1..].iter().map(move |other| [one, other]));
            fixes = pairs.filter_map(|pair| try_all(&pair)).collect();
        }
        if why.preemption.is_none() && !pod.spec.never_preempts {
            fixes.extend(self.higher_priority(now, profile, pod));
        }
        fixes
    }

    /// The least priority with which the pod preempts others.
    fn higher_priority(&self, now: Now, profile: ProfileIndex, pod: &Arc<PodInfo>) -> Option<Fix> {
        let preempts = |priority| {
            let changed = Arc::new(Change::Priority(priority).apply(pod)?);
            self.with_cycle(now, &changed, profile, preempted)
        };
        let (mut too_low, mut node) = (pod.priority, preempts(HIGHEST_PRIORITY)?);
        // Pods with that priority or more are not preempted, so the answer is one above a pod's.
        let mut high_enough = HIGHEST_PRIORITY;
        while high_enough - too_low > 1 {
            let middle = too_low + (high_enough - too_low) / 2;
            match preempts(middle) {
                Some(found) => (high_enough, node) = (middle, found),
                None => too_low = middle,
            }
        }
        Some(Fix { changes: vec![Change::Priority(high_enough)], node })
    }
}

/// The node that the cycle chooses.
fn placed(cycle: &Cycle<'_>) -> Option<Arc<str>> {
    let index = cycle.run(&mut CycleState::default()).0.ok()?;
    Some(Arc::clone(cycle.cx.node(index).name()))
}

/// The node on which the pod makes room.
fn preempted(cycle: &Cycle<'_>) -> Option<Arc<str>> {
    let mut state = CycleState::default();
    match cycle.run(&mut state).0 {
        Err(FailureKind::Fit(mut error)) => match post_filter(cycle, &state, &mut error) {
            Nomination::Override(node) => node,
            Nomination::Keep => None,
        },
        _ => None,
    }
}

/// The changes that refusals suggest, those that help most nodes first.
fn suggested(why: &Why) -> Vec<Change> {
    let mut refusals: Vec<_> = why.refusals.iter().collect();
    refusals.sort_by_key(|refusal| std::cmp::Reverse((refusal.only, refusal.nodes)));
    let mut changes = Vec::new();
    for refusal in refusals {
        let change = match (&refusal.detail, &*refusal.plugin) {
            (Detail::Taint(taint), _) => Change::Tolerate(taint.clone()),
            (Detail::Short(Shortage { resource, requested, free, .. }), _) if *free > 0 => {
                Change::Request { resource: Arc::clone(resource), from: *requested, to: *free }
            }
            (_, "NodeAffinity") => Change::NoNodeAffinity,
            (_, "PodTopologySpread") => Change::NoHardSpread,
            (_, "InterPodAffinity") => Change::NoPodAffinity,
            (_, "NodePorts") => Change::NoHostPorts,
            _ => continue,
        };
        if !changes.contains(&change) {
            changes.push(change);
        }
    }
    changes
}
