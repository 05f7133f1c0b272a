//! Deliberate faults of the program, each of which a run must find: tests of the test.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use supercargo::owner::{CarryOut, Owner};
use supercargo_scheduler::Effect;

use crate::machine::cpu_time;

/// A fault of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Sabotage {
    /// A process schedules without the lease.
    NoElection,
    /// The clocks of a process run at half the rate, so that its lease ends too late.
    SlowClocks,
    /// A bind is sent twice.
    BindTwice,
    /// A bind is never sent.
    LostBind,
    /// A bind goes to another node.
    WrongNode,
    /// A read of a pod's node is never sent.
    LostRead,
    /// A condition is not written.
    LostCondition,
    /// An event is not written.
    LostEvent,
    /// An eviction is not sent.
    LostEviction,
    /// PreBind does not run.
    LostPreBind,
    /// A message to the scheduler does not wake it.
    MissedWakeUp,
    /// A turn takes more than a second of work.
    SlowTurn,
    /// Watches skip an event.
    LostEventOfWatch,
    /// Watches skip deletions.
    LostDeletion,
    /// A plugin rejects pods, and its hint never queues them again.
    NoHint,
}

impl Sabotage {
    /// All of them.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// Changes the owner of a process.
    pub fn change(self, owner: &mut Owner) {
        owner.wrap_effects(|effects| Box::new(Saboteur { how: self, effects, seen: 0 }));
    }
}

/// Carries out effects, but not as they are.
struct Saboteur {
    how: Sabotage,
    effects: Box<dyn CarryOut>,
    /// The number of effects of the sabotaged kind.
    seen: u64,
}

impl Saboteur {
    /// Whether this one of the sabotaged kind is affected: every fifth.
    fn hits(&mut self, is_kind: bool) -> bool {
        self.seen += u64::from(is_kind);
        is_kind && self.seen % 5 == 3
    }
}

impl CarryOut for Saboteur {
    fn carry_out(&mut self, effect: Effect) {
        let is_kind = matches!(
            (self.how, &effect),
            (
                Sabotage::BindTwice | Sabotage::LostBind | Sabotage::WrongNode | Sabotage::SlowTurn,
                Effect::Bind { .. }
            ) | (Sabotage::LostRead, Effect::ReadPod { .. })
                | (Sabotage::LostCondition, Effect::PatchPodStatus(_))
                | (Sabotage::LostEvent, Effect::RecordEvent(_))
                | (Sabotage::LostEviction, Effect::Evict { .. })
                | (Sabotage::LostPreBind, Effect::StartPreBind { .. })
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
            (Sabotage::SlowTurn, effect) => {
                work_for(Duration::from_millis(1_500));
                self.effects.carry_out(effect);
            }
            // Lost.
            _ => {}
        }
    }

    fn has_room(&self) -> bool {
        self.effects.has_room()
    }
}

/// Keeps this thread busy.
fn work_for(time: Duration) {
    let began = cpu_time();
    while cpu_time().saturating_sub(began) < time {
        std::hint::black_box(began);
    }
}
