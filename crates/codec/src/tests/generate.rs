//! Random pods and nodes in k8s-openapi's complete types.

pub(super) mod constraints;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerExtendedResourceRequest, ContainerImage, ContainerPort, ContainerRestartRule,
    ContainerStatus, Node, NodeAffinity, NodeCondition, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, NodeSpec, NodeStatus, Pod, PodCondition, PodExtendedResourceClaimStatus,
    PodResourceClaim, PodResourceClaimStatus, PodSchedulingGate, PodSchedulingGroup, PodSpec, PodStatus,
    PreferredSchedulingTerm, ResourceRequirements, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use constraints::{affinity, spread, volume};

type Amounts = BTreeMap<String, Quantity>;

/// One of a few words, so that equal values occur. Some need escapes in JSON, and some are invalid
/// label values.
fn text() -> impl Strategy<Value = String> {
    one_of(&[
        "",
        "a",
        "b",
        "zone-a",
        "example.com/key",
        "x y",
        "12",
        "\"quoted\"\n",
        "ünï/\\cödé",
        "\u{1F680}",
    ])
}

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(words).prop_map(str::to_owned)
}

fn some_texts() -> impl Strategy<Value = Option<BTreeMap<String, String>>> {
    of(btree_map(text(), text(), 0..4))
}

fn list<T: std::fmt::Debug>(element: impl Strategy<Value = T>) -> impl Strategy<Value = Option<Vec<T>>> {
    of(vec(element, 0..3))
}

fn time() -> impl Strategy<Value = Option<Time>> {
    let moment =
        |nanos: i64| jiff::Timestamp::from_nanosecond(nanos.into()).expect("64 bits of nanoseconds fit");
    of(any::<i64>().prop_map(moment).prop_map(Time))
}

fn amounts() -> impl Strategy<Value = Option<Amounts>> {
    let names = one_of(&[
        "cpu",
        "memory",
        "ephemeral-storage",
        "pods",
        "example.com/gpu",
        "hugepages-2Mi",
        "unheard-of",
    ]);
    let quantities =
        one_of(&["0", "1", "100m", "1500m", "1.5", "64Mi", "1Gi", "2k", "3e3", "12E6", "9Ei", "-1"]);
    of(btree_map(names, quantities.prop_map(Quantity), 0..4))
}

fn resources() -> impl Strategy<Value = Option<ResourceRequirements>> {
    let fields = (amounts(), amounts());
    of(fields.prop_map(|(requests, limits)| ResourceRequirements { requests, limits, ..Default::default() }))
}

fn metadata() -> impl Strategy<Value = ObjectMeta> {
    let identity = (text(), "[a-z]{1,5}", any::<u32>(), of(any::<i64>()));
    let owner = ((text(), text()), of(any::<bool>())).prop_map(|((uid, name), controller)| OwnerReference {
        kind: format!("Kind{name}"),
        api_version: format!("v{name}"),
        name,
        uid,
        controller,
        ..Default::default()
    });
    (identity, time(), some_texts(), some_texts(), list(owner)).prop_map(
        |((version, name, uid, generation), deletion_timestamp, labels, annotations, owner_references)| {
            ObjectMeta {
                namespace: Some(format!("ns-{}", uid % 3)),
                name: Some(name),
                uid: Some(uid.to_string()),
                resource_version: Some(version),
                generation,
                deletion_timestamp,
                labels,
                annotations,
                owner_references,
                ..Default::default()
            }
        },
    )
}

