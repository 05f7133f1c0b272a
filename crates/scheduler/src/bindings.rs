//! The state of bindings: pods between Permit and the API server's answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use supercargo_framework::{CycleState, Now, PodInfo, Status, Text, Uid, WaitingPod, WaitingPods};

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
    fn pause(&self) -> Duration {
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
    /// Its deadline in [`Bindings`].
    due: Option<Duration>,
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
        Self { queued, node, state, stage, chosen_at, stage_began: never, reported_at: never, due: None }
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
    /// The pods that Permit holds.
    waiting: WaitingPods,
    /// The deadlines (monotonic) of held and uncertain bindings. All others wait for an answer.
    due: BTreeSet<(Duration, Uid)>,
}

impl Bindings {
    pub(crate) fn insert(&mut self, binding: Binding) {
        let pod = Arc::clone(binding.pod());
        if let Stage::WaitingOnPermit(wait) = &binding.stage {
            let pending =
                wait.pending.iter().map(|(plugin, timeout, _)| (plugin.clone(), *timeout)).collect();
            self.waiting.push(WaitingPod::new(&pod, Arc::clone(&binding.node), pending));
        }
        self.by_pod.insert(pod.uid.clone(), binding);
        self.follow_deadline(&pod.uid);
    }

    /// Notes when a binding whose stage changed has something to do.
    fn follow_deadline(&mut self, uid: &Uid) {
        let Some(binding) = self.by_pod.get_mut(uid) else { return };
        let due = match &binding.stage {
            Stage::WaitingOnPermit(wait) => wait.pending.iter().map(|(.., at)| *at).min(),
            Stage::Uncertain(uncertain) => uncertain.ask_at,
            Stage::PreBinding { .. } | Stage::Binding => None,
        };
        let before = std::mem::replace(&mut binding.due, due);
        before.map(|at| self.due.remove(&(at, uid.clone())));
        self.due.extend(due.map(|at| (at, uid.clone())));
    }

    pub(crate) fn get(&self, uid: &Uid) -> Option<&Binding> {
        self.by_pod.get(uid)
    }

    pub(crate) fn get_mut(&mut self, uid: &Uid) -> Option<&mut Binding> {
        self.by_pod.get_mut(uid)
    }

    pub(crate) fn remove(&mut self, uid: &Uid) -> Option<Binding> {
        self.forget_waiting(uid);
        let binding = self.by_pod.remove(uid)?;
        binding.due.map(|at| self.due.remove(&(at, uid.clone())));
        Some(binding)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_pod.len()
    }

    pub(crate) fn waiting(&self) -> &WaitingPods {
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
        self.waiting.remove(uid);
    }

    /// Marks a binding as uncertain and returns it.
    pub(crate) fn set_uncertain(&mut self, uid: &Uid, message: String) -> Option<&Binding> {
        let binding = self.by_pod.get_mut(uid)?;
        binding.stage = Stage::Uncertain(Uncertain { message, ask_at: None, asked: 0 });
        self.follow_deadline(uid);
        self.by_pod.get(uid)
    }

    /// The API server did not say whether a pod is bound: plans the next read.
    pub(crate) fn ask_later(&mut self, now: Duration, uid: &Uid) {
        if let Some(Binding { stage: Stage::Uncertain(uncertain), .. }) = self.by_pod.get_mut(uid) {
            uncertain.ask_at = Some(now + uncertain.pause());
            uncertain.asked += 1;
            self.follow_deadline(uid);
        }
    }

    /// A plugin allows a waiting pod; `true` if no other plugin holds it.
    pub(crate) fn allow(&mut self, uid: &Uid, plugin: &Text) -> bool {
        let Some(Binding { stage: Stage::WaitingOnPermit(wait), .. }) = self.by_pod.get_mut(uid) else {
            return false;
        };
        wait.pending.retain(|(name, ..)| name != plugin);
        let free = wait.pending.is_empty();
        if let Some(pod) = self.waiting.get_mut(uid) {
            pod.pending.retain(|(name, _)| name != plugin);
        }
        self.follow_deadline(uid);
        free
    }

    /// Waiting pods whose timeout has ended, in the order of their deadlines. Each has the plugin
    /// that timed out first and its timeout.
    pub(crate) fn timed_out(&self, now: Duration) -> Vec<(Uid, Text, Duration)> {
        let mut due: Vec<_> = self
            .due(now)
            .filter_map(|binding| match &binding.stage {
                Stage::WaitingOnPermit(wait) => {
                    Some((binding.pod(), wait.pending.iter().min_by_key(|(.., at)| *at)?))
                }
                _ => None,
            })
            .collect();
        due.sort_by_key(|(pod, (.., at))| (*at, self.waiting.arrival(&pod.uid)));
        due.into_iter()
            .map(|(pod, (plugin, timeout, _))| (pod.uid.clone(), plugin.clone(), *timeout))
            .collect()
    }

    /// The uncertain bindings whose next read is due. It is no longer planned.
    pub(crate) fn take_to_ask(&mut self, now: Duration) -> Vec<Arc<PodInfo>> {
        let is_uncertain = |binding: &&Binding| matches!(binding.stage, Stage::Uncertain(_));
        let mut pods: Vec<_> =
            self.due(now).filter(is_uncertain).map(|binding| Arc::clone(binding.pod())).collect();
        pods.sort_by(|a, b| a.uid.cmp(&b.uid));
        for pod in &pods {
            if let Some(Binding { stage: Stage::Uncertain(uncertain), .. }) = self.by_pod.get_mut(&pod.uid) {
                uncertain.ask_at = None;
            }
            self.follow_deadline(&pod.uid);
        }
        pods
    }

    /// The next deadline (monotonic).
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The bindings whose deadline has come.
    fn due(&self, now: Duration) -> impl Iterator<Item = &Binding> {
        self.due.iter().take_while(move |(at, _)| *at <= now).filter_map(|(_, uid)| self.by_pod.get(uid))
    }
}
