//! `supercargo run`: from the command line to a scheduler at work, and back.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::Client;
use kube::client::ClientBuilder;
use supercargo_scheduler::record::Recorded;
use supercargo_scheduler::{Input, Scheduler};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, ConnectError, client, connect};
use crate::binder::Binder;
use crate::clock::{Clock, SystemClock};
use crate::config::{Catalog, ClientConnection, Config};
use crate::events::Writer;
use crate::extender::HttpExtenders;
use crate::informers::{self, Informers};
use crate::metrics::{Counting, Metrics, Requests, Sources};
use crate::observe::LogObserver;
use crate::options::scheduler_options;
use crate::owner::{Driver, Mailbox, Message, Owner, StopOnDrop};
use crate::preemptor::Preemptor;
use crate::rate_limit::RateLimiter;
use crate::shell::Shell;
use crate::status_writer::StatusWriter;
use crate::transport::Transport;
use crate::wire::{NodeKind, PodKind};

/// How long bindings under way may take to end after a signal. Within the 30 s that a pod has by default.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long events and status patches may take to be written after that.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// A watch without a byte for so long has lost its server: a bookmark comes about every minute.
const WATCH_SILENCE: Duration = Duration::from_mins(3);
/// Requests at once where only `qps` is set: kube-scheduler's default.
const DEFAULT_BURST: u32 = 100;

/// What `run` was asked for.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The kubeconfig; else the configuration's, else the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The configuration file; else the default configuration.
    pub config: Option<PathBuf>,
    /// Where to record what the scheduler is told.
    pub record: Option<PathBuf>,
}

/// How a scheduler reaches its API server.
#[derive(Clone)]
pub struct Clients {
    /// What logs call the server.
    server: String,
    watch: Client,
    write: Transport,
    /// As upstream has it: events have a client of their own, and a storm of them delays no binding.
    events: Transport,
    requests: Arc<Requests>,
}

impl Clients {
    /// Reaches a server over the network.
    pub fn connect(connection: kube::Config) -> Result<Self, ConnectError> {
        let server = without_credentials(&connection.cluster_url);
        let requests = Requests::to(host(&connection.cluster_url));
        let (write, events) =
            (transport(&connection)?.counted(&requests), transport(&connection)?.counted(&requests));
        Ok(Self { server, watch: counted_watching_client(connection, &requests)?, write, events, requests })
    }

    /// Everything by one client, of a server in this process perhaps; `server` is what logs call it.
    pub fn one(server: impl Into<String>, client: Client) -> Self {
        let server: String = server.into();
        let requests = Requests::to(&server);
        let transport = || Transport::from(client.clone()).counted(&requests);
        let (write, events) = (transport(), transport());
        Self { server, watch: client, write, events, requests }
    }
}

/// Reads the configuration, or the default one.
pub fn load_config(path: Option<&Path>, catalog: &Catalog) -> Result<Config> {
    Ok(match path {
        Some(path) => Config::load(path, catalog)?,
        None => Config::default_with(catalog)?,
    })
}

/// Schedules until a signal comes, lets the bindings under way end, and returns.
pub async fn run(options: RunOptions, catalog: &Catalog) -> Result<()> {
    // First of all: a process with the number 1 does not even end on a signal that nobody listens for.
    let signalled = stop_signal()?;
    let config = load_config(options.config.as_deref(), catalog)?;
    let kubeconfig = options.kubeconfig.as_ref().or(config.client_connection.kubeconfig.as_ref());
    let connection = tokio::select! {
        connection = connect(kubeconfig.map(PathBuf::as_path)) => connection?,
        () = signalled.cancelled() => return Ok(()),
    };
    schedule(&config, connection, options.record.as_deref(), &signalled).await
}

/// Schedules on this server until `stop` is cancelled, lets the bindings under way end, and returns.
pub async fn schedule(
    config: &Config,
    connection: kube::Config,
    record: Option<&Path>,
    stop: &CancellationToken,
) -> Result<()> {
    let clients = Clients::connect(connection)?;
    schedule_by(config, clients, Box::new(SystemClock::default()), record, stop).await
}

/// The same with clients of one's own, by a clock of one's own.
pub async fn schedule_by(
    config: &Config,
    clients: Clients,
    clock: Box<dyn Clock>,
    record: Option<&Path>,
    stop: &CancellationToken,
) -> Result<()> {
    schedule_measured(config, clients, clock, record, &Metrics::new(config), stop).await
}

