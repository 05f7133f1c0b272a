//! All metric families: name, type, labels and help. `docs/metrics.md` lists the same.

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// A value that only increases.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// Counts of observations by range.
    Histogram(Buckets),
}

/// The upper bounds of a histogram's buckets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buckets {
    /// The first bound, the factor, and the number of bounds.
    Exponential(f64, f64, usize),
    /// Explicit bounds.
    Given(&'static [f64]),
}

impl Buckets {
    /// The bounds in ascending order.
    pub fn bounds(&self) -> Vec<f64> {
        match *self {
            Self::Exponential(first, factor, count) => {
                std::iter::successors(Some(first), |bound| Some(bound * factor)).take(count).collect()
            }
            Self::Given(bounds) => bounds.to_vec(),
        }
    }
}

/// A metric family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Its help text. As in Kubernetes, the text of a family that kube-scheduler has, too, begins
    /// with its stability.
    pub help: &'static str,
}

impl Spec {
    pub(crate) const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Counter, labels, help }
    }

    pub(crate) const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Gauge, labels, help }
    }

    pub(crate) const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        buckets: Buckets,
        help: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Histogram(buckets), labels, help }
    }
}

/// From 1 ms.
const ATTEMPTS: Buckets = Buckets::Exponential(0.001, 2.0, 15);
/// From 1 ms, to 32 s.
const PREEMPTIONS: Buckets = Buckets::Exponential(0.001, 2.0, 16);
/// From 0.1 ms.
const POINTS: Buckets = Buckets::Exponential(0.0001, 2.0, 12);
/// From 10 µs.
const PLUGINS: Buckets = Buckets::Exponential(0.00001, 1.5, 20);
/// From 10 ms.
const LONG: Buckets = Buckets::Exponential(0.01, 2.0, 20);
/// As in client-go.
const REQUESTS: Buckets =
    Buckets::Given(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);

/// Bytes, as in client-go.
const SIZES: Buckets = Buckets::Given(&[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
]);

/// The labels of client-go's metrics of informers.
const INFORMER: &[&str] = &["name", "group", "version", "resource"];

