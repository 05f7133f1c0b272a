//! `supercargo run`: starts a scheduler process from the command line, and shuts it down.

mod endpoints;
mod open_files;
mod process;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use futures::future::OptionFuture;
use http::{Method, StatusCode};
use kube::Client;
use kube::client::ClientBuilder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "demo")]
use crate::page;
use supercargo_client::api::full_text;
use supercargo_client::connection::{ConnectError, Connection};
use supercargo_client::host::Host;
use supercargo_client::rate_limit::RateLimiter;
use supercargo_client::transport::{RequestObserver, Transport};
use supercargo_client::watch_service::WatchService;
use supercargo_config::flags::{Flags, TraceOptions};
use supercargo_config::{Catalog, ClientConnection, Config};
use supercargo_owner::owner::Owner;
#[cfg(feature = "demo")]
use supercargo_serving::{Loopback, NextLink};
use supercargo_serving::{Server, Setup};
use supercargo_telemetry::logs::{self, LogLevel};
use supercargo_telemetry::metrics::{Counting, Metrics, Requests};
use supercargo_telemetry::outage::OutageLog;

use process::{Process, failed};

pub use process::ConfigFile;

/// How long HTTP responses in flight may delay the end of the process.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// kube-scheduler's default burst, used if only `qps` is set.
const DEFAULT_BURST: u32 = 100;

/// Arguments of [`run`].
#[derive(Clone)]
pub struct RunOptions {
    /// Command-line flags.
    pub flags: Flags,
    /// Log level, which can change at runtime.
    pub log_level: LogLevel,
}

/// A scheduler process without endpoints: by what it reaches the world, and what it reports.
pub struct Instance {
    /// How it reaches the API server.
    pub clients: Clients,
    /// Its name, clocks and random numbers.
    pub host: Host,
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// Where its traces go.
    pub traces: TraceOptions,
    /// Where its inputs are recorded.
    pub record: Option<PathBuf>,
    /// The configuration file that it follows.
    pub config_file: Option<ConfigFile>,
    /// Runs the owner of the scheduler, and resolves when it has ended. By default a thread.
    pub drive: Box<dyn FnOnce(Owner) -> JoinHandle<()> + Send>,
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

    fn transferred(&self, method: &Method, sent: u64, received: Option<u64>) {
        self.0.sent(method, sent);
        if let Some(received) = received {
            self.0.received(method, received);
        }
    }
}

/// How a scheduler reaches its API server.
#[derive(Clone)]
pub struct Clients {
    /// Name of the server in logs.
    server: String,
    watch: Client,
    write: Transport,
    /// Events have a separate client, as in upstream, so that they do not delay bindings.
    events: Transport,
    /// Leader election has a separate client, so that nothing delays renewals.
    election: Transport,
    requests: Arc<Requests>,
}

impl Clients {
    /// Connects to a server over the network.
    pub fn connect(connection: impl Into<Connection>) -> Result<Self, ConnectError> {
        let connection = connection.into();
        let url = connection.server();
        let server = without_credentials(&url);
        let requests = Requests::to(host(&url));
        let observer = Arc::new(ObservedRequests(Arc::clone(&requests)));
        let [write, events, election] =
            [(); 3].map(|()| transport(&connection).map(|transport| transport.observed(observer.clone())));
        let (write, events, election) = (write?, events?, election?);
        let watch = watching_client(&connection, &requests)?;
        Ok(Self { server, watch, write, events, election, requests })
    }

    /// Uses one client for everything, for example of an in-process server. `server` is its name in
    /// logs.
    pub fn one(server: impl Into<String>, client: Client) -> Self {
        let server: String = server.into();
        let requests = Requests::to(&server);
        let observer = Arc::new(ObservedRequests(Arc::clone(&requests)));
        let [write, events, election] =
            [(); 3].map(|()| Transport::from(client.clone()).observed(observer.clone()));
        Self { server, watch: client, write, events, election, requests }
    }
}

