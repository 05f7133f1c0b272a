//! The scheduling algorithm: finds the best node for a pod, or the reasons why there is none.

use std::cell::Cell;
use std::sync::Arc;

use supercargo_framework::plugin::{NodeNames, NotPreFiltered, PreFilter};
use supercargo_framework::{Code, Context, CycleState, NodeIndex, PodInfo, Status};

use crate::extender_calls::Extenders;
use crate::sampling::Sampling;
use crate::skipped_filters::SkippedFilters;
use supercargo_queue::EXTENDER;
use supercargo_queue::SchedulingQueue;
use supercargo_runtime::diagnosis::Diagnosis;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::observer::{Evaluated, PluginSet, Point};
use supercargo_runtime::plugin_calls::PluginCalls;
use supercargo_runtime::profile::{Named, Profile};

/// Everything that a cycle reads.
pub struct Cycle<'a> {
    /// What plugins read.
    pub cx: &'a Context<'a>,
    /// The pod's profile.
    pub profile: &'a Profile,
    /// The pod.
    pub pod: &'a Arc<PodInfo>,
    /// Has the nominated pods, which count as placed.
    pub queue: &'a SchedulingQueue,
    /// The extenders that are interested in the pod.
    pub extenders: Extenders<'a>,
    /// `None` if all nodes are filtered, in visiting order.
    pub sampling: Option<Sampling>,
    /// The nodes that may be chosen, in visiting order; `None` for all. Plugins count all nodes.
    pub candidates: Option<&'a [NodeIndex]>,
    /// Calls the plugins.
    pub plugins: &'a PluginCalls<'a>,
    /// The plugins that have been evaluated.
    pub evaluated: Cell<Evaluated>,
}

/// The most volumes of a pod that tables answer for.
const MOST_VOLUMES: usize = 1024;

/// PreFilter's result.
pub enum PreFilterOutcome {
    /// These nodes, or all.
    Nodes(Option<NodeNames>),
    /// No nodes; the reason is in the diagnosis.
    Rejected,
}

