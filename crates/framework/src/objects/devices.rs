//! The parts that scheduling reads of the kinds of resource.k8s.io/v1.
//!
//! Quantities stay texts as the API has them: the allocator compares them as upstream does, where
//! the format of a quantity can matter.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Object;
use crate::affinity::{NodeSelectorTerm, NodeTerms};
use crate::taint::TaintEffect;

/// The finalizer of allocated claims.
pub const CLAIM_FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Quantities by name, ordered by name.
pub type Quantities = Box<[(Arc<str>, Arc<str>)]>;

/// The nodes that can use some devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceNodeSelector {
    /// The terms; one that matches is enough.
    pub terms: NodeTerms<NodeSelectorTerm>,
    /// The API's `NodeSelector`, which writes send back.
    pub raw: Arc<serde_json::Value>,
}

/// Where the devices of a slice, or one of its devices, can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum DevicePlace {
    /// Nothing is set.
    #[default]
    Unset,
    /// `nodeName`.
    Node(Arc<str>),
    /// `nodeSelector`.
    Selector(DeviceNodeSelector),
    /// `allNodes`.
    AllNodes,
    /// `perDeviceNodeSelection`: each device says where. Only of slices.
    PerDevice,
}

/// resource.k8s.io/v1 ResourceSlice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceSlice {
    /// `spec.driver`.
    pub driver: Arc<str>,
    /// `spec.pool.name`.
    pub pool: Arc<str>,
    /// `spec.pool.generation`.
    pub generation: i64,
    /// `spec.pool.resourceSliceCount`.
    pub slice_count: i64,
    /// Where its devices can be used.
    pub place: DevicePlace,
    /// `spec.devices`.
    pub devices: Box<[Device]>,
    /// `spec.sharedCounters`.
    pub shared_counters: Box<[CounterSet]>,
}

/// A device of a slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// `name`.
    pub name: Arc<str>,
    /// `attributes`, ordered by name.
    pub attributes: Box<[(Arc<str>, DeviceAttribute)]>,
    /// `capacity`, ordered by name.
    pub capacity: Box<[(Arc<str>, DeviceCapacity)]>,
    /// `consumesCounters`.
    pub consumes_counters: Box<[CounterConsumption]>,
    /// Where it can be used, if the slice leaves that to its devices.
    pub place: DevicePlace,
    /// `taints`.
    pub taints: Box<[DeviceTaint]>,
    /// `bindsToNode`.
    pub binds_to_node: bool,
    /// `bindingConditions`; `None` if unset, which differs from empty in the order of pools.
    pub binding_conditions: Option<Box<[Arc<str>]>>,
    /// `bindingFailureConditions`.
    pub binding_failure_conditions: Box<[Arc<str>]>,
    /// `allowMultipleAllocations`.
    pub allows_multiple_allocations: bool,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceAttribute {
    /// `int`.
    Int(i64),
    /// `bool`.
    Bool(bool),
    /// `string`.
    String(Arc<str>),
    /// `version`: a semantic version.
    Version(Arc<str>),
    /// No value, or one of a kind that is behind a disabled gate, such as a list.
    Unsupported,
}

/// The capacity of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCapacity {
    /// `value`: a quantity.
    pub value: Arc<str>,
    /// `requestPolicy`.
    pub policy: Option<CapacityPolicy>,
}

/// What requests for a capacity may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityPolicy {
    /// `default`: a quantity.
    pub default: Option<Arc<str>>,
    /// `validValues`: quantities.
    pub valid_values: Box<[Arc<str>]>,
    /// `validRange`.
    pub valid_range: Option<CapacityRange>,
}

/// A range of quantities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityRange {
    /// `min`.
    pub min: Option<Arc<str>>,
    /// `max`.
    pub max: Option<Arc<str>>,
    /// `step`.
    pub step: Option<Arc<str>>,
}

/// Counters that the devices of a pool share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterSet {
    /// `name`.
    pub name: Arc<str>,
    /// `counters`.
    pub counters: Quantities,
}

/// What a device takes of a counter set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterConsumption {
    /// `counterSet`.
    pub counter_set: Arc<str>,
    /// `counters`.
    pub counters: Quantities,
    /// Whether `compatibilityGroups` is set: with the gate off, the slice is ignored.
    pub has_compatibility_groups: bool,
}

/// A taint of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTaint {
    /// `key`.
    pub key: Arc<str>,
    /// `value`.
    pub value: Arc<str>,
    /// `effect`. `None` and effects that this version does not know reject no pod.
    pub effect: TaintEffect,
}

