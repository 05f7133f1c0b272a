//! Pods as the API sends them, cut down to what scheduling reads.

#![allow(clippy::struct_field_names)] // the names are the API's

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::wire::json::{List, Obj, Pairs, Str};
use crate::wire::metadata::Metadata;
use crate::wire::proto::{Field as _, Message, Taken, Value, merge, message};

/// Whether a field is there at all; what is in it does not matter.
pub(super) type Presence = Option<IgnoredAny>;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod<'a> {
    #[serde(borrow)]
    pub(super) metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    pub(super) spec: Obj<Spec<'a>>,
    #[serde(borrow)]
    pub(super) status: Obj<Status<'a>>,
}

message!(Pod { 1 => metadata, 2 => spec, 3 => status });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec<'a> {
    #[serde(borrow)]
    pub(super) scheduler_name: Str<'a>,
    #[serde(borrow)]
    pub(super) node_name: Str<'a>,
    pub(super) priority: Option<i32>,
    #[serde(borrow)]
    pub(super) preemption_policy: Str<'a>,
    #[serde(borrow)]
    pub(super) node_selector: Pairs<'a>,
    #[serde(borrow)]
    pub(super) affinity: Obj<Affinity<'a>>,
    #[serde(borrow)]
    pub(super) tolerations: List<Obj<WireToleration<'a>>>,
    #[serde(borrow)]
    pub(super) scheduling_gates: List<Obj<SchedulingGate<'a>>>,
    #[serde(borrow)]
    pub(super) init_containers: List<Obj<Container<'a>>>,
    #[serde(borrow)]
    pub(super) containers: List<Obj<Container<'a>>>,
    #[serde(borrow)]
    pub(super) overhead: Pairs<'a>,
    #[serde(borrow)]
    pub(super) resources: Obj<Resources<'a>>,
    #[serde(borrow)]
    pub(super) volumes: List<Obj<Volume<'a>>>,
    #[serde(borrow)]
    pub(super) topology_spread_constraints: List<Obj<TopologySpreadConstraint<'a>>>,
    pub(super) resource_claims: List<IgnoredAny>,
    pub(super) scheduling_group: Presence,
}

message!(Spec { 1 => volumes, 2 => containers, 7 => node_selector, 10 => node_name, 18 => affinity, 19 => scheduler_name, 20 => init_containers, 22 => tolerations, 25 => priority, 31 => preemption_policy, 32 => overhead as quantities, 33 => topology_spread_constraints, 38 => scheduling_gates, 39 => resource_claims, 40 => resources, 43 => scheduling_group });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SchedulingGate<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
}

message!(SchedulingGate { 1 => name });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Affinity<'a> {
    #[serde(borrow)]
    pub(super) node_affinity: Option<Obj<WireNodeAffinity<'a>>>,
    pub(super) pod_affinity: Obj<PodAffinity>,
    pub(super) pod_anti_affinity: Obj<PodAffinity>,
}

message!(Affinity { 1 => node_affinity, 2 => pod_affinity, 3 => pod_anti_affinity });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireNodeAffinity<'a> {
    #[serde(borrow, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: Option<Obj<NodeSelector<'a>>>,
    #[serde(borrow, rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(super) preferred: List<Obj<PreferredSchedulingTerm<'a>>>,
}

message!(WireNodeAffinity { 1 => required, 2 => preferred });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeSelector<'a> {
    #[serde(borrow)]
    pub(super) node_selector_terms: List<Obj<SelectorTerm<'a>>>,
}

message!(NodeSelector { 1 => node_selector_terms });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PreferredSchedulingTerm<'a> {
    pub(super) weight: Option<i32>,
    #[serde(borrow)]
    pub(super) preference: Obj<SelectorTerm<'a>>,
}

message!(PreferredSchedulingTerm { 1 => weight, 2 => preference });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SelectorTerm<'a> {
    #[serde(borrow)]
    pub(super) match_expressions: List<Obj<SelectorRequirement<'a>>>,
    #[serde(borrow)]
    pub(super) match_fields: List<Obj<SelectorRequirement<'a>>>,
}

message!(SelectorTerm { 1 => match_expressions, 2 => match_fields });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SelectorRequirement<'a> {
    #[serde(borrow)]
    pub(super) key: Str<'a>,
    #[serde(borrow)]
    pub(super) operator: Str<'a>,
    #[serde(borrow)]
    pub(super) values: List<Str<'a>>,
}

message!(SelectorRequirement { 1 => key, 2 => operator, 3 => values });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: List<IgnoredAny>,
}

message!(PodAffinity, owned { 1 => required });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TopologySpreadConstraint<'a> {
    #[serde(borrow)]
    pub(super) when_unsatisfiable: Str<'a>,
}

message!(TopologySpreadConstraint { 3 => when_unsatisfiable });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireToleration<'a> {
    #[serde(borrow)]
    pub(super) key: Str<'a>,
    #[serde(borrow)]
    pub(super) operator: Str<'a>,
    #[serde(borrow)]
    pub(super) value: Str<'a>,
    #[serde(borrow)]
    pub(super) effect: Str<'a>,
}

message!(WireToleration { 1 => key, 2 => operator, 3 => value, 4 => effect });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Container<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) image: Str<'a>,
    #[serde(borrow)]
    pub(super) ports: List<Obj<ContainerPort<'a>>>,
    #[serde(borrow)]
    pub(super) resources: Obj<Resources<'a>>,
    #[serde(borrow)]
    restart_policy: Str<'a>,
}

