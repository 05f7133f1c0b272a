//! Metrics, under upstream's names where upstream has them.
//!
//! What happens is counted as it happens (`Series`, by an observer on the scheduler's thread); how much there is at the
//! moment is asked for at each scrape. `docs/metrics.md` lists every family and what differs from kube-scheduler.

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

/// The release of kube-scheduler that is followed.
const BASELINE: &str = "1.36.3";

/// Reports at each scrape how much of everything exists at the moment.
pub trait Collector: Send + Sync {
    /// Writes the families that this collector measures.
    fn collect<'a>(&'a self, text: &'a mut Text) -> BoxFuture<'a, ()>;

    /// The pods for `/metrics/resources`; `None` while there is no informer.
    fn pods(&self) -> Option<Vec<Arc<PodInfo>>>;
}

/// The metrics of this process.
pub struct Metrics {
    series: Arc<Series>,
    features: Features,
    /// `None` before the scheduler runs.
    collector: Mutex<Option<Arc<dyn Collector>>>,
}

impl Metrics {
    /// Metrics with nothing counted yet, under the first configuration.
    pub fn new(features: &Features) -> Arc<Self> {
        let series = Arc::new(Series::new());
        only(&series.config_generation).set(1.0);
        only(&series.config_successful).set(1.0);
        // These are there before anything is counted: where a series begins with 1, Prometheus sees no increase.
        for kind in ["node", "pod"] {
            series.cache_mismatches.with(&[kind]);
            series.lost_races.with(&[kind]);
        }
        Arc::new(Self { series, features: features.clone(), collector: Mutex::new(None) })
    }

    /// Counts what is observed, and passes it on.
    pub fn observer(&self, inner: Box<dyn Observer>) -> Box<dyn Observer> {
        Box::new(MetricsObserver::new(Arc::clone(&self.series), inner))
    }

    /// Sets the collector that scrapes ask from now on.
    pub fn set_collector(&self, collector: Arc<dyn Collector>) {
        *self.collector.lock() = Some(collector);
    }

    /// Whether this process leads, by the lease of this name. Without an election nobody says so, and there is no such series.
    pub fn leads(&self, lease: &str, leads: bool) {
        self.series.leader.with(&[lease]).set(f64::from(u8::from(leads)));
    }

    /// Another configuration is in force.
    pub fn config_reloaded(&self) {
        let generation = only(&self.series.config_generation);
        generation.set(generation.get() + 1.0);
    }

    /// A changed configuration was refused.
    pub fn config_refused(&self) {
        only(&self.series.config_failures).increment();
    }

    /// Whether the configuration file says what is in force, as far as it has been read.
    pub fn config_successful(&self, is_successful: bool) {
        only(&self.series.config_successful).set(f64::from(u8::from(is_successful)));
    }

    /// The comparer found a difference between what the informer and what the scheduler knows of a `node` or a `pod`.
    pub fn cache_mismatch(&self, kind: &str) {
        self.series.cache_mismatches.with(&[kind]).increment();
    }

    /// Counts spans of traces that are dropped for this reason.
    pub fn trace_spans_dropped(&self, reason: &str) -> Arc<Counter> {
        self.series.trace_spans_dropped.with(&[reason])
    }

    /// What `/metrics` serves, as [`CONTENT_TYPE`]. Asks the scheduler between two cycles.
    pub async fn encode(&self) -> String {
        let collector = self.collector.lock().clone();
        let mut collected = Text::default();
        if let Some(collector) = collector {
            collector.collect(&mut collected).await;
        }
        // Then what was counted is no older than the scheduler's answer: nothing is over there and has not happened here.
        let mut text = Text::default();
        self.series.write(&mut text);
        self.write_features(&mut text);
        text.family(&spec::BUILD_INFO);
        text.sample(&spec::BUILD_INFO, &[env!("CARGO_PKG_VERSION"), BASELINE], 1.0);
        write_tasks(&mut text);
        process::write(&mut text);
        text.finish() + &collected.finish()
    }

    /// What `/metrics/resources` serves; empty before there is an informer. Reads the informer's store, not the scheduler.
    pub async fn resources(&self) -> String {
        let collector = self.collector.lock().clone();
        let Some(pods) = collector.and_then(|collector| collector.pods()) else { return String::new() };
        let write = move || {
            let mut text = Text::default();
            resources::write(&mut text, pods.iter().map(|pod| &**pod));
            text.finish()
        };
        // With many pods this takes a while, during which others are to be served. It fails only where it panics.
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
