//! Which plugins decide: what each decision of a record would be without one of them, or with
//! another weight.
//!
//! Before each recorded attempt, its pod is evaluated on the recorded state, with one change at a
//! time. The state then follows the record.

use supercargo_framework::{CycleState, NodeIndex, Status};
use supercargo_runtime::diagnosis::Diagnosis;
use supercargo_runtime::failure::FailureKind;

use super::RecordedCall;
use super::comparison::{Attempted, Voter, attempted};
use crate::scheduler::Scheduler;
use supercargo_evaluation::cycle::{Cycle, PreFilterOutcome};
use supercargo_evaluation::scoring::PluginScores;

/// How much each plugin decides in a record.
#[derive(Clone, Debug, Default)]
pub struct Influence {
    /// The steps of the record.
    pub steps: usize,
    /// The attempts that were evaluated.
    pub attempts: usize,
    /// Of them, those that find a node.
    pub placed: usize,
    /// The attempts of pod groups, which are left out.
    pub of_groups: usize,
    /// The attempts for which an extender would be asked. They are left out, too.
    pub extended: usize,
    /// The plugins that filter, in the order of the first profile that has them.
    pub filters: Vec<(&'static str, FilterInfluence)>,
    /// The plugins that score.
    pub scorers: Vec<(&'static str, ScoreInfluence)>,
}

/// In how many attempts a filter says something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterInfluence {
    /// It refuses a node.
    pub refuses: usize,
    /// It alone refuses a node.
    pub alone: usize,
    /// Without it, the pod would have another node, or one at all.
    pub changes: usize,
}

/// In how many attempts a score says something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScoreInfluence {
    /// The weight in the last profile that was asked.
    pub weight: i64,
    /// Nodes that fit have different scores.
    pub differs: usize,
    /// Without it, the pod would have another node.
    pub changes: usize,
    /// The same with a weight of one more.
    pub heavier: usize,
    /// The same with a weight of one less.
    pub lighter: usize,
}

impl Influence {
    /// To be called with each recorded call before it is made.
    pub fn before(&mut self, scheduler: &mut Scheduler, step: &RecordedCall) {
        self.steps += 1;
        match attempted(scheduler, step, &[]) {
            Some(Attempted::Pod(pod)) => {
                scheduler.cache.refreshed();
                let voter = Voter { state: scheduler, settings: scheduler, now: step.now };
                let Some(Some(found)) = voter.with_cycle(&pod, |cycle| self.add(cycle)) else { return };
                for (filter, refusal) in &found.refusals {
                    let choice = || voter.without_filter(&pod, filter, choice)?.ok();
                    let other = if *refusal == Refusal::Shared { None } else { choice() };
                    self.add_refusal(filter, *refusal, other.map(|other| (found.chosen, other)));
                }
            }
            Some(Attempted::Group) => self.of_groups += 1,
            Some(Attempted::Extended) => self.extended += 1,
            None => {}
        }
    }

    /// Adds an attempt; `None` if a plugin fails, which says nothing.
    fn add(&mut self, cycle: &Cycle<'_>) -> Option<Found> {
        for filter in &cycle.profile.filter {
            entry(&mut self.filters, filter.name);
        }
        for scorer in &cycle.profile.score {
            entry(&mut self.scorers, scorer.name).weight = scorer.weight;
        }
        let mut state = CycleState::default();
        let feasible = match cycle.feasible(&mut state, &mut 0) {
            Ok(feasible) => feasible,
            Err(FailureKind::Fit(_)) => Vec::new(),
            Err(_) => return None,
        };
        self.attempts += 1;
        self.placed += usize::from(!feasible.is_empty());
        let chosen = match feasible[..] {
            [] => None,
            [only] => Some(only),
            _ => {
                let scores = cycle.score_table(&mut state.clone(), &feasible).ok()?;
                self.add_scores(&scores, &feasible)
            }
        };
        Some(Found { chosen, refusals: refusals(cycle) })
    }

    /// Adds a filter that refuses nodes: the nodes that are chosen with it and without it, if it
    /// refuses one alone.
    fn add_refusal(
        &mut self,
        filter: &'static str,
        refusal: Refusal,
        chosen: Option<(Option<NodeIndex>, Option<NodeIndex>)>,
    ) {
        let known = entry(&mut self.filters, filter);
        let changes = chosen.is_some_and(|(with, without)| with != without);
        known.refuses += 1;
        known.alone += usize::from(refusal == Refusal::Alone || refusal == Refusal::Early && changes);
        known.changes += usize::from(changes);
    }

