//! The members of a queued group, with counts of what the queue asks about all of them: the pods of
//! a large group come and change one by one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use supercargo_framework::{Text, Timestamp, Uid};
use supercargo_runtime::profile::ProfileIndex;

use crate::entry::QueuedPod;
use crate::queueing_strategy::QueueingStrategy;

/// The turn of a member. Members are tried by priority, then those tried more often, then the
/// oldest, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    priority: Reverse<i32>,
    attempts: Reverse<u32>,
    timestamp: Timestamp,
    name: Arc<str>,
    uid: Uid,
}

/// A plugin, or none, in a profile.
pub(crate) type InProfile = (ProfileIndex, Option<Text>);

/// The members of a queued group.
#[derive(Clone, Default)]
pub(crate) struct Members {
    by_turn: BTreeMap<Arc<Turn>, QueuedPod>,
    index: Index,
}

/// What is known about all members.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Index {
    /// The members about which PreEnqueue was asked, by the plugin that holds them.
    asked: BTreeMap<InProfile, BTreeSet<Arc<Turn>>>,
    /// The others.
    unasked: BTreeSet<Arc<Turn>>,
    /// The number of members that each plugin rejected. `None` stands for a member that no plugin
    /// rejected.
    rejected: BTreeMap<InProfile, usize>,
    /// The number of members for which a plugin returned Pending.
    pending: usize,
}

impl Turn {
    fn of(member: &QueuedPod) -> Self {
        Self {
            priority: Reverse(member.pod.priority),
            attempts: Reverse(member.attempts),
            timestamp: member.timestamp,
            name: Arc::clone(&member.pod.name),
            uid: member.uid().clone(),
        }
    }
}

/// Sorts members of a group in the order in which they are tried.
pub fn sort_members(members: &mut [QueuedPod]) {
    members.sort_by_cached_key(Turn::of);
}

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.by_turn.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }

    /// The members in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueuedPod> {
        self.by_turn.values()
    }

    pub(crate) fn get(&self, turn: &Turn) -> Option<&QueuedPod> {
        self.by_turn.get(turn)
    }

    pub(crate) fn insert(&mut self, member: QueuedPod) -> Arc<Turn> {
        let turn = Arc::new(Turn::of(&member));
        self.put(Arc::clone(&turn), member);
        turn
    }

    fn put(&mut self, turn: Arc<Turn>, member: QueuedPod) {
        self.index.add(&turn, &member);
        self.by_turn.insert(turn, member);
    }

    pub(crate) fn remove(&mut self, turn: &Turn) -> Option<QueuedPod> {
        let member = self.by_turn.remove(turn)?;
        self.index.remove(turn, &member);
        Some(member)
    }

    /// PreEnqueue will be asked about this member again.
    pub(crate) fn forget_answer(&mut self, turn: &Arc<Turn>) {
        if let Some(mut member) = self.remove(turn) {
            member.asked = false;
            self.put(Arc::clone(turn), member);
        }
    }

    /// Changes members. `change` must leave their turns.
    pub(crate) fn change_all(&mut self, change: impl FnMut(&mut QueuedPod)) {
        self.by_turn.values_mut().for_each(change);
        self.index = Index::of(&self.by_turn);
    }

    /// Runs PreEnqueue with `ask`, for all members or for those about which it was not asked.
    pub(crate) fn ask(&mut self, all: bool, mut ask: impl FnMut(&mut QueuedPod)) {
        let mut ask = |member: &mut QueuedPod| {
            ask(member);
            member.asked = true;
        };
        if all || self.index.unasked.len() > self.len() / 4 {
            return self.change_all(|member| {
                if all || !member.asked {
                    ask(member);
                }
            });
        }
        for turn in std::mem::take(&mut self.index.unasked) {
            if let Some(mut member) = self.remove(&turn) {
                ask(&mut member);
                self.put(turn, member);
            }
        }
    }

    /// Asks PreEnqueue again about one member for each answer that there is, of each profile.
    /// Whether all of them stay; `false` if none was asked before.
    pub(crate) fn answers_stay(&mut self, mut ask: impl FnMut(&mut QueuedPod)) -> bool {
        let first = self.index.asked.values().filter_map(BTreeSet::first).cloned().collect::<Vec<_>>();
        let mut stays = |turn: Arc<Turn>| {
            let Some(mut member) = self.remove(&turn) else { return false };
            let before = member.gating_plugin.clone();
            ask(&mut member);
            let stays = member.gating_plugin == before;
            self.put(turn, member);
            stays
        };
        !first.is_empty() && first.into_iter().all(&mut stays)
    }

    /// The plugin that holds the last of the members that are held.
    pub(crate) fn held_by(&self) -> Option<&Text> {
        let held = self
            .index
            .asked
            .iter()
            .filter_map(|((_, plugin), turns)| Some((turns.last()?, plugin.as_ref()?)));
        held.max().map(|(_, plugin)| plugin)
    }

    /// The number of members that each plugin rejected. `None` stands for a member that no plugin
    /// rejected.
    pub(crate) fn rejected(&self) -> &BTreeMap<InProfile, usize> {
        &self.index.rejected
    }

    /// The best strategy that an event can lead to.
    pub(crate) fn best_possible_strategy(&self) -> QueueingStrategy {
        if self.index.pending == 0 { QueueingStrategy::AfterBackoff } else { QueueingStrategy::Immediately }
    }

    /// Whether the members are in order, and are counted as they are.
    pub(crate) fn is_consistent(&self) -> bool {
        let in_order = self.by_turn.iter().all(|(turn, member)| **turn == Turn::of(member));
        in_order && self.index == Index::of(&self.by_turn)
    }
}

impl Index {
    fn of(members: &BTreeMap<Arc<Turn>, QueuedPod>) -> Self {
        let mut index = Self::default();
        for (turn, member) in members {
            index.add(turn, member);
        }
        index
    }

    fn add(&mut self, turn: &Arc<Turn>, member: &QueuedPod) {
        let turns =
            if member.asked { self.asked.entry(answer(member)).or_default() } else { &mut self.unasked };
        turns.insert(Arc::clone(turn));
        for rejector in rejectors(member) {
            *self.rejected.entry(rejector).or_default() += 1;
        }
        self.pending += usize::from(!member.pending_plugins.is_empty());
    }

    fn remove(&mut self, turn: &Turn, member: &QueuedPod) {
        if member.asked {
            let answer = answer(member);
            if let Some(turns) = self.asked.get_mut(&answer) {
                turns.remove(turn);
                if turns.is_empty() {
                    self.asked.remove(&answer);
                }
            }
        } else {
            self.unasked.remove(turn);
        }
        for rejector in rejectors(member) {
            if let Some(count) = self.rejected.get_mut(&rejector) {
                *count -= 1;
                if *count == 0 {
                    self.rejected.remove(&rejector);
                }
            }
        }
        self.pending -= usize::from(!member.pending_plugins.is_empty());
    }
}

fn answer(member: &QueuedPod) -> InProfile {
    (member.profile, member.gating_plugin.clone())
}

fn rejectors(member: &QueuedPod) -> impl Iterator<Item = InProfile> {
    let none = (!member.has_rejectors()).then_some(None);
    let rejectors = member.rejectors().map(|plugin| Some(plugin.clone())).chain(none);
    rejectors.map(|plugin| (member.profile, plugin))
}
