//! Full decoding: the same records from k8s-openapi's complete types.

pub(super) mod constraints;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use supercargo_framework::affinity::{NodeAffinity, NodeSelectorTerm, PreferredTerm, RawRequirement};
use supercargo_framework::labels::Labels;
use supercargo_framework::node::{NodeImage, NodeRecord, annotations_hash};
use supercargo_framework::pod::{
    ExtendedResource, OwnerRef, PodCondition, PodInfo, PodSpec, PodStatus, RareSpec, SharedStatus, Uid,
    normalized_image_name,
};
use supercargo_framework::pod_claims::{
    ExtendedClaimStatus, ExtendedRequest, PodClaim, PodClaimSource, PodClaimStatus, PodClaimStatuses,
};
use supercargo_framework::ports::{HostPort, Protocol};
use supercargo_framework::quantity;
use supercargo_framework::requests::{
    ContainerRequests, RequestInputs, RequestOptions, ResourceList, StatusRequests,
};
use supercargo_framework::resource::{Resource, names};
use supercargo_framework::taint::{Taint, TaintEffect, Toleration, TolerationOperator};
use supercargo_framework::time::Timestamp;

type Amounts = BTreeMap<String, Quantity>;
type Texts = BTreeMap<String, String>;

pub(super) fn pod(pod: &k8s::Pod, declared: &[&str]) -> PodInfo {
    let meta = &pod.metadata;
    let spec = pod.spec.clone().unwrap_or_default();
    let status = pod.status.clone().unwrap_or_default();
    let inputs = request_inputs(&spec, &status);
    let owners = meta.owner_references.iter().flatten();
    let controller = owners.filter(|owner| owner.controller == Some(true)).map(owner_ref).next();
    let spec_requests = inputs.effective(RequestOptions::default());
    let with_status = inputs.effective(RequestOptions { use_status: true, ..Default::default() });
    PodInfo {
        namespace: text(meta.namespace.as_ref()),
        name: text(meta.name.as_ref()),
        uid: Uid::from(&*text(meta.uid.as_ref())),
        resource_version: meta.resource_version.as_deref().unwrap_or_default().into(),
        generation: meta.generation.unwrap_or(0),
        terminating: meta.deletion_timestamp.is_some(),
        labels: labels(meta.labels.as_ref()),
        annotations: annotations(meta, declared),
        controller,
        node_name: non_empty(spec.node_name.as_ref()),
        priority: spec.priority.unwrap_or(0),
        scheduling_gates: spec.scheduling_gates.iter().flatten().map(|gate| Arc::from(&*gate.name)).collect(),
        spec: Arc::new(pod_spec(&spec, &inputs)),
        status_requests: (with_status != spec_requests).then(|| Arc::new(with_status)),
        status: pod_status(&status),
        raw: None,
    }
}

fn owner_ref(owner: &OwnerReference) -> Arc<OwnerRef> {
    Arc::new(OwnerRef {
        api_version: owner.api_version.as_str().into(),
        kind: owner.kind.as_str().into(),
        name: owner.name.as_str().into(),
        uid: owner.uid.as_str().into(),
    })
}

pub(super) fn node(node: &k8s::Node, declared: &[&str]) -> NodeRecord {
    let meta = &node.metadata;
    let spec = node.spec.clone().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let allocatable = resource_list(status.allocatable.as_ref());
    let allocatable = Resource::of_node(allocatable.iter().map(|(name, amount)| (name, *amount)));
    let mut images = BTreeMap::new();
    for image in status.images.iter().flatten() {
        for name in image.names.iter().flatten() {
            images.entry(Arc::from(&**name)).or_insert(image.size_bytes.unwrap_or(0));
        }
    }
    let mut features: Vec<Arc<str>> =
        status.declared_features.iter().flatten().map(|f| Arc::from(&**f)).collect();
    features.sort();
    let conditions = status.conditions.iter().flatten();
    let all = meta.annotations.iter().flatten();
    NodeRecord {
        raw: None,
        name: text(meta.name.as_ref()),
        uid: text(meta.uid.as_ref()),
        resource_version: text(meta.resource_version.as_ref()),
        labels: labels(meta.labels.as_ref()),
        annotations: annotations(meta, declared),
        annotations_hash: annotations_hash(all.map(|(key, value)| (&**key, &**value))),
        unschedulable: spec.unschedulable == Some(true),
        taints: spec.taints.iter().flatten().map(taint).collect(),
        allocatable: Arc::new(allocatable),
        images: images.into_iter().map(|(name, size)| NodeImage { name, size }).collect(),
        conditions: conditions.map(|c| (&*c.type_, &*c.status)).collect(),
        declared_features: features.into(),
        // Newer than the types of this test.
        disable_resize_preemption: None,
    }
}