message!(Container { 1 => name, 2 => image, 6 => ports, 8 => resources, 24 => restart_policy });

impl Container<'_> {
    /// Whether an init container keeps running beside the others. Only these have this policy.
    pub(super) fn is_sidecar(&self) -> bool {
        &*self.restart_policy == "Always"
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ContainerPort<'a> {
    pub(super) host_port: Option<i32>,
    #[serde(borrow, rename = "hostIP")]
    pub(super) host_ip: Str<'a>,
    #[serde(borrow)]
    pub(super) protocol: Str<'a>,
}

message!(ContainerPort { 2 => host_port, 4 => protocol, 5 => host_ip });

/// Requests only: on admission the API server gives a container that has a limit and no request its limit as request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resources<'a> {
    #[serde(borrow)]
    pub(super) requests: Pairs<'a>,
}

message!(Resources { 2 => requests as quantities });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Volume<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) image: Obj<ImageVolume<'a>>,
    pub(super) persistent_volume_claim: Presence,
    pub(super) ephemeral: Presence,
    pub(super) gce_persistent_disk: Presence,
    pub(super) aws_elastic_block_store: Presence,
    pub(super) iscsi: Presence,
    pub(super) rbd: Presence,
}

impl<'a> Message<'a> for Volume<'a> {
    fn field(&mut self, number: u32, value: Value<'a>) -> Taken {
        match (number, value) {
            (1, value) => self.name.set(value),
            (2, Value::Bytes(bytes)) => Some(merge(&mut Sources(self), bytes)),
            (2, _) => None,
            _ => Some(Ok(())),
        }
    }
}

/// What in JSON is in the volume itself.
struct Sources<'v, 'a>(&'v mut Volume<'a>);

impl<'a> Message<'a> for Sources<'_, 'a> {
    fn field(&mut self, number: u32, value: Value<'a>) -> Taken {
        let volume = &mut *self.0;
        match number {
            3 => volume.gce_persistent_disk.set(value),
            4 => volume.aws_elastic_block_store.set(value),
            8 => volume.iscsi.set(value),
            10 => volume.persistent_volume_claim.set(value),
            11 => volume.rbd.set(value),
            29 => volume.ephemeral.set(value),
            30 => volume.image.set(value),
            _ => Some(Ok(())),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ImageVolume<'a> {
    #[serde(borrow)]
    pub(super) reference: Str<'a>,
}

message!(ImageVolume { 1 => reference });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status<'a> {
    #[serde(borrow)]
    pub(super) phase: Str<'a>,
    #[serde(borrow)]
    pub(super) nominated_node_name: Str<'a>,
    #[serde(borrow)]
    pub(super) start_time: Str<'a>,
    #[serde(borrow)]
    pub(super) conditions: List<Obj<Condition<'a>>>,
    #[serde(borrow)]
    pub(super) init_container_statuses: List<Obj<ContainerStatus<'a>>>,
    #[serde(borrow)]
    pub(super) container_statuses: List<Obj<ContainerStatus<'a>>>,
    #[serde(borrow)]
    pub(super) resource_claim_statuses: List<Obj<ClaimStatus<'a>>>,
    #[serde(borrow)]
    pub(super) extended_resource_claim_status: Option<Obj<ExtendedClaimStatus<'a>>>,
    #[serde(borrow)]
    pub(super) allocated_resources: Pairs<'a>,
    #[serde(borrow)]
    pub(super) resources: Option<Obj<Resources<'a>>>,
}

message!(Status { 1 => phase, 2 => conditions, 7 => start_time as time, 8 => container_statuses, 10 => init_container_statuses, 11 => nominated_node_name, 15 => resource_claim_statuses, 18 => extended_resource_claim_status, 19 => allocated_resources as quantities, 20 => resources });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow)]
    pub(super) status: Str<'a>,
    #[serde(borrow)]
    pub(super) reason: Str<'a>,
    #[serde(borrow)]
    pub(super) message: Str<'a>,
    pub(super) observed_generation: Option<i64>,
    #[serde(borrow)]
    pub(super) last_transition_time: Str<'a>,
}

message!(Condition { 1 => kind, 2 => status, 4 => last_transition_time as time, 5 => reason, 6 => message, 7 => observed_generation as non_zero });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ContainerStatus<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) resources: Option<Obj<Resources<'a>>>,
    #[serde(borrow)]
    pub(super) allocated_resources: Pairs<'a>,
}

message!(ContainerStatus { 1 => name, 10 => allocated_resources as quantities, 11 => resources });

#[derive(Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClaimStatus<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    resource_claim_name: Option<Str<'a>>,
}

message!(ClaimStatus { 1 => name, 2 => resource_claim_name });

#[derive(Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ExtendedClaimStatus<'a> {
    #[serde(borrow)]
    resource_claim_name: Str<'a>,
    #[serde(borrow)]
    request_mappings: List<Obj<RequestMapping<'a>>>,
}

message!(ExtendedClaimStatus { 1 => request_mappings, 2 => resource_claim_name });

#[derive(Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RequestMapping<'a> {
    #[serde(borrow)]
    container_name: Str<'a>,
    #[serde(borrow)]
    resource_name: Str<'a>,
    #[serde(borrow)]
    request_name: Str<'a>,
}

message!(RequestMapping { 1 => container_name, 2 => resource_name, 3 => request_name });
