//! The scheduling queue: activeQ, backoffQ, unschedulablePods, and the pods in flight.
//!
//! Every pod that the queue was given is in exactly one of these places until it is deleted, bound, or given up.

mod entry;
mod hints;
mod in_flight;
mod nominator;
mod rank;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Duration;

use priority_queue::PriorityQueue;
use rustc_hash::{FxHashMap, FxHasher};
use supercargo_framework::event::Change;
use supercargo_framework::plugin::QueueSortPlugin;
use supercargo_framework::{ClusterEvent, Now, PodInfo, Text, Timestamp, Uid};

pub use self::entry::{Backoff, QueuedPod};
use self::hints::{QueueingHints, Worth};
use self::in_flight::InFlight;
pub(crate) use self::nominator::Nominator;
use self::rank::{ActiveRank, BackoffRank};
use crate::cluster_events;
use crate::observer::{Observation, Observer, QueueName};
use crate::profile::{ProfileIndex, Profiles};

/// The event with which a pod that waited too long is moved.
pub(crate) const UNSCHEDULABLE_TIMEOUT: ClusterEvent = ClusterEvent::wildcard("UnschedulableTimeout");
/// The event with which a plugin's Activate moves a pod.
pub(crate) const FORCE_ACTIVATE: ClusterEvent = ClusterEvent::wildcard("ForceActivate");

const SCHEDULE_ATTEMPT_FAILURE: Text = Text::Static("ScheduleAttemptFailure");
const BACKOFF_COMPLETE: Text = Text::Static("BackoffComplete");
const POP_FROM_BACKOFF_Q: Text = Text::Static("PopFromBackoffQ");
const UNSCHEDULABLE_POD_ADD: Text = Text::Static("UnschedulablePodAdd");
const UNSCHEDULABLE_POD_UPDATE: Text = Text::Static("UnschedulablePodUpdate");

/// How often pods that have waited too long are looked for.
const FLUSH_PERIOD: Duration = Duration::from_secs(30);

type Heap<P> = PriorityQueue<Uid, P, BuildHasherDefault<FxHasher>>;

/// Settings of the queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Backoff after failed attempts.
    pub backoff: Backoff,
    /// How long a pod stays in unschedulablePods at most.
    pub max_in_unschedulable: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            max_in_unschedulable: Duration::from_mins(5),
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
    sort: Arc<dyn QueueSortPlugin>,
    hints: QueueingHints,
    entries: FxHashMap<Uid, QueuedPod>,
    active: Heap<ActiveRank>,
    /// Pods that plugins turned down.
    backoff: Heap<BackoffRank>,
    /// Pods whose attempt failed by no plugin's doing; these never jump the queue.
    error_backoff: Heap<BackoffRank>,
    /// Keyed by the turn at which they came, so that moves go in that order.
    unschedulable: BTreeMap<u64, Uid>,
    in_flight: InFlight,
    pub(crate) nominator: Nominator,
    next_sequence: u64,
    next_flush: Option<Duration>,
}

impl SchedulingQueue {
    pub(crate) fn new(options: QueueOptions, profiles: &Profiles) -> Self {
        Self {
            options,
            sort: profiles.queue_sort(),
            hints: QueueingHints::new(profiles),
            entries: FxHashMap::default(),
            active: Heap::default(),
            backoff: Heap::default(),
            error_backoff: Heap::default(),
            unschedulable: BTreeMap::new(),
            in_flight: InFlight::default(),
            nominator: Nominator::default(),
            next_sequence: 0,
            next_flush: None,
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

    /// Every pod in a queue or in flight.
    pub(crate) fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.entries.keys().chain(self.in_flight.uids())
    }

    /// Whether each pod of a queue is in one place only, for tests.
    pub(crate) fn places_of(&self, uid: &Uid) -> usize {
        [
            self.active.contains(uid),
            self.backoff.contains(uid),
            self.error_backoff.contains(uid),
            self.unschedulable.values().any(|held| held == uid),
            self.in_flight.contains(uid),
        ]
        .into_iter()
        .filter(|here| *here)
        .count()
    }

    /// Pods in activeQ, backoffQ, unschedulablePods (without gated ones), gated, and in flight.
    pub(crate) fn lengths(&self) -> [usize; 5] {
        let gated = self
            .unschedulable
            .values()
            .filter(|uid| self.is_gated(uid))
            .count();
        let backoff = self.backoff.len() + self.error_backoff.len();
        [
            self.active.len(),
            backoff,
            self.unschedulable.len() - gated,
            gated,
            self.in_flight.len(),
        ]
    }

    /// The number of events kept for pods in flight.
    pub(crate) fn in_flight_events(&self) -> usize {
        self.in_flight.event_count()
    }

    fn is_gated(&self, uid: &Uid) -> bool {
        self.entries
            .get(uid)
            .is_some_and(|entry| entry.gating_plugin.is_some())
    }
}

/// What a call needs beside the queue itself.
pub(crate) struct QueueCx<'a> {
    pub(crate) now: Now,
    pub(crate) profiles: &'a Profiles,
    pub(crate) observer: &'a mut dyn Observer,
}

