//! Why a pod has no node: what every filter says about every node, and not only the first that
//! refuses it; and which changes of the pod would help.
//!
//! Nothing here changes the scheduler: plugins run on the plain path, and what they want to do is
//! dropped.

mod fixes;
mod group;

use std::cmp::Reverse;
#[cfg(test)]
use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::PodKey;
use supercargo_framework::resource::names;
use supercargo_framework::taint::{Taint, untolerated};
use supercargo_framework::{ClusterEvent, CycleState, NodeIndex, NodeInfo, Now, PodInfo, Status, Text};
use supercargo_runtime::diagnosis::{Diagnosis, FitError};
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::profile::ProfileIndex;

pub(crate) use self::fixes::{CORDON, NODE_CONDITIONS};
pub use self::fixes::{Fix, PodFix};
pub use self::group::{Obstacle, WhyGroup};
use crate::attempt::post_filter;
use crate::scheduler::Scheduler;
use supercargo_evaluation::cycle::{Cycle, PreFilterOutcome, not_named};
use supercargo_evaluation::filtering::Filters;
use supercargo_evaluation::scoring::PluginScores;

/// The most reasons of a plugin that stay apart; further ones count as one. A plugin may name each
/// node in its reason.
const MOST_REASONS: usize = 50;
/// The reason that stands for further ones.
const OTHER_REASONS: &str = "other reasons";
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
    /// The nodes that fit, with their total scores; the best first. Of a nominated pod, only its
    /// node if that fits.
    pub feasible: Vec<(Arc<str>, i64)>,
    /// What the plugins score these nodes, in the same order.
    pub scores: Vec<PluginScores>,
    /// The node on which preemption would make room.
    pub preemption: Option<Arc<str>>,
    /// The changes of the pod that help. Each was tried.
    pub fixes: Vec<Fix>,
    /// The events after which the pod is tried again, by the plugin that registers for them.
    pub wakes_on: Vec<(Text, Vec<ClusterEvent>)>,
    /// The trial of the pod's group. [`Fork::why`](crate::Fork::why) makes none.
    pub group: Option<WhyGroup>,
}

/// A reason for which nodes are refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The plugin, or several that together name no node. Empty for room that is reserved.
    pub plugin: Text,
    /// Its reason (upstream's text).
    pub reason: Text,
    /// What the reason does not say.
    pub detail: Detail,
    /// The nodes that it refuses, whatever else refuses them, in visiting order.
    pub nodes: Vec<Arc<str>>,
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
    /// The node has room, which is reserved for nominated pods.
    Nominated,
}

/// A resource of which nodes have too little left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Its name.
    pub resource: Arc<str>,
    /// What the pod requests; CPU in milli-cores.
    pub requested: i64,
    /// The most that is free: on the nodes that nothing else refuses, if there are any. Bytes are
    /// rounded down to Mi, so that people can read and write them.
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
    /// A copy would need what only a controller makes.
    #[error("copies of the pod would need a volume of their own, or claims that are not there yet")]
    Claims,
    /// The answer took too long.
    #[error("timed out")]
    Stopped,
}

impl From<FailureKind> for WhyError {
    fn from(kind: FailureKind) -> Self {
        Self::Failed(kind.to_string())
    }
}

/// What tells two refusals of a filter apart.
struct Key {
    /// The position of the filter; PreFilter comes before, nominated pods come after all of them.
    place: usize,
    plugin: Text,
    reason: Text,
    taint: Option<Taint>,
}

/// All refusals, and which of them each node has.
#[derive(Default)]
struct Table {
    rows: Vec<(Key, Vec<NodeIndex>)>,
    /// The rows of each filter: [`MOST_REASONS`], and one for all others.
    of_place: FxHashMap<usize, Vec<usize>>,
    of_node: RowsOfNodes,
}

/// The rows of each node that is refused.
pub(crate) type RowsOfNodes = FxHashMap<NodeIndex, SmallVec<[usize; 4]>>;

