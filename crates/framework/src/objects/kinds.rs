//! The parts that scheduling reads of kinds that in-tree plugins use.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::devices::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use super::groups::{CompositePodGroup, PodGroup};
use crate::label_terms::LabelTerms;
use crate::labels::Labels;
use crate::raw_object::RawObject;
use crate::selector::{EqualitySelector, LabelSelector};

/// Names of kinds, equal to [`EventResource::Other`](crate::EventResource::Other) for kinds with
/// upstream events.
pub mod resources {
    use crate::text::Text;

    /// v1 PersistentVolume.
    pub const PERSISTENT_VOLUME: Text = Text::Static("PersistentVolume");
    /// v1 PersistentVolumeClaim.
    pub const PERSISTENT_VOLUME_CLAIM: Text = Text::Static("PersistentVolumeClaim");
    /// storage.k8s.io/v1 StorageClass.
    pub const STORAGE_CLASS: Text = Text::Static("storage.k8s.io/StorageClass");
    /// storage.k8s.io/v1 CSINode.
    pub const CSI_NODE: Text = Text::Static("storage.k8s.io/CSINode");
    /// storage.k8s.io/v1 CSIDriver.
    pub const CSI_DRIVER: Text = Text::Static("storage.k8s.io/CSIDriver");
    /// storage.k8s.io/v1 CSIStorageCapacity.
    pub const CSI_STORAGE_CAPACITY: Text = Text::Static("storage.k8s.io/CSIStorageCapacity");
    /// storage.k8s.io/v1 VolumeAttachment.
    pub const VOLUME_ATTACHMENT: Text = Text::Static("storage.k8s.io/VolumeAttachment");
    /// v1 Service.
    pub const SERVICE: Text = Text::Static("Service");
    /// v1 ReplicationController.
    pub const REPLICATION_CONTROLLER: Text = Text::Static("ReplicationController");
    /// apps/v1 ReplicaSet.
    pub const REPLICA_SET: Text = Text::Static("apps/ReplicaSet");
    /// apps/v1 StatefulSet.
    pub const STATEFUL_SET: Text = Text::Static("apps/StatefulSet");
    /// v1 Namespace.
    pub const NAMESPACE: Text = Text::Static("Namespace");
    /// resource.k8s.io/v1 ResourceClaim.
    pub const RESOURCE_CLAIM: Text = Text::Static("resource.k8s.io/ResourceClaim");
    /// resource.k8s.io/v1 ResourceSlice.
    pub const RESOURCE_SLICE: Text = Text::Static("resource.k8s.io/ResourceSlice");
    /// resource.k8s.io/v1 DeviceClass.
    pub const DEVICE_CLASS: Text = Text::Static("resource.k8s.io/DeviceClass");
    /// resource.k8s.io/v1 DeviceTaintRule.
    pub const DEVICE_TAINT_RULE: Text = Text::Static("resource.k8s.io/DeviceTaintRule");
    /// scheduling.k8s.io/v1beta1 PodGroup.
    pub const POD_GROUP: Text = Text::Static("scheduling.k8s.io/PodGroup");
    /// scheduling.k8s.io/v1alpha3 CompositePodGroup.
    pub const COMPOSITE_POD_GROUP: Text = Text::Static("scheduling.k8s.io/CompositePodGroup");
    /// policy/v1 PodDisruptionBudget.
    pub const POD_DISRUPTION_BUDGET: Text = Text::Static("policy/PodDisruptionBudget");
}

/// Annotations of these kinds that plugins read.
pub mod annotations {
    /// On a claim: binding is complete. The value is ignored.
    pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
    /// On a volume or claim: bound by a controller, not by a user. The value is ignored.
    pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
    /// On a claim: the node to provision a volume for.
    pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
    /// On a CSINode: the migrated in-tree plugins, separated by commas.
    pub const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";
    /// On a resource claim: `true` if it serves the extended resources of the pod that controls it.
    pub const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";
    /// All annotations.
    pub const ALL: &[&str] =
        &[BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, MIGRATED_PLUGINS, EXTENDED_RESOURCE_CLAIM];
}