fn text(text: Option<&String>) -> Arc<str> {
    Arc::from(text.map_or("", |text| text))
}

fn non_empty(text: Option<&String>) -> Option<Arc<str>> {
    text.filter(|text| !text.is_empty()).map(|text| Arc::from(&**text))
}

fn labels(texts: Option<&Texts>) -> Labels {
    texts.into_iter().flatten().map(|(k, v)| (&**k, &**v)).collect()
}

fn annotations(meta: &ObjectMeta, declared: &[&str]) -> Labels {
    let mut kept = meta.annotations.clone().unwrap_or_default();
    kept.retain(|key, _| declared.contains(&&**key));
    labels(Some(&kept))
}

fn time(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| Timestamp(time.0.as_microsecond()))
}

fn resource_list(amounts: Option<&Amounts>) -> ResourceList {
    let amounts = amounts.into_iter().flatten();
    let parse = |name: &str, text: &str| match name {
        "cpu" => quantity::milli_value(text),
        _ => quantity::value(text),
    };
    amounts.map(|(name, amount)| (Arc::from(&**name), parse(name, &amount.0).unwrap())).collect()
}

fn requests(resources: Option<&k8s::ResourceRequirements>) -> ResourceList {
    resource_list(resources.and_then(|resources| resources.requests.as_ref()))
}

fn is_sidecar(container: &k8s::Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn request_inputs(spec: &k8s::PodSpec, status: &k8s::PodStatus) -> RequestInputs {
    let statuses: Vec<_> =
        status.container_statuses.iter().chain(&status.init_container_statuses).flatten().collect();
    let status_of = |container: &k8s::Container| {
        let status = statuses.iter().find(|status| status.name == container.name);
        status.map_or_else(StatusRequests::default, |status| StatusRequests {
            actuated: requests(status.resources.as_ref()),
            allocated: resource_list(status.allocated_resources.as_ref()),
        })
    };
    let mut inputs = RequestInputs { overhead: resource_list(spec.overhead.as_ref()), ..Default::default() };
    for container in &spec.containers {
        inputs.containers.push(ContainerRequests {
            requests: requests(container.resources.as_ref()),
            restartable: is_sidecar(container),
            status: status_of(container),
        });
    }
    for container in spec.init_containers.iter().flatten() {
        inputs.init_containers.push(ContainerRequests {
            requests: requests(container.resources.as_ref()),
            restartable: is_sidecar(container),
            status: status_of(container),
        });
    }
    if let Some(resources) = &spec.resources {
        inputs.pod_level = Some(requests(Some(resources)));
    }
    inputs.pod_level_status = status.resources.as_ref().map(|resources| StatusRequests {
        actuated: requests(Some(resources)),
        allocated: resource_list(status.allocated_resources.as_ref()),
    });
    if let Some(pending) = condition(status, "PodResizePending") {
        inputs.resize_infeasible = pending.reason.as_deref() == Some("Infeasible");
    }
    inputs
}

fn pod_spec(spec: &k8s::PodSpec, inputs: &RequestInputs) -> PodSpec {
    let requests = inputs.effective(RequestOptions::default());
    let container_requests = inputs.effective(RequestOptions { skip_pod_level: true, ..Default::default() });
    let init_containers = spec.init_containers.clone().unwrap_or_default();
    let volumes = spec.volumes.clone().unwrap_or_default();

    let mut host_ports = Vec::new();
    for container in spec.containers.iter().chain(init_containers.iter().filter(|c| is_sidecar(c))) {
        for port in container.ports.iter().flatten() {
            if let Some(number @ 1..) = port.host_port {
                host_ports.push(HostPort {
                    ip: text(port.host_ip.as_ref()),
                    protocol: Protocol::from_api(port.protocol.as_deref().unwrap_or("")),
                    port: number,
                });
            }
        }
    }
    let mut images: Vec<String> = Vec::new();
    for container in init_containers.iter().chain(&spec.containers) {
        images.push(container.image.clone().unwrap_or_default());
    }
    for volume in &volumes {
        let reference = volume.image.as_ref().and_then(|image| image.reference.clone());
        images.extend(reference.filter(|reference| !reference.is_empty()));
    }
    let (topology_spread, faulty) = constraints::topology_spread(spec);
    PodSpec {
        pod_affinity: constraints::pod_affinity(spec.affinity.as_ref()),
        topology_spread,
        volumes: volumes.iter().filter_map(constraints::volume).collect(),
        required_features: constraints::required_features(spec),
        scheduler_name: text(spec.scheduler_name.as_ref()),
        never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        node_selector: labels(spec.node_selector.as_ref()),
        node_affinity: spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).map(node_affinity),
        tolerations: spec.tolerations.iter().flatten().map(toleration).collect(),
        host_ports: host_ports.into(),
        images: images.iter().map(|image| normalized_image_name(image).into()).collect(),
        container_requests: (container_requests != requests).then(|| Box::new(container_requests)),
        requests,
        limits: limits(spec),
        rare: rare(spec, faulty),
    }
}

