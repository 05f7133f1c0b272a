//! Moves of pods between the queues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::event::Change;
use supercargo_framework::objects::GroupKind;
use supercargo_framework::{ClusterEvent, Code, Now, PodInfo, Text, Timestamp, Uid};

use super::context::QueueCx;
use super::entry::QueuedPod;
use super::entry_reason::EntryReason;
use super::hints::{Concerned, PodReach};
use super::queueing_strategy::QueueingStrategy;
use super::rank::{ActiveRank, BackoffRank};
use super::unschedulable::Group;
use super::{SCHEDULE_ATTEMPT_FAILURE, SchedulingQueue};
use supercargo_runtime::observer::{Point, QueueName};
use supercargo_runtime::panic_guard::guard;
use supercargo_runtime::phase_timer::PhaseTimer;
use supercargo_runtime::profile::Named;

/// The event that moves a pod that waited too long.
const UNSCHEDULABLE_TIMEOUT: ClusterEvent = ClusterEvent::wildcard("UnschedulableTimeout");
/// The event of a plugin's Activate command.
const FORCE_ACTIVATE: ClusterEvent = ClusterEvent::wildcard("ForceActivate");

const ACTIVATED: Text = Text::Static("ForceActivate");
const BACKOFF_COMPLETE: Text = Text::Static("BackoffComplete");

/// The pods that an event may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreCheck {
    /// All.
    All,
    /// All but the pod that the event is about.
    Others,
    /// Those with this priority or a lower one.
    MaxPriority(i32),
}

impl PreCheck {
    pub(crate) fn admits(self, priority: i32) -> bool {
        match self {
            Self::All | Self::Others => true,
            Self::MaxPriority(max) => priority <= max,
        }
    }

    /// Whether it admits the pod that the event is about.
    fn admits_own(self, priority: i32) -> bool {
        self != Self::Others && self.admits(priority)
    }
}

/// The period of looking for pods that waited too long.
const FLUSH_PERIOD: Duration = Duration::from_secs(30);

impl SchedulingQueue {
    /// Moves every pod that passes `pre_check` and that the event may help, and records the event
    /// for pods in flight.
    pub fn move_all(
        &mut self,
        cx: &mut QueueCx<'_>,
        event: &ClusterEvent,
        change: &Change,
        pre_check: PreCheck,
    ) {
        if self.hints.interested(event) {
            if self.groups.has_claims() {
                for claim in self.hints.claims(event, change) {
                    self.groups.forget_answers(claim);
                }
            }
            let pods = self.movable(cx, event, change, pre_check);
            #[cfg(test)]
            assert_eq!(pods, self.movable_one_by_one(cx, event, change, pre_check), "{event}");
            self.move_pods(cx, pods, event);
            self.in_flight.note(event.clone(), change.clone());
        }
    }

    /// The pods in unschedulableEntities that the event may help, in their order of arrival. Hints
    /// are asked about one pod of each class, and about the pod that the event is about.
    fn movable(
        &self,
        cx: &mut QueueCx<'_>,
        event: &ClusterEvent,
        change: &Change,
        pre_check: PreCheck,
    ) -> Vec<(Uid, QueueingStrategy)> {
        let own = changed_pod(change).and_then(|pod| self.entries.get(&pod.uid));
        let own = own.filter(|entry| self.unschedulable.contains(entry));
        let mut movable = Vec::new();
        if let Some(own) = own.filter(|own| pre_check.admits_own(own.pod.priority))
            && !self.hints.is_held(own.gating_plugin.as_ref(), event)
        {
            movable.push((own.sequence, self.hints.strategy(cx, own, event, change)));
        }
        let own = own.map(|own| own.sequence);
        for group in self.unschedulable.groups() {
            let first = group.pods().next();
            let Some(any) = first.and_then(|(sequence, _)| self.waiting(sequence)) else { continue };
            if !self.hints.is_held(any.gating_plugin.as_ref(), event) {
                let hints = self.hints.concerned(any, event, change);
                movable_of_group(cx, group, &hints, pre_check, own, &mut movable);
            }
        }
        movable.extend(self.movable_entities(cx, event, change, pre_check));
        movable.retain(|(_, strategy)| *strategy != QueueingStrategy::Skip);
        movable.sort_unstable_by_key(|(sequence, _)| *sequence);
        let uid = |sequence| self.unschedulable.uid(sequence).cloned();
        movable.into_iter().filter_map(|(sequence, strategy)| Some((uid(sequence)?, strategy))).collect()
    }

