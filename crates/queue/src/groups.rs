//! Groups in the queue: the pods of a group wait, and are tried, as one entity. So do the pods of
//! all groups of a tree.
//!
//! An entry of its own stands for the root in activeQ, backoffQ and unschedulableEntities. It has
//! the root's priority. The members are here, with their own histories.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use supercargo_framework::event::Change;
use supercargo_framework::hash_seed::HashSeed;
use supercargo_framework::objects::{GroupKey, GroupKind};
use supercargo_framework::pod::PodStatus;
use supercargo_framework::{ClusterEvent, PodInfo, Text, Timestamp, Uid};

use crate::aside::Aside;
use crate::context::QueueCx;
use crate::entry::QueuedPod;
use crate::entry_reason::EntryReason;
use crate::members::{Members, Turn};
use crate::queueing_strategy::QueueingStrategy;
use crate::requeue::PreCheck;
use crate::stall::is_stalled;
use crate::unschedulable::claims;
use crate::{Place, SCHEDULE_ATTEMPT_FAILURE, SchedulingQueue, TARGET_POD_UPDATE, UNSCHEDULED_POD_ADD};

/// A group that was popped.
#[derive(Debug)]
pub struct QueuedGroup {
    /// The entry that stands for it, with the history of its attempts.
    pub entry: QueuedPod,
    /// Its key. It has no parent.
    pub key: GroupKey,
    /// The members, also those of groups below it, in the order in which they are tried.
    pub members: Vec<QueuedPod>,
}

/// How the attempt of a group ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupOutcome {
    /// At least one member found a node.
    Scheduled,
    /// The group was rejected.
    Rejected,
    /// The attempt failed with an error.
    Failed,
}

/// How many groups wait, and their pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLengths {
    /// Groups in activeQ, backoffQ, unschedulableEntities (without gated ones), and gated.
    pub groups: [usize; 4],
    /// Their pods.
    pub pods: [usize; 4],
    /// Pods of which a group is unknown.
    pub incomplete: usize,
    /// Pods that came, or came back, while their group is being tried.
    pub pending: usize,
}

/// The members of groups.
#[derive(Clone)]
pub(crate) struct Groups {
    seed: HashSeed,
    /// The members of each queued group, by the UID of its entry.
    queued: FxHashMap<Uid, Members>,
    /// The entry of each member of a queued group, and the member's turn in it.
    known: FxHashMap<Uid, (Uid, Arc<Turn>)>,
    /// The members that name a claim, each with its entry, by the claim's key.
    by_claim: BTreeMap<Box<str>, BTreeSet<(Uid, Arc<Turn>)>>,
    /// Members whose PodGroup has no root.
    incomplete: Aside,
    /// The group that is being tried.
    popped: Option<Popped>,
}

/// The group that is being tried.
#[derive(Clone)]
struct Popped {
    entry: Uid,
    /// The members of the attempt.
    members: FxHashSet<Uid>,
    /// Members that came, or came back, since.
    pending: Aside,
}

impl Groups {
    pub(crate) fn new(seed: HashSeed) -> Self {
        let (queued, known, by_claim) = Default::default();
        Self { seed, queued, known, by_claim, incomplete: Aside::default(), popped: None }
    }

    /// The UID of the entry that stands for a group. Strangers choose the key, so that maps that
    /// hash UIDs without a seed must not see it.
    pub(crate) fn uid_of(&self, key: &GroupKey) -> Uid {
        let [high, low] = [0, 1].map(|half: u8| self.seed.hash_one((half, key)));
        Uid::from(format!("podgroup:{high:016x}{low:016x}").as_str())
    }

    /// The entry of a queued member's group.
    pub(crate) fn entry_of(&self, member: &Uid) -> Option<&Uid> {
        self.known.get(member).map(|(entry, _)| entry)
    }

    /// The members of a queued group.
    pub(crate) fn members(&self, entry: &Uid) -> Option<&Members> {
        self.queued.get(entry)
    }

