//! A plugin that observes every cycle. Before anything changes, it runs every other plugin on every
//! node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};

use supercargo_framework::event::EventRegistration;
use supercargo_framework::labels::Labels;
use supercargo_framework::objects::GroupKey;
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, MAX_NODE_SCORE, Normalize, Permit, PermitPlugin, PreFilter,
    PreFilterPlugin, PreScorePlugin, ReservePlugin,
};
use supercargo_framework::{Code, Context, CycleState, NodeIndex, NodeInfo, Plugin, PodInfo, Status, Uid};
use supercargo_plugins::unsupported_constraints;
use supercargo_scheduler::{PluginLists, ProfileSpec};

use super::calls::lock;
use super::candidates::CandidateRecorder;
use super::group_trials::TrialRecorder;
use crate::oracle::answer::{self, Cycle, Outcome};

/// The probe's name.
const NAME: &str = "Probe";

/// The state that the probes and their reader share.
#[derive(Default)]
pub(super) struct Seen {
    /// The first cycle. A pod that waited may be filtered again after it.
    pub(super) cycle: Option<Cycle>,
    /// The trials of a group's pods.
    pub(super) trials: Vec<Cycle>,
    /// The pods of the group that are reserved.
    reserved: BTreeSet<Uid>,
    /// The node with which Permit began.
    chosen: Option<String>,
    /// The pods nominated for each node before the cycle.
    pub(super) nominated: BTreeMap<String, Vec<Arc<PodInfo>>>,
}

/// A probe per profile.
pub(super) struct Probes {
    by_scheduler_name: BTreeMap<String, Arc<Probe>>,
    seen: Arc<Mutex<Seen>>,
}

impl Probes {
    /// Puts a probe into each profile.
    pub(super) fn install(profiles: &mut [ProfileSpec], has_groups: bool) -> Self {
        let seen = Arc::default();
        let probe = |profile: &mut ProfileSpec| {
            (profile.scheduler_name.clone(), Probe::install(&mut profile.plugins, has_groups, &seen))
        };
        Self { by_scheduler_name: profiles.iter_mut().map(probe).collect(), seen }
    }

    /// Prepares for a cycle: the pods nominated for each node.
    pub(super) fn reset(&self, nominated: BTreeMap<String, Vec<Arc<PodInfo>>>) {
        *lock(&self.seen) = Seen { nominated, ..Seen::default() };
    }

    /// The pod of the last cycle.
    pub(super) fn pod(&self) -> Option<String> {
        Some(lock(&self.seen).cycle.as_ref()?.pod.clone())
    }

    /// The node that the last cycle chose, unless the pod failed before Permit.
    pub(super) fn chosen(&self) -> Option<String> {
        lock(&self.seen).chosen.clone()
    }

    /// The last cycle.
    pub(super) fn take(&self) -> Option<Cycle> {
        lock(&self.seen).cycle.take()
    }

    /// The trials of the last cycle, if it was a group's.
    pub(super) fn take_trials(&self) -> Vec<Cycle> {
        let mut trials = std::mem::take(&mut lock(&self.seen).trials);
        for trial in &mut trials {
            match &trial.result {
                Some(Outcome::Node(node)) if trial.feasible.is_empty() => trial.feasible = vec![node.clone()],
                Some(_) => {}
                // Upstream's side reports nodes only if one was chosen.
                None => {
                    trial.feasible.clear();
                    trial.scores.clear();
                }
            }
        }
        trials
    }

    /// Runs the plugins of the pod's profile.
    pub(super) fn look(&self, cx: &Context<'_>, pod: &PodInfo) -> Option<Cycle> {
        Some(self.by_scheduler_name.get(&*pod.spec.scheduler_name)?.look(cx, pod))
    }
}

/// Observes the cycles of a profile.
struct Probe {
    plugins: PluginLists,
    /// Whether pods have groups.
    has_groups: bool,
    seen: Arc<Mutex<Seen>>,
}

impl Probe {
    /// Puts a probe before the plugins.
    fn install(plugins: &mut PluginLists, has_groups: bool, seen: &Arc<Mutex<Seen>>) -> Arc<Self> {
        let probe = Arc::new(Self { plugins: plugins.clone(), has_groups, seen: Arc::clone(seen) });
        plugins.pre_filter.insert(0, Arc::clone(&probe) as _);
        plugins.pre_score.insert(0, Arc::clone(&probe) as _);
        plugins.reserve.insert(0, Arc::clone(&probe) as _);
        plugins.permit.insert(0, Arc::clone(&probe) as _);
        for plugin in &mut plugins.pod_group_post_filter {
            let (name, points) = (plugin.name(), Arc::clone(plugin).extension_points());
            if let Some(inner) = points.pod_group_post_filter {
                *plugin = Arc::new(TrialRecorder { name, inner, seen: Arc::clone(&probe.seen) });
            }
        }
        for plugin in &mut plugins.post_filter {
            let (name, points) = (plugin.name(), Arc::clone(plugin).extension_points());
            if let Some(inner) = points.post_filter {
                *plugin = Arc::new(CandidateRecorder { name, inner, seen: Arc::clone(&probe.seen) });
            }
        }
        probe
    }