/// Schedules until SIGTERM or SIGINT, waits for bindings in flight, and returns. Losing the lease
/// is an error.
pub async fn run(options: RunOptions, catalog: &Catalog) -> Result<()> {
    // Comes first: the kernel does not deliver unhandled signals to PID 1.
    let signalled = stop_signal(exit_immediately)?;
    open_files::raise_limit();
    let RunOptions { flags, log_level } = options;
    let watched = flags.misc.followed();
    // Read before the configuration is parsed, so that a change in between is noticed.
    let text = watched.and_then(|(path, _)| std::fs::read(path).ok());
    let config = flags.configuration(catalog)?;
    let kubeconfig = config.client_connection.kubeconfig.as_deref();
    let connection = tokio::select! {
        connection = Connection::open(flags.misc.master.as_ref(), kubeconfig) => connection?,
        () = signalled.cancelled() => return Ok(()),
    };
    let host = Host::local();
    let setup = Setup {
        serving: &flags.serving,
        authentication: &flags.authentication,
        authorization: &flags.authorization,
        connection: &connection,
        hostname: &host.name,
    };
    let server = Server::bind(setup).await?;
    ensure!(
        server.is_some() || !flags.misc.insight,
        "--insight needs the HTTPS server, which --secure-port=0 turns off"
    );
    let clients = Clients::connect(connection)?;
    let metrics = Metrics::new(&config.features);
    let config_file = watched.map(|(path, period)| {
        let (flags, catalog) = (flags.clone(), catalog.clone());
        let path = path.to_owned();
        ConfigFile { path, period, text, load: Box::new(move || flags.configuration(&catalog)) }
    });
    let instance = Instance {
        host,
        metrics: Arc::clone(&metrics),
        traces: flags.traces.clone(),
        record: flags.misc.record.clone(),
        config_file,
        ..Instance::new(&config, clients)
    };
    let mut process = Process::new(&config, instance).await?;
    let closing = CancellationToken::new();
    let _close = closing.clone().drop_guard();
    let mut serving = server.map(|server| {
        let insight = flags.misc.insight.then(|| process.insight(catalog));
        let state = process.endpoint_state();
        let endpoints = state.endpoints(metrics, flags.clone(), log_level, signalled.clone(), insight);
        tokio::spawn(server.serve(endpoints, closing.clone())).fuse()
    });
    let not_served = OptionFuture::from(serving.as_mut().map(|serving| failed("HTTPS server", serving)));
    tokio::select! {
        ended = process.run(&signalled) => ended?,
        Some(failure) = not_served => return Err(failure),
    }
    process.shut_down().await?;
    closing.cancel();
    if let Some(serving) = serving {
        // A slow reader must not keep the process running.
        let _ = timeout(CLOSE_TIMEOUT, serving).await;
    }
    Ok(())
}

/// Schedules on this server until `stop` is cancelled, waits for bindings in flight, and returns.
pub async fn schedule(
    config: &Config,
    connection: impl Into<Connection>,
    record: Option<&Path>,
    stop: &CancellationToken,
) -> Result<()> {
    let clients = Clients::connect(connection)?;
    let record = record.map(Path::to_owned);
    Instance { record, ..Instance::new(config, clients) }.run(config, stop).await
}

/// Like [`schedule`], and serves the page on loopback.
#[cfg(feature = "demo")]
pub(crate) async fn schedule_with_page(
    config: &Config,
    connection: impl Into<Connection>,
    catalog: &Catalog,
    (loopback, next_link): (Loopback, NextLink),
    stop: &CancellationToken,
) -> Result<()> {
    let clients = Clients::connect(connection)?;
    let mut process = Process::new(config, Instance::new(config, clients)).await?;
    let closing = CancellationToken::new();
    let _close = closing.clone().drop_guard();
    tokio::spawn(loopback.serve(page::site(&process.insight(catalog)), next_link, closing));
    process.run(stop).await?;
    process.shut_down().await
}

impl Instance {
    /// An instance on this machine, without a record or a configuration file to follow.
    pub fn new(config: &Config, clients: Clients) -> Self {
        Self {
            clients,
            host: Host::local(),
            metrics: Metrics::new(&config.features),
            traces: TraceOptions::default(),
            record: None,
            config_file: None,
            drive: Box::new(|owner| tokio::task::spawn_blocking(move || owner.run())),
        }
    }

    /// Schedules until `stop` is cancelled, waits for bindings in flight, and returns.
    pub async fn run(self, config: &Config, stop: &CancellationToken) -> Result<()> {
        let mut process = Process::new(config, self).await?;
        process.run(stop).await?;
        process.shut_down().await
    }
}

pub(crate) fn transport(connection: &Connection) -> Result<Transport, ConnectError> {
    Transport::connect(connection).map_err(|error| ConnectError::Client(Box::new(error)))
}

fn rate_limit(connection: &ClientConnection) -> Option<RateLimiter> {
    let burst = connection.burst.and_then(|burst| u32::try_from(burst).ok()).unwrap_or(DEFAULT_BURST);
    RateLimiter::new(connection.qps?, burst)
}

/// A client for informers that counts requests and logs outages.
fn watching_client(connection: &Connection, requests: &Arc<Requests>) -> Result<Client, ConnectError> {
    let service = WatchService::connect(connection).map_err(|error| ConnectError::Client(Box::new(error)))?;
    let outages = OutageLog::of(&without_credentials(&connection.server()), full_text);
    let client = ClientBuilder::new(service, "default").with_layer(&outages);
    Ok(client.with_layer(&Counting(Arc::clone(requests))).build())
}

/// The server's address for logs, and a client for informers of a process that only reads.
pub(crate) fn reading_client(connection: &Connection) -> Result<(String, Client), ConnectError> {
    let url = connection.server();
    Ok((without_credentials(&url), watching_client(connection, &Requests::to(host(&url)))?))
}

/// The server's address for logs. The URL may contain a password, which must not be logged.
pub(crate) fn without_credentials(url: &http::Uri) -> String {
    format!("{}://{}", url.scheme_str().unwrap_or("https"), host(url))
}

/// The server's host and port.
fn host(url: &http::Uri) -> &str {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    authority.rsplit('@').next().unwrap_or_default()
}

/// Exits without waiting for bindings.
fn exit_immediately() {
    tracing::warn!("second signal received, exiting immediately");
    logs::flush();
    std::process::exit(1);
}

/// Signals within this time of the first count as the same one: shells and `timeout` send it to
/// both a process and its group.
const ECHO: Duration = Duration::from_secs(1);

/// Returns a token that SIGTERM or SIGINT cancels. A second signal calls `on_second`.
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
