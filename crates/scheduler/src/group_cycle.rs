//! The scheduling cycle of a group: its pods are tried one after the other, and bound if enough of
//! them fit (upstream's `schedule_one_podgroup.go`). The groups of a tree have one cycle.
//!
//! A trial assumes and reserves on the live cache, so that each pod sees those before it. Then it
//! is undone, the last pod first. Only a trial that succeeds is done again, pod by pod, with
//! Permit.

use std::collections::BTreeMap;
use std::sync::Arc;

use supercargo_framework::objects::{GroupKey, Members, Object, PodGroup, Typed};
use supercargo_framework::plugin::{Nomination, Nominations};
use supercargo_framework::pod::PodCondition;
use supercargo_framework::{CycleState, Feature, NodeIndex, NodeInfo, Now, PodInfo, Status, Text, Uid};

use crate::attempt::Scope;
use crate::bindings::Binding;
use crate::effect::{Effect, GroupPatch};
use crate::group_reason::Reason;
use crate::group_tree::{GroupFailure, GroupNode, Placed, Results, Trial, Verdicts};
use crate::scheduler::Scheduler;
use supercargo_evaluation::extender::Calls;
use supercargo_queue::{GroupOutcome, QueuedGroup, QueuedPod};
use supercargo_runtime::failure::Failure;
use supercargo_runtime::observer::{AttemptResult, Observation, Timespan};
use supercargo_runtime::profile::Named;

/// The plugin that asks for a minimum of pods.
const GANG_SCHEDULING: &str = "GangScheduling";

/// The event that requeues a pod without a group. Those of other trees join them.
const NOT_IN_TREE: Text = Text::Static("NotInTree");

/// A group in its cycle.
pub(crate) struct TriedGroup<'a> {
    pub(crate) root: &'a GroupNode,
    /// Its pods, and those of the groups below it.
    pub(crate) members: &'a mut [QueuedPod],
}

/// How far a group is from its minimum.
pub(crate) enum Progress {
    /// There are enough, if any is required.
    Enough,
    NotYet,
    OutOfReach,
}

/// The number of pods, or groups, of a group that are scheduled, and of those that are still to be
/// tried.
#[derive(Clone, Copy)]
pub(crate) struct Quorum {
    pub(crate) min_count: i32,
    pub(crate) scheduled: usize,
    pub(crate) remaining: usize,
}

impl Quorum {
    /// Same as upstream's PlacementFeasible of GangScheduling.
    pub(crate) fn progress(&self) -> Progress {
        let min_count = usize::try_from(self.min_count).unwrap_or_default();
        if self.scheduled + self.remaining < min_count {
            Progress::OutOfReach
        } else if self.scheduled < min_count {
            Progress::NotYet
        } else {
            Progress::Enough
        }
    }

    pub(crate) fn out_of_reach(&self) -> String {
        let Self { min_count, scheduled, remaining } = self;
        format!("minCount ({min_count}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining")
    }
}

impl Scheduler {
    /// Tries a group. Its pods that do not get a node come back to the queue together.
    pub(crate) fn schedule_group(&mut self, now: Now, group: QueuedGroup, calls: &mut dyn Calls) {
        let QueuedGroup { entry, key, members } = group;
        let (root, members, strays) = GroupNode::new(self.objects.forest(), &key, members);
        for member in strays {
            self.anomaly(&format!(
                "pod {} is queued with group {key}, and is not in its tree",
                member.pod.key()
            ));
            self.with_queue(now, |queue, cx| queue.retry(cx, member, &NOT_IN_TREE));
        }
        let outcome = match self.validate_group(&root, &members) {
            Ok(()) => self.schedule_agreeing(now, root, members, calls),
            // As upstream, such an attempt is not counted.
            Err(error) => {
                let verdicts = Verdicts::new(&root, Trial::refused(GroupFailure::Error(error)));
                self.submit(now, members, verdicts, None);
                GroupOutcome::Failed
            }
        };
        self.with_queue(now, |queue, cx| queue.end_group(cx, entry, outcome));
    }

