//! Pods on their way to a node: from Permit to the API server's word.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use supercargo_framework::context::WaitingPod;
use supercargo_framework::{CycleState, Now, PodInfo, Status, Text, Uid};

use crate::attempt::Waits;
use crate::effect::PreBindWork;
use crate::observer::Moment;
use crate::queue::QueuedPod;

/// At most this long does a plugin hold a pod in Permit.
pub(crate) const MAX_PERMIT_WAIT: Duration = Duration::from_mins(15);

/// Where a binding is.
pub(crate) enum Stage {
    /// Plugins hold the pod.
    WaitingOnPermit(PermitWait),
    /// PreBind runs. Until it has ended, the binding can be cancelled.
    PreBinding {
        /// Why it was cancelled, if it was.
        cancelled: Option<Status>,
    },
    /// Bind runs. From here on there is no way back.
    Binding,
    /// Bind failed and nobody knows whether it was carried out. The pod stays assumed until somebody does.
    Uncertain(Uncertain),
}

/// A pod that Permit holds.
pub(crate) struct PermitWait {
    /// The plugins that still hold it, each with the moment (monotonic) at which it gives up.
    pub(crate) pending: Vec<(Text, Duration, Duration)>,
    /// Since when it waits (monotonic).
    pub(crate) since: Duration,
    /// What PreBind will have to do once it is let go.
    pub(crate) work: Vec<Vec<PreBindWork>>,
}

/// A binding whose fate is being asked for.
pub(crate) struct Uncertain {
    /// What Bind said.
    pub(crate) message: String,
    /// When to ask again (monotonic); `None` while a question is under way.
    pub(crate) ask_at: Option<Duration>,
    /// How often it was asked.
    pub(crate) asked: u32,
}

impl Uncertain {
    /// How long to wait before asking once more: a second, doubling up to thirty.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_secs(1_u64.checked_shl(self.asked).unwrap_or(u64::MAX).min(30))
    }
}

/// A pod on its way to a node. It is assumed in the cache, unless it has been deleted meanwhile.
pub(crate) struct Binding {
    pub queued: QueuedPod,
    pub node: Arc<str>,
    pub state: CycleState,
    pub stage: Stage,
    /// The state of the node once the pod had been put there.
    pub chosen_at: u64,
    /// When PreBind or Bind began, by the observer's clock.
    pub stage_began: Moment,
}

impl Binding {
    /// A binding that waits for the given plugins, if any. `chosen_at` is the generation of the node, the pod included.
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
        Self { queued, node, state, stage, chosen_at, stage_began: Moment::default() }
    }

    /// Keeps PreBind's work until the pod is let go. Returns whether anybody holds it.
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
    /// The pods that Permit holds, in the order they came; few, if any.
    waiting: Vec<WaitingPod>,
    /// The bindings that time may do something to: held ones and uncertain ones. All others only wait for an answer.
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

    /// The pods whose PreBind runs, in an order that a replay has, too.
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

    /// The pod no longer waits on Permit.
    pub(crate) fn forget_waiting(&mut self, uid: &Uid) {
        self.waiting.retain(|pod| pod.uid != *uid);
        self.timed.remove(uid);
    }

    /// Nobody knows whether the pod is bound; returns its binding, to ask.
    pub(crate) fn set_uncertain(&mut self, uid: &Uid, message: String) -> Option<&Binding> {
        let binding = self.by_pod.get_mut(uid)?;
        binding.stage = Stage::Uncertain(Uncertain { message, ask_at: None, asked: 0 });
        self.timed.insert(uid.clone());
        Some(binding)
    }

    /// A plugin lets a waiting pod go; `true` when no other holds it.
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

    /// Waiting pods whose time is over, in the order in which it was: each with the plugin that gave up first and how
    /// long it had waited.
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

    /// Uncertain bindings that are to be asked about now.
    pub(crate) fn to_ask(&self, now: Duration) -> Vec<Uid> {
        let due = |binding: &&Binding| match &binding.stage {
            Stage::Uncertain(uncertain) => uncertain.ask_at.is_some_and(|at| at <= now),
            _ => false,
        };
        let mut due: Vec<_> = self.timed().filter(due).map(|binding| binding.pod().uid.clone()).collect();
        due.sort();
        due
    }

    /// The next moment (monotonic) at which something here is due.
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
