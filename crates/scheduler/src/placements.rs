//! The placements of a group: sets of nodes on each of which its pods are tried together
//! (upstream's PlacementGenerate and PlacementScore).

use std::sync::Arc;

use supercargo_framework::plugin::{Assignments, GroupInfo, Placement, PlacementScorePlugin};
use supercargo_framework::{Code, Context, Feature, Now, PodInfo, Status};

use crate::group_cycle::{GroupFailure, Results, TriedGroup};
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
    results: Results,
}

impl Scheduler {
    /// Tries a group on all nodes or, if it has placements, on each of them. Returns the results of
    /// the best one; those of the first one if the group fits on none. Leaves no trace.
    pub(crate) fn try_group(
        &mut self,
        now: Now,
        group: &mut TriedGroup<'_>,
        calls: &mut dyn Calls,
    ) -> (Results, Option<GroupFailure>) {
        let (results, refusal) = if self.features.enabled(Feature::TopologyAwareWorkloadScheduling) {
            self.try_placements(now, group, calls)
        } else {
            self.try_placement(now, group, None, calls)
        };
        // Enough pods are on nodes, but no other one fits.
        let is_idle = refusal.is_none() && results.iter().all(Result::is_err);
        (results, if is_idle { Some(GroupFailure::Unschedulable(UNSCHEDULABLE.to_owned())) } else { refusal })
    }

    fn try_placements(
        &mut self,
        now: Now,
        group: &mut TriedGroup<'_>,
        calls: &mut dyn Calls,
    ) -> (Results, Option<GroupFailure>) {
        self.cache.refreshed();
        let profile = group.members[0].profile.0;
        let scheduled = self.scheduled_members(group.key);
        let placements = match self.generate_placements(now, group, &scheduled) {
            Ok(placements) => placements,
            Err(refusal) => return (Results::new(), Some(refusal)),
        };
        let count = placements.len();
        self.observer.observe(Observation::Placements { profile, count });
        let (mut first, mut feasible) = (None, Vec::new());
        for placement in placements {
            let from = self.observer.time_point();
            let (results, refusal) = self.try_placement(now, group, Some(&placement), calls);
            let reason = match refusal {
                None => None,
                Some(GroupFailure::Unschedulable(reason)) => Some(reason),
                error => return (results, error),
            };
            let (is_feasible, to) = (reason.is_none(), self.observer.time_point());
            let took = Timespan { from, to };
            self.observer.observe(Observation::PlacementTried { profile, is_feasible, took });
            if let Some(reason) = reason {
                first.get_or_insert((results, reason));
            } else {
                feasible.push(Feasible { placement, results });
            }
        }
        if let (true, Some((results, reason))) = (feasible.is_empty(), first) {
            let refusal = none_available(count, &results, &reason);
            return (results, Some(refusal));
        }
        match self.best_placement(now, group, &scheduled, &feasible) {
            Ok(best) => (feasible.swap_remove(best).results, None),
            Err(refusal) => (Results::new(), Some(refusal)),
        }
    }

    /// Tries the members on these nodes, or all, and undoes it.
    fn try_placement(
        &mut self,
        now: Now,
        group: &mut TriedGroup<'_>,
        placement: Option<&Placement>,
        calls: &mut dyn Calls,
    ) -> (Results, Option<GroupFailure>) {
        let nodes = placement.map(|placement| &*placement.nodes);
        let narrowed = nodes.filter(|nodes| nodes.len() < self.cache.nodes().len());
        let (mut results, refusal) = self.try_members(now, group, narrowed, calls);
        self.take_all_back(now, group.members, &mut results);
        (results, refusal)
    }

    /// The pods of a group that are on nodes, ordered by name.
    fn scheduled_members(&self, key: &str) -> Assignments {
        let assignment =
            |pod: &Arc<PodInfo>| Some((Arc::clone(pod), Arc::clone(self.cache.node_of(&pod.uid)?)));
        let mut scheduled: Assignments = self.scheduled_pods(key).filter_map(assignment).collect();
        scheduled.sort_unstable_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        scheduled
    }

    fn generate_placements(
        &mut self,
        now: Now,
        group: &TriedGroup<'_>,
        scheduled: &Assignments,
    ) -> Result<Vec<Placement>, GroupFailure> {
        let all = Placement { name: "".into(), nodes: self.cache.nodes().order().into() };
        self.call_plugins(now, group, scheduled, Point::PlacementGenerate, |profile, cx, info, calls| {
            let Some(Named { name, plugin }) = &profile.placement_generate else { return Ok(vec![all]) };
            let call = || plugin.generate_placements(cx, info, &all);
            let placements = calls.call(Point::PlacementGenerate, name, call, code)?;
            if placements.is_empty() {
                return Err(Status::unschedulable("no feasible placements found"));
            }
            Ok(placements)
        })
    }

    /// The position of the placement with the highest score, the first of equal ones. Upstream
    /// takes any of them.
    fn best_placement(
        &mut self,
        now: Now,
        group: &TriedGroup<'_>,
        scheduled: &Assignments,
        feasible: &[Feasible],
    ) -> Result<usize, GroupFailure> {
        if feasible.len() == 1 {
            return Ok(0);
        }
        let proposed: Vec<(&Placement, Assignments)> = feasible
            .iter()
            .map(|Feasible { placement, results }| (placement, assignments(group.members, results)))
            .collect();
        let totals =
            self.call_plugins(now, group, scheduled, Point::PlacementScore, |profile, cx, info, calls| {
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
        group: &TriedGroup<'_>,
        scheduled: &Assignments,
        point: Point,
        part: impl FnOnce(&Profile, &Context<'_>, GroupInfo<'_>, &PluginCalls<'_>) -> Result<R, Status>,
    ) -> Result<R, GroupFailure> {
        let first = &group.members[0];
        let called = self.catch_panic(|this| {
            let Some(object) = this.group(group.key) else {
                return Err(FailureKind::Internal(format!("failed to get podGroup {}", group.key)).into());
            };
            let info = GroupInfo { key: group.key, group: object.body, scheduled };
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

/// The members that found a node.
fn assignments(members: &[QueuedPod], results: &Results) -> Assignments {
    let placed =
        members.iter().zip(results).filter_map(|(member, result)| Some((member, result.as_ref().ok()?)));
    placed.map(|(member, placed)| (Arc::clone(&member.pod), Arc::clone(&placed.node))).collect()
}

/// The refusal of a group that fits on none of its placements. As upstream, it does not say why if
/// no member was tried.
fn none_available(placements: usize, first: &Results, reason: &str) -> GroupFailure {
    let reason = if first.is_empty() { UNSCHEDULABLE } else { reason };
    GroupFailure::Unschedulable(format!(
        "{UNSCHEDULABLE}, 0/{placements} placements are available, first placement status: {reason}"
    ))
}

fn code<T>(result: &Result<T, Status>) -> Code {
    result.as_ref().map_or_else(Status::code, |_| Code::Success)
}
