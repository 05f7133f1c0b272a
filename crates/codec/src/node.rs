//! Decodes nodes.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use supercargo_framework::node::{NodeImage, NodeRecord, annotations_hash};
use supercargo_framework::resource::Resource;
use supercargo_framework::taint::{Taint, TaintEffect};

use super::error::{FieldError, WireError, parse, parse_protobuf};
use super::intern::Interner;
use super::interners::{Interners, share};
use super::json::{List, Obj, Pairs, Str};
use super::metadata::{DeclaredKeys, Metadata, required};
use super::proto::message;
use super::raw::untyped_text;
use super::text::text;

/// Decodes nodes and shares equal parts of them.
#[derive(Debug)]
pub struct NodeKind {
    annotations: DeclaredKeys,
    protobuf: bool,
    keeps_raw: bool,
    shared: Mutex<Shared>,
}

impl NodeKind {
    /// A kind that keeps the annotations with these keys, and a hash of all.
    pub fn new<K: Into<Arc<str>>>(annotations: impl IntoIterator<Item = K>) -> Self {
        Self {
            annotations: annotations.into_iter().collect(),
            protobuf: true,
            keeps_raw: false,
            shared: Mutex::default(),
        }
    }

    /// Whether to request protobuf, the default. JSON responses are always accepted.
    pub const fn protobuf(mut self, on: bool) -> Self {
        self.protobuf = on;
        self
    }

    /// Whether to keep the whole object of each node as JSON, for extenders. Off by default. If on,
    /// JSON is requested.
    pub const fn keep_raw(mut self, on: bool) -> Self {
        self.keeps_raw = on;
        self
    }

    /// Whether protobuf is requested.
    pub(super) const fn asks_for_protobuf(&self) -> bool {
        self.protobuf && !self.keeps_raw
    }

    /// Decodes a node in JSON.
    pub fn decode(&self, json: &[u8]) -> Result<NodeRecord, WireError> {
        let json = &text(json);
        let node: Obj<_> = parse("node", json)?;
        let mut record = self.record(&node)?;
        if self.keeps_raw {
            record.raw = Some(untyped_text("node", json)?);
        }
        Ok(record)
    }

    /// Decodes a node in protobuf, without its envelope.
    pub fn decode_protobuf(&self, message: &[u8]) -> Result<NodeRecord, WireError> {
        self.record(&parse_protobuf("node", message)?)
    }

    fn record(&self, node: &Node<'_>) -> Result<NodeRecord, WireError> {
        let metadata = &node.metadata;
        self.shared
            .lock()
            .record(node, &self.annotations)
            .map_err(|error| error.in_object("node", "", &metadata.name))
    }

    /// The number of interned values.
    pub fn interned(&self) -> usize {
        let shared = self.shared.lock();
        shared.common.len()
            + shared.taints.len()
            + shared.resources.len()
            + shared.images.len()
            + shared.features.len()
    }

    /// Drops unused values. Interners also do so as they grow.
    pub fn sweep(&self) {
        let mut shared = self.shared.lock();
        // Values first, because they hold texts.
        shared.taints.sweep();
        shared.resources.sweep();
        shared.images.sweep();
        shared.features.sweep();
        shared.common.sweep();
    }
}

/// The interners of nodes.
#[derive(Debug, Default)]
struct Shared {
    common: Interners,
    taints: Interner<[Taint]>,
    resources: Interner<Resource>,
    images: Interner<[NodeImage]>,
    features: Interner<[Arc<str>]>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Node<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<Spec<'a>>,
    #[serde(borrow)]
    status: Obj<Status<'a>>,
}

message!(Node { 1 => metadata, 2 => spec, 3 => status });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec<'a> {
    unschedulable: Option<bool>,
    #[serde(borrow)]
    taints: List<Obj<WireTaint<'a>>>,
    #[serde(borrow, rename = "podPreemptionPolicy")]
    preemption_policy: Option<Obj<PreemptionPolicy<'a>>>,
}

message!(Spec { 4 => unschedulable, 5 => taints, 8 => preemption_policy });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PreemptionPolicy<'a> {
    #[serde(borrow)]
    disable_resize_preemption: List<Str<'a>>,
}