/// A toleration of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceToleration {
    /// `key`; empty matches every key if the operator is `Exists`.
    pub key: Arc<str>,
    /// `operator`.
    pub operator: DeviceTolerationOperator,
    /// `value`.
    pub value: Arc<str>,
    /// `effect`; `None` if unset, which matches every effect.
    pub effect: Option<TaintEffect>,
    /// The API's toleration, which the allocation repeats.
    pub raw: Arc<serde_json::Value>,
}

/// The operator of a toleration of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DeviceTolerationOperator {
    /// The value must be equal; the default.
    #[default]
    Equal,
    /// Any value.
    Exists,
    /// An operator that matches nothing.
    Unknown,
}

/// resource.k8s.io/v1 DeviceClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceClass {
    /// `spec.selectors`.
    pub selectors: Box<[DeviceSelector]>,
    /// `spec.config`: the API's configurations, which the allocation repeats.
    pub config: Box<[Arc<serde_json::Value>]>,
    /// `spec.extendedResourceName`.
    pub extended_resource_name: Option<Arc<str>>,
    /// `metadata.creationTimestamp`, in seconds since 1970: of two classes with one extended
    /// resource, the newer one wins.
    pub created: i64,
}

/// A selector: its `cel.expression`. `None` is a kind of selector that this version does not know.
pub type DeviceSelector = Option<Arc<str>>;

/// resource.k8s.io/v1 DeviceTaintRule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTaintRule {
    /// `spec.deviceSelector`; `None` selects no device.
    pub selector: Option<TaintRuleSelector>,
    /// `spec.taint`.
    pub taint: DeviceTaint,
}

/// The devices of a rule. An unset field selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaintRuleSelector {
    /// `driver`.
    pub driver: Option<Arc<str>>,
    /// `pool`.
    pub pool: Option<Arc<str>>,
    /// `device`.
    pub device: Option<Arc<str>>,
}

/// resource.k8s.io/v1 ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceClaim {
    /// `spec.devices.requests`.
    pub requests: Box<[ClaimRequest]>,
    /// `spec.devices.constraints`.
    pub constraints: Box<[ClaimConstraint]>,
    /// `spec.devices.config`.
    pub config: Box<[ClaimConfig]>,
    /// `status.allocation`.
    pub allocation: Option<ClaimAllocation>,
    /// `status.reservedFor`.
    pub reserved_for: Box<[ClaimConsumer]>,
    /// `status.devices`: what drivers report.
    pub devices: Box<[AllocatedDeviceStatus]>,
    /// Whether `metadata.finalizers` has [`CLAIM_FINALIZER`].
    pub has_finalizer: bool,
    /// The API object, which writes send back.
    pub raw: Arc<serde_json::Value>,
}

impl ResourceClaim {
    /// Whether it is reserved for a PodGroup with this name, in its namespace. Pods do not know the
    /// UID of their group.
    pub fn is_reserved_for_group(&self, name: &str) -> bool {
        self.reserved_for.iter().any(|consumer| {
            (&*consumer.api_group, &*consumer.resource, &*consumer.name) == (SCHEDULING, "podgroups", name)
        })
    }
}

/// The API group of PodGroups.
const SCHEDULING: &str = "scheduling.k8s.io";

impl ClaimConsumer {
    /// The reservation for a pod.
    pub fn of_pod(name: Arc<str>, uid: Arc<str>) -> Self {
        Self { resource: "pods".into(), name, uid, ..Self::default() }
    }

    /// The reservation for a PodGroup.
    pub fn of_group(group: &Object) -> Self {
        Self {
            api_group: SCHEDULING.into(),
            resource: "podgroups".into(),
            name: group.name().into(),
            uid: Arc::clone(&group.uid),
        }
    }
}

/// The annotation of a claim that the scheduler creates for a pod's extended resources.
pub const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

impl Object {
    /// Whether the scheduler has created this claim for extended resources of a pod.
    pub fn is_extended_resource_claim(&self) -> bool {
        self.annotations.get(EXTENDED_RESOURCE_CLAIM).is_some_and(|value| **value == *"true")
    }
}

/// What stands for the UID of a pod's claim for extended resources before the claim exists.
pub fn uid_of_extended_resource_claim(pod_uid: &str) -> Arc<str> {
    format!("{pod_uid}/extended-resources").into()
}

