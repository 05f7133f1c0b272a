//! Volume plugins.

use supercargo_framework::event::QueueingHint::{Queue, Skip};
use supercargo_framework::objects::resources;
use supercargo_framework::{ActionType, EventResource, Feature};

use super::super::alteration::{Alteration, Change};
use super::super::altered_plugin::{
    filter, hints, ignores, ignores_remove_pod, pre_filter, prepares_nothing, reserves_nothing, score,
};
use super::{admits, alter, first_reason, passes, plugin, reworded, switch_off, unresolvable};

pub(super) fn all() -> Vec<Alteration> {
    [restrictions(), limits(), binding(), zone()].into_iter().flatten().collect()
}

fn restrictions() -> Vec<Alteration> {
    const NAME: &str = "VolumeRestrictions";
    vec![
        alter(
            "VolumeRestrictions: Filter passes",
            "a disk has one user per node (5.10)",
            plugin(NAME, filter(passes)),
            &["volume-restrictions/gce-conflict"],
        ),
        alter(
            "VolumeRestrictions: another message",
            "a ReadWriteOncePod claim has its own message (5.10)",
            plugin(NAME, filter(reworded)),
            &["read-write-once-pod/in-use"],
        ),
        alter(
            "VolumeRestrictions: rejections marked unresolvable",
            "preemption frees a claim (5.10)",
            plugin(NAME, filter(unresolvable)),
            &["read-write-once-pod/preempts-user-of-claim"],
        ),
        alter(
            "VolumeRestrictions: RemovePod ignored",
            "a dry run frees the claims of the victims (5.10)",
            plugin(NAME, ignores_remove_pod()),
            &["read-write-once-pod/preempts-user-of-claim"],
        ),
        alter(
            "VolumeRestrictions: pod updates never requeue",
            "a freed disk requeues the pod (5.2)",
            plugin(NAME, hints(EventResource::AssignedPod, Skip)),
            &["volume-restrictions/hint-disk-released-requeues"],
        ),
        alter(
            "VolumeRestrictions: every deleted pod requeues",
            "another disk does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::AssignedPod, Queue)),
            &["volume-restrictions/hint-other-disk-released-skips"],
        ),
    ]
}

fn limits() -> Vec<Alteration> {
    const NAME: &str = "NodeVolumeLimits";
    vec![
        alter(
            "NodeVolumeLimits: Filter passes",
            "a driver attaches a limited number of volumes per node (5.11)",
            plugin(NAME, filter(passes)),
            &["node-volume-limits/limit-reached"],
        ),
        alter(
            "NodeVolumeLimits: another message",
            "the reason is \"node(s) exceed max volume count\" (5.11)",
            plugin(NAME, filter(reworded)),
            &["node-volume-limits/limit-reached"],
        ),
        alter(
            "NodeVolumeLimits: missing drivers ignored",
            "a driver can reject nodes where it is not installed (5.11)",
            Change::Built(NAME, |_, features| switch_off(features, Feature::VolumeLimitScaling)),
            &["node-volume-limits/driver-not-installed"],
        ),
        alter(
            "NodeVolumeLimits: missing drivers of migrated volumes ignored",
            "an in-tree volume needs the driver that it is migrated to (5.11)",
            Change::Built(NAME, |_, features| switch_off(features, Feature::VolumeLimitScaling)),
            &["node-volume-limits/missing-driver-of-migrated-volume"],
        ),
        alter(
            "NodeVolumeLimits: missing drivers of unbound claims ignored",
            "an unbound claim needs the driver of its StorageClass (5.11)",
            Change::Built(NAME, |_, features| switch_off(features, Feature::VolumeLimitScaling)),
            &["node-volume-limits/missing-driver-of-unbound-claim"],
        ),
        alter(
            "NodeVolumeLimits: missing drivers ignored beside a reached limit",
            "a missing driver and a reached limit are different reasons (5.11)",
            Change::Built(NAME, |_, features| switch_off(features, Feature::VolumeLimitScaling)),
            &["node-volume-limits/missing-driver-and-reached-limit"],
        ),
        alter(
            "NodeVolumeLimits: rejections marked unresolvable",
            "preemption frees an attachment (5.11)",
            plugin(NAME, filter(unresolvable)),
            &["node-volume-limits/preempts-for-volume-limit"],
        ),
        alter(
            "NodeVolumeLimits: ignores events of drivers",
            "a higher limit requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::Other(resources::CSI_NODE), ActionType::UPDATE)),
            &["node-volume-limits/hint-limit-raised-requeues"],
        ),
        alter(
            "NodeVolumeLimits: ignores events of detached volumes",
            "a detached volume requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::Other(resources::VOLUME_ATTACHMENT), ActionType::DELETE)),
            &["node-volume-limits/hint-volume-detached-requeues"],
        ),
        alter(
            "NodeVolumeLimits: every deleted pod requeues",
            "a pod without volumes does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::AssignedPod, Queue)),
            &["node-volume-limits/hint-pod-without-volume-deleted-skips"],
        ),
    ]
}

