//! Extenders over HTTP.
//!
//! Calls within a cycle block the owner's thread, for at most the extender's `httpTimeout`.
//! Informer events wait in the mailbox meanwhile, so that the cycle reads a consistent state. Bind
//! calls run concurrently with later cycles.

mod messages;

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode, Uri, header};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use supercargo_framework::PodInfo;
use supercargo_scheduler::{Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec};
use thiserror::Error;
use tokio::runtime::Handle;

use crate::watchdog::Watchdog;
use supercargo_client::api::full_text;
use supercargo_client::connection::{self, kubeconfig_of, to_endpoint};
use supercargo_client::transport::{is_connection_refused, read_answer};
use supercargo_config::{ExtenderConfig, ExtenderTls};

/// Why an extender cannot be called.
#[derive(Debug, Error)]
#[error("extender {url_prefix}")]
pub struct SetupError {
    url_prefix: String,
    #[source]
    cause: Cause,
}

type Cause = Box<dyn StdError + Send + Sync>;

/// The extenders of a configuration. Clones share connections.
#[derive(Clone, Default)]
pub struct HttpExtenders(Arc<[HttpExtender]>);

struct HttpExtender {
    config: ExtenderConfig,
    client: Client,
}

impl HttpExtenders {
    /// Creates a client for each extender. Reads certificate files, but sends no request.
    pub async fn new(configs: &[ExtenderConfig]) -> Result<Self, SetupError> {
        let mut extenders = Vec::with_capacity(configs.len());
        for config in configs {
            let failed = |cause| SetupError { url_prefix: config.url_prefix.clone(), cause };
            let client = client(config).await.map_err(failed)?;
            extenders.push(HttpExtender { config: config.clone(), client });
        }
        Ok(Self(extenders.into()))
    }

    /// Whether any extender receives whole pods, or manages resources, which only whole pods name.
    pub fn need_whole_pods(&self) -> bool {
        let asks = |config: &ExtenderConfig| {
            config.filter_verb.is_some() || config.prioritize_verb.is_some() || config.preempt_verb.is_some()
        };
        self.0.iter().any(|extender| asks(&extender.config) || !extender.config.managed_resources.is_empty())
    }

    /// Whether any extender receives whole nodes.
    pub fn need_whole_nodes(&self) -> bool {
        let asks = |config: &ExtenderConfig| config.filter_verb.is_some() || config.prioritize_verb.is_some();
        self.0.iter().any(|HttpExtender { config, .. }| asks(config) && !config.node_cache_capable)
    }

    /// Calls within a cycle. Requests run on `runtime`, to which the owner's thread does not
    /// belong.
    pub fn calls(&self, runtime: Handle, watchdog: Watchdog) -> HttpCalls {
        HttpCalls { extenders: self.clone(), runtime, watchdog }
    }

    /// The longest timeout of any extender.
    pub fn longest_call(&self) -> Duration {
        self.0.iter().map(|extender| extender.config.http_timeout).max().unwrap_or_default()
    }

    /// Calls the extender's bind verb.
    pub(crate) async fn bind(
        &self,
        extender: &ExtenderSpec,
        pod: &PodInfo,
        node: &str,
    ) -> Result<(), String> {
        let extender = self.get(extender)?;
        let answer =
            extender.send(extender.config.bind_verb.as_deref(), messages::binding_args(pod, node)).await?;
        messages::bound(answer.as_ref())
    }

    fn get(&self, extender: &ExtenderSpec) -> Result<&HttpExtender, String> {
        self.0.get(extender.id).ok_or_else(|| format!("extender {} is not configured", extender.name))
    }

    async fn ask(
        &self,
        extender: &ExtenderSpec,
        question: ExtenderQuestion<'_>,
    ) -> Result<ExtenderAnswer, String> {
        let extender = self.get(extender)?;
        let config = &extender.config;
        let by_name = config.node_cache_capable;
        match question {
            ExtenderQuestion::Filter { pod, nodes } => {
                let args = messages::nodes_args(pod, nodes, by_name);
                let answer = extender.send(config.filter_verb.as_deref(), args).await?;
                messages::filtered(answer.as_ref(), nodes, by_name, &config.url_prefix)
            }
            ExtenderQuestion::Prioritize { pod, nodes } => {
                let args = messages::nodes_args(pod, nodes, by_name);
                messages::prioritized(extender.send(config.prioritize_verb.as_deref(), args).await?.as_ref())
            }
            ExtenderQuestion::Preempt { pod, candidates } => {
                let args = messages::preemption_args(pod, candidates, by_name);
                messages::preempted(extender.send(config.preempt_verb.as_deref(), args).await?.as_ref())
            }
        }
    }
}

