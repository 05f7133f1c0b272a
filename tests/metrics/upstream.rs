//! Compares the metrics of kube-scheduler and supercargo after the same scenario.

use std::collections::BTreeSet;
use std::thread;

use supercargo_controlplane::{ControlPlane, Options, assets_or_skip};

use super::devices::SLOW;
use super::exposition::{Exposition, Family};
use super::scenario::{Readings, play};
use super::subjects::{Ours, Reference};
use crate::support::Cluster;

/// The name of both schedulers, because it is a label.
pub(super) const SCHEDULER: &str = "measured";

/// Families that supercargo lacks, by name or prefix, with the reason.
const ABSENT: &[(&str, &str)] = &[
    ("aggregator_*", "of Go's libraries for serving"),
    ("apiserver_*", "of Go's libraries for serving"),
    ("authenticat*", "of Go's libraries for serving"),
    ("authorization_*", "of Go's libraries for serving"),
    ("cardinality_enforcement_*", "no label is limited to a list of values"),
    ("disabled_metrics_total", "no metric can be switched off"),
    ("go_*", "of Go's runtime"),
    ("hidden_metrics_total", "no metric is hidden"),
    ("kubernetes_build_info", "an alert on different versions of Kubernetes would fire"),
    ("process_network_*", "not of this process, but of its whole network namespace"),
    ("process_virtual_memory_max_bytes", "the limit of the address space is nobody's concern"),
    ("registered_metrics_total", "there are no stages of deprecation"),
    ("rest_client_exec_plugin_*", "not counted"),
    ("rest_client_transport_*", "connections are not kept by configuration"),
    ("scheduler_batch_*", "evaluation tables take the place of batches"),
    ("scheduler_get_node_hint_duration_seconds", "evaluation tables take the place of batches"),
    ("scheduler_store_schedule_results_duration_seconds", "evaluation tables take the place of batches"),
    ("version_info", "no emulated version of a binary; see supercargo_build_info"),
    ("workqueue_*", "of libraries that are not used"),
];

/// Families whose labels depend on chance or time, with the reason. Their values are not compared.
const BY_CHANCE: &[(&str, &str)] = &[
    ("scheduler_goroutines", "what runs at the same time is another thing"),
    ("scheduler_inflight_events", "events are kept while pods are in flight"),
    ("scheduler_plugin_execution_duration_seconds", "a tenth of the cycles are watched, by dice"),
    ("scheduler_queueing_hint_execution_duration_seconds", "which events come while a pod waits"),
];

/// Label values that only one side has: family, label, value, reason.
const VALUES: &[(&str, &str, &str, &str)] = &[
    (
        POINTS,
        "extension_point",
        "PreFilter",
        "a table brings all that plugins say up to date at once: Filter",
    ),
    (POINTS, "extension_point", "PreScore", "a table brings all that plugins say up to date at once: Filter"),
    (
        POINTS,
        "status",
        "UnschedulableAndUnresolvable",
        "PreEnqueue of a held pod, of which kube-scheduler says Success",
    ),
    (EVALUATIONS, "plugin", "UnsupportedConstraints", "turns down what is not evaluated yet"),
];

pub(super) const POINTS: &str = "scheduler_framework_extension_point_duration_seconds";
const EVALUATIONS: &str = "scheduler_plugin_evaluation_total";

