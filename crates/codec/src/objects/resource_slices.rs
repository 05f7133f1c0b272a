//! Resource slices: the devices that drivers offer.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use supercargo_framework::objects::{
    Body, CapacityPolicy, CapacityRange, CounterConsumption, CounterSet, Device, DeviceAttribute,
    DeviceCapacity, DevicePlace, Quantities, ResourceSlice,
};
use supercargo_framework::raw_object::RawObject;

use super::devices::{WireDeviceTaint, by_name, items};
use super::document::Document;
use crate::error::FieldError;
use crate::interners::Interners;
use crate::json::{Entries, List, Obj, Str};
use crate::metadata::Metadata;
use crate::selector::NodeSelector;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireSlice<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<SliceSpec<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SliceSpec<'a> {
    #[serde(borrow)]
    driver: Str<'a>,
    #[serde(borrow)]
    pool: Obj<Pool<'a>>,
    #[serde(borrow)]
    node_name: Str<'a>,
    #[serde(borrow)]
    node_selector: Option<Obj<NodeSelector<'a>>>,
    all_nodes: Option<bool>,
    per_device_node_selection: Option<bool>,
    #[serde(borrow)]
    devices: List<Obj<WireDevice<'a>>>,
    #[serde(borrow)]
    shared_counters: List<Obj<WireCounterSet<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Pool<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    generation: Option<i64>,
    resource_slice_count: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireDevice<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    attributes: Entries<'a, Obj<Attribute<'a>>>,
    #[serde(borrow)]
    capacity: Entries<'a, Obj<Capacity<'a>>>,
    #[serde(borrow)]
    consumes_counters: List<Obj<Consumption<'a>>>,
    #[serde(borrow)]
    node_name: Str<'a>,
    #[serde(borrow)]
    node_selector: Option<Obj<NodeSelector<'a>>>,
    all_nodes: Option<bool>,
    #[serde(borrow)]
    taints: List<Obj<WireDeviceTaint<'a>>>,
    binds_to_node: Option<bool>,
    #[serde(borrow)]
    binding_conditions: Option<List<Str<'a>>>,
    #[serde(borrow)]
    binding_failure_conditions: List<Str<'a>>,
    allow_multiple_allocations: Option<bool>,
}

/// One of the fields is set.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Attribute<'a> {
    int: Option<i64>,
    bool: Option<bool>,
    #[serde(borrow)]
    string: Option<Str<'a>>,
    #[serde(borrow)]
    version: Option<Str<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Capacity<'a> {
    #[serde(borrow)]
    value: Str<'a>,
    #[serde(borrow)]
    request_policy: Option<Obj<Policy<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Policy<'a> {
    #[serde(borrow)]
    default: Option<Str<'a>>,
    #[serde(borrow)]
    valid_values: List<Str<'a>>,
    #[serde(borrow)]
    valid_range: Option<Obj<Range<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Range<'a> {
    #[serde(borrow)]
    min: Option<Str<'a>>,
    #[serde(borrow)]
    max: Option<Str<'a>>,
    #[serde(borrow)]
    step: Option<Str<'a>>,
}

type Counters<'a> = Entries<'a, Obj<Counter<'a>>>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Counter<'a> {
    #[serde(borrow)]
    value: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireCounterSet<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    counters: Counters<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Consumption<'a> {
    #[serde(borrow)]
    counter_set: Str<'a>,
    #[serde(borrow)]
    counters: Counters<'a>,
    compatibility_groups: List<IgnoredAny>,
}

impl<'a> Document<'a> for WireSlice<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn node_name(&self) -> Option<&str> {
        self.spec.node_name.non_empty()
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        let spec = &self.spec;
        let place = shared.place(&spec.node_name, spec.all_nodes, spec.node_selector.as_ref());
        let per_device = place == DevicePlace::Unset && spec.per_device_node_selection == Some(true);
        Ok(Body::ResourceSlice(ResourceSlice {
            driver: shared.text(&spec.driver),
            pool: shared.text(&spec.pool.name),
            generation: spec.pool.generation.unwrap_or_default(),
            slice_count: spec.pool.resource_slice_count.unwrap_or_default(),
            place: if per_device { DevicePlace::PerDevice } else { place },
            devices: items(&spec.devices, "spec.devices", |device| shared.device(device))?,
            shared_counters: items(&spec.shared_counters, "spec.sharedCounters", |set| {
                Ok(CounterSet { name: shared.text(&set.name), counters: shared.counters(&set.counters)? })
            })?,
        }))
    }
}

