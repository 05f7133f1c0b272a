//! Metrics of informers, and their Prometheus text.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;

use crate::informer_name::InformerIdentity;
use crate::kind::{GroupVersionResource, Kind};
use crate::list_watch::{ListOptions, ListWatchError, ListerWatcher, Page, WatchStream};
use crate::listener::Registration;
use crate::prometheus::{MetricType, TextWriter};
use crate::reflector::Transform;
use crate::store::StoreChange;

/// The upper bounds of [`LatencyHistogram`]'s buckets in seconds, without the last bucket. They are
/// client-go's, which keeps its dashboards usable.
pub const LATENCY_BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencyHistogram {
    /// The count of each bucket, not cumulative. The last is for durations above all bounds.
    pub counts: [u64; LATENCY_BUCKETS.len() + 1],
    /// The sum of all durations.
    pub sum: Duration,
}

impl LatencyHistogram {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The metrics of one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerMetrics {
    /// The handler's name.
    pub name: Cow<'static, str>,
    /// See [`Registration::pending`].
    pub pending: usize,
    /// See [`Registration::processed`].
    pub processed: u64,
    /// See [`Registration::panics`].
    pub panics: u64,
    /// See [`Registration::slow_calls`].
    pub slow_calls: u64,
    /// See [`Registration::has_synced`].
    pub has_synced: bool,
}

impl From<&Registration> for HandlerMetrics {
    fn from(registration: &Registration) -> Self {
        Self {
            name: registration.0.name.clone(),
            pending: registration.pending(),
            processed: registration.processed(),
            panics: registration.panics(),
            slow_calls: registration.slow_calls(),
            has_synced: registration.has_synced(),
        }
    }
}

/// The metrics of an informer. Reading them does not stop the informer, so sums may be inconsistent
/// by changes in progress.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InformerMetrics {
    /// The identity of the informer's series.
    pub identity: InformerIdentity,
    /// The resource that it lists and watches.
    pub resource: GroupVersionResource,
    /// The number of changes in the queue before the store. A whole list counts as one.
    pub queued_items: usize,
    /// The time to apply a batch and hand it on, observed once per batch. Excludes handlers, as in
    /// client-go.
    pub processing_latency: LatencyHistogram,
    /// The number of objects in the store.
    pub objects: usize,
    /// The last 15 digits of the store's resource version, which a floating-point gauge represents
    /// exactly. `None` before the first list, or if the version is not a number.
    pub store_resource_version: Option<u64>,
    /// The number of objects added to the store.
    pub added: u64,
    /// The number of updates with a new resource version.
    pub updated: u64,
    /// The number of updates without one: resyncs, and relists of unchanged objects.
    pub synced: u64,
    /// The number of objects deleted from the store.
    pub deleted: u64,
    /// The number of objects skipped because they could not be decoded.
    pub undecodable: u64,
    /// The number of lists started, including watches with initial events. All but the first are
    /// relists or their retries.
    pub lists: u64,
    /// The number of pages requested by lists.
    pub pages: u64,
    /// The number of watches requested.
    pub watches: u64,
    /// The number of lists and watches that failed.
    pub failures: u64,
    /// The current handlers, in the order of registration.
    pub handlers: Vec<HandlerMetrics>,
}

