//! The scheduling cycle of a group: its pods are tried one after the other, and bound if enough of
//! them fit (upstream's `schedule_one_podgroup.go`).
//!
//! A trial assumes and reserves on the live cache, so that each pod sees those before it. Then it
//! is undone, the last pod first. Only a trial that succeeds is done again, pod by pod, with
//! Permit.

use std::collections::BTreeMap;
use std::sync::Arc;

use supercargo_framework::objects::{Members, PodGroup, Typed, resources};
use supercargo_framework::plugin::{Nomination, Nominations};
use supercargo_framework::pod::PodCondition;
use supercargo_framework::{CycleState, NodeIndex, NodeInfo, Now, PodInfo, Status, Uid};

use crate::attempt::Scope;
use crate::bindings::Binding;
use crate::effect::{Effect, GroupPatch};
use crate::scheduler::Scheduler;
use supercargo_evaluation::extender::Calls;
use supercargo_queue::{GroupOutcome, QueuedGroup, QueuedPod};
use supercargo_runtime::failure::{Failure, FailureKind};
use supercargo_runtime::observer::{AttemptResult, Observation, Timespan};
use supercargo_runtime::profile::Named;

/// The plugin that asks for a minimum of pods.
const GANG_SCHEDULING: &str = "GangScheduling";

/// A pod that found a node in the trial.
pub(crate) struct Placed {
    pub(crate) node: Arc<str>,
    pub(crate) state: CycleState,
}

/// The results of a trial, a member each; members after the last one were not tried.
pub(crate) type Results = Vec<Result<Placed, Failure>>;

/// A group in its cycle.
pub(crate) struct TriedGroup<'a> {
    pub(crate) key: &'a Arc<str>,
    pub(crate) min_count: i32,
    pub(crate) members: &'a mut [QueuedPod],
}

/// Why a group is not scheduled.
pub(crate) enum GroupFailure {
    /// Too few pods fit.
    Unschedulable(String),
    /// Something failed.
    Error(String),
}

/// How far a group is from its minimum.
enum Progress {
    /// There are enough, if any is required.
    Enough,
    NotYet,
    OutOfReach,
}

/// The number of pods of a group on nodes, and of those that are still to be tried.
#[derive(Clone, Copy)]
struct Quorum {
    min_count: i32,
    scheduled: usize,
    remaining: usize,
}

impl Quorum {
    /// Same as upstream's PlacementFeasible of GangScheduling.
    fn progress(&self) -> Progress {
        let min_count = usize::try_from(self.min_count).unwrap_or_default();
        if self.scheduled + self.remaining < min_count {
            Progress::OutOfReach
        } else if self.scheduled < min_count {
            Progress::NotYet
        } else {
            Progress::Enough
        }
    }

    fn out_of_reach(&self) -> String {
        let Self { min_count, scheduled, remaining } = self;
        format!("minCount ({min_count}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining")
    }
}

impl Scheduler {
    /// Tries a group. Its pods that do not get a node come back to the queue together.
    pub(crate) fn schedule_group(&mut self, now: Now, group: QueuedGroup, calls: &mut dyn Calls) {
        let QueuedGroup { entry, key, mut members } = group;
        members.retain(|member| {
            let skips = self.skips(member);
            if skips {
                self.queue.done(member.uid());
            }
            !skips
        });
        let outcome = if members.is_empty() {
            // This lets pods that came meanwhile continue.
            GroupOutcome::Scheduled
        } else {
            self.attempt_group(now, &key, members, calls)
        };
        self.with_queue(now, |queue, cx| queue.end_group(cx, entry, outcome));
    }

