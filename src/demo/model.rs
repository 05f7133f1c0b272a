//! The demo's view of the cluster, updated by informers.

mod devices;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::objects::Object;
use supercargo_framework::pod::PodKey;
use supercargo_framework::{NodeRecord, PodInfo};

pub(crate) use devices::Devices;

/// Number of activities that are kept.
const MAX_ACTIVITIES: usize = 4096;
/// Reason of the PodScheduled condition of gated pods.
const GATED: &str = "SchedulingGated";

/// State of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    /// Not decided yet.
    New,
    /// The pod has scheduling gates, or its group has not been tried.
    Gated,
    /// The scheduler found no node. Holds the reason.
    Waiting(Arc<str>),
    /// The pod has a node.
    Bound(Arc<str>),
    /// The pod has finished.
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
            // A pod whose gates have just been removed still has the old reason.
            Some(condition) if &*condition.status == "False" && &*condition.reason != GATED => {
                Self::Waiting(Arc::clone(&condition.message))
            }
            // Nothing is said about a pod whose group is incomplete.
            _ if pod.spec.group().is_some() => Self::Gated,
            _ => Self::New,
        }
    }
}

/// A change that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// A pod was bound.
    Bound {
        /// The pod.
        pod: PodKey,
        /// Its node.
        node: Arc<str>,
        /// Time since it could be scheduled.
        took: Duration,
    },
    /// No node was found for a pod.
    Waits {
        /// The pod.
        pod: PodKey,
        /// The reason.
        why: Arc<str>,
    },
    /// Any other change.
    Note(String),
}

/// Number of the scheduler's pods by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// All pods so far.
    pub(crate) arrived: usize,
    /// Pods with a node, including finished ones.
    pub(crate) bound: usize,
    /// Pods without a node that fits.
    pub(crate) waiting: usize,
    /// Pods with scheduling gates, or of a group that has not been tried.
    pub(crate) gated: usize,
    /// Pods without a decision.
    pub(crate) undecided: usize,
}

struct KnownPod {
    pod: Arc<PodInfo>,
    state: PodState,
    /// When it could first be scheduled.
    since: Duration,
}

/// Sum of requests, or allocatable resources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// CPU in millicores.
    pub(crate) milli_cpu: i64,
    /// Memory in bytes.
    pub(crate) memory: i64,
    /// Number of pods.
    pub(crate) pods: i64,
}

impl Load {
    fn of(pod: &PodInfo) -> Self {
        let requests = &pod.requests().resource;
        Self { milli_cpu: requests.milli_cpu, memory: requests.memory, pods: 1 }
    }

    /// Adds or subtracts a load. Wraps, so that subtracting undoes adding.
    fn add(&mut self, other: &Self, sign: i64) {
        let change = |sum: &mut i64, amount: i64| *sum = sum.wrapping_add(sign.wrapping_mul(amount));
        change(&mut self.milli_cpu, other.milli_cpu);
        change(&mut self.memory, other.memory);
        change(&mut self.pods, other.pods);
    }

    /// Shares of CPU and memory relative to `of`.
    pub(crate) fn shares(&self, of: &Self) -> (f64, f64) {
        let share = |part: i64, of: i64| if of > 0 { part as f64 / of as f64 } else { 0.0 };
        (share(self.milli_cpu, of.milli_cpu), share(self.memory, of.memory))
    }
}

/// A node and its load.
#[derive(Clone, Debug)]
pub(crate) struct NodeLoad<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its zone; may be empty.
    pub(crate) zone: &'a str,
    /// Requests of its pods.
    pub(crate) used: Load,
    /// Its allocatable resources.
    pub(crate) allocatable: Load,
    /// Whether the node is cordoned.
    pub(crate) cordoned: bool,
}

/// Pods that wait for the same reason.
#[derive(Clone, Debug)]
pub(crate) struct WaitingGroup<'a> {
    /// The reason.
    pub(crate) why: &'a str,
    /// The pods.
    pub(crate) pods: &'a BTreeSet<PodKey>,
}

/// The demo's view of the cluster.
pub(crate) struct Model {
    scheduler: Arc<str>,
    pods: BTreeMap<PodKey, KnownPod>,
    /// Nodes by zone and name.
    nodes: BTreeMap<(Arc<str>, Arc<str>), Arc<NodeRecord>>,
    /// Zone of each node.
    zones: BTreeMap<Arc<str>, Arc<str>>,
    /// Load by node name. The node may be unknown.
    loads: BTreeMap<Arc<str>, Load>,
    waiting: BTreeMap<Arc<str>, BTreeSet<PodKey>>,
    gated: BTreeSet<PodKey>,
    counts: Counts,
    devices: Devices,
    activities: VecDeque<(Duration, Activity)>,
    /// Errors of objects that the API server rejected.
    rejected: Vec<String>,
    /// Number of activities that were dropped.
    dropped: usize,
    /// Latencies of pods that were bound at the first attempt.
    bound_at_once: Vec<Duration>,
    changed: Duration,
    last_bound: Option<Duration>,
}

