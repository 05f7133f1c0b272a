//! Compares tables with those of kube-apiserver v1.37.2, recorded in `upstream.json`.

use serde_json::{Value, json};

use super::*;
use crate::kinds::built_in;

struct Upstream {
    now: Timestamp,
    answers: Value,
}

impl Upstream {
    fn read() -> Self {
        let answers: Value = serde_json::from_str(include_str!("tests/upstream.json")).unwrap();
        Self { now: answers["now"].as_str().unwrap().parse().unwrap(), answers }
    }

    fn rows(&self) -> impl Iterator<Item = &Value> {
        self.answers["rows"].as_array().unwrap().iter()
    }

    /// The printer columns in a version of the definition of `widgets.example.com`.
    fn widget_columns(&self, version: &str) -> Option<&Value> {
        let definition = self
            .rows()
            .map(|row| &row["object"])
            .find(|object| object["kind"] == "CustomResourceDefinition")
            .unwrap();
        let versions = definition["spec"]["versions"].as_array().unwrap();
        versions.iter().find(|entry| entry["name"] == version).unwrap().get("additionalPrinterColumns")
    }

    fn printer(&self, object: &Value) -> Printer {
        let api_version = object["apiVersion"].as_str().unwrap();
        match api_version.strip_prefix("example.com/") {
            Some(version) => Printer::custom(self.widget_columns(version)),
            None => Printer::of(
                built_in()
                    .iter()
                    .find(|kind| kind.api_version() == api_version && object["kind"] == *kind.kind)
                    .unwrap_or_else(|| panic!("{} of {api_version} is not a built-in kind", object["kind"])),
            ),
        }
    }
}

#[test]
fn cells_equal_the_recorded_ones() {
    let upstream = Upstream::read();
    let mut different = Vec::new();
    for row in upstream.rows() {
        let object = &row["object"];
        let table = upstream.printer(object).table([object], json!({}), IncludeObject::None, upstream.now);
        let ours = &table["rows"][0];
        if ours["cells"] != row["cells"] || ours.get("conditions") != row.get("conditions") {
            let name = &object["metadata"]["name"];
            different.push(format!("{} {name}\n  ours   {ours}\n  theirs {}", object["kind"], row["cells"]));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn columns_equal_the_recorded_ones() {
    let upstream = Upstream::read();
    for (kind, theirs) in upstream.answers["columns"].as_object().unwrap() {
        let object = upstream
            .rows()
            .map(|row| &row["object"])
            .find(|object| {
                *kind
                    == format!(
                        "{} {}",
                        object["apiVersion"].as_str().unwrap(),
                        object["kind"].as_str().unwrap()
                    )
            })
            .unwrap();
        let table = upstream.printer(object).table([], json!({}), IncludeObject::None, upstream.now);
        let ours: Value = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| json!([column["name"], column["type"], column["format"], column["priority"]]))
            .collect();
        assert_eq!(ours, *theirs, "{kind}");
    }
}

#[test]
fn every_built_in_kind_has_a_recorded_table() {
    let upstream = Upstream::read();
    let compared = upstream.answers["columns"].as_object().unwrap();
    for kind in built_in().iter().filter(|kind| kind.verbs == crate::kinds::Verbs::All) {
        let key = format!("{} {}", kind.api_version(), kind.kind);
        assert!(compared.contains_key(&key), "{key}");
    }
}

fn printer_of(resource: &str) -> Printer {
    Printer::of(built_in().iter().find(|kind| kind.resource == resource).unwrap())
}

#[test]
fn include_object_controls_what_rows_contain() {
    let now = "2026-01-01T00:00:30Z".parse().unwrap();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": "one", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let beside = |include| {
        let table = printer_of("configmaps").table([&map], list_meta_of(&map), include, now);
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
        assert_eq!(table["rows"][0]["cells"], json!(["one", 1, "30s"]));
        table["rows"][0]["object"].clone()
    };
    assert_eq!(beside(IncludeObject::None), Value::Null);
    assert_eq!(beside(IncludeObject::Object), map);
    assert_eq!(
        beside(IncludeObject::default()),
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": map["metadata"]})
    );
    let list = partial_object_metadata_list([&map], json!({"resourceVersion": "9", "continue": "c"}));
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["metadata"], json!({"resourceVersion": "9", "continue": "c"}));
    assert_eq!(list["items"][0]["metadata"], map["metadata"]);
}

#[test]
fn only_the_first_table_of_a_watch_has_headers() {
    let now = "2026-01-01T00:00:30Z".parse().unwrap();
    let map = json!({"metadata": {"name": "one", "resourceVersion": "7"}});
    let printer = printer_of("configmaps");
    let first = printer.row_table(&map, true, IncludeObject::None, now);
    let next = printer.row_table(&map, false, IncludeObject::None, now);
    assert_eq!(first["columnDefinitions"].as_array().unwrap().len(), 3);
    assert_eq!(next["columnDefinitions"], Value::Null);
    assert_eq!(next["rows"][0]["cells"], json!(["one", 0, "<unknown>"]));
}

#[test]
fn bookmark_that_ends_the_initial_events_keeps_its_metadata() {
    let now = "2026-01-01T00:00:30Z".parse().unwrap();
    let mut bookmark =
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "600"}});
    let beside = |bookmark: &Value| {
        let table = printer_of("configmaps").row_table(bookmark, false, IncludeObject::None, now);
        table["rows"][0]["object"].clone()
    };
    assert_eq!(beside(&bookmark), Value::Null);
    bookmark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    assert_eq!(beside(&bookmark)["metadata"], bookmark["metadata"]);
}

#[test]
fn include_object_has_three_values() {
    assert_eq!(IncludeObject::parse(""), Ok(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse("Object"), Ok(IncludeObject::Object));
    assert_eq!(
        IncludeObject::parse("All").unwrap_err().message,
        "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be 'Metadata', \
         'Object', 'None', or empty"
    );
}

#[test]
fn objects_of_any_shape_have_a_row() {
    let odd = [
        json!(null),
        json!([]),
        json!({"metadata": 1, "status": "x", "spec": [1]}),
        json!({"status": {
        "conditions": {}, "containerStatuses": [1, null], "initContainerStatuses": [{}], "hard": {"a": 1}}}),
    ];
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    for kind in built_in() {
        let printer = Printer::of(kind);
        let table = printer.table(&odd, json!({}), IncludeObject::Metadata, now);
        let columns = table["columnDefinitions"].as_array().unwrap().len();
        for row in table["rows"].as_array().unwrap() {
            assert_eq!(row["cells"].as_array().unwrap().len(), columns, "{}", kind.resource);
        }
    }
}
