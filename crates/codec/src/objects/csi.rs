//! CSI kinds: drivers, nodes, storage capacities and volume attachments.

use serde::Deserialize;
use supercargo_framework::labels::Labels;
use supercargo_framework::objects::{
    Body, CsiDriver, CsiNode, CsiNodeDriver, CsiStorageCapacity, VolumeAttachment,
};
use supercargo_framework::raw_object::RawObject;

use super::document::{Document, annotations};
use super::storage::{VolumeSpec, whole_bytes};
use crate::error::FieldError;
use crate::interners::Interners;
use crate::json::{List, Obj, Pairs, Str};
use crate::metadata::Metadata;
use crate::selector::WireLabelSelector;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Node<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<NodeSpec<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeSpec<'a> {
    #[serde(borrow)]
    drivers: List<Obj<NodeDriver<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeDriver<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    allocatable: Obj<Allocatable>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Allocatable {
    count: Option<i32>,
}

impl<'a> Document<'a> for Node<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn annotations(&self, shared: &mut Interners) -> Labels {
        annotations(&self.metadata, shared)
    }

    fn node_name(&self) -> Option<&str> {
        // A CSINode has the name of its node.
        self.metadata.name.non_empty()
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        let drivers = self.spec.drivers.iter();
        let drivers = drivers
            .map(|driver| CsiNodeDriver { name: shared.text(&driver.name), limit: driver.allocatable.count });
        Ok(Body::CsiNode(CsiNode { drivers: drivers.collect() }))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Driver<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    spec: Obj<DriverSpec>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DriverSpec {
    storage_capacity: Option<bool>,
    prevent_pod_scheduling_if_missing: Option<bool>,
}

impl<'a> Document<'a> for Driver<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, _: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        Ok(Body::CsiDriver(CsiDriver {
            storage_capacity: self.spec.storage_capacity.unwrap_or_default(),
            prevents_scheduling_if_missing: self.spec.prevent_pod_scheduling_if_missing.unwrap_or_default(),
        }))
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StorageCapacity<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    storage_class_name: Str<'a>,
    #[serde(borrow)]
    node_topology: Option<Obj<WireLabelSelector<'a>>>,
    #[serde(borrow)]
    capacity: Str<'a>,
    #[serde(borrow)]
    maximum_volume_size: Str<'a>,
}

impl<'a> Document<'a> for StorageCapacity<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        let bytes = |field: &'static str, amount: &Str<'_>| {
            amount.non_empty().map(|amount| whole_bytes(amount, format_args!("{field}"))).transpose()
        };
        Ok(Body::CsiStorageCapacity(CsiStorageCapacity {
            storage_class: shared.text(&self.storage_class_name),
            // An invalid selector selects no node, as upstream.
            node_topology: shared.label_selector(self.node_topology.as_ref()).unwrap_or_default(),
            capacity: bytes("capacity", &self.capacity)?,
            maximum_volume_size: bytes("maximumVolumeSize", &self.maximum_volume_size)?,
        }))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Attachment<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<AttachmentSpec<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AttachmentSpec<'a> {
    #[serde(borrow)]
    attacher: Str<'a>,
    #[serde(borrow)]
    node_name: Str<'a>,
    #[serde(borrow)]
    source: Obj<AttachmentSource<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AttachmentSource<'a> {
    #[serde(borrow)]
    persistent_volume_name: Option<Str<'a>>,
    #[serde(borrow)]
    inline_volume_spec: Option<Obj<VolumeSpec<'a>>>,
}

impl<'a> Document<'a> for Attachment<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn node_name(&self) -> Option<&str> {
        self.spec.node_name.non_empty()
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        let source = &self.spec.source;
        let inline = source.inline_volume_spec.as_ref();
        Ok(Body::VolumeAttachment(VolumeAttachment {
            attacher: shared.text(&self.spec.attacher),
            volume_name: source.persistent_volume_name.as_ref().map(|name| shared.text(name)),
            inline: inline.and_then(|spec| shared.csi_source(spec, &Pairs::default()).ok().flatten()),
        }))
    }
}