    /// The pod in unschedulableEntities with a sequence number.
    pub(crate) fn waiting(&self, sequence: u64) -> Option<&QueuedPod> {
        self.entries.get(self.unschedulable.uid(sequence)?)
    }

    fn move_pods(&mut self, cx: &mut QueueCx<'_>, pods: Vec<(Uid, QueueingStrategy)>, event: &ClusterEvent) {
        let cause = Text::from(event.to_string());
        for (uid, strategy) in pods {
            if let Some(entry) = self.take(&uid) {
                self.requeue(cx, entry, strategy, &cause);
            }
        }
    }

    /// Moves a pod to the active queue on a plugin's command.
    pub fn activate(&mut self, cx: &mut QueueCx<'_>, pod: &Arc<PodInfo>) {
        let uid = &pod.uid;
        if self.in_flight.contains(uid) {
            let change = Change::Pod { old: None, new: Some(Arc::clone(pod)) };
            self.in_flight.note(FORCE_ACTIVATE, change);
            return;
        }
        let uid = self.groups.entry_of(uid).cloned().unwrap_or_else(|| uid.clone());
        let uid = &uid;
        let from_backoff = self.backoff.contains(uid) || self.error_backoff.contains(uid);
        if !self.active.contains(uid)
            && let Some(mut entry) = self.take(uid)
        {
            entry.stays = !from_backoff;
            self.move_to_active(cx, entry, EntryReason::new(&ACTIVATED), from_backoff);
        }
    }

    /// The same with several pods; with those of a group, once.
    pub fn activate_all(&mut self, cx: &mut QueueCx<'_>, pods: &[Arc<PodInfo>]) {
        let mut activated = BTreeSet::new();
        for pod in pods {
            let entry = self.groups.entry_of(&pod.uid).unwrap_or(&pod.uid);
            if activated.insert(entry.clone()) {
                self.activate(cx, pod);
            }
        }
    }

    /// Requeues a pod for an immediate attempt. The failed one does not count.
    pub fn retry(&mut self, cx: &mut QueueCx<'_>, mut entry: QueuedPod, event: &Text) {
        self.done(entry.uid());
        entry.timestamp = cx.now.wall;
        if let Some(group) = self.group_of(&entry.pod) {
            return self.add_member(cx, group, entry);
        }
        self.move_to_active(cx, entry, EntryReason::new(event), false);
    }

    /// Moves a pod, or the group that it is queued with, from unschedulableEntities as if its
    /// attempt had failed by an error: it is tried again after its backoff, and not before that
    /// because no other pod waits.
    pub fn retry_after_backoff(&mut self, cx: &mut QueueCx<'_>, pod: &Uid) {
        let uid = &self.groups.entry_of(pod).unwrap_or(pod).clone();
        if self.entries.get(uid).is_some_and(|entry| self.unschedulable.contains(entry))
            && let Some(mut entry) = self.take(uid)
        {
            entry.unschedulable_plugins.clear();
            entry.pending_plugins.clear();
            self.requeue(cx, entry, QueueingStrategy::AfterBackoff, &SCHEDULE_ATTEMPT_FAILURE);
        }
    }

    /// Moves the pods whose time has come.
    pub fn tick(&mut self, cx: &mut QueueCx<'_>) {
        self.flush_backoff(cx);
        let due = *self.next_flush.get_or_insert(cx.now.monotonic + FLUSH_PERIOD);
        if cx.now.monotonic >= due {
            self.next_flush = Some(cx.now.monotonic + FLUSH_PERIOD);
            self.flush_unschedulable(cx);
        }
    }

    /// The time until [`tick`](Self::tick) has something to do.
    pub fn next_deadline(&self, now: Now) -> Duration {
        let now = self.clock.at(now);
        let flush = self.next_flush.map_or(FLUSH_PERIOD, |due| due.saturating_sub(now.monotonic));
        let heads = [self.backoff.peek(), self.error_backoff.peek()];
        let backoff = heads
            .into_iter()
            .flatten()
            .map(|(_, rank)| self.options.window().end(rank.until()).since(now.wall));
        backoff.chain([flush]).min().unwrap_or(flush)
    }

    fn flush_backoff(&mut self, cx: &mut QueueCx<'_>) {
        while let Some(uid) = self.completed(cx.now.wall) {
            if let Some(entry) = self.take(&uid) {
                self.move_to_active(cx, entry, EntryReason::new(&BACKOFF_COMPLETE), true);
            }
        }
    }

