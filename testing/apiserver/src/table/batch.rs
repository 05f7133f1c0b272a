//! Jobs and cron jobs.

use jiff::Timestamp;
use serde_json::Value;

use super::Layout;
use super::access::{
    age, condition_is_true, has, is_deleted, items, name, number, present_or, since, text, time,
};
use super::columns::{AGE, NAME, boolean, integer, text as column, wide};
use super::duration::human_duration;
use super::selector::label_selector_cell;
use super::workloads::containers;

pub(super) static JOBS: Layout = Layout {
    columns: &[
        NAME,
        column("Status"),
        column("Completions"),
        column("Duration"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: job,
};

pub(super) static CRON_JOBS: Layout = Layout {
    columns: &[
        NAME,
        column("Schedule"),
        column("Timezone"),
        boolean("Suspend"),
        integer("Active"),
        column("Last Schedule"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: cron_job,
};

fn job(job: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(job, "/spec/template/spec/containers");
    vec![
        name(job),
        status(job).into(),
        completions(job).into(),
        duration(job, now).into(),
        age(job, now),
        names,
        images,
        label_selector_cell(job, "/spec/selector").into(),
    ]
}

fn status(job: &Value) -> &'static str {
    if condition_is_true(job, "Complete") {
        "Complete"
    } else if condition_is_true(job, "Failed") {
        "Failed"
    } else if is_deleted(job) {
        "Terminating"
    } else {
        let rest = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
        rest.into_iter().find(|kind| condition_is_true(job, kind)).unwrap_or("Running")
    }
}

fn completions(job: &Value) -> String {
    let succeeded = number(job, "/status/succeeded");
    if has(job, "/spec/completions") {
        return format!("{succeeded}/{}", number(job, "/spec/completions"));
    }
    match number(job, "/spec/parallelism") {
        parallelism @ 2.. => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let Some(start) = time(job, "/status/startTime") else { return String::new() };
    let end = time(job, "/status/completionTime").unwrap_or(now);
    human_duration(end.duration_since(start))
}

fn cron_job(job: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(job, "/spec/jobTemplate/spec/template/spec/containers");
    let suspend = match job.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = time(job, "/status/lastScheduleTime");
    let last = last.map_or_else(|| "<none>".to_owned(), |last| since(Some(last), now));
    vec![
        name(job),
        text(job, "/spec/schedule").into(),
        present_or(job, "/spec/timeZone", "<none>").into(),
        suspend.into(),
        items(job, "/status/active").len().into(),
        last.into(),
        age(job, now),
        names,
        images,
        label_selector_cell(job, "/spec/jobTemplate/spec/selector").into(),
    ]
}