fn limits(spec: &k8s::PodSpec) -> Option<Box<Resource>> {
    let of = |resources: Option<&k8s::ResourceRequirements>| {
        resource_list(resources.and_then(|resources| resources.limits.as_ref()))
    };
    let of_container = |container: &k8s::Container| ContainerRequests {
        requests: of(container.resources.as_ref()),
        restartable: is_sidecar(container),
        status: StatusRequests::default(),
    };
    let inputs = RequestInputs {
        containers: spec.containers.iter().map(of_container).collect(),
        init_containers: spec.init_containers.iter().flatten().map(of_container).collect(),
        pod_level: Some(of(spec.resources.as_ref())),
        overhead: resource_list(spec.overhead.as_ref()),
        ..Default::default()
    };
    Some(inputs.limits()).filter(|limits| !limits.is_zero()).map(Box::new)
}

fn rare(spec: &k8s::PodSpec, faulty: Vec<String>) -> Option<Box<RareSpec>> {
    let claims = spec.resource_claims.iter().flatten();
    RareSpec {
        resource_claims: claims.map(pod_claim).collect(),
        extended_resources: extended_resources(spec),
        group: spec
            .scheduling_group
            .as_ref()
            .and_then(|group| group.pod_group_name.as_deref())
            .map(Arc::from),
        unsupported: faulty.into_iter().map(Arc::from).collect(),
    }
    .boxed()
}

fn extended_resources(spec: &k8s::PodSpec) -> Box<[ExtendedResource]> {
    let init = spec.init_containers.iter().flatten().map(|container| (container, !is_sidecar(container)));
    let main = spec.containers.iter().map(|container| (container, false));
    let of_container = |((container, is_short_lived), place): ((&k8s::Container, bool), u32)| {
        let requests = container.resources.iter().flat_map(|resources| resources.requests.iter().flatten());
        let requests: Vec<ExtendedResource> = requests
            .zip(0..)
            .map(|((name, count), resource_place)| ExtendedResource {
                container: Arc::from(&*container.name),
                place,
                is_short_lived,
                resource: Arc::from(&**name),
                resource_place,
                count: quantity::value(&count.0).expect("generated quantities are valid"),
            })
            .collect();
        requests.into_iter().filter(|request| request.count != 0 && names::is_of_devices(&request.resource))
    };
    init.chain(main).zip(0..).flat_map(of_container).collect()
}

fn pod_claim(claim: &k8s::PodResourceClaim) -> PodClaim {
    let given = claim.resource_claim_name.as_deref().map(|name| PodClaimSource::Claim(name.into()));
    let template = claim.resource_claim_template_name.as_deref();
    let template = template.map(|name| PodClaimSource::Template(name.into()));
    PodClaim { name: Arc::from(&*claim.name), source: given.or(template).unwrap_or(PodClaimSource::Unknown) }
}

