//! The scheduling queue: activeQ, backoffQ, unschedulablePods, and the pods in flight.
//!
//! Every pod that the queue was given is in exactly one of these places until it is deleted, bound, or given up.

mod context;
mod entry;
mod guarded_sort;
mod hints;
mod in_flight;
mod nominator;
mod queueing_strategy;
mod rank;
mod reconfigure;
mod requeue;
mod steady_clock;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Duration;

use priority_queue::PriorityQueue;
use rustc_hash::{FxHashMap, FxHasher};
use supercargo_framework::event::Change;
use supercargo_framework::{ActionType, ClusterEvent, EventResource, Now, PodInfo, Text, Uid};

pub(crate) use self::context::QueueCx;
pub(crate) use self::entry::Window;
pub use self::entry::{Backoff, QueuedPod};
use self::guarded_sort::GuardedSort;
use self::hints::QueueingHints;
use self::in_flight::InFlight;
use self::nominator::Nominated;
pub(crate) use self::nominator::Nominator;
use self::queueing_strategy::QueueingStrategy;
use self::rank::{ActiveRank, BackoffRank};
use self::steady_clock::SteadyClock;
use crate::cluster_events;
use crate::observer::{Observation, QueueName};
use crate::profile::{ProfileIndex, Profiles};

const SCHEDULE_ATTEMPT_FAILURE: Text = Text::Static("ScheduleAttemptFailure");
const POP_FROM_BACKOFF_Q: Text = Text::Static("PopFromBackoffQ");
const UNSCHEDULABLE_POD_ADD: Text = Text::Static("UnschedulablePodAdd");
const UNSCHEDULABLE_POD_UPDATE: Text = Text::Static("UnschedulablePodUpdate");

type Heap<P> = PriorityQueue<Uid, P, BuildHasherDefault<FxHasher>>;

/// Settings of the queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Backoff after failed attempts.
    pub backoff: Backoff,
    /// How long a pod stays in unschedulablePods at most.
    pub max_in_unschedulable: Duration,
    /// Whether a pod in backoff is popped when there is no other (upstream's SchedulerPopFromBackoffQ).
    pub pop_from_backoff: bool,
}

impl QueueOptions {
    pub(crate) fn window(&self) -> Window {
        if self.pop_from_backoff { Window::Seconds } else { Window::Exact }
    }
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            max_in_unschedulable: Duration::from_mins(5),
            pop_from_backoff: true,
        }
    }
}

/// Where a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Next in line.
    Active,
    /// Waiting out its backoff.
    Backoff,
    /// Waiting for something to change.
    Unschedulable,
    /// Held by a PreEnqueue plugin.
    Gated,
    /// Being scheduled or bound.
    InFlight,
}

/// The scheduling queue.
pub(crate) struct SchedulingQueue {
    options: QueueOptions,
    sort: Arc<GuardedSort>,
    hints: QueueingHints,
    entries: FxHashMap<Uid, QueuedPod>,
    /// How many of those each plugin has turned down, by profile.
    rejected: FxHashMap<(ProfileIndex, Text), usize>,
    active: Heap<ActiveRank>,
    /// Pods that plugins turned down.
    backoff: Heap<BackoffRank>,
    /// Pods whose attempt failed by no plugin's doing; these never jump the queue.
    error_backoff: Heap<BackoffRank>,
    /// Keyed by the turn at which they came, so that moves go in that order.
    unschedulable: BTreeMap<u64, Uid>,
    /// How many of those a PreEnqueue plugin holds.
    gated: usize,
    in_flight: InFlight,
    pub(crate) nominator: Nominator,
    next_sequence: u64,
    next_flush: Option<Duration>,
    clock: SteadyClock,
}

