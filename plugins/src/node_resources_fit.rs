//! Filters nodes without enough resources for the pod, and scores nodes by their resource usage.

mod args;
mod hint;
mod strategy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;
use supercargo_dynamic_resources::extended_resources::{self, ScoredDevices};
use supercargo_framework::caching::HintScope;
use supercargo_framework::caching::{Caching, Stateless};
use supercargo_framework::event::EventRegistration;
use supercargo_framework::objects::resources;
use supercargo_framework::plugin::{
    Assignments, EnqueueExtensions, ExtensionPoints, FilterPlugin, GroupInfo, Placement,
    PlacementScorePlugin, PreFilter, PreFilterPlugin, PreScorePlugin, ScorePlugin, SignPlugin,
};
use supercargo_framework::registry::ArgsError;
use supercargo_framework::resource::names;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::status::Reasons;
use supercargo_framework::{
    ActionType, Code, Context, CycleState, EventResource, Feature, Features, NodeFlags, NodeIndex, NodeInfo,
    Nodes, Plugin, PodInfo, PodTotals, Resource, Status, Text,
};

use strategy::Strategy;

/// The plugin's name.
pub const NAME: &str = "NodeResourcesFit";

struct NodeResourcesFit {
    ignored: IgnoredResources,
    strategy: Strategy,
    /// Scores placements of groups (`TopologyAwareWorkloadScheduling`).
    of_placements: Option<Strategy>,
    /// Scores devices that provide extended resources (`DRAExtendedResource`).
    with_devices: Option<ScoredDevices>,
    /// Whether running pods can be scaled down (`InPlacePodVerticalScaling`).
    pods_shrink: bool,
}

/// Builds the plugin.
pub(crate) fn from_args(args: &Value, features: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    let (ignored, strategy) = args::parse(args)?;
    let pods_shrink = features.enabled(Feature::InPlacePodVerticalScaling);
    let has_placements = features.enabled(Feature::TopologyAwareWorkloadScheduling);
    Ok(Arc::new(NodeResourcesFit {
        ignored,
        of_placements: has_placements.then(|| strategy.most_allocated()),
        strategy,
        with_devices: ScoredDevices::if_enabled(features),
        pods_shrink,
    }))
}

/// Extended resources that are not checked, for example because an extender checks them.
struct IgnoredResources {
    names: Box<[String]>,
    /// The part of a resource name before the slash.
    groups: Box<[String]>,
}

impl IgnoredResources {
    fn contains(&self, name: &str) -> bool {
        let listed = |list: &[String], name: &str| list.iter().any(|listed| listed == name);
        let group = name.split('/').next().unwrap_or_default();
        (listed(&self.names, name) || listed(&self.groups, group)) && names::is_extended(name)
    }
}

/// The maximum number of insufficient scalar resources that are named for a node. Upstream names
/// all of a pod's, which can be tens of thousands.
const MAX_SCALAR_REASONS: usize = 64;

/// The scalar resources that the pod requests, in the order of its request. Built once per pod, so
/// that rejecting a node does not allocate.
#[derive(Clone)]
struct Scalars(Arc<[Scalar]>);

impl Scalars {
    /// The approximate size, in bytes.
    fn bytes(&self) -> usize {
        let texts = self.0.iter().filter_map(|scalar| scalar.reason.as_ref()).map(|reason| reason.len());
        size_of_val(&*self.0) + texts.sum::<usize>()
    }
}

/// A scalar resource that the pod requests.
struct Scalar {
    /// The reason if it is insufficient; `None` if it is ignored.
    reason: Option<Text>,
    /// Whether devices provide it on nodes that do not offer it.
    is_of_devices: bool,
}

impl NodeResourcesFit {
    fn scalars(&self, cx: &Context<'_>, pod: &PodInfo) -> Scalars {
        let of = |name: &Arc<str>| Scalar {
            reason: (!self.ignored.contains(name)).then(|| Text::from(format!("Insufficient {name}"))),
            is_of_devices: self.with_devices.is_some() && extended_resources::is_of_devices(cx, name),
        };
        Scalars(pod.spec.requests.resource.scalars().iter().map(|(name, _)| of(name)).collect())
    }

    /// The verdict on a node with this allocatable, number of pods and sum of requests.
    fn verdict(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        offered: &Resource,
        pods: usize,
        taken: &Resource,
    ) -> Status {
        let mut shortages = Shortages::default();
        let wanted = &pod.spec.requests.resource;
        if pods as i64 >= offered.allowed_pod_number {
            shortages.add("Too many pods", false);
        }
        let basic = [
            ("Insufficient cpu", wanted.milli_cpu, offered.milli_cpu, taken.milli_cpu),
            ("Insufficient memory", wanted.memory, offered.memory, taken.memory),
            (
                "Insufficient ephemeral-storage",
                wanted.ephemeral_storage,
                offered.ephemeral_storage,
                taken.ephemeral_storage,
            ),
        ];
        for (reason, wanted, offered, taken) in basic {
            if is_short(wanted, offered, taken) {
                shortages.add(reason, wanted > offered);
            }
        }
        self.add_scalars(&mut shortages, cx, state, pod, offered, taken);
        shortages.into_status()
    }

