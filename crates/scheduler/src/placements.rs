//! The placements of a group: sets of nodes on each of which its pods are tried together
//! (upstream's PlacementGenerate and PlacementScore).

use std::sync::Arc;

use supercargo_framework::objects::GroupKind;
use supercargo_framework::plugin::{Assignments, GroupInfo, Placement, PlacementScorePlugin};
use supercargo_framework::{Code, Context, Feature, Now, PodInfo, Status};

use crate::group_cycle::{Progress, Quorum, TriedGroup};
use crate::group_tree::{GroupFailure, GroupNode, Results, Trial};
use crate::scheduler::Scheduler;
use supercargo_evaluation::extender::Calls;
use supercargo_evaluation::scoring::check_range;
use supercargo_queue::QueuedPod;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::observer::{Observation, Point, Timespan};
use supercargo_runtime::plugin_calls::PluginCalls;
use supercargo_runtime::profile::{Named, Profile, Scorer};

/// Why no pod of a group is scheduled, if nothing more is known.
const UNSCHEDULABLE: &str = "pod group is unschedulable";

/// A placement on which the group fits.
struct Feasible {
    placement: Placement,
    trial: Trial,
}

impl Scheduler {
    /// Tries a group on all nodes or, if it has placements, on each of them. Returns the trial on
    /// the best one; that on the first one if the group fits on none. Leaves no trace.
    pub(crate) fn try_root(&mut self, now: Now, group: &mut TriedGroup<'_>, calls: &mut dyn Calls) -> Trial {
        let attempts = group.members.iter().map(|member| member.attempts).max();
        self.tries.begin(attempts.unwrap_or_default());
        let mut trial = self.try_group(now, group.root, group.members, (None, self.tries.most), calls);
        if trial.refusal.is_none() && !trial.places_any() {
            // Enough pods are on nodes, but no other one fits.
            trial.refusal = Some(GroupFailure::Unschedulable(UNSCHEDULABLE.to_owned()));
        }
        trial
    }

    /// The same with a group of a tree, within a placement of the group above it. It has
    /// a limit of pods and groups of its own.
    fn try_group(
        &mut self,
        now: Now,
        node: &GroupNode,
        members: &mut [QueuedPod],
        (within, share): (Option<&Placement>, usize),
        calls: &mut dyn Calls,
    ) -> Trial {
        if self.features.enabled(Feature::TopologyAwareWorkloadScheduling) {
            self.try_placements(now, node, members, (within, share), calls)
        } else {
            self.try_placement(now, node, members, (None, share), calls)
        }
    }

    fn try_placements(
        &mut self,
        now: Now,
        node: &GroupNode,
        members: &mut [QueuedPod],
        (within, share): (Option<&Placement>, usize),
        calls: &mut dyn Calls,
    ) -> Trial {
        self.cache.refreshed();
        let profile = members[0].profile.0;
        let scheduled = self.scheduled_members(node);
        let placements = match self.generate_placements(now, node, &members[0], &scheduled, within) {
            Ok(placements) => placements,
            Err(refusal) => return Trial::refused(refusal),
        };
        let count = placements.len();
        let at_once = self.tries.at_once(share, node.size(), &placements);
        let (before, from) = placements.split_at(self.tries.first(count, at_once));
        // As upstream, those of composite groups are not counted.
        let is_counted = node.key.kind == GroupKind::Pods;
        if is_counted {
            self.observer.observe(Observation::Placements { profile, count });
        }
        let (mut first, mut feasible) = (None, Vec::new());
        let turn = self.tries.turn;
        let mut rest = turn;
        for placement in from.iter().chain(before).take(at_once) {
            let from = self.observer.time_point();
            self.tries.turn = turn;
            let trial = self.try_placement(now, node, members, (Some(placement), share / at_once), calls);
            rest = rest.min(self.tries.turn);
            if let Some(GroupFailure::Error(_)) = trial.refusal {
                return trial;
            }
            let (is_feasible, to) = (trial.refusal.is_none(), self.observer.time_point());
            if is_counted {
                let took = Timespan { from, to };
                self.observer.observe(Observation::PlacementTried { profile, is_feasible, took });
            }
            if is_feasible {
                feasible.push(Feasible { placement: placement.clone(), trial });
            } else {
                first.get_or_insert(trial);
            }
        }
        self.tries.turn = rest;
        if let (true, Some(mut trial)) = (feasible.is_empty(), first) {
            let counts = (count, at_once);
            trial.refusal = trial.refusal.map(|reason| none_available(counts, node, &trial.results, reason));
            return trial;
        }
        match self.best_placement(now, node, members, &scheduled, &feasible) {
            Ok(best) => feasible.swap_remove(best).trial,
            Err(refusal) => Trial::refused(refusal),
        }
    }

