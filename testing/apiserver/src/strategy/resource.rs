//! Dynamic resource allocation: device classes, claims, slices.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::checks::{duplicate_shown, invalid_shown, same};
use super::path::Path;
use super::traits::Strategy;
use super::{names, status, taints};
use crate::json::{
    entries, flag, int, list, list_mut, object_mut, present, restore, set_default, text, texts,
};
use crate::status::StatusCause;

/// Device classes.
pub(crate) struct DeviceClass;

/// Claims for devices.
pub(crate) struct ResourceClaim;

/// Templates for claims.
pub(crate) struct ResourceClaimTemplate;

/// The devices that a driver offers.
pub(crate) struct ResourceSlice;

const SPEC: Path<'static> = Path::root("spec");
const STATUS: Path<'static> = Path::root("status");
const IMMUTABLE: &str = "field is immutable";
const ONE_VALUE: &str =
    "must specify one of: `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`";
/// The fields of requests and of their parts, in the order of their Go types.
const REQUEST: [&str; 11] = [
    "name",
    "exactly",
    "firstAvailable",
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
];
const MOST_CONSUMERS: usize = 256;
const PLACES: [&str; 4] = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];

impl Strategy for DeviceClass {
    fn default(&self, class: &mut Value) {
        object_mut(class, "spec");
    }

    fn validate(&self, class: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        check_selectors(&class["spec"], &SPEC, &mut causes);
        causes
    }

