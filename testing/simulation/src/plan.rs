//! What a seed decides before the run: the cluster, the workload and the faults.

use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use supercargo_framework::features::{Feature, Features};

use crate::sabotage::Sabotage;

/// The number of schedulers.
pub const MACHINES: usize = 3;
/// The number of API servers, each with its own delay of watches.
pub const REPLICAS: usize = 3;
/// How long the last fault lasts.
pub const LAST_FAULT: Duration = Duration::from_secs(10);

/// How much goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Mood {
    /// Nothing.
    Quiet,
    /// A fault every six minutes, and a change of the workload every ten seconds.
    Light,
    /// A fault a minute, and a change every second.
    Heavy,
    /// A fault every fifteen seconds, and a change every two seconds.
    Hell,
}

/// What a seed decides.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// How much goes wrong.
    pub mood: Mood,
    /// How long the cluster has workload and faults.
    pub length: Duration,
    /// The number of nodes in the beginning.
    pub nodes: u64,
    /// The mean time between two changes of the workload.
    pub pause: Duration,
    /// Whether an extender filters and scores.
    pub has_extender: bool,
    /// Whether pods come in groups, too.
    pub has_groups: bool,
    /// Whether pods request the extended resource of a class of devices, too.
    pub has_extended_resources: bool,
    /// Whether API servers stream initial lists. Those that do not answer them from their cache.
    pub streams_lists: bool,
    /// The memory of evaluation tables, in bytes. With little, tables are evicted.
    pub table_memory: usize,
    /// The faults, in order of time.
    pub faults: Vec<PlannedFault>,
}

/// Something that goes wrong for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFault {
    /// When it begins.
    pub at: Duration,
    /// How long it lasts, if it does not happen at once.
    pub lasts: Duration,
    /// What happens.
    pub what: Trouble,
    /// Whether it meets the machine that leads by then, and not the one of the plan.
    pub hits_leader: bool,
}

/// What goes wrong. Machines are those of the schedulers.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// The process is killed and starts again.
    Kill(usize),
    /// The process gets SIGTERM and starts again.
    Terminate(usize),
    /// The process stands still while its clock goes on.
    Stop(usize),
    /// The machine is suspended: its monotonic clock stands still, too.
    Suspend(usize),
    /// The scheduler's thread hangs, and the rest of the process goes on.
    Hang(usize),
    /// The wall clock jumps by seconds.
    Jump(usize, i64),
    /// The clocks run at this rate.
    Rate(usize, f64),
    /// No data passes in these directions; connections stay open until pings notice it.
    Partition {
        /// The machine.
        machine: usize,
        /// From the machine to the server.
        up: bool,
        /// From the server to the machine.
        down: bool,
    },
    /// Connections are refused.
    Refuse(usize),
    /// Messages take this much longer, each way.
    Slow(usize, Duration),
    /// This percentage of requests is lost with the connection, before or after their effect.
    Lose {
        /// The machine.
        machine: usize,
        /// The percentage.
        percent: u32,
        /// Whether they take effect.
        applied: bool,
    },
    /// The server responds to this percentage of requests with a status.
    Respond {
        /// The status code.
        code: u16,
        /// The percentage.
        percent: u32,
        /// Whether the requests take effect nevertheless.
        applied: bool,
    },
    /// Watches of a resource lag behind on one API server.
    Lag {
        /// The API server.
        replica: usize,
        /// The plural of the resource.
        resource: &'static str,
        /// How far.
        by: Duration,
    },
    /// One API server's cache stands still, and answers lists that accept an old state. Servers
    /// that stream initial lists get no such lists.
    StaleLists(usize),
    /// The controller that binds volumes to claims stands still.
    StallVolumes,
    /// Watches end, cleanly or within an event.
    Cut {
        /// Whether within an event.
        mid_frame: bool,
    },
    /// The history of changes is dropped.
    Compact,
    /// All API servers restart, with or without their history.
    Restart {
        /// Whether the history stays.
        keep_history: bool,
    },
    /// etcd is restored to its state of up to five minutes ago.
    Restore,
    /// The configuration of all schedulers changes.
    Reload,
    /// The configuration file of a machine is incomplete, also when its process starts.
    TornConfig(usize),
    /// The extender hangs until its timeout.
    SlowExtender,
    /// The extender names nodes that do not exist, or fails.
    LyingExtender,
}

