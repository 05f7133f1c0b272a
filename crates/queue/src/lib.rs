//! The scheduling queue: activeQ, backoffQ, unschedulableEntities, and the pods in flight
//! (upstream's `backend/queue`).
//!
//! Every pod in the queue is in exactly one of these places until it is deleted, bound or dropped.
//! The scheduler's state machine adds, pops and moves pods; the hints of the profiles' plugins say
//! which events move which pods.
//!
//! Pure: the caller passes the time in with every call ([`QueueCx`]).

// Tests print, and read from the environment how long to run.
#![cfg_attr(test, allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod aside;
mod context;
mod entry;
mod entry_reason;
mod group_changes;
mod groups;
mod guarded_sort;
mod hints;
mod in_flight;
mod members;
mod nominator;
mod queueing_strategy;
mod rank;
mod reconfigure;
mod requeue;
mod size;
pub mod stall;
mod steady_clock;
#[cfg(test)]
mod tests;
mod unschedulable;
mod waiting_groups;

use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Duration;

use priority_queue::PriorityQueue;
use rustc_hash::{FxHashMap, FxHasher};
use supercargo_framework::cluster_events;
use supercargo_framework::event::Change;
use supercargo_framework::hash_seed::HashSeed;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::{ActionType, ClusterEvent, EventResource, Now, PodInfo, Text, Uid};
use supercargo_runtime::observer::{Entity, Observation, QueueName};
use supercargo_runtime::profile::{ProfileIndex, Profiles};

pub use self::context::QueueCx;
use self::entry::Window;
pub use self::entry::{Backoff, QueuedPod};
use self::entry_reason::EntryReason;
use self::groups::Groups;
pub use self::groups::{GroupLengths, GroupOutcome, QueuedGroup};
use self::guarded_sort::GuardedSort;
pub use self::hints::EXTENDER;
use self::hints::QueueingHints;
use self::in_flight::InFlight;
use self::members::Members;
pub use self::members::sort_members;
pub use self::nominator::{Nominated, Nominator};
use self::queueing_strategy::QueueingStrategy;
use self::rank::{ActiveRank, BackoffRank};
pub use self::requeue::PreCheck;
use self::stall::is_stalled;
use self::steady_clock::SteadyClock;
use self::unschedulable::Unschedulable;

const SCHEDULE_ATTEMPT_FAILURE: Text = Text::Static("ScheduleAttemptFailure");
const POP_FROM_BACKOFF_Q: Text = Text::Static("PopFromBackoffQ");
const UNSCHEDULED_POD_ADD: Text = Text::Static("UnscheduledPodAdd");
const TARGET_POD_UPDATE: Text = Text::Static("TargetPodUpdate");

type Heap<P> = PriorityQueue<Uid, P, BuildHasherDefault<FxHasher>>;

/// Settings of the queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Backoff after failed attempts.
    pub backoff: Backoff,
    /// The maximum time in unschedulableEntities.
    pub max_in_unschedulable: Duration,
    /// Whether a pod in backoff is popped if there is no other (upstream's
    /// SchedulerPopFromBackoffQ).
    pub pop_from_backoff: bool,
    /// Whether pods of a group are queued together (upstream's GenericWorkload).
    pub groups: bool,
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
            groups: false,
        }
    }
}

/// The place of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the active queue.
    Active,
    /// Waiting for its backoff to end.
    Backoff,
    /// Waiting for an event.
    Unschedulable,
    /// Held by a PreEnqueue plugin.
    Gated,
    /// Being scheduled or bound.
    InFlight,
    /// Beside the queue, until its group is known or the group's attempt ends.
    Aside,
}

/// What [`SchedulingQueue::pop`] returns.
#[derive(Debug)]
pub enum Popped {
    /// A pod.
    Pod(QueuedPod),
    /// A group with its pods.
    Group(QueuedGroup),
}

