//! A custom kind with only the fields of a pod that a scheduler reads. One set of types decodes
//! both encodings, and skips other fields without allocating.

use std::collections::BTreeMap;

use kube_informers::{Accept, ContentType, DecodeError, GroupVersionResource, Kind, ObjectKey};
use prost::Message;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// Pods in the form that a scheduler keeps.
pub(crate) struct SlimPods {
    gvr: GroupVersionResource,
    protobuf: bool,
}

/// A pod in the form that a scheduler keeps. Empty parts allocate nothing.
// Nothing reads the fields: the benchmark measures keeping them.
#[expect(dead_code, reason = "its cost is what matters")]
pub(crate) struct SlimPod {
    key: ObjectKey,
    version: Box<str>,
    uid: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    owner: Option<Box<str>>,
    terminating: bool,
    node: Option<Box<str>>,
    nominated_node: Option<Box<str>>,
    scheduler: Box<str>,
    phase: Phase,
    priority: i32,
    requests: Requests,
    images: Box<[Box<str>]>,
    host_ports: Box<[(i32, Box<str>)]>,
    node_selector: Box<[(Box<str>, Box<str>)]>,
    tolerations: Box<[Toleration]>,
    affinity: Option<Box<Affinity>>,
    spread: Box<[SpreadConstraint]>,
    claims: Box<[Box<str>]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    milli_cpu: i64,
    memory: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Pending,
    Running,
    Over,
}

impl SlimPods {
    pub(crate) fn new(protobuf: bool) -> Self {
        Self { gvr: GroupVersionResource::namespaced("", "v1", "pods"), protobuf }
    }
}

impl SlimPod {
    pub(crate) fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }
}

impl Kind for SlimPods {
    type Object = SlimPod;

    fn gvr(&self) -> &GroupVersionResource {
        &self.gvr
    }

    fn key(&self, pod: &SlimPod) -> ObjectKey {
        pod.key.clone()
    }

    fn resource_version<'a>(&self, pod: &'a SlimPod) -> &'a str {
        &pod.version
    }

    fn accept(&self) -> Accept {
        Accept::default().protobuf(self.protobuf)
    }

    fn decode(&self, content_type: ContentType, bytes: &[u8]) -> Result<SlimPod, DecodeError> {
        let wire: WirePod = match content_type {
            ContentType::Json => serde_json::from_slice(bytes)?,
            ContentType::Protobuf => WirePod::decode(bytes)?,
            other => return Err(DecodeError::UnsupportedContentType(other)),
        };
        Ok(wire.into())
    }
}

impl From<WirePod> for SlimPod {
    fn from(pod: WirePod) -> Self {
        let meta = pod.metadata.unwrap_or_default();
        let spec = pod.spec.unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        let text = |text: String| Some(text).filter(|text| !text.is_empty()).map(String::into_boxed_str);
        let ports = spec.containers.iter().flat_map(|container| &container.ports);
        let host_ports = ports.filter(|port| port.host_port != 0);
        Self {
            key: ObjectKey::new(Some(&meta.namespace), &meta.name),
            version: meta.resource_version.into(),
            uid: meta.uid.into(),
            labels: pairs(meta.labels),
            owner: meta
                .owner_references
                .into_iter()
                .find(|owner| owner.controller)
                .map(|owner| owner.uid.into()),
            terminating: meta.deletion_timestamp.is_some(),
            node: text(spec.node_name),
            nominated_node: text(status.nominated_node_name),
            scheduler: spec.scheduler_name.into(),
            phase: match status.phase.as_str() {
                "Running" => Phase::Running,
                "Succeeded" | "Failed" => Phase::Over,
                _ => Phase::Pending,
            },
            priority: spec.priority,
            requests: requests(&spec.containers, &spec.init_containers, &spec.overhead),
            host_ports: host_ports.map(|port| (port.host_port, port.protocol.as_str().into())).collect(),
            images: spec.containers.into_iter().map(|container| container.image.into()).collect(),
            node_selector: pairs(spec.node_selector),
            tolerations: spec.tolerations.into(),
            affinity: spec.affinity.map(Box::new),
            spread: spec.topology_spread_constraints.into(),
            claims: spec
                .volumes
                .into_iter()
                .filter_map(|volume| volume.source?.persistent_volume_claim)
                .map(|claim| claim.claim_name.into())
                .collect(),
        }
    }
}

