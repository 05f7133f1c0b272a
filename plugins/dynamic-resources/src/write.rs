//! Claims as the API has them: what is written to them, and where.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use supercargo_framework::objects::{
    Body, CLAIM_FINALIZER, ClaimAllocation, ClaimConsumer, Object, ResourceClaim,
};
use supercargo_framework::pod::PodKey;
use supercargo_framework::raw_object::{field, members, typed};
use supercargo_framework::{PodInfo, Timestamp, Uid};

use super::claims::body;

/// The pod that uses a claim.
#[derive(Clone, Debug)]
pub(super) struct Consumer {
    /// Its name.
    pub(super) pod: PodKey,
    /// Its UID.
    pub(super) uid: Uid,
}

impl Consumer {
    pub(super) fn of(pod: &PodInfo) -> Self {
        Self { pod: pod.key(), uid: pod.uid.clone() }
    }

    /// Its reservation of a claim.
    pub(super) fn reservation(&self) -> ClaimConsumer {
        ClaimConsumer::of_pod(Arc::clone(&self.pod.name), (*self.uid.text()).into())
    }
}

/// A copy of a claim with an allocation.
pub(super) fn allocated(claim: &Object, allocation: ClaimAllocation) -> Object {
    let body = ResourceClaim { allocation: Some(allocation), has_finalizer: true, ..body(claim).clone() };
    Object { body: Body::ResourceClaim(body), ..claim.clone() }
}

/// Identities of the shares of a pod's devices. Each is a UUID.
///
/// They follow from the claims' UIDs and versions, so that a recorded run can be replayed, and no
/// two allocations share one. Those of the claim for extended resources follow from the pod: each
/// attempt has the same ones, and gives up those of the last.
pub(super) struct ShareIds {
    hasher: DefaultHasher,
    given: u64,
}

impl ShareIds {
    pub(super) fn new<'a>(claims: impl Iterator<Item = &'a Arc<Object>>) -> Self {
        let mut hasher = DefaultHasher::new();
        for claim in claims {
            for text in [&claim.uid, &claim.resource_version] {
                hasher.write(text.as_bytes());
                hasher.write_u8(0xff);
            }
        }
        Self { hasher, given: 0 }
    }

    pub(super) fn next(&mut self) -> Arc<str> {
        self.given += 1;
        let half = |half: u8| {
            let mut hasher = self.hasher.clone();
            hasher.write_u64(self.given);
            hasher.write_u8(half);
            hasher.finish()
        };
        let (high, low) = (half(0), half(1));
        // Version 8 is for UUIDs that follow no standard.
        let (third, fourth) = (0x8000 | (high & 0xfff), 0x8000 | (low >> 48 & 0x3fff));
        let (first, second, last) = (high >> 32, high >> 16 & 0xffff, low & 0xffff_ffff_ffff);
        format!("{first:08x}-{second:04x}-{third:04x}-{fourth:04x}-{last:012x}").into()
    }
}

/// The path of a claim, and what follows.
pub(super) fn path(claim: &Object, subresource: &str) -> String {
    path_of(&claim.key, subresource)
}

/// The same of the claim with this key.
pub(super) fn path_of(key: &str, subresource: &str) -> String {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    format!("{}/{name}{subresource}", claims_path(namespace))
}

/// The path of the claims of a namespace.
pub(super) fn claims_path(namespace: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
}

/// A claim as the API has it, to be changed and written.
#[derive(Clone, Debug)]
pub(super) struct Written(Value);

impl Written {
    /// The claim as it was read. Objects of a list lack `apiVersion` and `kind`.
    pub(super) fn of(claim: &Object) -> Self {
        Self(typed(Value::clone(&body(claim).raw), "resource.k8s.io/v1", "ResourceClaim"))
    }

    /// The API's answer to a request.
    pub(super) const fn answer(answer: Value) -> Self {
        Self(answer)
    }

    pub(super) fn into_value(self) -> Value {
        self.0
    }

    pub(super) fn to_value(&self) -> Value {
        self.0.clone()
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.0["metadata"]["deletionTimestamp"].is_string()
    }

    pub(super) fn is_allocated(&self) -> bool {
        self.0["status"]["allocation"].is_object()
    }

    pub(super) fn has_finalizer(&self) -> bool {
        self.0["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| all.iter().any(|it| it == CLAIM_FINALIZER))
    }

    pub(super) fn add_finalizer(&mut self) {
        list(field(&mut self.0, "metadata"), "finalizers").push(json!(CLAIM_FINALIZER));
    }

    pub(super) fn remove_finalizer(&mut self) {
        let metadata = field(&mut self.0, "metadata");
        if let Some(Value::Array(all)) = metadata.get_mut("finalizers") {
            all.retain(|it| it != CLAIM_FINALIZER);
            if all.is_empty() {
                metadata.remove("finalizers");
            }
        }
    }

    pub(super) fn allocate(&mut self, allocation: &ClaimAllocation) {
        field(&mut self.0, "status").insert("allocation".to_owned(), Value::clone(&allocation.raw));
    }

    /// Notes when the claim was allocated, unless it is there.
    pub(super) fn stamp(&mut self, now: Timestamp) {
        let allocation = members(field(&mut self.0, "status").entry("allocation").or_insert(Value::Null));
        allocation.entry("allocationTimestamp").or_insert_with(|| json!(now.to_rfc3339()));
    }

    /// Whether it has the devices of this allocation.
    pub(super) fn has_devices_of(&self, allocation: &ClaimAllocation) -> bool {
        let devices = |allocation: &Value| -> Vec<[Value; 5]> {
            let results = allocation["devices"]["results"].as_array().into_iter().flatten();
            let keys = ["request", "driver", "pool", "device", "shareID"];
            results.map(|result| keys.map(|key| result[key].clone())).collect()
        };
        self.is_allocated() && devices(&self.0["status"]["allocation"]) == devices(&allocation.raw)
    }

    pub(super) fn is_reserved_for(&self, uid: &str) -> bool {
        let reserved = self.0["status"]["reservedFor"].as_array();
        reserved.is_some_and(|all| all.iter().any(|it| it["uid"] == *uid))
    }

    pub(super) fn reserve_for(&mut self, consumer: &ClaimConsumer) {
        let ClaimConsumer { api_group, resource, name, uid } = consumer;
        let mut reserved = json!({ "resource": resource, "name": name, "uid": uid });
        if !api_group.is_empty() {
            reserved["apiGroup"] = json!(api_group);
        }
        list(field(&mut self.0, "status"), "reservedFor").push(reserved);
    }

    pub(super) fn deallocate(&mut self) {
        let status = field(&mut self.0, "status");
        for name in ["allocation", "reservedFor", "devices"] {
            status.remove(name);
        }
    }
}

fn list<'a>(fields: &'a mut Map<String, Value>, name: &str) -> &'a mut Vec<Value> {
    let value = fields.entry(name).or_insert(Value::Null);
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(list) => list,
        _ => unreachable!("it has just been made one"),
    }
}
