//! Whether the devices of a claim are ready for the pod: binding conditions.

use std::time::Duration;

use supercargo_framework::Timestamp;
use supercargo_framework::objects::{
    AllocatedDeviceStatus, AllocationResult, ClaimAllocation, ResourceClaim,
};

/// The state of a claim's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Every condition that the devices name is true, or they name none.
    Ready,
    /// Some condition is not true yet.
    Waiting,
    /// A failure condition is true.
    Failed(String),
}

/// Same as upstream's `isClaimReadyForBinding`: the first device that is not ready decides.
pub fn of(claim: &ResourceClaim, name: &str) -> Readiness {
    let Some(allocation) = &claim.allocation else { return Readiness::Waiting };
    for result in allocation.results.iter().filter(|result| !result.binding_conditions.is_empty()) {
        let Some(status) = status_of(claim, result) else { return Readiness::Waiting };
        let find = |kind: &str| status.conditions.iter().find(|condition| *condition.kind == *kind);
        let failures = result.binding_failure_conditions.iter().filter_map(|kind| find(kind));
        if let Some(failure) = failures.into_iter().find(|condition| condition.is_true) {
            let (reason, message) = (&failure.reason, supercargo_cel::quote(&failure.message));
            return Readiness::Failed(format!(
                "device binding failed: claim={name}, reason={reason}, message={message}"
            ));
        }
        let is_true = |kind: &str| find(kind).is_some_and(|condition| condition.is_true);
        if !result.binding_conditions.iter().all(|kind| is_true(kind)) {
            return Readiness::Waiting;
        }
    }
    Readiness::Ready
}

fn status_of<'a>(claim: &'a ResourceClaim, result: &AllocationResult) -> Option<&'a AllocatedDeviceStatus> {
    claim.devices.iter().find(|status| status.device == result.device)
}

/// Whether any device of the allocation names conditions.
pub fn has_conditions(allocation: &ClaimAllocation) -> bool {
    allocation.results.iter().any(|result| !result.binding_conditions.is_empty())
}

/// Whether the devices had their time.
pub fn is_late(claim: &ResourceClaim, timeout: Duration, now: Timestamp) -> bool {
    let Some(allocation) = &claim.allocation else { return false };
    let Some(at) = allocation.allocated_at else { return false };
    has_conditions(allocation) && Timestamp(at.saturating_mul(1000)).plus(timeout) < now
}