    /// Adds the insufficient scalar resources, in name order; upstream's order is random. At most
    /// [`MAX_SCALAR_REASONS`] are named.
    fn add_scalars(
        &self,
        shortages: &mut Shortages,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        offered: &Resource,
        taken: &Resource,
    ) {
        let (mut prepared, mut named) = (None, 0);
        for (i, (name, wanted)) in pod.spec.requests.resource.scalars().iter().enumerate() {
            let (offered, taken) = (offered.scalar(name), taken.scalar(name));
            if !is_short(*wanted, offered, taken) {
                continue;
            }
            let prepared = prepared.get_or_insert_with(|| match state.read::<Scalars>() {
                Some(scalars) => scalars.clone(),
                // Only if a profile disables the plugin at PreFilter.
                None => self.scalars(cx, pod),
            });
            let Some(Scalar { reason: Some(reason), is_of_devices }) = prepared.0.get(i) else { continue };
            if *is_of_devices && offered <= 0 {
                continue;
            }
            let is_hopeless = *wanted > offered;
            if named < MAX_SCALAR_REASONS {
                shortages.add(reason.clone(), is_hopeless);
                named += 1;
            } else if is_hopeless || shortages.unresolvable {
                // No other resource can change the verdict.
                shortages.unresolvable = true;
                return;
            }
        }
    }

    /// Rejects nodes with insufficient scalar resources. Most nodes have none.
    fn filter_scalars(&self, wanted: &Resource, nodes: &Nodes, passes: &mut [bool]) {
        let scalars = wanted.scalars().iter();
        let wanted: Vec<_> =
            scalars.filter(|(name, wanted)| *wanted > 0 && !self.ignored.contains(name)).collect();
        if wanted.is_empty() {
            return;
        }
        let fits = |node: &NodeInfo| {
            wanted.iter().all(|(name, wanted)| {
                !is_short(*wanted, node.allocatable().scalar(name), node.requested().scalar(name))
            })
        };
        let flags = &nodes.columns().flags;
        for ((slot, passes), flags) in passes.iter_mut().enumerate().zip(flags) {
            *passes = *passes && flags.contains(NodeFlags::SCALARS) && fits(nodes.at(NodeIndex(slot as u32)));
        }
    }
}

/// Whether the requested amount exceeds what is left.
fn is_short(wanted: i64, offered: i64, taken: i64) -> bool {
    wanted > 0 && wanted > offered.saturating_sub(taken)
}

/// All reasons why a pod does not fit on a node.
#[derive(Default)]
struct Shortages {
    reasons: Reasons,
    unresolvable: bool,
}

impl Shortages {
    /// `hopeless` if even the empty node is too small.
    fn add(&mut self, reason: impl Into<Text>, hopeless: bool) {
        self.reasons.push(reason.into());
        self.unresolvable |= hopeless;
    }

    fn into_status(self) -> Status {
        if self.reasons.is_empty() {
            return Status::success();
        }
        let code = if self.unresolvable { Code::UnschedulableAndUnresolvable } else { Code::Unschedulable };
        Status::with_reasons(code, self.reasons)
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        let points = ExtensionPoints::new()
            .pre_filter(&self)
            .filter(&self)
            .pre_score(&self)
            .score(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&Arc::new(Stateless));
        if self.of_placements.is_some() { points.placement_score(&self) } else { points }
    }
}

impl PreFilterPlugin for NodeResourcesFit {
    /// The request is read from the pod. Most pods request no scalar resource and need no state.
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        if !pod.spec.requests.resource.scalars().is_empty() {
            state.write(self.scalars(cx, pod));
        }
        PreFilter::AllNodes
    }
}

impl FilterPlugin for NodeResourcesFit {
    fn filter(&self, cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        self.verdict(cx, state, pod, node.allocatable(), node.pods().len(), node.requested())
    }
}

impl PreScorePlugin for NodeResourcesFit {
    fn pre_score(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, _: &[NodeIndex]) -> Status {
        if let Some(devices) = &self.with_devices {
            devices.prepare(cx, state, pod, self.strategy.scalar_names());
        }
        Status::success()
    }
}

