//! The scheduling algorithm: from a pod to the best node, or to the reasons why there is none.

use std::cell::Cell;
use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::plugin::{NodeNames, PreFilter};
use supercargo_framework::{Code, Context, CycleState, NodeIndex, PodInfo, Status};

use crate::diagnosis::{Diagnosis, FitError};
use crate::extender::EXTENDER;
use crate::extending::Extenders;
use crate::failure::FailureKind;
use crate::laps::Laps;
use crate::observer::{Evaluated, PluginSet, Point};
use crate::profile::{Named, Profile};
use crate::queue::SchedulingQueue;
use crate::sampling::Sampling;

/// The extension point and the plugin that run at the moment, to name the culprit of a panic.
#[derive(Default)]
pub(crate) struct Running(Cell<Option<(&'static str, &'static str)>>);

impl Running {
    pub(crate) fn set(&self, point: &'static str, plugin: &'static str) {
        self.0.set(Some((point, plugin)));
    }

    pub(crate) fn take(&self) -> Option<(&'static str, &'static str)> {
        self.0.take()
    }
}

/// One cycle's view: everything it reads.
pub(crate) struct Cycle<'a> {
    pub(crate) cx: &'a Context<'a>,
    pub(crate) profile: &'a Profile,
    pub(crate) pod: &'a Arc<PodInfo>,
    pub(crate) queue: &'a SchedulingQueue,
    pub(crate) extenders: Extenders<'a>,
    /// `None` when all nodes are looked at, in visiting order.
    pub(crate) sampling: Option<Sampling>,
    pub(crate) running: &'a Running,
    pub(crate) laps: &'a Laps<'a>,
    /// The plugins that have had a say.
    pub(crate) evaluated: Cell<Evaluated>,
}