/// Writes client-go's three informer metrics, with its names and labels, in Prometheus' text
/// format: `informer_queued_items`, `informer_processing_latency_seconds` and
/// `informer_store_resource_version`. Adds two of this crate, once per named handler:
/// `informer_handler_pending_items` and `informer_handler_slow_calls_total`.
///
/// Informers without a reserved identity are skipped, same as in client-go. Series are unique if
/// the names of handlers are.
pub fn write_prometheus(out: &mut impl Write, informers: &[InformerMetrics]) -> fmt::Result {
    let reserved: Vec<_> = informers.iter().filter(|informer| informer.identity.is_reserved()).collect();
    let mut text = TextWriter::new(out);

    let name = "informer_queued_items";
    text.family(name, MetricType::Gauge, "Changes in the queue before the store.")?;
    for informer in &reserved {
        text.sample(name, informer.labels(), informer.queued_items as f64)?;
    }

    let name = "informer_processing_latency_seconds";
    text.family(name, MetricType::Histogram, "Time to apply a batch of changes and hand it on.")?;
    for informer in &reserved {
        let latency = &informer.processing_latency;
        let sum = latency.sum.as_secs_f64();
        text.histogram(name, informer.labels(), &LATENCY_BUCKETS, &latency.counts, sum)?;
    }

    let name = "informer_store_resource_version";
    text.family(name, MetricType::Gauge, "The last 15 digits of the store's resource version.")?;
    for informer in &reserved {
        if let Some(version) = informer.store_resource_version {
            text.sample(name, informer.labels(), version as f64)?;
        }
    }

    let mut per_handler = |name, metric_type, help, value: fn(&HandlerMetrics) -> f64| {
        text.family(name, metric_type, help)?;
        for informer in &reserved {
            for handler in informer.handlers.iter().filter(|handler| !handler.name.is_empty()) {
                let labels = informer.labels().into_iter().chain([("handler", &*handler.name)]);
                text.sample(name, labels, value(handler))?;
            }
        }
        Ok(())
    };
    let (pending, slow) = ("informer_handler_pending_items", "informer_handler_slow_calls_total");
    let help = "Changes that wait for an event handler.";
    per_handler(pending, MetricType::Gauge, help, |handler| handler.pending as f64)?;
    let help = "Slow calls of an event handler with a long backlog.";
    per_handler(slow, MetricType::Counter, help, |handler| handler.slow_calls as f64)
}

impl InformerMetrics {
    fn labels(&self) -> [(&str, &str); 4] {
        let GroupVersionResource { group, version, resource, .. } = &self.resource;
        [("name", self.identity.name()), ("group", group), ("version", version), ("resource", resource)]
    }
}

/// The last 15 digits of a resource version, if it is a number.
pub(crate) fn last_digits(version: &str) -> Option<u64> {
    if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    version[version.len().saturating_sub(15)..].parse().ok()
}

#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The processor's counters.
#[derive(Default)]
pub(crate) struct Meters {
    pub(crate) added: Counter,
    pub(crate) updated: Counter,
    pub(crate) synced: Counter,
    pub(crate) deleted: Counter,
    latencies: [Counter; LATENCY_BUCKETS.len() + 1],
    latency_sum_nanos: AtomicU64,
    queued: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
}

impl Meters {
    pub(crate) fn count<T>(&self, change: &StoreChange<T>, sync: bool) {
        match change {
            StoreChange::Added(_) => self.added.increment(),
            StoreChange::Updated(..) if sync => self.synced.increment(),
            StoreChange::Updated(..) => self.updated.increment(),
            StoreChange::Deleted(_) => self.deleted.increment(),
        }
    }

    pub(crate) fn processed(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = LATENCY_BUCKETS.iter().position(|bound| seconds <= *bound);
        self.latencies[bucket.unwrap_or(LATENCY_BUCKETS.len())].increment();
        // 584 years of nanoseconds fit.
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.latency_sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn latency(&self) -> LatencyHistogram {
        LatencyHistogram {
            counts: std::array::from_fn(|bucket| self.latencies[bucket].get()),
            sum: Duration::from_nanos(self.latency_sum_nanos.load(Ordering::Relaxed)),
        }
    }

    /// Sets the function that returns the length of the queue. Only the first call has an effect.
    pub(crate) fn watch_queue(&self, queued: impl Fn() -> usize + Send + Sync + 'static) {
        let _ = self.queued.set(Box::new(queued));
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued.get().map_or(0, |queued| queued())
    }
}

/// Counters of requests to the server.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) lists: Counter,
    pub(crate) pages: Counter,
    pub(crate) watches: Counter,
    pub(crate) failures: Counter,
}

/// A source that counts its requests.
pub(crate) struct Counted<S> {
    source: S,
    pub(crate) requests: std::sync::Arc<Requests>,
}

impl<S> Counted<S> {
    pub(crate) fn new(source: S, requests: std::sync::Arc<Requests>) -> Self {
        Self { source, requests }
    }

    fn count_page(&self, options: &ListOptions) {
        if options.continue_token.is_none() {
            self.requests.lists.increment();
        }
        self.requests.pages.increment();
    }

    fn note<T>(&self, answer: Result<T, ListWatchError>) -> Result<T, ListWatchError> {
        if answer.is_err() {
            self.requests.failures.increment();
        }
        answer
    }
}

impl<K: Kind, S: ListerWatcher<K>> ListerWatcher<K> for Counted<S> {
    fn list<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>> {
        self.count_page(options);
        Box::pin(async { self.note(self.source.list(options).await) })
    }