    /// Tries the members, or the groups of a composite group, on these nodes, or all, and undoes
    /// it.
    fn try_placement(
        &mut self,
        now: Now,
        node: &GroupNode,
        members: &mut [QueuedPod],
        (placement, share): (Option<&Placement>, usize),
        calls: &mut dyn Calls,
    ) -> Trial {
        if node.key.kind == GroupKind::Groups {
            return self.try_children(now, node, members, (placement, share), calls);
        }
        let nodes = placement.map(|placement| &*placement.nodes);
        let narrowed = nodes.filter(|nodes| nodes.len() < self.cache.nodes().len());
        let mut trial = self.try_members(now, node, members, narrowed, calls);
        self.take_members_back(now, &members[node.members.clone()], &mut trial.results);
        trial
    }

    /// Tries the groups of a composite group in order, each beside those that fit. Ends early once
    /// there cannot be enough of them, or something fails. Larger ones may try more.
    fn try_children(
        &mut self,
        now: Now,
        node: &GroupNode,
        members: &mut [QueuedPod],
        (placement, share): (Option<&Placement>, usize),
        calls: &mut dyn Calls,
    ) -> Trial {
        let mut quorum = Quorum { min_count: node.min_count, scheduled: 0, remaining: node.children.len() };
        let (mut trial, size) = (Trial::default(), node.size());
        let mut children = node.children.iter();
        while trial.refusal.is_none() {
            if matches!(quorum.progress(), Progress::OutOfReach) {
                trial.refusal = Some(GroupFailure::Unschedulable(quorum.out_of_reach()));
                break;
            }
            let Some(child) = children.next() else { break };
            let share = share.saturating_mul(child.size()) / size;
            let mut tried = self.try_group(now, child, members, (placement, share), calls);
            if let Err(error) = self.repeat_trial(now, child, members, &mut tried) {
                tried.refusal = Some(GroupFailure::Error(format!("failed to assume the subtree: {error}")));
            }
            if let Some(GroupFailure::Error(error)) = &tried.refusal {
                let text = format!("composite pod group evaluation failed due to child error: {error}");
                trial.refusal = Some(GroupFailure::Error(text));
            }
            quorum.remaining -= 1;
            quorum.scheduled += usize::from(tried.refusal.is_none());
            trial.children.push(tried);
        }
        for (child, tried) in node.children.iter().zip(&mut trial.children).rev() {
            self.undo_trial(now, child, members, tried);
        }
        // As upstream, an error speaks for all groups below.
        if let Some(GroupFailure::Error(_)) = trial.refusal {
            trial.children.clear();
        }
        trial
    }

    /// Assumes and reserves once more what a trial has placed, so that the next group sees it.
    fn repeat_trial(
        &mut self,
        now: Now,
        node: &GroupNode,
        members: &[QueuedPod],
        trial: &mut Trial,
    ) -> Result<(), FailureKind> {
        for (member, placed) in trial.placed_mut(node) {
            let repeated = self.catch_panic(|this| {
                this.assume(&members[member], &placed.node)?;
                let (reserved, commands) =
                    this.reserve_only(now, &members[member], &placed.node, &mut placed.state);
                this.execute(now, commands);
                reserved
            });
            if let Err(failure) = repeated {
                self.undo_trial(now, node, members, trial);
                return Err(failure.kind);
            }
        }
        Ok(())
    }

    /// Undoes [`repeat_trial`](Self::repeat_trial), the last member first.
    fn undo_trial(&mut self, now: Now, node: &GroupNode, members: &[QueuedPod], trial: &mut Trial) {
        for (member, placed) in trial.placed_mut(node).into_iter().rev() {
            self.take_back(now, &members[member], placed);
        }
    }

    /// The pods of the groups at or below one that are on nodes, ordered by name.
    fn scheduled_members(&self, node: &GroupNode) -> Assignments {
        let assignment =
            |pod: &Arc<PodInfo>| Some((Arc::clone(pod), Arc::clone(self.cache.node_of(&pod.uid)?)));
        let leaves = node.leaves();
        let pods = leaves.iter().flat_map(|leaf| self.scheduled_pods(&leaf.key.key));
        let mut scheduled: Assignments = pods.filter_map(assignment).collect();
        scheduled.sort_unstable_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        scheduled
    }

    fn generate_placements(
        &mut self,
        now: Now,
        node: &GroupNode,
        first: &QueuedPod,
        scheduled: &Assignments,
        within: Option<&Placement>,
    ) -> Result<Vec<Placement>, GroupFailure> {
        let all = || Placement { name: "".into(), nodes: self.cache.nodes().order().into() };
        let parent = within.cloned().unwrap_or_else(all);
        self.call_plugins(
            now,
            node,
            first,
            scheduled,
            Point::PlacementGenerate,
            |profile, cx, info, calls| {
                let Some(Named { name, plugin }) = &profile.placement_generate else {
                    return Ok(vec![parent]);
                };
                let call = || plugin.generate_placements(cx, info, &parent);
                let placements = calls.call(Point::PlacementGenerate, name, call, code)?;
                if placements.is_empty() {
                    return Err(Status::unschedulable("no feasible placements found"));
                }
                Ok(placements)
            },
        )
    }

