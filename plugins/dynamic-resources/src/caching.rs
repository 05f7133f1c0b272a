//! Filter's answers are kept for pods whose claims have one shape.
//!
//! The claims of a pod are its own, and Reserve allocates for them. But nodes that have the devices
//! for one pod have them for every pod whose claims request the same, as those of one template do.

use supercargo_devices::Reach;
use supercargo_framework::caching::{Applied, Caching, IncrementalPlugin, Scope};
use supercargo_framework::objects::{DeviceRequest, RequestChoice, ResourceClaim, Typed};
use supercargo_framework::plugin::SignPlugin;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{Context, CycleState, NodeInfo, NodeRecord, PodInfo};

use super::extended::{self, ExtendedResources};
use super::{DynamicResources, Found};
use crate::extended_resources;

/// Begins the signature of a pod with claims: no other plugin's part begins like this.
const WITH_CLAIMS: u8 = 2;

impl SignPlugin for DynamicResources {
    /// Writes what the pod's claims request, and its extended resources of devices. A pod with a
    /// claim that is allocated, is about to be, or cannot be used is answered on its own, and so is
    /// one with a claim of an earlier attempt for its extended resources.
    fn sign(&self, cx: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        let is_extended = self.with_extended && extended_resources::requests_devices(cx, pod);
        if is_extended && !extended::claims_of(cx, pod).is_empty() {
            return Err(Unsignable);
        }
        if pod.spec.resource_claims().is_empty() && !is_extended {
            return Ok(());
        }
        let claims = self.claims_of(cx, pod).map_err(|_| Unsignable)?;
        if claims
            .iter()
            .any(|claim| claim.allocation.is_some() || cx.pending_allocation(claim.object).is_some())
        {
            return Err(Unsignable);
        }
        signer.write(&WITH_CLAIMS);
        signer.write(&claims.len());
        for claim in claims {
            write_shape(signer, claim);
        }
        // The classes are read in PreFilter: a table does not outlive a change of one.
        signer.write(&is_extended);
        if is_extended {
            signer.write(pod.spec.extended_resources());
        }
        Ok(())
    }
}

/// Writes what the allocation of a claim depends on. Names of requests are a part of it:
/// constraints and alternatives go by them.
fn write_shape(signer: &mut Signer, claim: Typed<'_, ResourceClaim>) {
    signer.write(&claim.constraints);
    signer.write(&claim.requests.len());
    for request in &claim.requests {
        signer.write(&request.name);
        match &request.choice {
            RequestChoice::Unknown => signer.write(&0_u8),
            RequestChoice::Exactly(request) => {
                signer.write(&1_u8);
                write_request(signer, request);
            }
            RequestChoice::FirstAvailable(requests) => {
                signer.write(&2_u8);
                signer.write(&requests.len());
                for request in requests {
                    write_request(signer, request);
                }
            }
        }
    }
}

fn write_request(signer: &mut Signer, request: &DeviceRequest) {
    let DeviceRequest {
        name,
        class,
        selectors,
        count,
        admin_access,
        tolerations,
        capacity,
        has_derived_attributes,
    } = request;
    signer.write(&(name, class, selectors, count, admin_access, capacity, has_derived_attributes));
    signer.write(&tolerations.len());
    for toleration in tolerations {
        signer.write(&(&toleration.key, toleration.operator, &toleration.value, toleration.effect));
    }
}

impl Caching for DynamicResources {
    fn filter_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        Scope::NodeObject
    }

    /// Allocation can fail; what an allocated claim says about nodes cannot.
    fn filter_never_fails(&self, _: &Context<'_>, state: &CycleState, _: &PodInfo) -> bool {
        super::claims(state).is_none_or(|claims| !claims.need_devices())
    }

    fn pre_score_depends_on_nodes(&self) -> bool {
        false
    }

    fn score_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        Scope::NodeObject
    }

    /// Selectors are the only large part that a claim does not hold.
    fn state_bytes(&self, state: &CycleState) -> usize {
        let Some(claims) = super::claims(state) else { return 0 };
        match &claims.extended {
            Some(ExtendedResources::New(new)) => new.bytes(),
            _ => claims.demand.as_ref().map_or(0, |variant| variant.demand.bytes()),
        }
    }

    fn prepares_each(&self, pod: &PodInfo) -> bool {
        let is_extended = || self.with_extended && extended::wanted(pod).next().is_some();
        !pod.spec.resource_claims().is_empty() || is_extended()
    }
}

/// Only changes of devices and claims alter what is prepared.
impl IncrementalPlugin for DynamicResources {
    fn pod_added(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn pod_removed(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_added(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_removed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn node_changed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeRecord, _: &NodeRecord) -> Applied {
        Applied::Here
    }

    fn feasible_changed(&self, _: &mut CycleState, _: &PodInfo, _: &NodeInfo, _: bool) -> Applied {
        Applied::Here
    }

    fn objects_changed(&self, cx: &Context<'_>, state: &mut CycleState, _: &PodInfo) -> Applied {
        let Some(found) = state.read_mut::<Found>() else { return Applied::Rebuild };
        let mut devices = self.devices();
        match devices.touched_since(cx, found.position) {
            None => Applied::Rebuild,
            Some(reach) => {
                found.position = devices.position();
                match reach {
                    Reach::Nodes(nodes) => Applied::Nodes(nodes),
                    Reach::All => Applied::Everywhere,
                }
            }
        }
    }
}
