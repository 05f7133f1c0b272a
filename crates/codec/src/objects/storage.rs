//! Volumes, claims and classes.

use std::fmt;

use serde::Deserialize;
use supercargo_framework::Indexed;
use supercargo_framework::affinity::{NodeSelectorTerm, Operator, Requirement};
use supercargo_framework::labels::Labels;
use supercargo_framework::objects::{
    Body, ClaimRef, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeMode,
};
use supercargo_framework::quantity;
use supercargo_framework::raw_object::RawObject;
use supercargo_framework::selector::LabelSelector;

use super::document::{Document, annotations};
use crate::error::{DecodeErrorKind, FieldError};
use crate::interners::Interners;
use crate::json::{List, Obj, Pairs, Str};
use crate::metadata::Metadata;
use crate::selector::{NodeSelector, WireLabelSelector};
use crate::volume_source::{AwsElasticBlockStore, AzureDisk, ById, GcePersistentDisk};

/// The former annotation for the class. It takes precedence over the field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Volume<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<VolumeSpec<'a>>,
    #[serde(borrow)]
    status: Obj<Phase<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct VolumeSpec<'a> {
    #[serde(borrow)]
    capacity: Pairs<'a>,
    #[serde(borrow)]
    access_modes: List<Str<'a>>,
    #[serde(borrow)]
    volume_mode: Str<'a>,
    #[serde(borrow)]
    storage_class_name: Str<'a>,
    #[serde(borrow)]
    volume_attributes_class_name: Option<Str<'a>>,
    #[serde(borrow)]
    claim_ref: Option<Obj<WireClaimRef<'a>>>,
    #[serde(borrow)]
    node_affinity: Obj<VolumeNodeAffinity<'a>>,
    #[serde(borrow)]
    pub(super) csi: Option<Obj<CsiVolume<'a>>>,
    #[serde(borrow)]
    pub(super) gce_persistent_disk: Option<Obj<GcePersistentDisk<'a>>>,
    #[serde(borrow)]
    pub(super) aws_elastic_block_store: Option<Obj<AwsElasticBlockStore<'a>>>,
    #[serde(borrow)]
    pub(super) azure_disk: Option<Obj<AzureDisk<'a>>>,
    #[serde(borrow)]
    pub(super) cinder: Option<Obj<ById<'a>>>,
    #[serde(borrow)]
    pub(super) portworx_volume: Option<Obj<ById<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Phase<'a> {
    #[serde(borrow)]
    phase: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireClaimRef<'a> {
    #[serde(borrow)]
    namespace: Str<'a>,
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    uid: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct VolumeNodeAffinity<'a> {
    #[serde(borrow)]
    required: Option<Obj<NodeSelector<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct CsiVolume<'a> {
    #[serde(borrow)]
    pub(super) driver: Str<'a>,
    #[serde(borrow)]
    pub(super) volume_handle: Str<'a>,
}

impl<'a> Document<'a> for Volume<'a> {
    const KEEPS_RAW: bool = true;
    const TYPE: Option<(&'static str, &'static str)> = Some(("v1", "PersistentVolume"));

    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn annotations(&self, shared: &mut Interners) -> Labels {
        annotations(&self.metadata, shared)
    }

    fn body(&self, shared: &mut Interners, raw: Option<RawObject>) -> Result<Body, FieldError> {
        let spec = &self.spec;
        let class = class(&self.metadata, Some(&spec.storage_class_name));
        let required = spec.node_affinity.required.as_ref();
        let (csi, untranslatable) = match shared.csi_source(spec, &self.metadata.labels) {
            Ok(csi) => (csi, None),
            Err(untranslatable) => (None, Some(untranslatable)),
        };
        Ok(Body::PersistentVolume(PersistentVolume {
            capacity: bytes(&spec.capacity, format_args!("spec.capacity"))?.unwrap_or(0),
            access_modes: shared.list(&spec.access_modes),
            volume_mode: volume_mode(&spec.volume_mode),
            storage_class: shared.text(class),
            attributes_class: spec.volume_attributes_class_name.as_ref().map(|name| shared.text(name)),
            claim: spec.claim_ref.as_ref().map(|claim| ClaimRef {
                namespace: shared.text(&claim.namespace),
                name: shared.text(&claim.name),
                uid: shared.text(&claim.uid),
            }),
            node_affinity: required.map(|selector| shared.node_selector(selector).into()),
            phase: shared.text(&self.status.phase),
            csi,
            untranslatable,
            raw: raw.unwrap_or_default(),
        }))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Claim<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<ClaimSpec<'a>>,
    #[serde(borrow)]
    status: Obj<Phase<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSpec<'a> {
    #[serde(borrow)]
    volume_name: Str<'a>,
    #[serde(borrow)]
    storage_class_name: Option<Str<'a>>,
    #[serde(borrow)]
    volume_attributes_class_name: Option<Str<'a>>,
    #[serde(borrow)]
    access_modes: List<Str<'a>>,
    #[serde(borrow)]
    volume_mode: Str<'a>,
    #[serde(borrow)]
    resources: Obj<ClaimResources<'a>>,
    #[serde(borrow)]
    selector: Option<Obj<WireLabelSelector<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClaimResources<'a> {
    #[serde(borrow)]
    requests: Pairs<'a>,
}

