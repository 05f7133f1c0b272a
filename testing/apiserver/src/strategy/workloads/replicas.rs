//! Replica sets and replication controllers.

use serde_json::{Value, json};

use super::super::checks::{immutable, not_more_than, not_negative, nulls};
use super::super::status;
use super::super::traits::Strategy;
use super::{MORE_THAN_ALL, SPEC, STATUS, default_parts, template};
use crate::json::{entries, int, object_mut, present, restore, set_default};
use crate::status::StatusCause;

/// Replica sets.
pub(crate) struct ReplicaSet;

/// Replication controllers.
pub(crate) struct ReplicationController;

const COUNTS: [&str; 5] =
    ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];

impl Strategy for ReplicaSet {
    fn default(&self, set: &mut Value) {
        default_parts(set);
        nulls(&mut set["status"], "conditions", &["lastTransitionTime"]);
        set_default(&mut set["status"], "replicas", 0);
        set_default(&mut set["spec"], "replicas", 1);
        template::default(&mut set["spec"], "template");
    }

    fn prepare_for_create(&self, set: &mut Value) {
        set["status"] = json!({"replicas": 0});
        template::drop_disabled(&mut set["spec"], "template");
    }

    fn prepare_for_update(&self, set: &mut Value, old: &Value) {
        restore(set, old, "status");
    }

    fn prepare_for_status_update(&self, set: &mut Value, old: &Value) {
        status::only_status(set, old);
    }

    fn validate(&self, set: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        not_negative(&set["spec"], &["replicas", "minReadySeconds"], &SPEC, &mut causes);
        check_selector_and_template(&set["spec"], &mut causes);
        causes
    }

    fn validate_update(&self, set: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(set);
        immutable(&set["spec"], &old["spec"], "selector", &SPEC, &mut causes);
        causes
    }

    fn validate_status_update(&self, set: &Value, _old: &Value) -> Vec<StatusCause> {
        check_status(&set["status"])
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.replicas"]
    }

    fn field(&self, set: &Value, name: &str) -> String {
        status_replicas(set, name)
    }

    fn has_generation(&self) -> bool {
        true
    }
}

impl Strategy for ReplicationController {
    fn default(&self, controller: &mut Value) {
        default_parts(controller);
        nulls(&mut controller["status"], "conditions", &["lastTransitionTime"]);
        set_default(&mut controller["status"], "replicas", 0);
        let spec = &mut controller["spec"];
        set_default(spec, "replicas", 1);
        if present(spec, "template").is_some() {
            template::default(spec, "template");
        }
        let labels = spec.pointer("/template/metadata/labels").filter(|labels| labels.is_object()).cloned();
        let Some(labels) = labels else { return };
        if entries(spec, "selector").next().is_none() {
            spec["selector"] = labels.clone();
        }
        object_mut(controller, "metadata");
        if entries(&controller["metadata"], "labels").next().is_none() {
            controller["metadata"]["labels"] = labels;
        }
    }

    fn prepare_for_create(&self, controller: &mut Value) {
        controller["status"] = json!({"replicas": 0});
        template::drop_disabled(&mut controller["spec"], "template");
    }

    fn prepare_for_update(&self, controller: &mut Value, old: &Value) {
        restore(controller, old, "status");
    }

    fn prepare_for_status_update(&self, controller: &mut Value, old: &Value) {
        status::only_status(controller, old);
    }

    fn validate(&self, controller: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &controller["spec"];
        let is_empty = entries(spec, "selector").next().is_none();
        if is_empty {
            causes.push(SPEC.child("selector").required(""));
        }
        not_negative(spec, &["replicas", "minReadySeconds"], &SPEC, &mut causes);
        let path = SPEC.child("template");
        let Some(template) = present(spec, "template") else {
            causes.push(path.required(""));
            return causes;
        };
        if !is_empty {
            let selector = json!({"matchLabels": spec["selector"]});
            template::check_selected(template, &selector, &path, &mut causes);
        }
        template::check(template, &path, &mut causes);
        template::check_lasting(template, "ReplicationController", &path, &mut causes);
        causes
    }

    fn validate_update(&self, controller: &Value, _old: &Value) -> Vec<StatusCause> {
        self.validate(controller)
    }

    fn validate_status_update(&self, controller: &Value, _old: &Value) -> Vec<StatusCause> {
        check_status(&controller["status"])
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.replicas"]
    }

    fn field(&self, controller: &Value, name: &str) -> String {
        status_replicas(controller, name)
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// Validates the selector and template of deployments and replica sets.
pub(super) fn check_selector_and_template(spec: &Value, causes: &mut Vec<StatusCause>) {
    // Upstream's text says "deployment" for replica sets, too.
    let is_sound = template::check_selector(spec, "deployment", &SPEC, causes);
    let selector = spec.get("selector").unwrap_or(&Value::Null);
    if !is_sound {
        causes.push(SPEC.child("selector").invalid(selector.clone(), "invalid label selector"));
        return;
    }
    let (template, path) = (&spec["template"], SPEC.child("template"));
    if present(spec, "selector").is_none() || !template::is_empty(selector) {
        template::check_selected(template, selector, &path, causes);
    }
    template::check(template, &path, causes);
    template::check_lasting(template, "ReplicaSet", &path, causes);
}

fn check_status(status: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    super::check_counts(status, &COUNTS, &mut causes);
    super::check_counts(status, &["terminatingReplicas"], &mut causes);
    for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        not_more_than(status, field, "replicas", MORE_THAN_ALL, &STATUS, &mut causes);
    }
    let why = "cannot be greater than readyReplicas";
    not_more_than(status, "availableReplicas", "readyReplicas", why, &STATUS, &mut causes);
    causes
}

fn status_replicas(object: &Value, name: &str) -> String {
    match name {
        "status.replicas" => int(&object["status"], "replicas").unwrap_or_default().to_string(),
        _ => String::new(),
    }
}