    pub(crate) fn members_mut(&mut self, entry: &Uid) -> Option<&mut Members> {
        self.queued.get_mut(entry)
    }

    /// Each queued group's entry, with its members.
    pub(crate) fn queued(&self) -> impl Iterator<Item = (&Uid, &Members)> {
        self.queued.iter()
    }

    /// Whether a queued member names a claim.
    pub(crate) fn has_claims(&self) -> bool {
        !self.by_claim.is_empty()
    }

    /// The members that name a claim, each with its entry.
    fn with_claim(&self, claim: &str) -> impl Iterator<Item = &(Uid, Arc<Turn>)> {
        self.by_claim.get(claim).into_iter().flatten()
    }

    /// PreEnqueue will be asked again about the members that name a claim.
    pub(crate) fn forget_answers(&mut self, claim: &str) {
        for (entry, turn) in self.by_claim.get(claim).into_iter().flatten() {
            if let Some(members) = self.queued.get_mut(entry) {
                members.forget_answer(turn);
            }
        }
    }

    /// The lengths of what is in no queue.
    pub(crate) fn aside(&self) -> GroupLengths {
        let pending = self.popped.as_ref().map_or(0, |popped| popped.pending.len());
        GroupLengths { incomplete: self.incomplete.len(), pending, ..GroupLengths::default() }
    }

