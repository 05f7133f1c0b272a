//! One contender's turn: new pods, a start, and the result.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tokio::time::sleep;

use crate::api::Wire;
use crate::checks::{self, World};
use crate::cluster::Cluster;
use crate::contender::{Bare, Contender};
use crate::names::{Names, PodName};
use crate::process::{self, Memory, Process};
use crate::watch::{PodChange, Watch};

/// The time limits of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// From the last binding until events and constraints are checked.
    pub(crate) events: Duration,
    /// From the last binding until memory is read.
    pub(crate) settle: Duration,
    /// Without a binding until the turn fails.
    pub(crate) patience: Duration,
}

/// The result of a turn.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) pods: usize,
    /// The size of a pod at the end, as the API server stores it.
    pub(crate) pod_bytes: usize,
    /// From the start to the first binding.
    pub(crate) until_first: Duration,
    /// From the first binding to the last.
    pub(crate) bound: Duration,
    /// From the first binding until the last event exists.
    pub(crate) written: Duration,
    /// The CPU time of the API server while it is written to.
    pub(crate) server_cpu: Duration,
    /// The cost of the scheduler, if the contender is one.
    pub(crate) scheduler: Option<Cost>,
    /// The number of pods with an event Scheduled.
    pub(crate) events: usize,
    pub(crate) violations: Vec<String>,
}

/// The cost of a scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// The CPU time until the first binding.
    pub(crate) starting: Duration,
    /// The CPU time from then until everything is written.
    pub(crate) scheduling: Duration,
    /// The memory after it has settled.
    pub(crate) memory: Memory,
}

/// The recorded changes and events of a turn, and the claims at its end, to repeat it.
pub(crate) struct Seen {
    pub(crate) changes: Vec<(PodName, PodChange)>,
    pub(crate) events: Vec<Value>,
    /// By the index of their pod.
    pub(crate) claims: HashMap<usize, Value>,
}

/// The processes whose CPU time is read.
#[derive(Clone, Copy)]
struct Meter {
    server: u32,
    scheduler: Option<u32>,
}

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    server: Duration,
    scheduler: Option<Duration>,
}

/// The first and the last binding.
struct Bindings {
    first: Sample,
    last: Sample,
    changes: Vec<(PodName, PodChange)>,
}

impl Meter {
    fn sample(self) -> Result<Sample> {
        let at = Instant::now();
        let scheduler = self.scheduler.map(process::cpu).transpose()?;
        Ok(Sample { at, server: process::cpu(self.server)?, scheduler })
    }
}

/// Runs a contender's turn and cleans up.
pub(crate) async fn take(
    cluster: &Cluster,
    contender: &Contender,
    names: &Names,
    waits: Waits,
) -> Result<(Outcome, Seen)> {
    cluster.create_pods(names).await?;
    cluster.rest().await?;
    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", names.namespace);
    let before = checks::count(&mut cluster.admin.connect(Wire::Http1).await?, &path).await?;
    let watch = Watch::begin(&cluster.admin, names.clone()).await?;
    let progress = |done: usize| cluster.progress.at(contender.name(), "bind", done, names.count);
    let turn = Turn { cluster, names, waits, watch, progress };
    let (mut outcome, seen) = match contender {
        Contender::Scheduler(scheduler) => turn.schedule(scheduler.start(cluster)?, &path, before).await?,
        Contender::Bare(bare) => turn.write(bare, &path, before).await?,
    };
    outcome.pod_bytes = cluster.pod_bytes(names).await?;
    cluster.delete_pods(names).await?;
    let gone =
        |(pod, change): &(PodName, PodChange)| matches!(change, PodChange::Deleted).then(|| pod.clone());
    cluster.restore(&seen.changes.iter().filter_map(gone).collect()).await?;
    Ok((outcome, seen))
}

struct Turn<'a, P> {
    cluster: &'a Cluster,
    names: &'a Names,
    waits: Waits,
    watch: Watch,
    progress: P,
}