/// The scheduling queue.
pub struct SchedulingQueue {
    options: QueueOptions,
    sort: Arc<GuardedSort>,
    hints: QueueingHints,
    entries: FxHashMap<Uid, QueuedPod>,
    /// The number of queued pods that each plugin rejected, by profile.
    rejected: FxHashMap<(ProfileIndex, Text), usize>,
    active: Heap<ActiveRank>,
    /// Pods that plugins rejected.
    backoff: Heap<BackoffRank>,
    /// Pods whose attempt failed with an error. They are never popped early.
    error_backoff: Heap<BackoffRank>,
    unschedulable: Unschedulable,
    groups: Groups,
    in_flight: InFlight,
    /// The nominations.
    pub nominator: Nominator,
    next_sequence: u64,
    next_flush: Option<Duration>,
    clock: SteadyClock,
}

impl SchedulingQueue {
    /// An empty queue. `extended` says that there are extenders: they reject pods, too.
    pub fn new(options: QueueOptions, profiles: &Profiles, extended: bool, seed: &HashSeed) -> Self {
        Self {
            options,
            sort: Arc::new(GuardedSort::new(profiles.queue_sort())),
            hints: QueueingHints::new(profiles, extended),
            entries: FxHashMap::default(),
            rejected: FxHashMap::default(),
            active: Heap::default(),
            backoff: Heap::default(),
            error_backoff: Heap::default(),
            unschedulable: Unschedulable::new(seed.clone()),
            groups: Groups::new(seed.clone()),
            in_flight: InFlight::default(),
            nominator: Nominator::default(),
            next_sequence: 0,
            next_flush: None,
            clock: SteadyClock::default(),
        }
    }

    /// A copy for a scheduler with these profiles, which are equal to its own.
    #[must_use]
    pub fn fork(&self, profiles: &Profiles, extended: bool) -> Self {
        Self {
            options: self.options,
            sort: Arc::new(GuardedSort::new(profiles.queue_sort())),
            hints: QueueingHints::new(profiles, extended),
            entries: self.entries.clone(),
            rejected: self.rejected.clone(),
            active: self.active.clone(),
            backoff: self.backoff.clone(),
            error_backoff: self.error_backoff.clone(),
            unschedulable: self.unschedulable.clone(),
            groups: self.groups.clone(),
            in_flight: self.in_flight.clone(),
            nominator: self.nominator.clone(),
            next_sequence: self.next_sequence,
            next_flush: self.next_flush,
            clock: self.clock.clone(),
        }
    }