    /// Tries a group whose pods agree, without those that are being deleted.
    fn schedule_agreeing(
        &mut self,
        now: Now,
        root: GroupNode,
        mut members: Vec<QueuedPod>,
        calls: &mut dyn Calls,
    ) -> GroupOutcome {
        let known = members.len();
        members.retain(|member| {
            let skips = self.skips(member);
            if skips {
                self.queue.done(member.uid());
            }
            !skips
        });
        if members.is_empty() {
            // This lets pods that came meanwhile continue.
            return GroupOutcome::Scheduled;
        }
        let (root, members) = if members.len() == known {
            (root, members)
        } else {
            let (root, members, _) = GroupNode::new(self.objects.forest(), &root.key, members);
            (root, members)
        };
        let outcome = self.attempt_group(now, root, members, calls);
        self.objects.end_sharing();
        outcome
    }

    /// The pods of a group that are on nodes, in no order.
    pub(crate) fn scheduled_pods(&self, key: &str) -> impl Iterator<Item = &Arc<PodInfo>> {
        let pods = self.objects.members().get(key).into_iter().flat_map(Members::scheduled_pods);
        pods.filter_map(|uid| self.cache.pod(uid))
    }

    fn attempt_group(
        &mut self,
        now: Now,
        mut root: GroupNode,
        members: Vec<QueuedPod>,
        calls: &mut dyn Calls,
    ) -> GroupOutcome {
        let from = self.observer.time_point();
        let profile = members[0].profile;
        // A group can be refused, and then preempt, without a trial of its pods.
        self.cache.refreshed();
        self.require_minimum(&mut root, &members);
        let mut members = members;
        let mut group = TriedGroup { root: &root, members: &mut members };
        let trial = self.try_root(now, &mut group, calls);
        self.observer.observe(Observation::GroupAlgorithm(Timespan { from, to: self.observer.time_point() }));
        let (outcome, post_filter) = match &trial.refusal {
            None => (GroupOutcome::Scheduled, None),
            Some(GroupFailure::Error(_)) => (GroupOutcome::Failed, None),
            // Room may be free on a placement that was not tried yet.
            Some(GroupFailure::Unschedulable(_)) if self.tries.go_on() => (GroupOutcome::Rejected, None),
            Some(GroupFailure::Unschedulable(_)) => {
                (GroupOutcome::Rejected, Some(self.post_filter_group(now, group, &trial, calls)))
            }
        };
        let result = self.submit(now, members, Verdicts::new(&root, trial), post_filter);
        let took = Timespan { from, to: self.observer.time_point() };
        self.observer.observe(Observation::GroupAttempt { profile: profile.0, result, took });
        outcome
    }

    /// Sets how many pods, or groups, each group needs, if the plugin for that is enabled.
    pub(crate) fn require_minimum(&self, root: &mut GroupNode, members: &[QueuedPod]) {
        let is_enabled = |plugin: &Named<_>| plugin.name == GANG_SCHEDULING;
        let mut profiles = members.first().into_iter().map(|first| self.profiles.get(first.profile));
        if profiles.any(|profile| profile.pre_enqueue.iter().any(is_enabled)) {
            root.require_minimum(self.objects.forest());
        }
    }

    /// Checks that the pods of a group agree, those on nodes included.
    pub(crate) fn validate_group(&self, root: &GroupNode, members: &[QueuedPod]) -> Result<(), String> {
        let Some(group) = self.objects.forest().spec(&root.key) else {
            return Err(format!("failed to get podGroup {}", root.key));
        };
        let Some(first) = members.first().map(|member| &member.pod.spec) else { return Ok(()) };
        let (never_preempts, of_group) = if self.features.enabled(Feature::PodGroupPreemptionPolicy) {
            (group.never_preempts == Some(true), " as the pod group's preemption policy")
        } else {
            (first.never_preempts, "")
        };
        let leaves = root.leaves();
        let scheduled = leaves.iter().flat_map(|leaf| self.scheduled_pods(&leaf.key.key));
        for pod in members.iter().map(|member| &member.pod).chain(scheduled) {
            if pod.spec.scheduler_name != first.scheduler_name {
                let (one, other) = (&pod.spec.scheduler_name, &first.scheduler_name);
                return Err(format!(
                    "all pods in a single pod group should have the same .spec.schedulerName set, got: {one:?} and {other:?}"
                ));
            }
            if pod.priority != group.priority {
                return Err(format!(
                    "all pods in a single pod group should have the same priority as the pod group's priority, got {} and {}",
                    pod.priority, group.priority
                ));
            }
            if pod.spec.never_preempts != never_preempts {
                let policy = |never| if never { "Never" } else { "PreemptLowerPriority" };
                let (one, other) = (policy(pod.spec.never_preempts), policy(never_preempts));
                return Err(format!(
                    "all pods in a single pod group should have the same preemption policy{of_group}, got {one} and {other}"
                ));
            }
        }
        Ok(())
    }