impl Model {
    /// An empty model that counts the pods of this scheduler.
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
            devices: Devices::default(),
            activities: VecDeque::new(),
            rejected: Vec::new(),
            dropped: 0,
            bound_at_once: Vec::new(),
            changed: Duration::ZERO,
            last_bound: None,
        }
    }

    /// Adds or updates a pod.
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
            // The gates of a pod that is bound from there were those of its group.
            (Some(before), Some(old)) if *old != PodState::Gated || state != PodState::New => before.since,
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

    /// Removes a pod.
    pub(crate) fn remove_pod(&mut self, at: Duration, key: &PodKey) {
        if let Some(known) = self.pods.remove(key) {
            self.changed = at;
            self.count(key, &known, -1);
        }
    }

    /// Adds or updates a node.
    pub(crate) fn update_node(&mut self, at: Duration, node: &Arc<NodeRecord>, is_in_initial_list: bool) {
        let known = self.take_node(&node.name);
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

    /// Removes a node.
    pub(crate) fn remove_node(&mut self, at: Duration, name: &str) {
        if self.take_node(name).is_some() {
            self.note(at, format!("node {name} leaves"));
        }
    }

    /// Replaces a ResourceSlice or a ResourceClaim.
    pub(crate) fn replace_object(&mut self, old: Option<&Object>, new: Option<&Object>) {
        let devices = |object: Option<&Object>| object.map(Devices::of).unwrap_or_default();
        self.devices.replace(devices(old), devices(new));
    }

    /// Removes a node by name; its zone may have changed.
    fn take_node(&mut self, name: &str) -> Option<Arc<NodeRecord>> {
        let (name, zone) = self.zones.remove_entry(name)?;
        self.nodes.remove(&(zone, name))
    }

    /// Records a note.
    pub(crate) fn note(&mut self, at: Duration, text: String) {
        self.changed = at;
        self.record(at, Activity::Note(text));
    }

    /// Records an object that the API server rejected.
    pub(crate) fn reject(&mut self, at: Duration, error: String) {
        self.note(at, error.clone());
        self.rejected.push(error);
    }

    /// Errors of objects that the API server rejected.
    pub(crate) fn rejected(&self) -> &[String] {
        &self.rejected
    }

    fn is_ours(&self, pod: &PodInfo) -> bool {
        pod.spec.scheduler_name == self.scheduler
    }

    fn record_change(&mut self, at: Duration, key: &PodKey, old: Option<&PodState>, known: &KnownPod) {
        match &known.state {
            PodState::Bound(node) => {
                // The pod was created with a node.
                if old.is_none() && known.pod.status.pod_scheduled.is_none() {
                    return;
                }
                let took = at.saturating_sub(known.since);
                if !matches!(old, Some(PodState::Waiting(_) | PodState::Gated)) {
                    self.bound_at_once.push(took);
                }
                self.last_bound = Some(at);
                let (pod, node) = (key.clone(), Arc::clone(node));
                self.record(at, Activity::Bound { pod, node, took });
            }
            PodState::Waiting(why) => {
                let (pod, why) = (key.clone(), Arc::clone(why));
                self.record(at, Activity::Waits { pod, why });
            }
            PodState::New | PodState::Gated | PodState::Ended => {}
        }
    }

    fn record(&mut self, at: Duration, activity: Activity) {
        if self.activities.len() == MAX_ACTIVITIES {
            self.activities.pop_front();
            self.dropped += 1;
        }
        self.activities.push_back((at, activity));
    }

    /// Adds a pod to the sums, or subtracts it.
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

    /// Number of pods by state.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Devices, and those that claims have.
    pub(crate) fn devices(&self) -> Devices {
        self.devices
    }

    /// Waiting pods by reason, largest group first.
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

    /// Total requests and allocatable resources.
    pub(crate) fn total(&self) -> (Load, Load) {
        let (mut used, mut allocatable) = (Load::default(), Load::default());
        for node in self.nodes() {
            used.add(&node.used, 1);
            allocatable.add(&node.allocatable, 1);
        }
        (used, allocatable)
    }

    /// Activities, latest first.
    pub(crate) fn latest(&self) -> impl Iterator<Item = &(Duration, Activity)> {
        self.activities.iter().rev()
    }

    /// Activities from this number on, without dropped ones, and the number for the next call.
    pub(crate) fn since(&self, number: usize) -> (impl Iterator<Item = &(Duration, Activity)>, usize) {
        let new = self.activities.iter().skip(number.saturating_sub(self.dropped));
        (new, self.dropped + self.activities.len())
    }

    /// Whether all pods are decided, and nothing has changed for `quiet`.
    pub(crate) fn is_settled(&self, at: Duration, quiet: Duration) -> bool {
        self.counts.undecided == 0 && at.saturating_sub(self.changed) >= quiet
    }

    /// Time of the last change.
    pub(crate) fn last_change(&self) -> Duration {
        self.changed
    }

    /// Time of the last binding.
    pub(crate) fn last_bound(&self) -> Option<Duration> {
        self.last_bound
    }

    /// Median and maximum latency of pods that were bound at the first attempt.
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

/// The name of a pod, with its namespace unless that is `default`.
pub(crate) fn display_name(pod: &PodKey) -> String {
    if &*pod.namespace == "default" { pod.name.to_string() } else { pod.to_string() }
}

#[cfg(test)]
pub(super) mod tests;