    fn list_transformed<'a>(
        &'a self,
        options: &'a ListOptions,
        transform: &'a Transform<K::Object>,
    ) -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>> {
        self.count_page(options);
        Box::pin(async move { self.note(self.source.list_transformed(options, transform).await) })
    }

    fn watch<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<WatchStream<K::Object>, ListWatchError>> {
        if options.send_initial_events {
            self.requests.lists.increment();
        }
        self.requests.watches.increment();
        Box::pin(async { self.note(self.source.watch(options).await) })
    }

    fn supports_watch_list(&self) -> bool {
        self.source.supports_watch_list()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer_name::InformerName;

    #[test]
    fn version_gauge_has_the_last_fifteen_digits() {
        for (version, digits) in [
            ("", None),
            ("12a", None),
            ("0", Some(0)),
            ("42", Some(42)),
            ("999999999999999", Some(999_999_999_999_999)),
            ("12345678901234567890", Some(678_901_234_567_890)),
            (&"7".repeat(60), Some(777_777_777_777_777)),
        ] {
            assert_eq!(last_digits(version), digits, "{version:?}");
        }
    }

    #[test]
    fn latencies_fall_into_buckets_by_their_upper_bounds() {
        let meters = Meters::default();
        for millis in [0, 1, 2, 5, 700, 10_000, 60_000] {
            meters.processed(Duration::from_millis(millis));
        }
        let latency = meters.latency();
        assert_eq!(latency.counts, [2, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1]);
        assert_eq!((latency.count(), latency.sum), (7, Duration::from_millis(70_708)));
    }

    fn metrics(identity: InformerIdentity) -> InformerMetrics {
        let meters = Meters::default();
        meters.processed(Duration::from_millis(3));
        let handler = |name: &'static str| HandlerMetrics {
            name: name.into(),
            pending: 7,
            processed: 8,
            panics: 0,
            slow_calls: 9,
            has_synced: true,
        };
        InformerMetrics {
            identity,
            resource: GroupVersionResource::namespaced("apps", "v1", "deployments"),
            queued_items: 5,
            processing_latency: meters.latency(),
            objects: 3,
            store_resource_version: Some(42),
            added: 3,
            updated: 0,
            synced: 0,
            deleted: 0,
            undecodable: 0,
            lists: 1,
            pages: 1,
            watches: 1,
            failures: 0,
            handlers: vec![handler("a \"b\""), handler("")],
        }
    }

    #[test]
    fn metrics_have_upstream_names_and_labels() {
        let name = InformerName::new("metrics-test").unwrap();
        let resource = GroupVersionResource::namespaced("apps", "v1", "deployments");
        let reserved = name.with_resource(resource);
        let mut text = String::new();
        write_prometheus(&mut text, &[metrics(reserved), metrics(InformerIdentity::default())]).unwrap();
        let labels = r#"name="metrics-test",group="apps",version="v1",resource="deployments""#;
        for line in [
            format!("informer_queued_items{{{labels}}} 5"),
            format!("informer_processing_latency_seconds_bucket{{{labels},le=\"0.001\"}} 0"),
            format!("informer_processing_latency_seconds_bucket{{{labels},le=\"0.005\"}} 1"),
            format!("informer_processing_latency_seconds_bucket{{{labels},le=\"10\"}} 1"),
            format!("informer_processing_latency_seconds_bucket{{{labels},le=\"+Inf\"}} 1"),
            format!("informer_processing_latency_seconds_sum{{{labels}}} 0.003"),
            format!("informer_processing_latency_seconds_count{{{labels}}} 1"),
            format!("informer_store_resource_version{{{labels}}} 42"),
            format!("informer_handler_pending_items{{{labels},handler=\"a \\\"b\\\"\"}} 7"),
            format!("informer_handler_slow_calls_total{{{labels},handler=\"a \\\"b\\\"\"}} 9"),
        ] {
            assert_eq!(text.lines().filter(|it| *it == line).count(), 1, "{line}\n{text}");
        }
        // 5 families of 2 lines, 2 gauges, 2 series of the named handler, 12 buckets and the last,
        // sum and count.
        assert_eq!(text.lines().count(), 10 + 2 + 2 + 15, "anonymous informers are omitted:\n{text}");
    }
}
