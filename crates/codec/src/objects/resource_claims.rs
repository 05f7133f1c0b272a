//! Resource claims.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use supercargo_framework::labels::Labels;
use supercargo_framework::objects::{
    AllocatedDeviceStatus, AllocationResult, Body, CLAIM_FINALIZER, ClaimAllocation, ClaimConfig,
    ClaimConstraint, ClaimConsumer, ClaimRequest, ConstraintRule, DeviceCondition, DeviceCount, DeviceId,
    DeviceRequest, RequestChoice, ResourceClaim,
};
use supercargo_framework::raw_object::RawObject;

use super::devices::{Configuration, Selector, WireDeviceToleration, items};
use super::document::{Document, annotations};
use crate::error::FieldError;
use crate::interners::Interners;
use crate::json::{List, Obj, Pairs, Str};
use crate::metadata::{Metadata, time};
use crate::selector::NodeSelector;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireClaim<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<ClaimSpec<'a>>,
    #[serde(borrow)]
    status: Obj<ClaimStatus<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClaimSpec<'a> {
    #[serde(borrow)]
    devices: Obj<Devices<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Devices<'a> {
    #[serde(borrow)]
    requests: List<Obj<Request<'a>>>,
    #[serde(borrow)]
    constraints: List<Obj<Constraint<'a>>>,
    #[serde(borrow)]
    config: List<Obj<Configuration<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Request<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    exactly: Option<Obj<OfClass<'a>>>,
    #[serde(borrow)]
    first_available: List<Obj<OfClass<'a>>>,
}

/// A request for devices of one class. Only subrequests have a name.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OfClass<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    device_class_name: Str<'a>,
    #[serde(borrow)]
    selectors: List<Obj<Selector<'a>>>,
    #[serde(borrow)]
    allocation_mode: Str<'a>,
    count: Option<i64>,
    admin_access: Option<bool>,
    #[serde(borrow)]
    tolerations: List<Obj<WireDeviceToleration<'a>>>,
    #[serde(borrow)]
    capacity: Option<Obj<CapacityRequirements<'a>>>,
    derived_attributes: List<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CapacityRequirements<'a> {
    #[serde(borrow)]
    requests: Pairs<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Constraint<'a> {
    #[serde(borrow)]
    requests: List<Str<'a>>,
    #[serde(borrow)]
    match_attribute: Option<Str<'a>>,
    #[serde(borrow)]
    distinct_attribute: Option<Str<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimStatus<'a> {
    #[serde(borrow)]
    allocation: Option<Obj<Allocation<'a>>>,
    #[serde(borrow)]
    reserved_for: List<Obj<Consumer<'a>>>,
    #[serde(borrow)]
    devices: List<Obj<DeviceStatus<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Allocation<'a> {
    #[serde(borrow)]
    devices: Obj<Results<'a>>,
    #[serde(borrow)]
    node_selector: Option<Obj<NodeSelector<'a>>>,
    #[serde(borrow, rename = "allocationTimestamp")]
    allocated_at: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Results<'a> {
    #[serde(borrow)]
    results: List<Obj<AllocatedDevice<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AllocatedDevice<'a> {
    #[serde(borrow)]
    request: Str<'a>,
    #[serde(borrow)]
    driver: Str<'a>,
    #[serde(borrow)]
    pool: Str<'a>,
    #[serde(borrow)]
    device: Str<'a>,
    admin_access: Option<bool>,
    #[serde(borrow, rename = "shareID")]
    share_id: Option<Str<'a>>,
    #[serde(borrow)]
    consumed_capacity: Pairs<'a>,
    #[serde(borrow)]
    binding_conditions: List<Str<'a>>,
    #[serde(borrow)]
    binding_failure_conditions: List<Str<'a>>,
    skip_node_operations: List<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Consumer<'a> {
    #[serde(borrow)]
    api_group: Str<'a>,
    #[serde(borrow)]
    resource: Str<'a>,
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    uid: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeviceStatus<'a> {
    #[serde(borrow)]
    driver: Str<'a>,
    #[serde(borrow)]
    pool: Str<'a>,
    #[serde(borrow)]
    device: Str<'a>,
    #[serde(borrow, rename = "shareID")]
    share_id: Option<Str<'a>>,
    #[serde(borrow)]
    conditions: List<Obj<Condition<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    status: Str<'a>,
    #[serde(borrow)]
    reason: Str<'a>,
    #[serde(borrow)]
    message: Str<'a>,
}

impl<'a> Document<'a> for WireClaim<'a> {
    const KEEPS_RAW: bool = true;
    const TYPE: Option<(&'static str, &'static str)> = Some(("resource.k8s.io/v1", "ResourceClaim"));

    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn annotations(&self, shared: &mut Interners) -> Labels {
        annotations(&self.metadata, shared)
    }

    fn body(&self, shared: &mut Interners, raw: Option<RawObject>) -> Result<Body, FieldError> {
        let (spec, status, raw) = (&self.spec.devices, &self.status, raw.unwrap_or_default().value());
        let allocation = status.allocation.as_ref();
        let allocation = allocation.map(|allocation| shared.allocation(allocation, &raw));
        Ok(Body::ResourceClaim(ResourceClaim {
            requests: items(&spec.requests, "spec.devices.requests", |request| shared.request(request))?,
            constraints: spec.constraints.iter().map(|constraint| shared.constraint(constraint)).collect(),
            config: spec.config.iter().map(|config| shared.claim_config(config)).collect(),
            allocation: allocation.transpose().map_err(|error| error.within("status.allocation."))?,
            reserved_for: status.reserved_for.iter().map(|consumer| shared.consumer(consumer)).collect(),
            devices: status.devices.iter().map(|device| shared.device_status(device)).collect(),
            has_finalizer: self.metadata.finalizers.iter().any(|finalizer| **finalizer == *CLAIM_FINALIZER),
            raw: Arc::new(raw),
        }))
    }
}