impl Trouble {
    /// The name in summaries.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kill(_) => "fault: process killed",
            Self::Terminate(_) => "fault: process terminated",
            Self::Stop(_) => "fault: process stopped for a while",
            Self::Suspend(_) => "fault: machine suspended",
            Self::Hang(_) => "fault: scheduler thread hung",
            Self::Jump(..) => "fault: wall clock jumped",
            Self::Rate(..) => "fault: clock ran at another rate",
            Self::Partition { up: true, down: true, .. } => "fault: partition",
            Self::Partition { .. } => "fault: partition in one direction",
            Self::Refuse(_) => "fault: connections refused",
            Self::Slow(..) => "fault: slow network",
            Self::Lose { applied: false, .. } => "fault: requests lost",
            Self::Lose { applied: true, .. } => "fault: answers lost",
            Self::Respond { applied: false, .. } => "fault: requests rejected",
            Self::Respond { applied: true, .. } => "fault: requests rejected after their effect",
            Self::Lag { .. } => "fault: watches lagged",
            Self::StaleLists(_) => "fault: stale lists",
            Self::StallVolumes => "fault: volume controller stalled",
            Self::Cut { mid_frame: false } => "fault: watches ended",
            Self::Cut { mid_frame: true } => "fault: watches cut within an event",
            Self::Compact => "fault: history compacted",
            Self::Restart { .. } => "fault: servers restarted",
            Self::Restore => "fault: etcd restored",
            Self::Reload => "fault: configuration reloaded",
            Self::TornConfig(_) => "fault: configuration file incomplete",
            Self::SlowExtender => "fault: extender hung",
            Self::LyingExtender => "fault: extender lied",
        }
    }
}

impl Plan {
    /// The features of schedulers, as the sabotage has them.
    pub fn features(&self, sabotage: Option<Sabotage>) -> Features {
        let is_off = |feature| feature == Feature::CompositePodGroup && sabotage == Some(Sabotage::SplitTree);
        let on = GROUPS.into_iter().filter(|feature| self.has_groups && !is_off(*feature));
        on.fold(Features::default(), |features, feature| features.with(feature, true))
    }

    /// The plan of a seed, without the faults at these positions.
    pub fn new(seed: u64, length: Duration, without: &[usize]) -> Self {
        let mut random = Rng::with_seed(seed);
        let mood = match random.u32(..8) {
            0 => Mood::Quiet,
            1..=3 => Mood::Light,
            4..=6 => Mood::Heavy,
            _ => Mood::Hell,
        };
        let (nodes, pause, between) = match mood {
            Mood::Quiet => (20, 10_000, 0),
            Mood::Light => (20, 10_000, 360),
            Mood::Heavy => (random.u64(20..60), 1_000, 60),
            Mood::Hell => (random.u64(10..40), 2_000, 15),
        };
        let between = Duration::from_secs(between);
        let has_extender = random.u32(..4) == 0;
        let streams_lists = random.u32(..4) != 0;
        let table_memory = if random.bool() { 1 << 18 } else { 1 << 24 };
        let mut faults = Vec::new();
        let mut at = exponential(&mut random, between);
        while mood != Mood::Quiet && at < length {
            // Some come together.
            let more = if mood != Mood::Light && random.u32(..4) == 0 { random.u32(1..3) } else { 0 };
            for _ in 0..=more {
                let (what, longest) = trouble(&mut random, has_extender, streams_lists);
                let lasts = Duration::from_millis(random.u64(200..=longest * 1000));
                faults.push(PlannedFault { at, lasts, what, hits_leader: random.bool() });
            }
            at += exponential(&mut random, between);
        }
        if mood != Mood::Quiet {
            faults.push(last_fault(&mut random, length));
        }
        let mut position = 0;
        faults.retain(|_| {
            position += 1;
            !without.contains(&(position - 1))
        });
        // Drawn apart, so that seeds without groups are what they were before there were groups.
        let has_groups = Rng::with_seed(seed ^ 0x6772_6f75).u32(..4) == 0;
        for fault in faults.iter_mut().filter(|_| has_groups) {
            if let Trouble::Lag { resource, .. } = &mut fault.what {
                match *resource {
                    "persistentvolumes" => *resource = "podgroups",
                    "storageclasses" => *resource = "compositepodgroups",
                    _ => {}
                }
            }
        }
        let has_extended_resources = Rng::with_seed(seed ^ 0x6578_7472).bool();
        let pause = Duration::from_millis(pause);
        Self {
            seed,
            mood,
            length,
            nodes,
            pause,
            has_extender,
            has_groups,
            has_extended_resources,
            streams_lists,
            table_memory,
            faults,
        }
    }
}

/// The features of groups.
const GROUPS: [Feature; 4] = [
    Feature::GenericWorkload,
    Feature::TopologyAwareWorkloadScheduling,
    Feature::PodGroupPreemptionPolicy,
    Feature::CompositePodGroup,
];

/// Requests of the leader are lost until the end. The first pods whose fate is checked come then.
fn last_fault(random: &mut Rng, length: Duration) -> PlannedFault {
    let what = Trouble::Lose { machine: 0, percent: random.u32(20..70), applied: random.bool() };
    PlannedFault { at: length, lasts: LAST_FAULT, what, hits_leader: true }
}

