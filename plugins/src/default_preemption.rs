//! Preempts pods of lower priority for a pod that fits on no node.
//!
//! PostFilter finds the victims on a copy of each node where preemption may help, and chooses the
//! node with the least harm. The scheduler evicts the victims; until the evictions are in flight,
//! PreEnqueue gates the pod.

mod args;
mod budgets;
mod candidates;
mod groups;
#[cfg(test)]
mod tests;
mod victim;
mod victims;

use std::hash::Hasher as _;
use std::sync::Arc;

use rustc_hash::FxHasher;
use serde_json::Value;
use supercargo_framework::caching::HintScope;
use supercargo_framework::context::{Command, Victims};
use supercargo_framework::errors::aggregate;
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::features::Feature;
use supercargo_framework::objects::GroupKey;
use supercargo_framework::objects::resources::{COMPOSITE_POD_GROUP, POD_DISRUPTION_BUDGET, POD_GROUP};
use supercargo_framework::plugin::{
    Candidate, EnqueueExtensions, ExtensionPoints, NodeStatuses, Nomination, PostFilterPlugin,
    PreEnqueuePlugin, RunFilters,
};
use supercargo_framework::registry::ArgsError;
use supercargo_framework::{
    ActionType, Code, Context, CycleState, EventResource, Features, Plugin, PodInfo, QueueContext, Status,
    Text,
};

use self::args::Args;
use self::budgets::Budgets;
use self::candidates::Found;
use self::victim::Groups;
use self::victims::VictimSearch;

/// The plugin's name.
pub const NAME: &str = "DefaultPreemption";

/// The reason of the DisruptionTarget condition that preemption sets.
const PREEMPTED: &str = "PreemptionByScheduler";

struct DefaultPreemption {
    args: Args,
    /// Whether victims are deleted asynchronously (`SchedulerAsyncPreemption`).
    asynchronous: bool,
    /// Whether pods have groups (`GenericWorkload`).
    has_groups: bool,
    /// Whether groups can consist of groups (`CompositePodGroup`).
    has_composites: bool,
    /// Whether a group says itself whether it preempts (`PodGroupPreemptionPolicy`).
    asks_groups: bool,
}

/// Builds the plugin.
pub(crate) fn from_args(args: &Value, features: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    let asynchronous = features.enabled(Feature::SchedulerAsyncPreemption);
    let has_groups = features.enabled(Feature::GenericWorkload);
    let has_composites = features.enabled(Feature::CompositePodGroup);
    let asks_groups = features.enabled(Feature::PodGroupPreemptionPolicy);
    let args = args::parse(args)?;
    Ok(Arc::new(DefaultPreemption { args, asynchronous, has_groups, has_composites, asks_groups }))
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .post_filter(&self)
            .pod_group_post_filter(&self)
            .pre_enqueue(&self)
            .enqueue_extensions(&self)
    }

    fn reads(&self) -> Vec<Text> {
        let mut kinds = vec![POD_DISRUPTION_BUDGET];
        if self.has_groups {
            kinds.push(POD_GROUP);
        }
        if self.has_composites {
            kinds.push(COMPOSITE_POD_GROUP);
        }
        kinds
    }
}

impl PreEnqueuePlugin for DefaultPreemption {
    fn pre_enqueue(&self, cx: &QueueContext<'_>, pod: &PodInfo) -> Status {
        if cx.preempting.is_empty() {
            return Status::success();
        }
        if let Some(key) = pod.group_key().filter(|_| self.has_groups) {
            let forest = cx.objects.forest();
            let root = forest.root_of(&GroupKey::of_pods(key)).and_then(|root| forest.get(&root));
            return match root.filter(|root| cx.preempting.contains(&(*root.uid).into())) {
                Some(_) => {
                    Status::unresolvable("waiting for the preemption for this pod group to be finished")
                }
                None => Status::success(),
            };
        }
        if self.asynchronous && cx.preempting.contains(&pod.uid) {
            return Status::unresolvable("waiting for the preemption for this pod to be finished");
        }
        Status::success()
    }
}

impl EnqueueExtensions for DefaultPreemption {
    /// A deleted pod makes the queue check a gated pod again, but does not queue it: that is up to
    /// the plugins that rejected it.
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        if !self.asynchronous {
            return Vec::new();
        }
        let skips = |_: &PodInfo, _: &Change| Ok(QueueingHint::Skip);
        let deleted = EventRegistration::hinted(EventResource::AssignedPod, ActionType::DELETE, skips);
        vec![deleted.scoped(HintScope::empty())]
    }
}

impl PostFilterPlugin for DefaultPreemption {
    fn post_filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &Arc<PodInfo>,
        statuses: &NodeStatuses,
        filters: &dyn RunFilters,
    ) -> (Nomination, Status) {
        match self.preempt(cx, state, pod, statuses, filters) {
            Ok((node, victims)) => {
                // As upstream, plural for a single victim, too.
                let text = format!(
                    "preemption: found a potential placement for pod on node {node}, preempting {victims} victims"
                );
                (Nomination::Override(Some(node)), Status::new(Code::Success, text))
            }
            Err((nomination, status)) => {
                (nomination, Status::new(status.code(), format!("preemption: {}", status.message())))
            }
        }
    }
}

