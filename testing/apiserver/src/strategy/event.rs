//! Events. The core group and `events.k8s.io` share the same objects under different field names.

use serde_json::{Map, Value, json};

use super::checks::{Shown, immutable_root, invalid_shown, same, shown};
use super::path::Path;
use super::traits::Strategy;
use super::{labels, names};
use crate::json::{int, present, set_default, text, text_at};
use crate::status::StatusCause;

/// Events of the core group.
pub(crate) struct CoreEvent;

/// Events of `events.k8s.io`, already converted to the fields of the core group.
pub(crate) struct NewEvent;

/// The fields with different names: in the core group, in `events.k8s.io`.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];
const OBJECT_FIELDS: [&str; 7] =
    ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];
const SHORT: usize = 128;
const LONG: usize = 1024;

/// Converts an event of `events.k8s.io/v1` to the core group.
pub(crate) fn to_core(event: &mut Value) {
    rename(event, "v1", RENAMED.map(|(core, new)| (new, core)));
}

/// Converts an event of the core group to `events.k8s.io/v1`.
pub(crate) fn to_events_v1(event: &mut Value) {
    rename(event, "events.k8s.io/v1", RENAMED);
    default_source(event, "deprecatedSource", "regarding");
}

fn rename(event: &mut Value, version: &str, names: [(&str, &str); 7]) {
    let Some(fields) = event.as_object_mut() else { return };
    let moved: Map<String, Value> =
        names.into_iter().filter_map(|(from, to)| Some((to.to_owned(), fields.remove(from)?))).collect();
    fields.extend(moved);
    if fields.contains_key("apiVersion") {
        fields.insert("apiVersion".to_owned(), version.into());
    }
}

fn default_source(event: &mut Value, source: &str, object: &str) {
    set_default(event, source, json!({}));
    set_default(event, object, json!({}));
}

fn default(event: &mut Value) {
    default_source(event, "source", "involvedObject");
    for field in ["reportingComponent", "reportingInstance"] {
        set_default(event, field, "");
    }
    let Some(fields) = event.as_object_mut() else { return };
    for field in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        fields.entry(field).or_insert(Value::Null);
    }
    if fields.get("count").is_some_and(|count| count == 0) {
        fields.remove("count");
    }
}

/// Validation for both forms, which differ in the name of one field.
fn check(event: &Value, reporter_field: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let namespace = text_at(event, "/metadata/namespace");
    let about = text_at(event, "/involvedObject/namespace");
    let is_new = present(event, "eventTime").is_some();
    let home_of_cluster_wide: &[&str] = if is_new { &["default", "kube-system"] } else { &["", "default"] };
    let is_at_home = if about.is_empty() {
        home_of_cluster_wide.contains(&namespace)
    } else {
        // Upstream does not compare the namespaces of new events.
        is_new || about == namespace
    };
    if !is_at_home {
        let involved = Path::root("involvedObject");
        causes.push(involved.child("namespace").invalid(about, "does not match event.namespace"));
    }
    if is_new {
        check_reporter(event, reporter_field, &mut causes);
        check_lengths(event, &mut causes);
    }
    Path::root("namespace").invalid_all(namespace, names::dns1123_subdomain(namespace), &mut causes);
    causes
}

fn check_reporter(event: &Value, reporter_field: &str, causes: &mut Vec<StatusCause>) {
    let (reporter, path) = (text(event, "reportingComponent"), Path::root(reporter_field));
    if reporter.is_empty() {
        causes.push(path.required(""));
    }
    path.invalid_all(reporter, labels::key(reporter), causes);
}

fn check_lengths(event: &Value, causes: &mut Vec<StatusCause>) {
    let fields = [("reportingInstance", SHORT), ("action", SHORT), ("reason", SHORT), ("message", LONG)];
    for (field, limit) in fields {
        let (value, path) = (text(event, field), Path::root(field));
        if value.is_empty() && field != "message" {
            causes.push(path.required(""));
        }
        if value.len() > limit {
            causes.push(path.invalid("", &format!("can have at most {limit} characters")));
        }
    }
}

fn check_series(event: &Value, causes: &mut Vec<StatusCause>) {
    let Some(series) = present(event, "series") else { return };
    if int(series, "count").unwrap_or_default() < 2 {
        causes.push(Path::root("series.count").invalid("", "should be at least 2"));
    }
    if present(series, "lastObservedTime").is_none() {
        causes.push(Path::root("series.lastObservedTime").required(""));
    }
}

fn check_no_old_fields(event: &Value, causes: &mut Vec<StatusCause>) {
    let mut refuse = |field, is_set: bool| {
        if is_set {
            causes.push(Path::root(field).invalid("", "needs to be unset"));
        }
    };
    for field in ["firstTimestamp", "lastTimestamp"] {
        refuse(field, present(event, field).is_some());
    }
    refuse("count", int(event, "count").unwrap_or_default() != 0);
    let source = &event["source"];
    refuse("source", !text(source, "component").is_empty() || !text(source, "host").is_empty());
}

