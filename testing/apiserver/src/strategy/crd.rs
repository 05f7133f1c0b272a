//! CustomResourceDefinitions.

use serde_json::{Value, json};

use super::checks::{invalid_shown, one_of};
use super::path::Path;
use super::traits::Strategy;
use super::{names, status};
use crate::json::{flag, list, object_mut, present, restore, set_default, text, text_at, texts};
use crate::status::StatusCause;

/// CustomResourceDefinitions.
pub(crate) struct CustomResourceDefinition;

const SPEC: Path<'static> = Path::root("spec");
const NAMES: [&str; 4] = ["plural", "singular", "kind", "listKind"];
const APPROVED: &str = "api-approved.kubernetes.io";
const ONE_STORED: &str = "must have exactly one version marked as storage version";

impl Strategy for CustomResourceDefinition {
    fn default(&self, definition: &mut Value) {
        for field in ["spec", "status"] {
            object_mut(definition, field);
        }
        let spec = &mut definition["spec"];
        object_mut(spec, "names");
        default_names(&mut spec["names"]);
        set_default(spec, "conversion", json!({"strategy": "None"}));
        let status = &mut definition["status"];
        object_mut(status, "acceptedNames");
        for field in ["plural", "kind"] {
            set_default(&mut status["acceptedNames"], field, "");
        }
        let Some(status) = status.as_object_mut() else { return };
        for field in ["conditions", "storedVersions"] {
            let items = status.entry(field).or_insert(Value::Null);
            if items.as_array().is_some_and(Vec::is_empty) {
                *items = Value::Null;
            }
        }
        super::checks::nulls(&mut definition["status"], "conditions", &["lastTransitionTime"]);
    }

    fn prepare_for_create(&self, definition: &mut Value) {
        status::reset(definition);
        self.default(definition);
        remember_stored(definition);
    }

    fn prepare_for_update(&self, definition: &mut Value, old: &Value) {
        restore(definition, old, "status");
        remember_stored(definition);
    }

    fn prepare_for_status_update(&self, definition: &mut Value, old: &Value) {
        status::only_status(definition, old);
        restore(&mut definition["metadata"], &old["metadata"], "labels");
        restore(&mut definition["metadata"], &old["metadata"], "annotations");
        remember_stored(definition);
    }

    fn validate(&self, definition: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &definition["spec"];
        let name = text_at(definition, "/metadata/name");
        let (group, plural) = (text(spec, "group"), text_at(spec, "/names/plural"));
        if name != format!("{plural}.{group}") {
            let why = r#"must be spec.names.plural+"."+spec.group"#;
            causes.push(Path::root("metadata").child("name").invalid(name, why));
        }
        check_spec(spec, &mut causes);
        check_stored(definition, &mut causes);
        check_approved(definition, group, &mut causes);
        causes
    }

    fn validate_update(&self, definition: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let (spec, before) = (&definition["spec"], &old["spec"]);
        check_spec(spec, &mut causes);
        let conditions = list(&old["status"], "conditions");
        let is_established = conditions
            .iter()
            .any(|condition| text(condition, "type") == "Established" && text(condition, "status") == "True");
        let names = SPEC.child("names");
        let mut keep = |path: Path<'_>, pointer: &str| {
            let (value, before) = (text_at(spec, pointer), text_at(before, pointer));
            if value != before {
                causes.push(path.invalid(value, "field is immutable"));
            }
        };
        if is_established {
            keep(SPEC.child("scope"), "/scope");
            keep(names.child("kind"), "/names/kind");
        }
        keep(SPEC.child("group"), "/group");
        keep(names.child("plural"), "/names/plural");
        check_stored(definition, &mut causes);
        causes
    }

    fn validate_status_update(&self, _definition: &Value, _old: &Value) -> Vec<StatusCause> {
        Vec::new()
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

/// Marks a definition as accepted and established.
pub(crate) fn establish(definition: &mut Value, now: &str) {
    let names = definition["spec"]["names"].clone();
    object_mut(definition, "status");
    let status = &mut definition["status"];
    status["acceptedNames"] = names;
    let conditions = [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ];
    let is_said = |kind: &str| {
        list(status, "conditions")
            .iter()
            .any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
    };
    let missing: Vec<Value> = conditions
        .iter()
        .filter(|(kind, ..)| !is_said(kind))
        .map(|(kind, reason, message)| {
            json!({
                "type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message,
            })
        })
        .collect();
    let is_renewed =
        |condition: &&Value| missing.iter().all(|new| text(new, "type") != text(condition, "type"));
    let mut all: Vec<Value> = list(status, "conditions").iter().filter(is_renewed).cloned().collect();
    all.extend(missing);
    status["conditions"] = all.into();
}

fn default_names(names: &mut Value) {
    let kind = text(names, "kind").to_owned();
    set_default(names, "singular", kind.to_lowercase());
    if !kind.is_empty() {
        set_default(names, "listKind", format!("{kind}List"));
    }
}

/// Adds the storage version to the stored versions.
fn remember_stored(definition: &mut Value) {
    let versions = list(&definition["spec"], "versions");
    let stored = versions.iter().find(|version| flag(version, "storage"));
    let Some(name) = stored.map(|version| text(version, "name").to_owned()) else { return };
    object_mut(definition, "status");
    let status = &mut definition["status"];
    if texts(status, "storedVersions").all(|version| version != name) {
        let mut versions = list(status, "storedVersions").to_vec();
        versions.push(name.into());
        status["storedVersions"] = versions.into();
    }
}

fn check_spec(spec: &Value, causes: &mut Vec<StatusCause>) {
    let group = text(spec, "group");
    if group.is_empty() {
        causes.push(SPEC.child("group").required(""));
    } else {
        let path = SPEC.child("group");
        path.invalid_all(group, names::dns1123_subdomain(group), causes);
        if !group.contains('.') && names::dns1123_subdomain(group).is_empty() {
            causes.push(path.invalid(group, "should be a domain with at least one dot"));
        }
    }
    if text(spec, "scope").is_empty() {
        causes.push(SPEC.child("scope").required(""));
    } else {
        one_of(spec, "scope", &["Cluster", "Namespaced"], &SPEC, causes);
    }
    let versions = list(spec, "versions");
    let path = SPEC.child("versions");
    for (i, version) in versions.iter().enumerate() {
        check_version(version, versions.len() == 1, &path.index(i), causes);
    }
    check_versions(versions, &path, causes);
    check_names(&spec["names"], &SPEC.child("names"), causes);
}

fn check_version(version: &Value, is_only: bool, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let name = text(version, "name");
    path.child("name").invalid_all(name, names::dns1035_label(name), causes);
    if present(&version["schema"], "openAPIV3Schema").is_none() {
        let path = path.child("schema");
        causes.push(path.child("openAPIV3Schema").required(""));
    }
    // Upstream moves the fields of a sole version into the spec, so errors have that path.
    let own;
    let path = if is_only {
        &SPEC
    } else {
        own = *path;
        &own
    };
    let Some(scale) = present(&version["subresources"], "scale") else { return };
    let path = path.child("subresources");
    let path = path.child("scale");
    for (field, root) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let (value, path) = (text(scale, field), path.child(field));
        if value.is_empty() {
            causes.push(path.required(""));
        } else if !value.starts_with('.') || value.contains(['[', ']', '\\']) {
            causes.push(path.invalid(value, "must be a simple json path starting with ."));
        } else if !value.starts_with(&format!("{root}.")) {
            causes.push(path.invalid(value, &format!("should be a json path under {root}")));
        }
    }
}

