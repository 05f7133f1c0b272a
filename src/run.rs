//! `supercargo run`: from the command line to a scheduler at work, and back.

mod endpoints;
mod process;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::FutureExt as _;
use futures::future::OptionFuture;
use http::{Method, StatusCode};
use kube::Client;
use kube::client::ClientBuilder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, SystemClock};
use supercargo_client::api::{ConnectError, connect_to};
use supercargo_client::election::hostname;
use supercargo_client::rate_limit::RateLimiter;
use supercargo_client::transport::{RequestObserver, Transport};
use supercargo_config::flags::{Flags, TraceOptions};
use supercargo_config::{Catalog, ClientConnection, Config};
use supercargo_serving::{Server, Setup};
use supercargo_telemetry::logs::LogLevel;
use supercargo_telemetry::metrics::{Counting, Metrics, Requests};

use process::{ConfigFile, Process, broken};

/// A watch without a byte for so long has lost its server: a bookmark comes about every minute.
pub(crate) const WATCH_SILENCE: Duration = Duration::from_mins(3);
/// How long answers under way may take to end when everything else has.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Requests at once where only `qps` is set: kube-scheduler's default.
const DEFAULT_BURST: u32 = 100;

/// What `run` was asked for.
#[derive(Clone)]
pub struct RunOptions {
    /// The flags.
    pub flags: Flags,
    /// What is logged, to be changed while it runs.
    pub log_level: LogLevel,
}

/// Counts requests to the API server.
struct ObservedRequests(Arc<Requests>);

impl RequestObserver for ObservedRequests {
    fn waited(&self, method: &Method, took: Duration) {
        self.0.waited(method, took);
    }

    fn answered(&self, method: &Method, status: Option<StatusCode>, took: Duration) {
        self.0.answered(method, status, took);
    }
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
    /// And so has leader election, which nothing must delay.
    election: Transport,
    requests: Arc<Requests>,
}

impl Clients {
    /// Reaches a server over the network.
    pub fn connect(connection: kube::Config) -> Result<Self, ConnectError> {
        let server = without_credentials(&connection.cluster_url);
        let requests = Requests::to(host(&connection.cluster_url));
        let observer = Arc::new(ObservedRequests(Arc::clone(&requests)));
        let [write, events, election] =
            [(); 3].map(|()| transport(&connection).map(|transport| transport.observed(observer.clone())));
        let (write, events, election) = (write?, events?, election?);
        let watch = watching_client(connection, &requests)?;
        Ok(Self { server, watch, write, events, election, requests })
    }

    /// Everything by one client, of a server in this process perhaps; `server` is what logs call it.
    pub fn one(server: impl Into<String>, client: Client) -> Self {
        let server: String = server.into();
        let requests = Requests::to(&server);
        let observer = Arc::new(ObservedRequests(Arc::clone(&requests)));
        let [write, events, election] =
            [(); 3].map(|()| Transport::from(client.clone()).observed(observer.clone()));
        Self { server, watch: client, write, events, election, requests }
    }
}