    /// A pod whose backoff has ended.
    fn completed(&self, now: Timestamp) -> Option<Uid> {
        [&self.backoff, &self.error_backoff].into_iter().find_map(|heap| {
            let (uid, rank) = heap.peek()?;
            self.options.window().is_over(rank.until(), now).then(|| uid.clone())
        })
    }

    /// Moves the pods that waited too long. Asks PreEnqueue again about those that it holds.
    fn flush_unschedulable(&mut self, cx: &mut QueueCx<'_>) {
        let now = cx.now.wall;
        let longest = self.options.max_in_unschedulable;
        let waiting = self.unschedulable.uids().filter_map(|uid| self.entries.get(uid));
        let overdue = waiting.filter(|pod| now.since(pod.waits_since()) > longest);
        let pods: Vec<_> = overdue.map(|pod| (pod.uid().clone(), QueueingStrategy::AfterBackoff)).collect();
        if pods.is_empty() {
            return;
        }
        for (uid, _) in &pods {
            if let Some(entry) = self.entries.get_mut(uid) {
                entry.flushed = true;
                entry.flushed_at = Some(now);
            }
        }
        self.move_pods(cx, pods, &UNSCHEDULABLE_TIMEOUT);
        self.in_flight.note(UNSCHEDULABLE_TIMEOUT, Change::Unspecified);
    }

    pub(crate) fn requeue(
        &mut self,
        cx: &mut QueueCx<'_>,
        entry: QueuedPod,
        strategy: QueueingStrategy,
        event: &Text,
    ) {
        let cause = EntryReason::chosen(event, strategy);
        let uid = entry.uid().clone();
        let is_noted = entry.group.is_none() && entry.gating_plugin.is_none();
        match strategy {
            QueueingStrategy::Skip => self.insert_unschedulable(cx, entry, cause),
            QueueingStrategy::AfterBackoff if entry.is_backing_off(self.options.window(), cx.now.wall) => {
                self.move_to_backoff(cx, entry, cause);
            }
            QueueingStrategy::AfterBackoff | QueueingStrategy::Immediately => {
                self.move_to_active(cx, entry, cause, false);
            }
        }
        if is_noted && !self.is_unschedulable(&uid) {
            cx.woken.push(uid);
        }
    }

    /// PreEnqueue runs here, except for pods that passed it on their way to backoff.
    pub(crate) fn move_to_active(
        &mut self,
        cx: &mut QueueCx<'_>,
        mut entry: QueuedPod,
        cause: EntryReason<'_>,
        from_backoff: bool,
    ) {
        let has_passed = from_backoff && self.options.pop_from_backoff;
        if !has_passed && !self.passes_pre_enqueue(cx, &mut entry) {
            self.insert_unschedulable(cx, entry, cause);
            return;
        }
        entry.initial_attempt.get_or_insert(cx.now.wall);
        entry.sequence = self.take_sequence();
        cause.report(cx, QueueName::Active, self.entity(&entry));
        self.active.push(entry.uid().clone(), ActiveRank::new(&entry, &self.sort));
        self.put_entry(entry);
    }

    pub(crate) fn move_to_backoff(
        &mut self,
        cx: &mut QueueCx<'_>,
        mut entry: QueuedPod,
        cause: EntryReason<'_>,
    ) {
        // Pods may be popped from backoffQ.
        if self.options.pop_from_backoff && !self.passes_pre_enqueue(cx, &mut entry) {
            self.insert_unschedulable(cx, entry, cause);
            return;
        }
        entry.sequence = self.take_sequence();
        cause.report(cx, QueueName::Backoff, self.entity(&entry));
        let heap = if entry.has_rejectors() { &mut self.backoff } else { &mut self.error_backoff };
        heap.push(entry.uid().clone(), BackoffRank::new(&entry, &self.sort));
        self.put_entry(entry);
    }

    /// Runs PreEnqueue, of the members if the entry is a group; `false` if a plugin holds one.
    ///
    /// Of a PodGroup whose pods come one by one, all would be asked each time. As long as the
    /// answers about some that were asked before stay, so do those about the others.
    fn passes_pre_enqueue(&mut self, cx: &mut QueueCx<'_>, entry: &mut QueuedPod) -> bool {
        if entry.group.is_none() {
            return run_pre_enqueue(cx, entry);
        }
        entry.gating_plugin = None;
        if let Some(members) = self.groups.members_mut(entry.uid()) {
            let mut ask = |member: &mut QueuedPod| {
                run_pre_enqueue(cx, member);
            };
            let stays = entry.group == Some(GroupKind::Pods) && members.answers_stay(&mut ask);
            members.ask(!stays, ask);
            entry.gating_plugin = members.held_by().cloned();
        }
        // If it is held, it is not tried now. What wakes it next need not be a flush.
        entry.flushed &= entry.gating_plugin.is_none();
        entry.gating_plugin.is_none()
    }

