//! A machine that runs a scheduler process by clocks of its own.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use kube::Client;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use supercargo::run::{Clients, ConfigFile, Instance};
use supercargo_client::host::{Clock, Host, Seed};
use supercargo_config::{Catalog, Config};
use supercargo_framework::{Now, Timestamp};
use supercargo_owner::owner::{Owner, Turn};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep_until};
use tokio_util::sync::CancellationToken;

/// The wall-clock time at which simulations begin, in microseconds.
pub const EPOCH: i64 = 1_800_000_000_000_000;
/// The memory for what happened to pods, in bytes.
const TIMELINE: usize = 64 << 10;
/// How often a configuration file is read.
const CONFIG_PERIOD: Duration = Duration::from_secs(20);
/// More turns in a row would be a livelock.
const MOST_TURNS: u32 = 1_000_000;

/// The clocks of a machine. Its monotonic clock is that of its paused runtime.
#[derive(Debug)]
pub struct SimulatedClock {
    zero: Instant,
    wall: AtomicI64,
    suspended: AtomicU64,
    /// Whether suspension goes unnoticed, which is a sabotage.
    is_blind: bool,
}

impl SimulatedClock {
    fn slept(&self) -> Duration {
        Duration::from_micros(self.suspended.load(Ordering::Relaxed))
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Now {
        let monotonic = self.zero.elapsed();
        let wall = Timestamp(self.wall.load(Ordering::Relaxed)).plus(monotonic + self.slept());
        Now { wall, monotonic }
    }

    fn suspended(&self) -> Duration {
        if self.is_blind { Duration::ZERO } else { self.slept() }
    }
}

/// What a process is started with.
pub struct Setting<'a> {
    /// The name of the machine, unique per process.
    pub name: String,
    /// The seed of the process.
    pub seed: u64,
    /// The true time.
    pub now: Duration,
    /// Whether its clock does not tell how long the machine was suspended.
    pub is_blind: bool,
    /// The configuration file.
    pub config: &'a Path,
    /// The memory of evaluation tables, in bytes.
    pub table_memory: usize,
    /// The plugins.
    pub catalog: Catalog,
    /// Makes the client, within the runtime of the machine.
    pub client: Box<dyn FnOnce() -> Client + 'a>,
    /// Changes the owner of the scheduler before it runs.
    pub change: &'a dyn Fn(&mut Owner),
}

/// A running process on its machine. Dropping it kills the process.
pub struct Machine {
    clock: Arc<SimulatedClock>,
    rate: f64,
    /// Where the owner is handed over.
    handed: Arc<Mutex<Option<Owner>>>,
    owner: Option<Owner>,
    /// Ends the task that stands for the owner's thread.
    ended: Option<oneshot::Sender<std::thread::Result<()>>>,
    stop: CancellationToken,
    process: JoinHandle<Result<()>>,
    /// When the owner has something to do without a message.
    due: Instant,
    /// Whether the owner hangs.
    hangs: bool,
    /// Time that the process has to catch up with, because it was stopped.
    missed: Duration,
    /// The longest turn in CPU time.
    pub longest_turn: Duration,
    /// The most CPU time of all other tasks in a slice.
    pub longest_slice: Duration,
    // Dropped last: the others use it.
    runtime: Runtime,
}

/// What the scheduler's thread does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    /// It runs.
    Runs,
    /// It hangs within a step.
    Hangs,
    /// It stands still, but not within a step that the watchdog watches.
    Waits,
    /// It runs when something is due, but messages do not wake it.
    IsDeaf,
}

/// How far a machine came.
pub enum Progress {
    /// The process runs on.
    Running,
    /// The process has ended.
    Ended(Result<()>),
}