/// Counts that must be equal after the phase without preemption: a series and some of its labels.
const CALM: &[(&str, &[(&str, &str)])] = &[
    ("scheduler_schedule_attempts_total", &[("result", "scheduled"), ("profile", SCHEDULER)]),
    ("scheduler_schedule_attempts_total", &[("result", "unschedulable"), ("profile", SCHEDULER)]),
    (
        "scheduler_scheduling_attempt_duration_seconds_count",
        &[("result", "scheduled"), ("profile", SCHEDULER)],
    ),
    ("scheduler_scheduling_attempt_duration_seconds_count", &[("result", "unschedulable")]),
    ("scheduler_scheduling_algorithm_duration_seconds_count", &[]),
    ("scheduler_pod_scheduling_attempts_count", &[]),
    ("scheduler_pod_scheduling_attempts_sum", &[]),
    ("scheduler_pod_scheduling_attempts_bucket", &[("le", "1")]),
    ("scheduler_pod_scheduling_sli_duration_seconds_count", &[("attempts", "1")]),
    ("scheduler_pod_scheduling_sli_duration_seconds_count", &[("attempts", "2")]),
    ("scheduler_pod_scheduled_after_flush_total", &[]),
    ("scheduler_preemption_attempts_total", &[]),
    ("scheduler_preemption_victims_count", &[]),
    ("scheduler_queue_incoming_pods_total", &[("queue", "active"), ("event", "UnscheduledPodAdd")]),
    ("scheduler_queue_incoming_pods_total", &[("queue", "unschedulable"), ("event", "UnscheduledPodAdd")]),
    (
        "scheduler_queue_incoming_pods_total",
        &[("queue", "unschedulable"), ("event", "ScheduleAttemptFailure")],
    ),
    ("scheduler_queue_incoming_pods_total", &[("event", "NodeAdd")]),
    (
        "scheduler_queue_incoming_entities_total",
        &[("queue", "active"), ("event", "UnscheduledPodAdd"), ("type", "pod")],
    ),
    (
        "scheduler_queue_incoming_entities_total",
        &[("queue", "unschedulable"), ("event", "UnscheduledPodAdd"), ("type", "pod")],
    ),
    ("scheduler_queued_entities", &[("queue", "unschedulable"), ("type", "pod")]),
    ("scheduler_queued_entities", &[("queue", "gated"), ("type", "pod")]),
    ("scheduler_pending_pods", &[("queue", "incomplete")]),
    ("scheduler_pending_pods", &[("queue", "pending")]),
    ("scheduler_pending_pods", &[("queue", "unschedulable")]),
    ("scheduler_pending_pods", &[("queue", "gated")]),
    ("scheduler_cache_size", &[("type", "pods")]),
    ("scheduler_unschedulable_pods", &[("plugin", "NodeResourcesFit"), ("profile", SCHEDULER)]),
    ("scheduler_unschedulable_pods", &[("plugin", "NodeAffinity"), ("profile", SCHEDULER)]),
    ("scheduler_unschedulable_pods", &[("plugin", "TaintToleration"), ("profile", SCHEDULER)]),
    ("scheduler_unschedulable_pods", &[("plugin", "SchedulingGates"), ("profile", SCHEDULER)]),
    ("scheduler_plugin_evaluation_total", &[("plugin", "NodeAffinity"), ("extension_point", "PreFilter")]),
    (
        "scheduler_plugin_evaluation_total",
        &[("plugin", "NodeResourcesFit"), ("extension_point", "PreFilter")],
    ),
    ("scheduler_framework_extension_point_duration_seconds_count", &[("extension_point", "Reserve")]),
    ("scheduler_framework_extension_point_duration_seconds_count", &[("extension_point", "Permit")]),
    ("scheduler_framework_extension_point_duration_seconds_count", &[("extension_point", "PreBind")]),
    ("scheduler_framework_extension_point_duration_seconds_count", &[("extension_point", "Bind")]),
    ("scheduler_framework_extension_point_duration_seconds_count", &[("extension_point", "PostBind")]),
    ("scheduler_framework_extension_point_duration_seconds_count", &[("extension_point", "PostFilter")]),
    ("scheduler_framework_extension_point_duration_seconds_count", &[("extension_point", "PreEnqueue")]),
    ("scheduler_event_handling_duration_seconds_count", &[("event", "NodeAdd")]),
    ("scheduler_event_handling_duration_seconds_count", &[("event", "UnscheduledPodAdd")]),
    ("scheduler_event_handling_duration_seconds_count", &[("event", "AssignedPodAdd")]),
    ("scheduler_unschedulable_pods", &[("plugin", "DynamicResources"), ("profile", SCHEDULER)]),
    (
        "scheduler_plugin_evaluation_total",
        &[("plugin", "DynamicResources"), ("extension_point", "PreFilter")],
    ),
    ("dynamic_resource_allocation_resourceclaim_creates_total", &[("status", "success")]),
    ("scheduler_dra_bindingconditions_allocations_total", &[("driver", SLOW), ("status", "success")]),
    (
        "scheduler_dra_bindingconditions_wait_duration_seconds_count",
        &[("driver", SLOW), ("status", "success"), ("profile", SCHEDULER)],
    ),
    ("kubernetes_feature_enabled", &[("name", "SchedulerPopFromBackoffQ")]),
];