impl Table {
    /// Notes that a filter, or what stands at `place` instead, refuses a node.
    fn refuse(&mut self, index: NodeIndex, node: &NodeInfo, place: usize, status: &Status, pod: &PodInfo) {
        let plugin = status.plugin();
        for reason in status.reasons() {
            if **plugin == *"TaintToleration" {
                // The filter names the first taint only, in a text without it.
                for taint in untolerated(&node.node().taints, &pod.spec.tolerations) {
                    // A cordon is one reason, not two.
                    if *taint.key != *CORDON || !self.is_refused_by(index, "NodeUnschedulable") {
                        self.note(index, place, plugin, reason, Some(taint));
                    }
                }
            } else {
                self.note(index, place, plugin, reason, None);
            }
        }
    }

    fn note(&mut self, index: NodeIndex, place: usize, plugin: &Text, reason: &Text, taint: Option<&Taint>) {
        let Self { rows, of_place, of_node } = self;
        let of_place = of_place.entry(place).or_default();
        let is_it = |row: &usize| {
            let (key, _) = &rows[*row];
            key.plugin == *plugin && key.reason == *reason && key.taint.as_ref() == taint
        };
        let row = of_place.iter().copied().find(is_it).or_else(|| of_place.get(MOST_REASONS).copied());
        let row = row.unwrap_or_else(|| {
            let (reason, taint) = match of_place.len() {
                MOST_REASONS => (OTHER_REASONS.into(), None),
                _ => (reason.clone(), taint.cloned()),
            };
            of_place.push(rows.len());
            rows.push((Key { place, plugin: plugin.clone(), reason, taint }, Vec::new()));
            rows.len() - 1
        });
        let of_node = of_node.entry(index).or_default();
        // One row may stand for several reasons of a node.
        if !of_node.contains(&row) {
            of_node.push(row);
            rows[row].1.push(index);
        }
    }

    fn is_refused_by(&self, index: NodeIndex, plugin: &str) -> bool {
        let rows = self.of_node.get(&index).into_iter().flatten();
        rows.map(|row| &self.rows[*row].0).any(|key| *key.plugin == *plugin)
    }

    fn is_refused(&self, index: NodeIndex) -> bool {
        self.of_node.contains_key(&index)
    }

    /// Sorts the rows in the order of the filters; of one filter, those of most nodes first.
    fn sort(&mut self) {
        let mut rows: Vec<_> = take(&mut self.rows).into_iter().enumerate().collect();
        rows.sort_by(|(_, (a, of_a)), (_, (b, of_b))| {
            let rank = (a.place, of_b.len()).cmp(&(b.place, of_a.len()));
            rank.then_with(|| a.reason.cmp(&b.reason))
        });
        let mut places = vec![0; rows.len()];
        for (place, (old, row)) in rows.into_iter().enumerate() {
            places[old] = place;
            self.rows.push(row);
        }
        for rows in self.of_node.values_mut() {
            rows.iter_mut().for_each(|row| *row = places[*row]);
        }
    }

    /// The refusals, and those of each node by their places.
    fn refusals(mut self, cycle: &Cycle<'_>) -> (Vec<Refusal>, RowsOfNodes) {
        let nodes = cycle.cx.nodes();
        self.sort();
        let (mut left, mut gone) = (nodes.order().len(), FxHashSet::default());
        let mut refusals = Vec::with_capacity(self.rows.len());
        for (key, refused) in self.rows {
            for index in &refused {
                left -= usize::from(gone.insert(*index));
            }
            let is_only = |index: &NodeIndex| self.of_node[index].len() == 1;
            let only: Vec<NodeIndex> = refused.iter().copied().filter(is_only).collect();
            let nearest = if only.is_empty() { &refused } else { &only };
            let detail = match key.taint {
                Some(taint) => Detail::Taint(taint),
                None if key.place == NOMINATED => Detail::Nominated,
                None if *key.plugin == *"NodeResourcesFit" => {
                    shortage(cycle, &key.reason, nearest).map_or(Detail::None, Detail::Short)
                }
                None => Detail::None,
            };
            refusals.push(Refusal {
                plugin: key.plugin,
                reason: key.reason,
                detail,
                nodes: refused.iter().map(|index| Arc::clone(cycle.cx.node(*index).name())).collect(),
                only: only.len(),
                left,
            });
        }
        (refusals, self.of_node)
    }
}

