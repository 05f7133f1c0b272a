//! The part of a pod that pods of one template share.

use std::sync::Arc;

use supercargo_framework::affinity::{NodeAffinity, NodeTerms, PreferredTerm};
use supercargo_framework::pod::{ExtendedResource, PodSpec, RareSpec, normalized_image_name};
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::ports::{HostPort, Protocol};
use supercargo_framework::requests::{RequestInputs, RequestOptions};
use supercargo_framework::resource::names;
use supercargo_framework::taint::{TaintEffect, Toleration, TolerationOperator};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{Features, Indexed};

use super::requests;
use super::slim::{Container, ContainerPort, Spec, WireNodeAffinity, WirePodClaim, WireToleration};
use crate::interners::Interners;
use crate::json::Obj;

impl Interners {
    /// The spec with its requests, without its limits.
    pub(super) fn pod_spec(
        &mut self,
        spec: &Spec<'_>,
        inputs: &RequestInputs,
        features: &Features,
    ) -> PodSpec {
        let requests = inputs.effective(RequestOptions::default());
        let mut unsupported = Vec::new();
        let topology_spread = self.topology_spread(spec, &mut unsupported);
        PodSpec {
            scheduler_name: self.text(&spec.scheduler_name),
            never_preempts: &*spec.preemption_policy == "Never",
            pod_affinity: self.pod_affinity(&spec.affinity),
            topology_spread,
            volumes: self.volumes(&spec.volumes),
            required_features: self.required_features(spec),
            node_selector: self.labels(spec.node_selector.iter()),
            node_affinity: spec.affinity.node_affinity.as_ref().map(|a| self.node_affinity(a)),
            tolerations: spec.tolerations.iter().map(|t| self.toleration(t, features)).collect(),
            host_ports: self.host_ports(spec),
            images: self.images(spec),
            container_requests: requests::without_pod_level(inputs, &requests).map(Box::new),
            requests,
            // Limits can be invalid; the caller sets them.
            limits: None,
            rare: self.rare(spec, inputs, unsupported),
        }
    }

    fn node_affinity(&mut self, affinity: &WireNodeAffinity<'_>) -> NodeAffinity {
        let required = affinity.required.as_ref();
        NodeAffinity {
            required: required.map(|selector| NodeTerms::new(self.node_selector(selector))),
            preferred: affinity
                .preferred
                .iter()
                .map(|preferred| PreferredTerm {
                    weight: preferred.weight.unwrap_or_default(),
                    term: self.node_selector_term(&preferred.preference),
                })
                .collect(),
        }
    }

    /// The topology spread constraints. An invalid one is listed as unsupported, so that the pod is
    /// not placed without it.
    fn topology_spread(
        &mut self,
        spec: &Spec<'_>,
        unsupported: &mut Vec<Arc<str>>,
    ) -> Box<[TopologySpreadConstraint]> {
        let mut kept = Vec::with_capacity(spec.topology_spread_constraints.len());
        for (i, constraint) in spec.topology_spread_constraints.iter().enumerate() {
            match self.spread_constraint(constraint) {
                Ok(constraint) => kept.push(constraint),
                Err(_) => {
                    let path = format!("spec.topologySpreadConstraints[{i}].labelSelector");
                    unsupported.push(self.text(&path));
                }
            }
        }
        kept.into()
    }

    /// The features that a node must declare to run the pod: those of upstream's
    /// `nodedeclaredfeatures` that affect placement.
    fn required_features(&mut self, spec: &Spec<'_>) -> Box<[Arc<str>]> {
        let containers = || spec.containers.iter().chain(&*spec.init_containers);
        let features = [
            ("RestartAllContainersOnContainerExits", containers().any(|container| container.restarts_all())),
            (
                "UserNamespacesHostNetworkSupport",
                spec.host_network == Some(true) && spec.host_users == Some(false),
            ),
            ("VolumeBindMountOptions", containers().any(|container| container.has_bind_mount_options())),
        ];
        present(features).map(|feature| self.text(feature)).collect()
    }

    fn toleration(&mut self, toleration: &WireToleration<'_>, features: &Features) -> Toleration {
        Toleration {
            key: self.text(&toleration.key),
            operator: TolerationOperator::from_api(&toleration.operator, features),
            value: self.text(&toleration.value),
            effect: toleration.effect.non_empty().map(TaintEffect::from_api),
        }
    }

    /// Host ports of containers and sidecars. Other init containers have exited before their ports
    /// could conflict. For pods on the host network, the API server sets a host port for every
    /// container port.
    fn host_ports(&mut self, spec: &Spec<'_>) -> Indexed<HostPort> {
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

    fn images(&mut self, spec: &Spec<'_>) -> Indexed<Arc<str>> {
        let containers = spec.init_containers.iter().chain(&*spec.containers);
        let containers = containers.map(|container: &Obj<Container<'_>>| &*container.image);
        let volumes = spec.volumes.iter().filter_map(|volume| volume.image.reference.non_empty());
        containers.chain(volumes).map(|image| self.text(&normalized_image_name(image))).collect()
    }

    fn rare(
        &mut self,
        spec: &Spec<'_>,
        inputs: &RequestInputs,
        unsupported: Vec<Arc<str>>,
    ) -> Option<Box<RareSpec>> {
        let extended_resources = self.extended_resources(spec, inputs);
        let group = spec.scheduling_group.pod_group_name.as_ref().map(|name| self.text(name));
        let lists_nothing = spec.resource_claims.is_empty() && extended_resources.is_empty();
        if lists_nothing && group.is_none() && unsupported.is_empty() {
            return None;
        }
        let resource_claims = spec.resource_claims.iter().map(|claim| self.pod_claim(claim)).collect();
        RareSpec { resource_claims, extended_resources, group, unsupported: unsupported.into() }.boxed()
    }

    fn extended_resources(&mut self, spec: &Spec<'_>, inputs: &RequestInputs) -> Box<[ExtendedResource]> {
        let init = spec.init_containers.iter().zip(&inputs.init_containers);
        let main = spec.containers.iter().zip(&inputs.containers);
        let containers = init.map(|pair| (pair, true)).chain(main.map(|pair| (pair, false)));
        let mut found = Vec::new();
        for (((container, inputs), is_init), place) in containers.zip(0..) {
            let counts = |name: &str, count: i64| count != 0 && names::is_of_devices(name);
            if !inputs.requests.iter().any(|(name, count)| counts(name, *count)) {
                continue;
            }
            let mut requests: Vec<_> = inputs.requests.iter().collect();
            requests.sort_by(|(one, _), (other, _)| one.cmp(other));
            for ((resource, count), resource_place) in requests.into_iter().zip(0..) {
                if counts(resource, *count) {
                    found.push(ExtendedResource {
                        container: self.text(&container.name),
                        place,
                        is_short_lived: is_init && !inputs.restartable,
                        resource: Arc::clone(resource),
                        resource_place,
                        count: *count,
                    });
                }
            }
        }
        found.into()
    }

    pub(crate) fn pod_claim(&mut self, claim: &WirePodClaim<'_>) -> PodClaim {
        let source = match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
            (Some(name), _) => PodClaimSource::Claim(self.text(name)),
            (None, Some(template)) => PodClaimSource::Template(self.text(template)),
            (None, None) => PodClaimSource::Unknown,
        };
        PodClaim { name: self.text(&claim.name), source }
    }
}

fn present<const N: usize>(fields: [(&'static str, bool); N]) -> impl Iterator<Item = &'static str> {
    fields.into_iter().filter_map(|(field, is_there)| is_there.then_some(field))
}
