//! Validates the spec of jobs and job templates.

use serde_json::Value;

use super::super::checks::{Shown, invalid_omitted, invalid_shown, not_negative, one_of, too_many};
use super::super::path::Path;
use super::super::{labels, names};
use super::{indexes, template};
use crate::json::{int, list, present, text};
use crate::status::StatusCause;

const INDEXED: &str = "Indexed";
const MOST_PARALLEL: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
/// The maximum parallelism and failures of a job with many completions.
const MOST_OF_MANY: i64 = 10_000;
const MOST_RULES: usize = 20;
const MOST_EXIT_CODES: usize = 255;
const MOST_PATTERNS: usize = 20;
const MANAGER_LENGTH: usize = 63;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];

/// Validates the spec of a job, except for its selector.
pub(super) fn check_spec(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    not_negative(spec, &counts, path, causes);
    if present(spec, "maxFailedIndexes").is_some() && present(spec, "backoffLimitPerIndex").is_none() {
        causes.push(path.child("backoffLimitPerIndex").required("when maxFailedIndexes is specified"));
    }
    if let Some(manager) = present(spec, "managedBy").and_then(Value::as_str) {
        check_manager(manager, &path.child("managedBy"), causes);
    }
    one_of(spec, "completionMode", &["NonIndexed", INDEXED], path, causes);
    match text(spec, "completionMode") {
        INDEXED => check_indexed(spec, path, causes),
        "" | "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(number) = int(spec, field) {
                    causes.push(path.child(field).invalid(number, "requires indexed completion mode"));
                }
            }
        }
        _ => {}
    }
    if let Some(policy) = present(spec, "podFailurePolicy") {
        check_failure_policy(policy, spec, &path.child("podFailurePolicy"), causes);
    }
    if let Some(policy) = present(spec, "successPolicy") {
        check_success_policy(policy, spec, &path.child("successPolicy"), causes);
    }
    let replacements: &[&str] = if present(spec, "podFailurePolicy").is_some() {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    one_of(spec, "podReplacementPolicy", replacements, path, causes);
    let path = path.child("template");
    template::check(&spec["template"], &path, causes);
    check_restart_policy(spec, &path.child("spec"), causes);
}