/// A request of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// `name`.
    pub name: Arc<str>,
    /// `exactly` or `firstAvailable`.
    pub choice: RequestChoice,
}

/// The form of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum RequestChoice {
    /// A form that this version does not know.
    #[default]
    Unknown,
    /// `exactly`.
    Exactly(DeviceRequest),
    /// `firstAvailable`: the first that can be satisfied.
    FirstAvailable(Box<[DeviceRequest]>),
}

/// Devices of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceRequest {
    /// The name, of a subrequest only.
    pub name: Arc<str>,
    /// `deviceClassName`.
    pub class: Arc<str>,
    /// `selectors`.
    pub selectors: Box<[DeviceSelector]>,
    /// `allocationMode` and `count`.
    pub count: DeviceCount,
    /// `adminAccess`. That it is set counts as well as its value.
    pub admin_access: Option<bool>,
    /// `tolerations`.
    pub tolerations: Box<[DeviceToleration]>,
    /// `capacity.requests`. `None` if `capacity` is unset.
    pub capacity: Option<Quantities>,
    /// Whether `derivedAttributes` is set, which is behind a disabled gate.
    pub has_derived_attributes: bool,
}

/// The number of devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DeviceCount {
    /// `ExactCount`.
    Exact(i64),
    /// `All`.
    All,
    /// A mode that this version does not know.
    Unknown(Arc<str>),
}

impl Default for DeviceCount {
    fn default() -> Self {
        Self::Exact(1)
    }
}

/// A constraint over the devices of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClaimConstraint {
    /// `requests`: names of requests or `request/subrequest`. Empty is all.
    pub requests: Box<[Arc<str>]>,
    /// What the devices have in common, or not.
    pub rule: ConstraintRule,
}

/// The rule of a constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConstraintRule {
    /// A rule that this version does not know.
    #[default]
    Unknown,
    /// `matchAttribute`: all devices have the same value.
    Match(Arc<str>),
    /// `distinctAttribute`: all values differ.
    Distinct(Arc<str>),
}

/// Configuration in a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimConfig {
    /// `requests`, as in [`ClaimConstraint::requests`].
    pub requests: Box<[Arc<str>]>,
    /// The API's configuration without `requests`, which the allocation repeats.
    pub raw: Arc<serde_json::Value>,
}

/// An allocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimAllocation {
    /// `devices.results`.
    pub results: Box<[AllocationResult]>,
    /// `nodeSelector`; `None` allows every node.
    pub node_selector: Option<DeviceNodeSelector>,
    /// `allocationTimestamp`, in milliseconds since 1970.
    pub allocated_at: Option<i64>,
    /// The API's allocation, which writes send back.
    pub raw: Arc<serde_json::Value>,
}

/// A device that is allocated for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationResult {
    /// `request`: `request` or `request/subrequest`.
    pub request: Arc<str>,
    /// The device.
    pub device: DeviceId,
    /// `adminAccess`: the device is not used up.
    pub admin_access: bool,
    /// `shareID`: the device is shared, and [`consumed`](Self::consumed) is used of it.
    pub share_id: Option<Arc<str>>,
    /// `consumedCapacity`.
    pub consumed: Quantities,
    /// `bindingConditions`.
    pub binding_conditions: Box<[Arc<str>]>,
    /// `bindingFailureConditions`.
    pub binding_failure_conditions: Box<[Arc<str>]>,
    /// Whether `skipNodeOperations` has an entry.
    pub skips_node_operations: bool,
}

/// The identity of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceId {
    /// The driver.
    pub driver: Arc<str>,
    /// The pool.
    pub pool: Arc<str>,
    /// The name in the pool.
    pub device: Arc<str>,
}

/// An object that a claim is reserved for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimConsumer {
    /// `apiGroup`.
    pub api_group: Arc<str>,
    /// `resource`, such as `pods`.
    pub resource: Arc<str>,
    /// `name`.
    pub name: Arc<str>,
    /// `uid`.
    pub uid: Arc<str>,
}

/// What a driver reports about an allocated device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedDeviceStatus {
    /// The device.
    pub device: DeviceId,
    /// `shareID`.
    pub share_id: Option<Arc<str>>,
    /// `conditions`.
    pub conditions: Box<[DeviceCondition]>,
}

/// A condition of an allocated device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCondition {
    /// `type`.
    pub kind: Arc<str>,
    /// Whether `status` is `True`.
    pub is_true: bool,
    /// `reason`.
    pub reason: Arc<str>,
    /// `message`.
    pub message: Arc<str>,
}