    /// Runs the plugins for a pod.
    fn look(&self, cx: &Context<'_>, pod: &PodInfo) -> Cycle {
        let mut cycle = Cycle { pod: pod.key().to_string(), ..Cycle::default() };
        self.judge(cx, pod, &mut cycle);
        cycle
    }
}

impl Plugin for Probe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        let points = ExtensionPoints::new().pre_filter(&self).pre_score(&self).reserve(&self);
        points.permit(&self).enqueue_extensions(&self)
    }
}

impl EnqueueExtensions for Probe {
    /// It rejects no pod, so no event can help.
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        Vec::new()
    }
}

impl PermitPlugin for Probe {
    fn permit(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, node: &Arc<str>) -> Permit {
        lock(&self.seen).chosen = Some(node.to_string());
        Permit::Allow
    }
}

impl PreFilterPlugin for Probe {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        let cycle = self.look(cx, pod);
        let mut seen = lock(&self.seen);
        if !self.is_member(pod) {
            seen.cycle.get_or_insert(cycle);
        } else if seen.chosen.is_none() {
            // Before Permit.
            state.write(TrialNumber(seen.trials.len()));
            seen.trials.push(cycle);
        }
        PreFilter::Skip
    }
}

/// The position of a trial. A pod that is bound has the state of its trial.
#[derive(Clone, Debug)]
struct TrialNumber(usize);

/// A trial of a group's pod ends with Reserve.
impl ReservePlugin for Probe {
    fn reserve(&self, _: &Context<'_>, state: &mut CycleState, pod: &PodInfo, node: &Arc<str>) -> Status {
        let mut seen = lock(&self.seen);
        seen.reserved.insert(pod.uid.clone());
        let number = state.read::<TrialNumber>().map(|number| number.0);
        if let Some(trial) = number.and_then(|number| seen.trials.get_mut(number)) {
            trial.result.get_or_insert_with(|| Outcome::Node(node.to_string()));
        }
        Status::success()
    }

    fn unreserve(&self, _: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) {
        lock(&self.seen).reserved.remove(&pod.uid);
    }
}

impl PreScorePlugin for Probe {
    fn pre_score(&self, cx: &Context<'_>, _: &mut CycleState, pod: &PodInfo, nodes: &[NodeIndex]) -> Status {
        let is_member = self.is_member(pod);
        let mut seen = lock(&self.seen);
        let cycle = if is_member { seen.trials.last_mut() } else { seen.cycle.as_mut() };
        if let Some(cycle) = cycle {
            // With extenders, the search begins where the last one ended.
            let feasible = cx.nodes().iter().filter(|(index, _)| nodes.contains(index));
            cycle.feasible = feasible.map(|(_, node)| node.name().to_string()).collect();
            self.score(cx, pod, nodes, cycle);
        }
        Status::skip()
    }
}

impl Probe {
    /// Whether the pod is tried with its group.
    fn is_member(&self, pod: &PodInfo) -> bool {
        self.has_groups && pod.spec.group().is_some()
    }

    /// Runs every filter on every node separately.
    fn judge(&self, cx: &Context<'_>, pod: &PodInfo, cycle: &mut Cycle) {
        let mut states: BTreeMap<&'static str, CycleState> = BTreeMap::new();
        let mut out = BTreeSet::new();
        for plugin in &self.plugins.pre_filter {
            let points = Arc::clone(plugin).extension_points();
            let (Some(pre_filter), false) =
                (points.pre_filter, plugin.name() == unsupported_constraints::NAME)
            else {
                continue;
            };
            let state = states.entry(plugin.name()).or_default();
            let (status, nodes) = match pre_filter.pre_filter(cx, state, pod) {
                PreFilter::AllNodes => continue,
                PreFilter::Nodes(names) => (Status::success(), Some(names)),
                PreFilter::Skip => (Status::skip(), None),
                PreFilter::Reject(status) => (status, None),
            };
            if !status.is_success() {
                out.insert(plugin.name());
            }
            let status = in_full(status, format_args!("running PreFilter plugin {:?}: ", plugin.name()));
            let answer::Status { code, reasons } = shown(&status);
            let nodes = nodes.map(|names| {
                let names: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
                names.into_iter().collect()
            });
            cycle.pre_filter.insert(plugin.name().to_owned(), answer::PreFilter { code, reasons, nodes });
        }
        for plugin in self.plugins.filter.iter().filter(|plugin| !out.contains(plugin.name())) {
            let state = states.entry(plugin.name()).or_default();
            for (_, node) in cx.nodes().iter() {
                let status = self.filter(cx, plugin, state, pod, node);
                let status = in_full(status, format_args!("running {:?} filter plugin: ", plugin.name()));
                if !status.is_success() {
                    let verdicts = cycle.filters.entry(node.name().to_string()).or_default();
                    verdicts.insert(plugin.name().to_owned(), shown(&status));
                }
            }
        }
    }