fn pairs(map: BTreeMap<String, String>) -> Box<[(Box<str>, Box<str>)]> {
    map.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

/// The sum of the containers' requests, or those of an init container if they are higher.
fn requests(
    containers: &[Container],
    before: &[Container],
    overhead: &BTreeMap<String, Quantity>,
) -> Requests {
    let of = |list: &BTreeMap<String, Quantity>| {
        let get = |name| list.get(name).map_or(0, Quantity::milli);
        Requests { milli_cpu: get("cpu"), memory: get("memory") / 1000 }
    };
    let asked = |container: &Container| {
        container.resources.as_ref().map_or_else(Requests::default, |all| of(&all.requests))
    };
    let together = containers.iter().map(asked).fold(Requests::default(), |sum, one| Requests {
        milli_cpu: sum.milli_cpu + one.milli_cpu,
        memory: sum.memory + one.memory,
    });
    let most = before.iter().map(asked).fold(together, |most, one| Requests {
        milli_cpu: most.milli_cpu.max(one.milli_cpu),
        memory: most.memory.max(one.memory),
    });
    let overhead = of(overhead);
    Requests { milli_cpu: most.milli_cpu + overhead.milli_cpu, memory: most.memory + overhead.memory }
}

macro_rules! wire {
    ($($(#[$outer:meta])* struct $name:ident { $($(#[$inner:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$outer])*
        #[derive(Clone, PartialEq, Message, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[allow(clippy::struct_field_names)] // the API's names
        struct $name { $($(#[$inner])* $field: $type,)* }
    )*};
}

wire! {
    struct WirePod {
        #[prost(message, optional, tag = "1")] metadata: Option<Meta>,
        #[prost(message, optional, tag = "2")] spec: Option<Spec>,
        #[prost(message, optional, tag = "3")] status: Option<Status>,
    }
    struct Meta {
        #[prost(string, tag = "1")] name: String,
        #[prost(string, tag = "3")] namespace: String,
        #[prost(string, tag = "5")] uid: String,
        #[prost(string, tag = "6")] resource_version: String,
        #[prost(message, optional, tag = "9")] deletion_timestamp: Option<Moment>,
        #[prost(btree_map = "string, string", tag = "11")] labels: BTreeMap<String, String>,
        #[prost(message, repeated, tag = "13")] owner_references: Vec<Owner>,
    }
    struct Owner {
        #[prost(string, tag = "4")] uid: String,
        #[prost(bool, tag = "6")] controller: bool,
    }
    struct Spec {
        #[prost(message, repeated, tag = "1")] volumes: Vec<Volume>,
        #[prost(message, repeated, tag = "2")] containers: Vec<Container>,
        #[prost(btree_map = "string, string", tag = "7")] node_selector: BTreeMap<String, String>,
        #[prost(string, tag = "10")] node_name: String,
        #[prost(message, optional, tag = "18")] affinity: Option<Affinity>,
        #[prost(string, tag = "19")] scheduler_name: String,
        #[prost(message, repeated, tag = "20")] init_containers: Vec<Container>,
        #[prost(message, repeated, tag = "22")] tolerations: Vec<Toleration>,
        #[prost(int32, tag = "25")] priority: i32,
        #[prost(btree_map = "string, message", tag = "32")] overhead: BTreeMap<String, Quantity>,
        #[prost(message, repeated, tag = "33")] topology_spread_constraints: Vec<SpreadConstraint>,
    }
    struct Status {
        #[prost(string, tag = "1")] phase: String,
        #[prost(string, tag = "11")] nominated_node_name: String,
    }
    struct VolumeSource {
        #[prost(message, optional, tag = "10")] persistent_volume_claim: Option<Claim>,
    }
    struct Claim {
        #[prost(string, tag = "1")] claim_name: String,
    }
    struct Container {
        #[prost(string, tag = "2")] image: String,
        #[prost(message, repeated, tag = "6")] ports: Vec<Port>,
        #[prost(message, optional, tag = "8")] resources: Option<Resources>,
    }
    struct Port {
        #[prost(int32, tag = "2")] host_port: i32,
        #[prost(string, tag = "4")] protocol: String,
    }
    struct Resources {
        #[prost(btree_map = "string, message", tag = "2")] requests: BTreeMap<String, Quantity>,
    }
    struct Toleration {
        #[prost(string, tag = "1")] key: String,
        #[prost(string, tag = "2")] operator: String,
        #[prost(string, tag = "3")] value: String,
        #[prost(string, tag = "4")] effect: String,
    }
    struct SpreadConstraint {
        #[prost(int32, tag = "1")] max_skew: i32,
        #[prost(string, tag = "2")] topology_key: String,
        #[prost(string, tag = "3")] when_unsatisfiable: String,
        #[prost(message, optional, tag = "4")] label_selector: Option<Selector>,
    }
    struct Selector {
        #[prost(btree_map = "string, string", tag = "1")] match_labels: BTreeMap<String, String>,
        #[prost(message, repeated, tag = "2")] match_expressions: Vec<Requirement>,
    }
    struct Requirement {
        #[prost(string, tag = "1")] key: String,
        #[prost(string, tag = "2")] operator: String,
        #[prost(string, repeated, tag = "3")] values: Vec<String>,
    }
    struct Affinity {
        #[prost(message, optional, tag = "1")] node_affinity: Option<NodeAffinity>,
        #[prost(message, optional, tag = "2")] pod_affinity: Option<PodAffinity>,
        #[prost(message, optional, tag = "3")] pod_anti_affinity: Option<PodAffinity>,
    }
    struct NodeAffinity {
        #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
        #[prost(message, optional, tag = "1")] required: Option<NodeSelector>,
        #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
        #[prost(message, repeated, tag = "2")] preferred: Vec<PreferredNodes>,
    }
    struct NodeSelector {
        #[prost(message, repeated, tag = "1")] node_selector_terms: Vec<NodeTerm>,
    }
    struct PreferredNodes {
        #[prost(int32, tag = "1")] weight: i32,
        #[prost(message, optional, tag = "2")] preference: Option<NodeTerm>,
    }
    struct NodeTerm {
        #[prost(message, repeated, tag = "1")] match_expressions: Vec<Requirement>,
        #[prost(message, repeated, tag = "2")] match_fields: Vec<Requirement>,
    }
    struct PodAffinity {
        #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
        #[prost(message, repeated, tag = "1")] required: Vec<PodTerm>,
        #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
        #[prost(message, repeated, tag = "2")] preferred: Vec<PreferredPods>,
    }
    struct PreferredPods {
        #[prost(int32, tag = "1")] weight: i32,
        #[prost(message, optional, tag = "2")] pod_affinity_term: Option<PodTerm>,
    }
    struct PodTerm {
        #[prost(message, optional, tag = "1")] label_selector: Option<Selector>,
        #[prost(string, repeated, tag = "2")] namespaces: Vec<String>,
        #[prost(string, tag = "3")] topology_key: String,
        #[prost(message, optional, tag = "4")] namespace_selector: Option<Selector>,
    }
}

/// In JSON, the source's fields are beside the volume's name.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(from = "VolumeSource")]
struct Volume {
    #[prost(message, optional, tag = "2")]
    source: Option<VolumeSource>,
}

impl From<VolumeSource> for Volume {
    fn from(source: VolumeSource) -> Self {
        Self { source: Some(source) }
    }
}

/// Text in JSON, a message around it in protobuf.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(transparent)]
struct Quantity {
    #[prost(string, tag = "1")]
    text: String,
}

impl Quantity {
    /// In thousandths, rounded down. Zero if malformed, or in a notation that API servers do not
    /// emit.
    fn milli(&self) -> i64 {
        let text = &self.text;
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor = match unit {
            "m" => 1,
            "" => 1000,
            "k" => 1_000_000,
            "M" => 1_000_000_000,
            "G" => 1_000_000_000_000,
            "Ki" => 1000 << 10,
            "Mi" => 1000 << 20,
            "Gi" => 1000 << 30,
            _ => 0,
        };
        number.parse::<i64>().unwrap_or(0).saturating_mul(factor)
    }
}

/// A time, of which only the presence matters. Text in JSON, a message in protobuf.
#[derive(Clone, PartialEq, Message)]
struct Moment {}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self {})
    }
}
