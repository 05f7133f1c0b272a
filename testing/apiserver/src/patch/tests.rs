//! Compares the results of patches with those of kube-apiserver v1.37.2, recorded in
//! `recorded.json` without the fields that the server fills in.

mod applied;
mod managed;
mod properties;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::*;
use crate::schema::Schema;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    what: String,
    content_type: String,
    object: Value,
    patch: Value,
    result: Option<Value>,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

fn type_of(object: &Value) -> Option<TypeId> {
    Schema::get().kind(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap())
}

fn patched(content_type: &str, object: &Value, patch: &Value) -> Result<Value> {
    let type_id = type_of(object);
    let patch = parse(content_type, patch.to_string().as_bytes(), type_id.is_none())?;
    apply_to(&patch, object, type_id)
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Drops what the real server's decoder drops: nulls and, in most fields, empty maps.
fn decoded(value: Value) -> Value {
    match without_nulls(value) {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, decoded(value)))
            .filter(|(_, value)| value.as_object().is_none_or(|fields| !fields.is_empty()))
            .collect(),
        Value::Array(items) => items.into_iter().map(decoded).collect(),
        other => other,
    }
}

#[test]
fn patches_have_the_recorded_results() {
    let recorded: Vec<Recorded> = serde_json::from_str(include_str!("tests/recorded.json")).unwrap();
    let mut wrong = Vec::new();
    for case in &recorded {
        let answer = patched(&case.content_type, &case.object, &case.patch);
        let right = match (&answer, &case.result) {
            (Ok(object), Some(expected)) if type_of(&case.object).is_some() => {
                decoded(object.clone()) == decoded(expected.clone())
            }
            (Ok(object), Some(expected)) => object == expected,
            (Err(status), None) => {
                status.code.as_u16() == case.code
                    && status.reason == case.reason
                    && status.message == case.message
            }
            _ => false,
        };
        if !right {
            wrong.push(format!("{}: {answer:?}\n  instead of {:?} {}", case.what, case.result, case.message));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), recorded.len(), wrong.join("\n"));
    assert!(recorded.len() > 130);
}

#[test]
fn json_patch_can_replace_the_whole_object() {
    let object = json!({"kind": "Foo", "apiVersion": "e.x.io/v1", "spec": 1});
    let patch = json!([{"op": "replace", "path": "", "value": {"spec": 2}}, {"op": "test", "path": "", "value": {"spec": 2}}]);
    assert_eq!(patched(JSON, &object, &patch).unwrap(), json!({"spec": 2}));
}

#[test]
fn json_patch_is_limited_to_ten_thousand_operations() {
    let patch = |count: usize| json!(vec![json!({"op": "test", "path": "/kind", "value": "Foo"}); count]);
    let object = json!({"kind": "Foo", "apiVersion": "e.x.io/v1"});
    assert_eq!(patched(JSON, &object, &patch(10_000)).unwrap(), object);
    let status = patched(JSON, &object, &patch(10_001)).unwrap_err();
    assert_eq!((status.code.as_u16(), status.reason), (413, "RequestEntityTooLarge"));
    let message =
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(status.message, message);
}

#[test]
fn truncated_body_has_the_error_of_go() {
    let refusals = [
        (JSON, "error decoding patch: unexpected end of JSON input"),
        (MERGE, "error decoding patch: unexpected end of JSON input"),
        (STRATEGIC, "unexpected end of JSON input"),
    ];
    for (content_type, message) in refusals {
        for body in ["", "[{", "{"] {
            let status = parse(content_type, body.as_bytes(), false).unwrap_err();
            assert_eq!((status.code.as_u16(), status.message.as_str()), (400, message));
        }
    }
}

#[test]
fn content_type_may_have_parameters() {
    let patch = parse("application/merge-patch+json; charset=utf-8", b"{}", true).unwrap();
    assert_eq!(patch, Patch::Merge(Map::new()));
}

#[test]
fn unsupported_content_types_are_rejected() {
    for content_type in ["application/json", "", "text/plain"] {
        let status = parse(content_type, b"{}", false).unwrap_err();
        assert_eq!((status.code.as_u16(), status.message.as_str()), (415, "415: Unsupported Media Type"));
    }
    for content_type in ["application/json", STRATEGIC] {
        let status = parse(content_type, b"{}", true).unwrap_err();
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        assert_eq!((status.code.as_u16(), status.message.as_str()), (415, message));
    }
}

#[test]
fn undecodable_error_shows_the_patch_or_the_result() {
    let patched = json!({"data": "x"});
    let strategic = parse(STRATEGIC, br#"{"data": "x"}"#, false).unwrap();
    let status = undecodable(&strategic, &patched, "cannot restore map from string");
    let message = r#" "" is invalid: patch: Invalid value: "map[data:x]": cannot restore map from string"#;
    assert_eq!((status.code.as_u16(), status.reason, status.message.as_str()), (422, "Invalid", message));
    assert_eq!(status.details.causes[0].field, "patch");
    let merge = parse(MERGE, br#"{"data": "x"}"#, false).unwrap();
    let message = r#" "" is invalid: patch: Invalid value: "{\"data\":\"x\"}": why"#;
    assert_eq!(undecodable(&merge, &patched, "why").message, message);
}
