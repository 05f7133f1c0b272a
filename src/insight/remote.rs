//! Questions to a running supercargo.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, ensure};
use bytes::Bytes;
use clap::Args;
use http::uri::Scheme;
use http::{Request, StatusCode, Uri};
use kube::Config;
use serde::Serialize;
use serde_json::{Value, json};
use supercargo_client::connection::{kubeconfig_of, to_endpoint};
use supercargo_client::transport::Transport;

use super::cluster::ClusterOptions;
use super::endpoint::{GOOD, PATH, SETTLED};
use super::leader::{Kubectl, Leader, LeaderOptions, is_plugin_of_kubectl};
use super::progress::LATE;
use super::question::{Answer, Format, NoAnswer, Question, View};
use supercargo_report::words::{printable, printable_json};

/// Whether a running supercargo answers, and which.
#[derive(Debug, Args)]
#[command(next_help_heading = "Running supercargo")]
#[command(mut_arg("server", |server| server.conflicts_with_all(OWN_STATE)))]
pub(super) struct Remote {
    /// Ask the running supercargo that leads: kubectl forwards a port to its pod. The default of
    /// `kubectl supercargo`
    #[arg(long, conflicts_with_all = [OWN_STATE, &["server"]].concat())]
    leader: bool,
    /// Read the cluster, as `supercargo` does by default
    #[arg(long, conflicts_with_all = ["leader", "server"])]
    standalone: bool,
    #[command(flatten)]
    pub(super) target: Target,
}

/// A running supercargo.
#[derive(Debug, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    leader_options: LeaderOptions,
    /// URL of a supercargo that runs with --insight
    #[arg(long, value_name = "URL", conflicts_with_all = ["kubeconfig", "context", "cluster", "user", "act_as"])]
    server: Option<Uri>,
    /// File with a bearer token for --server
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,
    /// CA bundle for the certificate of --server
    #[arg(long, value_name = "FILE", requires = "server")]
    certificate_authority: Option<PathBuf>,
    /// Trust any certificate of --server
    #[arg(long, requires = "server", conflicts_with = "certificate_authority")]
    insecure_skip_tls_verify: bool,
    #[command(flatten)]
    pub(super) cluster: ClusterOptions,
}

/// Arguments about the state that a command reads itself.
const OWN_STATE: &[&str] = &["config", "feature_gates", "emulated_version"];

/// The most bytes of a question's arguments. A server of HTTP/2 takes 16 KiB of headers.
const MOST_QUERY: usize = 12_000;

/// A way to a running supercargo, which ends with this value.
pub(crate) struct Way {
    /// How to connect.
    pub(crate) config: Config,
    /// Its name for people.
    pub(crate) name: String,
    /// The namespace of pods that are named without one, if kubectl knows it.
    namespace: Option<String>,
    _leader: Option<Leader>,
}

impl Remote {
    /// Whether a running supercargo answers.
    pub(super) fn is_asked(&self) -> bool {
        self.leader || self.target.server.is_some() || is_plugin_of_kubectl() && !self.standalone
    }
}

impl Target {
    /// Opens a way to --server, or to the leader.
    pub(crate) async fn open(&self) -> Result<Way> {
        if let Some(server) = &self.server {
            let config = self.config(server).await?;
            return Ok(Way { config, name: server.to_string(), namespace: None, _leader: None });
        }
        let kubectl = Kubectl(&self.cluster);
        let namespace = kubectl.namespace().await?;
        let leader = self.leader_options.find(&kubectl).await?;
        // The API server checks whose pod this is.
        let cluster = json!({ "server": leader.server.to_string(), "insecure-skip-tls-verify": true });
        let config = to_endpoint(kubeconfig_of(cluster, json!({ "token": leader.token }))?).await?;
        Ok(Way { config, name: leader.pod.to_string(), namespace, _leader: Some(leader) })
    }

    /// How to reach the server: a kubeconfig in memory reads the files.
    async fn config(&self, server: &Uri) -> Result<Config> {
        ensure!(server.scheme() == Some(&Scheme::HTTPS), "--server={server} does not begin with https://");
        let cluster = json!({
            "server": server.to_string(),
            "certificate-authority": self.certificate_authority,
            "insecure-skip-tls-verify": self.insecure_skip_tls_verify,
        });
        let config = to_endpoint(kubeconfig_of(cluster, json!({ "tokenFile": self.token_file }))?).await;
        config.context("cannot use --certificate-authority or --token-file")
    }
}

