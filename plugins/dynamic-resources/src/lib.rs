//! Allocates devices for the claims of pods (dynamic resource allocation), filters nodes that
//! cannot provide them, and writes the allocation once a node is chosen.
//!
//! Reserve notes the allocation as pending, so that the next cycle does not use the devices.
//! PreBind writes it to the claims.

pub mod args;
mod caching;
mod claims;
mod devices;
mod extended;
pub mod extended_resources;
mod hint;
mod post_filter;
mod pre_bind;
mod release;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod write;

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use supercargo_devices::readiness::{self, Readiness};
use supercargo_devices::{AllocateError, Allocation, Demand};
use supercargo_framework::binding::{BindingContext, BoxFuture};
use supercargo_framework::event::EventRegistration;
use supercargo_framework::objects::{
    ClaimRequest, Object, ObjectBody as _, Objects, RequestChoice, ResourceClaim, Typed, resources,
};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, Normalize, PreBindPlugin, PreEnqueuePlugin, PreFilter,
    PreFilterPlugin, PreFlight, PreScorePlugin, ReservePlugin, ScorePlugin,
};
use supercargo_framework::registry::ArgsError;
use supercargo_framework::{
    Command, Context, CycleState, Feature, Features, NodeIndex, NodeInfo, NodeRecord, Plugin, PodInfo,
    QueueContext, Status,
};

use self::args::Args;
use self::claims::{body, excludes, is_allocated, limits_nodes, once_each};
use self::devices::{Devices, Position};
use self::extended::{Created, ExtendedResources, Variant};

/// The plugin's name.
pub const NAME: &str = "DynamicResources";

/// The maximum of alternatives in a request, and the score of the first.
const ALTERNATIVES: usize = 8;

/// Filter's error on a node where a search exceeds `filterTimeout`.
const TIMED_OUT: &str = "timed out trying to allocate devices";

/// Filter's answer for a node that cannot use an allocated claim.
const UNAVAILABLE: &str = "resourceclaim not available on the node";

struct DynamicResources {
    args: Args,
    is_prioritizing: bool,
    /// Whether devices can provide extended resources.
    with_extended: bool,
    with_rules: bool,
    /// Whether groups can be limited to one domain of a topology.
    with_topology: bool,
    /// Whether the pods of a group are tried together.
    with_groups: bool,
    /// Whether groups have claims.
    with_group_claims: bool,
    devices: Mutex<Devices>,
}

/// Builds the plugin.
pub fn from_args(args: &Value, features: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    let of_allocator = supercargo_devices::Features::of(features);
    let with_rules = of_allocator.device_taints && features.enabled(Feature::DRADeviceTaintRules);
    Ok(Arc::new(DynamicResources {
        args: args::parse(args, features)?,
        is_prioritizing: of_allocator.prioritized_list,
        with_extended: features.enabled(Feature::DRAExtendedResource),
        with_rules,
        with_topology: features.enabled(Feature::TopologyAwareWorkloadScheduling),
        with_groups: features.enabled(Feature::GenericWorkload),
        with_group_claims: features.enabled(Feature::DRAWorkloadResourceClaims),
        devices: Mutex::new(Devices::new(of_allocator, with_rules)),
    }))
}

/// The state that PreFilter writes.
#[derive(Clone)]
struct Found {
    claims: Arc<Claims>,
    /// The devices that kept answers about these claims come from.
    position: Position,
}

/// The claims of the pod, in the order of its spec.
struct Claims {
    all: Box<[Arc<Object>]>,
    /// The same with copies of those that another pod of the group is about to write, with their
    /// allocation.
    as_shared: Box<[Arc<Object>]>,
    /// Whether an allocated claim can be used on no node.
    are_unusable: bool,
    /// The allocated claims, once each, that can be used on some nodes only.
    limits: Box<[Arc<Object>]>,
    /// Of those that have to be allocated, if the pod's extended resources are not of devices.
    demand: Option<Arc<Variant>>,
    extended: Option<ExtendedResources>,
}

/// The decision of Reserve for PreBind and Unreserve.
#[derive(Clone, Default)]
struct Reserved {
    /// Copies of the claims without an allocation, with one.
    claims: Arc<[Arc<Object>]>,
    /// The claim to create, with its allocation.
    created: Option<Created>,
}

fn claims(state: &CycleState) -> Option<&Arc<Claims>> {
    state.read::<Found>().map(|found| &found.claims)
}