fn check_restart_policy(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (policy, path) = (text(&spec["template"]["spec"], "restartPolicy"), path.child("restartPolicy"));
    match policy {
        "Always" | "" => causes.push(path.required(r#"valid values: "OnFailure", "Never""#)),
        "OnFailure" if present(spec, "podFailurePolicy").is_some() => {
            let why = r#"only "Never" is supported when podFailurePolicy is specified"#;
            causes.push(path.invalid(policy, why));
        }
        "OnFailure" | "Never" => {}
        _ => causes.push(path.not_supported(policy, &["OnFailure", "Never"])),
    }
}

fn check_manager(manager: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    match manager.split_once('/') {
        _ if manager.is_empty() => causes.push(path.required("")),
        Some((host, name)) if !host.is_empty() && !name.is_empty() => {
            path.invalid_all(host, names::dns1123_subdomain(host), causes);
        }
        _ => {
            let why = r#"must be a domain-prefixed path (such as "acme.io/foo")"#;
            causes.push(path.invalid(manager, why));
        }
    }
    if manager.len() > MANAGER_LENGTH {
        causes.push(path.too_long(MANAGER_LENGTH));
    }
}

fn check_indexed(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (completions, parallelism) = (int(spec, "completions"), int(spec, "parallelism"));
    let most_failed = int(spec, "maxFailedIndexes");
    if completions.is_none() {
        causes.push(path.child("completions").required("when completion mode is Indexed"));
    }
    let mut at_most = |field: &str, number: Option<i64>, limit: i64, why: &str| {
        if let Some(number) = number.filter(|number| *number > limit) {
            causes.push(path.child(field).invalid(number, why));
        }
    };
    let why = format!("must be less than or equal to {MOST_PARALLEL} when completion mode is Indexed");
    at_most("parallelism", parallelism, MOST_PARALLEL, &why);
    if let Some(completions) = completions {
        at_most("maxFailedIndexes", most_failed, completions, "must be less than or equal to completions");
    }
    let why = format!("must be less than or equal to {MOST_PARALLEL}");
    at_most("maxFailedIndexes", most_failed, MOST_PARALLEL, &why);
    let is_many = completions.is_some_and(|completions| completions > MANY_COMPLETIONS);
    if is_many && present(spec, "backoffLimitPerIndex").is_some() {
        let why = format!(
            "must be less than or equal to {MOST_OF_MANY} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
        );
        at_most("parallelism", parallelism, MOST_OF_MANY, &why);
        at_most("maxFailedIndexes", most_failed, MOST_OF_MANY, &why);
        if most_failed.is_none() {
            let why = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            causes.push(path.child("maxFailedIndexes").required(&why));
        }
    }
}

fn check_failure_policy(policy: &Value, spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (rules, path) = (list(policy, "rules"), path.child("rules"));
    if rules.len() > MOST_RULES {
        causes.push(too_many(&path, rules.len(), MOST_RULES));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        let action = text(rule, "action");
        let action_path = path.child("action");
        if action.is_empty() {
            causes.push(action_path.required(r#"valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#));
        } else if action == "FailIndex" && present(spec, "backoffLimitPerIndex").is_none() {
            causes.push(action_path.invalid(action, "requires the backoffLimitPerIndex to be set"));
        } else if !ACTIONS.contains(&action) {
            causes.push(action_path.not_supported(action, &ACTIONS));
        }
        let codes = present(rule, "onExitCodes");
        if let Some(codes) = codes {
            check_exit_codes(codes, spec, &path.child("onExitCodes"), causes);
        }
        let patterns = list(rule, "onPodConditions");
        check_patterns(patterns, &path.child("onPodConditions"), causes);
        if codes.is_some() && !patterns.is_empty() {
            let why = "specifying both OnExitCodes and OnPodConditions is not supported";
            causes.push(invalid_omitted(&path, why));
        }
        if codes.is_none() && patterns.is_empty() {
            let why = "specifying one of OnExitCodes and OnPodConditions is required";
            causes.push(invalid_omitted(&path, why));
        }
    }
}

fn check_patterns(patterns: &[Value], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if patterns.len() > MOST_PATTERNS {
        causes.push(too_many(path, patterns.len(), MOST_PATTERNS));
    }
    for (i, pattern) in patterns.iter().enumerate() {
        let path = path.index(i);
        labels::check_key(text(pattern, "type"), &path.child("type"), causes);
        one_of(pattern, "status", &["False", "True", "Unknown"], &path, causes);
    }
}

fn check_exit_codes(codes: &Value, spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let operator = text(codes, "operator");
    if operator.is_empty() {
        causes.push(path.child("operator").required(r#"valid values: ["In" "NotIn"]"#));
    }
    if !operator.is_empty() {
        one_of(codes, "operator", &["In", "NotIn"], path, causes);
    }
    if let Some(name) = present(codes, "containerName").and_then(Value::as_str) {
        let pod = &spec["template"]["spec"];
        let mut containers = list(pod, "containers").iter().chain(list(pod, "initContainers"));
        if !containers.any(|container| text(container, "name") == name) {
            let why = "must be one of the container or initContainer names in the pod template";
            causes.push(path.child("containerName").invalid(name, why));
        }
    }
    let (values, path) = (list(codes, "values"), path.child("values"));
    if values.is_empty() {
        let none = codes.get("values").cloned().unwrap_or_default();
        causes.push(path.invalid(none, "at least one value is required"));
    } else if values.len() > MOST_EXIT_CODES {
        causes.push(too_many(&path, values.len(), MOST_EXIT_CODES));
    }
    for (i, value) in values.iter().enumerate() {
        if operator == "In" && value.as_i64() == Some(0) {
            causes.push(path.index(i).invalid(0, "must not be 0 for the In operator"));
        }
        if values[..i].contains(value) {
            causes.push(path.index(i).duplicate(value.clone()));
        }
    }
    if !values.is_sorted_by_key(Value::as_i64) {
        causes.push(path.invalid(values.to_vec(), "must be ordered"));
    }
}

fn check_success_policy(policy: &Value, spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (rules, rules_path) = (list(policy, "rules"), path.child("rules"));
    if text(spec, "completionMode") != INDEXED {
        let fields = [
            ("SucceededIndexes", "succeededIndexes", Shown::Null),
            ("SucceededCount", "succeededCount", Shown::Null),
        ];
        let shown: Vec<String> =
            rules.iter().map(|rule| super::super::checks::shown(rule, &fields)).collect();
        let shown = format!("{{\"Rules\":[{}]}}", shown.join(","));
        causes.push(invalid_shown(path, &shown, "requires indexed completion mode"));
        return;
    }
    if rules.is_empty() {
        causes.push(
            rules_path.required("at least one rules must be specified when the successPolicy is specified"),
        );
    }
    if rules.len() > MOST_RULES {
        causes.push(too_many(&rules_path, rules.len(), MOST_RULES));
    }
    let completions = indexes::completions(spec);
    for (i, rule) in rules.iter().enumerate() {
        check_success_rule(rule, completions, &rules_path.index(i), causes);
    }
}

fn check_success_rule(rule: &Value, completions: i64, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let indexes = present(rule, "succeededIndexes").and_then(Value::as_str);
    let count = int(rule, "succeededCount");
    if indexes.is_none() && count.is_none() {
        causes.push(path.required("at least one of succeededCount or succeededIndexes must be specified"));
    }
    let mut total = 0;
    if let Some(indexes) = indexes {
        match indexes::count(indexes, completions) {
            Ok(counted) => total = counted,
            Err(why) => {
                let why = format!("error parsing succeededIndexes: {why}");
                causes.push(path.child("succeededIndexes").invalid(indexes, &why));
            }
        }
    }
    let Some(count) = count else { return };
    not_negative(rule, &["succeededCount"], path, causes);
    let path = path.child("succeededCount");
    let limits = [
        (true, completions, "the number of specified completions"),
        (indexes.is_some(), total, "the number of indexes in the specified succeededIndexes field"),
    ];
    for (applies, limit, what) in limits {
        if applies && count > limit {
            causes.push(path.invalid(count, &format!("must be less than or equal to {limit} ({what})")));
        }
    }
}
