//! Trace flags.

use clap::{Args, value_parser};
use http::Uri;

use super::misc::Server;

/// Export of traces of scheduling attempts.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Traces flags")]
pub struct TraceOptions {
    /// OpenTelemetry collector that receives traces of scheduling attempts by OTLP over HTTP, as in
    /// http://otel-collector:4318; `/v1/traces` is appended. Without this flag, tracing is off.
    #[arg(long, value_name = "URL", value_parser = Server)]
    pub tracing_endpoint: Option<Uri>,
    /// Pods per million to trace; every attempt of a sampled pod is traced.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1_000_000,
        value_parser = value_parser!(u32).range(0..=1_000_000)
    )]
    pub tracing_sampling_rate_per_million: u32,
}

impl Default for TraceOptions {
    fn default() -> Self {
        super::defaults()
    }
}
