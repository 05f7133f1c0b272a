//! The table of built-in kinds: resource, group and decoder.

use kube_informers::GroupVersionResource;
use supercargo_framework::Text;
use supercargo_framework::objects::resources;

use super::Decode;
use super::csi::{Attachment, Driver, Node, StorageCapacity};
use super::devices::{WireClass, WireTaintRule};
use super::pod_groups::{WireCompositePodGroup, WirePodGroup};
use super::resource_claims::WireClaim;
use super::resource_slices::WireSlice;
use super::storage::{Claim, Class, Volume};
use super::workloads::{Budget, Controller, Named, Selecting, Service};

/// A row of the table.
pub(super) struct Entry {
    pub(super) resource: Text,
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    namespaced: bool,
    pub(super) decode: Decode,
}

impl Entry {
    pub(super) fn gvr(&self) -> GroupVersionResource {
        if self.namespaced {
            GroupVersionResource::namespaced(self.group, self.version, self.plural)
        } else {
            GroupVersionResource::cluster(self.group, self.version, self.plural)
        }
    }
}

const fn namespaced(resource: Text, group: &'static str, plural: &'static str, decode: Decode) -> Entry {
    Entry { resource, group, version: "v1", plural, namespaced: true, decode }
}

const fn cluster(resource: Text, group: &'static str, plural: &'static str, decode: Decode) -> Entry {
    Entry { resource, group, version: "v1", plural, namespaced: false, decode }
}

const STORAGE: &str = "storage.k8s.io";
const DEVICES: &str = "resource.k8s.io";

/// All built-in kinds.
pub(super) static KINDS: [Entry; 19] = [
    cluster(resources::PERSISTENT_VOLUME, "", "persistentvolumes", |k, j| k.read::<Volume<'_>>(j)),
    namespaced(resources::PERSISTENT_VOLUME_CLAIM, "", "persistentvolumeclaims", |k, j| {
        k.read::<Claim<'_>>(j)
    }),
    cluster(resources::STORAGE_CLASS, STORAGE, "storageclasses", |k, j| k.read::<Class<'_>>(j)),
    cluster(resources::CSI_NODE, STORAGE, "csinodes", |k, j| k.read::<Node<'_>>(j)),
    cluster(resources::CSI_DRIVER, STORAGE, "csidrivers", |k, j| k.read::<Driver<'_>>(j)),
    namespaced(resources::CSI_STORAGE_CAPACITY, STORAGE, "csistoragecapacities", |k, j| {
        k.read::<StorageCapacity<'_>>(j)
    }),
    cluster(resources::VOLUME_ATTACHMENT, STORAGE, "volumeattachments", |k, j| k.read::<Attachment<'_>>(j)),
    namespaced(resources::SERVICE, "", "services", |k, j| k.read::<Service<'_>>(j)),
    namespaced(resources::REPLICATION_CONTROLLER, "", "replicationcontrollers", |k, j| {
        k.read::<Controller<'_>>(j)
    }),
    namespaced(resources::REPLICA_SET, "apps", "replicasets", |k, j| k.read::<Selecting<'_>>(j)),
    namespaced(resources::STATEFUL_SET, "apps", "statefulsets", |k, j| k.read::<Selecting<'_>>(j)),
    cluster(resources::NAMESPACE, "", "namespaces", |k, j| k.read::<Named<'_>>(j)),
    namespaced(resources::POD_DISRUPTION_BUDGET, "policy", "poddisruptionbudgets", |k, j| {
        k.read::<Budget<'_>>(j)
    }),
    namespaced(resources::RESOURCE_CLAIM, DEVICES, "resourceclaims", |k, j| k.read::<WireClaim<'_>>(j)),
    cluster(resources::RESOURCE_SLICE, DEVICES, "resourceslices", |k, j| k.read::<WireSlice<'_>>(j)),
    cluster(resources::DEVICE_CLASS, DEVICES, "deviceclasses", |k, j| k.read::<WireClass<'_>>(j)),
    cluster(resources::DEVICE_TAINT_RULE, DEVICES, "devicetaintrules", |k, j| k.read::<WireTaintRule<'_>>(j)),
    Entry {
        resource: resources::POD_GROUP,
        group: "scheduling.k8s.io",
        version: "v1beta1",
        plural: "podgroups",
        namespaced: true,
        decode: |k, j| k.read::<WirePodGroup<'_>>(j),
    },
    Entry {
        resource: resources::COMPOSITE_POD_GROUP,
        group: "scheduling.k8s.io",
        version: "v1alpha3",
        plural: "compositepodgroups",
        namespaced: true,
        decode: |k, j| k.read::<WireCompositePodGroup<'_>>(j),
    },
];