/// The body of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// v1 PersistentVolume.
    PersistentVolume(PersistentVolume),
    /// v1 PersistentVolumeClaim.
    PersistentVolumeClaim(PersistentVolumeClaim),
    /// storage.k8s.io/v1 StorageClass.
    StorageClass(StorageClass),
    /// storage.k8s.io/v1 CSINode.
    CsiNode(CsiNode),
    /// storage.k8s.io/v1 CSIDriver.
    CsiDriver(CsiDriver),
    /// storage.k8s.io/v1 CSIStorageCapacity.
    CsiStorageCapacity(CsiStorageCapacity),
    /// storage.k8s.io/v1 VolumeAttachment.
    VolumeAttachment(VolumeAttachment),
    /// v1 Service.
    Service(Service),
    /// v1 ReplicationController, apps/v1 ReplicaSet or StatefulSet.
    Workload(Workload),
    /// v1 Namespace: its labels are in the object's metadata.
    Namespace(Namespace),
    /// policy/v1 PodDisruptionBudget.
    PodDisruptionBudget(PodDisruptionBudget),
    /// resource.k8s.io/v1 ResourceClaim.
    ResourceClaim(ResourceClaim),
    /// resource.k8s.io/v1 ResourceSlice.
    ResourceSlice(ResourceSlice),
    /// resource.k8s.io/v1 DeviceClass.
    DeviceClass(DeviceClass),
    /// resource.k8s.io/v1 DeviceTaintRule.
    DeviceTaintRule(DeviceTaintRule),
    /// scheduling.k8s.io/v1beta1 PodGroup.
    PodGroup(PodGroup),
    /// scheduling.k8s.io/v1alpha3 CompositePodGroup.
    CompositePodGroup(CompositePodGroup),
    /// An object of a kind without its own type, as an out-of-tree plugin watches it: the whole
    /// object.
    Other(Arc<serde_json::Value>),
}

/// A kind with its own type.
pub trait ObjectBody: Sized + 'static {
    /// The body as this kind; `None` if it is of another kind.
    fn of(body: &Body) -> Option<&Self>;
}

/// Tells the bodies apart.
macro_rules! bodies {
    ($($kind:ident),* $(,)?) => {
        $(impl ObjectBody for $kind {
            fn of(body: &Body) -> Option<&Self> {
                match body {
                    Body::$kind(body) => Some(body),
                    _ => None,
                }
            }
        })*
    };
}

bodies!(
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
    Service,
    Workload,
    Namespace,
    PodDisruptionBudget,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
    DeviceTaintRule,
    PodGroup,
    CompositePodGroup,
);

/// The mode of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VolumeMode {
    /// A file system; the default.
    #[default]
    Filesystem,
    /// A raw device.
    Block,
}

/// The claim of a volume: `spec.claimRef`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRef {
    /// The claim's namespace.
    pub namespace: Arc<str>,
    /// The claim's name.
    pub name: Arc<str>,
    /// The claim's UID; empty if the volume is reserved for a claim of that name.
    pub uid: Arc<str>,
}

/// The source of a volume, as far as volume limits per node need it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiSource {
    /// The driver.
    pub driver: Arc<str>,
    /// The volume handle.
    pub handle: Arc<str>,
    /// The in-tree plugin (such as `kubernetes.io/gce-pd`) of a translated source.
    pub migrated_from: Option<Arc<str>>,
}

/// An in-tree source that has no CSI equivalent: an error on nodes where its plugin is migrated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untranslatable {
    /// The in-tree plugin.
    pub plugin: Arc<str>,
    /// Upstream's error.
    pub error: Arc<str>,
}

/// v1 PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistentVolume {
    /// `spec.capacity.storage` in bytes, rounded up.
    pub capacity: i64,
    /// `spec.accessModes`.
    pub access_modes: Arc<[Arc<str>]>,
    /// `spec.volumeMode`.
    pub volume_mode: VolumeMode,
    /// `spec.storageClassName`, or the older annotation.
    pub storage_class: Arc<str>,
    /// `spec.volumeAttributesClassName`.
    pub attributes_class: Option<Arc<str>>,
    /// `spec.claimRef`.
    pub claim: Option<ClaimRef>,
    /// `spec.nodeAffinity.required`; an empty list matches no node.
    pub node_affinity: Option<LabelTerms>,
    /// `status.phase`.
    pub phase: Arc<str>,
    /// The CSI source; in-tree sources with a CSI driver are translated. `None` for other sources.
    pub csi: Option<CsiSource>,
    /// Why `csi` is `None`, for an in-tree source of a plugin with a CSI driver.
    pub untranslatable: Option<Untranslatable>,
    /// The API object, which writes send back.
    pub raw: RawObject,
}

