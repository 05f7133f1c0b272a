//! Answers about a cluster, from the scheduler's own plugins: `supercargo why`, `fits`, `pending`,
//! `what-if`, `resilience` and `empty`.
//!
//! They read the cluster once and decide in this process, so they work beside any scheduler.

mod empty;
mod fits;
mod pending;
mod progress;
mod report;
mod resilience;
mod what_if;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use supercargo_client::connection::Connection;
use supercargo_client::host::Host;
use supercargo_codec::{NodeKind, PodKind};
use supercargo_config::flags::FeatureOptions;
use supercargo_config::{Catalog, Config};
use supercargo_framework::objects::resources;
use supercargo_framework::pod::PodKey;
use supercargo_framework::{PodInfo, Text};
use supercargo_scheduler::{Fork, Options, Scheduler};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cli::output;
use crate::informers::{Informers, kinds};
use crate::options::scheduler_options;
use crate::owner::{Mailbox, Message};
use crate::run::reading_client;

pub(crate) use self::empty::{EmptyOptions, empty};
pub(crate) use self::fits::{FitsOptions, fits};
pub(crate) use self::pending::{PendingOptions, pending};
pub(crate) use self::resilience::{ResilienceOptions, resilience};
pub(crate) use self::what_if::{WhatIfOptions, what_if};
pub(crate) use self::why::{WhyOptions, why};

/// How long an answer may take.
const SHORT: Duration = Duration::from_secs(30);
/// The same for one that tries many changes.
const LONG: Duration = Duration::from_hours(1);

/// The exit code if no answer is possible.
const NO_ANSWER: u8 = 3;

/// A pod, and how to reach its cluster.
#[derive(Debug, Args)]
struct Question {
    /// Pod: NAME, pod/NAME or NAMESPACE/NAME
    #[arg(value_name = "POD")]
    pod: String,
    #[command(flatten)]
    source: Source,
}