    fn insert_unschedulable(&mut self, cx: &mut QueueCx<'_>, mut entry: QueuedPod, cause: EntryReason<'_>) {
        if !entry.stays {
            cause.report(cx, QueueName::Unschedulable, self.entity(&entry));
        }
        entry.sequence = self.take_sequence();
        let members = self.groups.members(entry.uid());
        self.unschedulable.insert(&entry, members, || self.hints.reads(&entry));
        self.put_entry(entry);
    }

    fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }
}

/// Adds the pods of a group that the hints queue, without the one that the event is about.
fn movable_of_group(
    cx: &mut QueueCx<'_>,
    group: &Group,
    hints: &Concerned<'_>,
    pre_check: PreCheck,
    own: Option<u64>,
    movable: &mut Vec<(u64, QueueingStrategy)>,
) {
    if hints.is_empty() {
        return;
    }
    if let Some(claim) = hints.claim() {
        let pods = group.pods_of_claim(claim).filter(|(sequence, _)| own != Some(*sequence));
        let admitted = pods.filter(|(_, pod)| pre_check.admits(pod.priority));
        movable.extend(admitted.map(|(sequence, pod)| (sequence, hints.strategy(cx, pod))));
        return;
    }
    let mut others = group.pods().filter(|(sequence, _)| own != Some(*sequence));
    let Some((_, any)) = others.next() else { return };
    let scope = hints.scope();
    let is_one_answer = scope.is_empty();
    let reach = if is_one_answer { PodReach::ALL } else { hints.pod_reach(cx, any) };
    let mut answer = None;
    for class in group.classes_within(scope, &reach).filter(|class| pre_check.admits(class.priority)) {
        let mut pods = class.pods().filter(|(sequence, _)| own != Some(*sequence)).peekable();
        let Some((_, first)) = pods.peek() else { continue };
        let strategy = match answer {
            Some(strategy) if is_one_answer => strategy,
            _ => *answer.insert(hints.strategy(cx, first)),
        };
        if strategy != QueueingStrategy::Skip {
            movable.extend(pods.map(|(sequence, _)| (sequence, strategy)));
        } else if is_one_answer {
            return;
        }
    }
}

/// The pod that an event is about.
fn changed_pod(change: &Change) -> Option<&PodInfo> {
    change.new_pod().or_else(|| change.old_pod()).map(|pod| &**pod)
}

/// Runs PreEnqueue; `false` if a plugin holds the pod.
fn run_pre_enqueue(cx: &mut QueueCx<'_>, entry: &mut QueuedPod) -> bool {
    let pod = Arc::clone(&entry.pod);
    let timer = PhaseTimer::start(cx.observer, entry.profile, &pod, cx.observer.watches_plugins());
    let status = ask_pre_enqueue(cx, entry, &timer);
    timer.point(Point::PreEnqueue, status);
    status == Code::Success
}

/// Runs the plugin that held the pod last first. A plugin that panics holds the pod.
fn ask_pre_enqueue(cx: &mut QueueCx<'_>, entry: &mut QueuedPod, timer: &PhaseTimer<'_>) -> Code {
    let plugins = &cx.profiles.get(entry.profile).pre_enqueue;
    let last = entry.gating_plugin.take();
    let is_last = |name: &str| last.as_deref() == Some(name);
    let first = plugins.iter().filter(|plugin| is_last(plugin.name));
    let rest = plugins.iter().filter(|plugin| !is_last(plugin.name));
    for Named { name, plugin } in first.chain(rest) {
        let call = || plugin.pre_enqueue(&cx.for_plugins(), &entry.pod).code();
        let answer = guard("PreEnqueue", name, || timer.plugin(Point::PreEnqueue, name, call, |code| *code));
        let code = answer.unwrap_or_else(|panic| {
            cx.panic = Some(panic);
            Code::Error
        });
        if code != Code::Success {
            entry.unschedulable_plugins.insert((*name).into());
            entry.gating_plugin = Some((*name).into());
            // It is not tried now. What wakes it next need not be a flush.
            entry.flushed = false;
            return code;
        }
    }
    Code::Success
}
