//! What the demo knows of the cluster, from what its informers are told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::pod::PodKey;
use supercargo_framework::{NodeRecord, PodInfo};

/// So many activities are remembered; older ones are forgotten.
const REMEMBERED: usize = 4096;
/// What kube-apiserver and kube-scheduler call the condition's reason of a pod with gates.
const GATED: &str = "SchedulingGated";

/// Where a pod is on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    /// Nobody has decided yet.
    New,
    /// It has scheduling gates.
    Gated,
    /// The scheduler found no node. Holds why.
    Waiting(Arc<str>),
    /// It has a node.
    Bound(Arc<str>),
    /// It has run to its end.
    Ended,
}

impl PodState {
    fn of(pod: &PodInfo) -> Self {
        if pod.status.terminal {
            return Self::Ended;
        }
        if let Some(node) = &pod.node_name {
            return Self::Bound(Arc::clone(node));
        }
        if !pod.scheduling_gates.is_empty() {
            return Self::Gated;
        }
        match &pod.status.pod_scheduled {
            // The reason of a pod whose gates have just been lifted is still the old one.
            Some(condition) if &*condition.status == "False" && &*condition.reason != GATED => {
                Self::Waiting(Arc::clone(&condition.message))
            }
            _ => Self::New,
        }
    }
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// A pod has been bound.
    Bound {
        /// The pod.
        pod: PodKey,
        /// Its node.
        node: Arc<str>,
        /// Since when it could be scheduled.
        took: Duration,
    },
    /// No node was found for a pod.
    Waits {
        /// The pod.
        pod: PodKey,
        /// Why.
        why: Arc<str>,
    },
    /// Something else.
    Note(String),
}

/// How many pods of the scheduler's are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// All that were ever seen.
    pub(crate) arrived: usize,
    /// Those with a node, also those that have ended.
    pub(crate) bound: usize,
    /// Those without a node that fits.
    pub(crate) waiting: usize,
    /// Those with gates.
    pub(crate) gated: usize,
    /// Those about which nothing has been decided.
    pub(crate) undecided: usize,
}

struct KnownPod {
    pod: Arc<PodInfo>,
    state: PodState,
    /// Since when it can be scheduled.
    since: Duration,
}

/// What is on a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// In thousandths of a core.
    pub(crate) milli_cpu: i64,
    /// In bytes.
    pub(crate) memory: i64,
    /// Pods.
    pub(crate) pods: i64,
}

impl Load {
    fn of(pod: &PodInfo) -> Self {
        let requests = &pod.requests().resource;
        Self { milli_cpu: requests.milli_cpu, memory: requests.memory, pods: 1 }
    }

    fn add(&mut self, other: &Self, sign: i64) {
        self.milli_cpu += sign * other.milli_cpu;
        self.memory += sign * other.memory;
        self.pods += sign * other.pods;
    }

    /// Which parts of an amount this is: CPU and memory.
    pub(crate) fn shares(&self, of: &Self) -> (f64, f64) {
        let share = |part: i64, of: i64| if of > 0 { part as f64 / of as f64 } else { 0.0 };
        (share(self.milli_cpu, of.milli_cpu), share(self.memory, of.memory))
    }
}

/// A node and what is on it.
#[derive(Clone, Debug)]
pub(crate) struct NodeLoad<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its zone; empty for none.
    pub(crate) zone: &'a str,
    /// What is on it.
    pub(crate) used: Load,
    /// What there is for pods.
    pub(crate) allocatable: Load,
    /// Whether it is cordoned.
    pub(crate) cordoned: bool,
}

/// Pods that wait for one reason.
#[derive(Clone, Debug)]
pub(crate) struct WaitingGroup<'a> {
    /// The reason.
    pub(crate) why: &'a str,
    /// The pods.
    pub(crate) pods: &'a BTreeSet<PodKey>,
}

/// What the demo knows.
pub(crate) struct Model {
    scheduler: Arc<str>,
    pods: BTreeMap<PodKey, KnownPod>,
    /// By zone and name.
    nodes: BTreeMap<(Arc<str>, Arc<str>), Arc<NodeRecord>>,
    /// Of each node.
    zones: BTreeMap<Arc<str>, Arc<str>>,
    /// By the node's name, known or not.
    loads: BTreeMap<Arc<str>, Load>,
    waiting: BTreeMap<Arc<str>, BTreeSet<PodKey>>,
    gated: BTreeSet<PodKey>,
    counts: Counts,
    activities: VecDeque<(Duration, Activity)>,
    /// What the API server did not take, and why.
    refused: Vec<String>,
    /// The number of the first that is remembered.
    forgotten: usize,
    /// How long the pods took that were bound at the first attempt.
    bound_at_once: Vec<Duration>,
    changed: Duration,
    last_bound: Option<Duration>,
}