impl Interners {
    fn request(&mut self, request: &Request<'_>) -> Result<ClaimRequest, FieldError> {
        let choice = match (&request.exactly, &*request.first_available) {
            (Some(exactly), _) => RequestChoice::Exactly(
                self.of_class(exactly).map_err(|error: FieldError| error.within("exactly."))?,
            ),
            (None, []) => RequestChoice::Unknown,
            (None, all) => {
                RequestChoice::FirstAvailable(items(all, "firstAvailable", |one| self.of_class(one))?)
            }
        };
        Ok(ClaimRequest { name: self.text(&request.name), choice })
    }

    fn of_class(&mut self, request: &OfClass<'_>) -> Result<DeviceRequest, FieldError> {
        let capacity = request.capacity.as_ref();
        let capacity = capacity.map(|capacity| self.quantities(&capacity.requests, "capacity.requests"));
        Ok(DeviceRequest {
            name: self.text(&request.name),
            class: self.text(&request.device_class_name),
            selectors: self.device_selectors(&request.selectors),
            // The API server applies the defaults.
            count: match &*request.allocation_mode {
                "ExactCount" => DeviceCount::Exact(request.count.unwrap_or_default()),
                "All" => DeviceCount::All,
                mode => DeviceCount::Unknown(self.text(mode)),
            },
            admin_access: request.admin_access,
            tolerations: request.tolerations.iter().map(|one| self.device_toleration(one)).collect(),
            capacity: capacity.transpose()?,
            has_derived_attributes: !request.derived_attributes.is_empty(),
        })
    }

    fn constraint(&mut self, constraint: &Constraint<'_>) -> ClaimConstraint {
        let rule = match (&constraint.match_attribute, &constraint.distinct_attribute) {
            (Some(attribute), _) => ConstraintRule::Match(self.text(attribute)),
            (None, Some(attribute)) => ConstraintRule::Distinct(self.text(attribute)),
            (None, None) => ConstraintRule::Unknown,
        };
        ClaimConstraint { requests: self.texts(&constraint.requests), rule }
    }

    fn claim_config(&mut self, config: &Configuration<'_>) -> ClaimConfig {
        ClaimConfig { requests: self.texts(&config.requests), raw: config.raw() }
    }

    /// The allocation of a claim, of which `claim` is the whole.
    fn allocation(
        &mut self,
        allocation: &Allocation<'_>,
        claim: &Value,
    ) -> Result<ClaimAllocation, FieldError> {
        let selector = allocation.node_selector.as_ref();
        let allocated = time(&allocation.allocated_at, "allocationTimestamp")?;
        Ok(ClaimAllocation {
            results: items(&allocation.devices.results, "devices.results", |result| self.result(result))?,
            node_selector: selector.map(|selector| self.device_node_selector(selector)),
            allocated_at: allocated.map(jiff::Timestamp::as_millisecond),
            raw: Arc::new(claim["status"]["allocation"].clone()),
        })
    }

    fn result(&mut self, result: &AllocatedDevice<'_>) -> Result<AllocationResult, FieldError> {
        Ok(AllocationResult {
            request: self.text(&result.request),
            device: self.device_id(&result.driver, &result.pool, &result.device),
            admin_access: result.admin_access == Some(true),
            share_id: result.share_id.as_ref().map(|id| self.text(id)),
            consumed: self.quantities(&result.consumed_capacity, "consumedCapacity")?,
            binding_conditions: self.texts(&result.binding_conditions),
            binding_failure_conditions: self.texts(&result.binding_failure_conditions),
            skips_node_operations: !result.skip_node_operations.is_empty(),
        })
    }

    fn device_id(&mut self, driver: &str, pool: &str, device: &str) -> DeviceId {
        DeviceId { driver: self.text(driver), pool: self.text(pool), device: self.text(device) }
    }

    fn consumer(&mut self, consumer: &Consumer<'_>) -> ClaimConsumer {
        ClaimConsumer {
            api_group: self.text(&consumer.api_group),
            resource: self.text(&consumer.resource),
            name: self.text(&consumer.name),
            uid: self.text(&consumer.uid),
        }
    }

    fn device_status(&mut self, status: &DeviceStatus<'_>) -> AllocatedDeviceStatus {
        let condition = |condition: &Obj<Condition<'_>>| DeviceCondition {
            kind: self.text(&condition.kind),
            is_true: &*condition.status == "True",
            reason: self.text(&condition.reason),
            message: self.text(&condition.message),
        };
        let conditions = status.conditions.iter().map(condition).collect();
        AllocatedDeviceStatus {
            device: self.device_id(&status.driver, &status.pool, &status.device),
            share_id: status.share_id.as_ref().map(|id| self.text(id)),
            conditions,
        }
    }
}
