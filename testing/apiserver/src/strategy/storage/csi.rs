//! CSI drivers, their state on nodes, and storage capacities.

use serde_json::{Value, json};

use super::super::checks::{
    Shown, check_class_name, check_driver_name, immutable, immutable_root, invalid_shown, not_negative,
    one_of, same, shown,
};
use super::super::labels;
use super::super::path::Path;
use super::super::pod::defaults::resource_list;
use super::super::traits::Strategy;
use crate::json::{int, list, list_mut, object_mut, present, remove, set_default, text, texts};
use crate::quantity::Quantity;
use crate::status::StatusCause;

/// The CSI drivers of a node.
pub(crate) struct CsiNode;

/// CSI drivers.
pub(crate) struct CsiDriver;

/// The available storage capacity of a topology segment.
pub(crate) struct CsiStorageCapacity;

const SPEC: Path<'static> = Path::root("spec");
const ID_LENGTH: usize = 192;

impl Strategy for CsiNode {
    fn default(&self, node: &mut Value) {
        object_mut(node, "status");
        if let Some(spec) = object_mut(node, "spec") {
            let drivers = spec.entry("drivers").or_insert(Value::Null);
            if drivers.as_array().is_some_and(Vec::is_empty) {
                *drivers = Value::Null;
            }
        }
        for driver in list_mut(&mut node["spec"], "drivers") {
            if let Some(driver) = driver.as_object_mut() {
                driver.entry("topologyKeys").or_insert(Value::Null);
            }
        }
    }

    fn validate(&self, node: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let path = SPEC.child("drivers");
        let drivers = list(&node["spec"], "drivers");
        for (i, driver) in drivers.iter().enumerate() {
            let path = path.index(i);
            check_driver(driver, &path, &mut causes);
            let name = text(driver, "name");
            if drivers[..i].iter().any(|other| text(other, "name") == name) {
                causes.push(path.child("name").duplicate(name));
            }
            check_topology_keys(driver, &path, &mut causes);
        }
        causes
    }