/// Calls extenders, and blocks until they respond.
pub struct HttpCalls {
    extenders: HttpExtenders,
    runtime: Handle,
    watchdog: Watchdog,
}

impl Calls for HttpCalls {
    fn ask(
        &mut self,
        extender: &ExtenderSpec,
        question: ExtenderQuestion<'_>,
    ) -> Result<ExtenderAnswer, String> {
        self.watchdog.tick();
        let answer = self.runtime.block_on(self.extenders.ask(extender, question));
        self.watchdog.tick();
        if let Err(error) = &answer {
            let name = &*extender.name;
            match question {
                ExtenderQuestion::Prioritize { pod, .. } => {
                    tracing::info!(
                        extender = name, error, pod = %pod.key(),
                        "Failed to run extender's priority function. No score given by this extender."
                    );
                }
                ExtenderQuestion::Filter { pod, .. } | ExtenderQuestion::Preempt { pod, .. }
                    if extender.ignorable =>
                {
                    tracing::info!(
                        extender = name, error, pod = %pod.key(),
                        "Skipping extender as it returned error and has ignorable flag set"
                    );
                }
                // The scheduler reports the consequences.
                _ => {}
            }
        }
        answer
    }
}

impl HttpExtender {
    /// Posts a message and returns the body of the response. Error texts are those of Go's client,
    /// if it has one.
    async fn send(&self, verb: Option<&str>, body: Vec<u8>) -> Result<impl AsRef<[u8]> + use<>, String> {
        let ExtenderConfig { url_prefix, http_timeout, .. } = &self.config;
        let Some(verb) = verb else {
            return Err(format!("extender {url_prefix} has no verb for this"));
        };
        let url = format!("{url_prefix}/{verb}");
        match tokio::time::timeout(*http_timeout, self.exchange(verb, &url, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!(
                "Post {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            )),
        }
    }

    async fn exchange(
        &self,
        verb: &str,
        url: &str,
        body: Vec<u8>,
    ) -> Result<impl AsRef<[u8]> + use<>, String> {
        let uri: Uri = url.parse().map_err(|error| format!("parse {url:?}: {error}"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| format!("Post {url:?}: {error}"))?;
        let response = self.client.send(request).await;
        let response = response.map_err(|error| format!("Post {url:?}: {}", cause(&error, &uri)))?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(format!("failed {verb} with extender at URL {url}, code {}", status.as_u16()));
        }
        let answer = read_answer(response.into_body()).await;
        answer.map_err(|error| format!("Post {url:?}: {}", full_text(&*error)))
    }
}

/// Why there was no response.
fn cause(error: &kube::Error, uri: &Uri) -> String {
    if !is_connection_refused(error) {
        return full_text(error);
    }
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    format!("dial tcp {}:{port}: connect: connection refused", uri.host().unwrap_or_default())
}

async fn client(extender: &ExtenderConfig) -> Result<Client, Cause> {
    Ok(connection::client(connection(extender).await?)?)
}

async fn connection(extender: &ExtenderConfig) -> Result<kube::Config, Cause> {
    let uri: Uri = extender.url_prefix.parse()?;
    let scheme = uri.scheme_str().unwrap_or("http");
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let ExtenderTls { insecure, server_name, cert_file, key_file, ca_file, cert_data, key_data, ca_data } =
        &extender.tls;
    // As upstream, `enableHTTPS` without a CA bundle accepts any certificate.
    let unchecked = extender.enable_https && ca_file.is_none() && ca_data.is_none();
    let cluster = json!({
        "server": format!("{scheme}://{authority}"),
        "insecure-skip-tls-verify": *insecure || unchecked,
        "tls-server-name": server_name,
        "certificate-authority": ca_file,
        "certificate-authority-data": ca_data,
    });
    let user = json!({
        "client-certificate": cert_file,
        "client-certificate-data": cert_data,
        "client-key": key_file,
        "client-key-data": key_data,
    });
    Ok(to_endpoint(kubeconfig_of(cluster, user)?).await?)
}

#[cfg(test)]
mod tests;