impl<P: Fn(usize)> Turn<'_, P> {
    async fn schedule(
        mut self,
        mut scheduler: Process,
        path: &str,
        before: usize,
    ) -> Result<(Outcome, Seen)> {
        let meter = Meter { server: self.cluster.server, scheduler: Some(scheduler.id()) };
        let bindings = self.bindings(meter, &mut || scheduler.check_alive()).await;
        let bindings = bindings.with_context(|| format!("its last log lines:\n{}", scheduler.log_tail()))?;
        let last = bindings.last.at;
        let end = self.written(meter, path, before, last + self.waits.events).await?;
        until(last + self.waits.events).await;
        let (mut outcome, seen) = self.outcome(scheduler.started, bindings, end, path).await?;
        until(last + self.waits.settle).await;
        scheduler.check_alive()?;
        if let Some(cost) = &mut outcome.scheduler {
            cost.memory = process::memory(scheduler.id())?;
        }
        Ok((outcome, seen))
    }

    async fn write(mut self, bare: &Bare, path: &str, before: usize) -> Result<(Outcome, Seen)> {
        let meter = Meter { server: self.cluster.server, scheduler: None };
        // It knows the claims before it starts, as a scheduler's informer does.
        let claims = self.cluster.claims(self.names).await?;
        let calls = bare.script.calls(self.names, &claims, bare.encoding)?;
        let started = Instant::now();
        let failed = Arc::new(AtomicBool::new(false));
        let (server, way, fails) = (self.cluster.scheduler.clone(), bare.way, Arc::clone(&failed));
        let writing = tokio::spawn(async move {
            let sent = server.send_all(way.wire, way.in_flight, calls, |_, _| ()).await;
            fails.store(sent.is_err(), Ordering::Relaxed);
            sent
        });
        let check = &mut || {
            ensure!(!failed.load(Ordering::Relaxed), "a write failed");
            Ok(())
        };
        let bindings = self.bindings(meter, check).await;
        if bindings.is_err() && failed.load(Ordering::Relaxed) {
            writing.await??;
            bail!("a write failed");
        }
        let bindings = bindings?;
        writing.await??;
        let deadline = bindings.last.at + self.waits.events;
        let end = self.written(meter, path, before, deadline).await?;
        self.outcome(started, bindings, end, path).await
    }

    /// Waits until all pods are bound.
    async fn bindings(&mut self, meter: Meter, check: &mut dyn FnMut() -> Result<()>) -> Result<Bindings> {
        /// The interval of checks whether the contender still runs.
        const LOOK: Duration = Duration::from_millis(500);
        let (mut changes, mut bound, mut first) = (Vec::new(), 0, None);
        let mut heard = Instant::now();
        loop {
            let Some(news) = self.watch.next(LOOK).await? else {
                check()?;
                let (all, waited) = (self.names.count, self.waits.patience.as_secs());
                ensure!(
                    heard.elapsed() < self.waits.patience,
                    "{bound} of {all} pods are bound, and none since {waited} s"
                );
                continue;
            };
            for (pod, change) in news {
                if matches!(change, PodChange::Bound { .. }) {
                    heard = Instant::now();
                    bound += 1;
                    if first.is_none() {
                        first = Some(meter.sample()?);
                    }
                    (self.progress)(bound);
                }
                changes.push((pod, change));
            }
            if let Some(first) = first.filter(|_| bound == self.names.count) {
                return Ok(Bindings { first, last: meter.sample()?, changes });
            }
        }
    }

    /// Waits until every pod has an event, or until the deadline. Returns the time of the last
    /// event.
    async fn written(&self, meter: Meter, path: &str, before: usize, deadline: Instant) -> Result<Sample> {
        const LOOK: Duration = Duration::from_millis(25);
        let mut connection = self.cluster.admin.connect(Wire::Http1).await?;
        let (mut seen, mut last) = (0, meter.sample()?);
        loop {
            let count = checks::count(&mut connection, path).await?.saturating_sub(before);
            if count > seen {
                (seen, last) = (count, meter.sample()?);
            }
            if seen >= self.names.count || Instant::now() > deadline {
                return Ok(last);
            }
            sleep(LOOK).await;
        }
    }

    async fn outcome(
        &self,
        started: Instant,
        bindings: Bindings,
        end: Sample,
        path: &str,
    ) -> Result<(Outcome, Seen)> {
        let Bindings { first, last, changes } = bindings;
        let events: Vec<Value> = checks::list(&self.cluster.admin, path).await?;
        let about = |event: &Value| {
            let text = |key: &str| event["regarding"][key].as_str().unwrap_or_default().to_owned();
            self.names.index(&PodName { namespace: text("namespace"), name: text("name") })
        };
        let mut found = vec![false; self.names.count];
        for pod in events.iter().filter(|event| event["reason"] == "Scheduled").filter_map(about) {
            found[pod] = true;
        }
        let violations = World::read(&self.cluster.admin).await?.violations()?;
        let scheduler = first.scheduler.zip(end.scheduler).map(|(starting, end)| Cost {
            starting,
            scheduling: end.saturating_sub(starting),
            memory: Memory::default(),
        });
        let outcome = Outcome {
            pods: self.names.count,
            pod_bytes: 0,
            until_first: first.at - started,
            bound: last.at - first.at,
            written: end.at.max(last.at) - first.at,
            server_cpu: end.server.saturating_sub(first.server),
            scheduler,
            events: found.into_iter().filter(|found| *found).count(),
            violations,
        };
        let claims = self.cluster.claims(self.names).await?;
        Ok((outcome, Seen { changes, events, claims }))
    }
}

async fn until(moment: Instant) {
    tokio::time::sleep_until(moment.into()).await;
}
