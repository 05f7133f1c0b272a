//! Cron jobs.

use serde_json::{Value, json};

use super::super::checks::{not_negative, one_of};
use super::super::path::Path;
use super::super::status;
use super::super::traits::Strategy;
use super::{SPEC, default_parts, job, job_rules, schedule};
use crate::json::{flag, object_mut, present, restore, set_default, text, text_at};
use crate::status::StatusCause;

/// Cron jobs.
pub(crate) struct CronJob;

/// The limit leaves room for the eleven characters that job names append.
const NAME_LENGTH: usize = 52;

impl Strategy for CronJob {
    fn default(&self, cron: &mut Value) {
        default_parts(cron);
        let spec = &mut cron["spec"];
        set_default(spec, "schedule", "");
        set_default(spec, "concurrencyPolicy", "Allow");
        set_default(spec, "suspend", false);
        set_default(spec, "successfulJobsHistoryLimit", 3);
        set_default(spec, "failedJobsHistoryLimit", 1);
        object_mut(spec, "jobTemplate");
        let template = &mut spec["jobTemplate"];
        object_mut(template, "metadata");
        object_mut(template, "spec");
        job::default_spec(&mut template["spec"]);
    }

    fn prepare_for_create(&self, cron: &mut Value) {
        cron["status"] = json!({});
        super::template::drop_disabled(&mut cron["spec"]["jobTemplate"]["spec"], "template");
    }

    fn prepare_for_update(&self, cron: &mut Value, old: &Value) {
        restore(cron, old, "status");
    }

    fn prepare_for_status_update(&self, cron: &mut Value, old: &Value) {
        status::only_status(cron, old);
    }

    fn validate(&self, cron: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        check_spec(&cron["spec"], None, &mut causes);
        let name = text_at(cron, "/metadata/name");
        if name.len() > NAME_LENGTH {
            let why = format!("must be no more than {NAME_LENGTH} characters");
            causes.push(Path::root("metadata").child("name").invalid(name, &why));
        }
        causes
    }

    fn validate_update(&self, cron: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        check_spec(&cron["spec"], Some(&old["spec"]), &mut causes);
        causes
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn check_spec(spec: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    check_schedule(spec, old, causes);
    not_negative(spec, &["startingDeadlineSeconds"], &SPEC, causes);
    let zone = present(spec, "timeZone").and_then(Value::as_str);
    let before = old.and_then(|old| present(old, "timeZone")).and_then(Value::as_str);
    if let Some(zone) = zone.filter(|_| zone != before) {
        check_time_zone(zone, &SPEC.child("timeZone"), causes);
    }
    one_of(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], &SPEC, causes);
    let (template, path) = (&spec["jobTemplate"]["spec"], SPEC.child("jobTemplate"));
    let path = path.child("spec");
    job_rules::check_spec(template, &path, causes);
    if let Some(selector) = present(template, "selector") {
        let why = "`selector` will be auto-generated";
        causes.push(path.child("selector").invalid(selector.clone(), why));
    }
    if flag(template, "manualSelector") {
        causes.push(path.child("manualSelector").not_supported(true, &["nil", "false"]));
    }
    not_negative(spec, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"], &SPEC, causes);
}

fn check_schedule(spec: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    let (schedule, path) = (text(spec, "schedule"), SPEC.child("schedule"));
    if schedule.is_empty() {
        causes.push(path.required(""));
        return;
    }
    if let Err(why) = schedule::check(schedule) {
        causes.push(path.invalid(schedule, &why));
    }
    if !schedule.contains("TZ") {
        return;
    }
    let had_zone = old.is_some_and(|old| text(old, "schedule").contains("TZ"));
    if !had_zone {
        let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        causes.push(path.invalid(schedule, why));
    } else if present(spec, "timeZone").is_some() {
        let why = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
        causes.push(path.invalid(schedule, why));
    }
}

fn check_time_zone(zone: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if zone.is_empty() {
        causes.push(path.invalid(zone, "timeZone must be nil or non-empty string"));
        return;
    }
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+');
    let is_sound = |part: &str| {
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(is_known)
    };
    let database = jiff::tz::db();
    let is_local = zone.eq_ignore_ascii_case("Local");
    let is_named = database.is_definitively_empty() || is_local || database.get(zone).is_ok();
    if !zone.split('/').all(is_sound) || !is_named {
        causes.push(path.invalid(zone, &format!("unknown time zone {zone}")));
    } else if is_local {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        causes.push(path.invalid(zone, why));
    }
}
