//! The state of preemptions.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use supercargo_framework::context::{Preemptor, Victims};
use supercargo_framework::{PodInfo, Text, Uid};

use supercargo_queue::QueuedPod;
use supercargo_runtime::failure::Failure;
use supercargo_runtime::observer::TimePoint;

/// A plugin's command to preempt.
pub(crate) struct Order {
    pub(crate) preemptor: Preemptor,
    pub(crate) node: Arc<str>,
    pub(crate) victims: Victims,
    pub(crate) plugin: Text,
    pub(crate) asynchronous: bool,
}

/// A preemption.
pub(crate) struct Preemption {
    pub(crate) order: Order,
    /// When it began, for the observer.
    pub(crate) began: TimePoint,
    /// The victims whose deletion is in flight.
    pub(crate) asked: Vec<Arc<PodInfo>>,
    /// The victim to delete after all others, until its turn.
    pub(crate) last: Option<Arc<PodInfo>>,
    /// Whether the last victim's binding was cancelled: no pod is deleted whose event would wake
    /// the preemptor.
    pub(crate) cancels_last: bool,
    /// Whether PreEnqueue holds the preemptor.
    holds: bool,
}

impl Preemption {
    /// Whether the deletion of this pod is all that is missing.
    fn waits_only_for(&self, uid: &Uid) -> bool {
        self.last.is_none() && self.asked.iter().any(|victim| victim.uid == *uid)
    }
}

/// An attempt that ends only when its preemption does.
pub(crate) struct HeldAttempt {
    pub(crate) queued: QueuedPod,
    pub(crate) failure: Failure,
}

/// A preemptor that no deletion may wake, and the victims it waits for: it was still held when its
/// last request was answered, or the last victim's binding was cancelled.
pub(crate) struct StrandedPreemptor {
    pub(crate) preemptor: Preemptor,
    pub(crate) victims: Vec<Arc<PodInfo>>,
    pub(crate) cancels_last: bool,
}

/// All preemptions in progress.
#[derive(Default)]
pub(crate) struct Preemptions {
    by_number: BTreeMap<u64, Preemption>,
    next_number: u64,
    preempting: FxHashSet<Uid>,
    /// Blocks all other attempts.
    pub(crate) held: Option<HeldAttempt>,
    pub(crate) left_behind: Vec<StrandedPreemptor>,
}

impl Preemptions {
    /// None, and the same number for the next one.
    pub(crate) fn fork(&self) -> Self {
        Self { next_number: self.next_number, ..Self::default() }
    }

    /// The preemptors that PreEnqueue holds.
    pub(crate) fn preempting(&self) -> &FxHashSet<Uid> {
        &self.preempting
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Preemption> {
        self.by_number.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Preemption> {
        self.by_number.get_mut(&number)
    }

    /// Whether an attempt must wait for its preemption.
    pub(crate) fn is_any_synchronous(&self) -> bool {
        self.by_number.values().any(|preemption| !preemption.order.asynchronous)
    }

    pub(crate) fn begin(&mut self, began: TimePoint, order: Order, last: Option<Arc<PodInfo>>) -> u64 {
        self.next_number += 1;
        let holds = order.asynchronous;
        let preemption = Preemption { order, began, asked: Vec::new(), last, cancels_last: false, holds };
        self.by_number.insert(self.next_number, preemption);
        self.list_preemptors();
        self.next_number
    }

    pub(crate) fn end(&mut self, number: u64) -> Option<Preemption> {
        let preemption = self.by_number.remove(&number)?;
        self.list_preemptors();
        Some(preemption)
    }

    /// Lets the preemptor be tried again.
    pub(crate) fn release(&mut self, number: u64) {
        if let Some(preemption) = self.by_number.get_mut(&number) {
            preemption.holds = false;
            self.list_preemptors();
        }
    }

    /// A pod leaves its node. Releases the preemptors that wait only for it, before its deletion is
    /// answered.
    pub(crate) fn pod_leaves(&mut self, uid: &Uid) {
        for preemption in self.by_number.values_mut().filter(|preemption| preemption.waits_only_for(uid)) {
            preemption.holds = false;
        }
        self.list_preemptors();
    }

    fn list_preemptors(&mut self) {
        let holding = self.by_number.values().filter(|preemption| preemption.holds);
        self.preempting = holding.map(|preemption| preemption.order.preemptor.uid().clone()).collect();
    }
}