impl Interners {
    /// Where devices can be used. The API server accepts exactly one of the fields.
    fn place(
        &mut self,
        node_name: &Str<'_>,
        all_nodes: Option<bool>,
        selector: Option<&Obj<NodeSelector<'_>>>,
    ) -> DevicePlace {
        match (node_name.non_empty(), all_nodes, selector) {
            (Some(name), ..) => DevicePlace::Node(self.text(name)),
            (None, Some(true), _) => DevicePlace::AllNodes,
            (None, _, Some(selector)) => DevicePlace::Selector(self.device_node_selector(selector)),
            (None, _, None) => DevicePlace::Unset,
        }
    }

    fn device(&mut self, device: &WireDevice<'_>) -> Result<Device, FieldError> {
        let attributes = device.attributes.0.iter();
        let attributes = attributes.map(|(name, value)| Ok((self.text(name), self.attribute(value))));
        let attributes = by_name(attributes)?;
        let capacity = by_name(device.capacity.0.iter().map(|(name, capacity)| {
            let within = |error: FieldError| error.within(format_args!("capacity[{}].", &**name));
            Ok((self.text(name), self.capacity(capacity).map_err(within)?))
        }))?;
        let conditions = device.binding_conditions.as_ref();
        Ok(Device {
            name: self.text(&device.name),
            attributes,
            capacity,
            consumes_counters: items(&device.consumes_counters, "consumesCounters", |consumption| {
                Ok(CounterConsumption {
                    counter_set: self.text(&consumption.counter_set),
                    counters: self.counters(&consumption.counters)?,
                    has_compatibility_groups: !consumption.compatibility_groups.is_empty(),
                })
            })?,
            place: self.place(&device.node_name, device.all_nodes, device.node_selector.as_ref()),
            taints: device.taints.iter().map(|taint| self.device_taint(taint)).collect(),
            binds_to_node: device.binds_to_node == Some(true),
            binding_conditions: conditions.map(|conditions| self.texts(conditions)),
            binding_failure_conditions: self.texts(&device.binding_failure_conditions),
            allows_multiple_allocations: device.allow_multiple_allocations == Some(true),
        })
    }

    fn attribute(&mut self, value: &Attribute<'_>) -> DeviceAttribute {
        match value {
            Attribute { int: Some(int), .. } => DeviceAttribute::Int(*int),
            Attribute { bool: Some(bool), .. } => DeviceAttribute::Bool(*bool),
            Attribute { string: Some(text), .. } => DeviceAttribute::String(self.text(text)),
            Attribute { version: Some(version), .. } => DeviceAttribute::Version(self.text(version)),
            _ => DeviceAttribute::Unsupported,
        }
    }

    fn capacity(&mut self, capacity: &Capacity<'_>) -> Result<DeviceCapacity, FieldError> {
        let policy = capacity.request_policy.as_ref();
        let policy = policy.map(|policy| self.policy(policy)).transpose();
        Ok(DeviceCapacity {
            value: self.quantity(&capacity.value, "value")?,
            policy: policy.map_err(|error| error.within("requestPolicy."))?,
        })
    }

    fn policy(&mut self, policy: &Policy<'_>) -> Result<CapacityPolicy, FieldError> {
        let values = policy.valid_values.iter().enumerate();
        let values = values.map(|(i, value)| self.quantity(value, format_args!("validValues[{i}]")));
        let valid_values = values.collect::<Result<_, _>>()?;
        let range = policy.valid_range.as_ref().map(|range| {
            Ok(CapacityRange {
                min: self.optional_quantity(range.min.as_ref(), "validRange.min")?,
                max: self.optional_quantity(range.max.as_ref(), "validRange.max")?,
                step: self.optional_quantity(range.step.as_ref(), "validRange.step")?,
            })
        });
        let valid_range = range.transpose()?;
        let default = self.optional_quantity(policy.default.as_ref(), "default")?;
        Ok(CapacityPolicy { default, valid_values, valid_range })
    }

    fn optional_quantity(
        &mut self,
        text: Option<&Str<'_>>,
        field: &str,
    ) -> Result<Option<Arc<str>>, FieldError> {
        text.map(|text| self.quantity(text, field)).transpose()
    }

    fn counters(&mut self, counters: &Counters<'_>) -> Result<Quantities, FieldError> {
        by_name(counters.0.iter().map(|(name, counter)| {
            let field = format_args!("counters[{}].value", &**name);
            Ok((self.text(name), self.quantity(&counter.value, field)?))
        }))
    }
}