    /// Counts what scores change. Returns the node with the most points.
    fn add_scores(&mut self, scores: &[PluginScores], feasible: &[NodeIndex]) -> Option<NodeIndex> {
        let mut totals = vec![0; feasible.len()];
        for it in scores {
            add(&mut totals, it, it.weight);
        }
        let chosen = best(&totals)?;
        for it in scores {
            let changes = |more: i64| {
                let mut totals = totals.clone();
                add(&mut totals, it, more);
                usize::from(best(&totals) != Some(chosen))
            };
            let differs = it.scores.iter().any(|(_, score)| *score != it.scores[0].1);
            if let Some((_, known)) = self.scorers.iter_mut().find(|(name, _)| *name == &*it.plugin) {
                known.differs += usize::from(differs);
                known.changes += changes(-it.weight);
                known.heavier += changes(1);
                known.lighter += changes(-1);
            }
        }
        Some(feasible[chosen])
    }
}

/// What an attempt finds.
struct Found {
    chosen: Option<NodeIndex>,
    /// The filters that refuse nodes.
    refusals: Vec<(&'static str, Refusal)>,
}

/// How a filter refuses nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// Others refuse all of these nodes, too.
    Shared,
    /// It refuses a node that nothing else refuses.
    Alone,
    /// Its PreFilter refuses all nodes, and others are not asked.
    Early,
}

fn refusals(cycle: &Cycle<'_>) -> Vec<(&'static str, Refusal)> {
    let (mut state, mut diagnosis) = (CycleState::default(), Diagnosis::default());
    let named = match cycle.pre_filter(&mut state, &mut diagnosis) {
        Ok(PreFilterOutcome::Nodes(named)) => named,
        Ok(PreFilterOutcome::Rejected) => {
            let by = diagnosis.statuses.absent.as_ref().map(Status::plugin);
            let filters = cycle.profile.filter.iter().map(|filter| filter.name);
            let refuses = |name: &&str| by.is_some_and(|by| **by == **name);
            return filters.filter(refuses).map(|name| (name, Refusal::Early)).collect();
        }
        Err(_) => return Vec::new(),
    };
    let filters = cycle.filters(&state);
    let named_by = &diagnosis.unschedulable_plugins;
    let has_named = |plugin: &str| named_by.iter().any(|it| **it == *plugin);
    let is_left_out =
        |index: &NodeIndex| named.as_ref().is_some_and(|names| !names.contains(cycle.cx.node(*index).name()));
    let other_plugins = named_by.iter().any(|it| filters.iter().all(|filter| **it != *filter.name));
    let order = cycle.cx.nodes().order();
    // How many plugins refuse each node.
    let others = |index: &NodeIndex| usize::from(other_plugins && is_left_out(index));
    let mut counts: Vec<usize> = order.iter().map(others).collect();
    let mut refused = Vec::with_capacity(filters.len());
    for filter in filters {
        let refuses = |index: &NodeIndex| {
            let passes =
                || cycle.filter_with_nominated(&[filter], &state, cycle.cx.node(*index)).is_success();
            has_named(filter.name) && is_left_out(index) || !passes()
        };
        let places: Vec<usize> = (0..order.len()).filter(|place| refuses(&order[*place])).collect();
        for place in &places {
            counts[*place] += 1;
        }
        refused.push((filter.name, places));
    }
    let refusal = |(name, places): (&'static str, Vec<usize>)| {
        let is_alone = places.iter().any(|place| counts[*place] == 1);
        (!places.is_empty()).then_some((name, if is_alone { Refusal::Alone } else { Refusal::Shared }))
    };
    refused.into_iter().filter_map(refusal).collect()
}

/// The node with the most points; the error of a plugin that fails.
fn choice(cycle: &Cycle<'_>) -> Result<Option<NodeIndex>, FailureKind> {
    let mut state = CycleState::default();
    let feasible = match cycle.feasible(&mut state, &mut 0) {
        Err(FailureKind::Fit(_)) => return Ok(None),
        other => other?,
    };
    let totals = cycle.scores(&mut state, &feasible)?;
    Ok(best(&totals).map(|place| feasible[place]))
}

/// Of equal nodes the first one.
fn best(totals: &[i64]) -> Option<usize> {
    (0..totals.len()).reduce(|best, next| if totals[next] > totals[best] { next } else { best })
}

fn add(totals: &mut [i64], scores: &PluginScores, factor: i64) {
    for (total, (_, score)) in totals.iter_mut().zip(&scores.scores) {
        *total += score * factor;
    }
}

fn entry<'a, T: Default>(all: &'a mut Vec<(&'static str, T)>, name: &'static str) -> &'a mut T {
    let place = all.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
        all.push((name, T::default()));
        all.len() - 1
    });
    &mut all[place].1
}