impl Way {
    /// Asks a question. An error if the way has failed.
    pub(super) async fn ask<Q: Question>(
        &self,
        question: &Q,
        view: &View,
    ) -> Result<Result<Answer, NoAnswer>> {
        // YAML is made of JSON here.
        let output = if view.output == Format::Yaml { Format::Json } else { view.output };
        let view = &View { context_namespace: self.namespace.clone(), output, ..view.clone() };
        let query = query(question, view)?;
        if query.len() > MOST_QUERY {
            let length = query.len();
            return Ok(Err(anyhow!(
                "a running supercargo takes questions of at most {MOST_QUERY} bytes, and this one has {length}; \
                 read the cluster with --standalone"
            )
            .into()));
        }
        let request = Request::get(format!("{PATH}{}?{query}", Q::NAME)).body(Bytes::new())?;
        let (name, transport) = (&self.name, Transport::connect(self.config.clone())?);
        let response = transport.send(request).await.map_err(anyhow::Error::from_boxed);
        let response = response.with_context(|| format!("cannot ask {name}"))?;
        let text = String::from_utf8_lossy(response.body());
        // The server may be anyone's.
        let text = match view.output {
            Format::Json | Format::Yaml => printable_json(&text),
            Format::Table | Format::Wide | Format::Name => printable(&text),
        };
        let is_true = |name: &str| response.headers().get(name).is_some_and(|value| value == "true");
        match response.status() {
            StatusCode::OK => Ok(Ok(Answer { text, is_good: is_true(GOOD), is_settled: is_true(SETTLED) })),
            // The token has expired.
            status @ StatusCode::UNAUTHORIZED => Err(refusal(status, name, &text)),
            status => {
                let is_final = is_final(status, &text);
                Ok(Err(NoAnswer { error: refusal(status, name, &text), is_final }))
            }
        }
    }
}

/// Whether the question stays without an answer. One that came too late may be in time the next
/// time.
fn is_final(status: StatusCode, text: &str) -> bool {
    status == StatusCode::UNPROCESSABLE_ENTITY && !text.starts_with(LATE)
}

/// Why a running supercargo gives no answer.
pub(crate) fn refusal(status: StatusCode, name: &str, text: &str) -> anyhow::Error {
    match status {
        StatusCode::NOT_FOUND => anyhow!("{name} does not answer questions: it runs without --insight"),
        StatusCode::UNAUTHORIZED => anyhow!("{name} does not accept the token; see --token-file"),
        StatusCode::FORBIDDEN => {
            anyhow!("the token's user may not ask; bind the ClusterRole supercargo-insight-reader to it")
        }
        _ if text.is_empty() => anyhow!("{name} answers {status}"),
        _ => anyhow!("{}", text.trim_start_matches("error: ").trim_end()),
    }
}

/// The query of an endpoint: each argument by its name.
pub(super) fn query(question: &impl Serialize, view: &View) -> Result<String> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let mut add = |name: &str, value: &Value| match value {
        Value::Null => {}
        Value::String(text) => drop(query.append_pair(name, text)),
        other => drop(query.append_pair(name, &other.to_string())),
    };
    for arguments in [serde_json::to_value(question)?, serde_json::to_value(view)?] {
        for (name, value) in arguments.as_object().into_iter().flatten() {
            match value {
                Value::Array(values) => values.iter().for_each(|value| add(name, value)),
                value => add(name, value),
            }
        }
    }
    Ok(query.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_final_unless_the_answer_was_late() {
        let missing = "pod default/web does not exist or has ended";
        assert!(is_final(StatusCode::UNPROCESSABLE_ENTITY, missing));
        for (status, text) in [
            (StatusCode::UNPROCESSABLE_ENTITY, "no answer within 20 s"),
            (StatusCode::TOO_MANY_REQUESTS, "busy"),
            (StatusCode::SERVICE_UNAVAILABLE, missing),
        ] {
            assert!(!is_final(status, text), "{status}");
        }
    }
}