    fn validate_update(&self, class: &Value, _old: &Value) -> Vec<StatusCause> {
        self.validate(class)
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn check_selectors(object: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let path = path.child("selectors");
    for (i, selector) in list(object, "selectors").iter().enumerate() {
        let path = path.index(i);
        let path = path.child("cel");
        match present(selector, "cel") {
            None => causes.push(path.required("")),
            Some(cel) if text(cel, "expression").is_empty() => {
                causes.push(path.child("expression").required(""));
            }
            Some(_) => {}
        }
    }
}

impl Strategy for ResourceClaim {
    fn default(&self, claim: &mut Value) {
        for field in ["spec", "status"] {
            object_mut(claim, field);
        }
        default_claim(&mut claim["spec"]);
        let conditions = claim["status"].get_mut("devices").and_then(Value::as_array_mut);
        for device in conditions.into_iter().flatten() {
            super::checks::nulls(device, "conditions", &["lastTransitionTime"]);
        }
    }

    fn prepare_for_create(&self, claim: &mut Value) {
        claim["status"] = json!({});
    }

    fn prepare_for_update(&self, claim: &mut Value, old: &Value) {
        restore(claim, old, "status");
    }

    fn prepare_for_status_update(&self, claim: &mut Value, old: &Value) {
        status::only_status(claim, old);
        status::keep_metadata(claim, old);
        drop_freed_devices(&mut claim["status"], &old["status"]);
    }

    fn validate(&self, claim: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        check_claim(&claim["spec"], &SPEC, &mut causes);
        causes
    }

    fn validate_update(&self, claim: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        if !same(&claim["spec"], &old["spec"]) {
            causes.push(invalid_shown(&SPEC, &claim["spec"].to_string(), IMMUTABLE));
        }
        causes
    }

    fn validate_status_update(&self, claim: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let (status, before) = (&claim["status"], &old["status"]);
        check_consumers(status, &mut causes);
        let allocation = present(status, "allocation");
        let consumers = list(status, "reservedFor");
        let path = STATUS.child("reservedFor");
        let is_going = present(&claim["metadata"], "deletionTimestamp").is_some();
        let uid = |consumer: &Value| text(consumer, "uid").to_owned();
        let known: Vec<String> = list(before, "reservedFor").iter().map(uid).collect();
        if !consumers.is_empty() && allocation.is_none() {
            causes.push(path.forbidden("may not be specified when `allocated` is not set"));
        } else if is_going && consumers.iter().any(|consumer| !known.contains(&uid(consumer))) {
            let why =
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            causes.push(path.forbidden(why));
        }
        match (present(before, "allocation"), allocation) {
            (Some(before), Some(allocation)) if !same(before, allocation) => {
                let why = "field cannot be modified once set";
                causes.push(STATUS.child("allocation").invalid(Value::Null, why));
            }
            (None, Some(allocation)) => check_allocation(allocation, &claim["spec"], &mut causes),
            _ => {}
        }
        causes
    }
}

impl Strategy for ResourceClaimTemplate {
    fn default(&self, template: &mut Value) {
        object_mut(template, "spec");
        let spec = &mut template["spec"];
        for field in ["metadata", "spec"] {
            object_mut(spec, field);
        }
        default_claim(&mut spec["spec"]);
    }

    fn validate(&self, template: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &template["spec"];
        super::meta::check_template(&spec["metadata"], &SPEC.child("metadata"), &mut causes);
        check_claim(&spec["spec"], &SPEC.child("spec"), &mut causes);
        causes
    }

    fn validate_update(&self, template: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        if !same(&template["spec"], &old["spec"]) {
            causes.push(invalid_shown(&SPEC, &template["spec"].to_string(), IMMUTABLE));
        }
        causes
    }
}

/// Drops what drivers report about devices that are no longer allocated.
fn drop_freed_devices(status: &mut Value, before: &Value) {
    let device =
        |object: &Value| ["driver", "pool", "device", "shareID"].map(|field| text(object, field).to_owned());
    let allocated = |status: &Value| -> BTreeSet<[String; 4]> {
        list(&status["allocation"]["devices"], "results").iter().map(device).collect()
    };
    let (was, is) = (allocated(before), allocated(status));
    let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) else { return };
    devices.retain(|reported| {
        let device = device(reported);
        is.contains(&device) || !was.contains(&device)
    });
    if devices.is_empty() {
        crate::json::remove(status, "devices");
    }
}

fn default_claim(spec: &mut Value) {
    object_mut(spec, "devices");
    let devices = &mut spec["devices"];
    if let Some(devices) = devices.as_object_mut() {
        devices.entry("requests").or_insert(Value::Null);
    }
    for request in list_mut(devices, "requests") {
        if let Some(exactly) = request.get_mut("exactly").filter(|exactly| exactly.is_object()) {
            default_request(exactly);
        }
        for request in list_mut(request, "firstAvailable") {
            default_request(request);
        }
    }
}

fn default_request(request: &mut Value) {
    set_default(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" && int(request, "count").unwrap_or_default() == 0 {
        let count = request.as_object_mut();
        count.map(|request| request.insert("count".to_owned(), 1.into()));
    }
}

fn check_claim(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (devices, path) = (&spec["devices"], path.child("devices"));
    let requests = list(devices, "requests");
    let requests_path = path.child("requests");
    for (i, request) in requests.iter().enumerate() {
        let path = requests_path.index(i);
        let name = text(request, "name");
        check_request(request, &path, causes);
        if requests[..i].iter().any(|other| text(other, "name") == name) {
            causes.push(duplicate_shown(&path, &shown_request(request)));
        }
    }
    let path = path.child("constraints");
    for (i, constraint) in list(devices, "constraints").iter().enumerate() {
        check_constraint(constraint, requests, &path.index(i), causes);
    }
}

/// A request as Go prints it: with its fields in the order of its type.
fn shown_request(request: &Value) -> String {
    let part = |field: &str| match (field, request.get(field)?) {
        ("exactly", exactly) => Some(format!("{field:?}:{}", shown_request(exactly))),
        ("firstAvailable", Value::Array(parts)) => {
            let parts: Vec<String> = parts.iter().map(shown_request).collect();
            Some(format!("{field:?}:[{}]", parts.join(",")))
        }
        (_, value) => Some(format!("{field:?}:{value}")),
    };
    let parts: Vec<String> = REQUEST.into_iter().filter_map(part).collect();
    format!("{{{}}}", parts.join(","))
}

fn check_request(request: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    check_request_name(request, path, causes);
    let subrequests = list(request, "firstAvailable");
    match (present(request, "exactly"), subrequests.is_empty()) {
        (None, true) => {
            causes.push(path.required("exactly one of `exactly` or `firstAvailable` is required"));
        }
        (Some(_), false) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            causes.push(path.invalid(Value::Null, why));
        }
        (Some(exactly), true) => check_exact(exactly, &path.child("exactly"), causes),
        (None, false) => {
            let path = path.child("firstAvailable");
            for (i, request) in subrequests.iter().enumerate() {
                let path = path.index(i);
                check_request_name(request, &path, causes);
                check_exact(request, &path, causes);
                let name = text(request, "name");
                if subrequests[..i].iter().any(|other| text(other, "name") == name) {
                    causes.push(path.duplicate(name));
                }
            }
        }
    }
}