impl Cycle<'_> {
    /// Finds the best node. Also returns how many nodes the search passed, which is where the next
    /// sampled search starts.
    pub fn run(&self, state: &mut CycleState) -> (Result<NodeIndex, FailureKind>, usize) {
        let mut passed = 0;
        let result = self.find(state, &mut passed);
        (result, passed)
    }

    /// The nodes that may be chosen, in visiting order.
    pub fn candidates(&self) -> &[NodeIndex] {
        self.candidates.unwrap_or_else(|| self.cx.nodes().order())
    }

    /// Whether tables may answer: all nodes are filtered, no extender is called, and the pod has no
    /// nominated node to try first. A pod with thousands of claims that fits nowhere is not
    /// prepared twice, for tables and for the diagnosis.
    pub fn can_use_tables(&self) -> bool {
        self.sampling.is_none()
            && self.pod.spec.volumes.len() <= MOST_VOLUMES
            && !self.extenders.are_configured
            && !self.candidates().is_empty()
            && self.pod.status.nominated_node_name.is_none()
    }

    /// Filters a node from scratch. Skips plugins that have reserved something for the pod: their
    /// earlier result holds.
    pub fn recheck(&self, index: NodeIndex) -> Result<Status, FailureKind> {
        let mut state = CycleState::default();
        let node = self.cx.node(index);
        match self.pre_filter(&mut state, &mut Diagnosis::default())? {
            PreFilterOutcome::Nodes(Some(names)) if !names.contains(node.name()) => {
                return Ok(Status::unschedulable("node(s) didn't satisfy plugin(s)"));
            }
            PreFilterOutcome::Nodes(_) => {}
            // Only plugins that have reserved something reject a pod at this point.
            PreFilterOutcome::Rejected => return Ok(Status::success()),
        }
        let mut filters = self.filters(&state);
        filters.retain(|filter| self.profile.reserve.iter().all(|plugin| plugin.name != filter.name));
        Ok(self.filter_node(0, &filters, &state, node))
    }

    /// Prepares the state for a node, from scratch. The error says why the pod cannot be there.
    pub fn prepare(&self, state: &mut CycleState, index: NodeIndex) -> Result<(), FailureKind> {
        match self.pre_filter(state, &mut Diagnosis::default())? {
            PreFilterOutcome::Nodes(_) => {}
            PreFilterOutcome::Rejected => {
                return Err(FailureKind::Internal("PreFilter rejects a placed pod".to_owned()));
            }
        }
        // Reserve may need what Filter writes for the node.
        self.verdict(state, index);
        Ok(())
    }

    fn find(&self, state: &mut CycleState, passed: &mut usize) -> Result<NodeIndex, FailureKind> {
        match self.feasible(state, passed)?[..] {
            [only] => Ok(only),
            ref feasible => self.best(state, feasible),
        }
    }

    /// The nodes that fit the pod; an error if there is none.
    pub fn feasible(
        &self,
        state: &mut CycleState,
        passed: &mut usize,
    ) -> Result<Vec<NodeIndex>, FailureKind> {
        let all_nodes = self.candidates().len();
        if all_nodes == 0 {
            return Err(FailureKind::no_nodes());
        }
        let mut diagnosis = Diagnosis::default();
        let feasible = match self.pre_filter(state, &mut diagnosis)? {
            PreFilterOutcome::Nodes(names) => self.find_feasible(names, state, &mut diagnosis, passed)?,
            PreFilterOutcome::Rejected => Vec::new(),
        };
        if feasible.is_empty() {
            return Err(FailureKind::no_fit(all_nodes, diagnosis));
        }
        Ok(feasible)
    }

    /// Notes that plugins have been evaluated.
    pub(crate) fn note_evaluated(&self, plugins: Evaluated) {
        let mut evaluated = self.evaluated.get();
        evaluated.add(plugins);
        self.evaluated.set(evaluated);
    }

    /// Runs PreFilter.
    pub fn pre_filter(
        &self,
        state: &mut CycleState,
        diagnosis: &mut Diagnosis,
    ) -> Result<PreFilterOutcome, FailureKind> {
        let mut skipped = SkippedFilters::default();
        let mut nodes: Option<NodeNames> = None;
        let mut rejection: Option<Status> = None;
        let mut evaluated = PluginSet::default();
        self.plugins.timer.restart();
        let mut plugins = self.profile.pre_filter.iter().enumerate();
        for (place, Named { name, plugin }) in plugins.by_ref() {
            let call = || plugin.pre_filter(self.cx, state, self.pod);
            let answer = self.plugins.call(Point::PreFilter, name, call, pre_filter_code);
            if !matches!(answer, PreFilter::Skip) {
                evaluated = evaluated.and(PluginSet::one(place));
            }
            match answer {
                PreFilter::AllNodes => {}
                PreFilter::Skip => skipped.add(name),
                PreFilter::Nodes(names) => {
                    diagnosis.unschedulable_plugins.insert((*name).into());
                    let rest: NodeNames = match nodes.take() {
                        None => names,
                        Some(known) => known.intersection(&names).cloned().collect(),
                    };
                    if rest.is_empty() {
                        rejection = Some(no_node_satisfies(diagnosis));
                        break;
                    }
                    nodes = Some(rest);
                }
                // The remaining plugins must prepare, too: PostFilter may run their filters.
                PreFilter::Reject(status) if status.code() == Code::Unschedulable => {
                    rejection = Some(status.by(*name));
                }
                PreFilter::Reject(status) if status.code() == Code::UnschedulableAndUnresolvable => {
                    // As upstream, the plugins that named nodes are dropped once one rejects the
                    // pod as unresolvable.
                    diagnosis.unschedulable_plugins.clear();
                    rejection = Some(status.by(*name));
                    break;
                }
                PreFilter::Reject(status) => {
                    let message = format!("running PreFilter plugin {name:?}: {}", status.message());
                    self.plugins.timer.point(Point::PreFilter, status.code());
                    return Err(FailureKind::Internal(message));
                }
            }
        }
        state.write(skipped);
        if plugins.len() > 0 {
            state.write(NotPreFiltered(plugins.map(|(_, plugin)| plugin.name).collect()));
        }
        self.note_evaluated(Evaluated { pre_filter: evaluated, ..Evaluated::default() });
        self.plugins.timer.point(Point::PreFilter, rejection.as_ref().map_or(Code::Success, Status::code));
        if let Some(status) = rejection {
            diagnosis.pre_filter_message = status.message();
            diagnosis.blame(&status);
            diagnosis.set_absent(status);
            return Ok(PreFilterOutcome::Rejected);
        }
        Ok(PreFilterOutcome::Nodes(nodes))
    }

    /// The nodes that pass filters and extenders: only the nominated node if it passes.
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
            diagnosis.set_absent(not_named(diagnosis));
        }
        let nodes = listed.as_deref().unwrap_or_else(|| self.candidates());
        let (wanted, start) = match self.sampling {
            None => (nodes.len(), 0),
            Some(sampling) => (sampling.nodes_to_find(nodes.len()), sampling.start),
        };
        let (feasible, error) = self.filter_nodes(state, diagnosis, nodes, wanted, start);
        diagnosis.keep_last_status();
        *passed = feasible.len() + diagnosis.statuses.len();
        if let Some(error) = error {
            return Err(error);
        }
        let found = feasible.len();
        let feasible = self.extenders.filter(diagnosis, feasible)?;
        if feasible.len() != found {
            diagnosis.unschedulable_plugins.insert(EXTENDER.into());
        }
        Ok(feasible)
    }

    /// Tries the pod's nominated node first. If it does not fit, its status stays in the diagnosis.
    fn try_nominated_node(&self, state: &CycleState, diagnosis: &mut Diagnosis) -> Option<Vec<NodeIndex>> {
        let name = self.pod.status.nominated_node_name.as_deref()?;
        let node = self.candidate(name)?;
        let (feasible, _) = self.filter_nodes(state, diagnosis, &[node], 1, 0);
        // An error here does not fail the attempt: the full search follows.
        let feasible = self.extenders.filter(diagnosis, feasible).ok()?;
        (!feasible.is_empty()).then_some(feasible)
    }

    /// The named nodes that may be chosen, in visiting order.
    fn resolve(&self, names: &NodeNames) -> Vec<NodeIndex> {
        // A single name is the usual case: pods of a DaemonSet have one.
        if names.len() == 1 {
            return names.iter().filter_map(|name| self.candidate(name)).collect();
        }
        let is_named = |index: &&NodeIndex| names.contains(self.cx.node(**index).name());
        self.candidates().iter().filter(is_named).copied().collect()
    }

    /// The node of this name, if it may be chosen.
    fn candidate(&self, name: &str) -> Option<NodeIndex> {
        let index = self.cx.nodes().index_of(name)?;
        self.candidates.is_none_or(|nodes| nodes.contains(&index)).then_some(index)
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

/// The rejection if no node is in every set that PreFilter plugins named.
fn no_node_satisfies(diagnosis: &Diagnosis) -> Status {
    let plugins = plugin_names(diagnosis);
    Status::unresolvable(match plugins[..] {
        [only] => format!("node(s) didn't satisfy plugin {only}"),
        _ => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", plugins.join(" ")),
    })
}

/// The status of the nodes that PreFilter plugins did not name.
pub fn not_named(diagnosis: &Diagnosis) -> Status {
    let plugins = plugin_names(diagnosis).join(" ");
    Status::unresolvable(format!("node(s) didn't satisfy plugin(s) [{plugins}]"))
}
