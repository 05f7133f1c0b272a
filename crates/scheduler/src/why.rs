//! Why a pod has no node: what every filter says about every node, and not only the first that
//! refuses it; and which changes of the pod would help.
//!
//! Nothing here changes the scheduler: plugins run on the plain path, and what they want to do is dropped.

mod fixes;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::PodKey;
use supercargo_framework::resource::names;
use supercargo_framework::taint::{Taint, first_untolerated};
use supercargo_framework::{ClusterEvent, CycleState, NodeIndex, NodeInfo, Now, PodInfo, Status, Text};
use supercargo_runtime::diagnosis::Diagnosis;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::profile::ProfileIndex;

pub use self::fixes::{Change, Fix};
use crate::attempt::post_filter;
use crate::cycle::{Cycle, Prepared};
use crate::scheduler::Scheduler;

/// The most refusals that are told apart. Further reasons of a plugin count as one: a plugin may
/// name each node in its reason.
const MOST_REFUSALS: usize = 200;
/// Bytes.
const MIB: i64 = 1 << 20;

/// Why a pod has no node, or which nodes fit.
#[derive(Clone, Debug)]
pub struct Why {
    /// The profile whose plugins answer: the pod's own, or the first one if it names none of them.
    pub profile: Arc<str>,
    /// The number of nodes.
    pub nodes: usize,
    /// The message in the pod's condition (upstream's text). Empty if a node fits.
    pub message: String,
    /// What refuses nodes, in the order in which the profile runs its filters.
    pub refusals: Vec<Refusal>,
    /// How many nodes the first filter that refuses them refuses for each reason: the counts of the
    /// message, if PreFilter lets the pod pass and no room is promised to others.
    pub first: BTreeMap<Text, usize>,
    /// The nodes that fit, with their scores; the best first.
    pub feasible: Vec<(Arc<str>, i64)>,
    /// The node on which preemption would make room.
    pub preemption: Option<Arc<str>>,
    /// The changes of the pod that help. Each was tried.
    pub fixes: Vec<Fix>,
    /// The events after which the pod is tried again, by the plugin that registers for them.
    pub wakes_on: Vec<(Text, Vec<ClusterEvent>)>,
}

/// A reason for which nodes are refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The plugin; empty for room that is promised to nominated pods.
    pub plugin: Text,
    /// Its reason (upstream's text).
    pub reason: Text,
    /// What the reason does not say.
    pub detail: Detail,
    /// The number of nodes that it refuses, whatever else refuses them.
    pub nodes: usize,
    /// The number of nodes that nothing else refuses.
    pub only: usize,
    /// The number of nodes that neither this nor an earlier refusal leaves out.
    pub left: usize,
}

/// What a reason does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    None,
    /// The taint that the pod does not tolerate.
    Taint(Taint),
    /// The resource that is short.
    Short(Shortage),
}

/// A resource of which nodes have too little left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Its name.
    pub resource: Arc<str>,
    /// What the pod requests; CPU in milli-cores.
    pub requested: i64,
    /// The most that is free: on the nodes that nothing else refuses, if there are any.
    pub free: i64,
    /// The node with that much.
    pub node: Arc<str>,
}

/// Why no answer is possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyError {
    /// A plugin failed.
    #[error("{0}")]
    Failed(String),
}

/// What tells two refusals apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// The position of the filter; PreFilter comes before, nominated pods come after all of them.
    place: usize,
    plugin: Text,
    reason: Text,
    taint: Option<(Arc<str>, Arc<str>, &'static str)>,
}

/// A refusal while nodes are visited.
struct Row {
    key: Key,
    taint: Option<Taint>,
    nodes: Vec<NodeIndex>,
}

/// All refusals, and which of them each node has.
#[derive(Default)]
struct Table {
    rows: Vec<Row>,
    row_of: BTreeMap<Key, usize>,
    of_node: FxHashMap<NodeIndex, SmallVec<[usize; 4]>>,
}