impl Machine {
    /// Starts a process.
    pub fn start(setting: Setting<'_>) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let entered = runtime.enter();
        let wall = EPOCH + i64::try_from(setting.now.as_micros())?;
        let zero = Instant::now();
        let clock = Arc::new(SimulatedClock {
            zero,
            wall: AtomicI64::new(wall),
            suspended: AtomicU64::new(0),
            is_blind: setting.is_blind,
        });
        let path = setting.config.to_owned();
        let load = {
            let path = path.clone();
            let (catalog, table_memory) = (setting.catalog, Some(setting.table_memory));
            move || Ok(Config { table_memory, timeline_memory: TIMELINE, ..Config::load(&path, &catalog)? })
        };
        let text = std::fs::read(&path).ok();
        let config = load()?;
        let handed = Arc::<Mutex<Option<Owner>>>::default();
        let (ended, end) = oneshot::channel();
        let slot = Arc::clone(&handed);
        let seed = Seed(setting.seed);
        let host = Host { name: setting.name.into(), clock: clock.clone(), seed, hash_seed: seed };
        let instance = Instance {
            host,
            config_file: Some(ConfigFile { path, period: CONFIG_PERIOD, text, load: Box::new(load) }),
            drive: Box::new(move |owner| {
                *slot.lock() = Some(owner);
                tokio::spawn(async move {
                    if let Ok(Err(panic)) = end.await {
                        resume_unwind(panic);
                    }
                })
            }),
            ..Instance::new(&config, Clients::one("simulated", (setting.client)()))
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let process = tokio::spawn(async move { instance.run(&config, &stopped).await });
        drop(entered);
        let mut machine = Self {
            clock,
            rate: 1.0,
            handed,
            owner: None,
            ended: Some(ended),
            stop,
            process,
            due: zero,
            hangs: false,
            missed: Duration::ZERO,
            longest_turn: Duration::ZERO,
            longest_slice: Duration::ZERO,
            runtime,
        };
        machine.run_tasks(Duration::from_millis(1));
        if let Some(owner) = &mut machine.owner {
            (setting.change)(owner);
        }
        Ok(machine)
    }

    /// The owner of the scheduler.
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// Whether the process may write, by its own clocks.
    pub fn may_write(&self) -> bool {
        let _entered = self.runtime.enter();
        self.owner.as_ref().is_some_and(Owner::may_write)
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.stop.cancel();
    }

    /// The clocks run at this rate from now on.
    pub fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    /// Sets the wall clock.
    pub fn jump(&self, seconds: i64) {
        self.clock.wall.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }

    /// True time passes while the process is stopped.
    pub fn miss(&mut self, time: Duration) {
        self.missed += time.mul_f64(self.rate);
    }

    /// True time passes while the machine is suspended.
    pub fn sleep(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.clock.suspended.fetch_add(micros, Ordering::Relaxed);
    }

    /// Runs the process for a time, and its scheduler's thread as far as that is able to.
    pub fn run(&mut self, time: Duration, thread: Thread) -> Progress {
        self.run_tasks(time.mul_f64(self.rate));
        match thread {
            Thread::Runs | Thread::IsDeaf => self.run_owner(thread == Thread::IsDeaf),
            Thread::Hangs => self.hang(),
            Thread::Waits => {}
        }
        if !self.process.is_finished() {
            return Progress::Running;
        }
        let ended = self.runtime.block_on(&mut self.process);
        Progress::Ended(ended.unwrap_or_else(|error| Err(anyhow::anyhow!("panicked: {error}"))))
    }

    fn run_tasks(&mut self, time: Duration) {
        let missed = std::mem::take(&mut self.missed);
        let began = cpu_time();
        self.runtime.block_on(async {
            if !missed.is_zero() {
                advance(missed).await;
            }
            sleep_until(Instant::now() + time).await;
        });
        self.longest_slice = self.longest_slice.max(cpu_time().saturating_sub(began));
        if let Some(owner) = self.handed.lock().take() {
            self.owner = Some(owner);
        }
    }

    fn hang(&mut self) {
        let Some(owner) = self.owner.as_ref().filter(|_| !self.hangs) else { return };
        let _entered = self.runtime.enter();
        owner.hang();
        self.hangs = true;
        // When it no longer hangs, it goes on at once.
        self.due = Instant::now();
    }

    /// Once a message arrives or something is due, the owner takes turns until it is idle.
    fn run_owner(&mut self, is_deaf: bool) {
        let Some(owner) = &mut self.owner else { return };
        let _entered = self.runtime.enter();
        self.hangs = false;
        let idle = self.due.saturating_duration_since(Instant::now());
        let wake = |owner: &mut Owner| {
            let is_woken = !is_deaf && owner.receive();
            if is_woken || idle.is_zero() { Turn::Work } else { Turn::Idle(idle) }
        };
        for turn in 0..MOST_TURNS {
            let began = cpu_time();
            let step = || if turn == 0 { wake(owner) } else { owner.turn() };
            let turn = catch_unwind(AssertUnwindSafe(step));
            self.longest_turn = self.longest_turn.max(cpu_time().saturating_sub(began));
            let outcome = match turn {
                Ok(Turn::Work) => continue,
                Ok(Turn::Idle(idle)) => {
                    self.due = Instant::now() + idle;
                    return;
                }
                Ok(Turn::Ended) => Ok(()),
                Err(panic) => Err(panic),
            };
            // As its thread would end.
            self.owner = None;
            if let Some(ended) = self.ended.take() {
                let _ = ended.send(outcome);
            }
            return;
        }
        panic!("the owner of the scheduler does not come to rest");
    }
}

/// The CPU time of this thread.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Time since the start of the thread is not negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