fn check_request_name(request: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (name, path) = (text(request, "name"), path.child("name"));
    if name.is_empty() {
        causes.push(path.required(""));
    } else {
        path.invalid_all(name, names::dns1123_label(name), causes);
    }
}

fn check_exact(request: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let class = text(request, "deviceClassName");
    if class.is_empty() {
        causes.push(path.child("deviceClassName").required(""));
    } else {
        path.child("deviceClassName").invalid_all(class, names::dns1123_subdomain(class), causes);
    }
    check_selectors(request, path, causes);
    let (mode, count) = (text(request, "allocationMode"), int(request, "count").unwrap_or_default());
    match mode {
        "All" if count != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            causes.push(path.child("count").invalid(count, why));
        }
        "ExactCount" if count <= 0 => {
            causes.push(path.child("count").invalid(count, "must be greater than zero"));
        }
        "All" | "ExactCount" => {}
        _ => causes.push(path.child("allocationMode").not_supported(mode, &["All", "ExactCount"])),
    }
    taints::check_tolerations(request, "tolerations", path, causes);
}

fn check_constraint(constraint: &Value, requests: &[Value], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let named = path.child("requests");
    for (i, name) in texts(constraint, "requests").enumerate() {
        if !is_request(name, requests) {
            let why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
            causes.push(named.index(i).invalid(name, why));
        }
    }
    if let Some(attribute) = present(constraint, "matchAttribute").and_then(Value::as_str)
        && !attribute.contains('/')
    {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        causes.push(path.child("matchAttribute").invalid(attribute, why));
    }
}

fn is_request(name: &str, requests: &[Value]) -> bool {
    let (main, part) = name.split_once('/').map_or((name, None), |(main, part)| (main, Some(part)));
    requests.iter().filter(|request| text(request, "name") == main).any(|request| {
        part.is_none_or(|part| {
            list(request, "firstAvailable").iter().any(|request| text(request, "name") == part)
        })
    })
}

fn check_consumers(status: &Value, causes: &mut Vec<StatusCause>) {
    let (consumers, path) = (list(status, "reservedFor"), STATUS.child("reservedFor"));
    if consumers.len() > MOST_CONSUMERS {
        causes.push(super::checks::too_many(&path, consumers.len(), MOST_CONSUMERS));
    }
    for (i, consumer) in consumers.iter().enumerate() {
        let path = path.index(i);
        for field in ["resource", "name", "uid"] {
            if text(consumer, field).is_empty() {
                causes.push(path.child(field).required(""));
            }
        }
        if consumers[..i].iter().any(|other| text(other, "uid") == text(consumer, "uid")) {
            let fields = ["apiGroup", "resource", "name", "uid"];
            let present = fields.iter().filter(|field| consumer[**field].is_string());
            let shown: Vec<String> = present.map(|field| format!("{field:?}:{}", consumer[*field])).collect();
            causes.push(super::checks::duplicate_shown(&path, &format!("{{{}}}", shown.join(","))));
        }
    }
}

