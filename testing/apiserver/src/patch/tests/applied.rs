//! Compares field owners and errors of apply requests with those of kube-apiserver v1.37.2,
//! recorded in `applied.json`.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::apply::apply;
use super::super::managed::{FieldManager, record_update};
use super::super::parse;
use super::super::{APPLY, Patch};
use super::{decoded, type_of};
use crate::status::Status;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    what: String,
    op: String,
    manager: String,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    subresource: String,
    kind: String,
    api_version: String,
    /// Whether the object does not exist before the request.
    #[serde(default)]
    starts: bool,
    /// The object before the request, if it differs from the result of the previous one.
    before: Option<Value>,
    #[serde(default)]
    body: Value,
    given: Option<Value>,
    after: Option<Value>,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    causes: Vec<(String, String)>,
}

impl Recorded {
    fn manager(&self) -> FieldManager<'_> {
        let type_id = type_of(&json!({"apiVersion": self.api_version, "kind": self.kind}));
        FieldManager {
            name: &self.manager,
            api_version: &self.api_version,
            subresource: &self.subresource,
            type_id,
            status_apart: type_id.is_some(),
            now: "2099-01-01T00:00:00Z".parse::<Timestamp>().unwrap(),
        }
    }

    fn run(&self) -> Result<Value, Status> {
        if self.op == "apply" {
            let Patch::Apply(config) = parse(APPLY, self.body.to_string().as_bytes(), false)? else {
                panic!("no configuration")
            };
            return apply(&self.manager(), &self.kind, self.before.as_ref(), &config, self.force);
        }
        let mut new = self.after.clone().unwrap();
        // The created object, with the managed fields that the request left.
        let before = self.before.as_ref().map(|before| before["metadata"]["managedFields"].clone());
        new["metadata"]["managedFields"] = self.given.clone().or(before).unwrap_or_default();
        record_update(&self.manager(), self.before.as_ref(), &mut new);
        Ok(new)
    }

    fn is_right(&self, answer: &Result<Value, Status>) -> bool {
        match (answer, &self.after) {
            (Ok(object), Some(after)) => {
                owners(object) == owners(after)
                    && contains(after, object)
                    && self.before.as_ref().is_none_or(|before| keeps(before, after, object))
            }
            (Err(status), None) => {
                let causes = status.details.causes.iter();
                let mut causes: Vec<_> =
                    causes.map(|cause| (cause.message.clone(), cause.field.clone())).collect();
                causes.sort();
                status.code.as_u16() == self.code
                    && status.reason == self.reason
                    && status.message == self.message
                    && causes == sorted(self.causes.clone())
            }
            _ => false,
        }
    }
}

/// The real server lists the managers in random order.
fn sorted(mut causes: Vec<(String, String)>) -> Vec<(String, String)> {
    causes.sort();
    causes
}

fn owners(object: &Value) -> Vec<Value> {
    let mut entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    for entry in &mut entries {
        entry.as_object_mut().unwrap().remove("time");
    }
    // Sorting replaces the order by time, as times differ from the recorded ones.
    entries.sort_by_key(ToString::to_string);
    entries
}

/// Most fields are omitted when empty.
fn is_empty(value: &Value) -> bool {
    let value = decoded(value.clone());
    value == json!({}) || value == json!([])
}

/// Whether the real server's object contains our object. It also has defaults; lists must have the
/// same length.
fn contains(real: &Value, ours: &Value) -> bool {
    match (real, ours) {
        (Value::Object(real), Value::Object(ours)) => ours.iter().all(|(name, ours)| {
            matches!(name.as_str(), "managedFields" | "status" | "resourceVersion" | "generation")
                || is_empty(ours)
                || contains(real.get(name).unwrap_or(&Value::Null), ours)
        }),
        (Value::Array(real), Value::Array(ours)) => {
            real.len() == ours.len() && real.iter().zip(ours).all(|(real, ours)| contains(real, ours))
        }
        (real, ours) => real == ours,
    }
}

/// Whether our object kept what the real server kept.
fn keeps(before: &Value, real: &Value, ours: &Value) -> bool {
    match (before, real) {
        (Value::Object(before), Value::Object(real)) => before.iter().all(|(name, before)| {
            name == "managedFields"
                || is_empty(before)
                || real
                    .get(name)
                    .is_none_or(|real| ours.get(name).is_some_and(|ours| keeps(before, real, ours)))
        }),
        _ => true,
    }
}

#[test]
fn field_owners_equal_the_recorded_ones() {
    let mut recorded: Vec<Recorded> = serde_json::from_str(include_str!("applied.json")).unwrap();
    let mut wrong = Vec::new();
    let mut current = None;
    for case in &mut recorded {
        if !case.starts && case.before.is_none() {
            case.before = current;
        }
        current = case.after.clone().or_else(|| case.before.clone());
        let answer = case.run();
        if !case.is_right(&answer) {
            let answer = match answer {
                Ok(object) => format!("{object}"),
                Err(status) => format!("{status:?}"),
            };
            let after = case.after.as_ref().map(Value::to_string);
            let before = case.before.as_ref().map(Value::to_string);
            wrong.push(format!(
                "{}: {answer}\n  instead of {after:?} {}\n  before {before:?}",
                case.what, case.message
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), recorded.len(), wrong.join("\n\n"));
    assert!(recorded.len() > 100);
}