impl Claims {
    fn to_allocate(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.as_shared.iter().filter(|claim| !is_allocated(claim))
    }

    /// Of the claims without an allocation, those that another pod is about to write, as they will
    /// be, and `None` for the others.
    fn shared(&self) -> impl Iterator<Item = Option<&Arc<Object>>> {
        let both = self.all.iter().zip(&self.as_shared);
        both.filter(|(claim, _)| !is_allocated(claim))
            .map(|(_, shared)| Some(shared).filter(|it| is_allocated(it)))
    }

    /// Whether something may have to be allocated.
    fn need_devices(&self) -> bool {
        self.demand.is_some() || self.extended.is_some()
    }

    /// Whether a request has alternatives, which Score compares.
    fn have_alternatives(&self) -> bool {
        let requests = self.all.iter().flat_map(|claim| &*body(claim).requests);
        requests.into_iter().any(|request| matches!(request.choice, RequestChoice::FirstAvailable(_)))
    }
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .pre_enqueue(&self)
            .pre_filter(&self)
            .filter(&self)
            .post_filter(&self)
            .pod_group_post_filter(&self)
            .pre_score(&self)
            .score(&self)
            .reserve(&self)
            .pre_bind(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&self)
    }

    fn inconsistencies(&self, objects: &Objects) -> Vec<String> {
        self.devices().inconsistencies(objects)
    }
}

impl PreEnqueuePlugin for DynamicResources {
    fn pre_enqueue(&self, cx: &QueueContext<'_>, pod: &PodInfo) -> Status {
        let group = group_of(pod, self.with_group_claims);
        claims::known(pod, group, cx.objects).map_or_else(Status::unresolvable, |_| Status::success())
    }
}

impl PreFilterPlugin for DynamicResources {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        let found = match self.claims_of(cx, pod) {
            Ok(found) => found,
            Err(reason) => return PreFilter::Reject(Status::unresolvable(reason)),
        };
        let extended = if self.with_extended { extended::of_pod(cx, pod) } else { None };
        if found.is_empty() && extended.is_none() {
            return PreFilter::Skip;
        }
        let as_shared = self.as_shared(cx, pod, &found);
        let both = found.iter().zip(&as_shared);
        let mut others = both.filter(|(claim, shared)| Arc::ptr_eq(claim.object, shared));
        if let Err(status) = others.try_for_each(|(claim, _)| self.check(cx, *claim)) {
            return PreFilter::Reject(status);
        }
        let all: Box<[Arc<Object>]> = found.iter().map(|claim| Arc::clone(claim.object)).collect();
        let allocated = || once_each(&as_shared).filter(|claim| is_allocated(claim));
        let limits = allocated().filter(|claim| limits_nodes(claim)).cloned().collect();
        let are_unusable = allocated().any(|claim| self.is_unusable(cx, claim));
        self.devices().begin_attempt();
        let mut claims = Claims { all, as_shared, are_unusable, limits, demand: None, extended };
        if claims.extended.is_none() && claims.to_allocate().next().is_some() {
            let demand = self.demand(cx, claims.to_allocate());
            claims.demand = Some(Arc::new(Variant { demand, new: None }));
        }
        let position = self.devices().position();
        state.write(Found { claims: Arc::new(claims), position });
        PreFilter::AllNodes
    }
}