    /// A nominated pod. As upstream, only the names of pods of the same attempt are known.
    fn as_nominated(&self, cx: &Context<'_>, pod: &PodInfo, other: &Arc<PodInfo>) -> Arc<PodInfo> {
        let root = |pod: &PodInfo| cx.forest().root_of(&GroupKey::of_pods(pod.group_key()?));
        if !self.is_member(pod) || !self.is_member(other) || root(pod) != root(other) {
            return Arc::clone(other);
        }
        let (labels, spec) = (Labels::default(), Arc::default());
        Arc::new(PodInfo { priority: 0, labels, spec, ..PodInfo::clone(other) })
    }

    /// Runs a filter on a node as it is and, if nominated pods matter, with them.
    fn filter(
        &self,
        cx: &Context<'_>,
        plugin: &Arc<dyn Plugin>,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        let points = Arc::clone(plugin).extension_points();
        let Some(filter) = points.filter else { return Status::success() };
        let seen = lock(&self.seen);
        let nominated = seen.nominated.get(&**node.name()).into_iter().flatten();
        // Those of the group that have a node are not nominated meanwhile.
        let nominated = nominated.filter(|other| other.uid != pod.uid && !seen.reserved.contains(&other.uid));
        let nominated = nominated.map(|other| self.as_nominated(cx, pod, other));
        let nominated: Vec<_> = nominated.filter(|other| other.priority >= pod.priority).collect();
        if !nominated.is_empty() {
            let (mut state, mut node) = (state.clone(), node.clone());
            for other in nominated {
                node.add_pod(Arc::clone(&other));
                if let Some(extensions) = points.pre_filter.as_ref().and_then(|plugin| plugin.extensions()) {
                    extensions.add_pod(&mut state, pod, &other, &node);
                }
            }
            let status = filter.filter(cx, &state, pod, &node);
            if !status.is_success() {
                return status;
            }
        }
        filter.filter(cx, state, pod, node)
    }

    /// Runs every score plugin on the feasible nodes.
    fn score(&self, cx: &Context<'_>, pod: &PodInfo, nodes: &[NodeIndex], cycle: &mut Cycle) {
        let mut state = CycleState::new();
        for plugin in &self.plugins.pre_filter {
            if let Some(pre_filter) = Arc::clone(plugin).extension_points().pre_filter {
                pre_filter.pre_filter(cx, &mut state, pod);
            }
        }
        let mut skipped = BTreeSet::new();
        for plugin in &self.plugins.pre_score {
            if let Some(pre_score) = Arc::clone(plugin).extension_points().pre_score
                && pre_score.pre_score(cx, &mut state, pod, nodes).is_skip()
            {
                skipped.insert(plugin.name());
            }
        }
        for (plugin, weight) in &self.plugins.score {
            let Some(scorer) = Arc::clone(plugin).extension_points().score else { continue };
            if skipped.contains(plugin.name()) {
                continue;
            }
            let raw = nodes.iter().map(|index| scorer.score(cx, &state, pod, cx.node(*index)));
            let Ok(mut scores) = raw.collect::<Result<Vec<i64>, Status>>() else { continue };
            match scorer.normalization() {
                Normalize::None => {}
                Normalize::ByMax { reverse } => in_proportion(&mut scores, reverse),
                Normalize::Custom => drop(scorer.normalize(&state, pod, &mut scores)),
            }
            for (index, score) in nodes.iter().zip(scores) {
                let of_node = cycle.scores.entry(cx.node(*index).name().to_string()).or_default();
                of_node.insert(plugin.name().to_owned(), score * i64::from(*weight));
            }
        }
    }
}

/// Upstream's DefaultNormalizeScore.
fn in_proportion(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let share = if max == 0 { *score } else { MAX_NODE_SCORE * *score / max };
        *score = if reverse { MAX_NODE_SCORE - share } else { share };
    }
}

/// An error with the prefix that the scheduler adds.
fn in_full(status: Status, origin: fmt::Arguments<'_>) -> Status {
    if status.code() == Code::Error { Status::error(format!("{origin}{}", status.message())) } else { status }
}

fn shown(status: &Status) -> answer::Status {
    answer::Status {
        code: status.code().to_string(),
        reasons: status.reasons().iter().map(ToString::to_string).collect(),
    }
}