fn check_versions(versions: &[Value], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let name = |version: &Value| text(version, "name").to_owned();
    let is_twice =
        |(i, version): (usize, &Value)| versions[..i].iter().any(|other| name(other) == name(version));
    let shown = Value::from(versions.to_vec()).to_string();
    if versions.iter().enumerate().any(is_twice) {
        causes.push(invalid_shown(path, &shown, "must contain unique version names"));
    }
    if versions.iter().filter(|version| flag(version, "storage")).count() != 1 {
        causes.push(invalid_shown(path, &shown, ONE_STORED));
    }
    // `spec.version` names the first version.
    if let Some(first) = versions.first() {
        let name = name(first);
        SPEC.child("version").invalid_all(&name, names::dns1035_label(&name), causes);
    }
}

fn check_names(all: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    for field in NAMES {
        let (name, path) = (text(all, field), path.child(field));
        if name.is_empty() {
            causes.push(path.required(""));
            continue;
        }
        match field {
            "plural" | "singular" => path.invalid_all(name, names::dns1035_label(name), causes),
            _ => {
                for why in names::dns1035_label(&name.to_lowercase()) {
                    let why = format!("may have mixed case, but should otherwise match: {why}");
                    causes.push(path.invalid(name, &why));
                }
            }
        }
        if field == "singular" {
            for list in ["shortNames", "categories"] {
                let path = Path::root("spec");
                let names_path = path.child("names");
                let path = names_path.child(list);
                for (i, name) in texts(all, list).enumerate() {
                    path.index(i).invalid_all(name, names::dns1035_label(name), causes);
                }
            }
        }
    }
    let (kind, list_kind) = (text(all, "kind"), text(all, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        causes.push(path.child("listKind").invalid(list_kind, "kind and listKind may not be the same"));
    }
}

fn check_stored(definition: &Value, causes: &mut Vec<StatusCause>) {
    let status = Path::root("status");
    let path = status.child("storedVersions");
    let versions = list(&definition["spec"], "versions");
    let stored: Vec<&str> = texts(&definition["status"], "storedVersions").collect();
    if stored.is_empty() {
        let none = definition["status"].get("storedVersions").cloned().unwrap_or_default();
        causes.push(path.invalid(none, "must have at least one stored version"));
        return;
    }
    for (i, name) in stored.iter().enumerate() {
        if versions.iter().all(|version| text(version, "name") != *name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            causes.push(path.index(i).invalid(*name, &why));
        }
    }
    let storage = versions.iter().rev().find(|version| flag(version, "storage"));
    if let Some(name) = storage.map(|version| text(version, "name")).filter(|name| !stored.contains(name)) {
        let shown = definition["status"].get("storedVersions").cloned().unwrap_or_default();
        causes.push(path.invalid(shown, &format!("must have the storage version {name}")));
    }
}

/// Upstream's own groups require an approval.
fn check_approved(definition: &Value, group: &str, causes: &mut Vec<StatusCause>) {
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')));
    let approval = text(&definition["metadata"]["annotations"], APPROVED);
    if is_protected && approval.is_empty() {
        let metadata = Path::root("metadata");
        let why = format!(
            r#"protected groups must have approval annotation "{APPROVED}", see https://github.com/kubernetes/enhancements/pull/1111"#
        );
        causes.push(metadata.child("annotations").key(APPROVED).required(&why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn established_definition_is_marked_once() {
        let mut definition =
            json!({"spec": {"names": {"plural": "foos", "kind": "Foo"}}, "status": {"conditions": null}});
        establish(&mut definition, "2024-01-01T00:00:00Z");
        let once = definition.clone();
        establish(&mut definition, "2025-01-01T00:00:00Z");
        assert_eq!(definition, once);
        assert_eq!(definition["status"]["acceptedNames"]["kind"], "Foo");
        assert_eq!(definition["status"]["conditions"][1]["reason"], "InitialNamesAccepted");
    }
}