impl DynamicResources {
    /// The claims of the pod. Reading them is not recorded: answers are kept by what the claims
    /// request, for pods with other claims, too.
    fn claims_of<'a>(
        &self,
        cx: &Context<'a>,
        pod: &'a PodInfo,
    ) -> Result<Vec<Typed<'a, ResourceClaim>>, String> {
        let group = group_of(pod, self.with_group_claims);
        cx.untracked(|| claims::of_pod(pod, group, |key| cx.object(&resources::RESOURCE_CLAIM, key)))
    }

    /// The claims, with copies of those that another pod of the group is about to write, in the
    /// same cycle.
    fn as_shared(
        &self,
        cx: &Context<'_>,
        pod: &PodInfo,
        claims: &[Typed<'_, ResourceClaim>],
    ) -> Box<[Arc<Object>]> {
        let group = self.sharing_group(pod);
        let shared = |claim: &Typed<'_, ResourceClaim>| {
            let group = group.as_ref().filter(|_| claim.allocation.is_none())?;
            cx.untracked(|| cx.shared_allocation(claim.object, group)).cloned()
        };
        claims.iter().map(|claim| shared(claim).unwrap_or_else(|| Arc::clone(claim.object))).collect()
    }

    /// The key of the group whose pods share allocations that they are about to write.
    fn sharing_group(&self, pod: &PodInfo) -> Option<Arc<str>> {
        if self.with_groups { pod.group_key() } else { None }
    }

    fn devices(&self) -> MutexGuard<'_, Devices> {
        self.devices.lock().unwrap_or_else(|poisoned| {
            // What a panic has left behind may be incomplete.
            self.devices.clear_poison();
            let mut devices = poisoned.into_inner();
            devices.forget();
            devices
        })
    }

    /// Whether the claim can be used or allocated at all.
    fn check(&self, cx: &Context<'_>, claim: Typed<'_, ResourceClaim>) -> Result<(), Status> {
        if let Some(allocation) = &claim.allocation {
            let terms = allocation.node_selector.iter().flat_map(|selector| &*selector.terms);
            let invalid = terms.flat_map(|term| &term.invalid).next();
            return invalid.map_or(Ok(()), |reason| Err(Status::error(reason.to_string())));
        }
        let key = &claim.object.key;
        if cx.untracked(|| cx.pending_allocation(claim.object)).is_some() {
            let text = format!("resource claim {key} is in the process of being allocated");
            return Err(Status::unresolvable(text));
        }
        for ClaimRequest { name, choice } in &claim.requests {
            match choice {
                RequestChoice::Exactly(request) => check_class(cx, &request.class, name)?,
                RequestChoice::FirstAvailable(_) if !self.is_prioritizing => {
                    return Err(Status::unresolvable(format!(
                        "resource claim {key}, request {name}: has subrequests, but the DRAPrioritizedList feature is disabled"
                    )));
                }
                RequestChoice::FirstAvailable(requests) => {
                    for request in requests {
                        check_class(cx, &request.class, &format!("{name}/{}", request.name))?;
                    }
                }
                RequestChoice::Unknown => {
                    let text = format!("resource claim {key}, request {name}: unknown request type");
                    return Err(Status::unresolvable(text));
                }
            }
        }
        Ok(())
    }

    fn demand<'a>(&self, cx: &Context<'_>, claims: impl Iterator<Item = &'a Arc<Object>>) -> Demand {
        self.devices().demand(cx, &claims.cloned().collect::<Vec<_>>())
    }

    /// What has to be allocated on a node, if anything.
    fn on_node(
        &self,
        cx: &Context<'_>,
        claims: &Claims,
        node: &NodeRecord,
    ) -> Result<Option<Arc<Variant>>, Status> {
        match &claims.extended {
            None => Ok(claims.demand.clone()),
            Some(ExtendedResources::Stale(_)) => {
                Err(Status::unresolvable("cannot schedule extended resource claim"))
            }
            Some(ExtendedResources::New(new)) => new.on_node(node, !claims.all.is_empty(), |claim| {
                self.demand(cx, claims.to_allocate().chain([claim]))
            }),
        }
    }

    /// The devices for the claims without an allocation. A search beyond `filterTimeout` ends the
    /// pod's attempt, as upstream. So do searches on all nodes together that exceed the attempt's
    /// budget.
    fn allocate(&self, demand: &Demand, node: &NodeRecord) -> Result<Allocation, Status> {
        let mut left = Some(self.args.max_steps());
        let mut interrupt = || {
            left = left.and_then(|left| left.checked_sub(1));
            left.is_none().then(|| TIMED_OUT.into())
        };
        let found = self.devices().allocate(demand, node, &mut interrupt);
        match found {
            Ok(Some(allocation)) => Ok(allocation),
            Ok(None) => Err(Status::unresolvable("cannot allocate all claims")),
            Err(error @ AllocateError::Exhausted(_)) => {
                Err(Status::error(format!("node {}: {TIMED_OUT}: {error}", node.name)))
            }
            Err(_) if left.is_none() => Err(Status::error(format!("node {}: {TIMED_OUT}", node.name))),
            Err(error @ AllocateError::InvalidPools) => Err(Status::unresolvable(error.to_string())),
            Err(error) => Err(Status::error(error.to_string())),
        }
    }

    /// Whether the devices of an allocated claim cannot be used on any node: they have failed, or
    /// are late.
    fn is_unusable(&self, cx: &Context<'_>, claim: &Object) -> bool {
        let body = body(claim);
        self.args.binding_timeout.is_some_and(|timeout| match readiness::of(body, claim.name()) {
            Readiness::Ready => false,
            Readiness::Waiting => readiness::is_late(body, timeout, cx.now().wall),
            Readiness::Failed(_) => true,
        })
    }
}

