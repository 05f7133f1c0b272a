//! Checks of the metadata that every object has.

use serde_json::Value;

use super::checks::{NOT_NEGATIVE, Shown, invalid_shown, same};
use super::path::Path;
use super::traits::Strategy;
use super::{labels, names};
use crate::json::{flag, int, list, present, text, texts};
use crate::status::StatusCause;

const METADATA: Path<'static> = Path::root("metadata");
/// The finalizer of a foreground deletion.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that orphans dependents.
pub(crate) const ORPHAN: &str = "orphan";
/// The finalizers without a domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", ORPHAN, FOREGROUND];

/// Validates the metadata of a new object, whose name is already generated.
pub(crate) fn validate_new(object: &Value, namespaced: bool, strategy: &dyn Strategy) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let name = text(metadata, "name");
    if name.is_empty() {
        causes.push(METADATA.child("name").required("name or generateName is required"));
    } else {
        METADATA.child("name").invalid_all(name, strategy.check_name(name), &mut causes);
    }
    check_namespace(metadata, namespaced, &mut causes);
    check_all_times(metadata, &mut causes);
    check_finalizers(metadata, &mut causes);
    check_standard_finalizers(object, &mut causes);
    causes
}

/// Validates a change of the metadata.
pub(crate) fn validate_update(object: &Value, old: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let old = old.get("metadata").unwrap_or(&Value::Null);
    check_all_times(metadata, &mut causes);
    check_finalizers(metadata, &mut causes);
    if present(old, "deletionTimestamp").is_some() {
        check_no_new_finalizers(metadata, old, &mut causes);
    }
    let unchanging =
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];
    for field in unchanging {
        let (value, before) = (metadata.get(field), old.get(field));
        let (value, before) = (value.unwrap_or(&Value::Null), before.unwrap_or(&Value::Null));
        if !same(value, before) {
            causes.push(METADATA.child(field).invalid(value.clone(), "field is immutable"));
        }
    }
    check_standard_finalizers(object, &mut causes);
    causes
}

/// Validates the metadata in a template, which may only have labels and annotations.
pub(crate) fn check_template(metadata: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    labels::check_annotations(metadata, "annotations", path, causes);
    labels::check_labels(metadata, "labels", path, causes);
    let others = metadata.as_object().into_iter().flatten();
    for (field, value) in others {
        if !matches!(field.as_str(), "annotations" | "labels" | "creationTimestamp") && !value.is_null() {
            causes.push(path.child(field).forbidden("cannot be set"));
        }
    }
}

/// A finalizer without a domain, in the metadata or in the spec of a namespace, must be a standard
/// one.
pub(crate) fn check_standard_finalizer(name: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        causes
            .push(path.invalid(name, "name is neither a standard finalizer name nor is it fully qualified"));
    }
}

fn check_namespace(metadata: &Value, namespaced: bool, causes: &mut Vec<StatusCause>) {
    let (namespace, path) = (text(metadata, "namespace"), METADATA.child("namespace"));
    if !namespaced {
        if !namespace.is_empty() {
            causes.push(path.forbidden("not allowed on this type"));
        }
    } else if namespace.is_empty() {
        causes.push(path.required(""));
    } else {
        path.invalid_all(namespace, names::dns1123_label(namespace), causes);
    }
}

/// Checks for new and changed objects.
fn check_all_times(metadata: &Value, causes: &mut Vec<StatusCause>) {
    if let Some(generation) = int(metadata, "generation").filter(|generation| *generation < 0) {
        causes.push(METADATA.child("generation").invalid(generation, NOT_NEGATIVE));
    }
    labels::check_labels(metadata, "labels", &METADATA, causes);
    labels::check_annotations(metadata, "annotations", &METADATA, causes);
    check_owners(metadata, causes);
}

fn check_owners(metadata: &Value, causes: &mut Vec<StatusCause>) {
    let path = METADATA.child("ownerReferences");
    let owners = list(metadata, "ownerReferences");
    let mut controller: Option<&Value> = None;
    for (i, owner) in owners.iter().enumerate() {
        check_owner(owner, &path.index(i), causes);
        if !flag(owner, "controller") {
            continue;
        }
        if let Some(first) = controller {
            let named = |owner| format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            let all: Vec<String> = owners.iter().map(shown_owner).collect();
            let why = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                named(first),
                named(owner)
            );
            causes.push(invalid_shown(&path, &format!("[{}]", all.join(",")), &why));
        } else {
            controller = Some(owner);
        }
    }
}