impl SchedulingQueue {
    pub(crate) fn new(options: QueueOptions, profiles: &Profiles, extended: bool) -> Self {
        Self {
            options,
            sort: Arc::new(GuardedSort::new(profiles.queue_sort())),
            hints: QueueingHints::new(profiles, extended),
            entries: FxHashMap::default(),
            rejected: FxHashMap::default(),
            active: Heap::default(),
            backoff: Heap::default(),
            error_backoff: Heap::default(),
            unschedulable: BTreeMap::new(),
            gated: 0,
            in_flight: InFlight::default(),
            nominator: Nominator::default(),
            next_sequence: 0,
            next_flush: None,
            clock: SteadyClock::default(),
        }
    }

    /// Where a pod is; `None` when the queue does not know it.
    pub(crate) fn place(&self, uid: &Uid) -> Option<Place> {
        if self.in_flight.contains(uid) {
            return Some(Place::InFlight);
        }
        let entry = self.entries.get(uid)?;
        Some(if self.active.contains(uid) {
            Place::Active
        } else if self.backoff.contains(uid) || self.error_backoff.contains(uid) {
            Place::Backoff
        } else if entry.gating_plugin.is_some() {
            Place::Gated
        } else {
            Place::Unschedulable
        })
    }

    /// A pod that is in one of the queues.
    pub(crate) fn get(&self, uid: &Uid) -> Option<&QueuedPod> {
        self.entries.get(uid)
    }

    /// Every pod in one of the queues.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &QueuedPod> {
        self.entries.values()
    }

    /// Pods in activeQ, backoffQ, unschedulablePods (without gated ones), gated, and in flight.
    pub(crate) fn lengths(&self) -> [usize; 5] {
        [
            self.active.len(),
            self.backoff.len() + self.error_backoff.len(),
            self.unschedulable.len() - self.gated,
            self.gated,
            self.in_flight.len(),
        ]
    }

    /// How many of the pods in the queues each plugin has turned down, by profile; those that once have are there with 0.
    pub(crate) fn rejected(&self) -> impl Iterator<Item = (ProfileIndex, &Text, usize)> {
        self.rejected.iter().map(|((profile, plugin), count)| (*profile, plugin, *count))
    }

    /// What is kept for pods in flight: pods, and events by kind.
    /// How many events of each kind are kept for pods in flight.
    pub(crate) fn events_in_flight(&self) -> FxHashMap<&ClusterEvent, usize> {
        self.in_flight.count_events()
    }

    /// What time it is for the queue, where nothing waits longer because the wall clock is set back.
    pub(crate) fn steady(&mut self, now: Now) -> Now {
        self.clock.observe(now)
    }

    /// What a queue-sort plugin said that panicked since the last call of this. The pods it would not compare keep the
    /// order in which they came.
    pub(crate) fn sort_panic(&self) -> Option<String> {
        self.sort.take_panic()
    }

    /// The pods promised to a node. Of one that is in no queue, as while it is being scheduled, no more is known than its
    /// name: upstream's quirk.
    pub(crate) fn nominated_on(&self, node: &str) -> Vec<Arc<PodInfo>> {
        let resolve = |nominated: &Nominated| match self.entries.get(&nominated.uid) {
            Some(entry) => Arc::clone(&entry.pod),
            None => Arc::new(nominated.unknown()),
        };
        self.nominator.on_node(node).iter().map(resolve).collect()
    }

    /// What must always hold and does not.
    pub(crate) fn inconsistencies(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (uid, entry) in &self.entries {
            let held = self.unschedulable.get(&entry.sequence) == Some(uid);
            let places = [
                self.active.contains(uid),
                self.backoff.contains(uid),
                self.error_backoff.contains(uid),
                held,
                self.in_flight.contains(uid),
            ];
            if places.into_iter().filter(|here| *here).count() != 1 {
                found.push(format!("pod {}: places {places:?}", entry.pod.key()));
            }
            if entry.gating_plugin.is_some() && !held {
                found.push(format!("pod {} is gated and not held", entry.pod.key()));
            }
        }
        let gated = self.entries.values().filter(|entry| entry.gating_plugin.is_some()).count();
        let [active, backoff, unschedulable, held, in_flight] = self.lengths();
        if active + backoff + unschedulable + held != self.entries.len() || gated != held {
            found.push(format!("{} pods, {gated} gated, {:?}", self.entries.len(), self.lengths()));
        }
        let rejected: usize = self.rejected.values().sum();
        if rejected != self.entries.values().map(|entry| entry.rejectors().count()).sum::<usize>() {
            found.push(format!("{rejected} rejections are counted: {:?}", self.rejected));
        }
        if in_flight == 0 && self.in_flight.event_count() > 0 {
            found.push("events are kept for pods in flight and there is none".to_owned());
        }
        found
    }
}