fn check_class(cx: &Context<'_>, class: &str, request: &str) -> Result<(), Status> {
    if class.is_empty() {
        return Err(Status::error(format!("request {request}: unsupported request type")));
    }
    if cx.object(&resources::DEVICE_CLASS, class).is_none() {
        let text = format!("request {request}: device class {class} does not exist");
        return Err(Status::unresolvable(text));
    }
    Ok(())
}

impl FilterPlugin for DynamicResources {
    fn filter(&self, cx: &Context<'_>, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        let Some(claims) = claims(state) else { return Status::success() };
        // As upstream, errors in unallocated claims come before allocated ones that do not fit.
        match self.on_node(cx, claims, node.node()) {
            Ok(None) => {}
            Ok(Some(variant)) => {
                if let Err(status) = self.allocate(&variant.demand, node.node()) {
                    return status;
                }
            }
            Err(status) => return status,
        }
        if claims.are_unusable || claims.limits.iter().any(|claim| excludes(claim, node.node())) {
            return Status::unresolvable(UNAVAILABLE);
        }
        Status::success()
    }
}

impl PreScorePlugin for DynamicResources {
    /// Skips, unlike upstream's, if every node would score 0.
    fn pre_score(&self, _: &Context<'_>, state: &mut CycleState, _: &PodInfo, _: &[NodeIndex]) -> Status {
        // As upstream, what claims got earlier does not count if nothing is to be allocated.
        let can_score = self.is_prioritizing
            && claims(state).is_some_and(|claims| claims.have_alternatives() && claims.need_devices());
        if can_score { Status::success() } else { Status::skip() }
    }
}

impl ScorePlugin for DynamicResources {
    /// The earlier an alternative, the better.
    fn score(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        _: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status> {
        let Some(claims) = claims(state) else { return Ok(0) };
        // Kept scores are those of all nodes.
        let rejected_is_0 = |status: Status| if status.is_rejected() { Ok(0) } else { Err(status) };
        let variant = match self.on_node(cx, claims, node.node()) {
            Ok(variant) => variant,
            Err(status) => return rejected_is_0(status),
        };
        let allocation = match &variant {
            Some(variant) => match self.allocate(&variant.demand, node.node()) {
                Ok(allocation) => Some((&variant.demand, allocation)),
                Err(status) => return rejected_is_0(status),
            },
            None => None,
        };
        let mut score = 0;
        let mut unallocated = 0;
        for claim in &claims.as_shared {
            let claim = body(claim);
            let new = claim.allocation.is_none().then_some(unallocated);
            for (request, place) in claim.requests.iter().zip(0..) {
                let chosen = match (new, &allocation) {
                    (Some(claim), Some((demand, allocation))) => allocation.selected(demand, claim, place),
                    _ => chosen_before(claim, request),
                };
                if let (RequestChoice::FirstAvailable(_), Some(chosen)) = (&request.choice, chosen) {
                    score += ALTERNATIVES.saturating_sub(chosen) as i64;
                }
            }
            unallocated += usize::from(new.is_some());
        }
        Ok(score)
    }

    fn normalization(&self) -> Normalize {
        Normalize::ByMax { reverse: false }
    }
}

/// The name of the pod's group, if groups count.
fn group_of(pod: &PodInfo, with_groups: bool) -> Option<&str> {
    pod.spec.group().filter(|_| with_groups).map(|group| &**group)
}

/// The alternative that the request of an allocated claim got.
fn chosen_before(claim: &ResourceClaim, request: &ClaimRequest) -> Option<usize> {
    let RequestChoice::FirstAvailable(alternatives) = &request.choice else { return None };
    let results = &claim.allocation.as_ref()?.results;
    alternatives.iter().position(|alternative| {
        let is_its = |name: &str| {
            name.split_once('/').is_some_and(|(of, sub)| of == &*request.name && sub == &*alternative.name)
        };
        results.iter().any(|result| is_its(&result.request))
    })
}

impl ReservePlugin for DynamicResources {
    fn reserve(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, node: &Arc<str>) -> Status {
        let Some(claims) = claims(state).cloned() else { return Status::success() };
        let Some(info) = cx.nodes().get(node) else {
            return Status::error(format!("node {node:?} not found"));
        };
        let variant = match self.on_node(cx, &claims, info.node()) {
            Ok(None) if !claims.shared().any(|shared| shared.is_some()) => return Status::success(),
            Ok(variant) => variant,
            Err(status) => return status,
        };
        let created = variant.as_ref().and_then(|variant| variant.new.as_ref());
        let mut new = Vec::new();
        if let Some(variant) = &variant {
            // In a group, Reserve may come after the cycles of other pods, and after what their
            // trial had pending.
            self.devices().begin(cx);
            let allocation = match self.allocate(&variant.demand, info.node()) {
                Ok(allocation) => allocation,
                Err(status) => return status,
            };
            let to_allocate = || claims.to_allocate().chain(created.map(|(claim, _)| claim));
            let mut share_ids = write::ShareIds::new(to_allocate());
            let allocations = allocation.into_claims(&variant.demand, node, &mut || share_ids.next());
            let pairs = to_allocate().zip(allocations);
            new.extend(pairs.map(|(claim, allocation)| Arc::new(write::allocated(claim, allocation))));
        }
        let mut new = new.into_iter();
        let mut reserved: Vec<Arc<Object>> =
            claims.shared().filter_map(|shared| shared.cloned().or_else(|| new.next())).collect();
        reserved.extend(new);
        let group = self.sharing_group(pod);
        for claim in once_each(&reserved) {
            let claim = Arc::clone(claim);
            cx.command(match &group {
                None => Command::AddPending(claim),
                Some(group) => Command::SharePending { claim, group: Arc::clone(group) },
            });
        }
        let created = created.and_then(|(_, offers)| {
            let Some(ExtendedResources::New(new)) = &claims.extended else { return None };
            Some(Created { claim: reserved.pop()?, mappings: new.mappings(offers) })
        });
        state.write(Reserved { claims: reserved.into(), created });
        Status::success()
    }