/// The place of PreFilter.
const PRE_FILTER: usize = 0;
/// The place of nominated pods.
const NOMINATED: usize = usize::MAX;

/// How much of a resource is missing, if that is the reason.
fn shortage(cycle: &Cycle<'_>, reason: &str, nodes: &[NodeIndex]) -> Option<Shortage> {
    let resource: Arc<str> = reason.strip_prefix("Insufficient ")?.into();
    let is_in_bytes = [names::MEMORY, names::EPHEMERAL_STORAGE].contains(&&*resource);
    let free = |index: &NodeIndex| {
        let node = cycle.cx.node(*index);
        let free = node.allocatable().get(&resource).saturating_sub(node.requested().get(&resource));
        (if is_in_bytes && free > MIB { free - free % MIB } else { free }, Arc::clone(node.name()))
    };
    // Of equal nodes the first in visiting order.
    let (free, node) =
        nodes.iter().map(free).reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    let requested = cycle.pod.spec.requests.resource.get(&resource);
    Some(Shortage { resource, requested, free, node })
}

impl Scheduler {
    /// See [`Fork::pod`](crate::Fork::pod).
    pub(crate) fn pod(&self, key: &PodKey) -> Option<&Arc<PodInfo>> {
        let waiting = self.pending.get(key).or_else(|| self.unclaimed_pods.get(key));
        let is_it = |pod: &PodInfo| pod.name == key.name && pod.namespace == key.namespace;
        waiting.or_else(|| self.cache.pods().find(|pod| is_it(pod)))
    }

    /// The profile that answers questions about the pod: its own, or the first one if it has none.
    pub(crate) fn answering_profile(&self, pod: &PodInfo) -> ProfileIndex {
        self.profile_of(pod).unwrap_or(ProfileIndex(0))
    }

    /// See [`Fork::why`](crate::Fork::why).
    pub(crate) fn why(&mut self, now: Now, pod: &Arc<PodInfo>) -> Result<Why, WhyError> {
        self.cache.refreshed();
        let profile = self.answering_profile(pod);
        let explained = self.with_cycle(now, pod, profile, explain)?;
        let fixes = if explained.why.feasible.is_empty() {
            self.fixes(now, profile, pod, &explained)
        } else {
            Vec::new()
        };
        let Explained { mut why, failure, .. } = explained;
        why.fixes = fixes;
        if let Some((_, error)) = failure {
            let blamed = &error.diagnosis.unschedulable_plugins;
            let events = self.profiles.get(profile).events.iter();
            let events = events.filter(|(plugin, _)| blamed.contains(plugin));
            let event = |(plugin, events): &(Text, Vec<_>)| (plugin.clone(), registered(events));
            why.wakes_on = events.map(event).collect();
        }
        Ok(why)
    }

    /// See [`Fork::why_there`](crate::Fork::why_there).
    pub(crate) fn why_there(&mut self, now: Now, pod: &Arc<PodInfo>) -> Result<Why, WhyError> {
        let is_aside = self.cache.set_aside(&pod.uid);
        let without_node = Arc::new(PodInfo { node_name: None, ..PodInfo::clone(pod) });
        let why = self.why(now, &without_node);
        if is_aside {
            self.cache.put_back(&pod.uid);
        }
        let group = if pod.is_assigned() { None } else { self.why_group(now, pod) };
        Ok(Why { group, ..why? })
    }
}