/// Pods come, change and go.
impl SchedulingQueue {
    /// A new pod: straight into the active queue.
    pub(crate) fn add(&mut self, cx: &mut QueueCx<'_>, pod: Arc<PodInfo>, profile: ProfileIndex) {
        let entry = QueuedPod::new(Arc::clone(&pod), profile, cx.now.wall);
        self.move_to_active(cx, entry, &UNSCHEDULABLE_POD_ADD, false);
        if self.hints.asks_for_unscheduled_pods() {
            let event = ClusterEvent::new(EventResource::UnschedulablePod, ActionType::ADD);
            self.move_all(cx, &event, &Change::Pod { old: None, new: Some(pod) }, |_| true);
        }
    }

    /// A pod without a node changed.
    pub(crate) fn update(
        &mut self,
        cx: &mut QueueCx<'_>,
        old: &Arc<PodInfo>,
        new: &Arc<PodInfo>,
        profile: ProfileIndex,
    ) {
        let uid = &new.uid;
        if self.in_flight.contains(uid) {
            for event in cluster_events::pod_events(old, new) {
                let change = Change::Pod { old: Some(Arc::clone(old)), new: Some(Arc::clone(new)) };
                self.in_flight.note(event, change);
            }
            return;
        }
        let Some(entry) = self.entries.get_mut(uid) else {
            let entry = QueuedPod::new(Arc::clone(new), profile, cx.now.wall);
            self.move_to_active(cx, entry, &UNSCHEDULABLE_POD_UPDATE, false);
            return;
        };
        entry.pod = Arc::clone(new);
        let (active, backoff) = (ActiveRank::new(entry, &self.sort), BackoffRank::new(entry, &self.sort));
        self.nominator.update(old, new);
        if self.active.contains(uid) {
            self.active.change_priority(uid, active);
        } else if self.backoff.contains(uid) {
            self.backoff.change_priority(uid, backoff);
        } else if self.error_backoff.contains(uid) {
            self.error_backoff.change_priority(uid, backoff);
        } else {
            self.requeue_on_own_update(cx, old, new);
        }
    }

    /// A pod in unschedulablePods changed: does that help?
    fn requeue_on_own_update(&mut self, cx: &mut QueueCx<'_>, old: &Arc<PodInfo>, new: &Arc<PodInfo>) {
        for event in cluster_events::pod_events(old, new) {
            let Some(entry) = self.entries.get(&new.uid) else {
                return;
            };
            let change = Change::Pod { old: Some(Arc::clone(old)), new: Some(Arc::clone(new)) };
            let strategy = self.hints.strategy(cx, entry, &event, &change);
            if strategy == QueueingStrategy::Skip {
                continue;
            }
            if let Some(entry) = self.take(&new.uid) {
                self.requeue(cx, entry, strategy, &Text::from(event.to_string()));
            }
            if !self.is_unschedulable(&new.uid) {
                return;
            }
        }
    }

    /// The pod is gone or has got a node. One in flight is left to the attempt that has it.
    pub(crate) fn delete(&mut self, uid: &Uid) {
        self.nominator.remove(uid);
        self.take(uid);
    }

    /// Takes a pod out of whichever queue it is in.
    fn take(&mut self, uid: &Uid) -> Option<QueuedPod> {
        let entry = self.take_entry(uid)?;
        if self.active.remove(uid).is_none()
            && self.backoff.remove(uid).is_none()
            && self.error_backoff.remove(uid).is_none()
        {
            self.unschedulable.remove(&entry.sequence);
            self.gated -= usize::from(entry.gating_plugin.is_some());
        }
        Some(entry)
    }

