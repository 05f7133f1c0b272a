//! A scheduler process: assembly, standby, scheduling, shutdown.
//!
//! A standby runs the informers, so that it knows the cluster when it becomes the leader. It sends
//! no writes: the owner does not schedule before this process leads, and the fence blocks requests
//! from non-leaders.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::future::{Fuse, OptionFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use supercargo_framework::Text;
use supercargo_scheduler::record::Recorded;
use supercargo_scheduler::{Input, Options, Scheduler};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::endpoints::EndpointState;
use super::{Clients, Instance, rate_limit};
use crate::debugger::Debugger;
use crate::informers::{self, Informers};
use crate::insight::endpoint::Insight;
use crate::reload::{Generation, Reload};
use crate::resource_stats::ResourceStats;
use crate::trace_collector::collector;
use supercargo_client::api::Api;
use supercargo_client::election::{Candidacy, Elector, Leadership, LeaseName, Loss, Timing};
use supercargo_client::fence::Fence;
use supercargo_client::host::Host;
use supercargo_codec::{NodeKind, PodKind};
use supercargo_config::{Catalog, Config, LeaderElectionConfig};
use supercargo_owner::binder::Binder;
use supercargo_owner::effects::EffectHandler;
use supercargo_owner::events::Writer;
use supercargo_owner::extender::HttpExtenders;
use supercargo_owner::options::scheduler_options;
use supercargo_owner::owner::{Mailbox, MaybeRecorded, Message, Owner, StopOnDrop};
use supercargo_owner::preemptor::Preemptor;
use supercargo_owner::recorder::{Recorder, Recording};
use supercargo_owner::status_writer::{StatusWriter, write_now};
use supercargo_owner::watchdog::{Stalled, Watchdog};
use supercargo_telemetry::LogObserver;
use supercargo_telemetry::metrics::Metrics;
use supercargo_telemetry::traces::{Traced, traced};

/// How long bindings in flight may take after a signal. Must be below the default grace period of a
/// pod, 30 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long sending of events, status patches and traces may take after that.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the initial list of a kind may take that only the changed configuration needs.
const KIND_TIMEOUT: Duration = Duration::from_mins(1);
/// How long marking the pod with which the scheduler stalled may take.
const MARK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long releasing the lease may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// A background task that can be polled again after it has ended.
pub(super) type Task = Fuse<JoinHandle<()>>;

/// An assembled scheduler.
pub(super) struct Process {
    informers: Informers,
    /// Kinds that plugins watch.
    resources: Vec<Text>,
    mailbox: Mailbox,
    owner: JoinHandle<()>,
    /// `None` without leader election.
    candidacy: Option<Candidacy>,
    /// Whether informers start only once this process leads.
    is_delayed: bool,
    events: Task,
    statuses: Task,
    /// `None` without tracing.
    traces: Option<JoinHandle<()>>,
    /// Cancelled once all handlers have synced.
    synced: CancellationToken,
    debugger: Debugger,
    watchdog: Watchdog,
    host: Host,
    /// Writes behind the fence.
    api: Api,
    generations: watch::Sender<Generation>,
    metrics: Arc<Metrics>,
    config_file: Option<ConfigFile>,
    _stop: StopOnDrop,
    // Dropped after the owner has been told to stop: it waits for the rest of the record.
    _recording: Option<Recording>,
}

/// A configuration file to watch for changes.
pub struct ConfigFile {
    /// Its path.
    pub path: PathBuf,
    /// How often it is read.
    pub period: Duration,
    /// Its content before the configuration was first parsed.
    pub text: Option<Vec<u8>>,
    /// Reads the file and applies what overrides it.
    pub load: Box<dyn Fn() -> Result<Config> + Send + Sync>,
}

