//! Horizontal pod autoscalers.

use jiff::Timestamp;
use serde_json::Value;

use super::Layout;
use super::access::{age, has, items, name, number, text, text_or};
use super::columns::{AGE, NAME, text as column};

pub(super) static HORIZONTAL_POD_AUTOSCALERS: Layout = Layout {
    columns: &[
        NAME,
        column("Reference"),
        column("Targets"),
        column("MinPods"),
        column("MaxPods"),
        column("Replicas"),
        AGE,
    ],
    cells,
};

/// The maximum number of metrics in a cell.
const SHOWN: usize = 2;
const UNKNOWN: &str = "<unknown>";

fn cells(autoscaler: &Value, now: Timestamp) -> Vec<Value> {
    let target = "/spec/scaleTargetRef";
    let reference = format!(
        "{}/{}",
        text(autoscaler, &format!("{target}/kind")),
        text(autoscaler, &format!("{target}/name"))
    );
    let least = if has(autoscaler, "/spec/minReplicas") {
        number(autoscaler, "/spec/minReplicas").to_string()
    } else {
        "<unset>".to_owned()
    };
    vec![
        name(autoscaler),
        reference.into(),
        metrics(autoscaler).into(),
        least.into(),
        number(autoscaler, "/spec/maxReplicas").into(),
        number(autoscaler, "/status/currentReplicas").into(),
        age(autoscaler, now),
    ]
}

fn metrics(autoscaler: &Value) -> String {
    let specs = items(autoscaler, "/spec/metrics");
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let statuses = items(autoscaler, "/status/currentMetrics");
    let shown: Vec<String> =
        specs.iter().enumerate().take(SHOWN).map(|(index, spec)| metric(spec, statuses.get(index))).collect();
    match specs.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} + {more} more...", shown.join(", ")),
    }
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let (source, named) = match text(spec, "/type") {
        "External" => ("external", false),
        "Object" => ("object", false),
        "Pods" => ("pods", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let none = Value::Null;
    let spec = spec.get(source).unwrap_or(&none);
    let current = status.and_then(|status| status.get(source)).and_then(|status| status.get("current"));
    let current = current.unwrap_or(&none);
    let average = has(spec, "/target/averageValue");
    if named {
        let metric = text(spec, "/name");
        return if average {
            let current = text_or(current, "/averageValue", UNKNOWN);
            format!("{metric}: {current}/{}", text(spec, "/target/averageValue"))
        } else {
            let current = percent(current, "/averageUtilization", UNKNOWN);
            format!("{metric}: {current}/{}", percent(spec, "/target/averageUtilization", "<auto>"))
        };
    }
    if source == "pods" {
        let current = text_or(current, "/averageValue", UNKNOWN);
        format!("{current}/{}", text(spec, "/target/averageValue"))
    } else if average {
        let current = text_or(current, "/averageValue", UNKNOWN);
        format!("{current}/{} (avg)", text(spec, "/target/averageValue"))
    } else {
        format!("{}/{}", text_or(current, "/value", UNKNOWN), text(spec, "/target/value"))
    }
}

fn percent(object: &Value, pointer: &str, otherwise: &str) -> String {
    if has(object, pointer) { format!("{}%", number(object, pointer)) } else { otherwise.to_owned() }
}
