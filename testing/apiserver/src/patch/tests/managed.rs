use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::apply::apply;
use super::super::managed::{FieldManager, keep_times, manager_name, record_update};
use super::super::{APPLY, JSON, MERGE, Patch, STRATEGIC, check_options, parse};
use super::type_of;

fn manager(name: &str, second: i64) -> FieldManager<'_> {
    FieldManager {
        name,
        api_version: "v1",
        subresource: "",
        type_id: type_of(&config_map(&[])),
        status_apart: false,
        now: Timestamp::from_second(second).unwrap(),
    }
}

fn config_map(data: &[(&str, &str)]) -> Value {
    let data: Value = data.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data})
}

fn config(body: &str) -> Value {
    match parse(APPLY, body.as_bytes(), false).unwrap() {
        Patch::Apply(config) => config,
        other => panic!("{other:?}"),
    }
}

#[test]
fn apply_configuration_may_be_yaml_or_json() {
    let expected = json!({"kind": "Pod", "spec": {"a": [1, "b", true, null], "c": 2.5}});
    let yaml = "kind: Pod\nspec:\n  a: [1, b, true, null]\n  c: 2.5\n";
    assert_eq!(config(yaml), expected);
    assert_eq!(config(&expected.to_string()), expected);
    assert_eq!(config(""), json!({}));
    assert_eq!(config("null"), json!({}));
    assert_eq!(config(r#"{"a": [1.0, -2.0, 0.5]}"#), json!({"a": [1, -2, 0.5]}));
}

#[test]
fn apply_configuration_must_be_an_object() {
    let refusal = |body: &str| parse(APPLY, body.as_bytes(), false).unwrap_err();
    let message = "error decoding YAML: error unmarshaling JSON: while decoding JSON: \
                   json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!((refusal("[]").code.as_u16(), refusal("- a").message.as_str()), (400, message));
    assert!(refusal("{").message.starts_with("error decoding YAML: error converting YAML to JSON: yaml: "));
    assert_eq!(refusal("{").code.as_u16(), 400);
}

#[test]
fn only_apply_requires_a_manager_and_can_be_forced() {
    let apply = Patch::Apply(json!({}));
    assert!(check_options(&apply, "m", Some(true)).is_ok());
    let status = check_options(&apply, "", None).unwrap_err();
    let message =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    assert_eq!((status.code.as_u16(), status.message.as_str()), (422, message));
    assert_eq!(
        (status.details.group.as_str(), status.details.kind.as_str()),
        ("meta.k8s.io", "PatchOptions")
    );
    for (content_type, body) in [(JSON, "[]"), (MERGE, "{}"), (STRATEGIC, "{}")] {
        let patch = parse(content_type, body.as_bytes(), false).unwrap();
        assert!(check_options(&patch, "", None).is_ok());
        let status = check_options(&patch, "", Some(false)).unwrap_err();
        let message = "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch";
        assert_eq!(status.message, message);
    }
}

#[test]
fn manager_is_named_after_the_user_agent() {
    assert_eq!(manager_name("m", "kubectl/v1.36"), "m");
    assert_eq!(manager_name("", "kubectl/v1.36 (linux/amd64)"), "kubectl");
    assert_eq!(manager_name("", "a\u{1}b"), "ab");
    assert_eq!(manager_name("", ""), "");
    assert_eq!(manager_name("", &"é".repeat(100)), "é".repeat(64));
}

#[test]
fn untracked_objects_stay_untracked() {
    let old = config_map(&[("a", "1")]);
    let mut new = config_map(&[("a", "2")]);
    record_update(&manager("m", 0), Some(&old), &mut new);
    assert_eq!(new, config_map(&[("a", "2")]));
}

#[test]
fn manager_without_a_name_is_unknown() {
    let mut new = config_map(&[("a", "1")]);
    record_update(&manager("", 0), None, &mut new);
    assert_eq!(new["metadata"]["managedFields"][0]["manager"], "unknown");
    assert_eq!(new["metadata"]["managedFields"][0]["time"], "1970-01-01T00:00:00Z");
}

#[test]
fn corrupted_managed_fields_are_restored() {
    let mut old = config_map(&[("a", "1")]);
    record_update(&manager("m", 0), None, &mut old);
    let entry = |field: &str, value: Value| {
        let mut entry = old["metadata"]["managedFields"][0].clone();
        entry[field] = value;
        json!([entry])
    };
    let garbled = [
        json!("x"),
        json!([1]),
        entry("operation", json!("Frob")),
        entry("apiVersion", json!("")),
        entry("fieldsType", json!("FieldsV2")),
        entry("fieldsV1", json!({"x:data": {}})),
        entry("fieldsV1", json!({"k:{": {}})),
        entry("fieldsV1", json!({"f:data": 1})),
        entry("fieldsV1", json!("f:data")),
    ];
    for garbled in garbled {
        let mut new = old.clone();
        new["metadata"]["managedFields"] = garbled.clone();
        record_update(&manager("n", 1), Some(&old), &mut new);
        assert_eq!(new, old, "{garbled}");
        // Stored this way, updates ignore them and apply fails.
        let mut stored = old.clone();
        stored["metadata"]["managedFields"] = garbled.clone();
        if garbled.is_array() {
            let status = apply(&manager("n", 1), "ConfigMap", Some(&stored), &config_map(&[]), false);
            assert_eq!(status.unwrap_err().code.as_u16(), 500, "{garbled}");
        }
    }
}

#[test]
fn request_without_changes_keeps_the_times() {
    let old = apply(&manager("m", 0), "ConfigMap", None, &config_map(&[("a", "1")]), false).unwrap();
    let mut new = apply(&manager("m", 9), "ConfigMap", None, &config_map(&[("a", "1")]), false).unwrap();
    assert_ne!(new, old);
    keep_times(&old, &mut new);
    assert_eq!(new, old);
    for (path, value) in
        [("/data/a", "2"), ("/metadata/name", "y"), ("/metadata/managedFields/0/manager", "n")]
    {
        let mut new = apply(&manager("m", 9), "ConfigMap", None, &config_map(&[("a", "1")]), false).unwrap();
        *new.pointer_mut(path).unwrap() = value.into();
        let before = new.clone();
        keep_times(&old, &mut new);
        assert_eq!(new, before, "{path}");
    }
}

type Data = std::collections::BTreeMap<String, u8>;

fn any_data() -> impl Strategy<Value = Data> {
    proptest::collection::btree_map("[a-e]", 0_u8..3, 0..5)
}

fn deployment(containers: &[(String, u8)]) -> Value {
    let containers: Vec<Value> =
        containers.iter().map(|(name, image)| json!({"name": name, "image": image.to_string()})).collect();
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"},
        "spec": {"template": {"spec": {"containers": containers}}}})
}

