//! Autoscalers.

use serde_json::{Value, json};

use super::checks::nulls;
use super::path::Path;
use super::traits::Strategy;
use super::{names, status};
use crate::json::{int, list, object_mut, present, restore, set_default, text};
use crate::status::StatusCause;

/// Autoscalers.
pub(crate) struct HorizontalPodAutoscaler;

const SPEC: Path<'static> = Path::root("spec");

impl Strategy for HorizontalPodAutoscaler {
    fn default(&self, scaler: &mut Value) {
        for field in ["spec", "status"] {
            object_mut(scaler, field);
        }
        default_status(&mut scaler["status"]);
        let spec = &mut scaler["spec"];
        set_default(spec, "minReplicas", 1);
        if list(spec, "metrics").is_empty() {
            spec["metrics"] = json!([{
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            }]);
        }
    }

    fn prepare_for_create(&self, scaler: &mut Value) {
        scaler["status"] = json!({});
        default_status(&mut scaler["status"]);
    }

    fn prepare_for_update(&self, scaler: &mut Value, old: &Value) {
        restore(scaler, old, "status");
    }

    fn prepare_for_status_update(&self, scaler: &mut Value, old: &Value) {
        status::only_status(scaler, old);
    }

    fn validate(&self, scaler: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &scaler["spec"];
        let least = int(spec, "minReplicas");
        if let Some(least) = least.filter(|least| *least < 0) {
            causes.push(SPEC.child("minReplicas").invalid(least, "must be greater than or equal to 0"));
        }
        let most = int(spec, "maxReplicas").unwrap_or_default();
        if least.is_some_and(|least| most < least) {
            let why = "must be greater than or equal to `minReplicas`";
            causes.push(SPEC.child("maxReplicas").invalid(most, why));
        }
        check_target(&spec["scaleTargetRef"], &SPEC.child("scaleTargetRef"), &mut causes);
        let counts = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
        if least == Some(0) && !list(spec, "metrics").iter().any(counts) {
            let why =
                "must specify at least one Object or External metric to support scaling to zero replicas";
            causes.push(SPEC.child("metrics").forbidden(why));
        }
        if most < 1 {
            causes.push(SPEC.child("maxReplicas").required(""));
        }
        causes
    }

    fn validate_update(&self, scaler: &Value, _old: &Value) -> Vec<StatusCause> {
        self.validate(scaler)
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn validate_status_update(&self, scaler: &Value, _old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let counts = ["currentReplicas", "desiredReplicas"];
        super::checks::not_negative(&scaler["status"], &counts, &Path::root("status"), &mut causes);
        causes
    }
}

fn default_status(status: &mut Value) {
    set_default(status, "desiredReplicas", 0);
    if present(status, "currentMetrics").is_none()
        && let Some(status) = status.as_object_mut()
    {
        status.insert("currentMetrics".to_owned(), Value::Null);
    }
    nulls(status, "conditions", &["lastTransitionTime"]);
}

fn check_target(target: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    for field in ["kind", "name"] {
        let value = text(target, field);
        if value.is_empty() {
            causes.push(path.child(field).required(""));
        } else {
            path.child(field).invalid_all(value, names::path_segment(value), causes);
        }
    }
    let version = text(target, "apiVersion");
    if !version.contains('/') && version != "v1" {
        causes.push(path.child("apiVersion").invalid(version, "apiVersion must specify API group"));
    }
}
