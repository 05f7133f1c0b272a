//! Changes of a job's status.

use serde_json::Value;

use super::super::checks::{invalid_omitted, not_negative};
use super::{STATUS, indexes};
use crate::json::{flag, int, list, present, text};
use crate::status::StatusCause;

/// Whether a condition of a job is true.
pub(super) fn is_true(job: &Value, kind: &str) -> bool {
    has(job, kind, "True")
}

fn has(job: &Value, kind: &str, status: &str) -> bool {
    let conditions = list(&job["status"], "conditions");
    conditions.iter().any(|condition| text(condition, "type") == kind && text(condition, "status") == status)
}

fn is_finished(job: &Value) -> bool {
    is_true(job, "Complete") || is_true(job, "Failed")
}

/// Validates a change of the status. Existing errors may remain.
pub(super) fn check(job: &Value, old: &Value) -> Vec<StatusCause> {
    let change = StatusUpdate { job, old, status: &job["status"], before: &old["status"] };
    let mut causes = Vec::new();
    let counts = ["active", "succeeded", "failed", "ready", "terminating"];
    not_negative(change.status, &counts, &STATUS, &mut causes);
    change.check_uncounted(&mut causes);
    change.check_conditions(&mut causes);
    change.check_completion(&mut causes);
    change.check_finished(&mut causes);
    change.check_indexes(&mut causes);
    change.check_counters(&mut causes);
    causes
}

struct StatusUpdate<'a> {
    job: &'a Value,
    old: &'a Value,
    status: &'a Value,
    before: &'a Value,
}

