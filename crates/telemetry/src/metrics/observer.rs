//! An observer that updates metrics.
//!
//! It runs on the scheduler's thread, some dozen times per pod. So series are looked up once and
//! cached: by index where possible, else in short lists.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use supercargo_framework::binding::DevicesAwaited;
use supercargo_framework::context::{Preemptor, Victims};
use supercargo_framework::{ClusterEvent, Code};
use supercargo_runtime::observer::{
    AttemptResult, Entity, Evaluated, Observation, ObservedProfile, Observer, PluginSet, Point, QueueName,
    TimePoint, Timespan,
};

use super::series::{Series, only};
use super::value::{Counter, Histogram, Value};

/// The number of status codes.
const CODES: usize = Code::Pending as usize + 1;
/// Pods with at least this many attempts share a label.
const MANY_ATTEMPTS: usize = 15;
/// Plugins are timed individually in one of this many cycles, as upstream.
const WATCHED_CYCLES: u64 = 10;
/// The plugin whose runs at PostFilter count as preemption attempts.
const PREEMPTION: &str = "DefaultPreemption";
/// The plugin whose errors upstream counts.
const VOLUMES: &str = "VolumeBinding";

/// Cached series, in the order of first use.
struct Known<K, V>(RefCell<Vec<(K, Arc<V>)>>);

impl<K, V: Value> Known<K, V> {
    fn new() -> Self {
        Self(RefCell::default())
    }

    /// Updates the cached series that matches `is`, or looks it up.
    fn with(&self, is: impl Fn(&K) -> bool, look_up: impl FnOnce() -> (K, Arc<V>), act: impl FnOnce(&V)) {
        let mut known = self.0.borrow_mut();
        if let Some((_, value)) = known.iter().find(|(key, _)| is(key)) {
            return act(value);
        }
        let (key, value) = look_up();
        act(&value);
        known.push((key, value));
    }
}

/// Cached series by index, looked up at first use.
struct Places<V, const N: usize>(RefCell<[Option<Arc<V>>; N]>);

impl<V: Value, const N: usize> Places<V, N> {
    fn new() -> Self {
        Self(RefCell::new(std::array::from_fn(|_| None)))
    }

    fn with(&self, place: usize, look_up: impl FnOnce() -> Arc<V>, act: impl FnOnce(&V)) {
        act(self.0.borrow_mut()[place].get_or_insert_with(look_up));
    }
}

/// The series of one profile.
struct OfProfile {
    name: Arc<str>,
    attempts: Places<Counter, { AttemptResult::COUNT }>,
    attempt_duration: Places<Histogram, { AttemptResult::COUNT }>,
    points: Vec<Places<Histogram, CODES>>,
    evaluations: [Vec<Arc<Counter>>; 4],
}

impl OfProfile {
    fn new(series: &Series, profile: &ObservedProfile) -> Self {
        let name = &*profile.scheduler_name;
        let counters = |point: Point, plugins: &[&'static str]| {
            let counter = |plugin: &&str| series.evaluations.with(&[plugin, point.as_str(), name]);
            plugins.iter().map(counter).collect()
        };
        Self {
            name: Arc::clone(&profile.scheduler_name),
            attempts: Places::new(),
            attempt_duration: Places::new(),
            points: (0..Point::COUNT).map(|_| Places::new()).collect(),
            evaluations: [
                counters(Point::PreFilter, &profile.pre_filter),
                counters(Point::Filter, &profile.filter),
                counters(Point::PreScore, &profile.pre_score),
                counters(Point::Score, &profile.score),
            ],
        }
    }

    fn evaluated(&self, plugins: Evaluated) {
        let count = |counters: &[Arc<Counter>], plugins: PluginSet| {
            plugins.places().filter_map(|place| counters.get(place)).for_each(|counter| counter.increment());
        };
        let sets = [plugins.pre_filter, plugins.filter, plugins.pre_score, plugins.score];
        for (counters, plugins) in self.evaluations.iter().zip(sets) {
            count(counters, plugins);
        }
    }
}