impl ScorePlugin for NodeResourcesFit {
    fn score(
        &self,
        _: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status> {
        let of_devices = |name: &str| self.with_devices.as_ref()?.usage(state, name, node.node());
        Ok(self.strategy.score(pod, node, &of_devices))
    }
}

impl PlacementScorePlugin for NodeResourcesFit {
    /// As upstream, the fuller the placement the better, whatever the strategy for nodes.
    fn score_placement(
        &self,
        cx: &Context<'_>,
        _: GroupInfo<'_>,
        placement: &Placement,
        proposed: &Assignments,
    ) -> Result<i64, Status> {
        let pods = proposed.iter().map(|(pod, _)| &**pod);
        let nodes = placement.nodes.iter().map(|index| cx.node(*index));
        Ok(self.of_placements.as_ref().map_or(0, |strategy| strategy.score_nodes(pods, nodes)))
    }
}

impl EnqueueExtensions for NodeResourcesFit {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        let with_devices = self.with_devices.is_some();
        let mut events = vec![
            EventRegistration::hinted(
                EventResource::AssignedPod,
                ActionType::DELETE,
                hint::after_pod_deleted,
            )
            .scoped(HintScope::empty()),
            EventRegistration::reading(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_ALLOCATABLE,
                move |cx, pod, change| {
                    hint::after_node_change(with_devices.then_some(cx.objects), pod, change)
                },
            )
            .scoped(HintScope::REQUESTS)
            .offering(hint::offered),
        ];
        if with_devices {
            let classes = EventRegistration::hinted(
                EventResource::Other(resources::DEVICE_CLASS),
                ActionType::ADD | ActionType::UPDATE,
                hint::after_class_change,
            );
            events.push(classes.scoped(HintScope::REQUESTS));
        }
        if self.pods_shrink {
            const SHRINKS: ActionType = ActionType::UPDATE_POD_SCALE_DOWN;
            events.push(
                EventRegistration::hinted(EventResource::AssignedPod, SHRINKS, hint::after_pod_shrunk)
                    .scoped(HintScope::REQUESTS),
            );
            events.push(EventRegistration::always(EventResource::TargetPod, SHRINKS));
        }
        events
    }
}

impl SignPlugin for NodeResourcesFit {
    /// With pod-level resources, Filter and Score use different requests. Scores of devices depend
    /// on claims.
    fn sign(&self, cx: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        if self.with_devices.is_some() && ScoredDevices::are_scored(cx, pod, self.strategy.scalar_names()) {
            return Err(Unsignable);
        }
        signer.write(&pod.spec.requests.resource);
        signer.write(pod.spec.container_requests());
        Ok(())
    }
}

impl Caching for NodeResourcesFit {
    fn filter_columns(
        &self,
        _: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &Nodes,
        passes: &mut [bool],
    ) -> bool {
        // Without the state, Filter has to look whether devices provide a resource.
        let scalars = pod.spec.requests.resource.scalars();
        let is_of_devices = |scalars: &Scalars| scalars.0.iter().any(|scalar| scalar.is_of_devices);
        if !scalars.is_empty() && state.read::<Scalars>().is_none_or(is_of_devices) {
            return false;
        }
        let (wanted, columns) = (&pod.spec.requests.resource, nodes.columns());
        for (passes, (pods, most)) in
            passes.iter_mut().zip(columns.pods.iter().zip(&columns.allocatable_pods))
        {
            *passes &= pods < most;
        }
        for (wanted, offered, taken) in [
            (wanted.milli_cpu, &columns.allocatable_cpu, &columns.requested_cpu),
            (wanted.memory, &columns.allocatable_memory, &columns.requested_memory),
            (wanted.ephemeral_storage, &columns.allocatable_storage, &columns.requested_storage),
        ] {
            if wanted > 0 {
                for (passes, (offered, taken)) in passes.iter_mut().zip(offered.iter().zip(taken)) {
                    *passes &= !is_short(wanted, *offered, *taken);
                }
            }
        }
        self.filter_scalars(wanted, nodes, passes);
        true
    }

    fn filter_totals(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
        totals: &PodTotals,
    ) -> Option<Status> {
        Some(self.verdict(cx, state, pod, node.allocatable(), totals.pods, &totals.requested))
    }

    fn pre_score_depends_on_nodes(&self) -> bool {
        false
    }

    /// A pod can request tens of thousands of extended resources.
    fn state_bytes(&self, state: &CycleState) -> usize {
        state.read::<Scalars>().map_or(0, Scalars::bytes)
    }

    fn score_columns(
        &self,
        _: &Context<'_>,
        _: &CycleState,
        pod: &PodInfo,
        nodes: &Nodes,
        scores: &mut [i64],
    ) -> bool {
        self.strategy.score_all(pod, nodes.columns(), scores)
    }
}
