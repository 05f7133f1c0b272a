//! What is preempted as one: a pod, or all pods of a group whose `disruptionMode` is `all`. Of
//! several such groups above a pod, the highest counts.

use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;

use supercargo_framework::objects::{GroupKey, GroupKind};
use supercargo_framework::{Context, NodeIndex, NodeInfo, PodInfo, Timestamp};

/// A pod on a node.
#[derive(Clone, Debug)]
pub(super) struct PodOnNode {
    pub(super) pod: Arc<PodInfo>,
    pub(super) node: NodeIndex,
}

/// A pod or a group that may be preempted.
#[derive(Debug)]
pub(super) struct Victim {
    first: PodOnNode,
    /// The other pods of the group.
    others: Vec<PodOnNode>,
    /// That of the root of their groups if the pods have one.
    priority: i32,
    /// As upstream, pods of a group are more important than others even if they are preempted one
    /// by one, and composite groups more than these.
    pub(super) rank: Option<GroupKind>,
    start: Start,
}

/// When a pod started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Start {
    At(Timestamp),
    /// Not yet, and its place among the pods. As upstream, which reads the clock once for
    /// each such pod: those that it reads first have started first.
    NotYet(usize),
}

impl Victim {
    /// Its pods.
    pub(super) fn pods(&self) -> impl Iterator<Item = &PodOnNode> {
        iter::once(&self.first).chain(&self.others)
    }

    fn importance(&self) -> impl Ord + use<> {
        (Reverse(self.priority), Reverse(self.rank), Reverse(self.others.len()), self.start)
    }
}

/// Sorts the most important first; of equal ones, those that came to the node first.
pub(super) fn sort_by_importance(victims: &mut [Victim]) {
    victims.sort_by_key(Victim::importance);
}

/// The pods of some victims.
pub(super) fn pods_of(victims: &[Victim]) -> Vec<Arc<PodInfo>> {
    victims.iter().flat_map(Victim::pods).map(|it| Arc::clone(&it.pod)).collect()
}

/// The groups of pods.
pub(super) struct Groups<'a> {
    /// `None` if the scheduler knows no groups.
    cx: Option<&'a Context<'a>>,
    /// The pods on nodes of groups that are disrupted whole, by group. Filled when such a pod is a
    /// victim.
    whole: OnceCell<BTreeMap<GroupKey, Vec<PodOnNode>>>,
    /// Kept, because a search asks for every pod.
    units: RefCell<BTreeMap<PodGroupName, Unit>>,
}

/// The namespace and the name of a PodGroup.
type PodGroupName = (Arc<str>, Arc<str>);

/// What a PodGroup and the groups above it mean for preemption.
#[derive(Clone, Default)]
struct Unit {
    /// As upstream, that of the last group above the pod that exists.
    priority: Option<i32>,
    /// The highest group that is disrupted whole.
    whole: Option<GroupKey>,
}

impl<'a> Groups<'a> {
    pub(super) fn new(cx: &'a Context<'a>, are_known: bool) -> Self {
        Self { cx: are_known.then_some(cx), whole: OnceCell::new(), units: RefCell::default() }
    }

    /// The pods of a group that is disrupted whole.
    fn pods_of(&self, key: &GroupKey) -> &[PodOnNode] {
        let whole = self.whole.get_or_init(|| {
            let mut whole: BTreeMap<GroupKey, Vec<PodOnNode>> = BTreeMap::new();
            for (node, info) in self.cx.into_iter().flat_map(|cx| cx.nodes().iter()) {
                for pod in info.pods() {
                    if let Some(key) = self.of(pod).whole {
                        whole.entry(key).or_default().push(PodOnNode { pod: Arc::clone(pod), node });
                    }
                }
            }
            whole
        });
        whole.get(key).map_or(&[], Vec::as_slice)
    }

    /// What the groups of a pod mean for preemption.
    fn of(&self, pod: &PodInfo) -> Unit {
        let Some((cx, group)) = self.cx.zip(pod.spec.group()) else { return Unit::default() };
        let key = (Arc::clone(&pod.namespace), Arc::clone(group));
        let mut units = self.units.borrow_mut();
        let unit = units.entry(key).or_insert_with(|| unit(cx, pod.group_key()));
        unit.clone()
    }

    /// The priority of a pod: as upstream, that of the root of its groups, if that exists.
    pub(super) fn priority_of(&self, pod: &PodInfo) -> i32 {
        self.of(pod).priority.unwrap_or(pod.priority)
    }

    /// Whether a pod of the node has a group.
    pub(super) fn are_on(&self, node: &NodeInfo) -> bool {
        self.cx.is_some() && node.pods().iter().any(|pod| pod.spec.group().is_some())
    }

    /// What may be preempted on these nodes: everything with a lower priority, each once.
    pub(super) fn victims_below<'n>(
        &self,
        priority: i32,
        nodes: impl Iterator<Item = (NodeIndex, &'n NodeInfo)>,
    ) -> Vec<Victim> {
        let mut victims: Vec<Victim> = Vec::new();
        let mut seen: BTreeSet<GroupKey> = BTreeSet::new();
        let pods = nodes.flat_map(|(node, info)| info.pods().iter().map(move |pod| (node, pod)));
        for (place, (node, pod)) in pods.enumerate() {
            let unit = self.of(pod);
            let own_priority = unit.priority.unwrap_or(pod.priority);
            if own_priority >= priority {
                continue;
            }
            let is_of_group = self.cx.is_some() && pod.spec.group().is_some();
            let mut rank = is_of_group.then_some(GroupKind::Pods);
            let mut others = Vec::new();
            if let Some(key) = unit.whole {
                if seen.contains(&key) {
                    continue;
                }
                others.extend(self.pods_of(&key).iter().filter(|other| other.pod.uid != pod.uid).cloned());
                rank = Some(key.kind);
                seen.insert(key);
            }
            let started = iter::once(pod).chain(others.iter().map(|other| &other.pod));
            let started = started.filter_map(|pod| pod.status.start_time).min();
            let start = started.map_or(Start::NotYet(place), Start::At);
            let first = PodOnNode { pod: Arc::clone(pod), node };
            victims.push(Victim { first, others, priority: own_priority, rank, start });
        }
        victims
    }
}

fn unit(cx: &Context<'_>, group: Option<Arc<str>>) -> Unit {
    let forest = cx.forest();
    let mut unit = Unit::default();
    let ancestors = group.map(|group| forest.ancestors(&GroupKey::of_pods(group)));
    for key in ancestors.into_iter().flatten() {
        let Some(spec) = forest.spec(&key) else { break };
        unit.priority = Some(spec.priority);
        if spec.is_disrupted_whole {
            unit.whole = Some(key);
        }
    }
    unit
}
