//! Content of the HTTPS endpoints.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use futures::FutureExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::debugger::Debugger;
use crate::insight::endpoint::Insight;
use crate::page;
use crate::reload::Generation;
use supercargo_client::election::Leadership;
use supercargo_config::flags::Flags;
use supercargo_owner::watchdog::Watchdog;
use supercargo_serving::{Checks, Endpoints, JsonPage, Probe};
use supercargo_telemetry::logs::LogLevel;
use supercargo_telemetry::metrics::Metrics;

/// State of a process that the endpoints serve.
pub(super) struct EndpointState {
    /// `None` without leader election.
    pub(super) leadership: Option<watch::Receiver<Leadership>>,
    /// Cancelled once all handlers have synced.
    pub(super) synced: CancellationToken,
    pub(super) debugger: Debugger,
    pub(super) watchdog: Watchdog,
    pub(super) generations: watch::Receiver<Generation>,
    pub(super) started: Timestamp,
}

impl EndpointState {
    /// All endpoints. `/readyz` fails once `stop` is cancelled.
    pub(super) fn endpoints(
        self,
        metrics: Arc<Metrics>,
        flags: Flags,
        log_level: LogLevel,
        stop: CancellationToken,
        insight: Option<Arc<Insight>>,
    ) -> Endpoints {
        let Self { leadership, synced, debugger, watchdog, generations, started } = self;
        // Constant: a reload cannot change it.
        let profiling = generations.borrow().config.enable_profiling;
        let queries = insight.map(|insight| page::everything(&insight)).unwrap_or_default();
        let resources = (Arc::clone(&metrics), leadership.clone());
        let (of_configz, of_flagz) = (generations.clone(), generations);
        Endpoints {
            checks: checks(leadership, synced, &watchdog, stop),
            metrics: Arc::new(move || {
                let metrics = Arc::clone(&metrics);
                async move { metrics.encode().await }.boxed()
            }),
            resource_metrics: Arc::new(move || {
                let (metrics, leadership) = &resources;
                let leads = leadership.as_ref().is_none_or(|leadership| leadership.borrow().is_leader);
                let metrics = leads.then(|| Arc::clone(metrics));
                async move {
                    match metrics {
                        Some(metrics) => metrics.resources().await,
                        None => String::new(),
                    }
                }
                .boxed()
            }),
            configz: Arc::new(move || {
                // The server adds the key `componentconfig` itself.
                let mut page = of_configz.borrow().config.configz();
                page["componentconfig"].take()
            }),
            emulated_version: flags.features.emulated_version.to_string(),
            started,
            flagz: Arc::new(move || flags.flagz(&of_flagz.borrow().config)),
            debug: BTreeMap::from([
                ("/debug/cache", json_page(&debugger, |it| async move { it.cache_json().await })),
                ("/debug/queue", json_page(&debugger, |it| async move { it.queue_json().await })),
            ]),
            queries,
            log_level: profiling.then_some(log_level),
        }
    }
}

/// kube-scheduler's checks, and `scheduler`, which fails if the scheduler thread hangs. `/readyz`
/// does not include it, because only a restart helps.
fn checks(
    leadership: Option<watch::Receiver<Leadership>>,
    synced: CancellationToken,
    watchdog: &Watchdog,
    stop: CancellationToken,
) -> Checks {
    let mut checks = Checks::default();
    checks.livez.add("ping", || Ok(()));
    if let Some(leadership) = leadership {
        let add_election = |probe: &mut Probe| {
            let leadership = leadership.clone();
            let check = move || leadership.borrow().check(Instant::now()).map_err(|error| error.to_string());
            probe.add("leaderElection", check);
        };
        add_election(&mut checks.healthz);
        add_election(&mut checks.readyz);
    } else {
        checks.healthz.add("ping", || Ok(()));
    }
    for probe in [&mut checks.livez, &mut checks.healthz] {
        let watchdog = watchdog.clone();
        probe.add("scheduler", move || watchdog.check(Instant::now()).map_err(|stalled| stalled.to_string()));
    }
    let require = |is_met: bool, problem: &str| if is_met { Ok(()) } else { Err(problem.to_owned()) };
    checks.readyz.add("shutdown", move || require(!stop.is_cancelled(), "process is shutting down"));
    checks
        .readyz
        .add("sched-handler-sync", move || require(synced.is_cancelled(), "waiting for handlers to sync"));
    checks
}

fn json_page<T, F>(of: &T, ask: impl Fn(T) -> F + Send + Sync + 'static) -> JsonPage
where
    T: Clone + Send + Sync + 'static,
    F: Future<Output = Value> + Send + 'static,
{
    let of = of.clone();
    Arc::new(move || ask(of.clone()).boxed())
}