impl Process {
    /// Starts everything but the informers and the election.
    pub(super) async fn new(config: &Config, instance: Instance) -> Result<Self> {
        let Instance { clients, host, metrics, traces, record, config_file, drive } = instance;
        let Clients { server, watch, write, events, election, requests } = clients;
        let names: BTreeSet<_> =
            config.profiles.iter().map(|profile| Arc::clone(&profile.scheduler_name)).collect();
        tracing::info!(profiles = ?names, %server, version = crate::VERSION, "starting supercargo");

        let connection = &config.client_connection;
        let fence = config.leader_election.leader_elect.then(|| Fence::new(Arc::clone(&host.clock)));
        let api = |transport| Api::over(transport, rate_limit(connection), connection.writes_protobuf());
        let event_api = api(events).behind(fence.as_ref().map(Fence::for_events));
        let api = api(write).behind(fence.clone());

        let observer = metrics.observer(Box::new(LogObserver));
        let Traced { observer, sending: traces } =
            traced(collector(&traces, &host.name)?, &metrics, observer);
        let options = Options { hash_seed: host.hash_seed.number("hash"), ..scheduler_options(config) };
        let scheduler = Scheduler::new(options)?.with_observer(observer);
        let resources = scheduler.resources();
        let (scheduler, recording) = maybe_recorded(scheduler, config, record.as_deref(), &host);
        let (mailbox, messages) = Mailbox::new();
        let stop = StopOnDrop(mailbox.clone());
        let clients = vec![("scheduler", api.clone()), ("events", event_api.clone())];
        let (recorder, events) = Writer::new(event_api, host.clone());
        let (patches, statuses) = StatusWriter::new(api.clone());
        let extenders = HttpExtenders::new(&config.extenders).await?;
        let kinds = kinds(config, &extenders);
        let runtime = tokio::runtime::Handle::current();
        let watchdog = Watchdog::new(extenders.longest_call());
        let calls = Box::new(extenders.calls(runtime.clone(), watchdog.clone()));
        let effects = Box::new(EffectHandler {
            runtime,
            binder: Binder::new(api.clone(), mailbox.clone(), extenders),
            preemptor: Preemptor::new(api.clone(), mailbox.clone()),
            recorder,
            patches,
        });

        let candidacy = fence.map(|fence| {
            let election = election.pinged_every(config.leader_election.retry_period);
            let api = Api::over(election, None, false);
            let component = Arc::clone(&config.profiles[0].scheduler_name);
            let (lease, timing) = lease(&config.leader_election);
            let watch = Some(watch.clone());
            Candidacy::new(Elector::new(lease, timing, api, watch, component, fence, host.clone()))
        });
        let informers = Informers::new(&server, watch, &mailbox, kinds)?;
        metrics.set_collector(Arc::new(ResourceStats {
            mailbox: mailbox.clone(),
            informers: informers.stats(),
            requests,
            clients,
            backlog: effects.binder.backlog(),
            events_lost: effects.recorder.losses(),
            events: effects.recorder.gauges(),
            status_writes: effects.patches.gauge(),
        }));
        let debugger = Debugger::new(informers.stores(), mailbox.clone(), Arc::clone(&metrics));
        let owner =
            Owner::new(scheduler, messages, effects, calls, Arc::clone(&host.clock), watchdog.clone());
        let (generations, _) = watch::channel(Generation::first(Arc::new(config.clone())));
        Ok(Self {
            informers,
            resources,
            mailbox,
            synced: CancellationToken::new(),
            debugger,
            watchdog,
            host,
            api,
            generations,
            metrics,
            config_file,
            owner: drive(owner),
            candidacy,
            is_delayed: config.delay_cache_until_active,
            events: tokio::spawn(events.run()).fuse(),
            statuses: tokio::spawn(statuses.run()).fuse(),
            traces,
            _stop: stop,
            _recording: recording,
        })
    }

    /// Answers questions. The catalog has the plugins of the configuration.
    pub(super) fn insight(&self, catalog: &Catalog) -> Arc<Insight> {
        Arc::new(Insight::new(
            self.mailbox.clone(),
            Arc::clone(&self.host.clock),
            self.generations.subscribe(),
            catalog.clone(),
            Arc::clone(&self.metrics),
            self.synced.clone(),
        ))
    }