impl<'a> Document<'a> for Claim<'a> {
    const KEEPS_RAW: bool = true;
    const TYPE: Option<(&'static str, &'static str)> = Some(("v1", "PersistentVolumeClaim"));

    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn annotations(&self, shared: &mut Interners) -> Labels {
        annotations(&self.metadata, shared)
    }

    fn body(&self, shared: &mut Interners, raw: Option<RawObject>) -> Result<Body, FieldError> {
        let spec = &self.spec;
        let class = class(&self.metadata, spec.storage_class_name.as_ref());
        Ok(Body::PersistentVolumeClaim(PersistentVolumeClaim {
            volume_name: shared.text(&spec.volume_name),
            storage_class: shared.text(class),
            attributes_class: spec.volume_attributes_class_name.as_ref().map(|name| shared.text(name)),
            access_modes: shared.list(&spec.access_modes),
            volume_mode: volume_mode(&spec.volume_mode),
            request: bytes(&spec.resources.requests, format_args!("spec.resources.requests"))?,
            selector: shared.label_selector(spec.selector.as_ref()).unwrap_or_else(|_| Some(nothing())),
            phase: shared.text(&self.status.phase),
            raw: raw.unwrap_or_default(),
        }))
    }
}

/// The storage class of an object.
fn class<'m>(metadata: &'m Metadata<'_>, field: Option<&'m Str<'_>>) -> &'m str {
    let annotated = metadata.annotations.iter().find(|(key, _)| *key == CLASS_ANNOTATION);
    annotated.map(|(_, class)| class).or(field.map(|class| &**class)).unwrap_or_default()
}

/// A selector that matches nothing, in place of an invalid one. An absent selector would match
/// everything.
fn nothing() -> LabelSelector {
    let requirement = |operator| Requirement { key: "nothing".into(), operator, values: Indexed::default() };
    LabelSelector::new([requirement(Operator::Exists), requirement(Operator::DoesNotExist)])
}

fn volume_mode(mode: &str) -> VolumeMode {
    if mode == "Block" { VolumeMode::Block } else { VolumeMode::Filesystem }
}

/// The amount of storage, if any.
fn bytes(amounts: &Pairs<'_>, path: fmt::Arguments<'_>) -> Result<Option<i64>, FieldError> {
    let storage = amounts.iter().find(|(name, _)| *name == "storage");
    storage.map(|(name, amount)| whole_bytes(amount, format_args!("{path}[{name}]"))).transpose()
}

/// An amount in bytes, rounded up.
pub(super) fn whole_bytes(amount: &str, path: fmt::Arguments<'_>) -> Result<i64, FieldError> {
    quantity::value(amount).map_err(|error| FieldError::new(path, DecodeErrorKind::Quantity(error)))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Class<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    provisioner: Str<'a>,
    #[serde(borrow)]
    volume_binding_mode: Str<'a>,
    #[serde(borrow)]
    allowed_topologies: List<Obj<TopologyTerm<'a>>>,
    #[serde(borrow)]
    parameters: Pairs<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TopologyTerm<'a> {
    #[serde(borrow)]
    match_label_expressions: List<Obj<TopologyRequirement<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TopologyRequirement<'a> {
    #[serde(borrow)]
    key: Str<'a>,
    #[serde(borrow)]
    values: List<Str<'a>>,
}

impl<'a> Document<'a> for Class<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn annotations(&self, shared: &mut Interners) -> Labels {
        annotations(&self.metadata, shared)
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        let mut term = |term: &Obj<TopologyTerm<'_>>| {
            let one_of = |one: &Obj<TopologyRequirement<'_>>| {
                let values = shared.texts(&one.values);
                Requirement {
                    key: shared.text(&one.key),
                    operator: Operator::In,
                    values: values.into_vec().into(),
                }
            };
            let match_expressions = term.match_label_expressions.iter().map(one_of).collect();
            NodeSelectorTerm { match_expressions, ..NodeSelectorTerm::default() }
        };
        let mode = self.volume_binding_mode.non_empty();
        Ok(Body::StorageClass(StorageClass {
            allowed_topologies: self.allowed_topologies.iter().map(&mut term).collect(),
            provisioner: shared.text(&self.provisioner),
            waits_for_first_consumer: mode.map(|mode| mode == "WaitForFirstConsumer"),
            parameters: shared.labels(self.parameters.iter()),
        }))
    }
}
