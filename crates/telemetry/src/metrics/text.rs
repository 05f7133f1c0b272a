//! The text of metrics as kube-scheduler serves it.

pub use kube_informers::prometheus::CONTENT_TYPE;
use kube_informers::prometheus::{MetricType, TextWriter};

use super::spec::{MetricKind, Spec};

/// Writes a text. Writing to a string cannot fail.
#[derive(Debug, Default)]
pub struct Text(TextWriter<String>);

impl Text {
    /// Begins a family; its samples follow.
    pub fn family(&mut self, spec: &Spec) {
        let kind = match spec.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram(_) => MetricType::Histogram,
        };
        let _ = self.0.family(spec.name, kind, spec.help);
    }

    /// Writes a sample of a counter or gauge.
    pub fn sample(&mut self, spec: &Spec, labels: &[&str], value: f64) {
        let _ = self.0.sample(spec.name, pairs(spec, labels), value);
    }

    /// Writes a series of a histogram. `counts` are per bucket, not cumulative; the last is above
    /// all bounds.
    pub fn histogram(&mut self, spec: &Spec, labels: &[&str], bounds: &[f64], counts: &[u64], sum: f64) {
        let _ = self.0.histogram(spec.name, pairs(spec, labels), bounds, counts, sum);
    }

    /// The finished text.
    pub fn finish(self) -> String {
        self.0.into_inner()
    }
}

/// The labels of a series, by their names.
fn pairs<'l>(spec: &Spec, values: &'l [&str]) -> impl Iterator<Item = (&'l str, &'l str)> + Clone {
    spec.labels.iter().copied().zip(values.iter().copied())
}
