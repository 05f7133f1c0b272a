//! The whole system, slice by slice of true time.
//!
//! Each machine has a runtime of its own, whose paused clock runs at the machine's rate. The server
//! and the network run in another, by true time. Within a slice each runs up to its end, one after
//! the other, so a message takes at least until the next slice. Slices grow while nothing is sent.

mod look;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use http::StatusCode;
use jiff::Timestamp;
use parking_lot::Mutex;
use supercargo_apiserver::faults::Matcher;
use supercargo_apiserver::sim::{self, Simulation};
use supercargo_apiserver::{ApiServer, Backup, Settings};
use supercargo_framework::Features;
use supercargo_owner::owner::Owner;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::disk::Disks;
use crate::extender::Extender;
use crate::invariants::{InvariantChecker, Sender};
use crate::machine::{EPOCH, Machine, Progress, Setting, Thread};
use crate::network::{Faults, Letter, Network, client};
use crate::out_of_tree_plugin;
use crate::plan::{MACHINES, Plan, PlannedFault, Trouble};
use crate::retained::{Retained, allocated};
use crate::sabotage::Sabotage;
use crate::workload::Workload;

/// The shortest and the longest slice.
const SLICES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// A turn of the scheduler, and all other tasks of a slice together, must take less work.
const LONGEST_STEP: Duration = Duration::from_secs(1);
/// How long schedulers do nothing after the faults, if that is the sabotage. Pods may wait for a
/// minute, and are looked at after 90 s.
const LATE_START: Duration = Duration::from_secs(65);
/// When schedulers stop to notice messages, if that is the sabotage.
const DEAF_SINCE: Duration = Duration::from_mins(10);
/// Changes that a scheduler keeps for its evaluation tables in any case.
pub const FEW_CHANGES: usize = 1024;
/// How long a scheduler hangs at most until its process ends: twice the longest step with a call to
/// an extender, by the slowest clock, and the pause between two looks of the watchdog.
const LONGEST_HANG: Duration = Duration::from_secs(90);
/// The longest time until a process that has ended starts again.
const RESTART: u64 = 10_000;

/// The system.
pub struct World {
    /// True time.
    pub now: Duration,
    slice: Duration,
    seed: u64,
    random: Rng,
    machines: [Slot; MACHINES],
    /// The number of processes so far.
    processes: u64,
    /// The API server.
    pub server: ApiServer,
    network: Arc<Network>,
    letters: mpsc::UnboundedSender<Letter>,
    /// What has been seen.
    pub checker: Arc<Mutex<InvariantChecker>>,
    extender: Extender,
    simulation: Option<Simulation>,
    backups: Vec<Backup>,
    /// Faults that have begun and not ended.
    lasting: Vec<Lasting>,
    /// When all faults ended.
    healed: Option<Duration>,
    /// Whether nobody binds volumes to claims.
    volumes_stall: Arc<AtomicBool>,
    /// What schedulers had.
    retained: Retained,
    checked: Duration,
    backed_up: Duration,
    disks: Disks,
    table_memory: usize,
    has_groups: bool,
    features: Features,
    sabotage: Option<Sabotage>,
    zero: Instant,
    runtime: Runtime,
}

/// A machine, and what is the matter with it.
#[derive(Default)]
struct Slot {
    machine: Option<Machine>,
    process: Arc<str>,
    /// When the process starts again.
    starts_at: Duration,
    is_stopped: bool,
    is_suspended: bool,
    hangs: bool,
    /// How long the process has hung without a break, and whether it ever has.
    hung: Duration,
    has_hung: bool,
    /// How long the process has run while nothing disturbed it.
    calm: Duration,
    /// Whether the process has got SIGTERM.
    is_terminated: bool,
    rate: f64,
}

/// A fault that has begun.
struct Lasting {
    end: Duration,
    what: Trouble,
    /// The latest resourceVersion when it began.
    version: u64,
}

