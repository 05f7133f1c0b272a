//! Where traces of attempts go.

use clap::{Args, value_parser};
use http::Uri;

use super::misc::Server;

/// Where traces of attempts go, and of how many.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Traces flags")]
pub struct TraceOptions {
    /// The OpenTelemetry collector that gets traces of attempts by OTLP over HTTP, as in http://otel-collector:4318;
    /// `/v1/traces` is appended. Without it, nothing is traced.
    #[arg(long, value_name = "URL", value_parser = Server)]
    pub tracing_endpoint: Option<Uri>,
    /// Of so many pods in a million every attempt is traced, of the others none.
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