    /// All members, whether their group is queued, unknown or being tried.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueuedPod> {
        self.queued.values().flat_map(Members::iter).chain(self.waiting_aside().flat_map(Aside::iter))
    }

    /// Members that wait for their PodGroup or for the end of their group's attempt.
    fn waiting_aside(&self) -> impl Iterator<Item = &Aside> {
        [&self.incomplete].into_iter().chain(self.popped.as_ref().map(|popped| &popped.pending))
    }

    /// The same, to change them.
    fn aside_mut(&mut self) -> impl Iterator<Item = &mut Aside> {
        [&mut self.incomplete].into_iter().chain(self.popped.as_mut().map(|popped| &mut popped.pending))
    }

    /// A member, wherever it waits.
    pub(crate) fn get(&self, member: &Uid) -> Option<&QueuedPod> {
        match self.known.get(member) {
            Some((entry, turn)) => self.queued.get(entry)?.get(turn),
            None => self.waiting_aside().find_map(|aside| aside.get(member)),
        }
    }

    /// Drops members. The entries of groups must not be in a queue.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut QueuedPod) -> bool) {
        let mut gone = Vec::new();
        for members in self.queued.values_mut() {
            members.change_all(|member| {
                if !keep(member) {
                    gone.push(member.uid().clone());
                }
            });
        }
        for uid in &gone {
            self.remove(uid);
        }
        self.aside_mut().for_each(|members| members.retain(&mut keep));
    }

    /// Adds a member to a queued group, or to a new one.
    fn insert(&mut self, entry: &Uid, mut member: QueuedPod) {
        member.asked = false;
        let pod = Arc::clone(&member.pod);
        let turn = self.queued.entry(entry.clone()).or_default().insert(member);
        for claim in claims(&pod) {
            self.by_claim.entry(claim).or_default().insert((entry.clone(), Arc::clone(&turn)));
        }
        self.known.insert(pod.uid.clone(), (entry.clone(), turn));
    }

    fn insert_all(&mut self, entry: &Uid, members: Vec<QueuedPod>) {
        for member in members {
            self.insert(entry, member);
        }
    }

    /// Takes a member out of its queued group. The group's entry must not be in a queue if the
    /// member does not come back.
    fn remove(&mut self, uid: &Uid) -> Option<QueuedPod> {
        let named = self.known.remove(uid)?;
        let (entry, turn) = &named;
        let members = self.queued.get_mut(entry)?;
        let member = members.remove(turn)?;
        if members.is_empty() {
            self.queued.remove(entry);
        }
        for claim in claims(&member.pod) {
            if let Some(members) = self.by_claim.get_mut(&claim) {
                members.remove(&named);
                if members.is_empty() {
                    self.by_claim.remove(&claim);
                }
            }
        }
        Some(member)
    }

    /// Takes the members of some PodGroups out of a queued group. Its entry must not be in a queue.
    pub(crate) fn take_members_of(&mut self, entry: &Uid, groups: &BTreeSet<Arc<str>>) -> Vec<QueuedPod> {
        self.take_members(entry, |member| is_in(member, groups))
    }

    /// Takes members of some PodGroups that came, or came back, while their group is being tried.
    pub(crate) fn take_pending_of(&mut self, entry: &Uid, groups: &BTreeSet<Arc<str>>) -> Vec<QueuedPod> {
        let popped = self.popped.as_mut().filter(|popped| popped.entry == *entry);
        popped.map_or_else(Vec::new, |popped| {
            groups.iter().flat_map(|group| popped.pending.take_group(group)).collect()
        })
    }

    /// Takes members in their order.
    fn take_members(&mut self, entry: &Uid, take: impl Fn(&QueuedPod) -> bool) -> Vec<QueuedPod> {
        let members = self.queued.get(entry).into_iter().flat_map(Members::iter);
        let uids: Vec<_> = members.filter(|it| take(it)).map(|it| it.uid().clone()).collect();
        uids.iter().filter_map(|uid| self.remove(uid)).collect()
    }

    /// Takes the members of a PodGroup that had no root.
    pub(crate) fn take_incomplete(&mut self, group: &Arc<str>) -> Vec<QueuedPod> {
        self.incomplete.take_group(group)
    }

    /// Adds members whose PodGroup has no root any more.
    pub(crate) fn add_incomplete(&mut self, members: Vec<QueuedPod>) {
        for member in members {
            self.incomplete.push(member);
        }
    }

    /// The invariants that do not hold.
    pub(crate) fn inconsistencies(&self) -> Vec<String> {
        let mut found = Vec::new();
        let count: usize = self.queued.values().map(Members::len).sum();
        if count != self.known.len() || self.queued.values().any(Members::is_empty) {
            found.push(format!("{count} members are queued, {} are known", self.known.len()));
        }
        for (entry, members) in &self.queued {
            let is_known = |it: &QueuedPod| self.known.get(it.uid()).is_some_and(|(of, _)| of == entry);
            let unknown = members.iter().filter(|it| !is_known(it));
            found.extend(unknown.map(|it| format!("pod {} is in two groups", it.pod.key())));
            if !members.is_consistent() {
                let first = members.iter().next().map(|it| it.pod.key());
                found.push(format!("the group of pod {first:?} is out of order, or counted wrongly"));
            }
        }
        let named = self.by_claim.values().flatten();
        if named.clone().any(|(entry, turn)| self.queued.get(entry).and_then(|it| it.get(turn)).is_none()) {
            found.push("a claim has a member that is not queued".to_owned());
        }
        found
    }
}

/// Whether a member is one of these PodGroups'.
fn is_in(member: &QueuedPod, groups: &BTreeSet<Arc<str>>) -> bool {
    member.pod.group_key().is_some_and(|key| groups.contains(&key))
}

/// The pod that stands for a group: it has the group's name and priority, and a member's spec.
fn stand_in(uid: Uid, key: &GroupKey, priority: i32, member: &PodInfo) -> Arc<PodInfo> {
    Arc::new(PodInfo {
        namespace: Arc::clone(&member.namespace),
        name: key.name().into(),
        uid,
        priority,
        spec: Arc::clone(&member.spec),
        status: PodStatus::default(),
        ..member.clone()
    })
}

impl SchedulingQueue {
    /// The key of the group that the pod is queued with.
    pub(crate) fn group_of(&self, pod: &PodInfo) -> Option<Arc<str>> {
        if self.options.groups { pod.group_key() } else { None }
    }

