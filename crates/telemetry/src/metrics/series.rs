//! Series that are updated as events happen. Current totals are read at each scrape instead.

use std::sync::Arc;

use super::family::Family;
use super::spec;
use super::text::Text;
use super::value::{Counter, Gauge, Histogram};

/// Declares the stored families, each with its [`spec`].
macro_rules! series {
    ($($name:ident: $value:ident = $spec:ident,)*) => {
        /// The stored families.
        pub(crate) struct Series {
            $(pub(crate) $name: Family<$value>,)*
        }

        impl Series {
            pub(crate) fn new() -> Self {
                Self { $($name: Family::new(&spec::$spec),)* }
            }

            /// Writes all families.
            pub(crate) fn write(&self, text: &mut Text) {
                $(self.$name.write(text);)*
            }
        }
    };
}

series! {
    attempts: Counter = SCHEDULE_ATTEMPTS,
    attempt_duration: Histogram = ATTEMPT_DURATION,
    group_attempts: Counter = GROUP_ATTEMPTS,
    group_attempt_duration: Histogram = GROUP_ATTEMPT_DURATION,
    group_algorithm: Histogram = GROUP_ALGORITHM_DURATION,
    placements: Counter = PLACEMENTS,
    placements_tried: Counter = PLACEMENTS_TRIED,
    placement_duration: Histogram = PLACEMENT_DURATION,
    group_preemption_attempts: Counter = GROUP_PREEMPTION_ATTEMPTS,
    group_victims: Histogram = GROUP_PREEMPTION_VICTIMS,
    workload_disruptions: Histogram = WORKLOAD_DISRUPTIONS,
    preemption_evaluation: Histogram = PREEMPTION_EVALUATION_DURATION,
    preemption_execution: Histogram = PREEMPTION_EXECUTION_DURATION,
    pdb_violations: Counter = PDB_VIOLATIONS,
    algorithm: Histogram = ALGORITHM_DURATION,
    event_handling: Histogram = EVENT_HANDLING_DURATION,
    victims: Histogram = PREEMPTION_VICTIMS,
    preemption_attempts: Counter = PREEMPTION_ATTEMPTS,
    sli: Histogram = SLI_DURATION,
    pod_attempts: Histogram = POD_ATTEMPTS,
    after_flush: Counter = AFTER_FLUSH,
    extension_point: Histogram = EXTENSION_POINT_DURATION,
    plugin: Histogram = PLUGIN_DURATION,
    hint: Histogram = HINT_DURATION,
    queue_incoming: Counter = QUEUE_INCOMING,
    entities_incoming: Counter = ENTITIES_INCOMING,
    permit_wait: Histogram = PERMIT_WAIT,
    evaluations: Counter = PLUGIN_EVALUATIONS,
    preemption_executions: Counter = PREEMPTION_EXECUTIONS,
    claim_creations: Counter = CLAIM_CREATIONS,
    device_waits: Counter = DEVICE_WAITS,
    device_wait_duration: Histogram = DEVICE_WAIT_DURATION,
    volume_errors: Counter = VOLUME_ERRORS,
    leader: Gauge = LEADER,
    lost_races: Counter = LOST_RACES,
    anomalies: Counter = ANOMALIES,
    plugin_failures: Counter = PLUGIN_FAILURES,
    config_generation: Gauge = CONFIG_GENERATION,
    config_failures: Counter = CONFIG_FAILURES,
    config_successful: Gauge = CONFIG_SUCCESSFUL,
    cache_mismatches: Counter = CACHE_MISMATCHES,
    trace_spans_dropped: Counter = TRACE_SPANS_DROPPED,
    insight_questions: Counter = INSIGHT_QUESTIONS,
    insight_copy_duration: Histogram = INSIGHT_COPY_DURATION,
}

/// The single series of a family without labels.
pub(crate) fn only<V: super::value::Value>(family: &Family<V>) -> Arc<V> {
    family.with(&[])
}
