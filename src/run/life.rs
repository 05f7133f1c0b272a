//! The life of a scheduler process: put together, watching, standing by, scheduling, winding down.
//!
//! One of several watches as the leader does, so that it knows the cluster when its turn comes, and sends nothing: the owner does
//! not begin before this scheduler leads, and the fence lets no request pass while it does not.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs::File;
use std::future::pending;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::future::{Fuse, OptionFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use supercargo_framework::Text;
use supercargo_scheduler::record::Recorded;
use supercargo_scheduler::{Input, Scheduler};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::served::Facts;
use super::{Clients, rate_limit};
use crate::binder::Binder;
use crate::clock::Clock;
use crate::collectors::Sources;
use crate::debugger::Debugger;
use crate::events::Writer;
use crate::extender::HttpExtenders;
use crate::footprint::Surveyor;
use crate::informers::{self, Informers};
use crate::options::scheduler_options;
use crate::owner::{Driver, Mailbox, Message, Owner, StopOnDrop};
use crate::preemptor::Preemptor;
use crate::pulse::Pulse;
use crate::reload::{Generation, Reload};
use crate::shell::Shell;
use crate::status_writer::StatusWriter;
use crate::trace_collector::collector;
use supercargo_client::api::Api;
use supercargo_client::election::{Candidacy, Elector, Leadership, Loss, hostname};
use supercargo_client::fence::Fence;
use supercargo_codec::{NodeKind, PodKind};
use supercargo_config::Config;
use supercargo_config::flags::TraceOptions;
use supercargo_telemetry::LogObserver;
use supercargo_telemetry::metrics::Metrics;
use supercargo_telemetry::traces::{Traced, traced};

/// How long bindings under way may take to end after a signal. Within the 30 s that a pod has by default.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long events, status patches and traces may take to be sent after that.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may take until all is known of a kind that only a changed configuration needs.
const KIND_TIMEOUT: Duration = Duration::from_mins(1);
/// How long it may take to give up the lease.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Something that goes on beside the rest; whether it has broken down can be asked again and again.
pub(super) type Task = Fuse<JoinHandle<()>>;

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
    events: Task,
    statuses: Task,
    /// Unless nothing is traced.
    traces: Option<JoinHandle<()>>,
    /// Cancelled when every handler has seen what exists.
    synced: CancellationToken,
    debugger: Debugger,
    surveyor: Surveyor,
    pulse: Pulse,
    generations: watch::Sender<Generation>,
    metrics: Arc<Metrics>,
    _stop: StopOnDrop,
}

/// A configuration file that may change, and how to read it.
pub(super) struct Followed {
    pub(super) path: PathBuf,
    pub(super) period: Duration,
    /// What it said before it was read for the first time.
    pub(super) text: Option<Vec<u8>>,
    pub(super) load: Box<dyn Fn() -> Result<Config> + Send + Sync>,
}

impl Life {
    /// Starts everything but the informers and the election.
    pub(super) async fn new(
        config: &Config,
        clients: Clients,
        clock: Box<dyn Clock>,
        record: Option<&Path>,
        metrics: Arc<Metrics>,
        traces: &TraceOptions,
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
        let Traced { observer, sending: traces } = traced(collector(traces)?, &metrics, observer);
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
        let pulse = Pulse::new(extenders.longest_call());
        let calls = Box::new(extenders.calls(runtime.clone(), pulse.clone()));
        let shell = Shell {
            runtime,
            binder: Binder::new(api.clone(), mailbox.clone(), extenders),
            preemptor: Preemptor::new(api, mailbox.clone()),
            recorder,
            patches,
        };
        let backlog = shell.binder.backlog();

        let candidacy = fence.map(|fence| {
            let api = Api::over(election, None, false);
            let component = Arc::clone(&config.profiles[0].scheduler_name);
            Candidacy::new(Elector::new(&config.leader_election, api, Some(watch.clone()), component, fence))
        });
        let informers = Informers::new(watch, &mailbox, kinds)?;
        metrics.set_collector(Arc::new(Sources {
            mailbox: mailbox.clone(),
            informers: informers.observed(),
            requests,
            clients,
            backlog,
            events_lost,
        }));
        let surveyor = Surveyor::new(mailbox.clone(), &informers, &shell.recorder, &shell.patches);
        let debugger = Debugger::new(informers.stores(), mailbox.clone(), Arc::clone(&metrics));
        let owner = Owner::new(driver, messages, shell, calls, clock, pulse.clone());
        let (generations, _) = watch::channel(Generation::first(Arc::new(config.clone())));
        Ok(Self {
            informers,
            resources,
            mailbox,
            synced: CancellationToken::new(),
            debugger,
            surveyor,
            pulse,
            generations,
            metrics,
            owner: tokio::task::spawn_blocking(move || owner.run()),
            candidacy,
            is_delayed: config.delay_cache_until_active,
            events: tokio::spawn(events.run()).fuse(),
            statuses: tokio::spawn(statuses.run()).fuse(),
            traces,
            _stop: stop,
        })
    }

    /// What others may look at.
    pub(super) fn facts(&self) -> Facts {
        Facts {
            leadership: self.candidacy.as_ref().map(Candidacy::leadership),
            synced: self.synced.clone(),
            debugger: self.debugger.clone(),
            surveyor: self.surveyor.clone(),
            pulse: self.pulse.clone(),
            generations: self.generations.subscribe(),
        }
    }