impl DefaultPreemption {
    /// Preempts on a node and returns it with the number of victims; or returns the reason why not,
    /// with the change of the nomination.
    fn preempt(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &Arc<PodInfo>,
        statuses: &NodeStatuses,
        filters: &dyn RunFilters,
    ) -> Result<(Arc<str>, usize), (Nomination, Status)> {
        let keeping = |status| (Nomination::Keep, status);
        let groups = Groups::new(cx, self.has_groups);
        eligible(cx, pod, statuses, &groups).map_err(|reason| keeping(Status::unschedulable(reason)))?;
        let candidates = self.find(cx, state, pod, statuses, filters, &groups)?;
        let candidates = filters.extend_preemption(pod, candidates).map_err(keeping)?;
        let Some(Candidate { node, victims: pods, pdb_violations }) =
            candidates::best(candidates, cx.now().wall)
        else {
            return Err(keeping(Status::unschedulable("no candidate node for preemption")));
        };
        let count = pods.len();
        cx.command(Command::Preempt {
            preemptor: Arc::clone(pod).into(),
            node: Arc::clone(&node),
            victims: Victims { pods, pdb_violations, of_groups: 0 },
            plugin: Text::Static(NAME),
            asynchronous: self.asynchronous,
        });
        Ok((node, count))
    }

    /// The candidates; at least one.
    fn find(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        statuses: &NodeStatuses,
        filters: &dyn RunFilters,
        groups: &Groups<'_>,
    ) -> Result<Vec<Candidate>, (Nomination, Status)> {
        let nodes = candidates::potential_nodes(cx.nodes(), statuses);
        let budgets = Budgets::new(cx.list(&POD_DISRUPTION_BUDGET));
        let dry_run = VictimSearch { cx, state, pod, filters, budgets: &budgets, groups };
        let wanted = self.args.candidates_wanted(nodes.len());
        let Found { candidates, mut statuses, errors } =
            dry_run.over(&nodes, offset(pod, nodes.len()), wanted);
        if !candidates.is_empty() {
            return Ok(candidates);
        }
        if let Some(errors) = aggregate(errors) {
            return Err((Nomination::Keep, Status::error(errors)));
        }
        statuses.absent = Some(Status::unresolvable("Preemption is not helpful for scheduling"));
        let all_nodes = cx.node_count();
        let histogram = statuses.histogram(all_nodes).join(", ");
        let text = format!("0/{all_nodes} nodes are available: {histogram}.");
        // An earlier nomination is void.
        Err((Nomination::Override(None), Status::unschedulable(text)))
    }
}

/// Whether the pod may preempt others.
fn eligible(
    cx: &Context<'_>,
    pod: &PodInfo,
    statuses: &NodeStatuses,
    groups: &Groups<'_>,
) -> Result<(), &'static str> {
    if pod.spec.never_preempts {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let Some(nominated) = &pod.status.nominated_node_name else {
        return Ok(());
    };
    let nodes = cx.nodes();
    let Some(index) = nodes.index_of(nominated) else {
        return Ok(());
    };
    // Waiting for a node is pointless if no eviction makes it fit.
    if code_of(statuses, index) == Code::UnschedulableAndUnresolvable {
        return Ok(());
    }
    let leaves_for_us = |victim: &PodInfo| is_preempted(victim) && groups.priority_of(victim) < pod.priority;
    if nodes.at(index).pods().iter().any(|victim| leaves_for_us(victim)) {
        return Err("not eligible due to a terminating pod on the nominated node.");
    }
    Ok(())
}

/// Whether the pod terminates because it was preempted.
fn is_preempted(victim: &PodInfo) -> bool {
    victim.terminating
        && victim.status.disruption_target.as_ref().is_some_and(|target| *target.reason == *PREEMPTED)
}

/// The code of a node's status. An unknown status counts as unresolvable.
fn code_of(statuses: &NodeStatuses, node: supercargo_framework::NodeIndex) -> Code {
    statuses.get(node).map_or(Code::UnschedulableAndUnresolvable, Status::code)
}

/// The offset at which the search begins. Upstream's is random; here it is derived from the pod and
/// its version, so that recorded runs can be replayed and attempts differ.
fn offset(pod: &PodInfo, nodes: usize) -> usize {
    let mut hasher = FxHasher::default();
    hasher.write(pod.uid.text().as_bytes());
    hasher.write(pod.resource_version.as_bytes());
    let nodes = nodes as u64;
    // Less than the number of nodes, so it is an index.
    hasher.finish().checked_rem(nodes).map_or(0, |offset| offset as usize)
}