fn registered(events: &[supercargo_framework::event::EventRegistration]) -> Vec<ClusterEvent> {
    events.iter().map(|registration| registration.event.clone()).collect()
}

/// Why, and what led to it.
pub(crate) struct Explained {
    pub(crate) why: Why,
    /// The refusals of each node.
    pub(crate) rows: RowsOfNodes,
    /// The state and the error of the cycle, if no node fits.
    pub(crate) failure: Option<(CycleState, Box<FitError>)>,
}

/// Asks every filter about every node.
pub(crate) fn explain(cycle: &Cycle<'_>) -> Result<Explained, WhyError> {
    let (mut state, mut diagnosis) = (CycleState::default(), Diagnosis::default());
    let (nodes, mut table) = (cycle.cx.nodes().order(), Table::default());
    // The answer of the cycle, if it asks each node and nothing else.
    let mut answer = None;
    match cycle.pre_filter(&mut state, &mut diagnosis)? {
        PreFilterOutcome::Nodes(named) => {
            let plugins: Vec<Text> = diagnosis.unschedulable_plugins.iter().cloned().collect();
            let by = Text::from(plugins.iter().map(|it| &**it).collect::<Vec<_>>().join(", "));
            let not_named = not_named(&diagnosis).by(by);
            let filters = cycle.filters(&state);
            let is_plain = named.is_none()
                && !nodes.is_empty()
                && cycle.sampling.is_none()
                && cycle.pod.status.nominated_node_name.is_none();
            let mut feasible = Vec::new();
            for index in nodes {
                let node = cycle.cx.node(*index);
                let is_named = named.as_ref().is_none_or(|names| names.contains(node.name()));
                if !is_named {
                    table.refuse(*index, node, PRE_FILTER, &not_named, cycle.pod);
                }
                // The filters of plugins that have named other nodes would say the same again.
                let asks = |plugin: &str| is_named || !plugins.iter().any(|it| **it == *plugin);
                match ask_filters(cycle, &filters, &state, *index, asks, &mut table) {
                    None => feasible.push(*index),
                    Some(first) if !is_plain => drop(first),
                    Some(first) if first.is_rejected() => diagnosis.set(*index, first),
                    Some(first) => return Err(FailureKind::Internal(first.message()).into()),
                }
            }
            if is_plain {
                answer = Some(if feasible.is_empty() {
                    Err(FailureKind::no_fit(nodes.len(), diagnosis))
                } else {
                    Ok(feasible)
                });
            }
        }
        PreFilterOutcome::Rejected => {
            let mut status = diagnosis.statuses.absent.clone().unwrap_or_default();
            if status.plugin().is_empty() {
                status = status.by("PreFilter");
            }
            for index in nodes {
                table.refuse(*index, cycle.cx.node(*index), PRE_FILTER, &status, cycle.pod);
            }
        }
    }
    let answer = answer.unwrap_or_else(|| {
        state = CycleState::default();
        cycle.feasible(&mut state, &mut 0)
    });
    let (refusals, rows) = table.refusals(cycle);
    let mut why = Why {
        profile: Arc::clone(&cycle.profile.scheduler_name),
        nodes: nodes.len(),
        message: String::new(),
        refusals,
        feasible: Vec::new(),
        scores: Vec::new(),
        preemption: None,
        fixes: Vec::new(),
        wakes_on: Vec::new(),
        group: None,
    };
    let failure = decide(cycle, state, answer, &mut why)?;
    Ok(Explained { why, rows, failure })
}

