//! The state of bindings: pods between Permit and the API server's answer.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use supercargo_framework::context::WaitingPod;
use supercargo_framework::{CycleState, Now, PodInfo, Status, Text, Uid};

use crate::effect::PreBindWork;
use supercargo_queue::QueuedPod;
use supercargo_runtime::observer::TimePoint;

/// The longest timeout of a Permit plugin.
pub(crate) const MAX_PERMIT_WAIT: Duration = Duration::from_mins(15);

/// The Permit plugins that hold a pod, each with its timeout.
pub(crate) type Waits = SmallVec<[(Text, Duration); 2]>;

/// The stage of a binding.
pub(crate) enum Stage {
    /// Permit plugins hold the pod.
    WaitingOnPermit(PermitWait),
    /// PreBind runs. Until it ends, the binding can be cancelled.
    PreBinding {
        /// The cause of the cancellation, if any.
        cancelled: Option<Status>,
    },
    /// Bind runs. The binding can no longer be cancelled.
    Binding,
    /// Bind failed, and its outcome is unknown. The pod stays assumed until a read or the informer
    /// settles it.
    Uncertain(Uncertain),
}

/// A pod that Permit holds.
pub(crate) struct PermitWait {
    /// The plugins that still hold it, each with its timeout and its deadline (monotonic).
    pub(crate) pending: Vec<(Text, Duration, Duration)>,
    /// The start of the wait (monotonic).
    pub(crate) since: Duration,
    /// PreBind's work, for when the pod is allowed.
    pub(crate) work: Vec<Vec<PreBindWork>>,
}

/// A binding whose outcome is unknown.
pub(crate) struct Uncertain {
    /// Bind's error.
    pub(crate) message: String,
    /// The time of the next read (monotonic); `None` while a read is in flight.
    pub(crate) ask_at: Option<Duration>,
    /// The number of failed reads.
    pub(crate) asked: u32,
}

impl Uncertain {
    /// The wait before the next read: a second, doubled each time, at most 30.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_secs(1_u64.checked_shl(self.asked).unwrap_or(u64::MAX).min(30))
    }
}

/// A binding. Its pod is assumed in the cache unless it has been deleted since.
pub(crate) struct Binding {
    pub(crate) queued: QueuedPod,
    pub(crate) node: Arc<str>,
    pub(crate) state: CycleState,
    pub(crate) stage: Stage,
    /// The node's generation once the pod was assumed there.
    pub(crate) chosen_at: u64,
    /// The start of PreBind or Bind, by the observer's clock.
    pub(crate) stage_began: TimePoint,
    /// When PreBind last reported an event, by the same clock.
    pub(crate) reported_at: TimePoint,
}

impl Binding {
    /// A binding that waits for the given plugins, if any. `chosen_at` is the generation of the
    /// node with the pod on it.
    pub(crate) fn new(
        now: Now,
        queued: QueuedPod,
        (node, chosen_at): (Arc<str>, u64),
        state: CycleState,
        waits: Waits,
    ) -> Self {
        let since = now.monotonic;
        let pending = waits.into_iter().map(|(plugin, timeout)| (plugin, timeout, since + timeout)).collect();
        let stage = Stage::WaitingOnPermit(PermitWait { pending, since, work: Vec::new() });
        let never = TimePoint::default();
        Self { queued, node, state, stage, chosen_at, stage_began: never, reported_at: never }
    }

    /// Keeps PreBind's work until the pod is allowed. Returns whether a plugin holds the pod.
    pub(crate) fn keep_for_later(&mut self, work: Vec<Vec<PreBindWork>>) -> bool {
        match &mut self.stage {
            Stage::WaitingOnPermit(wait) => {
                wait.work = work;
                !wait.pending.is_empty()
            }
            _ => false,
        }
    }

    pub(crate) fn pod(&self) -> &Arc<PodInfo> {
        &self.queued.pod
    }
}

/// All bindings.
#[derive(Default)]
pub(crate) struct Bindings {
    by_pod: FxHashMap<Uid, Binding>,
    /// The pods that Permit holds, in the order they arrived. There are few, if any.
    waiting: Vec<WaitingPod>,
    /// The bindings with a deadline: held and uncertain ones. All others wait for an answer.
    timed: FxHashSet<Uid>,
}

impl Bindings {
    pub(crate) fn insert(&mut self, binding: Binding) {
        if let Stage::WaitingOnPermit(wait) = &binding.stage {
            self.timed.insert(binding.pod().uid.clone());
            let pending =
                wait.pending.iter().map(|(plugin, timeout, _)| (plugin.clone(), *timeout)).collect();
            self.waiting.push(WaitingPod {
                uid: binding.pod().uid.clone(),
                key: binding.pod().key(),
                group: binding.pod().group_key(),
                node_name: Arc::clone(&binding.node),
                pending,
            });
        }
        self.by_pod.insert(binding.pod().uid.clone(), binding);
    }

