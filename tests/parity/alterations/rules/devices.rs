//! Devices: DynamicResources.

use serde_json::{Map, Value};
use supercargo_framework::binding::ApiCall;
use supercargo_framework::event::QueueingHint::Skip;
use supercargo_framework::objects::resources;
use supercargo_framework::{ActionType, Code, EventResource, Feature, Features, Status};

use super::super::alteration::{Alteration, Change};
use super::super::altered_plugin::{
    answers, filter, hints, ignores, post_filter, pre_enqueue, pre_filter, prepares_nothing,
    reserves_nothing, score, unreserves_nothing,
};
use super::{admits, alter, passes, plugin, resolvable, reworded, switch_off};

const NAME: &str = "DynamicResources";

pub(super) fn all() -> Vec<Alteration> {
    [points(), events(), features(), extended_resources()].into_iter().flatten().collect()
}

fn points() -> Vec<Alteration> {
    vec![
        alter(
            "DynamicResources: PreEnqueue passes",
            "a pod waits outside the queues for its claims",
            plugin(NAME, pre_enqueue(passes)),
            &["resource-claims/claim-missing", "resource-claims/claim-deleting"],
        ),
        alter(
            "DynamicResources: PreFilter passes",
            "the class of a claim exists",
            plugin(NAME, pre_filter(admits)),
            &["resource-claims/class-missing"],
        ),
        alter(
            "DynamicResources: Filter passes",
            "a node has the devices",
            plugin(NAME, filter(passes)),
            &["devices/devices-decide-the-node", "devices/exact-count-beyond-node"],
        ),
        alter(
            "DynamicResources: another message",
            "a node without the devices has its own message",
            plugin(NAME, filter(reworded)),
            &["devices/exact-count-beyond-node"],
        ),
        alter(
            "DynamicResources: rejections marked resolvable",
            "preemption frees no device",
            plugin(NAME, filter(resolvable)),
            &["resource-claims/preemption-frees-no-device"],
        ),
        alter(
            "DynamicResources: PostFilter says nothing",
            "the message says that a claim loses its devices",
            plugin(NAME, post_filter(|nomination, _| (nomination, Status::new(Code::Unschedulable, "")))),
            &["resource-claims/allocated-claim-on-another-node"],
        ),
        alter(
            "DynamicResources: scores nothing",
            "earlier alternatives are better",
            plugin(NAME, score(|_| 0)),
            &["devices-features/first-available-decides"],
        ),
        alter(
            "DynamicResources: Reserve does nothing",
            "a pod that is being bound holds its devices",
            plugin(NAME, reserves_nothing()),
            &["devices/device-of-unbound-pod", "resource-claims/claim-by-name"],
        ),
        alter(
            "DynamicResources: Unreserve does nothing",
            "a claim is not reserved any more if binding fails",
            plugin(NAME, unreserves_nothing()),
            &["devices-features/binding-fails"],
        ),
        alter(
            "DynamicResources: no finalizer",
            "a claim has a finalizer before its allocation",
            plugin(NAME, answers(without_finalizer)),
            &["resource-claims/claim-by-name"],
        ),
        alter(
            "DynamicResources: PreBind does nothing",
            "devices are written to the claim",
            plugin(NAME, prepares_nothing()),
            &["resource-claims/claim-by-name"],
        ),
    ]
}

/// The answer to a write of a claim that only adds the finalizer.
fn without_finalizer(call: &ApiCall) -> Option<Value> {
    let ApiCall::Request { method, path, body, .. } = call else { return None };
    (&**method == "PUT" && !path.ends_with("/status")).then(|| body.clone())
}

