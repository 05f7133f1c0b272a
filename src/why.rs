//! `supercargo why`: why a pod is pending, from the scheduler's own filters.
//!
//! It reads the cluster once and decides in this process, so it works beside any scheduler.

mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use supercargo_client::connection::Connection;
use supercargo_client::host::Host;
use supercargo_codec::{NodeKind, PodKind};
use supercargo_config::flags::FeatureOptions;
use supercargo_config::{Catalog, Config};
use supercargo_framework::Text;
use supercargo_framework::pod::PodKey;
use supercargo_scheduler::Scheduler;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cli::output::{tolerate_closed_pipe, write_text};
use crate::informers::{Informers, kinds};
use crate::options::scheduler_options;
use crate::owner::{Mailbox, Message};
use crate::run::reading_client;

/// The exit codes, for the end of the help.
pub(crate) const HELP: &str = "\
Exit codes: 0 if the pod has a node or fits, 1 if it is pending, 2 for wrong usage, 3 if no answer is possible.
Only the cluster's present state counts. Extenders are not asked, and a pod of a group is judged alone.";

/// The exit code if no answer is possible.
const NO_ANSWER: u8 = 3;

#[derive(Debug, Args)]
pub(crate) struct WhyOptions {
    /// Pod: NAME, pod/NAME or NAMESPACE/NAME
    #[arg(value_name = "POD")]
    pod: String,
    /// Namespace of the pod; by default that of the kubeconfig's context
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// Configuration of the scheduler, as for `run`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kubeconfig; by default $KUBECONFIG, then ~/.kube/config, then the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,
    /// How long reading the cluster may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = supercargo_config::flags::length)]
    timeout: Duration,
    #[command(flatten)]
    features: FeatureOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Prints why the pod is pending.
pub(crate) async fn why(options: WhyOptions, catalog: &Catalog) -> Result<ExitCode> {
    match answer(&options, catalog).await {
        Ok((text, is_pending)) => {
            tolerate_closed_pipe(write_text(&mut std::io::stdout(), text.as_bytes()))?;
            Ok(ExitCode::from(u8::from(is_pending)))
        }
        Err(error) => {
            crate::cli::print_error(&format!("error: {error:#}"));
            Ok(ExitCode::from(NO_ANSWER))
        }
    }
}

/// The answer, and whether the pod is pending.
async fn answer(options: &WhyOptions, catalog: &Catalog) -> Result<(String, bool)> {
    let catalog = options.features.applied_to(catalog)?;
    let config = Config::load_or_default(options.config.as_deref(), &catalog)?;
    let kubeconfig =
        options.kubeconfig.clone().or(config.client_connection.kubeconfig.clone()).or_else(usual_kubeconfig);
    let connection = Connection::open(None, kubeconfig.as_deref()).await?;
    let key = key(&options.pod, options.namespace.as_deref(), &connection.namespace());
    let now = Host::local().clock.now();
    let mut scheduler = Scheduler::new(scheduler_options(&config))?;
    let resources = scheduler.resources();
    let (pods, nodes) = kinds(config.client_connection.reads_protobuf());
    let kinds = (pods.features(config.features.clone()), nodes);
    let read = timeout(options.timeout, read(&connection, kinds, &resources)).await;
    let inputs = read.with_context(|| {
        format!(
            "cannot read the cluster within {} s; `supercargo check` may say why",
            options.timeout.as_secs()
        )
    })??;
    for message in inputs.try_iter() {
        if let Message::Input(input) = message {
            scheduler.handle(now, *input);
            scheduler.take_effects();
        }
    }
    let pod = scheduler.pod(&key).cloned().with_context(|| format!("there is no unfinished pod {key}"))?;
    let why = if pod.is_assigned() { None } else { Some(scheduler.why(now, &pod)?) };
    let is_pending =
        why.as_ref().is_some_and(|why| why.feasible.is_empty() || !pod.scheduling_gates.is_empty());
    let text = match options.output {
        Format::Table => report::table(&pod, why.as_ref()),
        Format::Json => report::json(&pod, why.as_ref()),
    };
    Ok((text, is_pending))
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
        failure = informers.failed() => anyhow::bail!("{failure}"),
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
fn key(pod: &str, namespace: Option<&str>, usual: &str) -> PodKey {
    let (before, name) = pod.split_once('/').unwrap_or(("pod", pod));
    let is_kind = ["pod", "pods", "po"].contains(&before);
    let namespace = if is_kind { namespace.unwrap_or(usual) } else { before };
    PodKey { namespace: namespace.into(), name: name.into() }
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
            assert_eq!(key(pod, namespace, "usual").to_string(), expected);
        }
    }
}
