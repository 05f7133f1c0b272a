//! Every family of metrics: its name, type, labels, and what it tells. `docs/metrics.md` lists the same.

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// It only rises.
    Counter,
    /// It rises and falls.
    Gauge,
    /// How many fell into which range.
    Histogram(Buckets),
}

/// The upper bounds of a histogram's ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buckets {
    /// The first, what each is of the one before, and how many there are.
    Exponential(f64, f64, usize),
    /// These.
    Given(&'static [f64]),
}

impl Buckets {
    /// The bounds, ascending.
    pub fn bounds(&self) -> Vec<f64> {
        match *self {
            Self::Exponential(first, factor, count) => {
                std::iter::successors(Some(first), |bound| Some(bound * factor)).take(count).collect()
            }
            Self::Given(bounds) => bounds.to_vec(),
        }
    }
}

/// A family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it tells.
    pub help: &'static str,
}

impl Spec {
    pub(crate) const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Counter, labels, help }
    }

    pub(crate) const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Gauge, labels, help }
    }

    pub(crate) const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        buckets: Buckets,
        help: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Histogram(buckets), labels, help }
    }
}

/// From a millisecond on.
const ATTEMPTS: Buckets = Buckets::Exponential(0.001, 2.0, 15);
/// From a tenth of a millisecond on.
const POINTS: Buckets = Buckets::Exponential(0.0001, 2.0, 12);
/// From ten microseconds on.
const PLUGINS: Buckets = Buckets::Exponential(0.00001, 1.5, 20);
/// From ten milliseconds on.
const LONG: Buckets = Buckets::Exponential(0.01, 2.0, 20);
/// client-go's.
const REQUESTS: Buckets =
    Buckets::Given(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);