impl StatusUpdate<'_> {
    fn changes(&self, field: &str) -> bool {
        self.status.get(field) != self.before.get(field)
    }

    fn turns(&self, condition: &str) -> bool {
        is_true(self.job, condition) != is_true(self.old, condition)
    }

    fn finishes(&self) -> bool {
        is_finished(self.job) != is_finished(self.old)
    }

    fn check_uncounted(&self, causes: &mut Vec<StatusCause>) {
        let Some(uncounted) = present(self.status, "uncountedTerminatedPods") else { return };
        let path = STATUS.child("uncountedTerminatedPods");
        let mut seen: Vec<&Value> = Vec::new();
        for field in ["succeeded", "failed"] {
            let path = path.child(field);
            for (i, uid) in list(uncounted, field).iter().enumerate() {
                if uid == "" {
                    causes.push(path.index(i).invalid("", "must not be empty"));
                } else if seen.contains(&uid) {
                    causes.push(path.index(i).duplicate(uid.clone()));
                } else {
                    seen.push(uid);
                }
            }
        }
    }

    fn check_conditions(&self, causes: &mut Vec<StatusCause>) {
        let mut refuse = |applies: bool, why: &str| {
            if applies {
                causes.push(invalid_omitted(&STATUS.child("conditions"), why));
            }
        };
        let now = |condition| is_true(self.job, condition);
        let was = |condition| is_true(self.old, condition);
        refuse(
            (self.turns("Complete") || self.turns("Failed")) && now("Complete") && now("Failed"),
            "cannot set Complete=True and Failed=true conditions",
        );
        refuse(
            (self.turns("Complete") || self.turns("FailureTarget"))
                && now("Complete")
                && now("FailureTarget"),
            "cannot set Complete=True and FailureTarget=true conditions",
        );
        refuse(
            now("SuccessCriteriaMet") && now("Failed"),
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        );
        refuse(
            now("SuccessCriteriaMet") && now("FailureTarget"),
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        );
        refuse(
            present(&self.job["spec"], "successPolicy").is_some()
                && !now("SuccessCriteriaMet")
                && now("Complete"),
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        );
        for condition in ["Failed", "Complete", "FailureTarget"] {
            let why = format!("cannot disable the terminal {condition}=True condition");
            refuse(was(condition) && !now(condition), &why);
        }
        refuse(
            was("SuccessCriteriaMet") && !now("SuccessCriteriaMet"),
            "cannot disable the SuccessCriteriaMet=True condition",
        );
        refuse(
            was("Complete") && !was("SuccessCriteriaMet") && now("SuccessCriteriaMet"),
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        );
    }

    fn check_completion(&self, causes: &mut Vec<StatusCause>) {
        let completion = present(self.status, "completionTime");
        let is_complete = is_true(self.job, "Complete");
        let path = STATUS.child("completionTime");
        if self.turns("Complete") || self.changes("completionTime") {
            if let Some(time) = completion.filter(|_| !is_complete) {
                let why = "cannot set completionTime when there is no Complete=True condition";
                causes.push(path.invalid(time.clone(), why));
            }
            if is_complete && completion.is_none() {
                causes.push(path.required("completionTime is required for Complete jobs"));
            }
        }
        let start = present(self.status, "startTime");
        if let (Some(time), Some(start)) = (completion, start)
            && (self.changes("startTime") || self.changes("completionTime"))
            // Both are RFC 3339 in UTC to the second, so they compare as text.
            && time.as_str() < start.as_str()
        {
            causes.push(path.invalid(time.clone(), "must be equal to or after `startTime`"));
        }
        let before = present(self.before, "completionTime");
        if let (Some(time), Some(before)) = (completion, before)
            && time != before
        {
            causes.push(path.invalid(time.clone(), "field is immutable"));
        }
        let is_resumed = is_true(self.old, "Suspended") && has(self.job, "Suspended", "False");
        let is_moved = present(self.before, "startTime").is_some() && self.changes("startTime");
        if is_moved && !is_resumed && !flag(&self.job["spec"], "suspend") {
            let why = "field is immutable for unsuspended job once set";
            let start = start.cloned().unwrap_or_default();
            causes.push(STATUS.child("startTime").invalid(start, why));
        }
    }

    fn check_finished(&self, causes: &mut Vec<StatusCause>) {
        let now = |condition| is_true(self.job, condition);
        let conditions = STATUS.child("conditions");
        let is_failing = self.turns("Failed") || self.changes("failedIndexes");
        if is_failing && now("Failed") && !now("FailureTarget") {
            let why = "cannot set Failed=True condition without the FailureTarget=true condition";
            causes.push(invalid_omitted(&conditions, why));
        }
        let is_succeeding = self.turns("Complete") || self.turns("SuccessCriteriaMet");
        if is_succeeding && now("Complete") && !now("SuccessCriteriaMet") {
            let why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
            causes.push(invalid_omitted(&conditions, why));
        }
        let is_finished = is_finished(self.job);
        for field in ["active", "terminating"] {
            let number = int(self.status, field).filter(|number| *number > 0);
            if let Some(number) = number.filter(|_| is_finished && (self.finishes() || self.changes(field))) {
                let why = format!("{field}>0 is invalid for finished job");
                causes.push(STATUS.child(field).invalid(number, &why));
            }
        }
        let spec = &self.job["spec"];
        let has_nothing_to_do = flag(spec, "suspend") && int(spec, "completions") == Some(0);
        let is_asked = (self.finishes() || self.changes("startTime")) && !has_nothing_to_do;
        if is_asked && is_finished && present(self.status, "startTime").is_none() {
            causes.push(STATUS.child("startTime").required("startTime is required for finished job"));
        }
        let uncounted = &self.status["uncountedTerminatedPods"];
        let has_uncounted = ["failed", "succeeded"].iter().any(|field| !list(uncounted, field).is_empty());
        if has_uncounted && is_finished && (self.finishes() || self.changes("uncountedTerminatedPods")) {
            let path = STATUS.child("uncountedTerminatedPods");
            causes.push(path.invalid(uncounted.clone(), "must be empty for finished job"));
        }
    }

    fn check_indexes(&self, causes: &mut Vec<StatusCause>) {
        let spec = &self.job["spec"];
        let completions = int(spec, "completions");
        let completed = text(self.status, "completedIndexes");
        let failed = present(self.status, "failedIndexes").and_then(Value::as_str);
        let completed_path = STATUS.child("completedIndexes");
        let failed_path = STATUS.child("failedIndexes");
        if self.changes("completedIndexes") {
            if let Some(Err(why)) = completions.map(|completions| indexes::count(completed, completions)) {
                let why = format!("error parsing completedIndexes: {why}");
                causes.push(completed_path.invalid(completed, &why));
            }
            if !completed.is_empty() && text(spec, "completionMode") != "Indexed" {
                let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
                causes.push(completed_path.invalid(completed, why));
            }
        }
        let Some(failed) = failed else { return };
        let has_limit = present(spec, "backoffLimitPerIndex").is_some();
        if self.changes("failedIndexes") {
            if let Some(Err(why)) = completions.filter(|_| has_limit).map(|most| indexes::count(failed, most))
            {
                let why = format!("error parsing failedIndexes: {why}");
                causes.push(failed_path.invalid(failed, &why));
            }
            if !has_limit {
                let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
                causes.push(failed_path.invalid(failed, why));
            }
        }
        if self.changes("failedIndexes") || self.changes("completedIndexes") {
            let overlap =
                completions.and_then(|completions| indexes::overlap(completed, failed, completions));
            if let Some(index) = overlap {
                let why = format!("failedIndexes and completedIndexes overlap at index: {index}");
                causes.push(failed_path.invalid(failed, &why));
            }
        }
    }

    fn check_counters(&self, causes: &mut Vec<StatusCause>) {
        let number = |status, field| int(status, field).unwrap_or_default();
        let ready = int(self.status, "ready").filter(|ready| *ready > number(self.status, "active"));
        if let Some(ready) = ready.filter(|_| self.changes("ready") || self.changes("active")) {
            causes.push(STATUS.child("ready").invalid(ready, "cannot set more ready pods than active"));
        }
        let spec = &self.job["spec"];
        let is_elastic =
            text(spec, "completionMode") == "Indexed" && int(spec, "completions") == int(spec, "parallelism");
        for (field, applies) in [("failed", true), ("succeeded", !is_elastic)] {
            let count = number(self.status, field);
            if applies && count < number(self.before, field) {
                let why = format!("cannot decrease the {field} counter");
                causes.push(STATUS.child(field).invalid(count, &why));
            }
        }
    }
}