/// Pods come, change and go.
impl SchedulingQueue {
    /// A new pod: straight into the active queue.
    pub(crate) fn add(&mut self, cx: &mut QueueCx<'_>, pod: Arc<PodInfo>, profile: ProfileIndex) {
        let entry = QueuedPod::new(pod, profile, cx.now.wall);
        self.move_to_active(cx, entry, &UNSCHEDULABLE_POD_ADD, false);
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
                let change = Change::Pod {
                    old: Some(Arc::clone(old)),
                    new: Some(Arc::clone(new)),
                };
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
        let (active, backoff) = (
            ActiveRank::new(entry, &self.sort),
            BackoffRank::new(entry, &self.sort),
        );
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
            let change = Change::Pod {
                old: Some(Arc::clone(old)),
                new: Some(Arc::clone(new)),
            };
            let worth = self.hints.worth(entry, &event, &change, cx.observer);
            if worth == Worth::Skip {
                continue;
            }
            if let Some(entry) = self.take(&new.uid) {
                self.requeue(cx, entry, worth, &Text::from(event.to_string()));
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
        let entry = self.entries.remove(uid)?;
        if self.active.remove(uid).is_none()
            && self.backoff.remove(uid).is_none()
            && self.error_backoff.remove(uid).is_none()
        {
            self.unschedulable.remove(&entry.sequence);
        }
        Some(entry)
    }

    fn is_unschedulable(&self, uid: &Uid) -> bool {
        self.entries
            .get(uid)
            .is_some_and(|entry| self.unschedulable.contains_key(&entry.sequence))
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
                None => {
                    let (uid, _) = self.backoff.pop()?;
                    let event = &POP_FROM_BACKOFF_Q;
                    cx.observer.observe(Observation::QueueIncoming {
                        queue: QueueName::Active,
                        event,
                    });
                    uid
                }
            };
            let Some(mut entry) = self.entries.remove(&uid) else {
                continue;
            };
            entry.attempts += 1;
            entry.initial_attempt.get_or_insert(cx.now.wall);
            if self.in_flight.begin(uid) {
                return Some(entry);
            }
            cx.observer.observe(Observation::Anomaly(
                "a pod in flight was queued again and is dropped",
            ));
        }
    }

    /// Whether [`pop`](Self::pop) has something to give.
    pub(crate) fn has_poppable(&self) -> bool {
        !self.active.is_empty() || !self.backoff.is_empty()
    }

    /// The attempt is over as far as events go: what happens from now on is not replayed for this pod.
    pub(crate) fn done(&mut self, uid: &Uid) {
        self.in_flight.done(uid);
    }

    /// The attempt failed: the pod waits where what happened in the meantime sends it.
    pub(crate) fn add_unschedulable(&mut self, cx: &mut QueueCx<'_>, mut entry: QueuedPod) {
        let uid = entry.uid().clone();
        if self.entries.contains_key(&uid) {
            cx.observer
                .observe(Observation::Anomaly("a pod that failed is in a queue already"));
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
        entry.set_backoff(&self.options.backoff);
        let worth = self.worth_of_events_in_flight(cx, &entry);
        self.done(&uid);
        self.requeue(cx, entry, worth, &SCHEDULE_ATTEMPT_FAILURE);
    }

    fn worth_of_events_in_flight(&self, cx: &mut QueueCx<'_>, entry: &QueuedPod) -> Worth {
        let events = self.in_flight.events_since(entry.uid());
        let Some(events) = events.filter(|_| entry.has_rejectors()) else {
            return Worth::AfterBackoff;
        };
        let mut best = Worth::Skip;
        for (event, change) in events {
            match self.hints.worth(entry, event, change, cx.observer) {
                Worth::Skip => {}
                Worth::Immediately => return Worth::Immediately,
                Worth::AfterBackoff => {
                    best = Worth::AfterBackoff;
                    // Nothing better can follow.
                    if entry.pending_plugins.is_empty() {
                        return best;
                    }
                }
            }
        }
        best
    }
}

