//! Events of the core group and of `events.k8s.io`.

use jiff::Timestamp;
use serde_json::Value;

use super::Layout;
use super::access::{has, name, number, since, text, time};
use super::columns::{NAME, text as column, wide};

pub(super) static EVENTS: Layout = Layout {
    columns: &[
        column("Last Seen"),
        column("Type"),
        column("Reason"),
        column("Object"),
        wide("Subobject"),
        wide("Source"),
        column("Message"),
        wide("First Seen"),
        wide("Count"),
        NAME.wide(),
    ],
    cells,
};

fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let first = time(event, "/firstTimestamp")
        .or_else(|| time(event, "/deprecatedFirstTimestamp"))
        .or_else(|| time(event, "/eventTime"));
    let last = time(event, "/lastTimestamp").or_else(|| time(event, "/deprecatedLastTimestamp")).or(first);
    let count = number(event, "/count").max(number(event, "/deprecatedCount")).max(1);
    let (last, count) = if has(event, "/series") {
        (time(event, "/series/lastObservedTime"), number(event, "/series/count"))
    } else {
        (last, count)
    };
    vec![
        since(last, now).into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        target(event).into(),
        either(event, "/involvedObject/fieldPath", "/regarding/fieldPath").into(),
        source(event).into(),
        either(event, "/message", "/note").trim().into(),
        since(first, now).into(),
        count.into(),
        name(event),
    ]
}

fn target(event: &Value) -> String {
    let kind = either(event, "/involvedObject/kind", "/regarding/kind").to_lowercase();
    match either(event, "/involvedObject/name", "/regarding/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(event: &Value) -> String {
    let controller = either(event, "/reportingComponent", "/reportingController");
    let component = match either(event, "/source/component", "/deprecatedSource/component") {
        "" => controller,
        component => component,
    };
    let instance = match either(event, "/source/host", "/deprecatedSource/host") {
        "" => text(event, "/reportingInstance"),
        host => host,
    };
    if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") }
}

fn either<'a>(event: &'a Value, core: &str, events: &str) -> &'a str {
    match text(event, core) {
        "" => text(event, events),
        text => text,
    }
}