    fn validate_update(&self, node: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(node);
        let without_count = |driver: &Value| {
            let mut driver = driver.clone();
            remove(&mut driver, "allocatable");
            driver
        };
        for before in list(&old["spec"], "drivers") {
            let drivers = list(&node["spec"], "drivers").iter();
            for driver in drivers.filter(|driver| text(driver, "name") == text(before, "name")) {
                let driver = without_count(driver);
                if !same(&driver, &without_count(before)) {
                    let fields = [
                        ("Name", "name", Shown::Text),
                        ("NodeID", "nodeID", Shown::Text),
                        ("TopologyKeys", "topologyKeys", Shown::Null),
                        ("Allocatable", "allocatable", Shown::Null),
                    ];
                    let path = SPEC.child("drivers");
                    causes.push(invalid_shown(&path, &shown(&driver, &fields), "field is immutable"));
                }
            }
        }
        causes
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

fn check_driver(driver: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    check_driver_name(driver, "name", path, causes);
    let id = text(driver, "nodeID");
    if id.is_empty() {
        causes.push(path.child("nodeID").required(""));
    }
    if id.len() > ID_LENGTH {
        causes.push(path.child("nodeID").invalid(id, &format!("must be {ID_LENGTH} characters or less")));
    }
    if let Some(allocatable) = present(driver, "allocatable") {
        not_negative(allocatable, &["count"], &path.child("allocatable"), causes);
    }
}

fn check_topology_keys(driver: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let keys: Vec<&str> = texts(driver, "topologyKeys").collect();
    for (i, key) in keys.iter().enumerate() {
        if key.is_empty() {
            causes.push(path.required(""));
        }
        if keys[..i].contains(key) {
            causes.push(path.duplicate(*key));
        }
        path.invalid_all(key, labels::key(key), causes);
    }
}

impl Strategy for CsiDriver {
    fn default(&self, driver: &mut Value) {
        object_mut(driver, "spec");
        let spec = &mut driver["spec"];
        set_default(spec, "attachRequired", true);
        for field in [
            "podInfoOnMount",
            "storageCapacity",
            "requiresRepublish",
            "seLinuxMount",
            "preventPodSchedulingIfMissing",
        ] {
            set_default(spec, field, false);
        }
        set_default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if list(spec, "volumeLifecycleModes").is_empty() {
            spec["volumeLifecycleModes"] = json!(["Persistent"]);
        }
    }

    fn validate(&self, driver: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &driver["spec"];
        let policies = ["File", "None", "ReadWriteOnceWithFSType"];
        one_of(spec, "fsGroupPolicy", &policies, &SPEC, &mut causes);
        check_token_requests(spec, &mut causes);
        let modes = ["Persistent", "Ephemeral"];
        for mode in texts(spec, "volumeLifecycleModes").filter(|mode| !modes.contains(mode)) {
            causes.push(SPEC.child("volumeLifecycleModes").not_supported(mode, &modes));
        }
        let period = int(spec, "nodeAllocatableUpdatePeriodSeconds").filter(|period| *period < 10);
        if let Some(period) = period {
            let path = SPEC.child("nodeAllocatableUpdatePeriodSeconds");
            causes.push(path.invalid(period, "must be greater than or equal to 10 seconds"));
        }
        causes
    }

    fn validate_update(&self, driver: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(driver);
        let (spec, old) = (&driver["spec"], &old["spec"]);
        if spec.get("attachRequired") != old.get("attachRequired") {
            let required = spec.get("attachRequired").cloned().unwrap_or_default();
            causes.push(SPEC.child("attachedRequired").invalid(required, "field is immutable"));
        }
        immutable(spec, old, "volumeLifecycleModes", &SPEC, &mut causes);
        causes
    }

    fn prepare_for_update(&self, driver: &mut Value, old: &Value) {
        // A new driver has no generation: upstream only counts changes.
        if driver.get("spec") != old.get("spec") {
            let before = int(&old["metadata"], "generation").unwrap_or_default();
            driver["metadata"]["generation"] = (before + 1).into();
        }
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

fn check_token_requests(spec: &Value, causes: &mut Vec<StatusCause>) {
    let (requests, path) = (list(spec, "tokenRequests"), SPEC.child("tokenRequests"));
    for (i, request) in requests.iter().enumerate() {
        let (audience, path) = (text(request, "audience"), path.index(i));
        if requests[..i].iter().any(|other| text(other, "audience") == audience) {
            causes.push(path.child("audience").duplicate(audience));
            continue;
        }
        let Some(seconds) = int(request, "expirationSeconds") else { continue };
        let path = path.child("expirationSeconds");
        if seconds < 600 {
            causes.push(path.invalid(seconds, "may not specify a duration less than 10 minutes"));
        }
        if seconds > 1 << 32 {
            causes.push(path.invalid(seconds, "may not specify a duration larger than 2^32 seconds"));
        }
    }
}

impl Strategy for CsiStorageCapacity {
    fn default(&self, capacity: &mut Value) {
        set_default(capacity, "storageClassName", "");
        for field in ["capacity", "maximumVolumeSize"] {
            if let Some(amount) = present(capacity, field) {
                let mut amounts = json!({"amounts": {field: amount}});
                resource_list(&mut amounts, "amounts");
                capacity[field] = amounts["amounts"][field].clone();
            }
        }
    }

    fn validate(&self, capacity: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        if let Some(topology) = present(capacity, "nodeTopology") {
            labels::check_selector(topology, &Path::root("nodeTopology"), &mut causes);
        }
        let wrapped = json!({"storageClassName": capacity["storageClassName"]});
        let mut wrong = Vec::new();
        check_class_name(&wrapped, "storageClassName", &SPEC, &mut wrong);
        causes.extend(
            wrong.into_iter().map(|cause| StatusCause { field: "storageClassName".to_owned(), ..cause }),
        );
        if let Some(amount) = present(capacity, "capacity") {
            check_amount(amount, &Path::root("capacity"), &mut causes);
        }
        causes
    }

    fn validate_update(&self, capacity: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(capacity);
        for field in ["nodeTopology", "storageClassName"] {
            immutable_root(capacity, old, field, &mut causes);
        }
        causes
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

fn check_amount(amount: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let amount = Quantity::of(amount);
    if amount.is_negative() {
        causes.push(path.invalid(amount, super::super::checks::NOT_NEGATIVE));
    }
}
