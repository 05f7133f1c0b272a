//! `/metrics/slis`: results of health checks, as in kube-scheduler.
//!
//! Only requests of a whole probe are counted, and only checks that were not excluded, as upstream.

use std::sync::Arc;

use axum::routing::{MethodRouter, get};
use http::StatusCode;

use super::text::{answer, plain_line};
use supercargo_telemetry::metrics::spec::{HEALTHCHECK, HEALTHCHECKS};
use supercargo_telemetry::metrics::{CONTENT_TYPE, Counter, Family, Gauge, Text};

/// The last result of each check, and the number of results.
pub(super) struct Slis {
    last: Family<Gauge>,
    counts: Family<Counter>,
}

impl Default for Slis {
    fn default() -> Self {
        Self { last: Family::new(&HEALTHCHECK), counts: Family::new(&HEALTHCHECKS) }
    }
}

impl Slis {
    /// Records the result of a check.
    pub(super) fn observe(&self, check: &str, probe: &str, is_well: bool) {
        self.last.with(&[check, probe]).set(if is_well { 1.0 } else { 0.0 });
        let status = if is_well { "success" } else { "error" };
        self.counts.with(&[check, probe, status]).increment();
    }

    fn text(&self) -> String {
        let mut text = Text::default();
        self.last.write(&mut text);
        self.counts.write(&mut text);
        text.finish()
    }

    fn reset(&self) {
        self.last.clear();
        self.counts.clear();
    }
}

/// GET shows the metrics, DELETE resets them.
pub(super) fn page(slis: Arc<Slis>) -> MethodRouter {
    let resetting = Arc::clone(&slis);
    get(async move || answer(StatusCode::OK, CONTENT_TYPE, slis.text())).delete(async move || {
        resetting.reset();
        plain_line(StatusCode::OK, "metrics reset".to_owned())
    })
}