impl World {
    /// A system whose processes start at once.
    pub fn new(
        plan: &Plan,
        checker_of: impl FnOnce() -> Arc<Mutex<InvariantChecker>>,
        sabotage: Option<Sabotage>,
    ) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let entered = runtime.enter();
        let zero = Instant::now();
        let clock = move || {
            let micros = EPOCH + i64::try_from(zero.elapsed().as_micros()).unwrap_or(i64::MAX - EPOCH);
            Timestamp::from_microsecond(micros).unwrap_or_default()
        };
        let settings = Settings {
            history: 20_000,
            seed: plan.seed,
            pod_groups: plan.has_groups,
            clock: Arc::new(clock),
            ..Settings::default()
        };
        let server = ApiServer::new(settings);
        let checker = checker_of();
        let random = Rng::with_seed(plan.seed ^ 0x6e65_7477);
        let network =
            Network::new(server.clone(), Arc::clone(&checker), random, plan.streams_lists, sabotage);
        let (letters, received) = mpsc::unbounded_channel();
        runtime.spawn(Arc::clone(&network).carry_all(received));
        let volumes_stall = Arc::<AtomicBool>::default();
        runtime.spawn(Workload::bind_volumes(server.clone(), Arc::clone(&volumes_stall)));
        drop(entered);
        let mut world = Self {
            now: Duration::ZERO,
            slice: SLICES.0,
            seed: plan.seed,
            random: Rng::with_seed(plan.seed ^ 0x776f_726c),
            machines: Default::default(),
            processes: 0,
            server,
            network,
            letters,
            checker,
            extender: Extender::new(plan.seed),
            simulation: None,
            backups: Vec::new(),
            lasting: Vec::new(),
            healed: None,
            volumes_stall,
            retained: Retained::default(),
            checked: Duration::ZERO,
            backed_up: Duration::ZERO,
            disks: Disks::new(plan.has_extender, sabotage)?,
            table_memory: plan.table_memory,
            has_groups: plan.has_groups,
            features: plan.features(sabotage),
            sabotage,
            zero,
            runtime,
        };
        world.simulate();
        world.settle()?;
        Ok(world)
    }

    /// Runs a future in the runtime of the server, at the current time.
    pub fn within<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Lets time pass.
    pub fn run_until(&mut self, end: Duration) -> Result<()> {
        let runtime = self.runtime.handle().clone();
        let _entered = runtime.enter();
        while self.now < end {
            let slice = self.slice.min(end - self.now);
            self.now += slice;
            self.end_faults()?;
            let until = self.zero + self.now;
            self.runtime.block_on(async { sleep_until(until).await });
            self.network.age();
            self.run_machines(slice)?;
            self.slice = match self.network.take_messages() {
                0 => (slice * 2).clamp(SLICES.0, SLICES.1),
                _ => SLICES.0,
            };
            self.look();
        }
        Ok(())
    }

    /// Whether something did not hold.
    pub fn has_failed(&self) -> bool {
        !self.checker.lock().failures.is_empty()
    }

    /// The running owners of schedulers, with the names of their processes.
    pub fn owners(&self) -> impl Iterator<Item = (&Arc<str>, &Owner)> {
        owners(&self.machines)
    }

    /// What schedulers hold of what they had.
    pub fn retained(&self) -> &Retained {
        &self.retained
    }

    /// Kills all processes, which start again at once, and returns how many bytes each of them had,
    /// without those of its evaluation tables.
    pub fn weigh(&mut self) -> Vec<(Arc<str>, usize)> {
        // Not even what was seen may hold memory.
        self.retained = Retained::default();
        let mut weights = Vec::new();
        for index in 0..MACHINES {
            let Some(owner) = self.machines[index].machine.as_ref().and_then(Machine::owner) else {
                continue;
            };
            let tables = owner.scheduler().stats().tables.bytes;
            let before = allocated();
            self.kill(index);
            let freed = before.saturating_sub(allocated());
            weights.push((Arc::clone(&self.machines[index].process), freed.saturating_sub(tables)));
        }
        weights
    }

    /// The running processes that may write, by their own clocks.
    pub fn writers(&self) -> Vec<Arc<str>> {
        let awake = self.machines.iter().filter(|slot| !slot.is_stopped && !slot.is_suspended);
        let may_write = |slot: &&Slot| slot.machine.as_ref().is_some_and(Machine::may_write);
        awake.filter(may_write).map(|slot| Arc::clone(&slot.process)).collect()
    }

    /// The machine of the process that holds the lease.
    fn leader(&self) -> Option<usize> {
        let checker = self.checker.lock();
        let leader = checker.leader()?;
        self.machines.iter().position(|slot| slot.process == *leader)
    }

    /// Begins a fault.
    pub fn begin(&mut self, fault: &PlannedFault) -> Result<()> {
        let what = fault.trouble(self.leader());
        let end = self.now + fault.lasts;
        {
            let mut checker = self.checker.lock();
            if what.disturbs_gangs() {
                checker.disturb_gangs_until(end);
            }
            if what.delays_watches() {
                checker.views_lag(end);
            }
            checker.note(format_args!("fault {what:?} for {:?}", fault.lasts));
            if self.meets_something(&what) {
                checker.trace.count(what.name(), 1);
            }
        }
        let runtime = self.runtime.handle().clone();
        let _entered = runtime.enter();
        match what {
            Trouble::Kill(machine) => {
                self.kill(machine);
                self.machines[machine].starts_at = end;
            }
            Trouble::Terminate(machine) => {
                let slot = &mut self.machines[machine];
                if let Some(running) = &slot.machine {
                    running.terminate();
                    slot.is_terminated = true;
                }
            }
            Trouble::Jump(machine, seconds) => {
                if let Some(running) = &self.machines[machine].machine {
                    running.jump(seconds);
                }
            }
            Trouble::Cut { mid_frame } => self.server.cut_watches(Matcher::default(), mid_frame),
            Trouble::Compact => self.server.compact(),
            Trouble::Restart { keep_history } => self.server.restart(keep_history),
            Trouble::Restore => self.restore(),
            Trouble::Reload => self.disks.change()?,
            // The others last.
            _ => {}
        }
        self.lasting.push(Lasting { end, what, version: self.server.resource_version() });
        self.settle()
    }

    /// Whether there is a process to end, or an old state to restore.
    fn meets_something(&self, what: &Trouble) -> bool {
        match *what {
            Trouble::Kill(machine) | Trouble::Terminate(machine) => self.machines[machine].machine.is_some(),
            Trouble::Restore => !self.backups.is_empty(),
            _ => true,
        }
    }

    /// Ends all faults.
    pub fn heal(&mut self) -> Result<()> {
        self.healed = Some(self.now);
        self.lasting.clear();
        self.within(async { self.network.heal() });
        self.checker.lock().end_disturbance();
        self.settle()
    }

    fn end_faults(&mut self) -> Result<()> {
        let before = self.lasting.len();
        self.lasting.retain(|fault| fault.end > self.now);
        if self.lasting.len() < before { self.settle() } else { Ok(()) }
    }

    /// Makes everything as the faults have it that last. Several of a kind may.
    fn settle(&mut self) -> Result<()> {
        let runtime = self.runtime.handle().clone();
        let _entered = runtime.enter();
        let mut faults = Faults::default();
        let (mut is_slow, mut lies, mut volumes_stall) = (false, false, false);
        let mut torn = [false; MACHINES];
        for slot in &mut self.machines {
            (slot.is_stopped, slot.is_suspended, slot.hangs, slot.rate) = (false, false, false, 1.0);
        }
        for Lasting { what, version, .. } in &self.lasting {
            match *what {
                Trouble::Stop(machine) => self.machines[machine].is_stopped = true,
                Trouble::Suspend(machine) => self.machines[machine].is_suspended = true,
                Trouble::Hang(machine) => self.machines[machine].hangs = true,
                // The last rate counts. Rates are not multiplied: leases allow for clocks that
                // differ by a sixth.
                Trouble::Rate(machine, rate) => self.machines[machine].rate = rate,
                Trouble::Partition { machine, up, down } => {
                    let link = &mut faults.links[machine];
                    (link.blocks_up, link.blocks_down) = (link.blocks_up || up, link.blocks_down || down);
                }
                Trouble::Refuse(machine) => faults.links[machine].refuses = true,
                Trouble::Slow(machine, by) => faults.links[machine].slower += by,
                Trouble::Lose { machine, percent, applied } => {
                    faults.links[machine].loses = Some((percent, applied));
                }
                Trouble::Respond { code, percent, applied } => {
                    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                    faults.rejects = Some((status, percent, applied));
                }
                Trouble::Lag { replica, resource, by } => {
                    let lag = faults.lags.entry((replica, resource)).or_default();
                    *lag = by.max(*lag);
                }
                Trouble::StaleLists(replica) => {
                    faults.stale[replica].get_or_insert(*version);
                }
                Trouble::TornConfig(machine) => torn[machine] = true,
                Trouble::StallVolumes => volumes_stall = true,
                Trouble::SlowExtender => is_slow = true,
                Trouble::LyingExtender => lies = true,
                _ => {}
            }
        }
        self.network.set_faults(faults);
        self.volumes_stall.store(volumes_stall, Ordering::Relaxed);
        self.extender.set_slow(is_slow);
        self.extender.set_lying(lies);
        for slot in &mut self.machines {
            if let Some(machine) = &mut slot.machine {
                machine.set_rate(slot.rate);
            }
        }
        self.disks.tear(torn)
    }

    /// Deletes all that the workload made.
    pub fn clear(&mut self, workload: &mut Workload) {
        self.network.end();
        self.within(workload.clear());
    }

    fn kill(&mut self, machine: usize) {
        self.network.disconnect(machine);
        self.machines[machine].machine = None;
    }

    fn restore(&mut self) {
        if self.backups.is_empty() {
            return;
        }
        let backup = &self.backups[self.random.usize(..self.backups.len())];
        self.simulation = None;
        let _entered = self.runtime.enter();
        self.server.restore(backup);
        self.checker.lock().restored();
        self.simulate();
    }

    /// Starts kubelets and controllers.
    fn simulate(&mut self) {
        let _entered = self.runtime.enter();
        let options = sim::Options { heartbeat_period: Duration::ZERO, ..sim::Options::default() };
        self.simulation = Some(self.server.simulate(&options));
    }

    fn start(&mut self, index: usize) -> Result<()> {
        self.processes += 1;
        let process: Arc<str> = format!("machine-{index}-{}", self.processes).into();
        let from = Sender { machine: index, process: Arc::clone(&process), sent: Duration::ZERO };
        let (letters, checker, config) =
            (self.letters.clone(), Arc::clone(&self.checker), self.disks.path(index));
        let (extender, sabotage) = (self.extender.clone(), self.sabotage);
        let is_limited = sabotage != Some(Sabotage::LargeTables);
        let table_memory = if is_limited { self.table_memory } else { 1 << 30 };
        // All requests of a slice have the true time of its end.
        let (zero, server) = (self.zero, self.runtime.handle().clone());
        let now = move || {
            let _entered = server.enter();
            zero.elapsed()
        };
        checker.lock().note(format_args!("{process} starts"));
        let started = Machine::start(Setting {
            name: process.to_string(),
            seed: self.seed.wrapping_mul(31).wrapping_add(self.processes),
            now: self.now,
            is_blind: self.sabotage == Some(Sabotage::BlindFence),
            config: &config,
            table_memory,
            catalog: out_of_tree_plugin::catalog(self.sabotage, &self.features),
            client: Box::new(move || client(from, letters, sabotage, now)),
            change: &move |owner| {
                owner.set_calls(Box::new(extender.clone()));
                if let Some(sabotage) = sabotage {
                    sabotage.change(owner);
                }
            },
        });
        let slot = &mut self.machines[index];
        let machine = match started {
            Ok(machine) => machine,
            // It ends with an error, and is started again.
            Err(_) if self.disks.is_torn(index) => {
                slot.starts_at = self.now + Duration::from_millis(self.random.u64(..RESTART));
                self.checker.lock().trace.count("processes that could not start", 1);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        (slot.machine, slot.process) = (Some(machine), process);
        (slot.hung, slot.has_hung, slot.is_terminated) = (Duration::ZERO, false, false);
        slot.calm = Duration::ZERO;
        if let Some(machine) = &mut slot.machine {
            machine.set_rate(slot.rate);
        }
        Ok(())
    }

    /// Runs the processes for a slice, in an order that changes.
    fn run_machines(&mut self, slice: Duration) -> Result<()> {
        let slow =
            self.leader().filter(|_| self.sabotage == Some(Sabotage::SlowClocks) && self.healed.is_none());
        let mut order: [usize; MACHINES] = std::array::from_fn(|index| index);
        self.random.shuffle(&mut order);
        for index in order {
            if self.machines[index].machine.is_none() {
                if self.machines[index].starts_at <= self.now {
                    self.start(index)?;
                }
                continue;
            }
            if let Some(machine) = &mut self.machines[index].machine
                && self.sabotage == Some(Sabotage::SlowClocks)
            {
                machine.set_rate(if slow == Some(index) { 0.5 } else { 1.0 });
            }
            self.run_machine(index, slice);
        }
        let writers = self.writers();
        let mut checker = self.checker.lock();
        if writers.len() > 1 && !checker.is_forgiving() {
            checker.fail(format!("{} may write at one time", writers.join(" and ")));
        }
        Ok(())
    }

    fn run_machine(&mut self, index: usize, slice: Duration) {
        let is_asleep = self.extender.is_busy(self.now);
        let slot = &mut self.machines[index];
        let Some(machine) = &mut slot.machine else { return };
        if slot.is_stopped {
            return machine.miss(slice);
        }
        if slot.is_suspended {
            return machine.sleep(slice);
        }
        let is_deaf = self.sabotage == Some(Sabotage::MissedWakeUp) && self.now > DEAF_SINCE;
        let is_late = self.sabotage == Some(Sabotage::LateStart)
            && self.healed.is_some_and(|healed| self.now < healed + LATE_START);
        let thread = match () {
            () if slot.hangs && self.sabotage != Some(Sabotage::BlindWatchdog) => Thread::Hangs,
            () if slot.hangs || is_asleep || is_late => Thread::Waits,
            () if is_deaf => Thread::IsDeaf,
            () => Thread::Runs,
        };
        slot.hung = if slot.hangs { slot.hung + slice } else { Duration::ZERO };
        slot.has_hung |= slot.hangs;
        let progress = machine.run(slice, thread);
        let longest = std::mem::take(&mut machine.longest_turn);
        let slice_took = std::mem::take(&mut machine.longest_slice);
        let mut checker = self.checker.lock();
        if thread == Thread::Runs && checker.is_calm() {
            slot.calm += slice;
        }
        checker.trace.greatest("longest tasks of a slice, µs of work", slice_took.as_micros() as u64);
        checker.trace.greatest("longest turn, µs of work", longest.as_micros() as u64);
        for (what, took) in [("a turn", longest), ("tasks of a slice", slice_took)] {
            if took > LONGEST_STEP {
                checker.fail(format!("{}: {what} took {took:?} of work", slot.process));
            }
        }
        let has_ended = matches!(progress, Progress::Ended(_));
        if slot.hung > LONGEST_HANG && !has_ended {
            checker.fail(format!("{} has hung for {:?} and runs on", slot.process, slot.hung));
        }
        if let Progress::Ended(outcome) = progress {
            let how = outcome.map_or_else(|error| format!("{error:#}"), |()| "as asked".to_owned());
            checker.note(format_args!("{} ended: {how}", slot.process));
            checker.trace.count("processes ended by themselves", 1);
            let is_expected = slot.is_terminated && how == "as asked"
                || slot.has_hung && how.starts_with("the scheduler has not advanced")
                || how.starts_with("Leaderelection lost");
            if !is_expected {
                checker.fail(format!("{} ended: {how}", slot.process));
            }
            drop(checker);
            slot.starts_at = self.now + Duration::from_millis(self.random.u64(..RESTART));
            self.kill(index);
        }
    }
}

fn owners(machines: &[Slot; MACHINES]) -> impl Iterator<Item = (&Arc<str>, &Owner)> {
    let running = machines.iter().filter_map(|slot| Some((&slot.process, slot.machine.as_ref()?)));
    running.filter_map(|(process, machine)| Some((process, machine.owner()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    #[test]
    fn end_of_a_fault_ends_no_other_of_its_kind() {
        let plan = Plan::new(1, Duration::ZERO, &[]);
        let mut world = World::new(&plan, || InvariantChecker::new(Trace::new(false)), None).unwrap();
        let begin = |world: &mut World, what, seconds| {
            let lasts = Duration::from_secs(seconds);
            world.begin(&PlannedFault { at: Duration::ZERO, lasts, what, hits_leader: false }).unwrap();
        };
        begin(&mut world, Trouble::Stop(1), 1);
        begin(&mut world, Trouble::Stop(1), 5);
        begin(&mut world, Trouble::Rate(2, 0.95), 5);
        begin(&mut world, Trouble::Rate(2, 1.05), 1);
        let mut state_at = |seconds| {
            world.run_until(Duration::from_secs(seconds)).unwrap();
            (world.machines[1].is_stopped, world.machines[2].rate)
        };
        assert_eq!(state_at(0), (true, 1.05));
        assert_eq!(state_at(2), (true, 0.95));
        assert_eq!(state_at(6), (false, 1.0));
    }
}