    pub(crate) fn group(&self, key: &str) -> Option<Typed<'_, PodGroup>> {
        Typed::of(self.objects.get(&resources::POD_GROUP, key)?)
    }

    /// The pods of a group that are on nodes, in no order.
    pub(crate) fn scheduled_pods(&self, key: &str) -> impl Iterator<Item = &Arc<PodInfo>> {
        let pods = self.objects.members.get(key).into_iter().flat_map(Members::scheduled_pods);
        pods.filter_map(|uid| self.cache.pod(uid))
    }

    fn attempt_group(
        &mut self,
        now: Now,
        key: &Arc<str>,
        mut members: Vec<QueuedPod>,
        calls: &mut dyn Calls,
    ) -> GroupOutcome {
        let from = self.observer.time_point();
        let profile = members[0].profile.0;
        let min_count = match self.valid_group(key, &members) {
            Ok(min_count) => min_count,
            // As upstream, such an attempt is not counted.
            Err(error) => {
                self.refuse_for_error(now, key, members, Results::new(), error);
                return GroupOutcome::Failed;
            }
        };
        let mut group = TriedGroup { key, min_count, members: &mut members };
        let (results, failure) = self.try_group(now, &mut group, calls);
        self.observer.observe(Observation::GroupAlgorithm(Timespan { from, to: self.observer.time_point() }));
        let (outcome, result) = match failure {
            None => {
                self.report_group(now, key, "True", "Scheduled", "");
                for (member, result) in members.into_iter().zip(results) {
                    match result {
                        Ok(placed) => self.commit(now, member, placed),
                        Err(failure) => self.fail(now, member, failure),
                    }
                }
                (GroupOutcome::Scheduled, AttemptResult::Scheduled)
            }
            Some(failure @ GroupFailure::Unschedulable(_)) => {
                let post_filter = self.post_filter_group(now, group, calls);
                let result = self.refuse(now, key, members, results, failure, post_filter);
                (GroupOutcome::Rejected, result)
            }
            Some(GroupFailure::Error(error)) => {
                (GroupOutcome::Failed, self.refuse_for_error(now, key, members, results, error))
            }
        };
        let took = Timespan { from, to: self.observer.time_point() };
        self.observer.observe(Observation::GroupAttempt { profile, result, took });
        outcome
    }

    /// Checks that the pods of a group agree, those on nodes included. Returns the group's minimum,
    /// 0 if the profile has no GangScheduling.
    fn valid_group(&self, key: &str, members: &[QueuedPod]) -> Result<i32, String> {
        let Some(group) = self.group(key) else {
            return Err(format!("failed to get podGroup {key}"));
        };
        let first = &members[0].pod.spec;
        for pod in members.iter().map(|member| &member.pod).chain(self.scheduled_pods(key)) {
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
            if pod.spec.never_preempts != first.never_preempts {
                let policy = |never| if never { "Never" } else { "PreemptLowerPriority" };
                let (one, other) = (policy(pod.spec.never_preempts), policy(first.never_preempts));
                return Err(format!(
                    "all pods in a single pod group should have the same preemption policy, got {one} and {other}"
                ));
            }
        }
        let is_enabled = |plugin: &Named<_>| plugin.name == GANG_SCHEDULING;
        let is_gang = self.profiles.get(members[0].profile).pre_enqueue.iter().any(is_enabled);
        Ok(if is_gang { group.min_count() } else { 0 })
    }

    /// Tries the members in order on these nodes, or all, each beside those that found a node. Ends
    /// early once there cannot be enough of them, or something fails.
    pub(crate) fn try_members(
        &mut self,
        now: Now,
        group: &mut TriedGroup<'_>,
        nodes: Option<&[NodeIndex]>,
        calls: &mut dyn Calls,
    ) -> (Results, Option<GroupFailure>) {
        let TriedGroup { key, min_count, members } = group;
        let min_count = *min_count;
        let scheduled = self.objects.members.get(key).map_or(0, Members::scheduled);
        let mut quorum = Quorum { min_count, scheduled, remaining: members.len() };
        let mut results = Results::with_capacity(members.len());
        if matches!(quorum.progress(), Progress::OutOfReach) {
            let message = format!("pod group is unschedulable, {}", quorum.out_of_reach());
            return (results, Some(GroupFailure::Unschedulable(message)));
        }
        for member in members.iter_mut() {
            member.began = self.observer.time_point();
            let result = self.try_member(now, member, nodes, calls);
            quorum.remaining -= 1;
            quorum.scheduled += usize::from(result.is_ok());
            let error = result.as_ref().err().filter(|failure| !failure.kind.is_rejection());
            let error = error.map(|failure| {
                GroupFailure::Error(format!(
                    "failed to schedule other pod from a pod group: {}",
                    failure.kind
                ))
            });
            results.push(result);
            if error.is_some() {
                return (results, error);
            }
            if matches!(quorum.progress(), Progress::OutOfReach) {
                return (results, Some(GroupFailure::Unschedulable(quorum.out_of_reach())));
            }
        }
        (results, None)
    }

    /// Finds a node for a member, and assumes and reserves it there.
    fn try_member(
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

    /// Undoes what the trial did, the last member first.
    pub(crate) fn take_all_back(&mut self, now: Now, members: &[QueuedPod], results: &mut Results) {
        for (member, result) in members.iter().zip(results).rev() {
            if let Ok(placed) = result {
                self.undo(now, member, &mut placed.state);
                self.queue.nominator.add(&member.pod, &Nomination::Keep);
            }
        }
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

    /// Fails all members of a group that is not scheduled. A member that was rejected itself says
    /// why; the others name the group's reason.
    fn refuse(
        &mut self,
        now: Now,
        key: &Arc<str>,
        members: Vec<QueuedPod>,
        results: Results,
        failure: GroupFailure,
        post_filter: (Nominations, Status),
    ) -> AttemptResult {
        let (nominations, status) = post_filter;
        let mut nominations: BTreeMap<Uid, Nomination> = nominations.into_iter().collect();
        let waits = status.is_success();
        // The group's reason before and after PodGroupPostFilter, or an error.
        let verdict = match failure {
            GroupFailure::Unschedulable(before) if waits || status.is_rejected() => {
                let after = format!("{before}, {}", status.message());
                Ok((before, after))
            }
            GroupFailure::Unschedulable(_) => Err(status.message()),
            GroupFailure::Error(error) => Err(error),
        };
        let mut results = results.into_iter();
        let rejected = |reason: &str| FailureKind::Rejected(reason.to_owned());
        for member in members {
            let mut failure = match (results.next(), &verdict) {
                (Some(Err(failure)), Err(_)) if !failure.kind.is_rejection() => failure.kind.into(),
                (_, Err(error)) => FailureKind::Internal(error.clone()).into(),
                (Some(Err(failure)), Ok(_)) => failure,
                (Some(Ok(_)), Ok((_, after))) if waits => {
                    Failure { kind: rejected(after), nomination: Nomination::Keep }
                }
                (Some(Ok(_)), Ok((_, after))) => {
                    rejected(&format!("pod group is unschedulable, {after}")).into()
                }
                (None, Ok((before, _))) => Failure { kind: rejected(before), nomination: Nomination::Keep },
            };
            if let Some(nomination) = nominations.remove(member.uid()) {
                failure.nomination = nomination;
            }
            self.fail(now, member, failure);
        }
        let (reason, message, result) = match verdict {
            Ok((_, after)) if waits => ("Unschedulable", after, AttemptResult::WaitingOnPreemption),
            Ok((_, after)) => ("Unschedulable", after, AttemptResult::Unschedulable),
            Err(error) => ("SchedulerError", error, AttemptResult::Error),
        };
        self.report_group(now, key, "False", reason, &message);
        result
    }

    fn refuse_for_error(
        &mut self,
        now: Now,
        key: &Arc<str>,
        members: Vec<QueuedPod>,
        results: Results,
        error: String,
    ) -> AttemptResult {
        let post_filter = (Nominations::new(), Status::success());
        self.refuse(now, key, members, results, GroupFailure::Error(error), post_filter)
    }

    /// Patches the condition `PodGroupInitiallyScheduled`, unless it is up to date. Once true, it
    /// stays so.
    fn report_group(&mut self, now: Now, key: &Arc<str>, status: &str, reason: &str, message: &str) {
        let Some(group) = self.group(key) else { return };
        let known = group.initially_scheduled.as_ref();
        let is_equal =
            |it: &PodCondition| (&*it.status, &*it.reason, &*it.message) == (status, reason, message);
        if known.is_some_and(|it| &*it.status == "True" || is_equal(it)) {
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
        let uid = (*group.object.uid).into();
        self.effects.push(Effect::PatchGroupStatus(GroupPatch { group: Arc::clone(key), uid, condition }));
    }
}