/// The same, with what is counted for others to read.
pub async fn schedule_measured(
    config: &Config,
    clients: Clients,
    clock: Box<dyn Clock>,
    record: Option<&Path>,
    metrics: &Metrics,
    stop: &CancellationToken,
) -> Result<()> {
    let Clients { server, watch, write, events, requests } = clients;
    let connection = &config.client_connection;
    let api = |transport| Api::over(transport, rate_limit(connection), connection.writes_protobuf());
    let (api, event_api) = (api(write), api(events));
    let names: BTreeSet<_> =
        config.profiles.iter().map(|profile| Arc::clone(&profile.scheduler_name)).collect();
    tracing::info!(profiles = ?names, %server, version = env!("CARGO_PKG_VERSION"), "starting supercargo");

    let observer = metrics.observer(Box::new(LogObserver));
    let scheduler = Scheduler::new(scheduler_options(config))?.with_observer(observer);
    let resources = scheduler.resources();
    let driver = driver(scheduler, record)?;
    let (mailbox, messages) = Mailbox::new();
    let _stop = StopOnDrop(mailbox.clone());
    let clients = vec![("scheduler", api.clone()), ("events", event_api.clone())];
    let (recorder, events) = Writer::new(event_api, hostname());
    let events_lost = recorder.losses();
    let (patches, statuses) = StatusWriter::new(api.clone());
    let writers = [tokio::spawn(events.run()), tokio::spawn(statuses.run())];
    let extenders = HttpExtenders::new(&config.extenders).await?;
    let kinds = kinds(config, &extenders);
    let runtime = tokio::runtime::Handle::current();
    let calls = Box::new(extenders.calls(runtime.clone()));
    let shell = Shell {
        runtime,
        binder: Binder::new(api.clone(), mailbox.clone(), extenders),
        preemptor: Preemptor::new(api, mailbox.clone()),
        recorder,
        patches,
    };
    let backlog = shell.binder.backlog();
    let owner = Owner::new(driver, messages, shell, calls, clock);
    let mut owner = tokio::task::spawn_blocking(move || owner.run());

    let informers = Informers::new(watch, &mailbox, names, kinds)?;
    metrics.ask(Sources {
        mailbox: mailbox.clone(),
        informers: informers.observed(),
        requests,
        clients,
        backlog,
        events_lost,
    });
    informers.start();
    let until_stopped = async {
        let not_served = informers.watch_objects(&mailbox, &resources, stop).await;
        informers.begin_when_synced(&mailbox, stop).await;
        stop.run_until_cancelled(informers.watch_once_served(&mailbox, not_served)).await;
        stop.cancelled().await;
    };
    tokio::select! {
        () = until_stopped => {}
        failure = informers.failed() => bail!("an informer broke down: {failure}"),
        ended = &mut owner => {
            ended.context("the scheduler panicked")?.context("cannot write the record")?;
            bail!("the scheduler ended unasked");
        }
    }
    tracing::info!("stopping: letting bindings under way end");
    mailbox.send(Input::Drain);
    let drained = timeout(DRAIN_TIMEOUT, &mut owner).await;
    informers.shut_down().await;
    match drained {
        Ok(ended) => ended.context("the scheduler panicked")?.context("cannot write the record")?,
        Err(_) => {
            tracing::warn!("bindings under way did not end within {} s", DRAIN_TIMEOUT.as_secs());
            mailbox.post(Message::Stop);
        }
    }
    flush(writers).await;
    tracing::info!("stopped");
    Ok(())
}

/// How pods and nodes are read: whole where an extender is sent them.
fn kinds(config: &Config, extenders: &HttpExtenders) -> (PodKind, NodeKind) {
    let (pods, nodes) = informers::kinds(config.client_connection.reads_protobuf());
    let pods = pods.features(config.features.clone());
    (pods.keep_raw(extenders.need_whole_pods()), nodes.keep_raw(extenders.need_whole_nodes()))
}

fn transport(connection: &kube::Config) -> Result<Transport, ConnectError> {
    Transport::connect(connection).map_err(|error| ConnectError::Client(Box::new(error)))
}

/// A client for informers, which notices when the server falls silent.
pub(crate) fn watching_client(mut connection: kube::Config) -> Result<Client, ConnectError> {
    connection.read_timeout = Some(WATCH_SILENCE);
    client(connection)
}

/// The same, with its requests counted.
fn counted_watching_client(
    mut connection: kube::Config,
    requests: &Arc<Requests>,
) -> Result<Client, ConnectError> {
    connection.read_timeout = Some(WATCH_SILENCE);
    let builder = ClientBuilder::try_from(connection);
    let builder = builder.map_err(|error| ConnectError::Client(Box::new(error)))?;
    Ok(builder.with_layer(&Counting(Arc::clone(requests))).build())
}

fn rate_limit(connection: &ClientConnection) -> Option<RateLimiter> {
    let burst = connection.burst.and_then(|burst| u32::try_from(burst).ok()).unwrap_or(DEFAULT_BURST);
    RateLimiter::new(connection.qps?, burst)
}

/// The server's address for logs: a URL may have a password in it.
fn without_credentials(url: &http::Uri) -> String {
    format!("{}://{}", url.scheme_str().unwrap_or("https"), host(url))
}

/// The server's host and port.
fn host(url: &http::Uri) -> &str {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    authority.rsplit('@').next().unwrap_or_default()
}

fn driver(scheduler: Scheduler, record: Option<&Path>) -> Result<Driver> {
    let Some(path) = record else {
        return Ok(Driver::Plain(Box::new(scheduler)));
    };
    // A restart must not write over what led to it.
    if path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0) {
        bail!("cannot record to {}: it exists already; give a new name", path.display());
    }
    let file = File::create(path).with_context(|| format!("cannot record to {}", path.display()))?;
    Ok(Driver::Recorded(Box::new(Recorded::new(scheduler, BufWriter::new(file)))))
}

/// Waits a while for what has been recorded and patched to be written.
async fn flush(writers: [JoinHandle<()>; 2]) {
    if timeout(FLUSH_TIMEOUT, futures::future::join_all(writers)).await.is_err() {
        tracing::warn!("events and conditions were not all written within {} s", FLUSH_TIMEOUT.as_secs());
    }
}

/// A token that SIGTERM or SIGINT cancels.
pub(crate) fn stop_signal() -> Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let signalled = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        signalled.cancel();
    });
    Ok(stop)
}

/// The name of this machine, for the reporting instance of events.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"));
    name.map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_the_address_is_not_logged() {
        for (url, expected) in [
            ("https://admin:hunter2@10.0.0.1:6443/", "https://10.0.0.1:6443"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ] {
            assert_eq!(without_credentials(&url.parse().unwrap()), expected);
        }
    }
}