/// The bounds of the informers' histogram, which the program writes.
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
        "[STABLE] Attempts to schedule pods, by result: scheduled, unschedulable, or error.");
    ATTEMPT_DURATION = histogram("scheduler_scheduling_attempt_duration_seconds", &["result", "profile"], ATTEMPTS,
        "[STABLE] Duration of an attempt from taking the pod from the queue to its end, including binding.");
    ALGORITHM_DURATION = histogram("scheduler_scheduling_algorithm_duration_seconds", &[], ATTEMPTS,
        "[BETA] Duration of the scheduling algorithm: finding a node, or diagnosing why none fits, including PostFilter.");
    GROUP_ATTEMPTS = counter("scheduler_podgroup_schedule_attempts_total", &["result", "profile"],
        "[ALPHA] Attempts to schedule pod groups, by result: scheduled, unschedulable, waiting_on_preemption, or error.");
    GROUP_ATTEMPT_DURATION = histogram("scheduler_podgroup_scheduling_attempt_duration_seconds", &["result", "profile"], ATTEMPTS,
        "[ALPHA] Duration of an attempt of a pod group, without bindings.");
    GROUP_ALGORITHM_DURATION = histogram("scheduler_podgroup_scheduling_algorithm_duration_seconds", &[], ATTEMPTS,
        "[ALPHA] Duration of finding nodes for the pods of a group.");
    PLACEMENTS = counter("scheduler_generated_placements_total", &["profile"],
        "[ALPHA] Placements of pod groups that were listed.");
    PLACEMENTS_TRIED = counter("scheduler_placement_evaluations_total", &["result", "profile"],
        "[ALPHA] Evaluations of a pod group on a placement, by result: feasible or infeasible.");
    PLACEMENT_DURATION = histogram("scheduler_placement_evaluation_duration_seconds", &["result", "profile"], ATTEMPTS,
        "[ALPHA] Duration of an evaluation of a pod group on a placement.");
    GROUP_PREEMPTION_ATTEMPTS = counter("scheduler_workload_preemption_attempts_total", &["result"],
        "[ALPHA] Preemption attempts for pod groups, by status of DefaultPreemption.");
    GROUP_PREEMPTION_VICTIMS = histogram("scheduler_workload_preemption_victims", &[], Buckets::Exponential(1.0, 2.0, 11),
        "[ALPHA] Number of victims per preemption for a pod group, including those that already terminate.");
    WORKLOAD_DISRUPTIONS = histogram("scheduler_preemption_workload_disruptions", &["preemptor"], Buckets::Exponential(1.0, 2.0, 11),
        "[ALPHA] Victims per preemption that are pod groups preempted whole, or pods of other groups. Only if a group preempts.");
    PREEMPTION_EVALUATION_DURATION = histogram("scheduler_preemption_evaluation_duration_seconds", &["preemptor", "result"],
        PREEMPTIONS, "[ALPHA] Duration of a search for victims, by preemptor (pod or podgroup) and status.");
    PREEMPTION_EXECUTION_DURATION = histogram("scheduler_preemption_execution_duration_seconds", &["preemptor", "result"],
        PREEMPTIONS, "[ALPHA] Time from the choice of victims until the responses to all requests.");
    PDB_VIOLATIONS = counter("scheduler_preemption_pdb_violations_total", &["preemptor"],
        "[ALPHA] Victims whose eviction violates a PodDisruptionBudget.");
    EVENT_HANDLING_DURATION = histogram("scheduler_event_handling_duration_seconds", &["event"], POINTS,
        "[ALPHA] Duration of handling a cluster event, including moving the pods that it may make schedulable.");
    PREEMPTION_VICTIMS = histogram("scheduler_preemption_victims", &[], Buckets::Exponential(1.0, 2.0, 7),
        "[STABLE] Number of victims per preemption, including those that already terminate.");
    PREEMPTION_ATTEMPTS = counter("scheduler_preemption_attempts_total", &[],
        "[STABLE] Preemption attempts.");
    PENDING_PODS = gauge("scheduler_pending_pods", &["queue"],
        "[STABLE] Pending pods by queue: active, backoff, unschedulable, or gated (held by a PreEnqueue plugin). Also pods of pod groups that are in no queue: incomplete (the PodGroup does not exist), pending (the group is being tried).");
    QUEUED_ENTITIES = gauge("scheduler_queued_entities", &["queue", "type"],
        "[ALPHA] Queued entities by queue (active, backoff, unschedulable, gated) and type: pod, or podgroup, whose pods are one entity.");
    INFLIGHT_EVENTS = gauge("scheduler_inflight_events", &["event"],
        "[ALPHA] In-flight events, kept for pods that are being scheduled; PodPopped counts these pods.");
    GOROUTINES = gauge("scheduler_goroutines", &["operation"],
        "[BETA] Operations in flight outside the scheduling cycle: binding, and deletions of DefaultPreemption.");
    SLI_DURATION = histogram("scheduler_pod_scheduling_sli_duration_seconds", &["attempts"], LONG,
        "[BETA] Time from a pod's first entry into activeQ until it is bound, by number of attempts.");
    POD_ATTEMPTS = histogram("scheduler_pod_scheduling_attempts", &[], Buckets::Exponential(1.0, 2.0, 5),
        "[STABLE] Number of attempts to schedule a pod successfully.");
    AFTER_FLUSH = counter("scheduler_pod_scheduled_after_flush_total", &[],
        "[ALPHA] Pods scheduled after a flush of unschedulableEntities because they waited too long; a queueing hint may be missing.");
    EXTENSION_POINT_DURATION = histogram("scheduler_framework_extension_point_duration_seconds",
        &["extension_point", "status", "profile"], POINTS,
        "[STABLE] Duration of all plugins of an extension point.");
    PLUGIN_DURATION = histogram("scheduler_plugin_execution_duration_seconds",
        &["plugin", "extension_point", "status"], PLUGINS,
        "[BETA] Duration of a plugin at an extension point, sampled in a tenth of the cycles.");
    HINT_DURATION = histogram("scheduler_queueing_hint_execution_duration_seconds", &["plugin", "event", "hint"],
        PLUGINS, "[ALPHA] Duration of a plugin's queueing hint.");
    QUEUE_INCOMING = counter("scheduler_queue_incoming_pods_total", &["queue", "event"],
        "[STABLE] Pods added to a queue, by event.");
    ENTITIES_INCOMING = counter("scheduler_queue_incoming_entities_total", &["queue", "event", "type"],
        "[ALPHA] The same pods, without those that hints sent straight to this queue, as kube-scheduler counts.");
    PERMIT_WAIT = histogram("scheduler_permit_wait_duration_seconds", &["result"], ATTEMPTS,
        "[BETA] Time that pods waited on Permit plugins.");
    CACHE_SIZE = gauge("scheduler_cache_size", &["type"],
        "[ALPHA] Number of nodes, pods and assumed_pods in the cache; pods include assumed ones.");
    UNSCHEDULABLE_PODS = gauge("scheduler_unschedulable_pods", &["plugin", "profile"],
        "[BETA] Unschedulable pods by plugin that rejected them. A pod counts for each of these plugins.");
    PLUGIN_EVALUATIONS = counter("scheduler_plugin_evaluation_total", &["plugin", "extension_point", "profile"],
        "[BETA] Evaluations of a plugin at PreFilter, Filter, PreScore or Score, once per cycle.");
    PREEMPTION_EXECUTIONS = counter("scheduler_preemption_goroutines_execution_total", &["result"],
        "[ALPHA] Preemptions with responses to all requests.");
    CLAIM_CREATIONS = counter("dynamic_resource_allocation_resourceclaim_creates_total",
        &["status", "admin_access", "owner_api_group", "owner_api_kind"],
        "[ALPHA] Requests to create a ResourceClaim for the extended resources of a pod.");
    DEVICE_WAITS = counter("scheduler_dra_bindingconditions_allocations_total", &["profile", "driver", "status"],
        "[ALPHA] Devices with binding conditions that a binding has waited for.");
    DEVICE_WAIT_DURATION = histogram("scheduler_dra_bindingconditions_wait_duration_seconds",
        &["profile", "driver", "status"], Buckets::Exponential(0.1, 2.0, 14),
        "[ALPHA] Time that a binding has waited for binding conditions, once for each device of the pod.");
    VOLUME_ERRORS = counter("scheduler_volume_scheduling_stage_error_total", &["operation"],
        "[ALPHA] Errors of VolumeBinding while filtering (predicate), reserving (assume) or binding (bind).");
    REST_REQUESTS = counter("rest_client_requests_total", &["code", "method", "host"],
        "[ALPHA] Requests to the API server by HTTP status; <error> without a response.");
    REST_DURATION = histogram("rest_client_request_duration_seconds", &["verb", "host"], REQUESTS,
        "[ALPHA] Time from sending a request to the headers of the response.");
    REST_RATE_LIMITER = histogram("rest_client_rate_limiter_duration_seconds", &["verb", "host"], REQUESTS,
        "[ALPHA] Time that requests waited for the rate limit and for the limit of requests in flight.");
    REST_REQUEST_SIZE = histogram("rest_client_request_size_bytes", &["verb", "host"], SIZES,
        "[ALPHA] Size of a request's body, except of watches.");
    REST_RESPONSE_SIZE = histogram("rest_client_response_size_bytes", &["verb", "host"], SIZES,
        "[ALPHA] Size of a response's body, except of watches.");
    INFORMER_QUEUED = gauge("informer_queued_items", INFORMER,
        "[ALPHA] Changes received from the API server that are not in the informer's store yet.");
    INFORMER_LAG = histogram("informer_processing_latency_seconds", INFORMER, INFORMER_LATENCY,
        "[ALPHA] Time to apply a batch of changes to the store and to notify the handlers.");
    INFORMER_VERSION = gauge("informer_store_resource_version", INFORMER,
        "[ALPHA] Last 15 digits of the resource version of the store.");
    LEADER = gauge("leader_election_master_status", &["name"],
        "[ALPHA] 1 if this process holds the lease of this name, else 0.");
    FEATURE_ENABLED = gauge("kubernetes_feature_enabled", &["name", "stage"],
        "[BETA] 1 if the feature is enabled, else 0. Lists only features with an effect in supercargo.");
    TASKS = gauge("go_goroutines", &[],
        "Number of asynchronous tasks, under the name that Go dashboards expect.");
    CPU_SECONDS = counter("process_cpu_seconds_total", &[], "User and system CPU time.");
    RESIDENT_MEMORY = gauge("process_resident_memory_bytes", &[], "Resident memory size in bytes.");
    VIRTUAL_MEMORY = gauge("process_virtual_memory_bytes", &[], "Virtual memory size in bytes.");
    OPEN_FDS = gauge("process_open_fds", &[], "Number of open file descriptors.");
    MAX_FDS = gauge("process_max_fds", &[], "Maximum number of open file descriptors.");
    START_TIME = gauge("process_start_time_seconds", &[], "Start time of the process in seconds since the Unix epoch.");
    POD_REQUEST = gauge("kube_pod_resource_request",
        &["namespace", "pod", "node", "scheduler", "priority", "resource", "unit"],
        "[STABLE] Effective resource request of a pod. On /metrics/resources.");
    POD_LIMIT = gauge("kube_pod_resource_limit",
        &["namespace", "pod", "node", "scheduler", "priority", "resource", "unit"],
        "[STABLE] Effective resource limit of a pod, if it has one. On /metrics/resources.");
    HEALTHCHECK = gauge("kubernetes_healthcheck", &["name", "type"],
        "[STABLE] 1 if the last run of the health check succeeded, else 0. On /metrics/slis.");
    HEALTHCHECKS = counter("kubernetes_healthchecks_total", &["name", "type", "status"],
        "[STABLE] Runs of health checks by status: success or error. On /metrics/slis.");
    BUILD_INFO = gauge("supercargo_build_info", &["version", "baseline"],
        "Always 1; labels give the version of supercargo and of the kube-scheduler it follows.");
    INFORMER_OBJECTS = gauge("supercargo_informer_objects", &["resource"], "Number of objects in an informer's store.");
    INFORMER_PENDING = gauge("supercargo_informer_pending_notifications", &["resource"],
        "Changes in the store that the informer's handlers have not processed yet.");
    INFORMER_EVENTS = counter("supercargo_informer_changes_total", &["resource", "change"],
        "Objects added, updated, synced (unchanged) and deleted in an informer's store.");
    INFORMER_REQUESTS = counter("supercargo_informer_requests_total", &["resource", "request"],
        "Lists and watches started, and failures of both.");
    INFORMER_UNDECODABLE = counter("supercargo_informer_undecodable_objects_total", &["resource"],
        "Objects skipped because they could not be decoded.");
    INTERNED = gauge("supercargo_interned_values", &["resource"],
        "Distinct values that the objects in an informer's store share.");
    MAILBOX_DELAY = gauge("supercargo_mailbox_delay_seconds", &[],
        "Time that this scrape waited for the scheduler thread; changes that arrive with it wait as long.");
    TABLE_CYCLES = counter("supercargo_table_cycles_total", &["result"],
        "Cycles by use of evaluation tables: hit (existing table), build (new table), plain (no table).");
    TABLE_REPLAYS = counter("supercargo_table_replays_total", &[],
        "Rows of evaluation tables that were updated individually.");
    TABLE_RULES = counter("supercargo_table_rules_applied_total", &["rule"],
        "Invalidations of cached plugin results, by rule.");
    TABLES = gauge("supercargo_tables", &["part"], "Number of evaluation tables and of their columns.");
    TABLE_BYTES = gauge("supercargo_table_bytes", &[], "Approximate memory of evaluation tables.");
    TABLE_CHANGES = gauge("supercargo_table_changes", &[],
        "Changes kept until evaluation tables have applied them.");
    ALLOCATIONS = gauge("supercargo_pending_allocations", &[],
        "Allocations of devices that bindings in flight have yet to write.");
    BINDINGS = gauge("supercargo_bindings_in_flight", &[],
        "Pods between the choice of a node and the API server's response.");
    BACKLOG = gauge("supercargo_binding_backlog", &[],
        "Binding requests in flight. At 1,000, scheduling pauses until some complete.");
    WINDOW = gauge("supercargo_request_window", &["client", "state"],
        "Requests of a client: limit (maximum in flight), under_way (in flight), and waiting.");
    LOST_RACES = counter("supercargo_lost_races_total", &["kind"],
        "Lost races: pods that another scheduler bound first, and nodes that stopped fitting while a pod waited.");
    ANOMALIES = counter("supercargo_anomalies_total", &[], "Internal inconsistencies; the log has the details.");
    PLUGIN_FAILURES = counter("supercargo_plugin_failures_total", &["plugin", "extension_point"],
        "Internal errors of plugins; rejections of pods are not counted.");
    EVENT_SERIES = gauge("supercargo_event_series", &[], "Series of Kubernetes events that repetitions extend.");
    PENDING_WRITES = gauge("supercargo_pending_writes", &["kind"],
        "Writes of Kubernetes events and of pod statuses that are queued or in flight.");
    EVENTS_LOST = counter("supercargo_events_lost_total", &[],
        "Kubernetes events dropped because the API server did not accept them fast enough.");
    LOG_LINES_DROPPED = counter("supercargo_log_lines_dropped_total", &[],
        "Log lines dropped because standard error was not read fast enough.");
    CONFIG_GENERATION = gauge("supercargo_config_generation", &[],
        "Number of configurations so far: 1 at the start, plus 1 per reload.");
    CONFIG_FAILURES = counter("supercargo_config_reload_failures_total", &[],
        "Rejected changes of the configuration; the last valid one stays in effect.");
    CONFIG_SUCCESSFUL = gauge("supercargo_config_last_reload_successful", &[],
        "1 if the current configuration file is valid and in effect, else 0.");
    CACHE_MISMATCHES = counter("supercargo_cache_mismatches_total", &["kind"],
        "Differences between informers and scheduler that the cache comparer found, by kind (pod, node, or sum of a node's requests).");
    TRACE_SPANS_DROPPED = counter("supercargo_trace_spans_dropped_total", &["reason"],
        "Trace spans dropped, by reason: unfinished (the attempt never ended), queue_full, or not_taken (rejected by the collector).");
    INSIGHT_QUESTIONS = counter("supercargo_insight_questions_total", &["question", "code"],
        "Questions to the scheduler by HTTP status of the answer.");
    INSIGHT_COPY_DURATION = histogram("supercargo_insight_copy_duration_seconds", &[], ATTEMPTS,
        "Time that the scheduler thread takes to copy its state for questions.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_one_name_each_and_a_help_text_of_one_line() {
        for (n, spec) in ALL.iter().enumerate() {
            assert!(!ALL[..n].iter().any(|other| other.name == spec.name), "{}", spec.name);
            assert!(!spec.help.is_empty() && !spec.help.contains(['\n', '\\']), "{}", spec.name);
            assert_eq!(spec.kind == MetricKind::Counter, spec.name.ends_with("_total"), "{}", spec.name);
        }
    }

    #[test]
    fn only_families_of_kubernetes_have_a_stability() {
        for spec in ALL {
            let stable = ["[ALPHA] ", "[BETA] ", "[STABLE] "].iter().any(|it| spec.help.starts_with(it));
            let is_ours = ["supercargo_", "go_", "process_"].iter().any(|it| spec.name.starts_with(it));
            assert_eq!(stable, !is_ours, "{}", spec.name);
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