    /// The place of a pod; `None` if the queue does not know it.
    pub fn place(&self, uid: &Uid) -> Option<Place> {
        if self.in_flight.contains(uid) {
            return Some(Place::InFlight);
        }
        let Some(entry) = self.entries.get(uid) else {
            return match self.groups.entry_of(uid) {
                Some(entry) => self.place(entry),
                None => self.groups.get(uid).map(|_| Place::Aside),
            };
        };
        let uid = entry.uid();
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

    /// A queued pod.
    pub fn get(&self, uid: &Uid) -> Option<&QueuedPod> {
        self.entries.get(uid).or_else(|| self.groups.get(uid))
    }

    /// All queued pods.
    pub fn entries(&self) -> impl Iterator<Item = &QueuedPod> {
        self.entries.values().filter(|entry| entry.group.is_none()).chain(self.groups.iter())
    }

    /// The groups and their pods; `None` without the feature gate GenericWorkload.
    pub fn group_lengths(&self) -> Option<GroupLengths> {
        if !self.options.groups {
            return None;
        }
        let mut lengths = self.groups.aside();
        for (entry, members) in self.groups.queued() {
            let at = match self.place(entry) {
                Some(Place::Active) => 0,
                Some(Place::Backoff) => 1,
                Some(Place::Unschedulable) => 2,
                Some(Place::Gated) => 3,
                _ => continue,
            };
            lengths.groups[at] += 1;
            lengths.pods[at] += members.len();
        }
        Some(lengths)
    }

    pub(crate) fn entity(&self, entry: &QueuedPod) -> Entity {
        if entry.group.is_some() {
            Entity::Group(self.groups.members(entry.uid()).map_or(0, Members::len))
        } else {
            Entity::Pod
        }
    }

    /// Entities in activeQ, backoffQ, unschedulableEntities (without gated ones), gated, and pods
    /// in flight. A group is one entity.
    pub fn lengths(&self) -> [usize; 5] {
        [
            self.active.len(),
            self.backoff.len() + self.error_backoff.len(),
            self.unschedulable.len() - self.unschedulable.gated(),
            self.unschedulable.gated(),
            self.in_flight.len(),
        ]
    }

    /// The number of queued pods that each plugin rejected, by profile; 0 for plugins that rejected
    /// pods before.
    pub fn rejected(&self) -> impl Iterator<Item = (ProfileIndex, &Text, usize)> {
        self.rejected.iter().map(|((profile, plugin), count)| (*profile, plugin, *count))
    }

    /// The number of events of each kind kept for pods in flight.
    pub fn events_in_flight(&self) -> FxHashMap<&ClusterEvent, usize> {
        self.in_flight.count_events()
    }

    /// The queue's time, which a wall clock that is set back does not delay.
    pub fn steady(&mut self, now: Now) -> Now {
        self.clock.observe(now)
    }

    /// The report of a queue-sort plugin's panic since the last call. Pods that could not be
    /// compared keep their order of arrival.
    pub fn sort_panic(&self) -> Option<String> {
        self.sort.take_panic()
    }

    /// The pods nominated for a node. As upstream, only the name is known of a pod that is not
    /// queued, such as one in flight.
    pub fn nominated_on(&self, node: &str) -> Vec<Arc<PodInfo>> {
        let pod = |uid: &Uid| self.get(uid).map(|queued| &queued.pod);
        let resolve = |nominated: &Nominated| match pod(&nominated.uid) {
            Some(pod) => Arc::clone(pod),
            None => Arc::new(nominated.unknown()),
        };
        self.nominator.on_node(node).iter().map(resolve).collect()
    }

    /// The invariants that do not hold.
    pub fn inconsistencies(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (uid, entry) in &self.entries {
            let held = self.unschedulable.uid(entry.sequence) == Some(uid);
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
        let in_classes = self.unschedulable.count_in_classes() + self.unschedulable.entities.len();
        if in_classes != self.unschedulable.len() {
            found.push(format!(
                "{in_classes} of {} unschedulable pods are in classes",
                self.unschedulable.len()
            ));
        }
        if !self.unschedulable.indexes_agree() {
            found.push("a pod is in one index of its group, and not in the other".to_owned());
        }
        let rejected: usize = self.rejected.values().sum();
        let members = self.entries.values().filter_map(|entry| self.groups.members(entry.uid()));
        let counted = self.entries.values().chain(members.flat_map(Members::iter));
        if rejected != counted.map(|entry| entry.rejectors().count()).sum::<usize>() {
            found.push(format!("{rejected} rejections are counted: {:?}", self.rejected));
        }
        if in_flight == 0 && self.in_flight.event_count() > 0 {
            found.push("events are kept, but no pod is in flight".to_owned());
        }
        found.extend(self.groups.inconsistencies());
        found
    }
}

/// Additions, updates and deletions of pods.
impl SchedulingQueue {
    /// Adds a new pod to the active queue.
    pub fn add(&mut self, cx: &mut QueueCx<'_>, pod: Arc<PodInfo>, profile: ProfileIndex) {
        self.add_new(cx, &pod, profile);
        if self.hints.asks_for_unscheduled_pods() {
            let event = ClusterEvent::new(EventResource::UnscheduledPod, ActionType::ADD);
            self.move_all(cx, &event, &Change::Pod { old: None, new: Some(pod) }, PreCheck::All);
        }
    }

    /// Adds a pod that the queue does not know. Its nomination counts even if PreEnqueue holds it.
    fn add_new(&mut self, cx: &mut QueueCx<'_>, pod: &Arc<PodInfo>, profile: ProfileIndex) {
        self.nominator.add(pod, &Nomination::Keep);
        let entry = QueuedPod::new(Arc::clone(pod), profile, cx.now.wall);
        if let Some(group) = self.group_of(pod) {
            self.add_new_member(cx, group, entry);
        } else if is_stalled(pod) {
            self.set_back(cx, entry, &UNSCHEDULED_POD_ADD);
        } else {
            self.move_to_active(cx, entry, EntryReason::new(&UNSCHEDULED_POD_ADD), false);
        }
    }

    /// Delays a pod with which a scheduler has stalled. It counts as a pod whose attempt failed
    /// with an error, so it is not popped early.
    pub(crate) fn set_back(&mut self, cx: &mut QueueCx<'_>, mut entry: QueuedPod, event: &Text) {
        entry.unschedulable_plugins.clear();
        entry.pending_plugins.clear();
        entry.backoff_until = Some(cx.now.wall.plus(stall::delay(&entry.pod, cx.now.wall)));
        self.move_to_backoff(cx, entry, EntryReason::new(event));
    }

    /// Updates a pod without a node.
    pub fn update(
        &mut self,
        cx: &mut QueueCx<'_>,
        old: &Arc<PodInfo>,
        new: &Arc<PodInfo>,
        profile: ProfileIndex,
    ) {
        let uid = &new.uid;
        if self.in_flight.contains(uid) {
            for event in cluster_events::pod_events(&EventResource::TargetPod, old, new) {
                let change = Change::Pod { old: Some(Arc::clone(old)), new: Some(Arc::clone(new)) };
                self.in_flight.note(event, change);
            }
            return;
        }
        if self.options.groups && new.spec.group().is_some() {
            let events = cluster_events::pod_events(&EventResource::TargetPod, old, new);
            if self.update_member(cx, old, new, &events) {
                return;
            }
        }
        let Some(entry) = self.entries.get_mut(uid) else {
            return self.add_new(cx, new, profile);
        };
        let is_unschedulable = self.unschedulable.remove(entry);
        entry.pod = Arc::clone(new);
        if is_unschedulable {
            self.unschedulable.insert(entry, None, || self.hints.reads(entry));
        }
        let (active, backoff) = (ActiveRank::new(entry, &self.sort), BackoffRank::new(entry, &self.sort));
        self.nominator.update(old, new);
        if is_stalled(new) && !is_stalled(old) {
            // The leader has stalled with this pod. This process may be the next one.
            if let Some(entry) = self.take(uid) {
                self.set_back(cx, entry, &TARGET_POD_UPDATE);
            }
        } else if self.active.contains(uid) {
            self.active.change_priority(uid, active);
        } else if self.backoff.contains(uid) {
            self.backoff.change_priority(uid, backoff);
        } else if self.error_backoff.contains(uid) {
            self.error_backoff.change_priority(uid, backoff);
        } else {
            self.requeue_on_own_update(cx, old, new);
        }
    }

    /// Requeues a pod in unschedulableEntities if its own update helps.
    fn requeue_on_own_update(&mut self, cx: &mut QueueCx<'_>, old: &Arc<PodInfo>, new: &Arc<PodInfo>) {
        for event in cluster_events::pod_events(&EventResource::TargetPod, old, new) {
            let Some(entry) = self.entries.get(&new.uid) else {
                return;
            };
            let change = Change::Pod { old: Some(Arc::clone(old)), new: Some(Arc::clone(new)) };
            let strategy = self.hints.strategy(cx, entry, &event, &change);
            if strategy == QueueingStrategy::Skip {
                continue;
            }
            if let Some(mut entry) = self.take(&new.uid) {
                entry.stays = true;
                self.requeue(cx, entry, strategy, &Text::from(event.to_string()));
            }
            if !self.is_unschedulable(&new.uid) {
                return;
            }
        }
    }

    /// Removes a pod that was deleted or bound. A pod in flight is left to its attempt.
    pub fn delete(&mut self, cx: &mut QueueCx<'_>, uid: &Uid) {
        self.nominator.remove(uid);
        if self.take(uid).is_none() && self.options.groups {
            self.delete_member(cx, uid);
        }
    }

    /// Takes a pod out of its queue.
    fn take(&mut self, uid: &Uid) -> Option<QueuedPod> {
        let entry = self.take_entry(uid)?;
        if self.active.remove(uid).is_none()
            && self.backoff.remove(uid).is_none()
            && self.error_backoff.remove(uid).is_none()
        {
            self.unschedulable.remove(&entry);
        }
        Some(entry)
    }

    /// Adds a pod to the queued ones.
    fn put_entry(&mut self, mut entry: QueuedPod) {
        entry.stays = false;
        self.count_rejections(&entry, |total, pods| *total += pods);
        self.entries.insert(entry.uid().clone(), entry);
    }

    fn take_entry(&mut self, uid: &Uid) -> Option<QueuedPod> {
        let entry = self.entries.remove(uid)?;
        self.count_rejections(&entry, |total, pods| *total -= pods);
        Some(entry)
    }

    /// Counts the plugins that rejected a pod, or the members of a group.
    fn count_rejections(&mut self, entry: &QueuedPod, count: impl Fn(&mut usize, usize)) {
        let members = self.groups.members(entry.uid()).map(Members::rejected).into_iter().flatten();
        let of_members =
            members.filter_map(|((profile, plugin), pods)| Some((*profile, plugin.as_ref()?, *pods)));
        let own = entry.rejectors().map(|plugin| (entry.profile, plugin, 1));
        for (profile, plugin, pods) in of_members.chain(own) {
            count(self.rejected.entry((profile, plugin.clone())).or_default(), pods);
        }
    }

    fn is_unschedulable(&self, uid: &Uid) -> bool {
        self.entries.get(uid).is_some_and(|entry| self.unschedulable.contains(entry))
    }
}

/// Attempts.
impl SchedulingQueue {
    /// The next pod to schedule. If none is active, pops one in backoff early, unless its last
    /// attempt failed with an error.
    pub fn pop(&mut self, cx: &mut QueueCx<'_>) -> Option<Popped> {
        loop {
            let uid = match self.active.pop() {
                Some((uid, _)) => uid,
                None if !self.options.pop_from_backoff => return None,
                None => {
                    let (uid, _) = self.backoff.pop()?;
                    // Groups are in the heap of errors.
                    EntryReason::new(&POP_FROM_BACKOFF_Q).report(cx, QueueName::Active, Entity::Pod);
                    uid
                }
            };
            let Some(mut entry) = self.take_entry(&uid) else {
                continue;
            };
            entry.attempts += 1;
            entry.initial_attempt.get_or_insert(cx.now.wall);
            if entry.group.is_some() {
                return Some(Popped::Group(self.begin_group(entry, cx.now.wall)));
            }
            if self.in_flight.begin(uid) {
                return Some(Popped::Pod(entry));
            }
            cx.observer.observe(Observation::Anomaly("a pod in flight was queued again and is dropped"));
        }
    }

    /// The pod that [`pop`](Self::pop) returns next; of a group, the member that is tried first.
    pub fn peek(&self) -> Option<&Arc<PodInfo>> {
        self.next_pods().next()
    }

    /// The same with all members of a group.
    pub fn next_pods(&self) -> impl Iterator<Item = &Arc<PodInfo>> {
        let members =
            |entry: &QueuedPod| self.groups.members(entry.uid()).into_iter().flat_map(Members::iter);
        let members = move |entry| members(entry).map(|member| &member.pod);
        let entry = self.next_entry();
        let alone = entry.filter(|entry| entry.group.is_none()).map(|entry| &entry.pod);
        alone.into_iter().chain(entry.into_iter().flat_map(members))
    }

    fn next_entry(&self) -> Option<&QueuedPod> {
        let active = self.active.peek().map(|(uid, _)| uid);
        let backoff = || self.backoff.peek().map(|(uid, _)| uid).filter(|_| self.options.pop_from_backoff);
        self.entries.get(active.or_else(backoff)?)
    }

    /// Whether [`pop`](Self::pop) has a pod to return.
    pub fn has_poppable(&self) -> bool {
        !self.active.is_empty() || (self.options.pop_from_backoff && !self.backoff.is_empty())
    }

    /// Ends the recording of events: later events are not replayed for this pod.
    pub fn done(&mut self, uid: &Uid) {
        self.in_flight.done(uid);
    }

    /// Requeues a pod whose attempt failed. Events during the attempt decide where it goes.
    pub fn add_unschedulable(&mut self, cx: &mut QueueCx<'_>, mut entry: QueuedPod) {
        let uid = entry.uid().clone();
        if self.get(&uid).is_some() {
            cx.observer.observe(Observation::Anomaly("a pod whose attempt failed is already queued"));
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
        entry.flushed_at = None;
        if let Some(group) = self.group_of(&entry.pod) {
            self.done(&uid);
            return self.add_member(cx, group, entry);
        }
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
