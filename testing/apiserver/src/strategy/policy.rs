//! Disruption budgets.

use serde_json::Value;

use super::checks::{
    Shown, at_most_all, check_conditions, int_or_percent, invalid_shown, not_negative, nulls, one_of, shown,
};
use super::path::Path;
use super::traits::Strategy;
use super::{labels, names, status};
use crate::json::{object_mut, present, restore, set_default};
use crate::status::StatusCause;

/// Disruption budgets.
pub(crate) struct PodDisruptionBudget;

const COUNTS: [&str; 4] = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];

impl Strategy for PodDisruptionBudget {
    fn default(&self, budget: &mut Value) {
        object_mut(budget, "spec");
        object_mut(budget, "status");
        nulls(&mut budget["status"], "conditions", &["lastTransitionTime"]);
        for field in COUNTS {
            set_default(&mut budget["status"], field, 0);
        }
    }

    fn prepare_for_create(&self, budget: &mut Value) {
        status::reset(budget);
        self.default(budget);
    }

    fn prepare_for_update(&self, budget: &mut Value, old: &Value) {
        restore(budget, old, "status");
    }

    fn prepare_for_status_update(&self, budget: &mut Value, old: &Value) {
        status::only_status(budget, old);
    }

    fn validate(&self, budget: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let (spec, path) = (&budget["spec"], Path::root("spec"));
        let bounds = ["minAvailable", "maxUnavailable"];
        if bounds.iter().all(|field| present(spec, field).is_some()) {
            let why = "minAvailable and maxUnavailable cannot be both set";
            causes.push(invalid_shown(&path, &shown_spec(spec), why));
        }
        for field in bounds {
            if let Some(bound) = present(spec, field) {
                int_or_percent(bound, &path.child(field), &mut causes);
                at_most_all(bound, &path.child(field), &mut causes);
            }
        }
        if let Some(selector) = present(spec, "selector") {
            labels::check_selector(selector, &path.child("selector"), &mut causes);
        }
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        one_of(spec, "unhealthyPodEvictionPolicy", &policies, &path, &mut causes);
        causes
    }

    fn validate_update(&self, budget: &Value, _old: &Value) -> Vec<StatusCause> {
        self.validate(budget)
    }

    fn validate_status_update(&self, budget: &Value, _old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let (status, path) = (&budget["status"], Path::root("status"));
        check_conditions(status, &path, &mut causes);
        not_negative(status, &COUNTS, &path, &mut causes);
        causes
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn check_name(&self, name: &str) -> names::Wrong {
        names::path_segment(name)
    }
}

fn shown_spec(spec: &Value) -> String {
    let fields = [
        ("MinAvailable", "minAvailable", Shown::Null),
        ("Selector", "selector", Shown::Null),
        ("MaxUnavailable", "maxUnavailable", Shown::Null),
        ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy", Shown::Null),
    ];
    shown(spec, &fields)
}