    /// Adds a member that is new, or came back: to its group if that is queued, beside it if the
    /// group is being tried, or to those whose PodGroup has no root.
    pub(crate) fn add_member(&mut self, cx: &mut QueueCx<'_>, key: Arc<str>, member: QueuedPod) {
        match cx.objects.forest().root_of(&GroupKey::of_pods(key)) {
            Some(root) => self.add_members(cx, &root, vec![member]),
            None => self.groups.incomplete.push(member),
        }
    }

    /// Adds members of a tree. A new entry is as old as the oldest of them. PreEnqueue runs once
    /// for all of them.
    fn add_members(&mut self, cx: &mut QueueCx<'_>, root: &GroupKey, members: Vec<QueuedPod>) {
        let Some(first) = members.first() else { return };
        let entry = self.groups.uid_of(root);
        if let Some(popped) = self.groups.popped.as_mut().filter(|popped| popped.entry == entry) {
            return members.into_iter().for_each(|member| popped.pending.push(member));
        }
        if let Some(taken) = self.take_group(&entry) {
            self.groups.insert_all(&entry, members);
            return self.put_back(cx, taken, &UNSCHEDULED_POD_ADD);
        }
        let priority = cx.objects.forest().spec(root).map_or(0, |spec| spec.priority);
        let stand_in = stand_in(entry.clone(), root, priority, &first.pod);
        let oldest = members.iter().map(|member| member.timestamp).min().unwrap_or(first.timestamp);
        let mut queued = QueuedPod::new(stand_in, first.profile, oldest);
        queued.group = Some(root.kind);
        self.groups.insert_all(&entry, members);
        self.move_to_active(cx, queued, EntryReason::new(&UNSCHEDULED_POD_ADD), false);
    }

    /// Takes a group's entry out of its queue, with the strategy that leads back to it.
    pub(crate) fn take_group(&mut self, entry: &Uid) -> Option<(QueuedPod, QueueingStrategy)> {
        let strategy = match self.place(entry)? {
            Place::Active => QueueingStrategy::Immediately,
            Place::Backoff => QueueingStrategy::AfterBackoff,
            _ => QueueingStrategy::Skip,
        };
        Some((self.take(entry)?, strategy))
    }

    /// Queues a group again whose members changed. PreEnqueue runs unless the group waits for an
    /// event.
    pub(crate) fn put_back(
        &mut self,
        cx: &mut QueueCx<'_>,
        (queued, strategy): (QueuedPod, QueueingStrategy),
        event: &Text,
    ) {
        if self.groups.queued.contains_key(queued.uid()) {
            self.requeue(cx, queued, strategy, event);
        }
    }

    /// Adds a member that is new. Its group is delayed if a scheduler has stalled with it.
    pub(crate) fn add_new_member(&mut self, cx: &mut QueueCx<'_>, key: Arc<str>, member: QueuedPod) {
        let stalled = Some(Arc::clone(&member.pod)).filter(|pod| is_stalled(pod));
        self.add_member(cx, key, member);
        if let Some(pod) = stalled {
            self.set_back_group(cx, &pod, &UNSCHEDULED_POD_ADD);
        }
    }

    /// The same with members whose PodGroups have got this root.
    pub(crate) fn add_new_members(&mut self, cx: &mut QueueCx<'_>, root: &GroupKey, members: Vec<QueuedPod>) {
        let stalled = members.iter().map(|member| &member.pod).rfind(|pod| is_stalled(pod)).cloned();
        self.add_members(cx, root, members);
        if let Some(pod) = stalled {
            self.set_back_group(cx, &pod, &UNSCHEDULED_POD_ADD);
        }
    }

    /// Delays the group of a pod with which a scheduler has stalled. The group's entry takes over
    /// the mark until its next attempt ends.
    fn set_back_group(&mut self, cx: &mut QueueCx<'_>, member: &PodInfo, event: &Text) {
        let entry = self.groups.entry_of(&member.uid).cloned();
        if let Some(mut queued) = entry.and_then(|entry| self.take(&entry)) {
            let (status, generation) = (member.status.clone(), member.generation);
            queued.pod = Arc::new(PodInfo { status, generation, ..PodInfo::clone(&queued.pod) });
            self.set_back(cx, queued, event);
        }
    }