fn check_owner(owner: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (version, kind) = (text(owner, "apiVersion"), text(owner, "kind"));
    if version.ends_with('/') {
        causes.push(path.child("apiVersion").invalid(version, "version must not be empty"));
    }
    for field in ["apiVersion", "kind", "name", "uid"] {
        if text(owner, field).is_empty() {
            causes.push(path.child(field).required("must not be empty"));
        }
    }
    if version == "v1" && kind == "Event" {
        let why = "/v1, Kind=Event is disallowed from being an owner";
        causes.push(invalid_shown(path, &shown_owner(owner), why));
    }
}

fn shown_owner(owner: &Value) -> String {
    let all = ["apiVersion", "kind", "name", "uid"].map(|field| (field, field, Shown::Text));
    let mut fields = all.to_vec();
    for field in ["controller", "blockOwnerDeletion"] {
        if present(owner, field).is_some() {
            fields.push((field, field, Shown::Null));
        }
    }
    super::checks::shown(owner, &fields)
}

fn check_finalizers(metadata: &Value, causes: &mut Vec<StatusCause>) {
    let path = METADATA.child("finalizers");
    for name in texts(metadata, "finalizers") {
        path.invalid_all(name, labels::key(name), causes);
    }
    let has = |name| texts(metadata, "finalizers").any(|finalizer| finalizer == name);
    if has(FOREGROUND) && has(ORPHAN) {
        let why = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        causes.push(path.invalid(metadata.get("finalizers").cloned(), &why));
    }
}

/// Upstream only warns about the finalizers of custom resources.
fn check_standard_finalizers(object: &Value, causes: &mut Vec<StatusCause>) {
    let group = text(object, "apiVersion").split_once('/').map_or("", |(group, _)| group);
    if group.contains('.') && !group.ends_with(".k8s.io") {
        return;
    }
    let path = METADATA.child("finalizers");
    let Some(metadata) = object.get("metadata") else { return };
    for (i, name) in texts(metadata, "finalizers").enumerate() {
        check_standard_finalizer(name, &path.index(i), causes);
    }
}

fn check_no_new_finalizers(metadata: &Value, old: &Value, causes: &mut Vec<StatusCause>) {
    let is_new = |name: &&str| !texts(old, "finalizers").any(|finalizer| finalizer == *name);
    let mut new: Vec<String> =
        texts(metadata, "finalizers").filter(is_new).map(|name| format!("{name:?}")).collect();
    new.sort();
    new.dedup();
    if !new.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            new.join(", ")
        );
        causes.push(METADATA.child("finalizers").forbidden(&why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(causes: &[StatusCause]) -> Vec<String> {
        causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn terminating_object_accepts_no_new_finalizers() {
        let old = json!({"metadata": {"name": "a", "deletionTimestamp": "t", "finalizers": ["x/a"]}});
        let mut object = old.clone();
        object["metadata"]["finalizers"] = json!(["x/a", "x/c", "x/b"]);
        let expected = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
                        found new finalizers []string{\"x/b\", \"x/c\"}";
        assert_eq!(wrong(&validate_update(&object, &old)), [expected]);
        object["metadata"]["finalizers"] = json!([]);
        assert!(validate_update(&object, &old).is_empty());
    }

    #[test]
    fn system_metadata_is_immutable() {
        let old = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let object = json!({"metadata": {"name": "b", "namespace": "n", "uid": "v"}});
        assert_eq!(
            wrong(&validate_update(&object, &old)),
            [
                "metadata.name: Invalid value: \"b\": field is immutable",
                "metadata.uid: Invalid value: \"v\": field is immutable",
            ]
        );
    }

    #[test]
    fn custom_resources_accept_any_finalizer_name() {
        let object =
            |version: &str| json!({"apiVersion": version, "metadata": {"name": "a", "finalizers": ["mine"]}});
        for (version, count) in [("example.com/v1", 0), ("v1", 1), ("apps/v1", 1), ("storage.k8s.io/v1", 1)] {
            let object = object(version);
            assert_eq!(validate_update(&object, &object).len(), count, "{version}");
        }
    }
}
