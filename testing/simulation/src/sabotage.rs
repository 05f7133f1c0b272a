//! Deliberate faults of the program, each of which a run must find: tests of the test.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use supercargo_owner::owner::{CarryOut, Owner};
use supercargo_scheduler::Effect;

use crate::machine::cpu_time;

/// A fault of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Sabotage {
    /// A process schedules without the lease.
    NoElection,
    /// The clocks of the leader's machine run at half the rate, so that its lease ends too late.
    SlowClocks,
    /// A process does not notice that its machine was suspended, so that its lease ends too late.
    BlindFence,
    /// A process does not notice that its scheduler hangs.
    BlindWatchdog,
    /// A bind waits behind the fence, and is sent when the lease may be over.
    OpenFence,
    /// A request is never given up, and arrives two minutes late.
    LateArrival,
    /// The lease is never renewed at the end of a run.
    LostRenewal,
    /// A bind is sent twice.
    BindTwice,
    /// A bind is never sent.
    LostBind,
    /// A bind goes to another node.
    WrongNode,
    /// Reads of a pod's node are never sent.
    LostRead,
    /// A condition is not written.
    LostCondition,
    /// An event is not written.
    LostEvent,
    /// Evictions are not sent.
    LostEviction,
    /// PreBind does not run.
    LostPreBind,
    /// Messages do not wake the scheduler.
    MissedWakeUp,
    /// Schedulers do nothing for a minute after the faults.
    LateStart,
    /// A turn takes more than a second of work.
    SlowTurn,
    /// A task beside the scheduler takes more than a second of work.
    SlowTask,
    /// A turn panics.
    Panic,
    /// Watches skip an event.
    LostEventOfWatch,
    /// Watches skip deletions.
    LostDeletion,
    /// Watches skip the deletions at the end of a run, so that processes keep what is gone.
    Leak,
    /// Lists and watches show devices without their taints.
    HiddenTaints,
    /// Lists and watches show devices as if they consumed no counters.
    HiddenCounters,
    /// Watches give two pods one UID, so that a scheduler confuses them.
    SharedUid,
    /// A plugin rejects pods, and its hint never queues them again.
    NoHint,
    /// A plugin rejects pods forever that it has rejected once.
    KeptRejections,
    /// A plugin keeps the pods of nodes that it has filtered.
    KeptPods,
    /// A plugin keeps nodes that it has filtered.
    KeptNodes,
    /// An allocation that a binding is about to write is lost, so that other pods get the devices,
    /// too.
    LostAllocation,
    /// An allocation stays pending when its binding has failed.
    KeptAllocation,
    /// Claims are not reserved for the pods that get them.
    LostReservation,
    /// A pod does not learn which claim has the devices for its extended resources.
    LostMapping,
    /// Claims for extended resources are not deleted.
    KeptClaim,
    /// Evaluation tables have no limit.
    LargeTables,
    /// The plugin that holds the pods of a gang back is off, so that gangs start in part.
    SplitGang,
    /// The roots of trees are ignored, so that trees start in part.
    SplitTree,
    /// A group that was rejected once is never tried again.
    ForgottenGroup,
    /// The condition of a group that has been scheduled turns back.
    TurnedCondition,
    /// Memory grows with each binding.
    KeptBytes,
}

impl Sabotage {
    /// All of them.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// A part of the failure that shows it.
    pub fn evidence(self) -> &'static str {
        match self {
            Self::NoElection | Self::SlowClocks | Self::BlindFence => "may write at one time",
            Self::BlindWatchdog => "and runs on",
            Self::OpenFence => "its lease lasted until",
            Self::LateArrival => "after its lease",
            Self::LostRenewal => "0 running processes hold the lease",
            Self::BindTwice => "sent again",
            Self::WrongNode => "holds [",
            Self::LostBind
            | Self::LostRead
            | Self::LostEviction
            | Self::LostPreBind
            | Self::LostDeletion
            | Self::NoHint => "was created at the end, and has no node",
            Self::LostCondition | Self::LostEventOfWatch => "its conditions do not say why",
            Self::LostEvent => "has a node, and no event",
            Self::MissedWakeUp | Self::LateStart => "after the faults",
            Self::SlowTurn => "a turn took",
            Self::SlowTask => "tasks of a slice took",
            Self::Panic => "the scheduler panicked",
            Self::Leak => "queued pods, 0 expected",
            Self::HiddenTaints => "does not tolerate the taint",
            Self::HiddenCounters => "overdraws chip/",
            Self::LostMapping => "devices for its extended resources",
            Self::KeptClaim => "is left, and its pod uses",
            Self::SharedUid => "in an attempt",
            Self::KeptRejections => "a new scheduler binds it",
            Self::KeptPods => "deleted pods, 0 expected",
            Self::KeptNodes => "old nodes, 0 expected",
            Self::LostAllocation => "have device",
            Self::KeptAllocation => "pending",
            Self::LostReservation => "is not its own",
            Self::LargeTables => "bytes of evaluation tables",
            Self::SplitGang => "have a node",
            Self::SplitTree => "parts",
            Self::ForgottenGroup => "were not tried for",
            Self::TurnedCondition => "is not scheduled any more",
            Self::KeptBytes => "bytes of memory",
        }
    }

    /// Changes the owner of a process.
    pub fn change(self, owner: &mut Owner) {
        owner.wrap_effects(|effects| Box::new(Saboteur { how: self, effects, seen: 0, lost: Vec::new() }));
    }
}

