//! Metrics, under upstream's names where it has them.
//!
//! Events are counted as they happen (`Series`, by an observer on the scheduler's thread). Current
//! totals are read at each scrape. `docs/metrics.md` lists every family and the differences from
//! kube-scheduler.

mod family;
mod observer;
mod process;
mod requests;
mod resources;
mod series;
pub mod spec;
mod text;
mod value;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use supercargo_framework::PodInfo;
use supercargo_framework::features::Stage;
use supercargo_framework::{Feature, Features};
use supercargo_runtime::observer::Observer;
use tokio::runtime::Handle;

pub use self::family::Family;
use self::observer::MetricsObserver;
pub use self::requests::{Counting, Requests};
use self::series::{Series, only};
pub use self::text::CONTENT_TYPE;
pub use self::text::Text;
pub use self::value::{Counter, Gauge};

/// The release of kube-scheduler that supercargo follows.
const BASELINE: &str = "1.37.2";

/// Measures current totals at each scrape.
pub trait ScrapeCollector: Send + Sync {
    /// Writes the families of this collector.
    fn collect<'a>(&'a self, text: &'a mut Text) -> BoxFuture<'a, ()>;

    /// The pods for `/metrics/resources`; `None` before informers run.
    fn pods(&self) -> Option<Vec<Arc<PodInfo>>>;
}

/// The metrics of this process.
pub struct Metrics {
    series: Arc<Series>,
    features: Features,
    /// `None` before the scheduler runs.
    collector: Mutex<Option<Arc<dyn ScrapeCollector>>>,
}

impl Metrics {
    /// Empty metrics, with the first configuration in effect.
    pub fn new(features: &Features) -> Arc<Self> {
        let series = Arc::new(Series::new());
        only(&series.config_generation).set(1.0);
        only(&series.config_successful).set(1.0);
        // Create these series at once: Prometheus sees no increase in a series that begins with 1.
        for kind in ["node", "pod"] {
            series.lost_races.with(&[kind]);
        }
        for kind in ["node", "pod", "sum"] {
            series.cache_mismatches.with(&[kind]);
        }
        // As in kube-scheduler, they are there only if groups are.
        if !features.enabled(Feature::GenericWorkload) {
            series.group_algorithm.clear();
            series.group_victims.clear();
        }
        Arc::new(Self { series, features: features.clone(), collector: Mutex::new(None) })
    }

    /// An observer that updates these metrics and forwards to `next`.
    pub fn observer(&self, inner: Box<dyn Observer>) -> Box<dyn Observer> {
        let has_groups = self.features.enabled(Feature::GenericWorkload);
        Box::new(MetricsObserver::new(Arc::clone(&self.series), has_groups, inner))
    }

    /// Sets the collector for further scrapes.
    pub fn set_collector(&self, collector: Arc<dyn ScrapeCollector>) {
        *self.collector.lock() = Some(collector);
    }

    /// Reports whether this process holds the lease of this name. Without leader election the
    /// series does not exist.
    pub fn leads(&self, lease: &str, leads: bool) {
        self.series.leader.with(&[lease]).set(f64::from(u8::from(leads)));
    }

    /// Reports a reload of the configuration.
    pub fn config_reloaded(&self) {
        let generation = only(&self.series.config_generation);
        generation.set(generation.get() + 1.0);
    }

    /// Reports a rejected configuration.
    pub fn config_refused(&self) {
        only(&self.series.config_failures).increment();
    }

    /// Reports whether the configuration file is in effect.
    pub fn config_successful(&self, is_successful: bool) {
        only(&self.series.config_successful).set(f64::from(u8::from(is_successful)));
    }

    /// Reports a difference between informer and scheduler about a `node` or a `pod`, or a `sum`
    /// that is not that of a node's pods.
    pub fn cache_mismatch(&self, kind: &str) {
        self.series.cache_mismatches.with(&[kind]).increment();
    }

    /// Counts dropped trace spans.
    pub fn trace_spans_dropped(&self, reason: &str) -> Arc<Counter> {
        self.series.trace_spans_dropped.with(&[reason])
    }

    /// Reports the answer to a question, with its HTTP status.
    pub fn question_answered(&self, question: &str, code: u16) {
        self.series.insight_questions.with(&[question, &code.to_string()]).increment();
    }

    /// Reports how long the scheduler thread took to copy its state.
    pub fn state_copied(&self, took: Duration) {
        only(&self.series.insight_copy_duration).observe(took.as_secs_f64());
    }

    /// The content of `/metrics`, as [`CONTENT_TYPE`]. Queries the scheduler between two cycles.
    pub async fn encode(&self) -> String {
        let collector = self.collector.lock().clone();
        let mut collected = Text::default();
        if let Some(collector) = collector {
            collector.collect(&mut collected).await;
        }
        // Read the counters after the scheduler's reply, so that they are not older than it.
        let mut text = Text::default();
        self.series.write(&mut text);
        self.write_features(&mut text);
        text.family(&spec::BUILD_INFO);
        text.sample(&spec::BUILD_INFO, &[env!("CARGO_PKG_VERSION"), BASELINE], 1.0);
        write_tasks(&mut text);
        process::write(&mut text);
        text.finish() + &collected.finish()
    }

    /// The content of `/metrics/resources`; empty before informers run. Reads the informer's store,
    /// not the scheduler.
    pub async fn resources(&self) -> String {
        let collector = self.collector.lock().clone();
        let Some(pods) = collector.and_then(|collector| collector.pods()) else { return String::new() };
        let write = move || {
            let mut text = Text::default();
            resources::write(&mut text, pods.iter().map(|pod| &**pod));
            text.finish()
        };
        // This takes a while with many pods, so it runs on a blocking thread. It fails only if it
        // panics.
        tokio::task::spawn_blocking(write).await.unwrap_or_default()
    }

    fn write_features(&self, text: &mut Text) {
        text.family(&spec::FEATURE_ENABLED);
        for feature in Feature::ALL {
            let stage = match feature.gate(self.features.version()).stage {
                Stage::Absent => continue,
                Stage::Alpha => "ALPHA",
                Stage::Beta => "BETA",
                Stage::Ga => "",
            };
            let enabled = f64::from(u8::from(self.features.enabled(*feature)));
            text.sample(&spec::FEATURE_ENABLED, &[feature.name(), stage], enabled);
        }
    }
}

fn write_tasks(text: &mut Text) {
    if let Ok(runtime) = Handle::try_current() {
        text.family(&spec::TASKS);
        text.sample(&spec::TASKS, &[], runtime.metrics().num_alive_tasks() as f64);
    }
}
