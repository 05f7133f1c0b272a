//! Daemon sets.

use serde_json::{Value, json};

use super::super::checks::{
    Shown, at_most_all, immutable, int_or_percent, not_decremented, not_negative, not_supported_shown, nulls,
    number_of, shown,
};
use super::super::path::Path;
use super::super::status;
use super::super::traits::Strategy;
use super::{SPEC, STATUS, default_parts, template};
use crate::json::{object_mut, present, restore, set_default, text};
use crate::status::StatusCause;

/// Daemon sets.
pub(crate) struct DaemonSet;

/// The legacy count of template changes.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
const ROLLING: &str = "RollingUpdate";
const ON_DELETE: &str = "OnDelete";
const SHOWN_COUNTS: [&str; 4] =
    ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"];

impl Strategy for DaemonSet {
    fn default(&self, set: &mut Value) {
        default_parts(set);
        nulls(&mut set["status"], "conditions", &["lastTransitionTime"]);
        default_counts(&mut set["status"]);
        let spec = &mut set["spec"];
        set_default(spec, "revisionHistoryLimit", 10);
        object_mut(spec, "updateStrategy");
        let strategy = &mut spec["updateStrategy"];
        set_default(strategy, "type", ROLLING);
        if text(strategy, "type") == ROLLING {
            object_mut(strategy, "rollingUpdate");
            set_default(&mut strategy["rollingUpdate"], "maxUnavailable", 1);
            set_default(&mut strategy["rollingUpdate"], "maxSurge", 0);
        }
        template::default(spec, "template");
    }

    fn prepare_for_create(&self, set: &mut Value) {
        set["status"] = json!({});
        default_counts(&mut set["status"]);
        set_template_generation(set, template_generation(set).max(1));
        template::drop_disabled(&mut set["spec"], "template");
    }

    fn prepare_for_update(&self, set: &mut Value, old: &Value) {
        restore(set, old, "status");
        let is_changed = set["spec"].get("template") != old["spec"].get("template");
        set_template_generation(set, template_generation(old) + i64::from(is_changed));
    }

    fn prepare_for_status_update(&self, set: &mut Value, old: &Value) {
        status::only_status(set, old);
        set_template_generation(set, template_generation(old));
    }

    fn validate(&self, set: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &set["spec"];
        let (template, path) = (&spec["template"], SPEC.child("template"));
        let selector = spec.get("selector").unwrap_or(&Value::Null);
        let mut empty = Vec::new();
        let is_sound = selector.is_null()
            || template::check_given_selector(selector, "daemonset", &SPEC.child("selector"), &mut empty);
        // Upstream reports an empty selector last.
        let is_empty = !selector.is_null() && template::is_empty(selector);
        let last = if is_empty { empty.pop() } else { None };
        causes.append(&mut empty);
        if is_sound && !is_empty {
            template::check_selected(template, selector, &path, &mut causes);
        }
        causes.extend(last);
        template::check(template, &path, &mut causes);
        template::check_lasting(template, "DaemonSet", &path, &mut causes);
        not_negative(spec, &["minReadySeconds"], &SPEC, &mut causes);
        check_strategy(&spec["updateStrategy"], &SPEC.child("updateStrategy"), &mut causes);
        not_negative(spec, &["revisionHistoryLimit"], &SPEC, &mut causes);
        causes
    }

    fn validate_update(&self, set: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        immutable(&set["spec"], &old["spec"], "selector", &SPEC, &mut causes);
        causes.extend(self.validate(set));
        causes
    }

    fn validate_status_update(&self, set: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let status = &set["status"];
        let others = [
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        super::check_counts(status, &SHOWN_COUNTS, &mut causes);
        super::check_counts(status, &others, &mut causes);
        not_decremented(status, &old["status"], "collisionCount", &STATUS, &mut causes);
        causes
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn default_counts(status: &mut Value) {
    for field in SHOWN_COUNTS {
        set_default(status, field, 0);
    }
}

fn template_generation(set: &Value) -> i64 {
    let annotations = &set["metadata"]["annotations"];
    text(annotations, TEMPLATE_GENERATION).parse().unwrap_or_default()
}

fn set_template_generation(set: &mut Value, generation: i64) {
    object_mut(set, "metadata");
    if let Some(annotations) = object_mut(&mut set["metadata"], "annotations") {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
    }
}

fn check_strategy(strategy: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    match text(strategy, "type") {
        ON_DELETE => {}
        ROLLING => match present(strategy, "rollingUpdate") {
            None => causes.push(path.child("rollingUpdate").required("")),
            Some(rolling) => check_rolling(rolling, &path.child("rollingUpdate"), causes),
        },
        _ => {
            let fields = [("Type", "type", Shown::Text), ("RollingUpdate", "rollingUpdate", Shown::Null)];
            causes.push(not_supported_shown(path, &shown(strategy, &fields), &[ROLLING, ON_DELETE]));
        }
    }
}

fn check_rolling(rolling: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    let (unavailable_path, surge_path) = (path.child("maxUnavailable"), path.child("maxSurge"));
    int_or_percent(unavailable, &unavailable_path, causes);
    int_or_percent(surge, &surge_path, causes);
    at_most_all(unavailable, &unavailable_path, causes);
    at_most_all(surge, &surge_path, causes);
    match (number_of(unavailable) != 0, number_of(surge) != 0) {
        (true, true) => {
            let why = "may not be set when maxUnavailable is non-zero";
            causes.push(surge_path.invalid(surge.clone(), why));
        }
        (false, false) => causes.push(unavailable_path.required("cannot be 0 when maxSurge is 0")),
        _ => {}
    }
}