fn events() -> Vec<Alteration> {
    let other = EventResource::Other;
    let claims = || other(resources::RESOURCE_CLAIM);
    let ignored = |resource, action| plugin(NAME, ignores(resource, action));
    vec![
        alter(
            "DynamicResources: claims never requeue",
            "a claim that gives its devices back wakes pods",
            plugin(NAME, hints(claims(), Skip)),
            &["resource-claims-hints/hint-claim-deallocated"],
        ),
        alter(
            "DynamicResources: deleted claims ignored",
            "a deleted claim that had devices wakes pods",
            ignored(claims(), ActionType::DELETE),
            &["resource-claims-hints/hint-claim-deleted"],
        ),
        alter(
            "DynamicResources: slices ignored",
            "a new slice wakes a pod",
            ignored(other(resources::RESOURCE_SLICE), ActionType::ALL),
            &["resource-claims-hints/hint-slice-added"],
        ),
        alter(
            "DynamicResources: changes of slices ignored",
            "a device that is added to a slice wakes a pod",
            ignored(other(resources::RESOURCE_SLICE), ActionType::UPDATE),
            &["resource-claims-hints/hint-slice-updated"],
        ),
        alter(
            "DynamicResources: classes ignored",
            "a class that selects more devices wakes a pod",
            ignored(other(resources::DEVICE_CLASS), ActionType::ALL),
            &["resource-claims-hints/hint-class-widened"],
        ),
        alter(
            "DynamicResources: new nodes ignored",
            "a new node wakes a pod",
            ignored(EventResource::Node, ActionType::ADD),
            &["resource-claims-hints/hint-node-added"],
        ),
        alter(
            "DynamicResources: labels of nodes ignored",
            "a label of a node wakes a pod",
            ignored(EventResource::Node, ActionType::UPDATE_NODE_LABEL),
            &["resource-claims-hints/hint-node-labelled"],
        ),
        alter(
            "DynamicResources: deleted rules ignored",
            "a rule that is gone wakes a pod",
            ignored(other(resources::DEVICE_TAINT_RULE), ActionType::DELETE),
            &["devices-features/taint-rule"],
        ),
        alter(
            "DynamicResources: changes of rules ignored",
            "a rule that changes wakes a pod",
            ignored(other(resources::DEVICE_TAINT_RULE), ActionType::UPDATE),
            &["devices-features/taint-rule-changed"],
        ),
    ]
}

/// Builds the plugin with other arguments or features.
fn built(
    what: &'static str,
    rule: &'static str,
    change: fn(&mut Map<String, Value>, &mut Features),
    detected_by: &'static [&'static str],
) -> Alteration {
    alter(what, rule, Change::Built(NAME, change), detected_by)
}

fn features() -> Vec<Alteration> {
    vec![
        built(
            "DynamicResources: no consumable capacity",
            "claims share devices up to their capacity",
            |_, features| switch_off(features, Feature::DRAConsumableCapacity),
            &["devices-features/shared-device", "devices-features/capacity-default"],
        ),
        built(
            "DynamicResources: no partitionable devices",
            "devices share counters",
            |_, features| switch_off(features, Feature::DRAPartitionableDevices),
            &["devices-features/counters", "devices-features/counters-backtracking"],
        ),
        built(
            "DynamicResources: no taints",
            "a device with a taint is not used",
            |_, features| switch_off(features, Feature::DRADeviceTaints),
            &["devices-features/taint-no-schedule", "devices-features/taint-no-execute"],
        ),
        built(
            "DynamicResources: no rules",
            "a rule taints devices",
            |_, features| switch_off(features, Feature::DRADeviceTaintRules),
            &["devices-features/taint-rule"],
        ),
        built(
            "DynamicResources: no binding conditions",
            "a pod waits until its devices are ready",
            |args, features| {
                args.remove("bindingTimeout");
                switch_off(features, Feature::DRADeviceBindingConditions);
            },
            &["devices-features/binding-conditions"],
        ),
        built(
            "DynamicResources: no alternatives",
            "a request gets its second choice",
            |_, features| switch_off(features, Feature::DRAPrioritizedList),
            &["devices-features/first-available"],
        ),
    ]
}

/// Extended resources of devices.
fn extended_resources() -> Vec<Alteration> {
    const CLASS: EventResource = EventResource::Other(resources::DEVICE_CLASS);
    const FIT: &str = "NodeResourcesFit";
    vec![
        alter(
            "NodeResourcesFit: no devices",
            "a node that does not offer an extended resource can have devices for it",
            Change::Built(FIT, |_, features| switch_off(features, Feature::DRAExtendedResource)),
            &["extended-resources/devices-only"],
        ),
        alter(
            "DynamicResources: no extended resources",
            "devices are allocated for extended resources",
            Change::Built(NAME, |_, features| switch_off(features, Feature::DRAExtendedResource)),
            &["extended-resources/more-than-devices"],
        ),
        alter(
            "NodeResourcesFit: ignores new classes",
            "a class that names the resource requeues the pod",
            plugin(FIT, ignores(CLASS, ActionType::ADD)),
            &["extended-resources/hint-class-added"],
        ),
        alter(
            "NodeResourcesFit: ignores changed classes",
            "a class that names the resource from now on requeues the pod",
            plugin(FIT, hints(CLASS, Skip)),
            &["extended-resources/hint-class-names-resource"],
        ),
        alter(
            "NodeResourcesFit: changed nodes never requeue",
            "a node that fits with its devices requeues the pod",
            plugin(FIT, hints(EventResource::Node, Skip)),
            &["extended-resources/hint-node-allocatable"],
        ),
    ]
}
