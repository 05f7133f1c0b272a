//! Allocates devices for the claims of pods (dynamic resource allocation), filters nodes that cannot
//! provide them, and writes the allocation once a node is chosen.
//!
//! Reserve notes the allocation as pending, so that the next cycle does not use the devices. PreBind
//! writes it to the claims.

pub mod args;
mod claims;
mod devices;
mod hint;
mod pre_bind;
mod readiness;
mod release;
#[cfg(test)]
mod tests;
mod write;

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use supercargo_devices::{AllocateError, Allocation, Demand};
use supercargo_framework::binding::{BindingContext, BoxFuture};
use supercargo_framework::caching::{Caching, Stateless};
use supercargo_framework::event::EventRegistration;
use supercargo_framework::objects::{
    ClaimRequest, Object, ObjectBody as _, RequestChoice, ResourceClaim, Typed, resources,
};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, NodeStatuses, Nomination, Normalize, NotPreFiltered,
    PostFilterPlugin, PreBindPlugin, PreEnqueuePlugin, PreFilter, PreFilterPlugin, PreFlight, PreScorePlugin,
    ReservePlugin, RunFilters, ScorePlugin, SignPlugin,
};
use supercargo_framework::registry::ArgsError;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::status::Reasons;
use supercargo_framework::{
    Code, Command, Context, CycleState, Feature, Features, NodeIndex, NodeInfo, NodeRecord, Plugin, PodInfo,
    QueueContext, Status,
};

use self::args::Args;
use self::devices::Devices;
use self::readiness::Readiness;

/// The plugin's name.
pub const NAME: &str = "DynamicResources";

/// The maximum of alternatives in a request, and the score of the first.
const ALTERNATIVES: usize = 8;

/// Filter's answer for a node that cannot use an allocated claim.
const UNAVAILABLE: &str = "resourceclaim not available on the node";

struct DynamicResources {
    args: Args,
    is_prioritizing: bool,
    with_rules: bool,
    devices: Mutex<Devices>,
}

/// Builds the plugin.
pub(crate) fn from_args(args: &Value, features: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    let enabled = |feature| features.enabled(feature);
    let of_allocator = supercargo_devices::Features {
        admin_access: enabled(Feature::DRAAdminAccess),
        binding_conditions: enabled(Feature::DRADeviceBindingConditions)
            && enabled(Feature::DRAResourceClaimDeviceStatus),
        consumable_capacity: enabled(Feature::DRAConsumableCapacity),
        device_taints: enabled(Feature::DRADeviceTaints),
        fractional_capacity_range: false,
        partitionable_devices: enabled(Feature::DRAPartitionableDevices),
        prioritized_list: enabled(Feature::DRAPrioritizedList),
    };
    let with_rules = of_allocator.device_taints && enabled(Feature::DRADeviceTaintRules);
    Ok(Arc::new(DynamicResources {
        args: args::parse(args, features)?,
        is_prioritizing: of_allocator.prioritized_list,
        with_rules,
        devices: Mutex::new(Devices::new(of_allocator, with_rules)),
    }))
}

/// The state that PreFilter writes.
#[derive(Clone)]
struct Found(Arc<Claims>);

/// The claims of the pod, in the order of its spec.
struct Claims {
    all: Box<[Arc<Object>]>,
    /// Of those without an allocation.
    demand: Option<Demand>,
}

/// The decision of Reserve for PreBind and Unreserve: copies of the claims without an allocation,
/// with one.
#[derive(Clone)]
struct Reserved(Arc<[Arc<Object>]>);

fn claims(state: &CycleState) -> Option<&Arc<Claims>> {
    state.read::<Found>().map(|found| &found.0)
}

fn body(claim: &Object) -> &ResourceClaim {
    ResourceClaim::of(&claim.body).expect("only claims are found")
}

impl Claims {
    fn to_allocate(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.all.iter().filter(|claim| body(claim).allocation.is_none())
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
            .pre_score(&self)
            .score(&self)
            .reserve(&self)
            .pre_bind(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&Arc::new(Stateless))
    }
}

impl PreEnqueuePlugin for DynamicResources {
    fn pre_enqueue(&self, cx: &QueueContext<'_>, pod: &PodInfo) -> Status {
        claims::known(pod, cx.objects).map_or_else(Status::unresolvable, |_| Status::success())
    }
}

