//! Constraints of a pod other than resources, from the complete types.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use supercargo_framework::affinity::RawRequirement;
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm};
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::volume::{Volume, VolumeSource};

use super::{labels, text};

fn shared<'t>(texts: impl IntoIterator<Item = &'t String>) -> Vec<Arc<str>> {
    texts.into_iter().map(|text| Arc::from(&**text)).collect()
}

pub(in crate::tests) fn selector(
    selector: Option<&meta::LabelSelector>,
) -> Result<Option<LabelSelector>, String> {
    let Some(selector) = selector else { return Ok(None) };
    let expressions = selector.match_expressions.iter().flatten().map(|expression| RawRequirement {
        key: Arc::from(&*expression.key),
        operator: Arc::from(&*expression.operator),
        values: shared(expression.values.iter().flatten()),
    });
    LabelSelector::parse(&labels(selector.match_labels.as_ref()), expressions.collect::<Vec<_>>()).map(Some)
}

fn term(term: &k8s::PodAffinityTerm) -> Result<PodAffinityTerm, String> {
    let mut namespaces = shared(term.namespaces.iter().flatten());
    namespaces.sort();
    namespaces.dedup();
    Ok(PodAffinityTerm {
        selector: selector(term.label_selector.as_ref())?,
        topology_key: Arc::from(&*term.topology_key),
        namespaces: namespaces.into(),
        namespace_selector: selector(term.namespace_selector.as_ref())?,
    })
}

fn weighted(preference: &k8s::WeightedPodAffinityTerm) -> Result<WeightedPodAffinityTerm, String> {
    Ok(WeightedPodAffinityTerm { weight: preference.weight, term: term(&preference.pod_affinity_term)? })
}

fn all<T, U>(terms: Option<Vec<T>>, parse: fn(&T) -> Result<U, String>) -> Result<Box<[U]>, String> {
    terms.iter().flatten().map(parse).collect()
}

pub(super) fn pod_affinity(affinity: Option<&k8s::Affinity>) -> Option<Box<PodAffinity>> {
    let affinity = affinity.cloned().unwrap_or_default();
    let attract = affinity.pod_affinity.unwrap_or_default();
    let repel = affinity.pod_anti_affinity.unwrap_or_default();
    let required_affinity = all(attract.required_during_scheduling_ignored_during_execution, term);
    let required_anti_affinity = all(repel.required_during_scheduling_ignored_during_execution, term);
    let preferred_affinity = all(attract.preferred_during_scheduling_ignored_during_execution, weighted);
    let preferred_anti_affinity = all(repel.preferred_during_scheduling_ignored_during_execution, weighted);
    let reasons: Vec<String> = [
        ("requiredAffinityTerms", required_affinity.as_ref().err()),
        ("requiredAntiAffinityTerms", required_anti_affinity.as_ref().err()),
        ("preferredAffinityTerms", preferred_affinity.as_ref().err()),
        ("preferredAntiAffinityTerms", preferred_anti_affinity.as_ref().err()),
    ]
    .into_iter()
    .filter_map(|(list, reason)| Some(format!("{list}: {}", reason?)))
    .collect();
    let affinity = PodAffinity {
        required_affinity: required_affinity.unwrap_or_default(),
        required_anti_affinity: required_anti_affinity.unwrap_or_default(),
        preferred_affinity: preferred_affinity.unwrap_or_default(),
        preferred_anti_affinity: preferred_anti_affinity.unwrap_or_default(),
        invalid: match reasons.len() {
            0 => None,
            1 => Some(Arc::from(&*reasons[0])),
            _ => Some(format!("[{}]", reasons.join(", ")).into()),
        },
    };
    (affinity != PodAffinity::default()).then(|| Box::new(affinity))
}

/// The constraints, and the paths of invalid ones.
pub(super) fn topology_spread(spec: &k8s::PodSpec) -> (Box<[TopologySpreadConstraint]>, Vec<String>) {
    let (mut kept, mut faulty) = (Vec::new(), Vec::new());
    for (i, constraint) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        let Ok(selector) = selector(constraint.label_selector.as_ref()) else {
            faulty.push(format!("spec.topologySpreadConstraints[{i}].labelSelector"));
            continue;
        };
        kept.push(TopologySpreadConstraint {
            max_skew: constraint.max_skew,
            topology_key: Arc::from(&*constraint.topology_key),
            hard: constraint.when_unsatisfiable == "DoNotSchedule",
            selector,
            min_domains: constraint.min_domains,
            honors_affinity: ["", "Honor"]
                .contains(&constraint.node_affinity_policy.as_deref().unwrap_or_default()),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
            match_label_keys: shared(constraint.match_label_keys.iter().flatten()).into(),
        });
    }
    (kept.into(), faulty)
}

pub(super) fn volume(volume: &k8s::Volume) -> Option<Volume> {
    let name = Arc::from(&*volume.name);
    let source = if let Some(claim) = &volume.persistent_volume_claim {
        VolumeSource::Claim(Arc::from(&*claim.claim_name))
    } else if volume.ephemeral.is_some() {
        VolumeSource::Ephemeral
    } else if let Some(inline) = &volume.csi {
        VolumeSource::Csi(Arc::from(&*inline.driver))
    } else if let Some(disk) = &volume.gce_persistent_disk {
        VolumeSource::GcePersistentDisk {
            pd_name: Arc::from(&*disk.pd_name),
            read_only: disk.read_only == Some(true),
        }
    } else if let Some(disk) = &volume.aws_elastic_block_store {
        VolumeSource::AwsElasticBlockStore {
            volume_id: Arc::from(&*disk.volume_id),
            read_only: disk.read_only == Some(true),
        }
    } else if let Some(disk) = &volume.iscsi {
        VolumeSource::Iscsi {
            target_portal: Arc::from(&*disk.target_portal),
            iqn: Arc::from(&*disk.iqn),
            lun: disk.lun,
            read_only: disk.read_only == Some(true),
        }
    } else if let Some(disk) = &volume.rbd {
        VolumeSource::Rbd {
            monitors: shared(&disk.monitors).into(),
            pool: text(disk.pool.as_ref()),
            image: Arc::from(&*disk.image),
            read_only: disk.read_only == Some(true),
        }
    } else if let Some(disk) = &volume.azure_disk {
        VolumeSource::AzureDisk {
            disk_name: Arc::from(&*disk.disk_name),
            disk_uri: Arc::from(&*disk.disk_uri),
        }
    } else if let Some(disk) = &volume.cinder {
        VolumeSource::Cinder(Arc::from(&*disk.volume_id))
    } else if let Some(disk) = &volume.portworx_volume {
        VolumeSource::Portworx(Arc::from(&*disk.volume_id))
    } else if volume.azure_file.is_some() {
        VolumeSource::AzureFile
    } else if volume.vsphere_volume.is_some() {
        VolumeSource::Vsphere
    } else {
        return None;
    };
    Some(Volume { name, source })
}

pub(super) fn required_features(spec: &k8s::PodSpec) -> Box<[Arc<str>]> {
    let mut features: Vec<Arc<str>> = Vec::new();
    let mut rules = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .flat_map(|container| container.restart_policy_rules.iter().flatten());
    if rules.any(|rule| rule.action == "RestartAllContainers") {
        features.push("RestartAllContainersOnContainerExits".into());
    }
    if spec.host_network == Some(true) && spec.host_users == Some(false) {
        features.push("UserNamespacesHostNetworkSupport".into());
    }
    features.into()
}
