//! Queueing hints for pods whose claims could not be allocated.

use std::sync::Arc;

use supercargo_framework::caching::HintScope;
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::hint::{self, Hint};
use supercargo_framework::objects::{
    DeviceTaintRule, Object, ObjectBody as _, ResourceClaim, ResourceSlice, TaintRuleSelector, resources,
};
use supercargo_framework::{ActionType, EventResource, PodInfo, QueueContext};

use super::{claims, group_of};

const CHANGED: ActionType = ActionType::ADD.union(ActionType::UPDATE);

/// The events, in upstream's order.
pub(super) fn registrations(with_rules: bool, with_group_claims: bool) -> Vec<EventRegistration> {
    let other = EventResource::Other;
    let mut events = vec![
        EventRegistration::always(
            EventResource::Node,
            ActionType::ADD | ActionType::UPDATE_NODE_LABEL | ActionType::UPDATE_NODE_ALLOCATABLE,
        ),
        EventRegistration::reading(
            other(resources::RESOURCE_CLAIM),
            CHANGED | ActionType::DELETE,
            move |cx, pod, change| after_claim_change(cx, pod, with_group_claims, change),
        )
        .of_claim(claim_of),
        EventRegistration::reading(
            EventResource::TargetPod,
            ActionType::UPDATE_POD_GENERATED_RESOURCE_CLAIM,
            move |cx, _, change| after_pod_change(cx, with_group_claims, change),
        ),
        EventRegistration::always(other(resources::DEVICE_CLASS), CHANGED),
        EventRegistration::always(other(resources::RESOURCE_SLICE), CHANGED),
    ];
    if with_rules {
        // Upstream lays rules over slices, so that a change of a rule is one of slices.
        let rules = EventRegistration::reading(
            other(resources::DEVICE_TAINT_RULE),
            CHANGED | ActionType::DELETE,
            |cx, _, change| after_rule_change(cx, change),
        );
        events.push(rules.scoped(HintScope::empty()));
    }
    events
}

/// The claim of a change that gives no devices back: it can help the pods of this claim only.
fn claim_of(change: &Change) -> Option<&Arc<str>> {
    let Change::Object { old, new } = change else { return None };
    let gives_back = is_allocated(old.as_deref()) && !is_allocated(new.as_deref());
    let claim = new.as_ref().or(old.as_ref()).filter(|claim| ResourceClaim::of(&claim.body).is_some())?;
    (!gives_back).then_some(&claim.key)
}

fn is_allocated(claim: Option<&Object>) -> bool {
    claim.and_then(|claim| ResourceClaim::of(&claim.body)).is_some_and(|claim| claim.allocation.is_some())
}

/// Changes of the pod's claims can help, and devices that any claim gives back.
fn after_claim_change(
    cx: &QueueContext<'_>,
    pod: &PodInfo,
    with_group_claims: bool,
    change: &Change,
) -> Hint {
    let Change::Object { old, new } = change else {
        return Err("expected a resource claim".to_owned());
    };
    let old = old.as_deref().and_then(|old| ResourceClaim::of(&old.body));
    let had_devices = old.is_some_and(|old| old.allocation.is_some());
    let Some(new) = new else { return Ok(QueueingHint::queue_if(had_devices)) };
    let Some(claim) = ResourceClaim::of(&new.body) else {
        return Err(format!("{} {} is of another kind", new.resource, new.key));
    };
    let Ok(claims) = claims::known(pod, group_of(pod, with_group_claims), cx.objects) else {
        return Ok(QueueingHint::Skip);
    };
    if had_devices && claim.allocation.is_none() {
        return Ok(QueueingHint::Queue);
    }
    let is_its = claims.iter().any(|its| its.object.uid == new.uid);
    Ok(QueueingHint::queue_if(is_its && old.is_none_or(|old| !has_same_status(old, claim))))
}

fn has_same_status(one: &ResourceClaim, other: &ResourceClaim) -> bool {
    one.allocation == other.allocation
        && one.reserved_for == other.reserved_for
        && one.raw["status"]["devices"] == other.raw["status"]["devices"]
}

/// A rule that taints a device, or no longer does.
fn after_rule_change(cx: &QueueContext<'_>, change: &Change) -> Hint {
    let Change::Object { old, new } = change else {
        return Err("expected a device taint rule".to_owned());
    };
    let [old, new] = [old, new].map(|rule| rule.as_ref().and_then(|rule| DeviceTaintRule::of(&rule.body)));
    if old == new {
        return Ok(QueueingHint::Skip);
    }
    let selectors: Vec<&TaintRuleSelector> =
        [old, new].into_iter().flatten().filter_map(|rule| rule.selector.as_ref()).collect();
    let slices = cx.objects.list(&resources::RESOURCE_SLICE);
    let mut slices = slices.filter_map(|slice| ResourceSlice::of(&slice.body));
    Ok(QueueingHint::queue_if(slices.any(|slice| selectors.iter().any(|selector| selects(selector, slice)))))
}

/// Whether a rule selects a device of the slice.
fn selects(selector: &TaintRuleSelector, slice: &ResourceSlice) -> bool {
    let is = |wanted: &Option<Arc<str>>, name: &Arc<str>| wanted.as_ref().is_none_or(|wanted| wanted == name);
    is(&selector.driver, &slice.driver)
        && is(&selector.pool, &slice.pool)
        && slice.devices.iter().any(|device| is(&selector.device, &device.name))
}

/// The claims of the pod were created.
fn after_pod_change(cx: &QueueContext<'_>, with_group_claims: bool, change: &Change) -> Hint {
    let pod = hint::new_pod(change)?;
    let known = claims::known(pod, group_of(pod, with_group_claims), cx.objects);
    Ok(QueueingHint::queue_if(known.is_ok()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_drivers_report_counts_even_if_the_scheduler_does_not_read_it() {
        let claim = |interface: &str| {
            let device = json!({"device": "gpu-0", "networkData": {"interfaceName": interface}});
            let raw = json!({"status": {"devices": [device]}});
            ResourceClaim { raw: Arc::new(raw), ..ResourceClaim::default() }
        };
        assert!(has_same_status(&claim("eth0"), &claim("eth0")));
        assert!(!has_same_status(&claim("eth0"), &claim("eth1")));
    }
}