/// Moves between the queues.
impl SchedulingQueue {
    /// Something happened: moves every pod that it may help, and keeps it for those in flight.
    pub(crate) fn move_all(
        &mut self,
        cx: &mut QueueCx<'_>,
        event: &ClusterEvent,
        change: &Change,
        pre_check: impl Fn(&PodInfo) -> bool,
    ) {
        if !self.hints.interested(event) {
            return;
        }
        let candidates: Vec<Uid> = self.unschedulable.values().cloned().collect();
        for uid in candidates {
            let Some(entry) = self.entries.get(&uid).filter(|entry| pre_check(&entry.pod)) else {
                continue;
            };
            let gate = entry.gating_plugin.as_ref();
            if gate.is_some_and(|plugin| !self.hints.plugin_interested(plugin, event)) {
                continue;
            }
            self.move_one(cx, &uid, event, change);
        }
        self.in_flight.note(event.clone(), change.clone());
    }

    fn move_one(&mut self, cx: &mut QueueCx<'_>, uid: &Uid, event: &ClusterEvent, change: &Change) {
        let Some(entry) = self.entries.get(uid) else {
            return;
        };
        let worth = self.hints.worth(entry, event, change, cx.observer);
        if worth != Worth::Skip
            && let Some(entry) = self.take(uid)
        {
            self.requeue(cx, entry, worth, &Text::from(event.to_string()));
        }
    }

    /// A plugin wants these pods tried: straight into the active queue.
    pub(crate) fn activate(&mut self, cx: &mut QueueCx<'_>, pod: &Arc<PodInfo>) {
        let uid = &pod.uid;
        if self.in_flight.contains(uid) {
            let change = Change::Pod {
                old: None,
                new: Some(Arc::clone(pod)),
            };
            self.in_flight.note(FORCE_ACTIVATE, change);
            return;
        }
        let from_backoff = self.backoff.contains(uid) || self.error_backoff.contains(uid);
        if !self.active.contains(uid)
            && let Some(entry) = self.take(uid)
        {
            self.move_to_active(cx, entry, &Text::Static("ForceActivate"), from_backoff);
        }
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, cx: &mut QueueCx<'_>) {
        self.flush_backoff(cx);
        let due = *self.next_flush.get_or_insert(cx.now.monotonic + FLUSH_PERIOD);
        if cx.now.monotonic >= due {
            self.next_flush = Some(cx.now.monotonic + FLUSH_PERIOD);
            self.flush_unschedulable(cx);
        }
    }

    /// When [`tick`](Self::tick) next has something to do, as a wait from now.
    pub(crate) fn next_deadline(&self, now: Now) -> Duration {
        let flush = self
            .next_flush
            .map_or(FLUSH_PERIOD, |due| due.saturating_sub(now.monotonic));
        let heads = [self.backoff.peek(), self.error_backoff.peek()];
        let backoff = heads.into_iter().flatten().map(|(_, rank)| {
            let leaves = rank.until().plus(Duration::from_secs(1));
            leaves.since(now.wall)
        });
        backoff.chain([flush]).min().unwrap_or(flush)
    }

    fn flush_backoff(&mut self, cx: &mut QueueCx<'_>) {
        while let Some(uid) = self.completed(cx.now.wall) {
            if let Some(entry) = self.take(&uid) {
                self.move_to_active(cx, entry, &BACKOFF_COMPLETE, true);
            }
        }
    }

    /// A pod whose backoff has ended.
    fn completed(&self, now: Timestamp) -> Option<Uid> {
        [&self.backoff, &self.error_backoff].into_iter().find_map(|heap| {
            let (uid, rank) = heap.peek()?;
            (rank.until() < now.floor_to_second()).then(|| uid.clone())
        })
    }

