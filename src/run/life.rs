//! The life of a scheduler process: put together, watching, standing by, scheduling, winding down.
//!
//! One of several watches as the leader does, so that it knows the cluster when its turn comes, and sends nothing: the owner does
//! not begin before this scheduler leads, and the fence lets no request pass while it does not.

use std::collections::BTreeSet;
use std::fs::File;
use std::future::pending;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::FutureExt as _;
use futures::future::OptionFuture;
use supercargo_framework::Text;
use supercargo_scheduler::record::Recorded;
use supercargo_scheduler::{Input, Scheduler};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{Clients, rate_limit};
use crate::api::Api;
use crate::binder::Binder;
use crate::clock::Clock;
use crate::config::Config;
use crate::election::{Candidacy, Elector, Fence, Loss, hostname};
use crate::events::Writer;
use crate::extender::HttpExtenders;
use crate::informers::{self, Informers};
use crate::metrics::{Metrics, Sources};
use crate::observe::LogObserver;
use crate::options::scheduler_options;
use crate::owner::{Driver, Mailbox, Message, Owner, StopOnDrop};
use crate::preemptor::Preemptor;
use crate::shell::Shell;
use crate::status_writer::StatusWriter;
use crate::wire::{NodeKind, PodKind};

/// How long bindings under way may take to end after a signal. Within the 30 s that a pod has by default.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long events and status patches may take to be written after that.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may take to give up the lease.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// A scheduler, put together.
pub(super) struct Life {
    informers: Informers,
    /// Kinds that plugins want watched.
    resources: Vec<Text>,
    mailbox: Mailbox,
    owner: JoinHandle<io::Result<()>>,
    /// Unless there is no election.
    candidacy: Option<Candidacy>,
    /// Whether nothing is watched before this scheduler leads.
    is_delayed: bool,
    events: JoinHandle<()>,
    statuses: JoinHandle<()>,
    _stop: StopOnDrop,
}

impl Life {
    /// Starts everything but the informers and the election.
    pub(super) async fn new(
        config: &Config,
        clients: Clients,
        clock: Box<dyn Clock>,
        record: Option<&Path>,
        metrics: &Metrics,
    ) -> Result<Self> {
        let Clients { server, watch, write, events, election, requests } = clients;
        let names: BTreeSet<_> =
            config.profiles.iter().map(|profile| Arc::clone(&profile.scheduler_name)).collect();
        tracing::info!(profiles = ?names, %server, version = env!("CARGO_PKG_VERSION"), "starting supercargo");

        let connection = &config.client_connection;
        let fence = config.leader_election.leader_elect.then(Fence::default);
        let api = |transport| Api::over(transport, rate_limit(connection), connection.writes_protobuf());
        let event_api = api(events).behind(fence.as_ref().map(Fence::for_events));
        let api = api(write).behind(fence.clone());

        let observer = metrics.observer(Box::new(LogObserver));
        let scheduler = Scheduler::new(scheduler_options(config))?.with_observer(observer);
        let resources = scheduler.resources();
        let driver = driver(scheduler, record)?;
        let (mailbox, messages) = Mailbox::new();
        let stop = StopOnDrop(mailbox.clone());
        let clients = vec![("scheduler", api.clone()), ("events", event_api.clone())];
        let (recorder, events) = Writer::new(event_api, hostname());
        let events_lost = recorder.losses();
        let (patches, statuses) = StatusWriter::new(api.clone());
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

        let candidacy = fence.map(|fence| {
            let api = Api::over(election, None, false);
            let component = Arc::clone(&config.profiles[0].scheduler_name);
            Candidacy::new(Elector::new(&config.leader_election, api, Some(watch.clone()), component, fence))
        });
        let informers = Informers::new(watch, &mailbox, kinds)?;
        metrics.ask(Sources {
            mailbox: mailbox.clone(),
            informers: informers.observed(),
            requests,
            clients,
            backlog,
            events_lost,
        });
        Ok(Self {
            informers,
            resources,
            mailbox,
            owner: tokio::task::spawn_blocking(move || owner.run()),
            candidacy,
            is_delayed: config.delay_cache_until_active,
            events: tokio::spawn(events.run()),
            statuses: tokio::spawn(statuses.run()),
            _stop: stop,
        })
    }