    /// Watches, waits for its turn and schedules until `stop` is cancelled. An error is the end.
    pub(super) async fn run(&mut self, followed: Option<Followed>, stop: &CancellationToken) -> Result<()> {
        let Self {
            informers,
            resources,
            mailbox,
            owner,
            candidacy,
            is_delayed,
            events,
            statuses,
            synced,
            debugger,
            pulse,
            generations,
            metrics,
            ..
        } = self;
        let (synced, debugger, generations) = (&*synced, &*debugger, &*generations);
        let reported =
            report(metrics, candidacy.as_ref().map(Candidacy::leadership), generations.subscribe());
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
                informers.begin_when_synced(mailbox, stop, synced, leads),
                stop.run_until_cancelled(informers.watch_once_served(mailbox, not_served)),
                stop.run_until_cancelled(async {
                    synced.cancelled().await;
                    let reload = followed
                        .map(|followed| follow(followed, informers, resources, mailbox, generations, stop));
                    tokio::join!(debugger.compare_by_itself(), OptionFuture::from(reload));
                }),
            );
            stop.cancelled().await;
        };
        tokio::select! {
            () = until_stopped => Ok(()),
            failure = debugger.on_signal() => Err(failure),
            never = reported => match never {},
            failure = informers.failed() => bail!("an informer broke down: {failure}"),
            ended = owner => {
                owner_result(ended)?;
                bail!("the scheduler ended unasked");
            }
            // Whoever leads and does not schedule must let others.
            stalled = pulse.given_up() => Err(stalled.into()),
            failure = broken("the writer of events", events) => Err(failure),
            failure = broken("the writer of conditions", statuses) => Err(failure),
            loss = lost(candidacy) => {
                // Nothing that is under way may begin a request any more: the fence is closed.
                mailbox.post(Message::Stop);
                tracing::error!(reason = %loss.why, "Leaderelection lost");
                let why = loss.why.clone();
                loss.event_written().await;
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
        let is_patched = matches!(timeout_at(deadline, self.statuses).await, Ok(Ok(())));
        // Whoever leads next begins at once. What might still come from here could meet what it does; then it has to wait until
        // the lease ends by itself.
        if is_drained
            && is_patched
            && let Some(candidacy) = self.candidacy
            && timeout(RELEASE_TIMEOUT, candidacy.release()).await.is_err()
        {
            tracing::warn!("the lease was not given up within {} s", RELEASE_TIMEOUT.as_secs());
        }
        let is_told = matches!(timeout_at(deadline, self.events).await, Ok(Ok(())));
        if !(is_patched && is_told) {
            tracing::warn!("events and conditions were not all written within {} s", FLUSH_TIMEOUT.as_secs());
        }
        if let Some(traces) = self.traces
            && !matches!(timeout_at(deadline, traces).await, Ok(Ok(())))
        {
            tracing::warn!("traces were not all sent within {} s", FLUSH_TIMEOUT.as_secs());
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Takes over what a configuration file says when it has changed.
async fn follow(
    Followed { path, period, text, load }: Followed,
    informers: &Informers,
    resources: &[Text],
    mailbox: &Mailbox,
    generations: &watch::Sender<Generation>,
    stop: &CancellationToken,
) {
    let (patience, generations) = (KIND_TIMEOUT, generations.clone());
    let reload = Reload { path, load, period, patience, mailbox: mailbox.clone(), generations };
    let (sender, mut not_served) = mpsc::unbounded_channel();
    let sender = &sender;
    let watch = |kind: Text| async move {
        // The other end is kept for as long as this.
        let _ = sender.send(informers.watch_objects(mailbox, std::slice::from_ref(&kind), stop).await);
        informers.known(&kind).await;
    };
    let follow = reload.follow(text, resources.iter().cloned().collect(), watch);
    let watch_once_served = async {
        let mut waiting = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(missing) = not_served.recv() => waiting.push(informers.watch_once_served(mailbox, missing)),
                Some(()) = waiting.next() => {}
            }
        }
    };
    let ((), _never) = tokio::join!(follow, watch_once_served);
}

/// Counts who leads and which configuration is at work, for good.
async fn report(
    metrics: &Metrics,
    mut leadership: Option<watch::Receiver<Leadership>>,
    mut generations: watch::Receiver<Generation>,
) -> Infallible {
    let mut last = generations.borrow().clone();
    loop {
        if let Some(leadership) = &mut leadership {
            let now = leadership.borrow_and_update();
            metrics.leads(&now.lease, now.is_leader);
        }
        let now = generations.borrow_and_update().clone();
        (last.number..now.number).for_each(|_| metrics.config_reloaded());
        (last.failures..now.failures).for_each(|_| metrics.config_refused());
        metrics.config_successful(now.is_current);
        last = now;
        tokio::select! {
            () = changed(leadership.as_mut()) => {}
            () = changed(Some(&mut generations)) => {}
        }
    }
}

/// Resolves when there is news, if ever.
async fn changed<T>(news: Option<&mut watch::Receiver<T>>) {
    if let Some(news) = news
        && news.changed().await.is_ok()
    {
        return;
    }
    pending::<()>().await;
}

/// Resolves when the lease is lost, if ever.
async fn lost(candidacy: &mut Option<Candidacy>) -> Loss {
    match candidacy {
        Some(candidacy) => candidacy.lost().await,
        None => pending().await,
    }
}

/// Resolves when a task has broken down, if ever. One that ends in order has nothing left to do, and others hear why.
pub(super) async fn broken(what: &str, task: &mut Task) -> anyhow::Error {
    match task.await {
        Ok(()) => pending().await,
        Err(error) => anyhow::Error::new(error).context(format!("{what} broke down")),
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
