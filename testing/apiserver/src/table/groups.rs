//! Rows of pod groups and composite pod groups.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Layout;
use super::access::{age, condition, condition_is_true, has, name, text, text_or};
use super::columns::{AGE, NAME, text as column};

pub(super) static POD_GROUPS: Layout = Layout {
    columns: &[NAME, column("Policy"), column("Workload"), column("Status"), AGE],
    cells: pod_group,
};

pub(super) static COMPOSITE_POD_GROUPS: Layout =
    Layout { columns: &[NAME, column("Policy"), column("Workload"), AGE], cells: composite };

fn pod_group(group: &Value, now: Timestamp) -> Vec<Value> {
    let status = if let Some(target) = condition(group, "DisruptionTarget") {
        text(target, "/reason")
    } else if condition_is_true(group, "PodGroupInitiallyScheduled") {
        "Scheduled"
    } else if condition(group, "PodGroupInitiallyScheduled").is_some() {
        "Unschedulable"
    } else {
        "Pending"
    };
    vec![name(group), json!(policy(group)), json!(workload(group)), json!(status), age(group, now)]
}

fn composite(group: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(group), json!(policy(group)), json!(workload(group)), age(group, now)]
}

fn policy(group: &Value) -> &'static str {
    if has(group, "/spec/schedulingPolicy/gang") { "Gang" } else { "Basic" }
}

fn workload(group: &Value) -> &str {
    text_or(group, "/spec/workloadRef/workloadName", "<none>")
}
