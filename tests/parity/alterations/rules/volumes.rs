//! Volume plugins.

use supercargo_framework::event::QueueingHint::{Queue, Skip};
use supercargo_framework::objects::resources;
use supercargo_framework::{ActionType, EventResource};

use super::super::alteration::Alteration;
use super::super::twist::{
    deaf_to, filter, hints, pre_filter, prepares_nothing, removed_forgotten, reserves_nothing,
};
use super::{admits, alter, first_reason, passes, plugin, reworded, unresolvable};

pub(super) fn all() -> Vec<Alteration> {
    [restrictions(), limits(), binding(), zone()].into_iter().flatten().collect()
}

fn restrictions() -> Vec<Alteration> {
    const NAME: &str = "VolumeRestrictions";
    vec![
        alter(
            "VolumeRestrictions: Filter passes",
            "a disk has one user of a node (5.10)",
            plugin(NAME, filter(passes)),
            &["volume-restrictions/gce-conflict"],
        ),
        alter(
            "VolumeRestrictions: another reason",
            "a claim for one pod has a reason of its own (5.10)",
            plugin(NAME, filter(reworded)),
            &["read-write-once-pod/in-use"],
        ),
        alter(
            "VolumeRestrictions: its objection cannot be resolved",
            "who goes frees his claim (5.10)",
            plugin(NAME, filter(unresolvable)),
            &["read-write-once-pod/preempts-user-of-claim"],
        ),
        alter(
            "VolumeRestrictions: removed pods forgotten",
            "a trial takes the claims of the victims out of use (5.10)",
            plugin(NAME, removed_forgotten()),
            &["read-write-once-pod/preempts-user-of-claim"],
        ),
        alter(
            "VolumeRestrictions: no change of a pod helps",
            "a freed disk is worth another try (5.2)",
            plugin(NAME, hints(EventResource::Pod, Skip)),
            &["volume-restrictions/hint-disk-released-requeues"],
        ),
        alter(
            "VolumeRestrictions: every pod that goes helps",
            "another disk is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Pod, Queue)),
            &["volume-restrictions/hint-other-disk-released-skips"],
        ),
    ]
}

fn limits() -> Vec<Alteration> {
    const NAME: &str = "NodeVolumeLimits";
    vec![
        alter(
            "NodeVolumeLimits: Filter passes",
            "a node has no more volumes than its driver attaches (5.11)",
            plugin(NAME, filter(passes)),
            &["node-volume-limits/limit-reached"],
        ),
        alter(
            "NodeVolumeLimits: another reason",
            "the reason is \"node(s) exceed max volume count\" (5.11)",
            plugin(NAME, filter(reworded)),
            &["node-volume-limits/limit-reached"],
        ),
        alter(
            "NodeVolumeLimits: its objection cannot be resolved",
            "who goes makes room for a volume (5.11)",
            plugin(NAME, filter(unresolvable)),
            &["node-volume-limits/preempts-for-volume-limit"],
        ),
        alter(
            "NodeVolumeLimits: deaf to drivers",
            "a higher limit is worth another try (5.2)",
            plugin(NAME, deaf_to(EventResource::Other(resources::CSI_NODE), ActionType::UPDATE)),
            &["node-volume-limits/hint-limit-raised-requeues"],
        ),
        alter(
            "NodeVolumeLimits: deaf to volumes that are detached",
            "a detached volume is worth another try (5.2)",
            plugin(NAME, deaf_to(EventResource::Other(resources::VOLUME_ATTACHMENT), ActionType::DELETE)),
            &["node-volume-limits/hint-volume-detached-requeues"],
        ),
        alter(
            "NodeVolumeLimits: every pod that goes helps",
            "a pod without volumes is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Pod, Queue)),
            &["node-volume-limits/hint-pod-without-volume-deleted-skips"],
        ),
    ]
}

fn binding() -> Vec<Alteration> {
    const NAME: &str = "VolumeBinding";
    vec![
        alter(
            "VolumeBinding: PreFilter admits",
            "a claim that is to be bound at once is waited for (5.12)",
            plugin(NAME, pre_filter(admits)),
            &["persistent-volume-claims/unbound-immediate-claim"],
        ),
        alter(
            "VolumeBinding: Filter passes",
            "a pod goes where its volumes are (5.12)",
            plugin(NAME, filter(passes)),
            &["volume-binding/bound-volume-out-of-reach"],
        ),
        alter(
            "VolumeBinding: another reason",
            "each obstacle has a reason of its own (5.12)",
            plugin(NAME, filter(reworded)),
            &["volume-binding/volume-too-small"],
        ),
        alter(
            "VolumeBinding: the first reason only",
            "a node has all its reasons (5.12)",
            plugin(NAME, filter(first_reason)),
            &["volume-binding/two-reasons-of-one-node"],
        ),
        alter(
            "VolumeBinding: Reserve left out",
            "a volume that was chosen for a pod is not given to the next (5.12)",
            plugin(NAME, reserves_nothing()),
            &["volume-binding/assumed-volume-is-taken"],
        ),
        alter(
            "VolumeBinding: PreBind left out",
            "claims are bound before the pod is (5.12)",
            plugin(NAME, prepares_nothing()),
            &["volume-binding/wait-for-first-consumer"],
        ),
        alter(
            "VolumeBinding: every claim helps",
            "another claim is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Other(resources::PERSISTENT_VOLUME_CLAIM), Queue)),
            &["persistent-volume-claims/hint-other-claim-bound-skips"],
        ),
        alter(
            "VolumeBinding: deaf to claims",
            "a claim that is bound is worth another try (5.2)",
            plugin(
                NAME,
                deaf_to(EventResource::Other(resources::PERSISTENT_VOLUME_CLAIM), ActionType::UPDATE),
            ),
            &["persistent-volume-claims/hint-claim-bound-requeues"],
        ),
        alter(
            "VolumeBinding: deaf to storage",
            "more storage is worth another try (5.2)",
            plugin(NAME, deaf_to(EventResource::Other(resources::CSI_STORAGE_CAPACITY), ActionType::UPDATE)),
            &["storage-capacity/hint-more-capacity-requeues"],
        ),
    ]
}

fn zone() -> Vec<Alteration> {
    const NAME: &str = "VolumeZone";
    vec![
        alter(
            "VolumeZone: Filter passes",
            "a pod goes to the zone of its volume (5.13)",
            plugin(NAME, filter(passes)),
            &["volume-zone/no-node-in-zone"],
        ),
        alter(
            "VolumeZone: another reason",
            "the reason is \"node(s) had no available volume zone\" (5.13)",
            plugin(NAME, filter(reworded)),
            &["volume-zone/no-node-in-zone"],
        ),
        alter(
            "VolumeZone: PreFilter admits",
            "a claim without a volume is told of (5.13)",
            plugin(NAME, pre_filter(admits)),
            &["volume-zone/claim-without-volume-and-class"],
        ),
        alter(
            "VolumeZone: no change of a volume helps",
            "a volume that moves is worth another try (5.2)",
            plugin(NAME, hints(EventResource::Other(resources::PERSISTENT_VOLUME), Skip)),
            &["volume-zone/hint-volume-zone-change-requeues"],
        ),
        alter(
            "VolumeZone: every change of a volume helps",
            "another label of the volume is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Other(resources::PERSISTENT_VOLUME), Queue)),
            &["volume-zone/hint-unrelated-volume-label-skips"],
        ),
        alter(
            "VolumeZone: every class helps",
            "a class that binds at once is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Other(resources::STORAGE_CLASS), Queue)),
            &["volume-zone/hint-immediate-class-add-skips"],
        ),
    ]
}