/// Asks filters about a node, as it is; then all of them, with its nominated pods. Returns the
/// status of the first one that refuses it.
fn ask_filters(
    cycle: &Cycle<'_>,
    filters: &Filters<'_>,
    state: &CycleState,
    index: NodeIndex,
    asks: impl Fn(&str) -> bool,
    table: &mut Table,
) -> Option<Status> {
    let (node, mut first) = (cycle.cx.node(index), None);
    for (place, filter) in filters.iter().enumerate().filter(|(_, filter)| asks(filter.name)) {
        let status = cycle.filter_node(usize::MAX, &[*filter], state, node);
        if !status.is_success() {
            // An error refuses, too: the cycle asks no further filter about a node that is refused.
            table.refuse(index, node, PRE_FILTER + 1 + place, &status, cycle.pod);
            first.get_or_insert(status);
        }
    }
    // The cycle asks with the nominated pods first.
    if cycle.has_nominated(node) {
        let status = cycle.verdict(state, index);
        if status.is_rejected() && !table.is_refused(index) {
            let reserved = Status::unschedulable("the room is reserved for nominated pods");
            table.refuse(index, node, NOMINATED, &reserved, cycle.pod);
        }
        first = (!status.is_success()).then_some(status);
    }
    first
}

/// Completes the cycle: its message, or the nodes that fit. Returns what there is if none does.
fn decide(
    cycle: &Cycle<'_>,
    mut state: CycleState,
    answer: Result<Vec<NodeIndex>, FailureKind>,
    why: &mut Why,
) -> Result<Option<(CycleState, Box<FitError>)>, FailureKind> {
    match answer {
        Ok(feasible) => rank(cycle, &mut state, &feasible, why)?,
        Err(FailureKind::Fit(mut error)) => {
            let failure = (state.clone(), error.clone());
            if let Nomination::Override(Some(node)) = post_filter(cycle, &state, &mut error) {
                why.preemption = Some(node);
            }
            why.message = error.to_string();
            return Ok(Some(failure));
        }
        Err(FailureKind::Rejected(message)) => why.message = message,
        Err(kind) => return Err(kind),
    }
    Ok(None)
}

/// Ranks the nodes that fit.
fn rank(
    cycle: &Cycle<'_>,
    state: &mut CycleState,
    feasible: &[NodeIndex],
    why: &mut Why,
) -> Result<(), FailureKind> {
    let scores = cycle.score_table(state, feasible)?;
    let total = |node: usize| scores.iter().map(|it| it.scores[node].1 * it.weight).sum::<i64>();
    let totals: Vec<i64> = (0..feasible.len()).map(total).collect();
    let mut order: Vec<usize> = (0..feasible.len()).collect();
    // Stable: of equal nodes, the first in visiting order is chosen.
    order.sort_by_key(|node| Reverse(totals[*node]));
    let name = |node: usize| Arc::clone(cycle.cx.node(feasible[node]).name());
    why.feasible = order.iter().map(|node| (name(*node), totals[*node])).collect();
    let in_order = |it: PluginScores| {
        let scores = order.iter().map(|node| it.scores[*node]).collect();
        PluginScores { scores, ..it }
    };
    why.scores = scores.into_iter().map(in_order).collect();
    Ok(())
}

#[cfg(test)]
impl Why {
    /// How many nodes the first filter that refuses them refuses for each reason: the counts of the
    /// message, unless PreFilter rejects the pod or room is reserved for others.
    pub(crate) fn first_reasons(&self) -> BTreeMap<Text, usize> {
        let mut of_node: BTreeMap<&str, (&str, Vec<&Text>)> = BTreeMap::new();
        for refusal in &self.refusals {
            for node in &refusal.nodes {
                let (plugin, reasons) = of_node.entry(node).or_insert((&refusal.plugin, Vec::new()));
                if **plugin == *refusal.plugin && !reasons.contains(&&refusal.reason) {
                    reasons.push(&refusal.reason);
                }
            }
        }
        let mut counts = BTreeMap::new();
        for reason in of_node.values().flat_map(|(_, reasons)| reasons) {
            *counts.entry((*reason).clone()).or_default() += 1;
        }
        counts
    }
}
