//! Nodes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::Layout;
use super::access::{age, condition, flag_or, items, map, name, text, text_or};
use super::columns::{AGE, NAME, text as column, wide};

pub(super) static NODES: Layout = Layout {
    columns: &[
        NAME,
        column("Status"),
        column("Roles"),
        AGE,
        column("Version"),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ],
    cells,
};

fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let mut kernel = text_or(node, "/status/nodeInfo/kernelVersion", "<unknown>").to_owned();
    let architecture = text(node, "/status/nodeInfo/architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        name(node),
        status(node).into(),
        roles(node).into(),
        age(node, now),
        text(node, "/status/nodeInfo/kubeletVersion").into(),
        address(node, "InternalIP").into(),
        address(node, "ExternalIP").into(),
        text_or(node, "/status/nodeInfo/osImage", "<unknown>").into(),
        kernel.into(),
        text_or(node, "/status/nodeInfo/containerRuntimeVersion", "<unknown>").into(),
    ]
}

fn status(node: &Value) -> String {
    let ready = match condition(node, "Ready") {
        Some(condition) if text(condition, "/status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if flag_or(node, "/spec/unschedulable", false) {
        format!("{ready},SchedulingDisabled")
    } else {
        ready.to_owned()
    }
}

fn roles(node: &Value) -> String {
    let labels = map(node, "/metadata/labels").into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    items(node, "/status/addresses")
        .iter()
        .find(|address| text(address, "/type") == kind)
        .map_or("<none>", |address| text(address, "/address"))
}