impl Table {
    fn refuse(
        &mut self,
        node: &NodeInfo,
        index: NodeIndex,
        place: usize,
        plugin: &Text,
        status: &Status,
        pod: &PodInfo,
    ) {
        let taint = (**plugin == *"TaintToleration")
            .then(|| first_untolerated(&node.node().taints, &pod.spec.tolerations))
            .flatten();
        for reason in status.reasons() {
            let mut key = Key {
                place,
                plugin: plugin.clone(),
                reason: reason.clone(),
                taint: taint.map(|it| (Arc::clone(&it.key), Arc::clone(&it.value), it.effect.as_str())),
            };
            if self.rows.len() >= MOST_REFUSALS && !self.row_of.contains_key(&key) {
                (key.reason, key.taint) = ("other reasons".into(), None);
            }
            let Self { rows, row_of, of_node } = self;
            let row = *row_of.entry(key).or_insert_with_key(|key| {
                rows.push(Row { key: key.clone(), taint: taint.cloned(), nodes: Vec::new() });
                rows.len() - 1
            });
            let of_node = of_node.entry(index).or_default();
            // Other reasons may stand for several of one node.
            if !of_node.contains(&row) {
                of_node.push(row);
                rows[row].nodes.push(index);
            }
        }
    }

    /// The reasons of the first filter that refuses a node, and on how many nodes.
    fn first(&self) -> BTreeMap<Text, usize> {
        let mut counts = BTreeMap::new();
        for rows in self.of_node.values() {
            let keys = || rows.iter().map(|row| &self.rows[*row].key);
            let first = keys().map(|key| key.place).min();
            for key in keys().filter(|key| Some(key.place) == first) {
                *counts.entry(key.reason.clone()).or_default() += 1;
            }
        }
        counts
    }

    /// The refusals in the order of the filters; of one filter, those of most nodes first.
    fn refusals(mut self, cycle: &Cycle<'_>, nodes: usize) -> Vec<Refusal> {
        self.rows.sort_by(|a, b| {
            (a.key.place, b.nodes.len()).cmp(&(b.key.place, a.nodes.len())).then_with(|| a.key.cmp(&b.key))
        });
        let mut gone = vec![false; self.of_node.keys().map(|index| index.0 as usize + 1).max().unwrap_or(0)];
        let mut left = nodes;
        let mut refusals = Vec::with_capacity(self.rows.len());
        for Row { key, taint, nodes } in self.rows {
            for index in &nodes {
                let gone = &mut gone[index.0 as usize];
                left -= usize::from(!std::mem::replace(gone, true));
            }
            let only: Vec<NodeIndex> =
                nodes.iter().copied().filter(|index| self.of_node[index].len() == 1).collect();
            let detail = match taint {
                Some(taint) => Detail::Taint(taint),
                None => shortage(cycle, &key, if only.is_empty() { &nodes } else { &only })
                    .map_or(Detail::None, Detail::Short),
            };
            refusals.push(Refusal {
                plugin: key.plugin,
                reason: key.reason,
                detail,
                nodes: nodes.len(),
                only: only.len(),
                left,
            });
        }
        refusals
    }
}

/// How much of a resource is missing, if that is the reason. Free bytes are rounded down to Mi, so
/// that people can read and write them.
fn shortage(cycle: &Cycle<'_>, key: &Key, nodes: &[NodeIndex]) -> Option<Shortage> {
    let resource: Arc<str> = key.reason.strip_prefix("Insufficient ")?.into();
    let requested = cycle.pod.spec.requests.resource.get(&resource);
    let is_in_bytes = [names::MEMORY, names::EPHEMERAL_STORAGE].contains(&&*resource);
    let free = |index: &NodeIndex| {
        let node = cycle.cx.node(*index);
        let free = node.allocatable().get(&resource) - node.requested().get(&resource);
        (if is_in_bytes && free > MIB { free - free % MIB } else { free }, Arc::clone(node.name()))
    };
    // Of equal nodes the first in visiting order.
    let (free, node) =
        nodes.iter().map(free).reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    (requested > 0).then_some(Shortage { resource, requested, free, node })
}

impl Scheduler {
    /// The pod of this key, with or without a node.
    pub fn pod(&self, key: &PodKey) -> Option<&Arc<PodInfo>> {
        let waiting = self.pending.get(key).or_else(|| self.unclaimed_pods.get(key));
        waiting.or_else(|| self.cache.pods().find(|pod| pod.key() == *key))
    }

    /// Why the pod has no node. The pod need not be known. Extenders are not asked.
    pub fn why(&mut self, now: Now, pod: &Arc<PodInfo>) -> Result<Why, WhyError> {
        self.cache.refreshed();
        let profile = self.profile_of(pod).unwrap_or(ProfileIndex(0));
        let mut why = self.with_cycle(now, pod, profile, explain)?;
        why.profile = Arc::clone(&self.profiles.get(profile).scheduler_name);
        if why.feasible.is_empty() {
            why.fixes = self.fixes(now, profile, pod, &why);
            why.wakes_on = self.wakes_on(profile, &why);
        }
        Ok(why)
    }

