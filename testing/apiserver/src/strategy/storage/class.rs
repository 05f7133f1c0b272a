//! Storage classes.

use serde_json::Value;

use super::super::checks::{immutable_by_tag, one_of_here};
use super::super::labels;
use super::super::path::Path;
use super::super::traits::{Lookup, Strategy};
use crate::json::{entries, list, set_default, text, text_at};
use crate::status::StatusCause;

/// Storage classes.
pub(crate) struct StorageClass;

const DEFAULT_ANNOTATIONS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const MOST_PARAMETERS: usize = 512;
const PARAMETERS_SIZE: usize = 256 * 1024;

impl Strategy for StorageClass {
    fn default(&self, class: &mut Value) {
        set_default(class, "provisioner", "");
        set_default(class, "reclaimPolicy", "Delete");
        set_default(class, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, class: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let (provisioner, path) = (text(class, "provisioner"), Path::root("provisioner"));
        if provisioner.is_empty() {
            causes.push(path.required(""));
        } else {
            let provisioner = provisioner.to_lowercase();
            path.invalid_all(&provisioner, labels::key(&provisioner), &mut causes);
        }
        check_parameters(class, &mut causes);
        let path = Path::root("reclaimPolicy");
        one_of_here(class.get("reclaimPolicy"), &["Delete", "Retain"], &path, &mut causes);
        let path = Path::root("volumeBindingMode");
        one_of_here(
            class.get("volumeBindingMode"),
            &["Immediate", "WaitForFirstConsumer"],
            &path,
            &mut causes,
        );
        check_topologies(class, &mut causes);
        causes
    }

    fn validate_update(&self, class: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(class);
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            immutable_by_tag(class, old, field, &mut causes);
        }
        causes
    }
}

/// The default class of claims: the newest of those marked as default.
pub(crate) fn default_class(objects: &dyn Lookup) -> Option<String> {
    let classes = objects.list("storage.k8s.io", "storageclasses", "");
    let is_default = |class: &&Value| {
        let annotations = &class["metadata"]["annotations"];
        DEFAULT_ANNOTATIONS.iter().any(|key| text(annotations, key) == "true")
    };
    let created = |class: &&Value| text_at(class, "/metadata/creationTimestamp").to_owned();
    let name = |class: &&Value| text_at(class, "/metadata/name").to_owned();
    let newest = classes
        .iter()
        .filter(is_default)
        .max_by(|left, right| created(left).cmp(&created(right)).then_with(|| name(right).cmp(&name(left))));
    newest.map(|class| name(&class))
}

fn check_parameters(class: &Value, causes: &mut Vec<StatusCause>) {
    let path = Path::root("parameters");
    let parameters: Vec<_> = entries(class, "parameters").collect();
    if parameters.len() > MOST_PARAMETERS {
        causes.push(path.too_long(MOST_PARAMETERS));
        return;
    }
    if parameters.iter().any(|(key, _)| key.is_empty()) {
        causes.push(path.invalid("", "field can not be empty."));
    }
    let size: usize =
        parameters.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > PARAMETERS_SIZE {
        causes.push(path.too_long(PARAMETERS_SIZE));
    }
}

fn check_topologies(class: &Value, causes: &mut Vec<StatusCause>) {
    let path = Path::root("allowedTopologies");
    let terms = list(class, "allowedTopologies");
    for (i, term) in terms.iter().enumerate() {
        let path = path.index(i);
        let path = path.child("matchLabelExpressions");
        let requirements = list(term, "matchLabelExpressions");
        for (j, requirement) in requirements.iter().enumerate() {
            let path = path.index(j);
            let key = text(requirement, "key");
            check_values(requirement, &path, causes);
            labels::check_key(key, &path.child("key"), causes);
            if requirements[..j].iter().any(|other| text(other, "key") == key) {
                causes.push(path.child("key").duplicate(key));
            }
        }
        if terms[..i].contains(term) {
            causes.push(path.duplicate(""));
        }
    }
}

fn check_values(requirement: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (values, path) = (list(requirement, "values"), path.child("values"));
    if values.is_empty() {
        causes.push(path.required(""));
    }
    for (i, value) in values.iter().enumerate() {
        if values[..i].contains(value) {
            causes.push(path.index(i).duplicate(value.clone()));
        }
    }
}
