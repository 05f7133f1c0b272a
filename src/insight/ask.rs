//! Commands that ask a question.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use supercargo_client::api::full_text;
use supercargo_client::connection::Connection;
use supercargo_client::host::Host;
use supercargo_codec::{NodeKind, PodKind};
use supercargo_config::flags::FeatureOptions;
use supercargo_config::{Catalog, Config};
use supercargo_framework::Text;
use supercargo_framework::objects::resources;
use supercargo_scheduler::{Fork, Options, Scheduler};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::progress::Deadline;
use super::question::{Question, SHORT, State, View};
use super::remote::Remote;
use crate::cli::output;
use crate::informers::{Informers, kinds};
use crate::options::scheduler_options;
use crate::owner::{Mailbox, Message};
use crate::run::reading_client;

/// The exit code if no answer is possible.
const NO_ANSWER: u8 = 3;

/// A command that asks a question.
#[derive(Debug, Args)]
pub(crate) struct Ask<Q: Args> {
    #[command(flatten)]
    question: Q,
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    source: Source,
}

/// Where the cluster's state comes from.
#[derive(Debug, Args)]
struct Source {
    /// Configuration of the scheduler, as for `run`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kubeconfig. Defaults, in order: the configuration's, the first file of $KUBECONFIG,
    /// ~/.kube/config, the service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How long the answer may take; by default 30s, or 1h for `pending`, `resilience` and `empty`.
    /// A running supercargo answers within 30s or not at all
    #[arg(long, value_name = "DURATION", value_parser = supercargo_config::flags::length)]
    timeout: Option<Duration>,
    #[command(flatten)]
    features: FeatureOptions,
    #[command(flatten)]
    remote: Remote,
}

impl<Q: Question> Ask<Q> {
    /// Prints the answer.
    pub(crate) async fn print(self, catalog: &Catalog) -> Result<ExitCode> {
        let Self { question, view, source } = self;
        let limit = source.timeout.unwrap_or(Q::TIMEOUT);
        if source.remote.is_asked() {
            let ask = source.remote.ask(&question, &view, source.kubeconfig);
            let late = format!(
                "no answer within {} s; with --standalone, --timeout allows more",
                limit.min(SHORT).as_secs()
            );
            return print(timeout(limit.min(SHORT), ask).await, &late);
        }
        let catalog = source.features.applied_to(catalog)?;
        // A task of its own: plugins may compute for long.
        let answer = tokio::spawn(async move {
            let state = source.read(&catalog, limit).await?;
            question.answer(state, &view)
        });
        let answer = async { answer.await.context("a plugin panicked").flatten() };
        let late = format!("no answer within {} s; --timeout allows more", limit.as_secs());
        print(timeout(limit, answer).await, &late)
    }
}

impl Source {
    /// Reads the cluster.
    async fn read(&self, catalog: &Catalog, limit: Duration) -> Result<State> {
        let deadline = Deadline::after(limit);
        let config = Config::load_or_default(self.config.as_deref(), catalog)?;
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
        let fork = Fork::new(scheduler, now).stop_when(move || deadline.is_over());
        let namespace = connection.namespace();
        Ok(State { fork, config: Arc::new(config), namespace, deadline })
    }
}

/// Prints an answer. The exit code is 1 if it is a bad one, and 3 if there is none in time.
fn print(answer: Result<Result<(String, bool)>, Elapsed>, late: &str) -> Result<ExitCode> {
    match answer.unwrap_or_else(|_| bail!("{late}")) {
        Ok((text, is_good)) => {
            output::print(text.as_bytes())?;
            Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            output::print_error(&output::error_line(&full_text(&*error)));
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