    /// Removes a member that was deleted or bound.
    pub(crate) fn delete_member(&mut self, cx: &mut QueueCx<'_>, uid: &Uid) {
        if let Some(entry) = self.groups.entry_of(uid).cloned() {
            let taken = self.take_group(&entry);
            self.groups.remove(uid);
            if let Some(taken) = taken {
                self.put_back(cx, taken, &UNSCHEDULED_POD_ADD);
            }
            return;
        }
        self.groups.aside_mut().for_each(|aside| drop(aside.remove(uid)));
    }

    /// Updates a member that is queued, or waits beside the queue; `false` if it is not known.
    pub(crate) fn update_member(
        &mut self,
        cx: &mut QueueCx<'_>,
        old: &Arc<PodInfo>,
        new: &Arc<PodInfo>,
        events: &[ClusterEvent],
    ) -> bool {
        let Some(entry) = self.groups.entry_of(&new.uid).cloned() else {
            let Some(member) = self.groups.aside_mut().find_map(|aside| aside.get_mut(&new.uid)) else {
                return false;
            };
            member.pod = Arc::clone(new);
            self.nominator.update(old, new);
            return true;
        };
        if let Some(mut member) = self.groups.remove(&new.uid) {
            member.pod = Arc::clone(new);
            self.groups.insert(&entry, member);
        }
        self.nominator.update(old, new);
        if is_stalled(new) && !is_stalled(old) {
            // The leader has stalled with this pod. This process may be the next one.
            self.set_back_group(cx, new, &TARGET_POD_UPDATE);
            return true;
        }
        for event in events {
            let Some(queued) = self.entries.get(&entry).filter(|queued| self.unschedulable.contains(queued))
            else {
                break;
            };
            let change = Change::Pod { old: Some(Arc::clone(old)), new: Some(Arc::clone(new)) };
            let strategy = self.group_strategy(cx, queued, None, event, &change);
            if strategy != QueueingStrategy::Skip
                && let Some(mut queued) = self.take(&entry)
            {
                queued.stays = true;
                self.requeue(cx, queued, strategy, &event.to_string().into());
            }
        }
        true
    }

    /// The groups in unschedulableEntities that an event may help.
    pub(crate) fn movable_entities(
        &self,
        cx: &mut QueueCx<'_>,
        event: &ClusterEvent,
        change: &Change,
        pre_check: PreCheck,
    ) -> Vec<(u64, QueueingStrategy)> {
        // Each with the members to ask hints about; `None` stands for all.
        let mut concerned: BTreeMap<u64, Option<Vec<&Turn>>> = BTreeMap::new();
        for (rejection, sequences) in self.unschedulable.entities.by_rejection() {
            let reach = self.hints.reach(rejection, event, change);
            if reach.all {
                concerned.extend(sequences.iter().map(|sequence| (*sequence, None)));
                continue;
            }
            let sequence_of = |entry: &Uid| {
                let sequence = self.entries.get(entry).map(|queued| queued.sequence);
                sequence.filter(|sequence| sequences.contains(sequence))
            };
            for (entry, turn) in reach.claims.iter().flat_map(|claim| self.groups.with_claim(claim)) {
                let turns = sequence_of(entry)
                    .and_then(|it| concerned.entry(it).or_insert(Some(Vec::new())).as_mut());
                if let Some(turns) = turns {
                    turns.push(&**turn);
                }
            }
            // Gangs that wait for pods: a new pod concerns one of them.
            let roots = reach.groups.iter().filter_map(|key| cx.objects.forest().root_of(key));
            let named = roots.filter_map(|root| sequence_of(&self.groups.uid_of(&root)));
            concerned.extend(named.map(|sequence| (sequence, None)));
        }
        let waiting =
            concerned.iter().filter_map(|(sequence, turns)| Some((self.waiting(*sequence)?, turns)));
        let admitted = waiting.filter(|(queued, _)| pre_check.admits(queued.pod.priority));
        admitted
            .map(|(queued, turns)| {
                (queued.sequence, self.group_strategy(cx, queued, turns.as_deref(), event, change))
            })
            .collect()
    }