fn requirement() -> impl Strategy<Value = NodeSelectorRequirement> {
    let key = prop_oneof![text(), Just("metadata.name".to_owned())];
    let operator = one_of(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"]);
    (key, operator, list(text())).prop_map(|(key, operator, values)| NodeSelectorRequirement {
        key,
        operator,
        values,
    })
}

fn term() -> impl Strategy<Value = NodeSelectorTerm> {
    (list(requirement()), list(requirement()))
        .prop_map(|(match_expressions, match_fields)| NodeSelectorTerm { match_expressions, match_fields })
}

fn node_affinity() -> impl Strategy<Value = NodeAffinity> {
    let required = vec(term(), 0..3).prop_map(|node_selector_terms| NodeSelector { node_selector_terms });
    let preferred = (term(), any::<i32>())
        .prop_map(|(preference, weight)| PreferredSchedulingTerm { preference, weight });
    (of(required), list(preferred)).prop_map(|(required, preferred)| NodeAffinity {
        required_during_scheduling_ignored_during_execution: required,
        preferred_during_scheduling_ignored_during_execution: preferred,
    })
}

fn toleration() -> impl Strategy<Value = Toleration> {
    let operator = of(one_of(&["", "Equal", "Exists", "Gt"]));
    let effect = of(one_of(&["", "NoSchedule", "PreferNoSchedule", "NoExecute", "Other"]));
    (of(text()), operator, of(text()), effect).prop_map(|(key, operator, value, effect)| Toleration {
        key,
        operator,
        value,
        effect,
        toleration_seconds: Some(300),
    })
}

fn port() -> impl Strategy<Value = ContainerPort> {
    let protocol = of(one_of(&["", "TCP", "UDP", "SCTP", "QUIC"]));
    (of(select(vec![-1, 0, 1, 80, 70_000])), of(text()), protocol).prop_map(
        |(host_port, host_ip, protocol)| ContainerPort {
            container_port: 80,
            host_ip,
            host_port,
            protocol,
            ..Default::default()
        },
    )
}

fn container() -> impl Strategy<Value = Container> {
    let image = of(one_of(&["", "nginx", "nginx:1", "localhost:5000/x", "y@sha256:00"]));
    let policy = of(one_of(&["Always", "Never"]));
    let rule = one_of(&["RestartAllContainers", "Restart", ""])
        .prop_map(|action| ContainerRestartRule { action, ..Default::default() });
    (one_of(&["c1", "c2", "c3"]), image, list(port()), resources(), policy, list(rule)).prop_map(
        |(name, image, ports, resources, restart_policy, restart_policy_rules)| Container {
            name,
            image,
            ports,
            resources,
            restart_policy,
            restart_policy_rules,
            command: Some(vec!["/bin/true".into()]),
            ..Default::default()
        },
    )
}

fn pod_spec() -> impl Strategy<Value = PodSpec> {
    let gate = text().prop_map(|name| PodSchedulingGate { name });
    let policy = of(one_of(&["Never", "PreemptLowerPriority", "Other"]));
    let names = (of(text()), of(text()), of(any::<i32>()), policy);
    let placement = (some_texts(), of(affinity()), list(toleration()), list(gate), list(spread()));
    let workload = (vec(container(), 0..3), list(container()), list(volume()), resources(), amounts());
    let claim = (text(), of(text()), of(text())).prop_map(
        |(name, resource_claim_name, resource_claim_template_name)| PodResourceClaim {
            name,
            resource_claim_name,
            resource_claim_template_name,
        },
    );
    let claims =
        (list(claim), of(of(text()).prop_map(|pod_group_name| PodSchedulingGroup { pod_group_name })));
    let host = (of(any::<bool>()), of(any::<bool>()));
    (names, placement, workload, claims, host).prop_map(|(names, placement, workload, claims, host)| {
        let (scheduler_name, node_name, priority, preemption_policy) = names;
        let (node_selector, affinity, tolerations, scheduling_gates, topology_spread_constraints) = placement;
        let (containers, init_containers, volumes, resources, overhead) = workload;
        let (resource_claims, scheduling_group) = claims;
        PodSpec {
            scheduler_name,
            node_name,
            priority,
            preemption_policy,
            node_selector,
            affinity,
            tolerations,
            scheduling_gates,
            topology_spread_constraints,
            containers,
            init_containers,
            volumes,
            resources,
            overhead,
            resource_claims,
            scheduling_group,
            host_network: host.0,
            host_users: host.1,
            ..Default::default()
        }
    })
}

fn condition() -> impl Strategy<Value = PodCondition> {
    let kind = one_of(&["PodScheduled", "DisruptionTarget", "PodResizePending", "Ready"]);
    let reason = of(one_of(&["Infeasible", "Deferred", "Unschedulable", "PreemptionByScheduler"]));
    (kind, one_of(&["True", "False", "Unknown"]), reason, of(text()), of(any::<i64>()), time()).prop_map(
        |(type_, status, reason, message, observed_generation, last_transition_time)| PodCondition {
            type_,
            status,
            reason,
            message,
            observed_generation,
            last_transition_time,
            last_probe_time: None,
        },
    )
}

fn container_status() -> impl Strategy<Value = ContainerStatus> {
    (one_of(&["c1", "c2", "c3", "gone"]), resources(), amounts()).prop_map(
        |(name, resources, allocated_resources)| ContainerStatus {
            name,
            resources,
            allocated_resources,
            ..Default::default()
        },
    )
}

/// The two kinds of claim statuses.
pub(super) type Claims = (Option<Vec<PodResourceClaimStatus>>, Option<PodExtendedResourceClaimStatus>);

pub(super) fn claims() -> impl Strategy<Value = Claims> {
    let claim = (text(), of(text()))
        .prop_map(|(name, resource_claim_name)| PodResourceClaimStatus { name, resource_claim_name });
    let mapping = (text(), text(), text()).prop_map(|(container_name, request_name, resource_name)| {
        ContainerExtendedResourceRequest { container_name, request_name, resource_name }
    });
    let extended = (vec(mapping, 0..2), text()).prop_map(|(request_mappings, resource_claim_name)| {
        PodExtendedResourceClaimStatus { request_mappings, resource_claim_name }
    });
    (list(claim), of(extended))
}

fn pod_status() -> impl Strategy<Value = PodStatus> {
    let phase = of(one_of(&["Pending", "Running", "Succeeded", "Failed", "Other"]));
    let containers = (list(container_status()), list(container_status()));
    let whole = (resources(), amounts());
    (phase, of(text()), time(), list(condition()), containers, whole, claims()).prop_map(
        |(phase, nominated_node_name, start_time, conditions, containers, whole, claims)| PodStatus {
            phase,
            nominated_node_name,
            start_time,
            conditions,
            container_statuses: containers.0,
            init_container_statuses: containers.1,
            resources: whole.0,
            allocated_resources: whole.1,
            resource_claim_statuses: claims.0,
            extended_resource_claim_status: claims.1,
            host_ip: Some("10.0.0.1".into()),
            ..Default::default()
        },
    )
}

pub(super) fn pod() -> impl Strategy<Value = Pod> {
    // Boxed: together they need more stack than a test thread has.
    (metadata(), of(pod_spec().boxed()), of(pod_status().boxed())).prop_map(|(metadata, spec, status)| Pod {
        metadata,
        spec,
        status,
    })
}

fn node_status() -> impl Strategy<Value = NodeStatus> {
    let image =
        (list(text()), of(any::<i64>())).prop_map(|(names, size_bytes)| ContainerImage { names, size_bytes });
    let condition =
        (text(), text()).prop_map(|(type_, status)| NodeCondition { type_, status, ..Default::default() });
    (amounts(), list(image), list(condition), list(text())).prop_map(
        |(allocatable, images, conditions, declared_features)| NodeStatus {
            capacity: allocatable.clone(),
            allocatable,
            images,
            conditions,
            declared_features,
            ..Default::default()
        },
    )
}

pub(super) fn node() -> impl Strategy<Value = Node> {
    let effect = one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute", "Other", ""]);
    let taint = (text(), of(text()), effect).prop_map(|(key, value, effect)| Taint {
        key,
        value,
        effect,
        ..Default::default()
    });
    let spec = (of(any::<bool>()), list(taint)).prop_map(|(unschedulable, taints)| NodeSpec {
        unschedulable,
        taints,
        ..Default::default()
    });
    (metadata(), of(spec), of(node_status())).prop_map(|(metadata, spec, status)| Node {
        metadata: ObjectMeta { namespace: None, ..metadata },
        spec,
        status,
    })
}