/// Schedules until a signal comes, lets the bindings under way end, and returns. An error ends it, too; one is that another
/// scheduler leads.
pub async fn run(options: RunOptions, catalog: &Catalog) -> Result<()> {
    // First of all: a process with the number 1 does not even end on a signal that nobody listens for.
    let signalled = stop_signal(exit_immediately)?;
    let RunOptions { flags, log_level } = options;
    let followed = flags.misc.followed();
    // Before it is read for good, so that no change between the two is missed.
    let text = followed.and_then(|(path, _)| std::fs::read(path).ok());
    let config = flags.configuration(catalog)?;
    let kubeconfig = config.client_connection.kubeconfig.as_deref();
    let connection = tokio::select! {
        connection = connect_to(flags.misc.master.as_ref(), kubeconfig) => connection?,
        () = signalled.cancelled() => return Ok(()),
    };
    let setup = Setup {
        serving: &flags.serving,
        authentication: &flags.authentication,
        authorization: &flags.authorization,
        connection: &connection,
        hostname: &hostname(),
    };
    let server = Server::bind(setup).await?;
    let clients = Clients::connect(connection)?;
    let metrics = Metrics::new(&config.features);
    let clock = Box::new(SystemClock::default());
    let record = flags.misc.record.as_deref();
    let mut process =
        Process::new(&config, clients, clock, record, Arc::clone(&metrics), &flags.traces).await?;
    let followed = followed.map(|(path, period)| {
        let (flags, catalog) = (flags.clone(), catalog.clone());
        let path = path.to_owned();
        ConfigFile { path, period, text, load: Box::new(move || flags.configuration(&catalog)) }
    });
    let closing = CancellationToken::new();
    let _close = closing.clone().drop_guard();
    let mut serving = server.map(|server| {
        let endpoints =
            process.endpoint_state().endpoints(metrics, flags.clone(), log_level, signalled.clone());
        tokio::spawn(server.serve(endpoints, closing.clone())).fuse()
    });
    let not_served = OptionFuture::from(serving.as_mut().map(|serving| broken("the server", serving)));
    tokio::select! {
        ended = process.run(followed, &signalled) => ended?,
        Some(failure) = not_served => return Err(failure),
    }
    process.wind_down().await?;
    closing.cancel();
    if let Some(serving) = serving {
        // Whoever still reads must not keep the process.
        let _ = timeout(CLOSE_TIMEOUT, serving).await;
    }
    Ok(())
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
    schedule_measured(config, clients, clock, record, Metrics::new(&config.features), stop).await
}

/// The same, with what is counted for others to read.
pub async fn schedule_measured(
    config: &Config,
    clients: Clients,
    clock: Box<dyn Clock>,
    record: Option<&Path>,
    metrics: Arc<Metrics>,
    stop: &CancellationToken,
) -> Result<()> {
    let mut process = Process::new(config, clients, clock, record, metrics, &TraceOptions::default()).await?;
    process.run(None, stop).await?;
    process.wind_down().await
}

fn transport(connection: &kube::Config) -> Result<Transport, ConnectError> {
    Transport::connect(connection).map_err(|error| ConnectError::Client(Box::new(error)))
}

fn rate_limit(connection: &ClientConnection) -> Option<RateLimiter> {
    let burst = connection.burst.and_then(|burst| u32::try_from(burst).ok()).unwrap_or(DEFAULT_BURST);
    RateLimiter::new(connection.qps?, burst)
}

/// A client for informers, with its requests counted. It notices when the server falls silent.
fn watching_client(mut connection: kube::Config, requests: &Arc<Requests>) -> Result<Client, ConnectError> {
    connection.read_timeout = Some(WATCH_SILENCE);
    let builder = ClientBuilder::try_from(connection);
    let builder = builder.map_err(|error| ConnectError::Client(Box::new(error)))?;
    Ok(builder.with_layer(&Counting(Arc::clone(requests))).build())
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

/// Ends the process where it is: whoever asks twice does not want to wait until bindings have ended.
fn exit_immediately() {
    tracing::warn!("a second signal: ending at once");
    std::process::exit(1);
}

/// Signals that follow the first within this time are the same one: shells and `timeout` send it to a process and to its group.
const ECHO: Duration = Duration::from_secs(1);

/// A token that SIGTERM or SIGINT cancels. A second one of them is `on_second`.
pub(crate) fn stop_signal(on_second: fn()) -> Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let signalled = stop.clone();
    tokio::spawn(async move {
        either(&mut terminate, &mut interrupt).await;
        signalled.cancel();
        let echoes_end = Instant::now() + ECHO;
        loop {
            either(&mut terminate, &mut interrupt).await;
            if Instant::now() >= echoes_end {
                on_second();
            }
        }
    });
    Ok(stop)
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}

#[cfg(test)]
mod tests;
