//! Nodes.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::checks::{Shown, duplicate_shown, nulls, shown};
use super::path::Path;
use super::pod::defaults::resource_list;
use super::traits::Strategy;
use super::{resources, status, taints};
use crate::json::{entries, flag, list, object_mut, present, remove, restore, set_default, text, texts};
use crate::status::StatusCause;

/// Nodes.
pub(crate) struct Node;

const SPEC: Path<'static> = Path::root("spec");
const STATUS: Path<'static> = Path::root("status");
const METADATA: Path<'static> = Path::root("metadata");
/// The fields of a node's system information, which upstream writes even if unknown.
const SYSTEM_INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];
const NO_OTHER_CIDR: &str = "node updates may not change podCIDR except from \"\" to valid";

impl Strategy for Node {
    fn default(&self, node: &mut Value) {
        object_mut(node, "spec");
        if let Some(spec) = node.get_mut("spec") {
            default_cidrs(spec);
            if !flag(spec, "unschedulable") {
                remove(spec, "unschedulable");
            }
        }
        object_mut(node, "status");
        if let Some(status) = node.get_mut("status") {
            default_status(status);
        }
    }

    fn prepare_for_create(&self, node: &mut Value) {
        if let Some(spec) = node.get_mut("spec") {
            remove(spec, "configSource");
            remove(spec, "podPreemptionPolicy");
        }
        if let Some(status) = node.get_mut("status") {
            remove(status, "config");
            drop_disabled(status);
        }
    }

    fn prepare_for_update(&self, node: &mut Value, old: &Value) {
        restore(node, old, "status");
        if let Some(spec) = node.get_mut("spec") {
            remove(spec, "podPreemptionPolicy");
        }
    }

    fn prepare_for_status_update(&self, node: &mut Value, old: &Value) {
        status::only_status(node, old);
        if let Some(status) = node.get_mut("status") {
            drop_disabled(status);
        }
    }

    fn validate(&self, node: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let (spec, status) = (&node["spec"], &node["status"]);
        taints::check_taints(spec, "taints", &METADATA, &mut causes);
        check_resources(status, &mut causes);
        check_cidrs(spec, &mut causes);
        causes
    }

    fn validate_update(&self, node: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(node);
        check_changes(node, old, &mut causes);
        causes
    }

    fn validate_status_update(&self, node: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        check_resources(&node["status"], &mut causes);
        check_changes(node, old, &mut causes);
        taints::check_taints(&node["spec"], "taints", &METADATA, &mut causes);
        causes
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }

    fn field(&self, node: &Value, name: &str) -> String {
        match name {
            "spec.unschedulable" => flag(&node["spec"], "unschedulable").to_string(),
            _ => String::new(),
        }
    }
}

/// Drops the fields of a status whose feature gates are off by default.
fn drop_disabled(status: &mut Value) {
    if let Some(info) = status.get_mut("nodeInfo") {
        remove(info, "runningInUserNamespace");
    }
}

/// `podCIDR` is the first of `podCIDRs`.
fn default_cidrs(spec: &mut Value) {
    let first = text(spec, "podCIDR").to_owned();
    if list(spec, "podCIDRs").is_empty() {
        if !first.is_empty() {
            spec["podCIDRs"] = json!([first]);
        }
    } else if first.is_empty() {
        let first = list(spec, "podCIDRs")[0].clone();
        spec["podCIDR"] = first;
    }
}

fn default_status(status: &mut Value) {
    resource_list(status, "capacity");
    if present(status, "allocatable").is_none()
        && let Some(capacity) = present(status, "capacity").cloned()
    {
        status["allocatable"] = capacity;
    }
    resource_list(status, "allocatable");
    nulls(status, "conditions", &["lastHeartbeatTime", "lastTransitionTime"]);
    set_default(status, "daemonEndpoints", json!({"kubeletEndpoint": {"Port": 0}}));
    if object_mut(status, "nodeInfo").is_some()
        && let Some(info) = status.get_mut("nodeInfo")
    {
        for field in SYSTEM_INFO {
            set_default(info, field, "");
        }
    }
}

fn check_resources(status: &Value, causes: &mut Vec<StatusCause>) {
    for field in ["capacity", "allocatable"] {
        let path = STATUS.child(field);
        for (name, amount) in entries(status, field) {
            // Here upstream uses the name as a field.
            resources::check_amount(name, amount, &path.child(name), causes);
        }
    }
}

fn check_cidrs(spec: &Value, causes: &mut Vec<StatusCause>) {
    let path = SPEC.child("podCIDRs");
    for (i, cidr) in texts(spec, "podCIDRs").enumerate() {
        if family(cidr).is_none() {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            causes.push(path.index(i).invalid(cidr, why));
        }
    }
    let cidrs = list(spec, "podCIDRs");
    let families: Vec<Option<bool>> = texts(spec, "podCIDRs").map(family).collect();
    let is_dual = families.contains(&Some(true)) && families.contains(&Some(false));
    if cidrs.len() > 1 && !families.contains(&None) && (!is_dual || cidrs.len() > 2) {
        let why = "may specify no more than one CIDR for each IP family";
        causes.push(path.invalid(cidrs.to_vec(), why));
    }
}

/// Whether a CIDR is IPv4; `None` if it is invalid.
fn family(cidr: &str) -> Option<bool> {
    let (address, length) = cidr.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length.parse::<u8>().ok()? <= most).then_some(address.is_ipv4())
}

fn check_changes(node: &Value, old: &Value, causes: &mut Vec<StatusCause>) {
    let path = STATUS.child("addresses");
    let addresses = list(&node["status"], "addresses");
    for (i, address) in addresses.iter().enumerate() {
        if addresses[..i].contains(address) {
            let fields = [("Type", "type", Shown::Text), ("Address", "address", Shown::Text)];
            causes.push(duplicate_shown(&path.index(i), &shown(address, &fields)));
        }
    }
    let (spec, old) = (&node["spec"], &old["spec"]);
    let cidrs = list(old, "podCIDRs");
    if !cidrs.is_empty() && list(spec, "podCIDRs") != cidrs {
        causes.push(SPEC.child("podCIDRs").forbidden(NO_OTHER_CIDR));
    }
    let (provider, before) = (text(spec, "providerID"), text(old, "providerID"));
    if !before.is_empty() && provider != before {
        let done = if provider.is_empty() { "cleared" } else { "modified" };
        let why = format!("field cannot be {done} once set");
        causes.push(SPEC.child("providerID").invalid(Value::Null, &why));
    }
}
