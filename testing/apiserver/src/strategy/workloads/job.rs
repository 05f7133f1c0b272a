//! Jobs.

use serde_json::{Value, json};

use super::super::checks::{immutable, invalid_shown, nulls, same};
use super::super::path::Path;
use super::super::traits::Strategy;
use super::super::{labels, names, status};
use super::{SPEC, default_parts, indexes, job_rules, job_status, template};
use crate::json::{entries, flag, int, object_mut, present, restore, set_default, text, text_at};
use crate::status::StatusCause;

/// Jobs.
pub(crate) struct Job;

const INDEXED: &str = "Indexed";
const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

impl Strategy for Job {
    fn default(&self, job: &mut Value) {
        default_parts(job);
        nulls(&mut job["status"], "conditions", &["lastProbeTime", "lastTransitionTime"]);
        let spec = &mut job["spec"];
        if present(spec, "completions").is_none() && present(spec, "parallelism").is_none() {
            set_default(spec, "completions", 1);
        }
        set_default(spec, "parallelism", 1);
        let limit = if present(spec, "backoffLimitPerIndex").is_some() { i32::MAX } else { 6 };
        set_default(spec, "backoffLimit", limit);
        default_spec(spec);
        set_default(spec, "completionMode", "NonIndexed");
        set_default(spec, "suspend", false);
        let replacement =
            if present(spec, "podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
        set_default(spec, "podReplacementPolicy", replacement);
        set_default(spec, "manualSelector", false);
        default_labels(job);
    }

    fn prepare_for_create(&self, job: &mut Value) {
        job["status"] = json!({});
        if !flag(&job["spec"], "manualSelector") {
            generate_selector(job);
        }
        template::drop_disabled(&mut job["spec"], "template");
        // Upstream applies defaults again when it reads the stored object.
        default_labels(job);
    }

    fn prepare_for_update(&self, job: &mut Value, old: &Value) {
        restore(job, old, "status");
    }

    fn prepare_for_status_update(&self, job: &mut Value, old: &Value) {
        status::only_status(job, old);
    }

    fn validate(&self, job: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        check_generated_selector(job, &mut causes);
        let spec = &job["spec"];
        job_rules::check_spec(spec, &SPEC, &mut causes);
        check_selector(spec, &mut causes);
        check_host_names(job, &mut causes);
        causes
    }

    fn validate_update(&self, job: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(job);
        let (spec, old_spec) = (&job["spec"], &old["spec"]);
        check_completions(spec, old_spec, &mut causes);
        immutable(spec, old_spec, "selector", &SPEC, &mut causes);
        check_template_change(job, old, &mut causes);
        for field in
            ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
        {
            immutable(spec, old_spec, field, &SPEC, &mut causes);
        }
        causes
    }

    fn validate_status_update(&self, job: &Value, old: &Value) -> Vec<StatusCause> {
        job_status::check(job, old)
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.successful"]
    }

    fn field(&self, job: &Value, name: &str) -> String {
        match name {
            "status.successful" => int(&job["status"], "succeeded").unwrap_or_default().to_string(),
            _ => String::new(),
        }
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// Fills in the defaults that jobs and job templates share: the pod template and condition
/// patterns.
pub(super) fn default_spec(spec: &mut Value) {
    template::default(spec, "template");
    let rules = spec.pointer_mut("/podFailurePolicy/rules").and_then(Value::as_array_mut);
    for rule in rules.into_iter().flatten() {
        for pattern in rule.get_mut("onPodConditions").and_then(Value::as_array_mut).into_iter().flatten() {
            set_default(pattern, "status", "True");
        }
    }
}

/// A job without labels gets those of its template.
fn default_labels(job: &mut Value) {
    let labels = job.pointer("/spec/template/metadata/labels").filter(|labels| labels.is_object()).cloned();
    object_mut(job, "metadata");
    if let Some(labels) = labels
        && entries(&job["metadata"], "labels").next().is_none()
    {
        job["metadata"]["labels"] = labels;
    }
}

/// Generates the selector for the job's UID.
fn generate_selector(job: &mut Value) {
    let uid = text_at(job, "/metadata/uid").to_owned();
    let name = text_at(job, "/metadata/name").to_owned();
    // If the job has the same labels as its template, added labels go to both: upstream shares one
    // map.
    let is_shared = job["metadata"].get("labels") == job["spec"]["template"]["metadata"].get("labels");
    let metadata = &mut job["spec"]["template"]["metadata"];
    if let Some(labels) = object_mut(metadata, "labels") {
        for (keys, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
            for key in keys {
                labels.entry(key).or_insert_with(|| value.as_str().into());
            }
        }
        if is_shared {
            job["metadata"]["labels"] = labels.clone().into();
        }
    }
    object_mut(&mut job["spec"], "selector");
    if let Some(labels) = object_mut(&mut job["spec"]["selector"], "matchLabels") {
        labels.entry(UID_LABELS[0]).or_insert_with(|| uid.into());
    }
}

fn check_generated_selector(job: &Value, causes: &mut Vec<StatusCause>) {
    let spec = &job["spec"];
    let Some(selector) = present(spec, "selector") else { return };
    if flag(spec, "manualSelector") {
        return;
    }
    let (uid, name) = (text_at(job, "/metadata/uid"), text_at(job, "/metadata/name"));
    let labels = &spec["template"]["metadata"]["labels"];
    let template = SPEC.child("template");
    let metadata = template.child("metadata");
    let path = metadata.child("labels");
    let expected =
        [(UID_LABELS[1], uid), (NAME_LABELS[1], name), (UID_LABELS[0], uid), (NAME_LABELS[0], name)];
    for (key, value) in expected {
        match present(labels, key).and_then(Value::as_str) {
            None => causes.push(path.key(key).required(&format!("must be '{value}'"))),
            Some(found) if found != value => {
                causes.push(path.key(key).invalid(labels.clone(), &format!("must be '{value}'")));
            }
            Some(_) => {}
        }
    }
    let own: Value = expected.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
    if template::is_sound(selector) && !labels::selects(selector, &own) {
        causes.push(SPEC.child("selector").invalid(selector.clone(), "`selector` not auto-generated"));
    }
}

fn check_selector(spec: &Value, causes: &mut Vec<StatusCause>) {
    let path = SPEC.child("selector");
    let selector = spec.get("selector").unwrap_or(&Value::Null);
    if selector.is_null() {
        causes.push(path.required(""));
    } else {
        labels::check_selector(selector, &path, causes);
    }
    if selector.is_null() || template::is_sound(selector) {
        template::check_selected(&spec["template"], selector, &SPEC.child("template"), causes);
    }
}

/// The index of an indexed job becomes part of the pods' host names.
fn check_host_names(job: &Value, causes: &mut Vec<StatusCause>) {
    let (spec, name) = (&job["spec"], text_at(job, "/metadata/name"));
    let completions = indexes::completions(spec);
    if text(spec, "completionMode") == INDEXED && completions > 0 {
        let longest = format!("{name}-{}", completions - 1);
        if !names::dns1123_label(&longest).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {longest}");
            causes.push(Path::root("metadata").child("name").invalid(name, &why));
        }
    }
}

fn check_completions(spec: &Value, old: &Value, causes: &mut Vec<StatusCause>) {
    if text(spec, "completionMode") != INDEXED {
        immutable(spec, old, "completions", &SPEC, causes);
        return;
    }
    let completions = int(spec, "completions");
    if let Some(completions) = completions.filter(|_| int(old, "completions") != int(spec, "completions"))
        && Some(completions) != int(spec, "parallelism")
    {
        let why = "can only be modified in tandem with spec.parallelism";
        causes.push(SPEC.child("completions").invalid(completions, why));
    }
}

/// The template is immutable, but a suspended job may change scheduling directives and resources.
fn check_template_change(job: &Value, old: &Value, causes: &mut Vec<StatusCause>) {
    let template = &job["spec"]["template"];
    let mut before = old["spec"]["template"].clone();
    let is_suspended = flag(&old["spec"], "suspend");
    let is_idle = (present(&old["status"], "startTime").is_none() || job_status::is_true(old, "Suspended"))
        && int(&old["status"], "active").unwrap_or_default() == 0;
    let is_mutable = is_suspended && is_idle;
    if is_mutable {
        template::take_scheduling_directives(template, &mut before);
        template::take_resources(template, &mut before);
    }
    if is_mutable {
        if !same(&template["spec"], &before["spec"]) {
            let path = SPEC.child("template.spec");
            causes.push(invalid_shown(&path, &template["spec"].to_string(), "field is immutable"));
        }
    } else if !same(template, &before) {
        causes.push(SPEC.child("template").invalid(template.clone(), "field is immutable"));
    }
}
