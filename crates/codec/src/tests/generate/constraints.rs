//! Random constraints of a pod other than resources.

use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, Affinity, AzureDiskVolumeSource, AzureFileVolumeSource,
    CSIVolumeSource, CinderVolumeSource, EmptyDirVolumeSource, EphemeralVolumeSource,
    GCEPersistentDiskVolumeSource, ISCSIVolumeSource, ImageVolumeSource, PersistentVolumeClaimVolumeSource,
    PodAffinity, PodAffinityTerm, PodAntiAffinity, PortworxVolumeSource, RBDVolumeSource,
    TopologySpreadConstraint, Volume, VsphereVirtualDiskVolumeSource, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::{list, node_affinity, one_of, some_texts, text};

pub(in crate::tests) fn selector() -> impl Strategy<Value = Option<LabelSelector>> {
    // Mostly valid words; otherwise hardly any pod would be valid.
    let operator = one_of(&["In", "NotIn", "Exists", "DoesNotExist", "Exists", "Gt"]);
    let key = one_of(&["a", "b", "example.com/key", "x y"]);
    let expression = (key, operator, list(one_of(&["a", "12", ""])))
        .prop_map(|(key, operator, values)| LabelSelectorRequirement { key, operator, values });
    let sound = of(proptest::collection::btree_map(one_of(&["a", "b"]), one_of(&["a", "12"]), 0..3));
    let any_labels = prop_oneof![3 => sound, 1 => some_texts()];
    of((any_labels, list(expression))
        .prop_map(|(match_labels, match_expressions)| LabelSelector { match_labels, match_expressions }))
}

fn term() -> impl Strategy<Value = PodAffinityTerm> {
    (selector(), list(text()), text(), selector(), list(text())).prop_map(
        |(label_selector, namespaces, topology_key, namespace_selector, match_label_keys)| PodAffinityTerm {
            label_selector,
            namespaces,
            topology_key,
            namespace_selector,
            match_label_keys,
            mismatch_label_keys: None,
        },
    )
}

pub(super) fn affinity() -> impl Strategy<Value = Affinity> {
    let preference = || {
        (any::<i32>(), term())
            .prop_map(|(weight, pod_affinity_term)| WeightedPodAffinityTerm { weight, pod_affinity_term })
    };
    let attract = (list(term()), list(preference())).prop_map(|(required, preferred)| PodAffinity {
        required_during_scheduling_ignored_during_execution: required,
        preferred_during_scheduling_ignored_during_execution: preferred,
    });
    let repel = (list(term()), list(preference())).prop_map(|(required, preferred)| PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: required,
        preferred_during_scheduling_ignored_during_execution: preferred,
    });
    (of(node_affinity()), of(attract), of(repel)).prop_map(
        |(node_affinity, pod_affinity, pod_anti_affinity)| Affinity {
            node_affinity,
            pod_affinity,
            pod_anti_affinity,
        },
    )
}

pub(super) fn spread() -> impl Strategy<Value = TopologySpreadConstraint> {
    let policy = || of(one_of(&["Honor", "Ignore", ""]));
    let when = one_of(&["DoNotSchedule", "ScheduleAnyway", "Other"]);
    (any::<i32>(), text(), when, selector(), of(any::<i32>()), policy(), policy(), list(text())).prop_map(
        |(
            max_skew,
            topology_key,
            when_unsatisfiable,
            label_selector,
            min_domains,
            affinity,
            taints,
            keys,
        )| {
            TopologySpreadConstraint {
                max_skew,
                topology_key,
                when_unsatisfiable,
                label_selector,
                min_domains,
                node_affinity_policy: affinity,
                node_taints_policy: taints,
                match_label_keys: keys,
            }
        },
    )
}

/// A volume with one of thirteen sources, or one that scheduling ignores.
pub(super) fn volume() -> impl Strategy<Value = Volume> {
    let fields = (vec(text(), 3), of(any::<bool>()), any::<i32>(), of(text()));
    (text(), 0..15, fields).prop_map(|(name, source, (words, read_only, lun, optional))| {
        let word = |i: usize| words[i].clone();
        Volume {
            name,
            image: (source == 0)
                .then(|| ImageVolumeSource { reference: optional.clone(), ..Default::default() }),
            persistent_volume_claim: (source == 1)
                .then(|| PersistentVolumeClaimVolumeSource { claim_name: word(0), read_only }),
            ephemeral: (source == 2).then(EphemeralVolumeSource::default),
            gce_persistent_disk: (source == 3).then(|| GCEPersistentDiskVolumeSource {
                pd_name: word(0),
                read_only,
                ..Default::default()
            }),
            aws_elastic_block_store: (source == 4).then(|| AWSElasticBlockStoreVolumeSource {
                volume_id: word(0),
                read_only,
                ..Default::default()
            }),
            iscsi: (source == 5).then(|| ISCSIVolumeSource {
                target_portal: word(0),
                iqn: word(1),
                lun,
                read_only,
                ..Default::default()
            }),
            rbd: (source == 6).then(|| RBDVolumeSource {
                monitors: words.clone(),
                pool: optional,
                image: word(0),
                read_only,
                ..Default::default()
            }),
            azure_disk: (source == 7).then(|| AzureDiskVolumeSource {
                disk_name: word(0),
                disk_uri: word(1),
                ..Default::default()
            }),
            cinder: (source == 8).then(|| CinderVolumeSource { volume_id: word(0), ..Default::default() }),
            portworx_volume: (source == 9)
                .then(|| PortworxVolumeSource { volume_id: word(0), ..Default::default() }),
            csi: (source == 10).then(|| CSIVolumeSource { driver: word(0), ..Default::default() }),
            azure_file: (source == 11).then(|| AzureFileVolumeSource {
                secret_name: word(0),
                share_name: word(1),
                read_only,
            }),
            vsphere_volume: (source == 12)
                .then(|| VsphereVirtualDiskVolumeSource { volume_path: word(0), ..Default::default() }),
            empty_dir: (source > 12).then(EmptyDirVolumeSource::default),
            ..Default::default()
        }
    })
}