    /// Gives the reservation of the pod back. As upstream, an allocation that was written stays:
    /// the next attempt, or another pod, can use it.
    fn unreserve(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, _: &Arc<str>) {
        // The state is used again if this was a trial, and another pod may share the claims.
        let Reserved { claims: reserved, created } =
            state.read_mut::<Reserved>().map(std::mem::take).unwrap_or_default();
        let created = created.as_ref().map(|created| &created.claim);
        for claim in once_each(&reserved).chain(created) {
            cx.command(Command::RemovePending(Arc::clone(claim)));
        }
        let Some(claims) = claims(state) else { return };
        for claim in once_each(&claims.all) {
            let Some(latest) = cx.object(&claim.resource, &claim.key) else { continue };
            let is_held = ResourceClaim::of(&latest.body)
                .is_some_and(|body| body.allocation.is_some() && claims::is_reserved_for(body, &pod.uid));
            if latest.uid == claim.uid && is_held {
                cx.command(release::unreserve(latest, &pod.uid.text(), pod));
            }
        }
        if claims.extended.is_some() {
            for claim in extended::claims_of(cx, pod) {
                cx.command(release::delete(claim, None));
            }
        }
    }
}

impl PreBindPlugin for DynamicResources {
    fn pre_flight(&self, cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &Arc<str>) -> PreFlight {
        let Some(claims) = claims(state) else { return PreFlight::Skip { allow_parallel: true } };
        let (reserved, created) = match state.read::<Reserved>() {
            Some(Reserved { claims, created }) => (Arc::clone(claims), created.clone()),
            None => Default::default(),
        };
        let work = pre_bind::Work {
            pod: write::Consumer::of(pod),
            shares: self.with_groups && pod.spec.group().is_some(),
            group: if self.with_group_claims { pre_bind::OfGroup::new(cx, pod) } else { None },
            node: Arc::clone(node),
            claims: claims.all.clone(),
            reserved,
            created,
            timeout: self.args.binding_timeout,
            now: cx.now().wall,
        };
        PreFlight::Work { allow_parallel: true, work: Box::new(work) }
    }

    fn pre_bind(&self, cx: BindingContext, work: Box<dyn Any + Send>) -> BoxFuture<Status> {
        Box::pin(async move {
            let Ok(work) = work.downcast::<pre_bind::Work>() else {
                return Status::error("this is another plugin's work");
            };
            pre_bind::run(cx, *work).await.map_or_else(Status::error, |()| Status::success())
        })
    }
}

impl EnqueueExtensions for DynamicResources {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        hint::registrations(self.with_rules, self.with_group_claims)
    }
}