    fn flush_unschedulable(&mut self, cx: &mut QueueCx<'_>) {
        let waited = |entry: &QueuedPod| cx.now.wall.since(entry.timestamp);
        let overdue = |uid: &&Uid| {
            let entry = self.entries.get(*uid);
            entry.is_some_and(|e| waited(e) > self.options.max_in_unschedulable && e.gating_plugin.is_none())
        };
        let overdue: Vec<Uid> = self.unschedulable.values().filter(overdue).cloned().collect();
        for uid in overdue {
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.flushed = true;
            }
            self.move_one(cx, &uid, &UNSCHEDULABLE_TIMEOUT, &Change::Unspecified);
        }
    }

    fn requeue(&mut self, cx: &mut QueueCx<'_>, entry: QueuedPod, worth: Worth, cause: &Text) {
        match worth {
            Worth::Skip => {
                cx.observer.observe(Observation::QueueIncoming {
                    queue: QueueName::Unschedulable,
                    event: cause,
                });
                self.insert_unschedulable(entry);
            }
            Worth::AfterBackoff if entry.is_backing_off(cx.now.wall) => {
                self.move_to_backoff(cx, entry, cause);
            }
            Worth::AfterBackoff | Worth::Immediately => self.move_to_active(cx, entry, cause, false),
        }
    }

    /// PreEnqueue runs on the way in, except for pods that come from backoff: they passed it on their way there.
    fn move_to_active(
        &mut self,
        cx: &mut QueueCx<'_>,
        mut entry: QueuedPod,
        cause: &Text,
        from_backoff: bool,
    ) {
        if *cause == UNSCHEDULABLE_POD_ADD || *cause == UNSCHEDULABLE_POD_UPDATE {
            self.nominator
                .add(&entry.pod, &supercargo_framework::plugin::Nomination::Keep);
        }
        if !from_backoff && !run_pre_enqueue(cx, &mut entry) {
            self.insert_unschedulable(entry);
            return;
        }
        entry.initial_attempt.get_or_insert(cx.now.wall);
        entry.sequence = self.take_sequence();
        cx.observer.observe(Observation::QueueIncoming {
            queue: QueueName::Active,
            event: cause,
        });
        self.active
            .push(entry.uid().clone(), ActiveRank::new(&entry, &self.sort));
        self.entries.insert(entry.uid().clone(), entry);
    }

    fn move_to_backoff(&mut self, cx: &mut QueueCx<'_>, mut entry: QueuedPod, cause: &Text) {
        if !run_pre_enqueue(cx, &mut entry) {
            self.insert_unschedulable(entry);
            return;
        }
        entry.sequence = self.take_sequence();
        cx.observer.observe(Observation::QueueIncoming {
            queue: QueueName::Backoff,
            event: cause,
        });
        let heap = if entry.has_rejectors() {
            &mut self.backoff
        } else {
            &mut self.error_backoff
        };
        heap.push(entry.uid().clone(), BackoffRank::new(&entry, &self.sort));
        self.entries.insert(entry.uid().clone(), entry);
    }

    fn insert_unschedulable(&mut self, mut entry: QueuedPod) {
        entry.sequence = self.take_sequence();
        self.unschedulable.insert(entry.sequence, entry.uid().clone());
        self.entries.insert(entry.uid().clone(), entry);
    }

    fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }

    /// The pods promised to a node that wait in a queue. One that is in flight itself has a place of its own by now, or
    /// will be judged again.
    pub(crate) fn nominated_on(&self, node: &str) -> Vec<Arc<PodInfo>> {
        let queued = |uid: &Uid| self.entries.get(uid).map(|entry| Arc::clone(&entry.pod));
        self.nominator.on_node(node).iter().filter_map(queued).collect()
    }
}

/// Runs PreEnqueue, the plugin that held the pod last first; `false` when one holds it.
fn run_pre_enqueue(cx: &QueueCx<'_>, entry: &mut QueuedPod) -> bool {
    let plugins = &cx.profiles.get(entry.profile).pre_enqueue;
    let last = entry.gating_plugin.take();
    let is_last = |name: &str| last.as_deref() == Some(name);
    let first = plugins.iter().filter(|plugin| is_last(plugin.name));
    let rest = plugins.iter().filter(|plugin| !is_last(plugin.name));
    for plugin in first.chain(rest) {
        if !plugin.plugin.pre_enqueue(&entry.pod).is_success() {
            entry.unschedulable_plugins.insert(plugin.name.into());
            entry.gating_plugin = Some(plugin.name.into());
            return false;
        }
    }
    true
}