/// How to reach a cluster, and how to answer.
#[derive(Debug, Args)]
struct Source {
    /// Namespace of pods; by default that of the kubeconfig's context, and all for `pending`
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// Configuration of the scheduler, as for `run`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kubeconfig; by default that of the configuration, the first of $KUBECONFIG, ~/.kube/config,
    /// or the service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,
    /// How long the answer may take; by default 30s, or 1h for `pending`, `resilience` and `empty`
    #[arg(long, value_name = "DURATION", value_parser = supercargo_config::flags::length)]
    timeout: Option<Duration>,
    #[command(flatten)]
    features: FeatureOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// The cluster's state, and the pod that the question is about.
struct Asked {
    fork: Fork,
    pod: Arc<PodInfo>,
}

impl Question {
    /// Reads the cluster.
    async fn ask(&self, catalog: &Catalog) -> Result<Asked> {
        let Question { pod, source } = self;
        let Snapshot { fork, namespace, .. } = source.read(catalog).await?;
        let key = key(pod, source.namespace.as_deref(), &namespace)?;
        let pod = fork.pod(&key).cloned().with_context(|| format!("there is no unfinished pod {key}"))?;
        Ok(Asked { fork, pod })
    }
}

/// The cluster's state, and the namespace of pods that are named without one.
struct Snapshot {
    fork: Fork,
    namespace: String,
    config: Config,
}

impl Snapshot {
    /// A copy of the state.
    fn fork(&self) -> Result<Fork> {
        Ok(self.fork.fork(scheduler_options(&self.config))?)
    }
}

impl Source {
    /// Reads the cluster.
    async fn read(&self, catalog: &Catalog) -> Result<Snapshot> {
        let catalog = self.features.applied_to(catalog)?;
        let config = Config::load_or_default(self.config.as_deref(), &catalog)?;
        let configured = &config.client_connection.kubeconfig;
        let kubeconfig = self.kubeconfig.clone().or_else(|| configured.clone()).or_else(usual_kubeconfig);
        let connection = Connection::open(None, kubeconfig.as_deref()).await?;
        let host = Host::local();
        let now = host.clock.now();
        let options = Options { hash_seed: host.hash_seed.number("hash"), ..scheduler_options(&config) };
        let mut scheduler = Scheduler::new(options)?;
        let mut kinds_to_read = scheduler.resources();
        // A drain respects them even if no plugin reads them.
        if !kinds_to_read.contains(&resources::POD_DISRUPTION_BUDGET) {
            kinds_to_read.push(resources::POD_DISRUPTION_BUDGET);
        }
        let (pods, nodes) = kinds(config.client_connection.reads_protobuf());
        let kinds = (pods.features(config.features.clone()), nodes);
        let limit = self.timeout.unwrap_or(SHORT);
        let inputs = timeout(limit, read(&connection, kinds, &kinds_to_read)).await;
        let late = || {
            let seconds = limit.as_secs();
            format!("cannot read the cluster within {seconds} s; run `supercargo check` to find the cause")
        };
        let inputs = inputs.with_context(late)??;
        for message in inputs.try_iter() {
            if let Message::Input(input) = message {
                scheduler.handle(now, *input);
                scheduler.take_effects();
            }
        }
        let namespace = self.namespace.clone().unwrap_or_else(|| connection.namespace());
        Ok(Snapshot { fork: Fork::new(scheduler, now), namespace, config })
    }
}

/// Prints an answer. The exit code is 1 if it is a bad one, and 3 if there is none in time.
async fn print(
    limit: Duration,
    answer: impl Future<Output = Result<(String, bool)>> + Send + 'static,
) -> Result<ExitCode> {
    // A task of its own: plugins may compute for long.
    let answer = timeout(limit, tokio::spawn(answer)).await;
    let late = || format!("no answer within {} s; --timeout allows more", limit.as_secs());
    match answer.with_context(late).and_then(|answer| answer.context("a plugin panicked")).flatten() {
        Ok((text, is_good)) => {
            output::print(text.as_bytes())?;
            Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            output::print_error(&format!("error: {error:#}"));
            Ok(ExitCode::from(NO_ANSWER))
        }
    }
}

/// The inputs that bring a scheduler to the cluster's state.
async fn read(
    connection: &Connection,
    kinds: (PodKind, NodeKind),
    resources: &[Text],
) -> Result<Receiver<Message>> {
    let (server, client) = reading_client(connection)?;
    let (mailbox, messages) = Mailbox::new();
    let informers = Informers::new(&server, client, &mailbox, kinds)?;
    let never = CancellationToken::new();
    informers.start();
    informers.watch_objects(&mailbox, resources, &never).await;
    tokio::select! {
        _ = informers.synced(&never) => {}
        failure = informers.failed() => bail!("{failure}"),
    }
    informers.shut_down().await;
    Ok(messages)
}

/// The kubeconfig that kubectl uses, if it exists.
fn usual_kubeconfig() -> Option<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let first = named.and_then(|value| std::env::split_paths(&value).next());
    first.or_else(|| {
        let file = PathBuf::from(std::env::var_os("HOME")?).join(".kube/config");
        file.exists().then_some(file)
    })
}

/// The key of the pod that someone names.
fn key(pod: &str, namespace: Option<&str>, usual: &str) -> Result<PodKey> {
    let (before, name) = pod.split_once('/').unwrap_or(("pod", pod));
    let is_kind = ["pod", "pods", "po"].contains(&before);
    let namespace = match namespace {
        Some(other) if !is_kind && other != before => {
            bail!("the namespace {before} of {pod} conflicts with --namespace {other}")
        }
        _ if !is_kind => before,
        namespace => namespace.unwrap_or(usual),
    };
    Ok(PodKey { namespace: namespace.into(), name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_named_as_kubectl_or_logs_name_them() {
        let cases = [
            ("p", None, "usual/p"),
            ("pod/p", None, "usual/p"),
            ("pod/p", Some("n"), "n/p"),
            ("p", Some("n"), "n/p"),
            ("n/p", None, "n/p"),
        ];
        for (pod, namespace, expected) in cases {
            assert_eq!(key(pod, namespace, "usual").unwrap().to_string(), expected);
        }
        assert!(key("n/p", Some("other"), "usual").is_err());
    }
}