/// Counts that must be equal after a preemption, whatever its timing.
const PREEMPTED: &[(&str, &[(&str, &str)])] = &[
    ("scheduler_schedule_attempts_total", &[("result", "scheduled")]),
    ("scheduler_preemption_victims_count", &[]),
    ("scheduler_preemption_victims_sum", &[]),
    ("scheduler_preemption_goroutines_execution_total", &[("result", "success")]),
    ("scheduler_pod_scheduling_attempts_count", &[]),
    ("scheduler_cache_size", &[("type", "pods")]),
    ("rest_client_requests_total", &[("code", "200"), ("method", "DELETE")]),
];

/// Counts that must be equal once no pod waits.
const EMPTY: &[(&str, &[(&str, &str)])] = &[
    ("scheduler_pending_pods", &[]),
    ("scheduler_inflight_events", &[("event", "PodPopped")]),
    ("scheduler_unschedulable_pods", &[("plugin", "SchedulingGates")]),
];

fn readings(play_on: impl FnOnce(&ControlPlane, &Cluster) -> Readings) -> Readings {
    let plane = ControlPlane::start(Options::default()).unwrap();
    let cluster = Cluster::of(&plane);
    play_on(&plane, &cluster)
}

#[test]
fn metrics_of_a_scenario_match_kube_scheduler() {
    if assets_or_skip().is_none() {
        return;
    }
    let (theirs, ours) = thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            readings(|plane, cluster| play(cluster, SCHEDULER, &Reference::start(plane, SCHEDULER)))
        });
        let ours = scope.spawn(|| {
            readings(|plane, cluster| {
                let scheduler = Ours::start(plane, SCHEDULER);
                let readings = play(cluster, SCHEDULER, &scheduler);
                check_resources(&scheduler.resources());
                readings
            })
        });
        (theirs.join().unwrap(), ours.join().unwrap())
    });
    let mut found = Vec::new();
    found.extend(counts(CALM, "calm", &theirs.calm, &ours.calm));
    found.extend(counts(PREEMPTED, "preempted", &theirs.preempted, &ours.preempted));
    found.extend(counts(EMPTY, "empty", &theirs.empty, &ours.empty));
    found.extend(families(&theirs.empty, &ours.empty));
    found.extend(label_values(&theirs.calm, &ours.calm));
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

/// Counts that differ or are missing on one side.
pub(super) fn counts(
    wanted: &[(&str, &[(&str, &str)])],
    when: &str,
    theirs: &Exposition,
    ours: &Exposition,
) -> Vec<String> {
    let differing = wanted.iter().filter_map(|(name, labels)| {
        let (theirs, ours) = (theirs.sum(name, labels), ours.sum(name, labels));
        (theirs.is_none() || theirs != ours)
            .then(|| format!("{when}: {name} {labels:?}: kube-scheduler {theirs:?}, supercargo {ours:?}"))
    });
    differing.collect()
}

