//! The API server in memory with supercargo in this process. Nothing waits for time to pass: once
//! everything is idle, the scheduler's clock advances to its next deadline.

use std::cell::Cell;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use http::{Request, header};
use http_body_util::BodyExt as _;
use serde_json::Value;
use supercargo::run::{Clients, Instance};
use supercargo_apiserver::{ApiServer, Settings};
use supercargo_client::host::Host;
use supercargo_config::feature_gates::FeatureGates;
use supercargo_config::{Catalog, Config};
use supercargo_controlplane::{Method, Response};
use supercargo_framework::features::Version;
use tokio::runtime::{Builder, Handle};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::cluster::Cluster;
use super::scheduler_kind::{Gates, SchedulerKind};
use super::skipping::SkippingClock;

/// The time limit to become idle on a busy machine.
const UNREST: Duration = Duration::from_secs(15);
/// Later deadlines are not awaited: no backoff is longer.
const LONGEST_SKIP: Duration = Duration::from_secs(12);
/// The step of the clock without a deadline, and the real time that it takes.
const STEP: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(5));
/// How often every task of the runtime runs before the runtime counts as idle: more than the number
/// of tasks between the server and the scheduler.
const TURNS: usize = 40;

/// An API server in memory with supercargo.
pub(super) struct Memory {
    server: ApiServer,
    tasks: Handle,
    clock: SkippingClock,
    /// The activity when it was last idle.
    idle_at: Cell<(u64, u64)>,
}

/// supercargo in this process. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Embedded {
    stop: CancellationToken,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Memory {
    /// Starts both.
    pub(super) fn start(config: &Arc<Config>) -> Result<(Self, Embedded)> {
        let runtime = Builder::new_current_thread().enable_all().build().context("make a runtime")?;
        let memory = Self {
            server: ApiServer::new(Settings { pod_groups: true, ..Settings::default() }),
            tasks: runtime.handle().clone(),
            clock: SkippingClock::default(),
            idle_at: Cell::default(),
        };
        let stop = CancellationToken::new();
        let (mut config, service, stopped) = (Config::clone(config), memory.server.service(), stop.clone());
        // No other scheduler runs.
        config.leader_election.leader_elect = false;
        let clock = Arc::new(memory.clock.clone());
        let thread = thread::Builder::new().name("supercargo".to_owned()).spawn(move || {
            runtime.block_on(async {
                let clients = Clients::one("in memory", kube::Client::new(service, "default"));
                let host = Host { clock, ..Host::local() };
                Instance { host, ..Instance::new(&config, clients) }.run(&config, &stopped).await
            })
        })?;
        Ok((memory, Embedded { stop, thread: Some(thread) }))
    }

    /// How much time has been skipped.
    pub(super) fn skipped(&self) -> Duration {
        self.clock.skipped()
    }

    /// Numbers that change with every write and every action of the scheduler.
    fn activity(&self) -> (u64, u64) {
        (self.server.resource_version(), self.clock.activity())
    }

    /// Waits until every task has run. Tasks pass on their input without waiting for time.
    fn let_tasks_run(&self) -> Result<()> {
        let (sender, done) = mpsc::channel();
        self.tasks.spawn(async move {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            // The receiver waits for this.
            let _ = sender.send(());
        });
        done.recv_timeout(UNREST).context("supercargo's runtime has ended or hangs")
    }
}

impl Cluster for Memory {
    fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Response> {
        let content_type = match (method, body) {
            (Method::Patch, Some(Value::Array(_))) => "application/json-patch+json",
            (Method::Patch, _) => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method.to_string().as_str())
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::ACCEPT, "application/json")
            .body(body.map_or_else(String::new, Value::to_string))?;
        self.tasks.block_on(async {
            let answer = self.server.service().oneshot(request).await?;
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await?.to_bytes();
            Ok(Response { status, body: String::from_utf8(body.into())? })
        })
    }

    fn watch(&self, path: &str, is_end: &dyn Fn(&Value) -> bool) -> Result<Vec<Value>> {
        let request = Request::builder().uri(path).header(header::ACCEPT, "application/json");
        let request = request.body(String::new())?;
        self.tasks.block_on(async {
            let mut body = self.server.service().oneshot(request).await?.into_body();
            let (mut text, mut events) = (String::new(), Vec::new());
            while !events.last().is_some_and(is_end) {
                let frame = timeout(UNREST, body.frame()).await.context("the watch shows no end")?;
                let frame = frame.context("the watch has ended")??;
                text += std::str::from_utf8(frame.data_ref().map_or(b"", |data| data))?;
                let whole = text.rfind('\n').map_or(0, |end| end + 1);
                for line in text.drain(..whole).collect::<String>().lines() {
                    events.push(serde_json::from_str(line)?);
                }
            }
            Ok(events)
        })
    }

    fn now(&self) -> Duration {
        self.clock.time()
    }

    /// Waits until nothing has changed, the scheduler has found nothing to do twice, and the tasks
    /// between it and the server have run before and after.
    fn settle(&self) -> Result<()> {
        let deadline = Instant::now() + UNREST;
        loop {
            let before = self.activity();
            self.let_tasks_run()?;
            self.clock.await_idleness(deadline)?;
            self.let_tasks_run()?;
            if self.activity() == before {
                self.idle_at.set(before);
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "supercargo does not come to rest");
        }
    }

    /// Advances the clock, unless something has happened since the caller looked.
    fn pause(&self, _: Duration) -> Result<()> {
        let seen = self.idle_at.get();
        self.settle()?;
        if self.idle_at.get() != seen {
            return Ok(());
        }
        let idle = self.clock.idle();
        if idle <= LONGEST_SKIP {
            self.clock.skip(idle);
        } else {
            self.clock.skip(STEP.0);
            thread::sleep(STEP.1);
        }
        Ok(())
    }

    fn elapse(&self, time: Duration) -> Result<()> {
        let end = self.now() + time;
        loop {
            self.settle()?;
            let rest = end.saturating_sub(self.now());
            if rest.is_zero() {
                return Ok(());
            }
            self.clock.skip(self.clock.idle().min(rest));
        }
    }
}

impl Embedded {
    /// Fails with its error if it has ended.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) else { return Ok(()) };
        match thread.join() {
            Ok(result) => result.context("supercargo has ended")?,
            Err(_) => bail!("supercargo has panicked"),
        }
        bail!("supercargo has ended unexpectedly")
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // Its result was checked while it mattered.
            let _ = thread.join();
        }
    }
}

/// The configuration of the parity profiles.
pub(super) fn config() -> Result<Arc<Config>> {
    config_with(&Gates::default())
}

/// The same with these feature gates beside those of all scenarios.
pub(super) fn config_with(gates: &Gates) -> Result<Arc<Config>> {
    let features = gates.of_schedulers().parse::<FeatureGates>()?.apply(Version::CURRENT)?;
    let catalog = Catalog::in_tree().with_features(features);
    let config = Config::parse("config.yaml", &SchedulerKind::Supercargo.config(gates), &catalog)?;
    Ok(Arc::new(config))
}
