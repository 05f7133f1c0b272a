//! `supercargo run`: from the command line to a scheduler at work, and back.

mod life;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::api::{ConnectError, client, connect_to};
use crate::clock::{Clock, SystemClock};
use crate::config::{Catalog, ClientConnection, Config};
use crate::flags::Flags;
use crate::rate_limit::RateLimiter;
use crate::transport::Transport;

use life::Life;

/// A watch without a byte for so long has lost its server: a bookmark comes about every minute.
const WATCH_SILENCE: Duration = Duration::from_mins(3);
/// Requests at once where only `qps` is set: kube-scheduler's default.
const DEFAULT_BURST: u32 = 100;

/// What `run` was asked for.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The flags.
    pub flags: Flags,
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
}

impl Clients {
    /// Reaches a server over the network.
    pub fn connect(connection: kube::Config) -> Result<Self, ConnectError> {
        let server = without_credentials(&connection.cluster_url);
        let [write, events, election] = [(); 3].map(|()| transport(&connection));
        let (write, events, election) = (write?, events?, election?);
        Ok(Self { server, watch: watching_client(connection)?, write, events, election })
    }

    /// Everything by one client, of a server in this process perhaps; `server` is what logs call it.
    pub fn one(server: impl Into<String>, client: Client) -> Self {
        let [write, events, election] = [(); 3].map(|()| client.clone().into());
        Self { server: server.into(), watch: client, write, events, election }
    }
}

/// Reads the configuration, or the default one.
pub fn load_config(path: Option<&Path>, catalog: &Catalog) -> Result<Config> {
    Ok(match path {
        Some(path) => Config::load(path, catalog)?,
        None => Config::default_with(catalog)?,
    })
}

/// Schedules until a signal comes, lets the bindings under way end, and returns. An error ends it, too; one is that another
/// scheduler leads.
pub async fn run(options: RunOptions, catalog: &Catalog) -> Result<()> {
    // First of all: a process with the number 1 does not even end on a signal that nobody listens for.
    let signalled = stop_signal()?;
    let flags = &options.flags;
    let config = flags.configuration(catalog)?;
    let kubeconfig = config.client_connection.kubeconfig.as_deref();
    let connection = tokio::select! {
        connection = connect_to(flags.misc.master.as_ref(), kubeconfig) => connection?,
        () = signalled.cancelled() => return Ok(()),
    };
    schedule(&config, connection, flags.misc.record.as_deref(), &signalled).await
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
    let mut life = Life::new(config, clients, clock, record).await?;
    life.run(stop).await?;
    life.wind_down().await
}

fn transport(connection: &kube::Config) -> Result<Transport, ConnectError> {
    Transport::connect(connection).map_err(|error| ConnectError::Client(Box::new(error)))
}

/// A client for informers, which notices when the server falls silent.
pub(crate) fn watching_client(mut connection: kube::Config) -> Result<Client, ConnectError> {
    connection.read_timeout = Some(WATCH_SILENCE);
    client(connection)
}

fn rate_limit(connection: &ClientConnection) -> Option<RateLimiter> {
    let burst = connection.burst.and_then(|burst| u32::try_from(burst).ok()).unwrap_or(DEFAULT_BURST);
    RateLimiter::new(connection.qps?, burst)
}

/// The server's address for logs: a URL may have a password in it.
fn without_credentials(url: &http::Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{}://{host}", url.scheme_str().unwrap_or("https"))
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

#[cfg(test)]
mod tests;