fn binding() -> Vec<Alteration> {
    const NAME: &str = "VolumeBinding";
    vec![
        alter(
            "VolumeBinding: PreFilter passes",
            "an unbound claim of an Immediate class rejects its pod (5.12)",
            plugin(NAME, pre_filter(admits)),
            &["persistent-volume-claims/unbound-immediate-claim"],
        ),
        alter(
            "VolumeBinding: Filter passes",
            "inaccessible volumes reject nodes (5.12)",
            plugin(NAME, filter(passes)),
            &["volume-binding/bound-volume-out-of-reach"],
        ),
        alter(
            "VolumeBinding: another message",
            "each rejection has its own message (5.12)",
            plugin(NAME, filter(reworded)),
            &["volume-binding/volume-too-small"],
        ),
        alter(
            "VolumeBinding: the first reason only",
            "a node reports all reasons (5.12)",
            plugin(NAME, filter(first_reason)),
            &["volume-binding/two-reasons-of-one-node"],
        ),
        alter(
            "VolumeBinding: Reserve skipped",
            "a volume that is assumed for a pod is not used for the next (5.12)",
            plugin(NAME, reserves_nothing()),
            &["volume-binding/assumed-volume-is-taken"],
        ),
        alter(
            "VolumeBinding: storage not scored",
            "nodes with more free storage score higher (5.12)",
            Change::Built(NAME, |_, features| switch_off(features, Feature::StorageCapacityScoring)),
            &["storage-capacity/more-capacity-scores-higher"],
        ),
        alter(
            "VolumeBinding: fuller storage preferred",
            "a volume that the claim uses less scores higher (5.12)",
            plugin(NAME, score(|score| 100 - score)),
            &["volume-binding/larger-volume-scores-higher"],
        ),
        alter(
            "VolumeBinding: fuller capacity preferred",
            "the mean over StorageClasses scores (5.12)",
            plugin(NAME, score(|score| 100 - score)),
            &["storage-capacity/classes-are-averaged"],
        ),
        alter(
            "VolumeBinding: fuller volumes preferred",
            "existing volumes score alone (5.12)",
            plugin(NAME, score(|score| 100 - score)),
            &["storage-capacity/existing-volumes-alone-are-scored"],
        ),
        alter(
            "VolumeBinding: PreBind skipped",
            "claims are bound before the pod is (5.12)",
            plugin(NAME, prepares_nothing()),
            &["volume-binding/wait-for-first-consumer"],
        ),
        alter(
            "VolumeBinding: every claim requeues",
            "another claim does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::Other(resources::PERSISTENT_VOLUME_CLAIM), Queue)),
            &["persistent-volume-claims/hint-other-claim-bound-skips"],
        ),
        alter(
            "VolumeBinding: ignores events of claims",
            "a bound claim requeues the pod (5.2)",
            plugin(
                NAME,
                ignores(EventResource::Other(resources::PERSISTENT_VOLUME_CLAIM), ActionType::UPDATE),
            ),
            &["persistent-volume-claims/hint-claim-bound-requeues"],
        ),
        alter(
            "VolumeBinding: ignores events of storage",
            "more storage requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::Other(resources::CSI_STORAGE_CAPACITY), ActionType::UPDATE)),
            &["storage-capacity/hint-more-capacity-requeues"],
        ),
    ]
}

fn zone() -> Vec<Alteration> {
    const NAME: &str = "VolumeZone";
    vec![
        alter(
            "VolumeZone: Filter passes",
            "nodes outside the zone of a volume reject its pod (5.13)",
            plugin(NAME, filter(passes)),
            &["volume-zone/no-node-in-zone"],
        ),
        alter(
            "VolumeZone: another message",
            "the reason is \"node(s) had no available volume zone\" (5.13)",
            plugin(NAME, filter(reworded)),
            &["volume-zone/no-node-in-zone"],
        ),
        alter(
            "VolumeZone: PreFilter passes",
            "a claim without a volume rejects its pod (5.13)",
            plugin(NAME, pre_filter(admits)),
            &["volume-zone/claim-without-volume-and-class"],
        ),
        alter(
            "VolumeZone: volume updates never requeue",
            "a volume that changes zones requeues the pod (5.2)",
            plugin(NAME, hints(EventResource::Other(resources::PERSISTENT_VOLUME), Skip)),
            &["volume-zone/hint-volume-zone-change-requeues"],
        ),
        alter(
            "VolumeZone: every volume update requeues",
            "another label of the volume does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::Other(resources::PERSISTENT_VOLUME), Queue)),
            &["volume-zone/hint-unrelated-volume-label-skips"],
        ),
        alter(
            "VolumeZone: every class requeues",
            "an Immediate class does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::Other(resources::STORAGE_CLASS), Queue)),
            &["volume-zone/hint-immediate-class-add-skips"],
        ),
    ]
}