impl PlannedFault {
    /// The trouble, on this machine if it hits the leader.
    pub fn trouble(&self, leader: Option<usize>) -> Trouble {
        let mut what = self.what.clone();
        if let (true, Some(leader), Some(machine)) = (self.hits_leader, leader, what.machine()) {
            *machine = leader;
        }
        what
    }
}

impl Trouble {
    /// Whether it can end the start of a gang half-way: neither clocks, files, extenders nor
    /// volumes can.
    pub fn disturbs_gangs(&self) -> bool {
        !matches!(
            self,
            Self::Jump(..)
                | Self::Rate(..)
                | Self::StaleLists(_)
                | Self::StallVolumes
                | Self::Compact
                | Self::Reload
                | Self::TornConfig(_)
                | Self::SlowExtender
                | Self::LyingExtender
        )
    }

    /// Whether watches are late or interrupted by it.
    pub fn delays_watches(&self) -> bool {
        matches!(
            self,
            Self::Partition { .. }
                | Self::Refuse(_)
                | Self::Slow(..)
                | Self::Lose { .. }
                | Self::Respond { .. }
                | Self::Lag { .. }
                | Self::StaleLists(_)
                | Self::Cut { .. }
                | Self::Compact
                | Self::Restart { .. }
        )
    }

    /// The machine that it meets, if it meets one.
    fn machine(&mut self) -> Option<&mut usize> {
        match self {
            Self::Kill(machine)
            | Self::Terminate(machine)
            | Self::Stop(machine)
            | Self::Suspend(machine)
            | Self::Hang(machine)
            | Self::Jump(machine, _)
            | Self::Rate(machine, _)
            | Self::Partition { machine, .. }
            | Self::Refuse(machine)
            | Self::TornConfig(machine)
            | Self::Slow(machine, _)
            | Self::Lose { machine, .. } => Some(machine),
            _ => None,
        }
    }
}

/// A time with this mean.
pub fn exponential(random: &mut Rng, mean: Duration) -> Duration {
    mean.mul_f64(-(1.0 - random.f64()).ln())
}

/// Resources whose watches may lag.
const WATCHED: [&str; 10] = [
    "pods",
    "nodes",
    "leases",
    "namespaces",
    "persistentvolumes",
    "persistentvolumeclaims",
    "poddisruptionbudgets",
    "storageclasses",
    "resourceclaims",
    "resourceslices",
];

/// A fault and the most seconds that it lasts.
fn trouble(random: &mut Rng, has_extender: bool, streams_lists: bool) -> (Trouble, u64) {
    let machine = random.usize(..MACHINES);
    let applied = random.bool();
    match random.u32(..if has_extender { 27 } else { 25 }) {
        0 => (Trouble::Kill(machine), 30),
        1 => (Trouble::Terminate(machine), 30),
        2 => (Trouble::Stop(machine), 60),
        3 => (Trouble::Suspend(machine), 120),
        // The watchdog ends the process after 60 s, or 70 with an extender.
        4 => (Trouble::Hang(machine), 150),
        5 => (Trouble::Jump(machine, random.i64(-3600..=3600)), 1),
        6 => (Trouble::Rate(machine, 0.92 + 0.16 * random.f64()), 600),
        7 | 8 => {
            let (up, down) = [(true, true), (true, false), (false, true)][random.usize(..3)];
            (Trouble::Partition { machine, up, down }, 60)
        }
        9 => (Trouble::Refuse(machine), 60),
        10 => (Trouble::Slow(machine, Duration::from_millis(random.u64(50..3000))), 60),
        11 | 12 => (Trouble::Lose { machine, percent: random.u32(5..60), applied }, 30),
        13 | 14 => {
            let code = [409, 429, 500, 503, 504][random.usize(..5)];
            // A server that refuses has done nothing.
            let applied = applied && matches!(code, 500 | 504);
            (Trouble::Respond { code, percent: random.u32(5..60), applied }, 30)
        }
        15 | 16 => {
            let resource = WATCHED[random.usize(..WATCHED.len())];
            let by = Duration::from_millis(random.u64(100..20_000));
            (Trouble::Lag { replica: random.usize(..REPLICAS), resource, by }, 120)
        }
        17 => (Trouble::Cut { mid_frame: applied }, 1),
        18 => (Trouble::Compact, 1),
        19 => (Trouble::Restart { keep_history: applied }, 1),
        // Rarely: it suspends the checks of what restoring undoes.
        20 if random.u32(..4) == 0 => (Trouble::Restore, 1),
        20 | 21 => (Trouble::Reload, 1),
        22 if streams_lists => (Trouble::Compact, 1),
        22 => (Trouble::StaleLists(random.usize(..REPLICAS)), 60),
        // PreBind gives up after ten minutes.
        23 => (Trouble::StallVolumes, 700),
        24 => (Trouble::TornConfig(machine), 90),
        25 => (Trouble::SlowExtender, 30),
        _ => (Trouble::LyingExtender, 30),
    }
}