impl PreFilterPlugin for DynamicResources {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        if pod.spec.resource_claims().is_empty() {
            return PreFilter::Skip;
        }
        let found = claims::of_pod(pod, |key| cx.object(&resources::RESOURCE_CLAIM, key));
        let found = match found {
            Ok(found) if found.is_empty() => return PreFilter::Skip,
            Ok(found) => found,
            Err(reason) => return PreFilter::Reject(Status::unresolvable(reason)),
        };
        if let Err(status) = found.iter().try_for_each(|claim| self.check(cx, *claim)) {
            return PreFilter::Reject(status);
        }
        let all: Box<[Arc<Object>]> = found.iter().map(|claim| Arc::clone(claim.object)).collect();
        let mut claims = Claims { all, demand: None };
        let to_allocate: Vec<Arc<Object>> = claims.to_allocate().cloned().collect();
        if !to_allocate.is_empty() {
            claims.demand = Some(self.devices().demand(cx, &to_allocate));
        }
        state.write(Found(Arc::new(claims)));
        PreFilter::AllNodes
    }
}

impl DynamicResources {
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
            let terms = allocation.node_selector.iter().flat_map(|selector| &selector.terms);
            let invalid = terms.flat_map(|term| &term.invalid).next();
            return invalid.map_or(Ok(()), |reason| Err(Status::error(reason.to_string())));
        }
        let key = &claim.object.key;
        if cx.pending_allocation(claim.object).is_some() {
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

    /// The devices for the claims without an allocation.
    fn allocate(&self, demand: &Demand, node: &NodeRecord) -> Result<Allocation, Status> {
        match self.devices().allocate(demand, node, &mut || None) {
            Ok(Some(allocation)) => Ok(allocation),
            Ok(None) => Err(Status::unresolvable("cannot allocate all claims")),
            Err(error @ AllocateError::InvalidPools) => Err(Status::unresolvable(error.to_string())),
            Err(error) => Err(Status::error(error.to_string())),
        }
    }

    /// Whether an allocated claim cannot be used on the node, or no longer.
    fn is_unavailable(&self, cx: &Context<'_>, claim: &Object, node: &NodeRecord) -> bool {
        let body = body(claim);
        let Some(allocation) = &body.allocation else { return false };
        let excludes_node = allocation
            .node_selector
            .as_ref()
            .is_some_and(|selector| !selector.terms.iter().any(|term| term.matches(node)));
        // The gate of nodes without these operations is not there.
        let skips_node_operations = allocation.results.iter().any(|result| result.skips_node_operations);
        excludes_node
            || skips_node_operations
            || self.args.binding_timeout.is_some_and(|timeout| match readiness::of(body, claim.name()) {
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
        if let Some(demand) = &claims.demand
            && let Err(status) = self.allocate(demand, node.node())
        {
            return status;
        }
        if claims.all.iter().any(|claim| self.is_unavailable(cx, claim, node.node())) {
            return Status::unresolvable(UNAVAILABLE);
        }
        Status::success()
    }
}

impl PostFilterPlugin for DynamicResources {
    /// Takes the allocation of a claim away that no other pod uses, if it kept the pod off a node.
    fn post_filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &Arc<PodInfo>,
        statuses: &NodeStatuses,
        _: &dyn RunFilters,
    ) -> (Nomination, Status) {
        // As upstream, which then lacks its state.
        if state.read::<NotPreFiltered>().is_some_and(|plugins| plugins.0.contains(&NAME)) {
            return (Nomination::Keep, Status::error("not found"));
        }
        let unavailable = claims(state).and_then(|claims| {
            claims.all.iter().find(|claim| {
                is_free_but_for(body(claim), pod)
                    && statuses.iter().any(|(node, status)| {
                        // As upstream, claims do not count on a node where others cannot be allocated.
                        let is_rejected_by_claims =
                            status.reasons().iter().any(|reason| reason.to_string() == UNAVAILABLE);
                        status.plugin() == NAME
                            && is_rejected_by_claims
                            && self.is_unavailable(cx, claim, cx.node(node).node())
                    })
            })
        });
        let Some(claim) = unavailable else {
            return (Nomination::Keep, Status::with_reasons(Code::Unschedulable, Reasons::new()));
        };
        cx.command(release::deallocate(claim, pod));
        (Nomination::Keep, Status::unschedulable("deallocation of ResourceClaim completed"))
    }
}

/// Whether no pod but this one uses the claim.
fn is_free_but_for(claim: &ResourceClaim, pod: &PodInfo) -> bool {
    match &*claim.reserved_for {
        [] => true,
        [only] => *only.uid == *pod.uid.text(),
        _ => false,
    }
}

impl PreScorePlugin for DynamicResources {
    /// Skips, unlike upstream's, if every node would score 0.
    fn pre_score(&self, _: &Context<'_>, state: &mut CycleState, _: &PodInfo, _: &[NodeIndex]) -> Status {
        let can_score =
            self.is_prioritizing && claims(state).is_some_and(|claims| claims.have_alternatives());
        if can_score { Status::success() } else { Status::skip() }
    }
}

impl ScorePlugin for DynamicResources {
    /// The earlier an alternative, the better.
    fn score(
        &self,
        _: &Context<'_>,
        state: &CycleState,
        _: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status> {
        let Some(claims) = claims(state) else { return Ok(0) };
        let allocation = match &claims.demand {
            Some(demand) => Some((demand, self.allocate(demand, node.node())?)),
            None => None,
        };
        let mut score = 0;
        let mut unallocated = 0;
        for claim in &claims.all {
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
    fn reserve(&self, cx: &Context<'_>, state: &mut CycleState, _: &PodInfo, node: &Arc<str>) -> Status {
        let Some(claims) = claims(state).cloned() else { return Status::success() };
        let Some(demand) = &claims.demand else { return Status::success() };
        let Some(info) = cx.nodes().get(node) else {
            return Status::error(format!("node {node:?} not found"));
        };
        // The objects have not changed since the node was filtered.
        let allocation = match self.allocate(demand, info.node()) {
            Ok(allocation) => allocation,
            Err(status) => return status,
        };
        let mut share_ids = write::ShareIds::new(claims.to_allocate());
        let allocations = allocation.into_claims(demand, node, &mut || share_ids.next());
        let reserved: Arc<[Arc<Object>]> = claims
            .to_allocate()
            .zip(allocations)
            .map(|(claim, allocation)| Arc::new(write::allocated(claim, allocation)))
            .collect();
        for (index, claim) in reserved.iter().enumerate() {
            // A pod may name a claim twice.
            if !reserved[..index].iter().any(|other| other.uid == claim.uid) {
                cx.command(Command::AddPending(Arc::clone(claim)));
            }
        }
        state.write(Reserved(reserved));
        Status::success()
    }

    /// Gives the reservation of the pod back. As upstream, an allocation that was written stays: the
    /// next attempt, or another pod, can use it.
    fn unreserve(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, _: &Arc<str>) {
        let Some(claims) = claims(state) else { return };
        if let Some(Reserved(reserved)) = state.read() {
            for claim in reserved.iter() {
                cx.command(Command::RemovePending(Arc::clone(claim)));
            }
        }
        for claim in &claims.all {
            let Some(latest) = cx.object(&claim.resource, &claim.key) else { continue };
            let is_held = ResourceClaim::of(&latest.body)
                .is_some_and(|body| body.allocation.is_some() && claims::is_reserved_for(body, &pod.uid));
            if latest.uid == claim.uid && is_held {
                cx.command(release::unreserve(latest, pod));
            }
        }
    }
}

impl PreBindPlugin for DynamicResources {
    fn pre_flight(&self, cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &Arc<str>) -> PreFlight {
        let Some(claims) = claims(state) else { return PreFlight::Skip { allow_parallel: true } };
        let reserved = state.read::<Reserved>().map(|reserved| Arc::clone(&reserved.0));
        let work = pre_bind::Work {
            pod: write::Consumer::of(pod),
            node: Arc::clone(node),
            claims: claims.all.clone(),
            reserved: reserved.unwrap_or_default(),
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
        hint::registrations(self.with_rules)
    }
}

impl SignPlugin for DynamicResources {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, _: &mut Signer) -> Result<(), Unsignable> {
        if pod.spec.resource_claims().is_empty() { Ok(()) } else { Err(Unsignable) }
    }
}

impl Caching for DynamicResources {
    fn pre_score_depends_on_nodes(&self) -> bool {
        false
    }

    fn stands_alone(&self, pod: &PodInfo) -> bool {
        !pod.spec.resource_claims().is_empty()
    }
}
