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

use super::endpoint::{GOOD, PATH};
use super::leader::{Kubectl, Leader, LeaderOptions, is_plugin_of_kubectl};
use super::question::{Question, View};

/// Whether a running supercargo answers, and which.
#[derive(Debug, Args)]
#[command(next_help_heading = "Running supercargo")]
#[command(mut_arg("server", |server| server.conflicts_with_all([OWN_STATE, &["kubeconfig"]].concat())))]
pub(super) struct Remote {
    /// Ask the running supercargo that leads: kubectl forwards a port to its pod. The default of
    /// `kubectl supercargo`
    #[arg(long, conflicts_with_all = [OWN_STATE, &["server"]].concat())]
    leader: bool,
    /// Read the cluster, as `supercargo` does by default
    #[arg(long, conflicts_with_all = ["leader", "server"])]
    standalone: bool,
    #[command(flatten)]
    target: Target,
}

/// A running supercargo.
#[derive(Debug, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    leader_options: LeaderOptions,
    /// URL of a supercargo that runs with --insight
    #[arg(long, value_name = "URL")]
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
}

/// Arguments about the state that a command reads itself.
const OWN_STATE: &[&str] = &["config", "feature_gates", "emulated_version"];

/// A way to a running supercargo, which ends with this value.
pub(crate) struct Way {
    /// How to connect.
    pub(crate) config: Config,
    /// Its name for people.
    pub(crate) name: String,
    _leader: Option<Leader>,
}

impl Remote {
    /// Whether a running supercargo answers.
    pub(super) fn is_asked(&self) -> bool {
        self.leader || self.target.server.is_some() || is_plugin_of_kubectl() && !self.standalone
    }

    /// Asks a question. Returns the answer, and whether it is a good one.
    pub(super) async fn ask<Q: Question>(
        &self,
        question: &Q,
        view: &View,
        kubeconfig: Option<PathBuf>,
    ) -> Result<(String, bool)> {
        let request = Request::get(format!("{PATH}{}?{}", Q::NAME, query(question, view)?));
        let request = request.body(Bytes::new())?;
        send(&self.target.open(kubeconfig).await?, request).await
    }
}

impl Target {
    /// Opens a way to --server, or to the leader.
    pub(crate) async fn open(&self, kubeconfig: Option<PathBuf>) -> Result<Way> {
        if let Some(server) = &self.server {
            return Ok(Way { config: self.config(server).await?, name: server.to_string(), _leader: None });
        }
        let leader = self.leader_options.find(&Kubectl { kubeconfig }).await?;
        // The API server checks whose pod this is.
        let cluster = json!({ "server": leader.server.to_string(), "insecure-skip-tls-verify": true });
        let config = to_endpoint(kubeconfig_of(cluster, json!({ "token": leader.token }))?).await?;
        Ok(Way { config, name: leader.pod.to_string(), _leader: Some(leader) })
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

async fn send(way: &Way, request: Request<Bytes>) -> Result<(String, bool)> {
    let (name, transport) = (&way.name, Transport::connect(way.config.clone())?);
    let response = transport.send(request).await.map_err(anyhow::Error::from_boxed);
    let response = response.with_context(|| format!("cannot ask {name}"))?;
    let text = String::from_utf8_lossy(response.body()).into_owned();
    match response.status() {
        StatusCode::OK => Ok((text, response.headers().get(GOOD).is_some_and(|good| good == "true"))),
        status => Err(refusal(status, name, &text)),
    }
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
