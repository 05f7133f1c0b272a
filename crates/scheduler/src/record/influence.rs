//! Which plugins decide: what each decision of a record would be without one of them, or with
//! another weight.
//!
//! Before each recorded attempt, its pod is evaluated on the recorded state, with one change at a
//! time. The state then follows the record.

use rustc_hash::FxHashSet;
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
                voter.with_cycle(&pod, |cycle| self.add(cycle));
            }
            Some(Attempted::Group) => self.of_groups += 1,
            Some(Attempted::Extended) => self.extended += 1,
            None => {}
        }
    }

    fn add(&mut self, cycle: &Cycle<'_>) {
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
            // A plugin that fails says nothing.
            Err(_) => return,
        };
        self.attempts += 1;
        self.placed += usize::from(!feasible.is_empty());
        let chosen = match feasible[..] {
            [] => None,
            [only] => Some(only),
            _ => match cycle.score_table(&mut state.clone(), &feasible) {
                Ok(scores) => self.add_scores(&scores, &feasible),
                Err(_) => return,
            },
        };
        self.add_refusals(cycle, &feasible, chosen);
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

    /// Counts which filters refuse nodes, and what would be without one of them.
    fn add_refusals(&mut self, cycle: &Cycle<'_>, feasible: &[NodeIndex], chosen: Option<NodeIndex>) {
        let (mut state, mut diagnosis) = (CycleState::default(), Diagnosis::default());
        let named = match cycle.pre_filter(&mut state, &mut diagnosis) {
            Ok(PreFilterOutcome::Nodes(named)) => named,
            // Nobody knows what the filters would say.
            Ok(PreFilterOutcome::Rejected) => {
                let by = diagnosis.statuses.absent.as_ref().map(Status::plugin);
                let known = self.filters.iter_mut().find(|(name, _)| by.is_some_and(|by| **by == **name));
                if let Some((_, known)) = known {
                    known.refuses += 1;
                }
                return;
            }
            Err(_) => return,
        };
        let filters = cycle.filters(&state);
        let named_by = &diagnosis.unschedulable_plugins;
        let has_named = |plugin: &str| named_by.iter().any(|it| **it == *plugin);
        let is_left_out = |index: &NodeIndex| {
            named.as_ref().is_some_and(|names| !names.contains(cycle.cx.node(*index).name()))
        };
        let other_plugins = named_by.iter().any(|it| filters.iter().all(|filter| **it != *filter.name));
        let order = cycle.cx.nodes().order();
        // How many plugins refuse each node.
        let others = |index: &NodeIndex| usize::from(other_plugins && is_left_out(index));
        let mut counts: Vec<usize> = order.iter().map(others).collect();
        let mut refused = Vec::with_capacity(filters.len());
        for filter in filters {
            let refuses = |index: &NodeIndex| {
                has_named(filter.name) && is_left_out(index)
                    || !cycle.filter_node(usize::MAX, &[filter], &state, cycle.cx.node(*index)).is_success()
            };
            let places: Vec<usize> = (0..order.len()).filter(|place| refuses(&order[*place])).collect();
            for place in &places {
                counts[*place] += 1;
            }
            refused.push((filter.name, places));
        }
        for (name, places) in refused {
            let alone = places.iter().filter(|place| counts[**place] == 1).map(|place| order[*place]);
            let alone: FxHashSet<NodeIndex> = alone.collect();
            let known = entry(&mut self.filters, name);
            known.refuses += usize::from(!places.is_empty());
            if !alone.is_empty() {
                known.alone += 1;
                known.changes += usize::from(with_more(cycle, &state, feasible, alone) != chosen);
            }
        }
    }
}

/// The node with the most points if these nodes fit, too.
fn with_more(
    cycle: &Cycle<'_>,
    state: &CycleState,
    feasible: &[NodeIndex],
    mut fit: FxHashSet<NodeIndex>,
) -> Option<NodeIndex> {
    fit.extend(feasible);
    let all: Vec<NodeIndex> =
        cycle.cx.nodes().order().iter().filter(|index| fit.contains(index)).copied().collect();
    let totals = cycle.scores(&mut state.clone(), &all).ok()?;
    best(&totals).map(|place| all[place])
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