    /// Tries the members of a PodGroup in order on these nodes, or all, each beside those that
    /// found a node. Ends early once there cannot be enough of them, or something fails.
    pub(crate) fn try_members(
        &mut self,
        now: Now,
        node: &GroupNode,
        members: &mut [QueuedPod],
        nodes: Option<&[NodeIndex]>,
        calls: &mut dyn Calls,
    ) -> Trial {
        let members = &mut members[node.members.clone()];
        let scheduled = self.objects.members().get(&node.key.key).map_or(0, Members::scheduled);
        let mut quorum = Quorum { min_count: node.min_count, scheduled, remaining: members.len() };
        if matches!(quorum.progress(), Progress::OutOfReach) {
            let message = format!("pod group is unschedulable, {}", quorum.out_of_reach());
            return Trial::refused(GroupFailure::Unschedulable(message));
        }
        let mut trial = Trial { results: Results::with_capacity(members.len()), ..Trial::default() };
        for member in members.iter_mut() {
            member.began = self.observer.time_point();
            let result = self.try_member(now, member, nodes, calls);
            quorum.remaining -= 1;
            quorum.scheduled += usize::from(result.is_ok());
            let error = result.as_ref().err().filter(|failure| !failure.kind.is_rejection());
            trial.refusal = error.map(|failure| {
                GroupFailure::Error(format!(
                    "failed to schedule other pod from a pod group: {}",
                    failure.kind
                ))
            });
            trial.results.push(result);
            if trial.refusal.is_none() && matches!(quorum.progress(), Progress::OutOfReach) {
                trial.refusal = Some(GroupFailure::Unschedulable(quorum.out_of_reach()));
            }
            if trial.refusal.is_some() {
                break;
            }
        }
        trial
    }

    /// Finds a node for a member, and assumes and reserves it there.
    pub(crate) fn try_member(
        &mut self,
        now: Now,
        member: &QueuedPod,
        nodes: Option<&[NodeIndex]>,
        calls: &mut dyn Calls,
    ) -> Result<Placed, Failure> {
        let mut state = CycleState::new();
        let placed = self.catch_panic(|this| {
            let node = this.choose_node(now, member, &mut state, calls, Scope::Member(nodes))?;
            this.assume(member, &node)?;
            let (reserved, commands) = this.reserve_only(now, member, &node, &mut state);
            this.execute(now, commands);
            reserved.map(|()| node)
        });
        match placed {
            Ok(node) => Ok(Placed { node, state }),
            Err(failure) => {
                self.undo(now, member, &mut state);
                Err(failure)
            }
        }
    }

    /// Undoes what the trial of a PodGroup did, the last member first.
    pub(crate) fn take_members_back(&mut self, now: Now, members: &[QueuedPod], results: &mut Results) {
        for (member, result) in members.iter().zip(results).rev() {
            if let Ok(placed) = result {
                self.take_back(now, member, placed);
            }
        }
    }

    pub(crate) fn take_back(&mut self, now: Now, member: &QueuedPod, placed: &mut Placed) {
        self.undo(now, member, &mut placed.state);
        self.queue.nominator.add(&member.pod, &Nomination::Keep);
    }