/// More work than a turn or a task may take.
pub const TOO_LONG: Duration = Duration::from_millis(1_500);
/// How much memory is lost with each sabotaged binding.
const KEPT_BYTES: usize = 1 << 17;

/// Carries out effects, but not as they are.
struct Saboteur {
    how: Sabotage,
    effects: Box<dyn CarryOut>,
    /// The number of effects of the sabotaged kind.
    seen: u64,
    /// Memory that is lost.
    lost: Vec<Vec<u8>>,
}

impl Saboteur {
    /// Whether this one of the sabotaged kind is affected: every fifth of frequent kinds, and all
    /// of rare ones.
    fn hits(&mut self, is_kind: bool) -> bool {
        use Sabotage::{LostEviction, LostPreBind, LostRead, TurnedCondition};
        let is_rare = matches!(self.how, LostRead | LostEviction | LostPreBind | TurnedCondition);
        self.seen += u64::from(is_kind);
        is_kind && (is_rare || self.seen % 5 == 3)
    }
}

impl CarryOut for Saboteur {
    fn carry_out(&mut self, effect: Effect) {
        let is_kind = matches!(
            (self.how, &effect),
            (
                Sabotage::BindTwice
                    | Sabotage::LostBind
                    | Sabotage::WrongNode
                    | Sabotage::KeptBytes
                    | Sabotage::SlowTurn
                    | Sabotage::Panic,
                Effect::Bind { .. }
            ) | (Sabotage::LostRead, Effect::ReadPod { .. })
                | (Sabotage::LostCondition, Effect::PatchPodStatus(_))
                | (Sabotage::LostEvent, Effect::RecordEvent(_))
                | (Sabotage::LostEviction, Effect::Evict { .. })
                | (Sabotage::LostPreBind, Effect::StartPreBind { .. })
                | (Sabotage::TurnedCondition, Effect::PatchGroupStatus(_))
        );
        if !self.hits(is_kind) {
            self.effects.carry_out(effect);
            return;
        }
        match (self.how, effect) {
            (Sabotage::BindTwice, Effect::Bind { pod, node, binders, .. }) => {
                for _ in 0..2 {
                    let (pod, node, binders) = (pod.clone(), node.clone(), binders.clone());
                    self.effects.carry_out(Effect::Bind { pod, node, extenders: Vec::new(), binders });
                }
            }
            (Sabotage::WrongNode, Effect::Bind { pod, extenders, binders, .. }) => {
                self.effects.carry_out(Effect::Bind { pod, node: "node-0".into(), extenders, binders });
            }
            (Sabotage::TurnedCondition, Effect::PatchGroupStatus(patch)) => {
                let mut back = patch.clone();
                back.condition.status = "False".into();
                self.effects.carry_out(Effect::PatchGroupStatus(patch));
                self.effects.carry_out(Effect::PatchGroupStatus(back));
            }
            (Sabotage::KeptBytes, effect) => {
                self.lost.push(vec![1; KEPT_BYTES]);
                self.effects.carry_out(effect);
            }
            (Sabotage::SlowTurn, effect) => {
                work_for(TOO_LONG);
                self.effects.carry_out(effect);
            }
            (Sabotage::Panic, _) => panic!("sabotage"),
            // Lost.
            _ => {}
        }
    }

    fn may_write(&self) -> bool {
        self.effects.may_write()
    }

    fn has_room(&self) -> bool {
        self.effects.has_room()
    }
}

/// Keeps this thread busy.
pub fn work_for(time: Duration) {
    let began = cpu_time();
    while cpu_time().saturating_sub(began) < time {
        std::hint::black_box(began);
    }
}
