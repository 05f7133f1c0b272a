//! Devices that exclude each other, are shared, are tainted, or have to be prepared.

use serde_json::{Value, json};

use super::{DEVICE_DRIVER, Driver, SIMULATE_SPECIAL_DEVICES};
use crate::json::{list, text};
use crate::object::StoredObject;
use crate::rest::Part;
use crate::sim::objects::Identity;

/// The attribute of special devices that says what is special about them.
const KIND: &str = "kind";
/// What follows the name of a node in the name of its pool.
const SUFFIX: &str = "-special";
/// The conditions of devices that have to be prepared.
const READY: &str = "Ready";
const FAILED: &str = "Failed";

pub(super) fn pool(node: &str) -> String {
    format!("{node}{SUFFIX}")
}

/// The slices of a node with these annotations: two halves of a chip and the whole one, a device
/// that is shared, a tainted one, one that has to be prepared; and the counters of the chip.
pub(super) fn slices(annotations: &Value) -> Vec<Value> {
    if text(annotations, SIMULATE_SPECIAL_DEVICES).is_empty() {
        return Vec::new();
    }
    let part = |name: &str, memory: &str| {
        let used = json!([{ "counterSet": "chip", "counters": { "memory": { "value": memory } } }]);
        device(name, "part", "consumesCounters", used)
    };
    let mut shared = device("shared", "shared", "allowMultipleAllocations", true.into());
    let policy = json!({ "default": "1Gi", "validRange": { "min": "1Gi", "step": "1Gi" } });
    shared["capacity"] = json!({ "memory": { "value": "4Gi", "requestPolicy": policy } });
    let taint = json!([{ "key": "supercargo.dev/worn", "effect": "NoSchedule" }]);
    let mut slow = device("slow", "slow", "bindingConditions", json!([READY]));
    slow["bindingFailureConditions"] = json!([FAILED]);
    let tainted = device("worn", "worn", "taints", taint);
    let parts = [part("whole", "40Gi"), part("half-0", "20Gi"), part("half-1", "20Gi")];
    let devices: Vec<Value> = parts.into_iter().chain([shared, tainted, slow]).collect();
    let chip = json!({ "name": "chip", "counters": { "memory": { "value": "40Gi" } } });
    vec![json!({ "devices": devices }), json!({ "sharedCounters": [chip] })]
}

fn device(name: &str, kind: &str, field: &str, value: Value) -> Value {
    let attributes = json!({ KIND: { "string": kind }, "index": { "int": 0 } });
    let mut device = json!({ "name": name, "attributes": attributes });
    device[field] = value;
    device
}

impl Driver {
    /// Reports about devices of a claim that have to be prepared.
    pub(super) fn claim_changed(&self, claim: &StoredObject) {
        let claim = claim.value(&self.claim_kind);
        let status = &claim["status"];
        let is_own = |result: &&Value| {
            text(result, "driver") == DEVICE_DRIVER && !list(result, "bindingConditions").is_empty()
        };
        let wanted: Vec<Value> = list(&status["allocation"]["devices"], "results")
            .iter()
            .filter(is_own)
            .map(|it| self.report(it))
            .collect();
        if wanted.is_empty() || !list(status, "devices").is_empty() {
            return;
        }
        let result = self.objects.update(&self.claim_kind, &Identity::of(&claim), Part::Status, |claim| {
            claim["status"]["devices"] = wanted.into();
        });
        if let Err(status) = result {
            tracing::debug!(
                claim = text(&claim["metadata"], "name"),
                message = status.message,
                "cannot report"
            );
        }
    }

    /// The status of an allocated device: ready, or failed if its node has this annotation.
    fn report(&self, result: &Value) -> Value {
        let pool = text(result, "pool");
        let node = self.objects.get(&self.node_kind, "", pool.strip_suffix(SUFFIX).unwrap_or(pool));
        let node = node.map(|node| node.value(&self.node_kind)).unwrap_or_default();
        let is_failing = text(&node["metadata"]["annotations"], SIMULATE_SPECIAL_DEVICES) == "failing";
        let condition = json!({
            "type": if is_failing { FAILED } else { READY }, "status": "True",
            "reason": "Simulated", "message": "", "lastTransitionTime": self.objects.stamp(),
        });
        json!({
            "driver": DEVICE_DRIVER, "pool": pool, "device": result["device"], "conditions": [condition],
        })
    }
}