    /// The position of the placement with the highest score, the first of equal ones. Upstream
    /// takes any of them.
    fn best_placement(
        &mut self,
        now: Now,
        node: &GroupNode,
        members: &[QueuedPod],
        scheduled: &Assignments,
        feasible: &[Feasible],
    ) -> Result<usize, GroupFailure> {
        if feasible.len() == 1 {
            return Ok(0);
        }
        let proposed: Vec<(&Placement, Assignments)> = feasible
            .iter()
            .map(|Feasible { placement, trial }| (placement, trial.assignments(node, members)))
            .collect();
        let point = Point::PlacementScore;
        let totals =
            self.call_plugins(now, node, &members[0], scheduled, point, |profile, cx, info, calls| {
                let mut totals = vec![0_i64; proposed.len()];
                for scorer in &profile.placement_score {
                    let scores = scores_by(scorer, cx, info, &proposed, calls)?;
                    for (total, score) in totals.iter_mut().zip(scores) {
                        *total = total.wrapping_add(score.wrapping_mul(scorer.weight));
                    }
                }
                Ok(totals)
            })?;
        let best = totals.iter().enumerate().rev().max_by_key(|(_, total)| **total);
        Ok(best.map_or(0, |(place, _)| place))
    }

    /// Calls the plugins of a point. Their commands are dropped: the group is only tried.
    fn call_plugins<R>(
        &mut self,
        now: Now,
        node: &GroupNode,
        first: &QueuedPod,
        scheduled: &Assignments,
        point: Point,
        part: impl FnOnce(&Profile, &Context<'_>, GroupInfo<'_>, &PluginCalls<'_>) -> Result<R, Status>,
    ) -> Result<R, GroupFailure> {
        let called = self.catch_panic(|this| {
            let Some(spec) = this.objects.forest().spec(&node.key) else {
                return Err(FailureKind::Internal(format!("failed to get podGroup {}", node.key)).into());
            };
            let info = GroupInfo { key: &node.key, spec, scheduled };
            let calls = this.plugin_calls(first);
            let result = part(this.profiles.get(first.profile), &this.context(now), info, &calls);
            calls.timer.point(point, code(&result));
            Ok(result)
        });
        match called {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(status)) if status.is_rejected() => Err(GroupFailure::Unschedulable(status.message())),
            Ok(Err(status)) => Err(GroupFailure::Error(status.message())),
            Err(failure) => Err(GroupFailure::Error(failure.kind.to_string())),
        }
    }
}

/// A plugin's scores of these placements.
fn scores_by(
    scorer: &Scorer<dyn PlacementScorePlugin>,
    cx: &Context<'_>,
    group: GroupInfo<'_>,
    proposed: &[(&Placement, Assignments)],
    calls: &PluginCalls<'_>,
) -> Result<Vec<i64>, Status> {
    let Scorer { name, plugin, .. } = scorer;
    let score = |(placement, proposed): &(&Placement, Assignments)| {
        let call = || plugin.score_placement(cx, group, placement, proposed);
        calls.call(Point::PlacementScore, name, call, code)
    };
    let failed = |verb: &'static str| {
        move |status: Status| {
            let message = status.message();
            Status::error(format!("running {verb} plugins: plugin {name:?} failed with: {message}"))
        }
    };
    let scores: Result<Vec<i64>, Status> = proposed.iter().map(score).collect();
    let mut scores = scores.map_err(failed("PlacementScore"))?;
    let normalize = || plugin.normalize_placement_scores(&mut scores);
    calls
        .call(Point::PlacementScoreExtensionNormalize, name, normalize, code)
        .map_err(failed("NormalizePlacementScore on PlacementScore"))?;
    check_range(Point::PlacementScore, name, &scores).map_err(Status::error)?;
    Ok(scores)
}

/// The refusal of a group that fits on none of its placements. As upstream, it does not say why if
/// no member of a PodGroup was tried.
fn none_available(
    (placements, tried): (usize, usize),
    node: &GroupNode,
    results: &Results,
    reason: GroupFailure,
) -> GroupFailure {
    let GroupFailure::Unschedulable(reason) = reason else { return reason };
    let is_untried = node.key.kind == GroupKind::Pods && results.is_empty();
    let reason = if is_untried { UNSCHEDULABLE } else { &reason };
    let tried = if tried < placements { format!("{tried} tried, ") } else { String::new() };
    GroupFailure::Unschedulable(format!(
        "{UNSCHEDULABLE}, 0/{placements} placements are available, {tried}first placement status: {reason}"
    ))
}

fn code<T>(result: &Result<T, Status>) -> Code {
    result.as_ref().map_or_else(Status::code, |_| Code::Success)
}