fn check_object_unchanged(event: &Value, old: &Value, field: &str, causes: &mut Vec<StatusCause>) {
    let (object, before) = (&event[field], &old[field]);
    if !same(object, before) {
        let fields = [
            ("Kind", "kind", Shown::Text),
            ("Namespace", "namespace", Shown::Text),
            ("Name", "name", Shown::Text),
            ("UID", "uid", Shown::Text),
            ("APIVersion", "apiVersion", Shown::Text),
            ("ResourceVersion", "resourceVersion", Shown::Text),
            ("FieldPath", "fieldPath", Shown::Text),
        ];
        causes.push(invalid_shown(&Path::root(field), &shown(object, &fields), "field is immutable"));
    }
}

/// The selectable fields in the core group.
const SELECTABLE: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// The same fields in `events.k8s.io`, in the same order.
const NEW_SELECTABLE: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "source",
    "type",
];

fn field(event: &Value, name: &str) -> String {
    let found = match (name.split_once('.'), name) {
        (Some((_, field)), _) if OBJECT_FIELDS.contains(&field) => text(&event["involvedObject"], field),
        (Some(_), _) => "",
        (None, "source") => match text_at(event, "/source/component") {
            "" => text(event, "reportingComponent"),
            component => component,
        },
        (None, "reportingController") => text(event, "reportingComponent"),
        (None, _) => text(event, name),
    };
    found.to_owned()
}

impl Strategy for CoreEvent {
    fn default(&self, event: &mut Value) {
        default(event);
    }

    fn validate(&self, event: &Value) -> Vec<StatusCause> {
        check(event, "reportingComponent")
    }

    fn validate_update(&self, event: &Value, _old: &Value) -> Vec<StatusCause> {
        check(event, "reportingComponent")
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        SELECTABLE
    }

    fn field(&self, event: &Value, name: &str) -> String {
        field(event, name)
    }

    fn check_name(&self, name: &str) -> names::Wrong {
        names::path_segment(name)
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

impl Strategy for NewEvent {
    fn default(&self, event: &mut Value) {
        default(event);
    }

    fn validate(&self, event: &Value) -> Vec<StatusCause> {
        let mut causes = check(event, "reportingController");
        check_series(event, &mut causes);
        if present(event, "eventTime").is_none() {
            causes.push(Path::root("eventTime").required(""));
        }
        let kind = text(event, "type");
        if !matches!(kind, "Normal" | "Warning") {
            causes.push(Path::root("type").invalid("", &format!("has invalid value: {kind}")));
        }
        check_no_old_fields(event, &mut causes);
        causes
    }

    fn validate_update(&self, event: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = check(event, "reportingController");
        if event.get("series") != old.get("series") {
            check_series(event, &mut causes);
        }
        check_object_unchanged(event, old, "involvedObject", &mut causes);
        let fields = [
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "type",
            "eventTime",
            "action",
        ];
        for field in fields {
            immutable_root(event, old, field, &mut causes);
        }
        check_object_unchanged(event, old, "related", &mut causes);
        if text(event, "reportingComponent") != text(old, "reportingComponent") {
            let path = Path::root("reportingController");
            causes.push(path.invalid(text(event, "reportingComponent"), "field is immutable"));
        }
        immutable_root(event, old, "reportingInstance", &mut causes);
        causes
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        NEW_SELECTABLE
    }

    fn field(&self, event: &Value, name: &str) -> String {
        field(event, name)
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_convert_to_each_other() {
        let mut event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
            "regarding": {"kind": "Pod"}, "note": "n", "reportingController": "c", "deprecatedCount": 2,
            "deprecatedSource": {"component": "s"}, "reason": "R", "series": {"count": 3},
        });
        let before = event.clone();
        to_core(&mut event);
        assert_eq!(
            event,
            json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"},
                "message": "n", "reportingComponent": "c", "count": 2, "source": {"component": "s"}, "reason": "R",
                "series": {"count": 3},
            })
        );
        to_events_v1(&mut event);
        assert_eq!(event, before);
    }

    #[test]
    fn reporter_is_the_source_if_there_is_none() {
        let event = json!({"reportingComponent": "c", "involvedObject": {"name": "p"}, "source": {}});
        assert_eq!(CoreEvent.field(&event, "source"), "c");
        assert_eq!(CoreEvent.field(&event, "involvedObject.name"), "p");
        assert_eq!(CoreEvent.field(&json!({"source": {"component": "s"}}), "source"), "s");
    }

    #[test]
    fn both_groups_select_by_the_same_fields() {
        let event = json!({
            "reportingComponent": "c", "reason": "r", "type": "t", "source": {"component": "s"},
            "involvedObject": {"kind": "k", "namespace": "ns", "name": "n", "uid": "u", "apiVersion": "v",
                "resourceVersion": "rv", "fieldPath": "f"},
        });
        let values = |strategy: &dyn Strategy| -> Vec<String> {
            strategy.selectable_fields().iter().map(|name| strategy.field(&event, name)).collect()
        };
        assert_eq!(values(&CoreEvent), ["k", "ns", "n", "u", "v", "rv", "f", "r", "c", "s", "t"]);
        assert_eq!(values(&CoreEvent), values(&NewEvent));
    }
}
