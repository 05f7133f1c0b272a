//! Dashboards and rules, ours and those of kubernetes-mixin, read existing series.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use supercargo_config::{Catalog, Config};
use supercargo_telemetry::metrics::Metrics;
use supercargo_telemetry::metrics::spec::{ALL, MetricKind};

use super::promql::{Selector, read};

/// Labels that Prometheus adds to every target.
const OF_THE_TARGET: &[&str] =
    &["job", "instance", "namespace", "pod", "cluster", "service", "container", "endpoint", "node"];

/// The series of the scheduler dashboard and rules of kubernetes-mixin, with the labels that they
/// select or group by.
const MIXIN: &[(&str, &[&str])] = &[
    ("scheduler_scheduling_attempt_duration_seconds_bucket", &["le"]),
    ("scheduler_scheduling_algorithm_duration_seconds_count", &[]),
    ("scheduler_scheduling_algorithm_duration_seconds_bucket", &["le"]),
    ("rest_client_requests_total", &["code"]),
    ("rest_client_request_duration_seconds_bucket", &["verb", "le"]),
    ("process_resident_memory_bytes", &[]),
    ("process_cpu_seconds_total", &[]),
    ("go_goroutines", &[]),
];

/// More series of kubernetes-mixin, which current kube-schedulers lack, too. Their panels are empty
/// for both.
const GONE: &[(&str, &str)] = &[
    (
        "scheduler_e2e_scheduling_duration_seconds",
        "removed from kube-scheduler; its successor is scheduling_attempt_duration",
    ),
    ("scheduler_binding_duration_seconds", "removed from kube-scheduler"),
    ("scheduler_volume_scheduling_duration_seconds", "removed from kube-scheduler"),
];

/// The names of all series with their labels.
fn series() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut series = BTreeMap::new();
    for spec in ALL {
        let labels: BTreeSet<_> = spec.labels.iter().copied().collect();
        if matches!(spec.kind, MetricKind::Histogram(_)) {
            for end in ["_sum", "_count"] {
                series.insert(format!("{}{end}", spec.name), labels.clone());
            }
            let with_bound = labels.iter().copied().chain(["le"]).collect();
            series.insert(format!("{}_bucket", spec.name), with_bound);
        } else {
            series.insert(spec.name.to_owned(), labels);
        }
    }
    series
}

#[test]
fn kubernetes_mixin_series_exist() {
    let series = series();
    for (name, labels) in MIXIN {
        let known = series.get(*name).unwrap_or_else(|| panic!("there is no {name}"));
        assert!(labels.iter().all(|label| known.contains(label)), "{name} has the labels {known:?}");
    }
    for (name, reason) in GONE {
        assert!(!ALL.iter().any(|spec| spec.name == *name), "{name} is there; {reason}");
    }
}

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/monitoring").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All texts under a key of this name, at any depth.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == key => found.push(text),
                    _ => texts(value, key, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, key, found)),
        _ => {}
    }
}

/// The series of an expression that do not exist.
fn unknown(expression: &str, recorded: &BTreeSet<&str>) -> Vec<String> {
    let series = series();
    let (selectors, grouped) = read(expression);
    assert!(!selectors.is_empty(), "{expression} reads nothing");
    let mut found = Vec::new();
    let mut labels = BTreeSet::new();
    for Selector { name, labels: selected } in &selectors {
        // Prometheus provides `up`.
        if name == "up" || recorded.contains(name.as_str()) {
            labels.extend(selected.iter().map(String::as_str));
            continue;
        }
        let Some(known) = series.get(name) else {
            found.push(format!("{name} in {expression}"));
            continue;
        };
        labels.extend(known);
        let strange = selected
            .iter()
            .filter(|it| !known.contains(it.as_str()) && !OF_THE_TARGET.contains(&it.as_str()));
        found.extend(strange.map(|label| format!("{name}{{{label}}} in {expression}")));
    }
    if recorded.is_empty() {
        let strange = grouped
            .iter()
            .filter(|it| !labels.contains(it.as_str()) && !OF_THE_TARGET.contains(&it.as_str()));
        found.extend(strange.map(|label| format!("by {label} in {expression}")));
    }
    found
}

fn all<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    texts(value, key, &mut found);
    found
}

fn dashboard() -> Value {
    serde_json::from_str(&file("dashboard.json")).unwrap()
}

fn rules() -> Value {
    serde_saphyr::from_str(&file("rules.yaml")).unwrap()
}

#[test]
fn dashboard_series_exist() {
    let dashboard = dashboard();
    let expressions = all(&dashboard, "expr");
    assert!(expressions.len() > 20, "{}", expressions.len());
    let found: Vec<_> = expressions.iter().flat_map(|it| unknown(it, &BTreeSet::new())).collect();
    assert!(found.is_empty(), "{found:#?}");
    let ids: Vec<_> = dashboard["panels"].as_array().unwrap().iter().map(|panel| &panel["id"]).collect();
    assert!((1..ids.len()).all(|n| !ids[..n].contains(&ids[n])), "two panels have one id");
}

#[test]
fn alert_rule_series_exist() {
    let rules = rules();
    let (expressions, recorded, alerts) = (all(&rules, "expr"), all(&rules, "record"), all(&rules, "alert"));
    assert!(recorded.len() + alerts.len() == expressions.len() && alerts.len() >= 5);
    let recorded = recorded.into_iter().collect();
    let found: Vec<_> = expressions.iter().flat_map(|it| unknown(it, &recorded)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Series that standbys have, too: their queue has every waiting pod.
const OF_EACH_REPLICA: &[&str] =
    &["scheduler_pending_pods", "scheduler_queue_incoming_pods_total", "scheduler_unschedulable_pods"];

#[test]
fn queues_of_standbys_do_not_count() {
    let (dashboard, rules) = (dashboard(), rules());
    let expressions = [all(&dashboard, "expr"), all(&rules, "expr")].concat();
    for family in OF_EACH_REPLICA {
        let reading: Vec<_> = expressions.iter().filter(|it| it.contains(family)).collect();
        assert!(!reading.is_empty(), "nobody reads {family}");
        for expression in reading {
            let (_, without) = expression.split_once(" unless on (instance) ").expect(expression);
            assert!(without.starts_with("leader_election_master_status{job="), "{expression}");
            assert!(without.contains("\"} == 0"), "{expression}");
        }
    }
}

#[test]
fn the_alert_on_lost_races_counts_only_those_against_other_schedulers() {
    let rules = rules();
    let expressions = all(&rules, "expr");
    let reading: Vec<_> =
        expressions.iter().filter(|it| it.contains("supercargo_lost_races_total")).collect();
    // A lost node needs no second scheduler.
    assert!(!reading.is_empty() && reading.iter().all(|it| it.contains(r#"kind="pod""#)), "{reading:?}");
}

#[tokio::test]
async fn counters_in_alerts_exist_from_the_start() {
    let config = Config::default_with(&Catalog::in_tree()).unwrap();
    let text = Metrics::new(&config.features).encode().await;
    let rules = rules();
    let increases = all(&rules, "expr").into_iter().filter_map(|it| it.split_once("increase("));
    let watched: BTreeSet<&str> = increases.filter_map(|(_, series)| series.split('{').next()).collect();
    assert!(watched.contains("supercargo_cache_mismatches_total"), "{watched:?}");
    for name in watched {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} begins with its first increase");
    }
}