    /// Watches, waits for its turn and schedules until `stop` is cancelled. An error is the end.
    pub(super) async fn run(&mut self, stop: &CancellationToken) -> Result<()> {
        let Self { informers, resources, mailbox, owner, candidacy, is_delayed, .. } = self;
        let informers = &*informers;
        // It begins to run for leader when this is first awaited.
        let leads = OptionFuture::from(candidacy.as_ref().map(Candidacy::lead)).map(drop).shared();
        let until_stopped = async {
            if *is_delayed {
                stop.run_until_cancelled(leads.clone()).await;
            }
            informers.start();
            let not_served = informers.watch_objects(mailbox, resources, stop).await;
            tokio::join!(
                informers.begin_when_synced(mailbox, stop, leads),
                stop.run_until_cancelled(informers.watch_once_served(mailbox, not_served)),
            );
            stop.cancelled().await;
        };
        tokio::select! {
            () = until_stopped => Ok(()),
            failure = informers.failed() => bail!("an informer broke down: {failure}"),
            ended = owner => {
                owner_result(ended)?;
                bail!("the scheduler ended unasked");
            }
            loss = lost(candidacy) => {
                // Nothing that is under way may begin a request any more: the fence is closed.
                mailbox.post(Message::Stop);
                tracing::error!(reason = %loss.why, "Leaderelection lost");
                let why = loss.why.clone();
                loss.told().await;
                bail!("Leaderelection lost: {why}");
            }
        }
    }

    /// Lets the bindings under way end, gives up the lease, and finishes what is left to write.
    pub(super) async fn wind_down(mut self) -> Result<()> {
        tracing::info!("stopping: letting bindings under way end");
        self.mailbox.send(Input::Drain);
        let drained = timeout(DRAIN_TIMEOUT, &mut self.owner).await;
        self.informers.shut_down().await;
        let is_drained = drained.is_ok();
        match drained {
            Ok(ended) => owner_result(ended)?,
            Err(_) => {
                tracing::warn!("bindings under way did not end within {} s", DRAIN_TIMEOUT.as_secs());
                self.mailbox.post(Message::Stop);
            }
        }
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        let is_patched = timeout_at(deadline, self.statuses).await.is_ok();
        // Whoever leads next begins at once. What might still come from here could meet what it does; then it has to wait until
        // the lease ends by itself.
        if is_drained
            && is_patched
            && let Some(candidacy) = self.candidacy
            && timeout(RELEASE_TIMEOUT, candidacy.release()).await.is_err()
        {
            tracing::warn!("the lease was not given up within {} s", RELEASE_TIMEOUT.as_secs());
        }
        let is_told = timeout_at(deadline, self.events).await.is_ok();
        if !(is_patched && is_told) {
            tracing::warn!("events and conditions were not all written within {} s", FLUSH_TIMEOUT.as_secs());
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Resolves when the lease is lost, if ever.
async fn lost(candidacy: &mut Option<Candidacy>) -> Loss {
    match candidacy {
        Some(candidacy) => candidacy.lost().await,
        None => pending().await,
    }
}

fn owner_result(ended: Result<io::Result<()>, JoinError>) -> Result<()> {
    ended.context("the scheduler panicked")?.context("cannot write the record")
}

/// How pods and nodes are read: whole where an extender is sent them.
fn kinds(config: &Config, extenders: &HttpExtenders) -> (PodKind, NodeKind) {
    let (pods, nodes) = informers::kinds(config.client_connection.reads_protobuf());
    let pods = pods.features(config.features.clone());
    (pods.keep_raw(extenders.need_whole_pods()), nodes.keep_raw(extenders.need_whole_nodes()))
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