message!(PreemptionPolicy { 1 => disable_resize_preemption });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireTaint<'a> {
    #[serde(borrow)]
    key: Str<'a>,
    #[serde(borrow)]
    value: Str<'a>,
    #[serde(borrow)]
    effect: Str<'a>,
}

message!(WireTaint { 1 => key, 2 => value, 3 => effect });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    allocatable: Pairs<'a>,
    #[serde(borrow)]
    images: List<Obj<Image<'a>>>,
    #[serde(borrow)]
    conditions: List<Obj<Condition<'a>>>,
    #[serde(borrow)]
    declared_features: List<Str<'a>>,
}

message!(Status { 2 => allocatable as quantities, 4 => conditions, 8 => images, 14 => declared_features });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Image<'a> {
    #[serde(borrow)]
    names: List<Str<'a>>,
    size_bytes: Option<i64>,
}

message!(Image { 1 => names, 2 => size_bytes });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    status: Str<'a>,
}

message!(Condition { 1 => kind, 2 => status });

impl Shared {
    fn record(&mut self, node: &Node<'_>, declared: &DeclaredKeys) -> Result<NodeRecord, FieldError> {
        let metadata = &node.metadata;
        required("metadata.name", &metadata.name)?;
        let conditions = node.status.conditions.iter();
        Ok(NodeRecord {
            raw: None,
            name: self.common.text(&metadata.name),
            uid: Arc::from(&*metadata.uid),
            resource_version: Arc::from(&*metadata.resource_version),
            labels: self.common.labels(metadata.labels.iter()),
            annotations: self.common.annotations(&metadata.annotations, declared),
            annotations_hash: annotations_hash(metadata.annotations.iter()),
            unschedulable: node.spec.unschedulable.unwrap_or_default(),
            taints: self.taints(&node.spec.taints),
            allocatable: self.allocatable(&node.status.allocatable)?,
            images: self.images(&node.status.images),
            conditions: self.common.labels(conditions.map(|c| (&*c.kind, &*c.status))),
            declared_features: self.features(&node.status.declared_features),
            disable_resize_preemption: self.disable_resize_preemption(&node.spec),
        })
    }

    fn taints(&mut self, taints: &[Obj<WireTaint<'_>>]) -> Arc<[Taint]> {
        let shared = taints.iter().map(|taint| Taint {
            key: self.common.text(&taint.key),
            value: self.common.text(&taint.value),
            effect: TaintEffect::from_api(&taint.effect),
        });
        self.taints.intern(shared.collect::<Vec<_>>())
    }

    fn allocatable(&mut self, amounts: &Pairs<'_>) -> Result<Arc<Resource>, FieldError> {
        let list = self.common.resource_list(amounts, format_args!("status.allocatable"))?;
        let resource = Resource::of_node(list.iter().map(|(name, amount)| (name, *amount)));
        Ok(share(&mut self.resources, resource))
    }

    /// One entry per name. The first one of a repeated name applies, as upstream.
    fn images(&mut self, images: &[Obj<Image<'_>>]) -> Arc<[NodeImage]> {
        let named = images.iter().flat_map(|image| {
            let size = image.size_bytes.unwrap_or_default();
            image.names.iter().map(move |name| (&**name, size))
        });
        let mut named: Vec<(&str, i64)> = named.collect();
        named.sort_by_key(|(name, _)| *name);
        named.dedup_by_key(|(name, _)| *name);
        let shared = named.into_iter().map(|(name, size)| NodeImage { name: self.common.text(name), size });
        self.images.intern(shared.collect::<Vec<_>>())
    }

    /// In the order of the list, which the API server keeps.
    fn disable_resize_preemption(&mut self, spec: &Spec<'_>) -> Option<Arc<[Arc<str>]>> {
        let owners = &spec.preemption_policy.as_ref()?.disable_resize_preemption;
        Some(owners.iter().map(|owner| self.common.text(owner)).collect())
    }

    fn features(&mut self, features: &[Str<'_>]) -> Arc<[Arc<str>]> {
        let mut features: Vec<Arc<str>> = features.iter().map(|f| self.common.text(f)).collect();
        features.sort();
        self.features.intern(features)
    }
}
