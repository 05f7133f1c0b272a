//! Kinds with simple rows.

use jiff::Timestamp;
use serde_json::Value;

use super::Layout;
use super::access::{
    age, entries, flag_or, has, is_deleted, items, joined, map, name, number, present_or, since, text,
    text_or, time,
};
use super::columns::{AGE, NAME, boolean, date, integer, text as column, wide};

/// The layout of kinds that upstream prints without columns of their own.
pub(super) static DEFAULT: Layout = Layout { columns: &[NAME, date("Created At")], cells: by_default };

pub(super) static NAME_AND_AGE: Layout = Layout { columns: &[NAME, AGE], cells: name_and_age };

pub(super) static NAMESPACES: Layout = Layout { columns: &[NAME, column("Status"), AGE], cells: namespace };

pub(super) static CONFIG_MAPS: Layout = Layout { columns: &[NAME, column("Data"), AGE], cells: config_map };

pub(super) static SECRETS: Layout =
    Layout { columns: &[NAME, column("Type"), column("Data"), AGE], cells: secret };

pub(super) static RESOURCE_QUOTAS: Layout =
    Layout { columns: &[NAME, column("Request"), column("Limit"), AGE], cells: resource_quota };

pub(super) static POD_DISRUPTION_BUDGETS: Layout = Layout {
    columns: &[NAME, column("Min Available"), column("Max Unavailable"), integer("Allowed Disruptions"), AGE],
    cells: pod_disruption_budget,
};

pub(super) static ROLE_BINDINGS: Layout = Layout {
    columns: &[NAME, column("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")],
    cells: role_binding,
};

pub(super) static PRIORITY_CLASSES: Layout = Layout {
    columns: &[NAME, integer("Value"), boolean("Global-Default"), AGE, column("PreemptionPolicy")],
    cells: priority_class,
};

pub(super) static LEASES: Layout = Layout { columns: &[NAME, column("Holder"), AGE], cells: lease };

pub(super) static RUNTIME_CLASSES: Layout =
    Layout { columns: &[NAME, column("Handler"), AGE], cells: runtime_class };

pub(super) static CUSTOM_RESOURCE_DEFINITIONS: Layout = Layout {
    columns: &[
        NAME,
        column("Scope"),
        column("Versions"),
        date("Created At"),
        wide("Group"),
        wide("Kind"),
        wide("ShortNames"),
        boolean("Established").wide(),
    ],
    cells: custom_resource_definition,
};

pub(super) static DEVICE_TAINT_RULES: Layout = Layout {
    columns: &[NAME, column("Key"), column("Value"), column("Effect"), column("TimeAdded"), AGE],
    cells: device_taint_rule,
};

pub(super) static RESOURCE_CLAIMS: Layout =
    Layout { columns: &[NAME, column("State"), AGE], cells: resource_claim };

pub(super) static RESOURCE_SLICES: Layout =
    Layout { columns: &[NAME, column("Node"), column("Driver"), column("Pool"), AGE], cells: resource_slice };

fn by_default(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![name(object), created_at(object)]
}

fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

fn namespace(namespace: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(namespace), text(namespace, "/status/phase").into(), age(namespace, now)]
}

fn config_map(map: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(map), (entries(map, "/data") + entries(map, "/binaryData")).into(), age(map, now)]
}

fn secret(secret: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(secret), text(secret, "/type").into(), entries(secret, "/data").into(), age(secret, now)]
}

fn resource_quota(quota: &Value, now: Timestamp) -> Vec<Value> {
    let used = map(quota, "/status/used");
    let mut hard: Vec<(&str, &str)> = map(quota, "/status/hard")
        .into_iter()
        .flatten()
        .map(|(resource, hard)| (resource.as_str(), hard.as_str().unwrap_or("0")))
        .collect();
    hard.sort_unstable();
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in hard {
        let used = used.and_then(|used| used.get(resource)).and_then(Value::as_str).unwrap_or("0");
        let column = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{resource}: {used}/{hard}"));
    }
    vec![name(quota), requests.join(", ").into(), limits.join(", ").into(), age(quota, now)]
}

fn pod_disruption_budget(budget: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(budget),
        int_or_string(budget, "/spec/minAvailable").into(),
        int_or_string(budget, "/spec/maxUnavailable").into(),
        number(budget, "/status/disruptionsAllowed").into(),
        age(budget, now),
    ]
}

fn int_or_string(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        None | Some(Value::Null) => "N/A".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(number) => number.to_string(),
    }
}

fn role_binding(binding: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| -> Value {
        let subjects = items(binding, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
        let names: Vec<String> = subjects
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
                _ => text(subject, "/name").to_owned(),
            })
            .collect();
        names.join(", ").into()
    };
    vec![
        name(binding),
        format!("{}/{}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name")).into(),
        age(binding, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn priority_class(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(class),
        number(class, "/value").into(),
        flag_or(class, "/globalDefault", false).into(),
        age(class, now),
        text(class, "/preemptionPolicy").into(),
    ]
}

fn lease(lease: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(lease), present_or(lease, "/spec/holderIdentity", "").into(), age(lease, now)]
}

fn runtime_class(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(class), text(class, "/handler").into(), age(class, now)]
}

fn custom_resource_definition(definition: &Value, _now: Timestamp) -> Vec<Value> {
    let served =
        items(definition, "/spec/versions").iter().filter(|version| flag_or(version, "/served", false));
    let mut versions: Vec<String> = served
        .map(|version| {
            let stored = if flag_or(version, "/storage", false) { "(storage)" } else { "" };
            format!("{}{stored}", text(version, "/name"))
        })
        .collect();
    versions.sort_unstable();
    let is_established =
        |condition: &Value| text(condition, "/type") == "Established" && text(condition, "/status") == "True";
    vec![
        name(definition),
        text(definition, "/spec/scope").into(),
        versions.join(",").into(),
        created_at(definition),
        text(definition, "/spec/group").into(),
        text(definition, "/spec/names/kind").into(),
        joined(definition, "/spec/names/shortNames").into(),
        items(definition, "/status/conditions").iter().any(is_established).into(),
    ]
}

fn created_at(object: &Value) -> Value {
    text_or(object, "/metadata/creationTimestamp", "0001-01-01T00:00:00Z").into()
}

fn device_taint_rule(rule: &Value, now: Timestamp) -> Vec<Value> {
    let taint = |field: &str| text(rule, &format!("/spec/taint/{field}"));
    let added = match taint("timeAdded") {
        "" => String::new(),
        _ => since(time(rule, "/spec/taint/timeAdded"), now),
    };
    vec![
        name(rule),
        taint("key").into(),
        taint("value").into(),
        taint("effect").into(),
        added.into(),
        age(rule, now),
    ]
}

fn resource_claim(claim: &Value, now: Timestamp) -> Vec<Value> {
    let mut states = Vec::new();
    if is_deleted(claim) {
        states.push("deleted");
    }
    if has(claim, "/status/allocation") {
        states.push("allocated");
        if !items(claim, "/status/reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if states.is_empty() {
        states.push("pending");
    }
    vec![name(claim), states.join(",").into(), age(claim, now)]
}

fn resource_slice(slice: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(slice),
        text(slice, "/spec/nodeName").into(),
        text(slice, "/spec/driver").into(),
        text(slice, "/spec/pool/name").into(),
        age(slice, now),
    ]
}