fn check_allocation(allocation: &Value, spec: &Value, causes: &mut Vec<StatusCause>) {
    let path = STATUS.child("allocation");
    let path = path.child("devices");
    let path = path.child("results");
    let requests = list(&spec["devices"], "requests");
    for (i, result) in list(&allocation["devices"], "results").iter().enumerate() {
        let path = path.index(i);
        let name = text(result, "request");
        if !is_request(name, requests) {
            let why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
            causes.push(path.child("request").invalid(name, why));
        }
        for field in ["driver", "pool", "device"] {
            if text(result, field).is_empty() {
                causes.push(path.child(field).required(""));
            }
        }
    }
}

impl Strategy for ResourceSlice {
    fn default(&self, slice: &mut Value) {
        object_mut(slice, "spec");
        let spec = &mut slice["spec"];
        object_mut(spec, "pool");
        set_default(spec, "driver", "");
        for (field, value) in
            [("generation", json!(0)), ("resourceSliceCount", json!(0)), ("name", json!(""))]
        {
            set_default(&mut spec["pool"], field, value);
        }
    }

    fn validate(&self, slice: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &slice["spec"];
        super::checks::check_driver_name(spec, "driver", &SPEC, &mut causes);
        let (pool, path) = (&spec["pool"], SPEC.child("pool"));
        if text(pool, "name").is_empty() {
            causes.push(path.child("name").required(""));
        }
        let count = int(pool, "resourceSliceCount").unwrap_or_default();
        if count <= 0 {
            causes.push(path.child("resourceSliceCount").invalid(count, "must be greater than zero"));
        }
        check_place(spec, &mut causes);
        check_devices(spec, &mut causes);
        causes
    }

    fn validate_update(&self, slice: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(slice);
        let (spec, old) = (&slice["spec"], &old["spec"]);
        super::checks::immutable(spec, old, "driver", &SPEC, &mut causes);
        super::checks::immutable(spec, old, "nodeName", &SPEC, &mut causes);
        super::checks::immutable(&spec["pool"], &old["pool"], "name", &SPEC.child("pool"), &mut causes);
        causes
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.nodeName", "spec.driver"]
    }

    fn field(&self, slice: &Value, name: &str) -> String {
        match name.strip_prefix("spec.") {
            Some(field @ ("nodeName" | "driver")) => text(&slice["spec"], field).to_owned(),
            _ => String::new(),
        }
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn check_place(spec: &Value, causes: &mut Vec<StatusCause>) {
    let is_set = |field: &str| match field {
        "nodeName" => !text(spec, field).is_empty(),
        "nodeSelector" => present(spec, field).is_some(),
        _ => flag(spec, field),
    };
    let all = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let set: Vec<String> =
        PLACES.iter().filter(|field| is_set(field)).map(|field| format!("`{field}`")).collect();
    match set.len() {
        0 => causes.push(SPEC.required(all)),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            causes.push(SPEC.invalid(shown, &format!("{all}, but multiple fields are set")));
        }
    }
}

fn check_devices(spec: &Value, causes: &mut Vec<StatusCause>) {
    let (devices, path) = (list(spec, "devices"), SPEC.child("devices"));
    for (i, device) in devices.iter().enumerate() {
        let path = path.index(i);
        let name = text(device, "name");
        path.child("name").invalid_all(name, names::dns1123_label(name), causes);
        let attributes = path.child("attributes");
        for (name, attribute) in entries(device, "attributes") {
            let count =
                attribute.as_object().map_or(0, |values| values.values().filter(|v| !v.is_null()).count());
            if count != 1 {
                causes.push(attributes.key(name).invalid("", ONE_VALUE));
            }
        }
        if devices[..i].iter().any(|other| text(other, "name") == name) {
            causes.push(path.duplicate(name));
        }
    }
}
