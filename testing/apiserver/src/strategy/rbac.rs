//! Roles and role bindings. They are stored but not enforced.

use serde_json::Value;

use super::checks::{Shown, invalid_shown, shown};
use super::path::Path;
use super::traits::Strategy;
use super::{labels, names};
use crate::json::{list, list_mut, object_mut, present, set_default, text};
use crate::status::StatusCause;

/// Roles and cluster roles.
pub(crate) struct Role {
    /// Whether the role is namespaced.
    pub namespaced: bool,
}

/// Role bindings and cluster role bindings.
pub(crate) struct RoleBinding {
    /// Whether the binding is namespaced.
    pub namespaced: bool,
}

const GROUP: &str = "rbac.authorization.k8s.io";

impl Strategy for Role {
    fn default(&self, role: &mut Value) {
        if let Some(fields) = role.as_object_mut() {
            fields.entry("rules").or_insert(Value::Null);
        }
        for rule in list_mut(role, "rules") {
            if let Some(rule) = rule.as_object_mut() {
                rule.entry("verbs").or_insert(Value::Null);
            }
        }
    }

    fn validate(&self, role: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let path = Path::root("rules");
        for (i, rule) in list(role, "rules").iter().enumerate() {
            check_rule(rule, self.namespaced, &path.index(i), &mut causes);
        }
        if let Some(aggregation) = present(role, "aggregationRule") {
            let (selectors, path) =
                (list(aggregation, "clusterRoleSelectors"), Path::root("aggregationRule"));
            let path = path.child("clusterRoleSelectors");
            if selectors.is_empty() {
                let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
                causes.push(path.required(why));
            }
            for (i, selector) in selectors.iter().enumerate() {
                labels::check_selector(selector, &path.index(i), &mut causes);
            }
        }
        causes
    }

    fn validate_update(&self, role: &Value, _old: &Value) -> Vec<StatusCause> {
        self.validate(role)
    }

    fn check_name(&self, name: &str) -> names::Wrong {
        names::path_segment(name)
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

fn check_rule(rule: &Value, namespaced: bool, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let has = |field| !list(rule, field).is_empty();
    check_subjects_of_rule(rule, namespaced, path, causes);
    if !has("verbs") {
        causes.push(path.child("verbs").required(""));
    }
}

fn check_subjects_of_rule(rule: &Value, namespaced: bool, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let has = |field| !list(rule, field).is_empty();
    if has("nonResourceURLs") {
        let path = path.child("nonResourceURLs");
        let urls = list(rule, "nonResourceURLs");
        if namespaced {
            let why = "namespaced rules cannot apply to non-resource URLs";
            causes.push(path.invalid(urls.to_vec(), why));
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            causes.push(path.invalid(urls.to_vec(), why));
        }
        return;
    }
    for (field, what) in [("apiGroups", "api group"), ("resources", "resource")] {
        if !has(field) {
            let why = format!("resource rules must supply at least one {what}");
            causes.push(path.child(field).required(&why));
        }
    }
}

impl Strategy for RoleBinding {
    fn default(&self, binding: &mut Value) {
        object_mut(binding, "roleRef");
        let role = &mut binding["roleRef"];
        for (field, value) in [("apiGroup", GROUP), ("kind", ""), ("name", "")] {
            set_default(role, field, value);
        }
        for subject in list_mut(binding, "subjects") {
            if matches!(text(subject, "kind"), "User" | "Group") {
                set_default(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, binding: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let (role, path) = (&binding["roleRef"], Path::root("roleRef"));
        let group = text(role, "apiGroup");
        if group != GROUP {
            causes.push(path.child("apiGroup").not_supported(group, &[GROUP]));
        }
        let kinds: &[&str] = if self.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        let kind = text(role, "kind");
        if !kinds.contains(&kind) {
            causes.push(path.child("kind").not_supported(kind, kinds));
        }
        let name = text(role, "name");
        if name.is_empty() {
            causes.push(path.child("name").required(""));
        } else {
            path.child("name").invalid_all(name, names::path_segment(name), &mut causes);
        }
        let path = Path::root("subjects");
        for (i, subject) in list(binding, "subjects").iter().enumerate() {
            check_subject(subject, self.namespaced, &path.index(i), &mut causes);
        }
        causes
    }

    fn validate_update(&self, binding: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(binding);
        if binding.get("roleRef") != old.get("roleRef") {
            let fields = [
                ("APIGroup", "apiGroup", Shown::Text),
                ("Kind", "kind", Shown::Text),
                ("Name", "name", Shown::Text),
            ];
            let shown = shown(&binding["roleRef"], &fields);
            causes.push(invalid_shown(&Path::root("roleRef"), &shown, "field is immutable"));
        }
        causes
    }

    fn check_name(&self, name: &str) -> names::Wrong {
        names::path_segment(name)
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

fn check_subject(subject: &Value, namespaced: bool, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        causes.push(path.child("name").required(""));
    }
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                path.child("name").invalid_all(name, names::dns1123_subdomain(name), causes);
            }
            if !group.is_empty() {
                causes.push(path.child("apiGroup").not_supported(group, &[""]));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                causes.push(path.child("namespace").required(""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                causes.push(path.child("apiGroup").not_supported(group, &[GROUP]));
            }
        }
        kind => {
            let kinds = ["ServiceAccount", "User", "Group"];
            causes.push(path.child("kind").not_supported(kind, &kinds));
        }
    }
}