    /// Puts a pod among those in some queue.
    fn put_entry(&mut self, entry: QueuedPod) {
        for plugin in entry.rejectors() {
            *self.rejected.entry((entry.profile, plugin.clone())).or_default() += 1;
        }
        self.entries.insert(entry.uid().clone(), entry);
    }

    fn take_entry(&mut self, uid: &Uid) -> Option<QueuedPod> {
        let entry = self.entries.remove(uid)?;
        for plugin in entry.rejectors() {
            if let Some(count) = self.rejected.get_mut(&(entry.profile, plugin.clone())) {
                *count -= 1;
            }
        }
        Some(entry)
    }

    fn is_unschedulable(&self, uid: &Uid) -> bool {
        self.entries.get(uid).is_some_and(|entry| self.unschedulable.contains_key(&entry.sequence))
    }
}

/// Attempts.
impl SchedulingQueue {
    /// The next pod to schedule. With nothing active, one whose backoff has not ended is taken early, unless its last
    /// attempt failed by no plugin's doing.
    pub(crate) fn pop(&mut self, cx: &mut QueueCx<'_>) -> Option<QueuedPod> {
        loop {
            let uid = match self.active.pop() {
                Some((uid, _)) => uid,
                None if !self.options.pop_from_backoff => return None,
                None => {
                    let (uid, _) = self.backoff.pop()?;
                    let event = &POP_FROM_BACKOFF_Q;
                    cx.observer.observe(Observation::QueueIncoming { queue: QueueName::Active, event });
                    uid
                }
            };
            let Some(mut entry) = self.take_entry(&uid) else {
                continue;
            };
            entry.attempts += 1;
            entry.initial_attempt.get_or_insert(cx.now.wall);
            if self.in_flight.begin(uid) {
                return Some(entry);
            }
            cx.observer.observe(Observation::Anomaly("a pod in flight was queued again and is dropped"));
        }
    }

    /// Whether [`pop`](Self::pop) has something to give.
    pub(crate) fn has_poppable(&self) -> bool {
        !self.active.is_empty() || (self.options.pop_from_backoff && !self.backoff.is_empty())
    }

    /// The attempt is over as far as events go: what happens from now on is not replayed for this pod.
    pub(crate) fn done(&mut self, uid: &Uid) {
        self.in_flight.done(uid);
    }

    /// The attempt failed: the pod waits where what happened in the meantime sends it.
    pub(crate) fn add_unschedulable(&mut self, cx: &mut QueueCx<'_>, mut entry: QueuedPod) {
        let uid = entry.uid().clone();
        if self.entries.contains_key(&uid) {
            cx.observer.observe(Observation::Anomaly("a pod that failed is in a queue already"));
            self.done(&uid);
            return;
        }
        if entry.has_rejectors() {
            entry.unschedulable_count += 1;
            entry.consecutive_errors = 0;
        } else {
            entry.consecutive_errors += 1;
        }
        entry.timestamp = cx.now.wall;
        entry.flushed = false;
        entry.set_backoff(&self.options.backoff, self.options.window());
        let strategy = self.strategy_of_events_in_flight(cx, &entry);
        self.done(&uid);
        self.requeue(cx, entry, strategy, &SCHEDULE_ATTEMPT_FAILURE);
    }

    fn strategy_of_events_in_flight(&self, cx: &mut QueueCx<'_>, entry: &QueuedPod) -> QueueingStrategy {
        let events = self.in_flight.events_since(entry.uid());
        let Some(events) = events.filter(|_| entry.has_rejectors()) else {
            return QueueingStrategy::AfterBackoff;
        };
        let best_possible = entry.best_possible_strategy();
        let mut best = QueueingStrategy::Skip;
        for (event, change) in events {
            best = best.max(self.hints.strategy(cx, entry, event, change));
            if best == best_possible {
                break;
            }
        }
        best
    }
}