/// The bounds of the informers' own histogram, which the program fills in.
const INFORMER_LATENCY: Buckets =
    Buckets::Given(&[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

/// Declares the families, and [`ALL`] of them.
macro_rules! families {
    ($($constant:ident = $sort:ident($name:literal, $labels:expr, $($rest:expr),+);)*) => {
        $(#[doc = concat!("`", $name, "`")]
        pub const $constant: Spec = Spec::$sort($name, $labels, $($rest),+);)*
        /// Every family, in the order of the documentation.
        pub const ALL: &[Spec] = &[$($constant),*];
    };
}

families! {
    SCHEDULE_ATTEMPTS = counter("scheduler_schedule_attempts_total", &["result", "profile"],
        "Attempts to schedule a pod, by how they ended: scheduled, unschedulable, or error where something failed.");
    ATTEMPT_DURATION = histogram("scheduler_scheduling_attempt_duration_seconds", &["result", "profile"], ATTEMPTS,
        "Time from taking a pod from the queue to the end of the attempt, binding included.");
    ALGORITHM_DURATION = histogram("scheduler_scheduling_algorithm_duration_seconds", &[], ATTEMPTS,
        "Time to find a node for a pod, or to find that there is none and what to do about that.");
    EVENT_HANDLING_DURATION = histogram("scheduler_event_handling_duration_seconds", &["event"], POINTS,
        "Time to work in a change of the cluster, and to move the pods that it may help.");
    PREEMPTION_VICTIMS = histogram("scheduler_preemption_victims", &[], Buckets::Exponential(1.0, 2.0, 7),
        "Pods chosen to make room for one of higher priority, per preemption.");
    PREEMPTION_ATTEMPTS = counter("scheduler_preemption_attempts_total", &[],
        "Times that room was looked for by preemption.");
    PENDING_PODS = gauge("scheduler_pending_pods", &["queue"],
        "Pods that wait: active, backoff, unschedulable, or gated, that is, held by a PreEnqueue plugin.");
    INFLIGHT_EVENTS = gauge("scheduler_inflight_events", &["event"],
        "Events kept for pods that are being scheduled; PodPopped counts these pods.");
    GOROUTINES = gauge("scheduler_goroutines", &["operation"],
        "Things under way beside the scheduling cycle: binding, and DefaultPreemption's deletions.");
    SLI_DURATION = histogram("scheduler_pod_scheduling_sli_duration_seconds", &["attempts"], LONG,
        "Time from a pod's first entry into activeQ to its being bound, by how many attempts that took.");
    POD_ATTEMPTS = histogram("scheduler_pod_scheduling_attempts", &[], Buckets::Exponential(1.0, 2.0, 5),
        "Attempts that it took to bind a pod.");
    AFTER_FLUSH = counter("scheduler_pod_scheduled_after_flush_total", &[],
        "Pods bound in an attempt that was made only because they had waited too long: a hint may be missing.");
    EXTENSION_POINT_DURATION = histogram("scheduler_framework_extension_point_duration_seconds",
        &["extension_point", "status", "profile"], POINTS,
        "Time that all plugins of an extension point took together.");
    PLUGIN_DURATION = histogram("scheduler_plugin_execution_duration_seconds",
        &["plugin", "extension_point", "status"], PLUGINS,
        "Time that one plugin took, in a tenth of the cycles.");
    HINT_DURATION = histogram("scheduler_queueing_hint_execution_duration_seconds", &["plugin", "event", "hint"],
        PLUGINS, "Time that a plugin took to say whether an event helps a pod.");
    QUEUE_INCOMING = counter("scheduler_queue_incoming_pods_total", &["queue", "event"],
        "Pods that entered a queue, by what brought them there.");
    PERMIT_WAIT = histogram("scheduler_permit_wait_duration_seconds", &["result"], ATTEMPTS,
        "Time that pods were held by Permit plugins.");
    CACHE_SIZE = gauge("scheduler_cache_size", &["type"],
        "Nodes, pods, and assumed_pods in the cache; assumed ones count as pods, too.");
    UNSCHEDULABLE_PODS = gauge("scheduler_unschedulable_pods", &["plugin", "profile"],
        "Pods in the queues that a plugin has turned down. A pod counts for every such plugin.");
    PLUGIN_EVALUATIONS = counter("scheduler_plugin_evaluation_total", &["plugin", "extension_point", "profile"],
        "Cycles in which a plugin had a say at PreFilter, Filter, PreScore or Score.");
    PREEMPTION_DURATION = histogram("scheduler_preemption_goroutines_duration_seconds", &["result"], LONG,
        "Time from the choice of victims to the answer to the last request that deletes one.");
    PREEMPTION_EXECUTIONS = counter("scheduler_preemption_goroutines_execution_total", &["result"],
        "Preemptions of which every request has been answered.");
    VOLUME_ERRORS = counter("scheduler_volume_scheduling_stage_error_total", &["operation"],
        "Failures of VolumeBinding while filtering (predicate), reserving (assume) or binding (bind).");
    REST_REQUESTS = counter("rest_client_requests_total", &["code", "method", "host"],
        "Answers of the API server by HTTP status; <error> where none came.");
    REST_DURATION = histogram("rest_client_request_duration_seconds", &["verb", "host"], REQUESTS,
        "Time from sending a request to the head of its answer.");
    REST_RATE_LIMITER = histogram("rest_client_rate_limiter_duration_seconds", &["verb", "host"], REQUESTS,
        "Time that requests waited for qps, and for a place among those under way.");
    LEADER = gauge("leader_election_master_status", &["name"],
        "Whether this process leads, 1 or 0, by the name of the lease.");
    FEATURE_ENABLED = gauge("kubernetes_feature_enabled", &["name", "stage"],
        "Whether a feature is on, 1 or 0, of those that change something here.");
    TASKS = gauge("go_goroutines", &[],
        "Tasks that are alive. There are no goroutines here; dashboards look for this name.");
    CPU_SECONDS = counter("process_cpu_seconds_total", &[], "Time on a processor, in the kernel and outside it.");
    RESIDENT_MEMORY = gauge("process_resident_memory_bytes", &[], "Memory that is held.");
    VIRTUAL_MEMORY = gauge("process_virtual_memory_bytes", &[], "Address space that is taken.");
    OPEN_FDS = gauge("process_open_fds", &[], "Open file descriptors.");
    MAX_FDS = gauge("process_max_fds", &[], "File descriptors that may be open.");
    START_TIME = gauge("process_start_time_seconds", &[], "When the process was started, in seconds since 1970.");
    POD_REQUEST = gauge("kube_pod_resource_request",
        &["namespace", "pod", "node", "scheduler", "priority", "resource", "unit"],
        "What a pod asks for, as it counts for scheduling. On /metrics/resources.");
    POD_LIMIT = gauge("kube_pod_resource_limit",
        &["namespace", "pod", "node", "scheduler", "priority", "resource", "unit"],
        "What a pod may use at most, where that is limited. On /metrics/resources.");
    HEALTHCHECK = gauge("kubernetes_healthcheck", &["name", "type"],
        "Whether a health check was well when it was last asked for: 1 or 0. On /metrics/slis.");
    HEALTHCHECKS = counter("kubernetes_healthchecks_total", &["name", "type", "status"],
        "What health checks have said: success or error. On /metrics/slis.");
    BUILD_INFO = gauge("supercargo_build_info", &["version", "baseline"],
        "1, with the version of supercargo and the release of kube-scheduler that it follows.");
    INFORMER_OBJECTS = gauge("supercargo_informer_objects", &["resource"], "Objects that an informer holds.");
    INFORMER_QUEUED = gauge("supercargo_informer_queued_items", &["resource"],
        "Changes that came from the API server and are not in the informer's store yet.");
    INFORMER_PENDING = gauge("supercargo_informer_pending_notifications", &["resource"],
        "Changes in the store that the informer's handlers have not seen yet.");
    INFORMER_LAG = histogram("supercargo_informer_processing_duration_seconds", &["resource"],
        INFORMER_LATENCY,
        "Time to work a batch of changes into the store and to hand it on.");
    INFORMER_VERSION = gauge("supercargo_informer_resource_version", &["resource"],
        "The last 15 digits of the version up to which the store is.");
    INFORMER_EVENTS = counter("supercargo_informer_changes_total", &["resource", "change"],
        "Objects added, updated, synced (nothing new) and deleted in an informer's store.");
    INFORMER_REQUESTS = counter("supercargo_informer_requests_total", &["resource", "request"],
        "Lists and watches that were begun, and failures of either.");
    INFORMER_UNDECODABLE = counter("supercargo_informer_undecodable_objects_total", &["resource"],
        "Objects that could not be read and were left out.");
    MAILBOX_DELAY = gauge("supercargo_mailbox_delay_seconds", &[],
        "How long this scrape waited for the scheduler's thread: as long as every change that came with it.");
    TABLE_CYCLES = counter("supercargo_table_cycles_total", &["result"],
        "Cycles by how a node was found: hit (a kept table), build (a new one), plain (every plugin and node anew).");
    TABLE_REPLAYS = counter("supercargo_table_replays_total", &[],
        "Rows of kept tables that were brought up to date one by one.");
    TABLE_RULES = counter("supercargo_table_rules_applied_total", &["rule"],
        "Times that kept answers were made anew, by the rule that asked for it.");
    TABLES = gauge("supercargo_tables", &["part"], "Evaluation tables that are kept, and the columns they are made of.");
    TABLE_BYTES = gauge("supercargo_table_bytes", &[], "What evaluation tables take, roughly.");
    BINDINGS = gauge("supercargo_bindings_in_flight", &[],
        "Pods between the choice of a node and the API server's word on it.");
    BACKLOG = gauge("supercargo_binding_backlog", &[],
        "Binding requests that have been begun; at 1,000 no more pods are scheduled until some have ended.");
    WINDOW = gauge("supercargo_request_window", &["client", "state"],
        "Requests of a client: limit (how many at once), under_way, and waiting for a place.");
    LOST_RACES = counter("supercargo_lost_races_total", &["kind"],
        "Pods that another scheduler bound while this one was at it, and nodes that no longer fitted when a pod had waited.");
    ANOMALIES = counter("supercargo_anomalies_total", &[], "Things that should not happen and did; the log tells which.");
    PLUGIN_FAILURES = counter("supercargo_plugin_failures_total", &["plugin", "extension_point"],
        "Errors of plugins, as opposed to their turning a pod down.");
    EVENTS_LOST = counter("supercargo_events_lost_total", &[],
        "Kubernetes events that were not recorded because the API server did not take them fast enough.");
    CONFIG_GENERATION = gauge("supercargo_config_generation", &[],
        "How many configurations have been in force: 1 from the start, one more with each reload.");
    CONFIG_FAILURES = counter("supercargo_config_reload_failures_total", &[],
        "Changed configurations that were refused; the last good one stays in force.");
    CONFIG_SUCCESSFUL = gauge("supercargo_config_last_reload_successful", &[],
        "1, or 0 for as long as the configuration file says something that was refused.");
    CACHE_MISMATCHES = counter("supercargo_cache_mismatches_total", &["kind"],
        "Differences that the comparer found between the informers and the scheduler, of pods and of nodes.");
    TRACE_SPANS_DROPPED = counter("supercargo_trace_spans_dropped_total", &["reason"],
        "Spans of traces that reached no collector: of attempts that never ended (unfinished), as too many waited (queue_full), or as it did not take them (not_taken).");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_one_name_each_and_a_help_text_of_one_line() {
        for (n, spec) in ALL.iter().enumerate() {
            assert!(!ALL[..n].iter().any(|other| other.name == spec.name), "{}", spec.name);
            assert!(!spec.help.is_empty() && !spec.help.contains(['\n', '\\']), "{}", spec.name);
            assert_eq!(spec.kind == Kind::Counter, spec.name.ends_with("_total"), "{}", spec.name);
        }
    }

    #[test]
    fn bounds_are_what_upstream_works_out() {
        assert_eq!(Buckets::Exponential(1.0, 2.0, 7).bounds(), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
        assert_eq!(PLUGINS.bounds().len(), 20);
        // Not quite 15 microseconds: upstream multiplies, too.
        assert_eq!(PLUGINS.bounds()[1].to_string(), "0.000015000000000000002");
    }
}