impl Model {
    /// Knows nothing yet. Counts the pods of this scheduler.
    pub(crate) fn new(scheduler: &str) -> Self {
        Self {
            scheduler: scheduler.into(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            zones: BTreeMap::new(),
            loads: BTreeMap::new(),
            waiting: BTreeMap::new(),
            gated: BTreeSet::new(),
            counts: Counts::default(),
            activities: VecDeque::new(),
            refused: Vec::new(),
            forgotten: 0,
            bound_at_once: Vec::new(),
            changed: Duration::ZERO,
            last_bound: None,
        }
    }

    /// A pod is new or has changed.
    pub(crate) fn update_pod(&mut self, at: Duration, pod: &Arc<PodInfo>) {
        let (key, state) = (pod.key(), PodState::of(pod));
        let before = self.pods.remove(&key);
        if let Some(before) = &before {
            self.count(&key, before, -1);
        } else if self.is_ours(pod) {
            self.counts.arrived += 1;
        }
        let old = before.as_ref().map(|known| &known.state);
        let since = match (&before, old) {
            (Some(before), Some(old)) if *old != PodState::Gated || state == PodState::Gated => before.since,
            _ => at,
        };
        let known = KnownPod { pod: Arc::clone(pod), state, since };
        if old != Some(&known.state) {
            self.changed = at;
            if self.is_ours(pod) {
                self.record_change(at, &key, old, &known);
            }
        }
        self.count(&key, &known, 1);
        self.pods.insert(key, known);
    }

    /// A pod is gone.
    pub(crate) fn remove_pod(&mut self, at: Duration, key: &PodKey) {
        if let Some(known) = self.pods.remove(key) {
            self.changed = at;
            self.count(key, &known, -1);
        }
    }

    /// A node is new or has changed.
    pub(crate) fn update_node(&mut self, at: Duration, node: &Arc<NodeRecord>, is_in_initial_list: bool) {
        let known = self.forget_node(&node.name);
        let zone = zone_of(node);
        self.zones.insert(Arc::clone(&node.name), Arc::clone(&zone));
        self.nodes.insert((zone, Arc::clone(&node.name)), Arc::clone(node));
        if known.is_none() && !is_in_initial_list {
            self.note(at, format!("node {} joins", node.name));
        }
        if let Some(known) = known
            && known.unschedulable != node.unschedulable
        {
            let what = if node.unschedulable { "cordoned" } else { "uncordoned" };
            self.note(at, format!("node {} is {what}", node.name));
        }
    }

    /// A node is gone.
    pub(crate) fn remove_node(&mut self, at: Duration, name: &str) {
        if self.forget_node(name).is_some() {
            self.note(at, format!("node {name} leaves"));
        }
    }

    /// Its zone may be another one when it comes back.
    fn forget_node(&mut self, name: &str) -> Option<Arc<NodeRecord>> {
        let (name, zone) = self.zones.remove_entry(name)?;
        self.nodes.remove(&(zone, name))
    }

    /// Remembers something that pods and nodes do not tell.
    pub(crate) fn note(&mut self, at: Duration, text: String) {
        self.changed = at;
        self.remember(at, Activity::Note(text));
    }

    /// Remembers what the API server did not take.
    pub(crate) fn refuse(&mut self, at: Duration, refusal: String) {
        self.note(at, refusal.clone());
        self.refused.push(refusal);
    }

    /// What the API server did not take, and why.
    pub(crate) fn refused(&self) -> &[String] {
        &self.refused
    }

    fn is_ours(&self, pod: &PodInfo) -> bool {
        pod.spec.scheduler_name == self.scheduler
    }

    fn record_change(&mut self, at: Duration, key: &PodKey, old: Option<&PodState>, known: &KnownPod) {
        match &known.state {
            PodState::Bound(node) => {
                // A pod may come with a node that it was given by its author.
                if old.is_none() && known.pod.status.pod_scheduled.is_none() {
                    return;
                }
                let took = at.saturating_sub(known.since);
                if !matches!(old, Some(PodState::Waiting(_))) {
                    self.bound_at_once.push(took);
                }
                self.last_bound = Some(at);
                let (pod, node) = (key.clone(), Arc::clone(node));
                self.remember(at, Activity::Bound { pod, node, took });
            }
            PodState::Waiting(why) => {
                let (pod, why) = (key.clone(), Arc::clone(why));
                self.remember(at, Activity::Waits { pod, why });
            }
            PodState::New | PodState::Gated | PodState::Ended => {}
        }
    }

    fn remember(&mut self, at: Duration, activity: Activity) {
        if self.activities.len() == REMEMBERED {
            self.activities.pop_front();
            self.forgotten += 1;
        }
        self.activities.push_back((at, activity));
    }

    /// Adds a pod to the sums, or takes it away.
    fn count(&mut self, key: &PodKey, known: &KnownPod, sign: i64) {
        if let PodState::Bound(node) = &known.state {
            let load = self.loads.entry(Arc::clone(node)).or_default();
            load.add(&Load::of(&known.pod), sign);
            if load.pods == 0 {
                self.loads.remove(node);
            }
        }
        if !self.is_ours(&known.pod) {
            return;
        }
        let counts = &mut self.counts;
        let count = match &known.state {
            PodState::New => &mut counts.undecided,
            PodState::Gated => {
                if sign > 0 {
                    self.gated.insert(key.clone());
                } else {
                    self.gated.remove(key);
                }
                &mut counts.gated
            }
            PodState::Waiting(why) => {
                let pods = self.waiting.entry(Arc::clone(why)).or_default();
                if sign > 0 {
                    pods.insert(key.clone());
                } else {
                    pods.remove(key);
                    if pods.is_empty() {
                        self.waiting.remove(why);
                    }
                }
                &mut counts.waiting
            }
            PodState::Bound(_) | PodState::Ended => &mut counts.bound,
        };
        *count = count.saturating_add_signed(sign as isize);
    }

    /// How many pods are where.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The reasons for which pods wait, those of the most pods first.
    pub(crate) fn waiting(&self) -> Vec<WaitingGroup<'_>> {
        let mut all: Vec<_> = self.waiting.iter().map(|(why, pods)| WaitingGroup { why, pods }).collect();
        all.sort_by_key(|group| std::cmp::Reverse(group.pods.len()));
        all
    }