    /// The events after which the queue tries the pod again: those of the plugins that refuse nodes.
    fn wakes_on(&self, profile: ProfileIndex, why: &Why) -> Vec<(Text, Vec<ClusterEvent>)> {
        let refuses = |plugin: &Text| why.refusals.iter().any(|refusal| refusal.plugin == *plugin);
        let events = self.profiles.get(profile).events.iter().filter(|(plugin, _)| refuses(plugin));
        events
            .map(|(plugin, events)| (plugin.clone(), events.iter().map(|it| it.event.clone()).collect()))
            .collect()
    }
}

/// Asks every filter about every node.
fn explain(cycle: &Cycle<'_>) -> Result<Why, WhyError> {
    let failed = |kind: FailureKind| WhyError::Failed(kind.to_string());
    let (mut state, mut diagnosis) = (CycleState::default(), Diagnosis::default());
    let nodes = cycle.cx.nodes().order();
    let mut table = Table::default();
    match cycle.pre_filter(&mut state, &mut diagnosis).map_err(failed)? {
        Prepared::Nodes(named) => {
            let not_named = named.is_some().then(|| crate::cycle::not_named(&diagnosis));
            let is_named = |node: &NodeInfo| named.as_ref().is_none_or(|names| names.contains(node.name()));
            for index in nodes {
                let node = cycle.cx.node(*index);
                if let Some(status) = not_named.as_ref().filter(|_| !is_named(node)) {
                    let plugins = diagnosis.unschedulable_plugins.iter();
                    let plugin = Text::from(plugins.map(|it| &**it).collect::<Vec<_>>().join(" "));
                    table.refuse(node, *index, 0, &plugin, status, cycle.pod);
                }
                ask_filters(cycle, &state, *index, &mut table)?;
            }
        }
        Prepared::Rejected => {
            let status = diagnosis.statuses.absent.clone().unwrap_or_default();
            for index in nodes {
                table.refuse(cycle.cx.node(*index), *index, 0, &status.plugin().clone(), &status, cycle.pod);
            }
        }
    }
    let mut why = Why {
        profile: Arc::default(),
        nodes: nodes.len(),
        message: String::new(),
        first: table.first(),
        refusals: table.refusals(cycle, nodes.len()),
        feasible: Vec::new(),
        preemption: None,
        fixes: Vec::new(),
        wakes_on: Vec::new(),
    };
    decide(cycle, &mut why).map_err(failed)?;
    Ok(why)
}

/// Asks every filter about a node, as it is; then all of them, with its nominated pods.
fn ask_filters(
    cycle: &Cycle<'_>,
    state: &CycleState,
    index: NodeIndex,
    table: &mut Table,
) -> Result<(), WhyError> {
    let (node, filters) = (cycle.cx.node(index), cycle.filters(state));
    let mut fits = true;
    for (place, filter) in filters.iter().enumerate() {
        let status = cycle.filter_node(usize::MAX, &[*filter], state, node);
        if status.is_rejected() {
            table.refuse(node, index, 1 + place, status.plugin(), &status, cycle.pod);
        } else if !status.is_success() {
            return Err(WhyError::Failed(status.message()));
        }
        fits &= status.is_success();
    }
    if fits && cycle.has_nominated(node) && cycle.verdict(state, index).is_rejected() {
        let promised = Status::unschedulable("room on the node is promised to nominated pods");
        table.refuse(node, index, usize::MAX, &Text::default(), &promised, cycle.pod);
    }
    Ok(())
}

/// Runs the cycle itself: its message, or the nodes that fit.
fn decide(cycle: &Cycle<'_>, why: &mut Why) -> Result<(), FailureKind> {
    let mut state = CycleState::default();
    match cycle.feasible(&mut state, &mut 0) {
        Ok(feasible) => {
            let scores = cycle.scores(&mut state, &feasible)?;
            let names = feasible.iter().map(|index| Arc::clone(cycle.cx.node(*index).name()));
            why.feasible = names.zip(scores).collect();
            // Stable: of equal nodes, the first in visiting order is chosen.
            why.feasible.sort_by_key(|(_, score)| std::cmp::Reverse(*score));
        }
        Err(FailureKind::Fit(mut error)) => {
            if let Nomination::Override(Some(node)) = post_filter(cycle, &state, &mut error) {
                why.preemption = Some(node);
            }
            why.message = error.to_string();
        }
        Err(FailureKind::Rejected(message)) => why.message = message,
        Err(kind) => return Err(kind),
    }
    Ok(())
}