/// The hint series of one event.
type Hints = Known<(Box<str>, &'static str), Histogram>;

/// Updates metrics and forwards to the next observer.
pub(super) struct MetricsObserver {
    series: Arc<Series>,
    /// Whether there are groups. As in kube-scheduler, some metrics of pods depend on it.
    has_groups: bool,
    inner: Box<dyn Observer>,
    profiles: Vec<OfProfile>,
    algorithm: Arc<Histogram>,
    sli: Places<Histogram, { MANY_ATTEMPTS + 1 }>,
    pod_attempts: Arc<Histogram>,
    queue_incoming: [Known<Box<str>, Counter>; 3],
    entities_incoming: [Known<(Box<str>, &'static str), Counter>; 3],
    handled: Known<ClusterEvent, Histogram>,
    hints: RefCell<Vec<(ClusterEvent, Hints)>>,
    plugins: Known<(Box<str>, Point, Code), Histogram>,
    /// The origin of the observer's clock.
    origin: Instant,
    dice: Cell<u64>,
}

impl MetricsObserver {
    pub(super) fn new(series: Arc<Series>, has_groups: bool, inner: Box<dyn Observer>) -> Self {
        Self {
            has_groups,
            inner,
            profiles: Vec::new(),
            algorithm: only(&series.algorithm),
            sli: Places::new(),
            pod_attempts: only(&series.pod_attempts),
            queue_incoming: std::array::from_fn(|_| Known::new()),
            entities_incoming: std::array::from_fn(|_| Known::new()),
            handled: Known::new(),
            hints: RefCell::default(),
            plugins: Known::new(),
            origin: Instant::now(),
            dice: Cell::new(0x9E37_79B9_7F4A_7C15),
            series,
        }
    }

    fn attempt(&self, profile: usize, result: AttemptResult, took: Timespan) {
        let Some(profile) = self.profiles.get(profile) else { return };
        let (place, labels) = (result as usize, [result.as_str(), &*profile.name]);
        profile.attempts.with(place, || self.series.attempts.with(&labels), Counter::increment);
        let look_up = || self.series.attempt_duration.with(&labels);
        profile.attempt_duration.with(place, look_up, |histogram| histogram.observe(seconds(took)));
    }

    fn group_attempt(&self, profile: usize, result: AttemptResult, took: Timespan) {
        let Some(profile) = self.profiles.get(profile) else { return };
        let labels = [result.as_str(), &*profile.name];
        self.series.group_attempts.with(&labels).increment();
        self.series.group_attempt_duration.with(&labels).observe(seconds(took));
    }

    fn placements(&self, profile: usize, count: usize) {
        let Some(profile) = self.profiles.get(profile) else { return };
        self.series.placements.with(&[&*profile.name]).add(count);
    }

    fn placement_tried(&self, profile: usize, is_feasible: bool, took: Timespan) {
        let Some(profile) = self.profiles.get(profile) else { return };
        let labels = [if is_feasible { "feasible" } else { "infeasible" }, &*profile.name];
        self.series.placements_tried.with(&labels).increment();
        self.series.placement_duration.with(&labels).observe(seconds(took));
    }

    fn scheduled(&self, attempts: u32, since_first_attempt: Option<Duration>, after_flush: bool) {
        self.pod_attempts.observe(f64::from(attempts));
        let place = usize::try_from(attempts).unwrap_or(MANY_ATTEMPTS).min(MANY_ATTEMPTS);
        let label = || if place == MANY_ATTEMPTS { format!("{place}+") } else { place.to_string() };
        if let Some(duration) = since_first_attempt {
            self.sli.with(place, || self.series.sli.with(&[&label()]), |histogram| histogram.took(duration));
        }
        if after_flush {
            only(&self.series.after_flush).increment();
        }
    }

    fn extension_point(&self, profile: usize, point: Point, status: Code, took: Timespan) {
        let Some(profile) = self.profiles.get(profile) else { return };
        let labels = [point.as_str(), status.as_str(), &*profile.name];
        let look_up = || self.series.extension_point.with(&labels);
        profile.points[point as usize].with(status as usize, look_up, |it| it.observe(seconds(took)));
    }

    fn plugin(&self, plugin: &str, point: Point, status: Code, took: Timespan) {
        // This observation is sent for each run, for this metric.
        match point {
            Point::PostFilter if plugin == PREEMPTION => {
                only(&self.series.preemption_attempts).increment();
                self.preemption_evaluated("pod", status, took);
            }
            Point::PodGroupPostFilter if plugin == PREEMPTION => {
                self.series.group_preemption_attempts.with(&[status.as_str()]).increment();
            }
            _ => {}
        }
        if matches!(point, Point::PostFilter | Point::PodGroupPostFilter) && !self.watches_plugins() {
            return;
        }
        let look_up = || {
            let histogram = self.series.plugin.with(&[plugin, point.as_str(), status.as_str()]);
            ((plugin.into(), point, status), histogram)
        };
        let is = |key: &(Box<str>, Point, Code)| key.1 == point && key.2 == status && *key.0 == *plugin;
        self.plugins.with(is, look_up, |histogram| histogram.observe(seconds(took)));
    }

    fn plugin_failed(&self, plugin: &str, point: Point) {
        self.series.plugin_failures.with(&[plugin, point.as_str()]).increment();
        let operation = match point {
            Point::Filter => "predicate",
            Point::Reserve => "assume",
            Point::PreBind => "bind",
            _ => return,
        };
        if plugin == VOLUMES {
            self.series.volume_errors.with(&[operation]).increment();
        }
    }

    fn queue_incoming(&self, queue: QueueName, event: &str, entity: Entity, is_entity: bool) {
        let (place, label) = match queue {
            QueueName::Active => (0, "active"),
            QueueName::Backoff => (1, "backoff"),
            QueueName::Unschedulable => (2, "unschedulable"),
        };
        let look_up = || (event.into(), self.series.queue_incoming.with(&[label, event]));
        self.queue_incoming[place].with(|it| **it == *event, look_up, |it| it.add(entity.pods()));
        if is_entity {
            let kind = entity.as_str();
            let look_up =
                || ((event.into(), kind), self.series.entities_incoming.with(&[label, event, kind]));
            let is_known = |(it, known): &(Box<str>, &str)| **it == *event && *known == kind;
            self.entities_incoming[place].with(is_known, look_up, Counter::increment);
        }
    }

    fn hint(&self, plugin: &str, event: &ClusterEvent, hint: &'static str, took: Timespan) {
        let mut hints = self.hints.borrow_mut();
        let place = hints.iter().position(|(it, _)| it == event).unwrap_or_else(|| {
            hints.push((event.clone(), Known::new()));
            hints.len() - 1
        });
        let look_up = || {
            let histogram = self.series.hint.with(&[plugin, &event.to_string(), hint]);
            ((plugin.into(), hint), histogram)
        };
        hints[place].1.with(
            |(it, of)| *of == hint && **it == *plugin,
            look_up,
            |histogram| histogram.observe(seconds(took)),
        );
    }

    fn handled(&self, event: &ClusterEvent, took: Timespan) {
        let look_up = || (event.clone(), self.series.event_handling.with(&[&event.to_string()]));
        self.handled.with(|it| it == event, look_up, |histogram| histogram.observe(seconds(took)));
    }

    /// Claims for extended resources have no admin access, and belong to their pod.
    fn claim_creation(&self, is_created: bool) {
        let status = if is_created { "success" } else { "failure" };
        self.series.claim_creations.with(&[status, "false", "", "Pod"]).increment();
    }

    fn devices_awaited(&self, profile: usize, wait: &DevicesAwaited, took: Timespan) {
        let Some(profile) = self.profiles.get(profile) else { return };
        let labels = |driver| [&*profile.name, driver, wait.outcome.as_str()];
        for driver in &wait.drivers {
            self.series.device_wait_duration.with(&labels(&**driver)).observe(seconds(took));
        }
        for driver in &wait.with_conditions {
            self.series.device_waits.with(&labels(&**driver)).increment();
        }
    }

    /// As in kube-scheduler, the label of a composite group is that of a group.
    fn preemption_evaluated(&self, preemptor: &str, status: Code, took: Timespan) {
        if self.has_groups {
            let labels = [preemptor, status.as_str()];
            self.series.preemption_evaluation.with(&labels).observe(seconds(took));
        }
    }

    fn preempting(&self, preemptor: &Preemptor, victims: &Victims) {
        let Victims { pods, pdb_violations, of_groups } = victims;
        let is_group = preemptor.group.is_some();
        let series = if is_group { &self.series.group_victims } else { &self.series.victims };
        only(series).observe(pods.len() as f64);
        let labels = [preemptor.kind()];
        if self.has_groups && *of_groups > 0 {
            self.series.workload_disruptions.with(&labels).observe(*of_groups as f64);
        }
        if self.has_groups && *pdb_violations > 0 {
            self.series.pdb_violations.with(&labels).add(*pdb_violations);
        }
    }

    fn preempted(&self, preemptor: &Preemptor, asynchronous: bool, failed: bool, took: Timespan) {
        let result = if failed { "error" } else { "success" };
        if asynchronous {
            self.series.preemption_executions.with(&[result]).increment();
        }
        if self.has_groups {
            self.series.preemption_execution.with(&[preemptor.kind(), result]).observe(seconds(took));
        }
    }
}

impl Observer for MetricsObserver {
    fn observe(&self, observation: Observation<'_>) {
        match &observation {
            Observation::QueueIncoming { queue, event, entity, is_entity } => {
                self.queue_incoming(*queue, event, *entity, *is_entity);
            }
            Observation::GroupAlgorithm(took) => only(&self.series.group_algorithm).observe(seconds(*took)),
            Observation::Placements { profile, count } => self.placements(*profile, *count),
            Observation::PlacementTried { profile, is_feasible, took } => {
                self.placement_tried(*profile, *is_feasible, *took);
            }
            Observation::GroupAttempt { profile, result, took } => {
                self.group_attempt(*profile, *result, *took);
            }
            Observation::Attempt {
                profile,
                result,
                attempts,
                since_first_attempt,
                after_flush,
                took,
                ..
            } => {
                self.attempt(*profile, *result, *took);
                if *result == AttemptResult::Scheduled {
                    self.scheduled(*attempts, *since_first_attempt, *after_flush);
                }
            }
            Observation::Algorithm(took) => self.algorithm.observe(seconds(*took)),
            Observation::ExtensionPoint { profile, point, status, took, .. } => {
                self.extension_point(*profile, *point, *status, *took);
            }
            Observation::Plugin { plugin, point, status, took, .. } => {
                self.plugin(plugin, *point, *status, *took);
            }
            Observation::PluginFailed { plugin, point } => self.plugin_failed(plugin, *point),
            Observation::Evaluated { profile, plugins } => {
                if let Some(profile) = self.profiles.get(*profile) {
                    profile.evaluated(*plugins);
                }
            }
            Observation::Hint { plugin, event, hint, took } => self.hint(plugin, event, hint, *took),
            Observation::Handled { event, took } => self.handled(event, *took),
            Observation::PermitWaited { result, waited } => {
                self.series.permit_wait.with(&[result]).took(*waited);
            }
            Observation::GroupPreemptionEvaluated { plugin, status, took } => {
                if *plugin == PREEMPTION {
                    self.preemption_evaluated("podgroup", *status, *took);
                }
            }
            Observation::Preempting { preemptor, victims } => self.preempting(preemptor, victims),
            Observation::Preempted { preemptor, asynchronous, failed, took } => {
                self.preempted(preemptor, *asynchronous, *failed, *took);
            }
            Observation::ClaimCreation { is_created } => self.claim_creation(*is_created),
            Observation::DevicesAwaited { profile, wait, took } => {
                self.devices_awaited(*profile, wait, *took);
            }
            Observation::LostRace => self.series.lost_races.with(&["pod"]).increment(),
            Observation::NodeTaken => self.series.lost_races.with(&["node"]).increment(),
            Observation::Anomaly(_) => only(&self.series.anomalies).increment(),
        }
        self.inner.observe(observation);
    }

    fn profiles(&mut self, profiles: &[ObservedProfile]) {
        self.profiles = profiles.iter().map(|profile| OfProfile::new(&self.series, profile)).collect();
        self.inner.profiles(profiles);
    }

    fn time_point(&self) -> TimePoint {
        // Nanoseconds of 584 years fit.
        TimePoint(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Random, so that periodic workloads are sampled evenly.
    fn watches_plugins(&self) -> bool {
        let mut dice = self.dice.get();
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        self.dice.set(dice);
        dice.is_multiple_of(WATCHED_CYCLES)
    }
}

fn seconds(took: Timespan) -> f64 {
    took.to.0.saturating_sub(took.from.0) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use supercargo_framework::binding::DeviceWait;
    use supercargo_framework::context::PreemptorGroup;
    use supercargo_framework::objects::GroupKey;
    use supercargo_framework::testing::pod;
    use supercargo_runtime::observer::Unobserved;

    use super::*;
    use crate::metrics::text::Text;

    /// The lines of families whose name contains `part`, after these observations of one profile.
    fn lines<const N: usize>(observations: [Observation<'_>; N], part: &str) -> Vec<String> {
        lines_with(true, observations, part)
    }

    fn lines_with<const N: usize>(
        has_groups: bool,
        observations: [Observation<'_>; N],
        part: &str,
    ) -> Vec<String> {
        let series = Arc::new(Series::new());
        let mut observer = MetricsObserver::new(Arc::clone(&series), has_groups, Box::new(Unobserved));
        let (pre_filter, filter, pre_score, score) = Default::default();
        let scheduler_name = "gpus".into();
        observer.profiles(&[ObservedProfile { scheduler_name, pre_filter, filter, pre_score, score }]);
        for observation in observations {
            observer.observe(observation);
        }
        let mut text = Text::default();
        series.write(&mut text);
        let text = text.finish();
        let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(part));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn claims_for_extended_resources_are_counted() {
        let created = |is_created| Observation::ClaimCreation { is_created };
        let name = "dynamic_resource_allocation_resourceclaim_creates_total";
        let of = |status| {
            format!(
                "{name}{{status=\"{status}\",admin_access=\"false\",owner_api_group=\"\",owner_api_kind=\"Pod\"}}"
            )
        };
        let found = lines([created(true), created(false), created(true)], "resourceclaim");
        assert_eq!(found, [format!("{} 1", of("failure")), format!("{} 2", of("success"))]);
    }

    #[test]
    fn waits_for_devices_are_counted_by_driver() {
        for outcome in [DeviceWait::Success, DeviceWait::Failure, DeviceWait::Timeout, DeviceWait::Error] {
            let (drivers, with_conditions) = (vec!["a".into(), "b".into()], vec!["b".into()]);
            let wait = DevicesAwaited { outcome, drivers, with_conditions };
            let took = Timespan { from: TimePoint(0), to: TimePoint(3_000_000_000) };
            let found =
                lines([Observation::DevicesAwaited { profile: 0, wait: &wait, took }], "scheduler_dra");
            let labels =
                |driver| format!("profile=\"gpus\",driver=\"{driver}\",status=\"{}\"", outcome.as_str());
            let name = "scheduler_dra_bindingconditions";
            let counted: Vec<&String> = found.iter().filter(|line| line.contains("_total")).collect();
            assert_eq!(counted, [&format!("{name}_allocations_total{{{}}} 1", labels("b"))]);
            for driver in ["a", "b"] {
                let sum = format!("{name}_wait_duration_seconds_sum{{{}}} 3", labels(driver));
                assert!(found.contains(&sum), "{sum} is not in {found:#?}");
            }
        }
    }

    #[test]
    fn preemptions_are_counted_by_preemptor_if_there_are_groups() {
        let key = GroupKey::of_groups("default/job".into());
        let pod = || Preemptor::from(Arc::new(pod("p").build()));
        let group = PreemptorGroup { key, uid: "g".into(), resource_version: "1".into(), others: Vec::new() };
        let tree = Preemptor { group: Some(group), ..pod() };
        let victims = Victims { pods: vec![pod().pod; 3], pdb_violations: 2, of_groups: 1 };
        let took = Timespan { from: TimePoint(0), to: TimePoint(3_000_000_000) };
        let observations = || {
            [
                Observation::Plugin {
                    pod: &tree.pod,
                    plugin: PREEMPTION,
                    point: Point::PostFilter,
                    status: Code::Unschedulable,
                    took,
                },
                Observation::GroupPreemptionEvaluated { plugin: PREEMPTION, status: Code::Success, took },
                Observation::GroupPreemptionEvaluated { plugin: "Other", status: Code::Error, took },
                Observation::Preempting { preemptor: &tree, victims: &victims },
                Observation::Preempted { preemptor: &tree, asynchronous: true, failed: true, took },
            ]
        };
        let of_name = |name: &str| {
            let mut found = lines(observations(), name);
            found.retain(|line| !line.contains("_bucket") && !line.contains("_count"));
            found
        };
        let expected: &[(&str, &[&str])] = &[
            (
                "scheduler_preemption_evaluation_duration_seconds",
                &[
                    "_sum{preemptor=\"pod\",result=\"Unschedulable\"} 3",
                    "_sum{preemptor=\"podgroup\",result=\"Success\"} 3",
                ],
            ),
            (
                "scheduler_preemption_execution_duration_seconds",
                &["_sum{preemptor=\"compositepodgroup\",result=\"error\"} 3"],
            ),
            ("scheduler_preemption_workload_disruptions", &["_sum{preemptor=\"compositepodgroup\"} 1"]),
            ("scheduler_preemption_pdb_violations_total", &["{preemptor=\"compositepodgroup\"} 2"]),
            ("scheduler_preemption_goroutines_execution_total", &["{result=\"error\"} 1"]),
        ];
        for (name, samples) in expected {
            let samples: Vec<String> = samples.iter().map(|sample| format!("{name}{sample}")).collect();
            assert_eq!(of_name(name), samples);
        }
        let without_groups = lines_with(false, observations(), "preemptor=");
        assert!(without_groups.is_empty(), "{without_groups:?}");
    }
}
