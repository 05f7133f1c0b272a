//! Namespaces.

use serde_json::{Value, json};

use super::checks::nulls;
use super::path::Path;
use super::traits::Strategy;
use super::{labels, meta, names, status};
use crate::json::{object_mut, present, restore, set_default, text, text_at, texts};
use crate::kinds::{Kind, built_in};
use crate::status::{Result, Status, StatusCause};

/// Namespaces.
pub(crate) struct Namespace;

/// The label with a namespace's name.
pub(crate) const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The finalizer that remains until a namespace is empty.
pub(crate) const FINALIZER: &str = "kubernetes";
/// The namespaces that cannot be deleted.
pub(crate) const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

const FINALIZERS: Path<'static> = Path::root("spec");

impl Strategy for Namespace {
    fn default(&self, namespace: &mut Value) {
        object_mut(namespace, "spec");
        object_mut(namespace, "status");
        set_default(&mut namespace["status"], "phase", "Active");
        nulls(&mut namespace["status"], "conditions", &["lastTransitionTime"]);
        label(namespace);
    }

    fn admit_delete(&self, name: &str) -> Result<()> {
        let kind = built_in().iter().find(is_namespaces);
        match kind {
            Some(kind) if IMMORTAL.contains(&name) => {
                Err(Status::forbidden(kind, name, "this namespace may not be deleted"))
            }
            _ => Ok(()),
        }
    }

    fn prepare_for_create(&self, namespace: &mut Value) {
        namespace["status"] = json!({"phase": "Active"});
        if texts(&namespace["spec"], "finalizers").all(|finalizer| finalizer != FINALIZER) {
            match namespace["spec"].get_mut("finalizers").and_then(Value::as_array_mut) {
                Some(finalizers) => finalizers.push(FINALIZER.into()),
                None => namespace["spec"]["finalizers"] = json!([FINALIZER]),
            }
        }
        label(namespace);
    }

    fn prepare_for_update(&self, namespace: &mut Value, old: &Value) {
        restore(namespace, old, "spec");
        restore(namespace, old, "status");
    }

    fn prepare_for_status_update(&self, namespace: &mut Value, old: &Value) {
        status::only_status(namespace, old);
    }

    fn validate(&self, namespace: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let path = FINALIZERS.child("finalizers");
        for name in texts(&namespace["spec"], "finalizers") {
            path.invalid_all(name, labels::key(name), &mut causes);
            meta::check_standard_finalizer(name, &path, &mut causes);
        }
        causes
    }

    fn validate_update(&self, namespace: &Value, _old: &Value) -> Vec<StatusCause> {
        self.validate(namespace)
    }

    fn validate_status_update(&self, namespace: &Value, _old: &Value) -> Vec<StatusCause> {
        let phase = text_at(namespace, "/status/phase");
        let is_going = present(&namespace["metadata"], "deletionTimestamp").is_some();
        let (expected, when) = if is_going { ("Terminating", "not empty") } else { ("Active", "empty") };
        if phase == expected {
            return Vec::new();
        }
        let why = format!("may only be '{expected}' if `deletionTimestamp` is {when}");
        vec![Path::root("status").child("Phase").invalid(phase, &why)]
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.phase"]
    }

    fn field(&self, namespace: &Value, name: &str) -> String {
        match name {
            "status.phase" => text(&namespace["status"], "phase").to_owned(),
            _ => String::new(),
        }
    }

    fn check_name(&self, name: &str) -> names::Wrong {
        names::dns1123_label(name)
    }
}

/// Restores the fields that the finalize subresource cannot change: all but the spec.
pub(crate) fn prepare_for_finalize(namespace: &mut Value, old: &Value) {
    restore(namespace, old, "status");
}

/// Validates a change through the finalize subresource.
pub(crate) fn validate_finalize(namespace: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let path = FINALIZERS.child("finalizers");
    for (i, name) in texts(&namespace["spec"], "finalizers").enumerate() {
        let path = path.index(i);
        path.invalid_all(name, labels::key(name), &mut causes);
        meta::check_standard_finalizer(name, &path, &mut causes);
    }
    causes
}

fn is_namespaces(kind: &&Kind) -> bool {
    kind.group.is_empty() && kind.resource == "namespaces"
}

fn label(namespace: &mut Value) {
    let name = text_at(namespace, "/metadata/name").to_owned();
    if !name.is_empty() {
        object_mut(&mut namespace["metadata"], "labels");
        namespace["metadata"]["labels"][NAME_LABEL] = name.into();
    }
}