    pub(crate) fn get(&self, uid: &Uid) -> Option<&Binding> {
        self.by_pod.get(uid)
    }

    pub(crate) fn get_mut(&mut self, uid: &Uid) -> Option<&mut Binding> {
        self.by_pod.get_mut(uid)
    }

    pub(crate) fn remove(&mut self, uid: &Uid) -> Option<Binding> {
        self.forget_waiting(uid);
        self.by_pod.remove(uid)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_pod.len()
    }

    pub(crate) fn waiting(&self) -> &[WaitingPod] {
        &self.waiting
    }

    pub(crate) fn is_waiting(&self, uid: &Uid) -> bool {
        let stage = self.by_pod.get(uid).map(|binding| &binding.stage);
        matches!(stage, Some(Stage::WaitingOnPermit(_)))
    }

    /// The pods whose PreBind runs, in an order that a replay reproduces.
    pub(crate) fn pre_binding(&self) -> Vec<Uid> {
        let runs = self.by_pod.iter().filter(|(_, it)| matches!(it.stage, Stage::PreBinding { .. }));
        let mut uids: Vec<Uid> = runs.map(|(uid, _)| uid.clone()).collect();
        uids.sort();
        uids
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Binding> {
        self.by_pod.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Binding> {
        self.by_pod.values_mut()
    }

    /// Removes the pod from those that wait on Permit.
    pub(crate) fn forget_waiting(&mut self, uid: &Uid) {
        self.waiting.retain(|pod| pod.uid != *uid);
        self.timed.remove(uid);
    }

    /// Marks a binding as uncertain and returns it.
    pub(crate) fn set_uncertain(&mut self, uid: &Uid, message: String) -> Option<&Binding> {
        let binding = self.by_pod.get_mut(uid)?;
        binding.stage = Stage::Uncertain(Uncertain { message, ask_at: None, asked: 0 });
        self.timed.insert(uid.clone());
        Some(binding)
    }

    /// A plugin allows a waiting pod; `true` if no other plugin holds it.
    pub(crate) fn allow(&mut self, uid: &Uid, plugin: &Text) -> bool {
        let Some(Binding { stage: Stage::WaitingOnPermit(wait), .. }) = self.by_pod.get_mut(uid) else {
            return false;
        };
        wait.pending.retain(|(name, ..)| name != plugin);
        let free = wait.pending.is_empty();
        if let Some(pod) = self.waiting.iter_mut().find(|pod| pod.uid == *uid) {
            pod.pending.retain(|(name, _)| name != plugin);
        }
        free
    }

    /// Waiting pods whose timeout has ended, in the order of their deadlines. Each has the plugin
    /// that timed out first and its timeout.
    pub(crate) fn timed_out(&self, now: Duration) -> Vec<(Uid, Text, Duration)> {
        let first_to_give_up = |pod: &WaitingPod| match &self.by_pod.get(&pod.uid)?.stage {
            Stage::WaitingOnPermit(wait) => wait.pending.iter().min_by_key(|(.., at)| *at),
            _ => None,
        };
        let mut due: Vec<_> = self
            .waiting
            .iter()
            .filter_map(|pod| first_to_give_up(pod).map(|wait| (pod, wait)))
            .filter(|(_, (.., at))| *at <= now)
            .collect();
        due.sort_by_key(|(_, (.., at))| *at);
        due.into_iter()
            .map(|(pod, (plugin, timeout, _))| (pod.uid.clone(), plugin.clone(), *timeout))
            .collect()
    }

    /// The uncertain bindings whose next read is due.
    pub(crate) fn to_ask(&self, now: Duration) -> Vec<Uid> {
        let due = |binding: &&Binding| match &binding.stage {
            Stage::Uncertain(uncertain) => uncertain.ask_at.is_some_and(|at| at <= now),
            _ => false,
        };
        let mut due: Vec<_> = self.timed().filter(due).map(|binding| binding.pod().uid.clone()).collect();
        due.sort();
        due
    }

    /// The next deadline (monotonic).
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let deadline = |binding: &Binding| match &binding.stage {
            Stage::WaitingOnPermit(wait) => wait.pending.iter().map(|(.., at)| *at).min(),
            Stage::Uncertain(uncertain) => uncertain.ask_at,
            Stage::PreBinding { .. } | Stage::Binding => None,
        };
        self.timed().filter_map(deadline).min()
    }

    fn timed(&self) -> impl Iterator<Item = &Binding> {
        self.timed.iter().filter_map(|uid| self.by_pod.get(uid))
    }
}