/// v1 PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistentVolumeClaim {
    /// `spec.volumeName`; empty if unset.
    pub volume_name: Arc<str>,
    /// `spec.storageClassName`, or the older annotation; empty if unset.
    pub storage_class: Arc<str>,
    /// `spec.volumeAttributesClassName`.
    pub attributes_class: Option<Arc<str>>,
    /// `spec.accessModes`.
    pub access_modes: Arc<[Arc<str>]>,
    /// `spec.volumeMode`.
    pub volume_mode: VolumeMode,
    /// `spec.resources.requests.storage` in bytes, rounded up. An absent value is not the same as 0
    /// where storage is summed up.
    pub request: Option<i64>,
    /// `spec.selector`; `None` selects every volume.
    pub selector: Option<LabelSelector>,
    /// `status.phase`.
    pub phase: Arc<str>,
    /// The API object, which writes send back.
    pub raw: RawObject,
}

impl PersistentVolumeClaim {
    /// The requested bytes; 0 if unset.
    pub fn size(&self) -> i64 {
        self.request.unwrap_or(0)
    }
}

/// storage.k8s.io/v1 StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageClass {
    /// `provisioner`.
    pub provisioner: Arc<str>,
    /// Whether `volumeBindingMode` is `WaitForFirstConsumer`; `None` if unset.
    pub waits_for_first_consumer: Option<bool>,
    /// `allowedTopologies`; empty allows every node. Each requirement is one on a label (`In`).
    pub allowed_topologies: LabelTerms,
    /// `parameters`.
    pub parameters: Labels,
}

/// A driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiNodeDriver {
    /// Its name.
    pub name: Arc<str>,
    /// `allocatable.count`: the maximum number of volumes; `None` is unlimited.
    pub limit: Option<i32>,
}

/// storage.k8s.io/v1 CSINode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiNode {
    /// `spec.drivers`.
    pub drivers: Box<[CsiNodeDriver]>,
}

/// storage.k8s.io/v1 CSIDriver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiDriver {
    /// `spec.storageCapacity`.
    pub storage_capacity: bool,
    /// `spec.preventPodSchedulingIfMissing`.
    pub prevents_scheduling_if_missing: bool,
}

/// storage.k8s.io/v1 CSIStorageCapacity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiStorageCapacity {
    /// `storageClassName`.
    pub storage_class: Arc<str>,
    /// `nodeTopology`; `None` matches no node.
    pub node_topology: Option<LabelSelector>,
    /// `capacity` in bytes.
    pub capacity: Option<i64>,
    /// `maximumVolumeSize` in bytes.
    pub maximum_volume_size: Option<i64>,
}

/// storage.k8s.io/v1 VolumeAttachment. Its node is the object's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAttachment {
    /// `spec.attacher`: the driver.
    pub attacher: Arc<str>,
    /// `spec.source.persistentVolumeName`.
    pub volume_name: Option<Arc<str>>,
    /// The driver and handle of `spec.source.inlineVolumeSpec`.
    pub inline: Option<CsiSource>,
}

/// v1 Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// `spec.selector`; an empty one selects nothing.
    pub selector: EqualitySelector,
}

/// A workload that selects pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// `spec.selector`.
    pub selector: Option<LabelSelector>,
}

/// v1 Namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {}

/// policy/v1 PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodDisruptionBudget {
    /// `spec.selector`; `None` and an empty selector select nothing here.
    pub selector: Option<LabelSelector>,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i32,
    /// How many healthy pods are missing: `status.desiredHealthy` less `status.currentHealthy`; 0
    /// if disruptions are allowed.
    #[serde(default)]
    pub missing_pods: i32,
    /// The names in `status.disruptedPods`, sorted.
    pub disrupted_pods: Box<[Arc<str>]>,
}