    /// Repeats the trial's steps for a member, without undoing them, and starts its binding.
    fn commit(&mut self, now: Now, member: QueuedPod, placed: Placed) {
        let Placed { node, mut state } = placed;
        let permitted = self.catch_panic(|this| {
            this.assume(&member, &node)?;
            let (permitted, commands) = this.reserve_and_permit(now, &member, &node, &mut state);
            this.execute(now, commands);
            permitted
        });
        match permitted {
            Ok(waits) => {
                let chosen_at = self.cache.nodes().get(&node).map_or(0, NodeInfo::generation);
                self.begin_binding(now, Binding::new(now, member, (node, chosen_at), state, waits));
            }
            Err(failure) => {
                self.undo(now, &member, &mut state);
                self.fail(now, member, failure);
            }
        }
    }

    /// Binds the pods of the PodGroups that succeed, fails those of others, and reports to each.
    /// The result is that of the root.
    fn submit(
        &mut self,
        now: Now,
        members: Vec<QueuedPod>,
        verdicts: Verdicts<'_>,
        post_filter: Option<(Nominations, Status)>,
    ) -> AttemptResult {
        let Verdicts { all, leaves } = verdicts;
        let (nominations, status) = post_filter.unzip();
        let reasons: Vec<_> = all
            .into_iter()
            .map(|(failure, shares)| failure.map(|it| Reason::new(it, shares, status.as_ref())))
            .collect();
        let mut nominations: BTreeMap<Uid, Nomination> = nominations.into_iter().flatten().collect();
        let mut members = members.into_iter();
        for (leaf, results, reason) in leaves {
            let members = members.by_ref().take(leaf.members.len());
            let Some(reason) = &reasons[reason] else {
                self.report_group(now, &leaf.key, "True", "Scheduled", "");
                for (member, result) in members.zip(results) {
                    match result {
                        Ok(placed) => self.commit(now, member, placed),
                        Err(failure) => self.fail(now, member, failure),
                    }
                }
                continue;
            };
            let mut results = results.into_iter();
            for member in members {
                let mut failure = reason.of_member(results.next());
                if let Some(nomination) = nominations.remove(member.uid()) {
                    failure.nomination = nomination;
                }
                self.fail(now, member, failure);
            }
            let (reason, message) = reason.of_group();
            self.report_group(now, &leaf.key, "False", reason, message);
        }
        reasons.first().and_then(Option::as_ref).map_or(AttemptResult::Scheduled, Reason::result)
    }

    /// Patches the condition `PodGroupInitiallyScheduled`, unless it is up to date. Once true, it
    /// stays so, also while the informer does not report it yet.
    fn report_group(&mut self, now: Now, key: &GroupKey, status: &str, reason: &str, message: &str) {
        let group = self.objects.forest().get(key).and_then(Typed::<PodGroup>::of);
        let Some(group) = group else { return };
        let uid: Uid = (*group.object.uid).into();
        let known = group.initially_scheduled.as_ref();
        let is_equal =
            |it: &PodCondition| (&*it.status, &*it.reason, &*it.message) == (status, reason, message);
        if known.is_some_and(|it| &*it.status == "True" || is_equal(it)) {
            return;
        }
        if status == "True" {
            self.started_groups.insert(uid.clone());
        } else if self.started_groups.contains(&uid) {
            return;
        }
        // The transition time follows the status, not the reason.
        let since = known.filter(|it| &*it.status == status).and_then(|it| it.last_transition);
        let condition = PodCondition {
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            observed_generation: None,
            last_transition: Some(since.unwrap_or_else(|| now.wall.floor_to_second())),
        };
        self.effects.push(Effect::PatchGroupStatus(GroupPatch {
            group: Arc::clone(&key.key),
            uid,
            condition,
        }));
    }
    /// The informer reports an object, or that it is gone: a condition that it shows need not be
    /// remembered.
    pub(crate) fn confirm_started_group(&mut self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        if let Some(gone) = old.filter(|old| new.is_none_or(|new| new.uid != old.uid)) {
            self.started_groups.remove(&Uid::from(&*gone.uid));
        }
        if let Some(group) = new.and_then(Typed::<PodGroup>::of)
            && group.initially_scheduled.as_ref().is_some_and(|it| &*it.status == "True")
        {
            self.started_groups.remove(&Uid::from(&*group.object.uid));
        }
    }
}
