//! What is preempted as one: a pod, or all pods of a group whose `disruptionMode` is `all`.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;

use supercargo_framework::objects::resources::POD_GROUP;
use supercargo_framework::objects::{PodGroup, Typed};
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
    /// That of the group if the pods have one.
    priority: i32,
    /// As upstream, pods of a group are more important than others even if they are preempted one
    /// by one.
    is_of_group: bool,
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
        (Reverse(self.priority), Reverse(self.is_of_group), Reverse(self.others.len()), self.start)
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
    whole: OnceCell<BTreeMap<Arc<str>, Vec<PodOnNode>>>,
}

impl<'a> Groups<'a> {
    pub(super) fn new(cx: &'a Context<'a>, are_known: bool) -> Self {
        Self { cx: are_known.then_some(cx), whole: OnceCell::new() }
    }

    /// The pods of a group that is disrupted whole.
    fn pods_of(&self, key: &str) -> &[PodOnNode] {
        let whole = self.whole.get_or_init(|| {
            let mut whole: BTreeMap<Arc<str>, Vec<PodOnNode>> = BTreeMap::new();
            for (node, info) in self.cx.into_iter().flat_map(|cx| cx.nodes().iter()) {
                for pod in info.pods() {
                    if let Some((key, Some(group))) = self.of(pod)
                        && group.is_disrupted_whole
                    {
                        whole.entry(key).or_default().push(PodOnNode { pod: Arc::clone(pod), node });
                    }
                }
            }
            whole
        });
        whole.get(key).map_or(&[], Vec::as_slice)
    }

    /// The group of a pod, by its key, and itself if it exists.
    fn of(&self, pod: &PodInfo) -> Option<(Arc<str>, Option<Typed<'a, PodGroup>>)> {
        let (cx, key) = (self.cx?, pod.group_key()?);
        let group = cx.get(&POD_GROUP, &key);
        Some((key, group))
    }

    /// The priority of a pod: as upstream, that of its group, if that exists.
    pub(super) fn priority_of(&self, pod: &PodInfo) -> i32 {
        let group = self.of(pod).and_then(|(_, group)| group);
        group.map_or(pod.priority, |group| group.priority)
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
        let mut seen: BTreeSet<Arc<str>> = BTreeSet::new();
        let pods = nodes.flat_map(|(node, info)| info.pods().iter().map(move |pod| (node, pod)));
        for (place, (node, pod)) in pods.enumerate() {
            let group = self.of(pod);
            let of_pod = match &group {
                Some((_, Some(group))) => group.priority,
                _ => pod.priority,
            };
            if of_pod >= priority {
                continue;
            }
            let is_of_group = group.is_some();
            let mut others = Vec::new();
            if let Some((key, Some(group))) = group
                && group.is_disrupted_whole
            {
                if seen.contains(&key) {
                    continue;
                }
                others.extend(self.pods_of(&key).iter().filter(|other| other.pod.uid != pod.uid).cloned());
                seen.insert(key);
            }
            let started = iter::once(pod).chain(others.iter().map(|other| &other.pod));
            let started = started.filter_map(|pod| pod.status.start_time).min();
            let start = started.map_or(Start::NotYet(place), Start::At);
            let first = PodOnNode { pod: Arc::clone(pod), node };
            victims.push(Victim { first, others, priority: of_pod, is_of_group, start });
        }
        victims
    }
}