    /// The pods with gates.
    pub(crate) fn gated(&self) -> &BTreeSet<PodKey> {
        &self.gated
    }

    /// The nodes by zone and name.
    pub(crate) fn nodes(&self) -> impl ExactSizeIterator<Item = NodeLoad<'_>> {
        self.nodes.iter().map(|((zone, name), node)| NodeLoad {
            name,
            zone,
            used: self.loads.get(name).cloned().unwrap_or_default(),
            allocatable: Load {
                milli_cpu: node.allocatable.milli_cpu,
                memory: node.allocatable.memory,
                pods: node.allocatable.allowed_pod_number,
            },
            cordoned: node.unschedulable,
        })
    }

    /// What is on all nodes, and what there is.
    pub(crate) fn total(&self) -> (Load, Load) {
        let (mut used, mut allocatable) = (Load::default(), Load::default());
        for node in self.nodes() {
            used.add(&node.used, 1);
            allocatable.add(&node.allocatable, 1);
        }
        (used, allocatable)
    }

    /// What has happened, the last first.
    pub(crate) fn latest(&self) -> impl Iterator<Item = &(Duration, Activity)> {
        self.activities.iter().rev()
    }

    /// What has happened from this number on, and the number to ask with next. What has been
    /// forgotten is left out.
    pub(crate) fn since(&self, number: usize) -> (impl Iterator<Item = &(Duration, Activity)>, usize) {
        let new = self.activities.iter().skip(number.saturating_sub(self.forgotten));
        (new, self.forgotten + self.activities.len())
    }

    /// Whether the scheduler has nothing more to say: nothing is undecided, and nothing has changed
    /// for so long.
    pub(crate) fn is_settled(&self, at: Duration, quiet: Duration) -> bool {
        self.counts.undecided == 0 && at.saturating_sub(self.changed) >= quiet
    }

    /// When something last changed.
    pub(crate) fn last_change(&self) -> Duration {
        self.changed
    }

    /// When the last pod was bound.
    pub(crate) fn last_bound(&self) -> Option<Duration> {
        self.last_bound
    }

    /// How long pods took to be bound where the first attempt succeeded: half of them at most, and
    /// the slowest.
    pub(crate) fn latencies(&self) -> Option<(Duration, Duration)> {
        let mut took = self.bound_at_once.clone();
        took.sort_unstable();
        Some((*took.get(took.len().saturating_sub(1) / 2)?, *took.last()?))
    }
}

fn zone_of(node: &NodeRecord) -> Arc<str> {
    const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
    LABELS.iter().find_map(|label| node.labels.get(label)).cloned().unwrap_or_default()
}

/// A pod as people name it: the namespace `default` goes without saying.
pub(crate) fn display_name(pod: &PodKey) -> String {
    if &*pod.namespace == "default" { pod.name.to_string() } else { pod.to_string() }
}

#[cfg(test)]
mod tests;
