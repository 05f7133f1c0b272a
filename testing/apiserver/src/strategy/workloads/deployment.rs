//! Deployments.

use serde_json::{Value, json};

use super::super::checks::{
    Shown, at_most_all, immutable, int_or_percent, not_decremented, not_more_than, not_negative,
    not_supported_shown, nulls, number_of, shown,
};
use super::super::path::Path;
use super::super::status;
use super::super::traits::Strategy;
use super::{MORE_THAN_ALL, SPEC, STATUS, default_parts, template};
use crate::json::{int, object_mut, present, restore, set_default, text};
use crate::status::StatusCause;

/// Deployments.
pub(crate) struct Deployment;

const RECREATE: &str = "Recreate";
const ROLLING: &str = "RollingUpdate";

impl Strategy for Deployment {
    fn default(&self, deployment: &mut Value) {
        default_parts(deployment);
        nulls(&mut deployment["status"], "conditions", &["lastUpdateTime", "lastTransitionTime"]);
        let spec = &mut deployment["spec"];
        set_default(spec, "replicas", 1);
        set_default(spec, "revisionHistoryLimit", 10);
        set_default(spec, "progressDeadlineSeconds", 600);
        object_mut(spec, "strategy");
        let strategy = &mut spec["strategy"];
        set_default(strategy, "type", ROLLING);
        if text(strategy, "type") == ROLLING {
            object_mut(strategy, "rollingUpdate");
            let rolling = &mut strategy["rollingUpdate"];
            set_default(rolling, "maxUnavailable", "25%");
            set_default(rolling, "maxSurge", "25%");
        }
        template::default(spec, "template");
    }

    fn prepare_for_create(&self, deployment: &mut Value) {
        deployment["status"] = json!({});
        template::drop_disabled(&mut deployment["spec"], "template");
    }

    fn prepare_for_update(&self, deployment: &mut Value, old: &Value) {
        restore(deployment, old, "status");
    }

    fn prepare_for_status_update(&self, deployment: &mut Value, old: &Value) {
        status::only_status(deployment, old);
        restore(&mut deployment["metadata"], &old["metadata"], "labels");
    }

    fn validate(&self, deployment: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &deployment["spec"];
        not_negative(spec, &["replicas"], &SPEC, &mut causes);
        super::replicas::check_selector_and_template(spec, &mut causes);
        check_strategy(&spec["strategy"], &SPEC.child("strategy"), &mut causes);
        let counts = ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"];
        not_negative(spec, &counts, &SPEC, &mut causes);
        if let Some(deadline) = int(spec, "progressDeadlineSeconds")
            && deadline <= int(spec, "minReadySeconds").unwrap_or_default()
        {
            let path = SPEC.child("progressDeadlineSeconds");
            causes.push(path.invalid(deadline, "must be greater than minReadySeconds"));
        }
        causes
    }

    fn validate_update(&self, deployment: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(deployment);
        immutable(&deployment["spec"], &old["spec"], "selector", &SPEC, &mut causes);
        causes
    }

    fn validate_status_update(&self, deployment: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let status = &deployment["status"];
        let counts = [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ];
        super::check_counts(status, &counts, &mut causes);
        for field in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
            not_more_than(status, field, "replicas", MORE_THAN_ALL, &STATUS, &mut causes);
        }
        let why = "cannot be greater than readyReplicas";
        not_more_than(status, "availableReplicas", "readyReplicas", why, &STATUS, &mut causes);
        not_decremented(status, &old["status"], "collisionCount", &STATUS, &mut causes);
        causes
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn changes_generation(&self, deployment: &Value, old: &Value) -> bool {
        deployment.get("spec") != old.get("spec")
            || deployment["metadata"].get("annotations") != old["metadata"].get("annotations")
    }
}

fn check_strategy(strategy: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let rolling = present(strategy, "rollingUpdate");
    match text(strategy, "type") {
        RECREATE if rolling.is_some() => {
            let why = format!("may not be specified when strategy `type` is '{RECREATE}'");
            causes.push(path.child("rollingUpdate").forbidden(&why));
        }
        RECREATE => {}
        ROLLING => check_rolling(&strategy["rollingUpdate"], &path.child("rollingUpdate"), causes),
        _ => {
            let fields = [("Type", "type", Shown::Text), ("RollingUpdate", "rollingUpdate", Shown::Null)];
            causes.push(not_supported_shown(path, &shown(strategy, &fields), &[RECREATE, ROLLING]));
        }
    }
}

fn check_rolling(rolling: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    let unavailable_path = path.child("maxUnavailable");
    int_or_percent(unavailable, &unavailable_path, causes);
    int_or_percent(surge, &path.child("maxSurge"), causes);
    if number_of(unavailable) == 0 && number_of(surge) == 0 {
        let why = "may not be 0 when `maxSurge` is 0";
        causes.push(unavailable_path.invalid(unavailable.clone(), why));
    }
    at_most_all(unavailable, &unavailable_path, causes);
}
