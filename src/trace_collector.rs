//! The connection to the OpenTelemetry collector.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::FutureExt as _;
use kube::Config;

use supercargo_client::api::full_text;
use supercargo_client::connection::without_needless_trust;
use supercargo_client::transport::Transport;
use supercargo_config::flags::TraceOptions;
use supercargo_telemetry::traces::OtlpCollector;

/// The collector of `--tracing-endpoint`, if set. Trusts the system's root certificates.
pub(crate) fn collector(options: &TraceOptions, hostname: &str) -> Result<Option<OtlpCollector>> {
    let Some(endpoint) = options.tracing_endpoint.clone() else { return Ok(None) };
    let transport = Transport::connect(without_needless_trust(Config::new(endpoint.clone())))
        .with_context(|| format!("--tracing-endpoint {endpoint}"))?;
    Ok(Some(OtlpCollector {
        endpoint,
        send: Arc::new(move |request| {
            let transport = transport.clone();
            async move { transport.send(request).await.map_err(|error| full_text(&*error)) }.boxed()
        }),
        per_million: options.tracing_sampling_rate_per_million,
        instance: hostname.to_owned(),
    }))
}

#[cfg(test)]
mod tests;