fn apply_deployment(name: &str, current: Option<&Value>, containers: &[(String, u8)]) -> Value {
    let type_id = type_of(&deployment(&[]));
    let manager = FieldManager { api_version: "apps/v1", type_id, ..manager(name, 0) };
    apply(&manager, "Deployment", current, &deployment(containers), true).unwrap()
}

fn containers(object: &Value) -> Vec<(String, u8)> {
    let items = object["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    // An item that others own only by name loses its image with the manager that took it over.
    let image = |item: &Value| item["image"].as_str().map_or(u8::MAX, |image| image.parse().unwrap());
    items.iter().map(|item| (item["name"].as_str().unwrap().to_owned(), image(item))).collect()
}

fn shuffled() -> impl Strategy<Value = Vec<(String, u8)>> {
    any_data().prop_map(|data| data.into_iter().collect::<Vec<_>>()).prop_shuffle()
}

proptest! {
    #[test]
    fn apply_keeps_the_order_and_is_idempotent(
        others in shuffled(),
        before in shuffled(),
        mine in shuffled().prop_filter("a manager owns something", |mine| !mine.is_empty()),
    ) {
        let object = apply_deployment("other", None, &others);
        let object = apply_deployment("me", Some(&object), &before);
        let object = apply_deployment("me", Some(&object), &mine);
        let named: Vec<_> =
            containers(&object).into_iter().filter(|(name, _)| mine.iter().any(|(other, _)| other == name)).collect();
        prop_assert_eq!(named, mine.clone());
        prop_assert_eq!(apply_deployment("me", Some(&object), &mine), object.clone());
        // Other items belong to other managers, unless the fields were taken over.
        for (name, _) in containers(&object) {
            let names = |containers: &[(String, u8)]| containers.iter().any(|(other, _)| *other == name);
            prop_assert!(names(&mine) || names(&others));
        }
    }

    #[test]
    fn sole_manager_has_exactly_its_last_configuration(before in shuffled(), after in shuffled()) {
        let object = apply_deployment("me", None, &before);
        prop_assert_eq!(containers(&apply_deployment("me", Some(&object), &after)), after);
    }

    #[test]
    fn every_tracked_field_has_one_update_owner(first in any_data(), second in any_data(), third in any_data()) {
        let object = |data: &Data| {
            let data: Vec<_> = data.iter().map(|(key, value)| (key.clone(), value.to_string())).collect();
            config_map(&data.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>())
        };
        let mut current = object(&first);
        record_update(&manager("a", 0), None, &mut current);
        for (name, data) in [("b", &second), ("c", &third)] {
            let mut new = object(data);
            new["metadata"]["managedFields"] = current["metadata"]["managedFields"].clone();
            record_update(&manager(name, 0), Some(&current), &mut new);
            current = new;
        }
        let entries = current["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        for key in third.keys() {
            let owns = |entry: &&Value| entry["fieldsV1"]["f:data"].get(format!("f:{key}")).is_some();
            prop_assert_eq!(entries.iter().filter(owns).count(), 1, "{}", key);
        }
    }

    #[test]
    fn apply_of_any_configuration_does_not_panic(
        current in super::properties::any_json(),
        spec in super::properties::any_json(),
        metadata in super::properties::any_json(),
        custom in any::<bool>(),
    ) {
        let type_id = if custom { None } else { type_of(&deployment(&[])) };
        let manager = FieldManager { api_version: "apps/v1", type_id, ..manager("m", 0) };
        let object = |spec: &Value| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec,
                "data": {"template": spec}})
        };
        let mut current = object(&current);
        record_update(&manager, None, &mut current);
        let _ = apply(&manager, "Deployment", Some(&current), &object(&spec), false);
        let _ = apply(&manager, "Deployment", Some(&current), &object(&spec), true);
        let _ = apply(&manager, "Deployment", None, &object(&spec), false);
    }
}