fn node_affinity(affinity: &k8s::NodeAffinity) -> NodeAffinity {
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref();
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    NodeAffinity {
        required: required.map(|selector| selector.node_selector_terms.iter().map(term).collect()),
        preferred: preferred.map(|p| PreferredTerm { weight: p.weight, term: term(&p.preference) }).collect(),
    }
}

fn term(term: &k8s::NodeSelectorTerm) -> NodeSelectorTerm {
    let raw = |requirements: &Option<Vec<k8s::NodeSelectorRequirement>>| -> Vec<RawRequirement> {
        let requirements = requirements.iter().flatten();
        requirements
            .map(|requirement| RawRequirement {
                key: Arc::from(&*requirement.key),
                operator: Arc::from(&*requirement.operator),
                values: requirement.values.iter().flatten().map(|value| Arc::from(&**value)).collect(),
            })
            .collect()
    };
    NodeSelectorTerm::parse(raw(&term.match_expressions), raw(&term.match_fields))
}

fn toleration(toleration: &k8s::Toleration) -> Toleration {
    Toleration {
        key: text(toleration.key.as_ref()),
        operator: match toleration.operator.as_deref() {
            None | Some("" | "Equal") => TolerationOperator::Equal,
            Some("Exists") => TolerationOperator::Exists,
            Some(_) => TolerationOperator::Unknown,
        },
        value: text(toleration.value.as_ref()),
        effect: non_empty(toleration.effect.as_ref()).map(|effect| TaintEffect::from_api(&effect)),
    }
}

fn taint(taint: &k8s::Taint) -> Taint {
    Taint {
        key: Arc::from(&*taint.key),
        value: text(taint.value.as_ref()),
        effect: TaintEffect::from_api(&taint.effect),
    }
}

fn condition<'a>(status: &'a k8s::PodStatus, kind: &str) -> Option<&'a k8s::PodCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

fn pod_condition(condition: &k8s::PodCondition) -> PodCondition {
    PodCondition {
        status: Arc::from(&*condition.status),
        reason: text(condition.reason.as_ref()),
        message: text(condition.message.as_ref()),
        observed_generation: condition.observed_generation,
        last_transition: time(condition.last_transition_time.as_ref())
            .filter(|_| condition.status == "False"),
    }
}

fn claim_statuses(status: &k8s::PodStatus) -> Option<Box<PodClaimStatuses>> {
    let of_entry = |status: &k8s::PodResourceClaimStatus| PodClaimStatus {
        name: Arc::from(&*status.name),
        claim: status.resource_claim_name.as_deref().map(Arc::from),
    };
    let mapping = |mapping: &k8s::ContainerExtendedResourceRequest| ExtendedRequest {
        container: Arc::from(&*mapping.container_name),
        resource: Arc::from(&*mapping.resource_name),
        request: Arc::from(&*mapping.request_name),
    };
    let extended = status.extended_resource_claim_status.as_ref().map(|status| ExtendedClaimStatus {
        claim: Arc::from(&*status.resource_claim_name),
        mappings: status.request_mappings.iter().map(mapping).collect(),
    });
    let generated = status.resource_claim_statuses.iter().flatten().map(of_entry).collect();
    let claims = PodClaimStatuses { generated, extended };
    (claims != PodClaimStatuses::default()).then(|| Box::new(claims))
}

fn pod_status(status: &k8s::PodStatus) -> PodStatus {
    let disruption = condition(status, "DisruptionTarget").filter(|condition| condition.status == "True");
    let shared = SharedStatus {
        terminal: ["Succeeded", "Failed"].contains(&status.phase.as_deref().unwrap_or("")),
        nominated_node_name: non_empty(status.nominated_node_name.as_ref()),
        pod_scheduled: condition(status, "PodScheduled").map(pod_condition),
        disruption_target: disruption.map(|condition| Box::new(pod_condition(condition))),
        claims: claim_statuses(status),
    };
    PodStatus { start_time: time(status.start_time.as_ref()), shared: Arc::new(shared) }
}