    /// What an event means for a group: the best that it means for a member, or for one of these.
    fn group_strategy(
        &self,
        cx: &mut QueueCx<'_>,
        queued: &QueuedPod,
        turns: Option<&[&Turn]>,
        event: &ClusterEvent,
        change: &Change,
    ) -> QueueingStrategy {
        let Some(members) = self.groups.members(queued.uid()) else { return QueueingStrategy::Skip };
        let best_possible = members.best_possible_strategy();
        let all = members.iter().filter(|_| turns.is_none());
        let some = turns.into_iter().flatten().filter_map(|turn| members.get(turn));
        let mut best = QueueingStrategy::Skip;
        for member in all.chain(some) {
            best = best.max(self.hints.strategy(cx, member, event, change));
            if best >= best_possible {
                break;
            }
        }
        best
    }

    /// Begins the attempt of a group that was popped.
    pub(crate) fn begin_group(&mut self, entry: QueuedPod, now: Timestamp) -> QueuedGroup {
        let mut members = self.groups.take_members(entry.uid(), |_| true);
        for member in &mut members {
            member.attempts += 1;
            member.initial_attempt.get_or_insert(now);
            self.in_flight.begin(member.uid().clone());
        }
        let uids = members.iter().map(|member| member.uid().clone()).collect();
        self.groups.popped =
            Some(Popped { entry: entry.uid().clone(), members: uids, pending: Aside::default() });
        let key = format!("{}/{}", entry.pod.namespace, entry.pod.name).into();
        let kind = entry.group.unwrap_or(GroupKind::Pods);
        QueuedGroup { entry, key: GroupKey { kind, key }, members }
    }

    /// Ends the attempt of a group: members that came back, or are new, are queued
    /// again. A group that failed waits for its backoff; no event ends it early. The rest of a
    /// group that was scheduled in part keeps its turn.
    pub fn end_group(&mut self, cx: &mut QueueCx<'_>, mut entry: QueuedPod, outcome: GroupOutcome) {
        let Some(popped) = self.groups.popped.take_if(|popped| popped.entry == *entry.uid()) else { return };
        if popped.pending.len() == 0 {
            return;
        }
        let comes_back = popped.pending.iter().any(|member| popped.members.contains(member.uid()));
        let pods = popped.pending.len();
        self.groups.insert_all(&popped.entry, popped.pending.take_all());
        match outcome {
            GroupOutcome::Scheduled => (entry.unschedulable_count, entry.consecutive_errors) = (0, 0),
            GroupOutcome::Rejected => {
                entry.unschedulable_count += 1;
                entry.consecutive_errors = 0;
            }
            GroupOutcome::Failed => entry.consecutive_errors += 1,
        }
        let is_scheduled = outcome == GroupOutcome::Scheduled;
        if !(is_scheduled && comes_back) {
            entry.timestamp = cx.now.wall;
        }
        if is_stalled(&entry.pod) {
            entry.pod = Arc::new(PodInfo { status: PodStatus::default(), ..PodInfo::clone(&entry.pod) });
        }
        entry.flushed = false;
        entry.flushed_at = None;
        entry.set_backoff(&self.options.backoff.of_group(pods), self.options.window());
        if !is_scheduled && entry.is_backing_off(self.options.window(), cx.now.wall) {
            self.move_to_backoff(cx, entry, EntryReason::new(&SCHEDULE_ATTEMPT_FAILURE));
        } else {
            self.move_to_active(cx, entry, EntryReason::new(&SCHEDULE_ATTEMPT_FAILURE), false);
        }
    }
}
