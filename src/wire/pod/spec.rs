//! The part of a pod that all pods of its template share.

use std::sync::Arc;

use supercargo_framework::affinity::{NodeAffinity, NodeSelectorTerm, PreferredTerm, RawRequirement};
use supercargo_framework::pod::{PodSpec, normalized_image_name};
use supercargo_framework::ports::{HostPort, Protocol};
use supercargo_framework::requests::{RequestInputs, RequestOptions};
use supercargo_framework::taint::{TaintEffect, Toleration, TolerationOperator};

use super::requests;
use super::slim::{
    Container, ContainerPort, SelectorRequirement, SelectorTerm, Spec, Volume, WireNodeAffinity,
    WireToleration,
};
use crate::wire::interners::Interners;
use crate::wire::json::Obj;

impl Interners {
    /// The spec, and how much it asks for.
    pub(super) fn pod_spec(&mut self, spec: &Spec<'_>, inputs: &RequestInputs) -> PodSpec {
        let requests = inputs.effective(RequestOptions::default());
        PodSpec {
            scheduler_name: self.text(&spec.scheduler_name),
            never_preempts: &*spec.preemption_policy == "Never",
            pod_affinity: None,
            topology_spread: Box::default(),
            volumes: Box::default(),
            required_features: Box::default(),
            node_selector: self.labels(spec.node_selector.iter()),
            node_affinity: spec.affinity.node_affinity.as_ref().map(|a| self.node_affinity(a)),
            tolerations: spec.tolerations.iter().map(|t| self.toleration(t)).collect(),
            host_ports: self.host_ports(spec),
            images: self.images(spec),
            image_containers: spec.init_containers.len() + spec.containers.len(),
            container_requests: requests::without_pod_level(inputs, &requests).map(Box::new),
            requests,
            unsupported: self.unsupported(spec),
        }
    }

    fn node_affinity(&mut self, affinity: &WireNodeAffinity<'_>) -> NodeAffinity {
        let required = affinity.required.as_ref();
        NodeAffinity {
            required: required.map(|s| s.node_selector_terms.iter().map(|t| self.term(t)).collect()),
            preferred: affinity
                .preferred
                .iter()
                .map(|preferred| PreferredTerm {
                    weight: preferred.weight.unwrap_or_default(),
                    term: self.term(&preferred.preference),
                })
                .collect(),
        }
    }

    fn term(&mut self, term: &SelectorTerm<'_>) -> NodeSelectorTerm {
        let mut raw = |requirements: &[Obj<SelectorRequirement<'_>>]| {
            requirements.iter().map(|r| self.requirement(r)).collect()
        };
        NodeSelectorTerm::parse(raw(&term.match_expressions), raw(&term.match_fields))
    }

    fn requirement(&mut self, requirement: &SelectorRequirement<'_>) -> RawRequirement {
        RawRequirement {
            key: self.text(&requirement.key),
            operator: self.text(&requirement.operator),
            values: requirement.values.iter().map(|value| self.text(value)).collect(),
        }
    }

    fn toleration(&mut self, toleration: &WireToleration<'_>) -> Toleration {
        Toleration {
            key: self.text(&toleration.key),
            operator: match &*toleration.operator {
                "" | "Equal" => TolerationOperator::Equal,
                "Exists" => TolerationOperator::Exists,
                _ => TolerationOperator::Unknown,
            },
            value: self.text(&toleration.value),
            effect: toleration.effect.non_empty().map(TaintEffect::from_api),
        }
    }

    /// Ports on the host, of containers and then of sidecars; other init containers are gone before they could clash.
    /// For pods on the host network the API server has already made every container port a host port.
    fn host_ports(&mut self, spec: &Spec<'_>) -> Box<[HostPort]> {
        let sidecars = spec.init_containers.iter().filter(|c| c.is_sidecar());
        let containers = spec.containers.iter().chain(sidecars);
        containers.flat_map(|container| &*container.ports).filter_map(|port| self.host_port(port)).collect()
    }

    fn host_port(&mut self, port: &ContainerPort<'_>) -> Option<HostPort> {
        Some(HostPort {
            port: port.host_port.filter(|port| *port > 0)?,
            ip: self.text(&port.host_ip),
            protocol: Protocol::from_api(&port.protocol),
        })
    }

    fn images(&mut self, spec: &Spec<'_>) -> Box<[Arc<str>]> {
        let containers = spec.init_containers.iter().chain(&*spec.containers);
        let containers = containers.map(|container: &Obj<Container<'_>>| &*container.image);
        let volumes = spec.volumes.iter().filter_map(|volume| volume.image.reference.non_empty());
        containers.chain(volumes).map(|image| self.text(&normalized_image_name(image))).collect()
    }

    /// The constraints that no plugin evaluates yet. Preferences are left out: ignoring one places a pod worse, ignoring
    /// a demand places it wrongly.
    fn unsupported(&mut self, spec: &Spec<'_>) -> Box<[Arc<str>]> {
        let affinity = &spec.affinity;
        let spread = &spec.topology_spread_constraints;
        let demands = [
            (
                "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
                !affinity.pod_affinity.required.is_empty(),
            ),
            (
                "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
                !affinity.pod_anti_affinity.required.is_empty(),
            ),
            (
                "spec.topologySpreadConstraints",
                spread.iter().any(|c| &*c.when_unsatisfiable == "DoNotSchedule"),
            ),
            ("spec.resourceClaims", !spec.resource_claims.is_empty()),
            ("spec.schedulingGroup", spec.scheduling_group.is_some()),
        ];
        let mut paths: Vec<_> = present(demands).map(|path| self.text(path)).collect();
        for volume in &*spec.volumes {
            paths.extend(
                present(constraining_sources(volume))
                    .map(|source| self.text(&format!("spec.volumes[{}].{source}", &*volume.name))),
            );
        }
        paths.into()
    }
}

/// Volume sources that tie a pod to certain nodes, and whether the volume has them.
fn constraining_sources(volume: &Volume<'_>) -> [(&'static str, bool); 6] {
    [
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("rbd", volume.rbd.is_some()),
    ]
}

fn present<const N: usize>(fields: [(&'static str, bool); N]) -> impl Iterator<Item = &'static str> {
    fields.into_iter().filter_map(|(field, is_there)| is_there.then_some(field))
}