/// Families that differ in type, stability, labels or buckets, or are missing without a reason.
fn families(theirs: &Exposition, ours: &Exposition) -> Vec<String> {
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    for (name, family) in theirs.0.iter().filter(|(_, family)| !family.samples.is_empty()) {
        let reason = ABSENT.iter().find(|(absent, _)| match absent.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == absent,
        });
        match (ours.0.get(name), reason) {
            // A pattern may match an existing family.
            (Some(_), Some((absent, _))) if !absent.ends_with('*') => {
                found.push(format!("{name} is said to be absent and is not"));
            }
            (Some(mine), _) => found.extend(family_differences(name, family, mine)),
            (None, Some((absent, _))) => {
                used.insert(absent);
            }
            (None, None) => {
                found.push(format!("{name} ({}, {:?}) is missing", family.kind, family.label_names()));
            }
        }
    }
    let unused = ABSENT.iter().filter(|(absent, _)| !used.contains(absent));
    found.extend(unused.map(|(absent, _)| format!("kube-scheduler has no {absent} either")));
    // Every listed family of upstream must exist there.
    for name in ours.0.keys().filter(|name| name.starts_with("scheduler_")) {
        if !theirs.0.contains_key(name) {
            found.push(format!("kube-scheduler has no {name}"));
        }
    }
    found
}

/// How a family differs in type, stability, labels or buckets.
pub(super) fn family_differences(name: &str, theirs: &Family, ours: &Family) -> Vec<String> {
    let mut found = Vec::new();
    if theirs.kind != ours.kind {
        found.push(format!("{name} is a {} and not a {}", theirs.kind, ours.kind));
    }
    if theirs.stability != ours.stability {
        found.push(format!("{name} is {:?}, ours {:?}", theirs.stability, ours.stability));
    }
    if !ours.samples.is_empty() && theirs.label_names() != ours.label_names() {
        found.push(format!(
            "{name} has the labels {:?}, ours {:?}",
            theirs.label_names(),
            ours.label_names()
        ));
    }
    if !ours.samples.is_empty() && theirs.bounds() != ours.bounds() {
        found.push(format!("{name} has the bounds {:?}, ours {:?}", theirs.bounds(), ours.bounds()));
    }
    found
}

/// Label values that only one side has, without a reason.
fn label_values(theirs: &Exposition, ours: &Exposition) -> Vec<String> {
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    let is_compared =
        |name: &str| name.starts_with("scheduler_") && !BY_CHANCE.iter().any(|(it, _)| *it == name);
    for (name, family) in theirs.0.iter().filter(|(name, _)| is_compared(name)) {
        let Some(mine) = ours.0.get(name) else { continue };
        for label in family.label_names() {
            let (theirs, ours) = (family.values_of(label), mine.values_of(label));
            for (whose, value) in theirs
                .difference(&ours)
                .map(|value| ("kube-scheduler", value))
                .chain(ours.difference(&theirs).map(|value| ("supercargo", value)))
            {
                let known =
                    VALUES.iter().find(|(of, it, known, _)| of == name && *it == label && known == value);
                match known {
                    Some(known) => {
                        used.insert(known);
                    }
                    None => found.push(format!("only {whose} has {name}{{{label}={value:?}}}")),
                }
            }
        }
    }
    let unused = VALUES.iter().filter(|known| !used.contains(known));
    found.extend(
        unused.map(|(name, label, value, _)| format!("both have {name}{{{label}={value:?}}}, or neither")),
    );
    found
}

/// The resource metrics of the scenario's pods once only the bound ones are left.
fn check_resources(resources: &Exposition) {
    let cpu = |pod: &str| {
        resources.sum("kube_pod_resource_request", &[("pod", pod), ("resource", "cpu"), ("unit", "cores")])
    };
    assert_eq!((cpu("small-1"), cpu("high")), (Some(0.1), Some(1.5)));
    let placed = [("pod", "high"), ("priority", "1000"), ("scheduler", SCHEDULER), ("namespace", "default")];
    assert_eq!(resources.sum("kube_pod_resource_request", &placed), Some(1.5));
}
