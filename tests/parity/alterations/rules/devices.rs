//! Devices.

use supercargo_framework::event::QueueingHint::Skip;
use supercargo_framework::objects::resources;
use supercargo_framework::{ActionType, EventResource, Feature};

use super::super::alteration::{Alteration, Change};
use super::super::twist::{
    filter, hints, ignores, post_filter, pre_enqueue, prepares_nothing, reserves_nothing, score,
};
use super::{alter, passes, plugin, reworded, switch_off};

const NAME: &str = "DynamicResources";
const CLAIM: EventResource = EventResource::Other(resources::RESOURCE_CLAIM);
const CLASS: EventResource = EventResource::Other(resources::DEVICE_CLASS);
const SLICE: EventResource = EventResource::Other(resources::RESOURCE_SLICE);

pub(super) fn all() -> Vec<Alteration> {
    [claims(), extended_resources()].into_iter().flatten().collect()
}

fn claims() -> Vec<Alteration> {
    vec![
        alter(
            "DynamicResources: Filter passes",
            "a node without free devices rejects the pod",
            plugin(NAME, filter(passes)),
            &["devices/exact-count-beyond-node"],
        ),
        alter(
            "DynamicResources: another message",
            "the reason is \"cannot allocate all claims\"",
            plugin(NAME, filter(reworded)),
            &["devices/exact-count-beyond-node"],
        ),
        alter(
            "DynamicResources: PreEnqueue passes",
            "a pod waits for its claim without an attempt",
            plugin(NAME, pre_enqueue(passes)),
            &["resource-claims/claim-missing"],
        ),
        alter(
            "DynamicResources: PostFilter says nothing",
            "a claim that no other pod uses loses its devices",
            plugin(
                NAME,
                post_filter(|nomination, _| (nomination, supercargo_framework::Status::unschedulable(""))),
            ),
            &["resource-claims/allocated-claim-on-another-node"],
        ),
        alter(
            "DynamicResources: later alternatives preferred",
            "an earlier alternative scores higher",
            plugin(NAME, score(|score| -score)),
            &["devices-features/first-available-decides"],
        ),
        alter(
            "DynamicResources: Reserve skipped",
            "Reserve chooses the devices",
            plugin(NAME, reserves_nothing()),
            &["resource-claims/claim-by-name"],
        ),
        alter(
            "DynamicResources: PreBind skipped",
            "the allocation is written before the pod is bound",
            plugin(NAME, prepares_nothing()),
            &["resource-claims/claim-by-name"],
        ),
        alter(
            "DynamicResources: claims never requeue",
            "devices that a claim gives back requeue the pod",
            plugin(NAME, hints(CLAIM, Skip)),
            &["resource-claims-hints/hint-claim-deallocated"],
        ),
        alter(
            "DynamicResources: ignores events of classes",
            "a class that selects more devices requeues the pod",
            plugin(NAME, ignores(CLASS, ActionType::UPDATE)),
            &["resource-claims-hints/hint-class-widened"],
        ),
        alter(
            "DynamicResources: ignores new slices",
            "new devices requeue the pod",
            plugin(NAME, ignores(SLICE, ActionType::ADD)),
            &["resource-claims-hints/hint-slice-added"],
        ),
    ]
}

fn extended_resources() -> Vec<Alteration> {
    vec![
        alter(
            "NodeResourcesFit: no devices",
            "a node that does not offer an extended resource can have devices for it",
            Change::Built("NodeResourcesFit", |_, features| {
                switch_off(features, Feature::DRAExtendedResource);
            }),
            &["extended-resources/devices-only"],
        ),
        alter(
            "DynamicResources: no extended resources",
            "devices are allocated for extended resources",
            Change::Built(NAME, |_, features| {
                switch_off(features, Feature::DRAExtendedResource);
            }),
            &["extended-resources/more-than-devices"],
        ),
        alter(
            "NodeResourcesFit: ignores new classes",
            "a class that names the resource requeues the pod",
            plugin("NodeResourcesFit", ignores(CLASS, ActionType::ADD)),
            &["extended-resources/hint-class-added"],
        ),
        alter(
            "NodeResourcesFit: ignores changed classes",
            "a class that names the resource from now on requeues the pod",
            plugin("NodeResourcesFit", hints(CLASS, Skip)),
            &["extended-resources/hint-class-names-resource"],
        ),
        alter(
            "NodeResourcesFit: changed nodes never requeue",
            "a node that fits with its devices requeues the pod",
            plugin("NodeResourcesFit", hints(EventResource::Node, Skip)),
            &["extended-resources/hint-node-allocatable"],
        ),
    ]
}
