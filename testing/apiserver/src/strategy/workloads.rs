//! Workloads: kinds that create pods from a template.

mod cronjob;
mod daemonset;
mod deployment;
mod indexes;
mod job;
mod job_rules;
mod job_status;
mod replicas;
mod schedule;
mod statefulset;
pub(crate) mod template;

pub(crate) use cronjob::CronJob;
pub(crate) use daemonset::DaemonSet;
pub(crate) use deployment::Deployment;
pub(crate) use job::Job;
pub(crate) use replicas::{ReplicaSet, ReplicationController};
pub(crate) use statefulset::StatefulSet;

use serde_json::{Value, json};

use super::checks::{immutable_root, not_negative};
use super::names;
use super::path::Path;
use super::traits::Strategy;
use crate::json::{object_mut, present};
use crate::status::StatusCause;

const SPEC: Path<'static> = Path::root("spec");
const STATUS: Path<'static> = Path::root("status");
const MORE_THAN_ALL: &str = "cannot be greater than status.replicas";

/// Pod templates.
pub(crate) struct PodTemplate;

impl Strategy for PodTemplate {
    fn default(&self, object: &mut Value) {
        template::default(object, "template");
    }

    fn validate(&self, object: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        template::check(&object["template"], &Path::root("template"), &mut causes);
        causes
    }

    fn validate_update(&self, object: &Value, _old: &Value) -> Vec<StatusCause> {
        self.validate(object)
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn changes_generation(&self, object: &Value, old: &Value) -> bool {
        object.get("template") != old.get("template")
    }
}

/// Revisions of templates, kept by controllers.
pub(crate) struct ControllerRevision;

impl Strategy for ControllerRevision {
    fn default(&self, revision: &mut Value) {
        if let Some(fields) = revision.as_object_mut() {
            fields.entry("revision").or_insert(json!(0));
        }
    }

    fn validate(&self, revision: &Value) -> Vec<StatusCause> {
        let mut causes = check_revision(revision);
        match present(revision, "data") {
            None => causes.push(Path::root("data").required("data is mandatory")),
            Some(Value::Object(_)) => {}
            Some(_) => causes.push(Path::root("data").required("data must be a valid JSON object")),
        }
        causes
    }

    fn validate_update(&self, revision: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = check_revision(revision);
        immutable_root(revision, old, "data", &mut causes);
        causes
    }
}

fn check_revision(revision: &Value) -> Vec<StatusCause> {
    let number = revision["revision"].as_i64().filter(|number| *number < 0);
    number
        .map(|number| Path::root("revision").invalid(number, super::checks::NOT_NEGATIVE))
        .into_iter()
        .collect()
}

/// Ensures that a spec and a status exist.
fn default_parts(object: &mut Value) {
    for field in ["spec", "status"] {
        object_mut(object, field);
    }
}

/// Rejects negative numbers in the status.
fn check_counts(status: &Value, fields: &[&str], causes: &mut Vec<StatusCause>) {
    not_negative(status, fields, &STATUS, causes);
}

/// A name that also becomes a label of pods.
fn label_name(name: &str) -> names::Wrong {
    names::dns1123_label(name)
}