    /// State that the endpoints serve.
    pub(super) fn endpoint_state(&self) -> EndpointState {
        EndpointState {
            leadership: self.candidacy.as_ref().map(Candidacy::leadership),
            synced: self.synced.clone(),
            debugger: self.debugger.clone(),
            watchdog: self.watchdog.clone(),
            generations: self.generations.subscribe(),
            started: self.host.wall(),
        }
    }

    /// Watches, waits for leadership and schedules until `stop` is cancelled. Errors are fatal.
    pub(super) async fn run(&mut self, stop: &CancellationToken) -> Result<()> {
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
            watchdog,
            host,
            api,
            generations,
            metrics,
            config_file,
            ..
        } = self;
        let (synced, debugger, generations) = (&*synced, &*debugger, &*generations);
        let reported =
            report(metrics, candidacy.as_ref().map(Candidacy::leadership), generations.subscribe());
        let informers = &*informers;
        // The election starts when this future is first polled.
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
                    let reload = config_file
                        .take()
                        .map(|file| watch_config(file, informers, resources, mailbox, generations, stop));
                    tokio::join!(debugger.compare_periodically(), OptionFuture::from(reload));
                }),
            );
            stop.cancelled().await;
        };
        tokio::select! {
            () = until_stopped => Ok(()),
            failure = debugger.on_signal() => Err(failure),
            never = reported => match never {},
            failure = informers.failed() => bail!("{failure}"),
            ended = owner => {
                ended.context("the scheduler panicked")?;
                bail!("scheduler thread exited unexpectedly");
            }
            // A leader that does not schedule must make way for another replica.
            stalled = watchdog.expired() => Err(set_back(api, host, stalled).await.into()),
            failure = failed("event writer", events) => Err(failure),
            failure = failed("status writer", statuses) => Err(failure),
            loss = lost(candidacy) => {
                // The fence is closed: bindings in flight can send no further requests.
                mailbox.post(Message::Stop);
                tracing::error!(reason = %loss.why, "Leaderelection lost");
                let why = loss.why.clone();
                loss.event_written().await;
                bail!("Leaderelection lost: {why}");
            }
        }
    }

    /// Waits for bindings in flight, releases the lease, and flushes pending writes.
    pub(super) async fn shut_down(mut self) -> Result<()> {
        tracing::info!("shutting down: waiting for bindings in flight");
        self.mailbox.send(Input::Drain);
        let drained = timeout(DRAIN_TIMEOUT, &mut self.owner).await;
        self.informers.shut_down().await;
        let is_drained = drained.is_ok();
        match drained {
            Ok(ended) => ended.context("the scheduler panicked")?,
            Err(_) => {
                tracing::warn!("bindings still in flight after {} s", DRAIN_TIMEOUT.as_secs());
                self.mailbox.post(Message::Stop);
            }
        }
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        let are_statuses_written = matches!(timeout_at(deadline, self.statuses).await, Ok(Ok(())));
        // The next leader starts as soon as the lease is released. If requests of this process may
        // still arrive, the lease must expire instead.
        if is_drained
            && are_statuses_written
            && let Some(candidacy) = self.candidacy
            && timeout(RELEASE_TIMEOUT, candidacy.release()).await.is_err()
        {
            tracing::warn!("lease not released within {} s", RELEASE_TIMEOUT.as_secs());
        }
        let are_events_written = matches!(timeout_at(deadline, self.events).await, Ok(Ok(())));
        if !(are_statuses_written && are_events_written) {
            tracing::warn!("not all events and conditions were written within {} s", FLUSH_TIMEOUT.as_secs());
        }
        if let Some(traces) = self.traces
            && !matches!(timeout_at(deadline, traces).await, Ok(Ok(())))
        {
            tracing::warn!("not all traces were sent within {} s", FLUSH_TIMEOUT.as_secs());
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Reloads the configuration file when it changes.
async fn watch_config(
    ConfigFile { path, period, text, load }: ConfigFile,
    informers: &Informers,
    resources: &[Text],
    mailbox: &Mailbox,
    generations: &watch::Sender<Generation>,
    stop: &CancellationToken,
) {
    let (timeout, generations) = (KIND_TIMEOUT, generations.clone());
    let reload = Reload { path, load, period, timeout, mailbox: mailbox.clone(), generations };
    let (sender, mut not_served) = mpsc::unbounded_channel();
    let sender = &sender;
    let watch = |kind: Text| async move {
        // The receiver lives as long as this future.
        let _ = sender.send(informers.watch_objects(mailbox, std::slice::from_ref(&kind), stop).await);
        informers.wait_for_sync(&kind).await;
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

/// Keeps the metrics of leadership and configuration current.
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

/// Resolves on the next change; never without a receiver.
async fn changed<T>(receiver: Option<&mut watch::Receiver<T>>) {
    if let Some(receiver) = receiver
        && receiver.changed().await.is_ok()
    {
        return;
    }
    pending::<()>().await;
}

/// Marks the pod with which the scheduler stalled, so that the next process tries it last. It may
/// be gone by now.
async fn set_back(api: &Api, host: &Host, stalled: Stalled) -> Stalled {
    if let Some(pod) = stalled.pod() {
        let patch = supercargo_scheduler::stalled(pod, stalled.stalled_for, host.clock.now().wall);
        if timeout(MARK_TIMEOUT, write_now(api, &patch)).await.is_err() {
            tracing::warn!(pod = %patch.pod, "pod not marked within {} s", MARK_TIMEOUT.as_secs());
        }
    }
    stalled
}

/// Resolves when the lease is lost; never without an election.
async fn lost(candidacy: &mut Option<Candidacy>) -> Loss {
    match candidacy {
        Some(candidacy) => candidacy.lost().await,
        None => pending().await,
    }
}

/// Resolves when a task has panicked. A task that ends normally has not failed.
pub(super) async fn failed(what: &str, task: &mut Task) -> anyhow::Error {
    match task.await {
        Ok(()) => pending().await,
        Err(error) => anyhow::Error::new(error).context(format!("{what} failed")),
    }
}

/// How pods and nodes are decoded. Extenders that receive whole objects need the raw JSON.
fn kinds(config: &Config, extenders: &HttpExtenders) -> (PodKind, NodeKind) {
    let (pods, nodes) = informers::kinds(config.client_connection.reads_protobuf());
    let pods = pods.features(config.features.clone());
    (pods.keep_raw(extenders.need_whole_pods()), nodes.keep_raw(extenders.need_whole_nodes()))
}

/// The lease to elect by, and the timing.
fn lease(config: &LeaderElectionConfig) -> (LeaseName, Timing) {
    let LeaderElectionConfig { lease_duration, renew_deadline, retry_period, .. } = *config;
    let (namespace, name) = (config.resource_namespace.clone(), config.resource_name.clone());
    (LeaseName { namespace, name }, Timing { lease_duration, renew_deadline, retry_period })
}

/// The scheduler, recorded if a path is given. It runs without a record rather than not at all.
fn maybe_recorded(
    scheduler: Scheduler,
    config: &Config,
    record: Option<&Path>,
    host: &Host,
) -> (MaybeRecorded, Option<Recording>) {
    match record.map(|path| Recorder::start(path, host.wall())) {
        Some(Ok((recorder, recording))) => {
            let (now, text) = (host.clock.now(), config.to_yaml_without_keys());
            let recorded = Recorded::new(now, scheduler, text, recorder);
            return (MaybeRecorded::Recorded(Box::new(recorded)), Some(recording));
        }
        Some(Err(error)) => tracing::error!(%error, "cannot start the thread that writes the record"),
        None => {}
    }
    (MaybeRecorded::Plain(Box::new(scheduler)), None)
}