/// The plugins whose PreFilter skipped: their filters are left out, in trials too.
#[derive(Clone, Default)]
pub(crate) struct SkippedFilters(pub(crate) SmallVec<[&'static str; 16]>);

/// What PreFilter left of the nodes.
enum Prepared {
    /// These, or all.
    Nodes(Option<NodeNames>),
    /// None; the reason is in the diagnosis.
    Rejected,
}

impl Cycle<'_> {
    /// Finds the best node; and says how many nodes the search went past, which is where the next sampled one begins.
    pub(crate) fn run(&self, state: &mut CycleState) -> (Result<NodeIndex, FailureKind>, usize) {
        let mut passed = 0;
        let result = self.find(state, &mut passed);
        (result, passed)
    }

    /// Whether answers for this pod may be kept from one cycle to the next: when all nodes are looked at, nobody outside is
    /// asked, and the pod is not tried on a node of its own first.
    pub(crate) fn can_be_kept(&self) -> bool {
        self.sampling.is_none()
            && !self.extenders.are_configured
            && !self.cx.nodes().is_empty()
            && self.pod.status.nominated_node_name.is_none()
    }

    /// What filters say of a node as it is now, from scratch. Those of plugins that have set something aside for the pod are
    /// not asked: what they found when they did so holds.
    pub(crate) fn verdict_anew(&self, index: NodeIndex) -> Result<Status, FailureKind> {
        let mut state = CycleState::default();
        let node = self.cx.node(index);
        match self.pre_filter(&mut state, &mut Diagnosis::default())? {
            Prepared::Nodes(Some(names)) if !names.contains(node.name()) => {
                return Ok(Status::unschedulable("node(s) didn't satisfy plugin(s)"));
            }
            Prepared::Nodes(_) => {}
            // Only plugins of objects that have been set aside turn a pod down as such.
            Prepared::Rejected => return Ok(Status::success()),
        }
        let mut filters = self.filters(&state);
        filters.retain(|filter| self.profile.reserve.iter().all(|plugin| plugin.name != filter.name));
        Ok(self.filter_node(0, &filters, &state, node))
    }

    fn find(&self, state: &mut CycleState, passed: &mut usize) -> Result<NodeIndex, FailureKind> {
        match self.feasible(state, passed)?[..] {
            [only] => Ok(only),
            ref feasible => self.best(state, feasible),
        }
    }

    /// The nodes that the pod can run on: at least one.
    pub(crate) fn feasible(
        &self,
        state: &mut CycleState,
        passed: &mut usize,
    ) -> Result<Vec<NodeIndex>, FailureKind> {
        let all_nodes = self.cx.nodes().len();
        if all_nodes == 0 {
            return Err(FailureKind::no_nodes());
        }
        let mut diagnosis = Diagnosis::default();
        let feasible = match self.pre_filter(state, &mut diagnosis)? {
            Prepared::Nodes(names) => self.find_feasible(names, state, &mut diagnosis, passed)?,
            Prepared::Rejected => Vec::new(),
        };
        if feasible.is_empty() {
            return Err(FailureKind::Fit(Box::new(FitError { all_nodes, diagnosis })));
        }
        Ok(feasible)
    }

    /// Notes that plugins have had a say.
    pub(crate) fn note_evaluated(&self, plugins: Evaluated) {
        let mut evaluated = self.evaluated.get();
        evaluated.add(plugins);
        self.evaluated.set(evaluated);
    }

    /// Runs PreFilter.
    fn pre_filter(&self, state: &mut CycleState, diagnosis: &mut Diagnosis) -> Result<Prepared, FailureKind> {
        let mut skipped = SkippedFilters::default();
        let mut nodes: Option<NodeNames> = None;
        let mut rejection: Option<Status> = None;
        let mut evaluated = PluginSet::default();
        self.laps.restart();
        for (place, Named { name, plugin }) in self.profile.pre_filter.iter().enumerate() {
            self.running.set("PreFilter", name);
            let call = || plugin.pre_filter(self.cx, state, self.pod);
            let answer = self.laps.plugin(Point::PreFilter, name, call, pre_filter_code);
            if !matches!(answer, PreFilter::Skip) {
                evaluated = evaluated.and(PluginSet::one(place));
            }
            match answer {
                PreFilter::AllNodes => {}
                PreFilter::Skip => skipped.0.push(name),
                PreFilter::Nodes(names) => {
                    diagnosis.unschedulable_plugins.insert((*name).into());
                    let rest: NodeNames = match nodes.take() {
                        None => names,
                        Some(known) => known.intersection(&names).cloned().collect(),
                    };
                    if rest.is_empty() {
                        rejection = Some(nobody_satisfies(diagnosis));
                        break;
                    }
                    nodes = Some(rest);
                }
                // The others are to prepare themselves all the same: PostFilter may want to run their filters.
                PreFilter::Reject(status) if status.code() == Code::Unschedulable => {
                    rejection = Some(status.by(*name));
                }
                PreFilter::Reject(status) if status.code() == Code::UnschedulableAndUnresolvable => {
                    // Upstream forgets the plugins that named nodes once one turns the pod down outright.
                    diagnosis.unschedulable_plugins.clear();
                    rejection = Some(status.by(*name));
                    break;
                }
                PreFilter::Reject(status) => {
                    let message = format!("running PreFilter plugin {name:?}: {}", status.message());
                    self.laps.point(Point::PreFilter, status.code());
                    return Err(FailureKind::Internal(message));
                }
            }
        }
        state.write(skipped);
        self.note_evaluated(Evaluated { pre_filter: evaluated, ..Evaluated::default() });
        self.laps.point(Point::PreFilter, rejection.as_ref().map_or(Code::Success, Status::code));
        if let Some(status) = rejection {
            diagnosis.pre_filter_message = status.message();
            diagnosis.blame(&status);
            diagnosis.statuses.absent = Some(status);
            return Ok(Prepared::Rejected);
        }
        Ok(Prepared::Nodes(nodes))
    }

    /// The nodes that pass filters and extenders: only the nominated one, if it does.
    fn find_feasible(
        &self,
        names: Option<NodeNames>,
        state: &CycleState,
        diagnosis: &mut Diagnosis,
        passed: &mut usize,
    ) -> Result<Vec<NodeIndex>, FailureKind> {
        if let Some(feasible) = self.try_nominated_node(state, diagnosis) {
            return Ok(feasible);
        }
        diagnosis.start_over();
        let listed = names.map(|names| self.resolve(&names));
        if listed.is_some() {
            diagnosis.statuses.absent = Some(not_named(diagnosis));
        }
        let nodes = listed.as_deref().unwrap_or_else(|| self.cx.nodes().order());
        let (wanted, start) = match self.sampling {
            None => (nodes.len(), 0),
            Some(sampling) => (sampling.nodes_to_find(nodes.len()), sampling.start),
        };
        let (feasible, error) = self.filter_nodes(state, diagnosis, nodes, wanted, start);
        diagnosis.keep_last_word();
        *passed = feasible.len() + diagnosis.statuses.len();
        if let Some(error) = error {
            return Err(error);
        }
        let found = feasible.len();
        let feasible = self.extend_filter(diagnosis, feasible)?;
        if feasible.len() != found {
            diagnosis.unschedulable_plugins.insert(EXTENDER.into());
        }
        Ok(feasible)
    }

    /// Tries the node that the pod has been promised before any other. When it does not do, what was found out stays in
    /// the diagnosis.
    fn try_nominated_node(&self, state: &CycleState, diagnosis: &mut Diagnosis) -> Option<Vec<NodeIndex>> {
        let name = self.pod.status.nominated_node_name.as_deref()?;
        let node = self.cx.nodes().index_of(name)?;
        let (feasible, _) = self.filter_nodes(state, diagnosis, &[node], 1, 0);
        // An error here is no failure yet: the full search follows.
        let feasible = self.extend_filter(diagnosis, feasible).ok()?;
        (!feasible.is_empty()).then_some(feasible)
    }

    /// The nodes of these names that exist, in visiting order.
    fn resolve(&self, names: &NodeNames) -> Vec<NodeIndex> {
        let nodes = self.cx.nodes();
        // One is the rule, as the pods of a DaemonSet have it.
        if names.len() == 1 {
            return names.iter().filter_map(|name| nodes.index_of(name)).collect();
        }
        nodes.iter().filter(|(_, node)| names.contains(node.name())).map(|(index, _)| index).collect()
    }
}

fn pre_filter_code(answer: &PreFilter) -> Code {
    match answer {
        PreFilter::AllNodes | PreFilter::Nodes(_) => Code::Success,
        PreFilter::Skip => Code::Skip,
        PreFilter::Reject(status) => status.code(),
    }
}

fn plugin_names(diagnosis: &Diagnosis) -> Vec<&str> {
    diagnosis.unschedulable_plugins.iter().map(|name| &**name).collect()
}

/// No node is in every set that PreFilter plugins named.
fn nobody_satisfies(diagnosis: &Diagnosis) -> Status {
    let plugins = plugin_names(diagnosis);
    Status::unresolvable(match plugins[..] {
        [only] => format!("node(s) didn't satisfy plugin {only}"),
        _ => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", plugins.join(" ")),
    })
}

/// The status of the nodes that PreFilter plugins did not name.
fn not_named(diagnosis: &Diagnosis) -> Status {
    let plugins = plugin_names(diagnosis).join(" ");
    Status::unresolvable(format!("node(s) didn't satisfy plugin(s) [{plugins}]"))
}
