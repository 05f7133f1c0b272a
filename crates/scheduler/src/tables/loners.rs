//! Plugins that are asked about one pod alone, because their answers are of no use for others.

use smallvec::SmallVec;
use supercargo_framework::plugin::PreFilter;
use supercargo_framework::{CycleState, NodeIndex};

use super::Refusal;
use super::answers::View;
use crate::cycle::SkippedFilters;
use crate::profile::Judge;

/// A plugin with what it has prepared for the pod of this cycle.
struct Loner {
    /// Its number among the judges.
    judge: usize,
    state: CycleState,
    skips_filter: bool,
}

/// All such plugins of a cycle.
#[derive(Default)]
pub(super) struct Loners(SmallVec<[Loner; 4]>);

impl Loner {
    fn prepare(view: &View<'_>, judge: &Judge, number: usize) -> Result<Self, Refusal> {
        let mut loner = Self { judge: number, state: CycleState::new(), skips_filter: false };
        if let Some(plugin) = &judge.pre_filter {
            view.running.set("PreFilter", judge.name);
            loner.skips_filter = match plugin.pre_filter(view.cx, &mut loner.state, view.pod) {
                PreFilter::AllNodes => false,
                PreFilter::Skip => true,
                PreFilter::Nodes(_) | PreFilter::Reject(_) => return Err(Refusal::Passing),
            };
        }
        let scores = judge.pre_score.is_some() || judge.score.is_some();
        if scores && !loner.skips_score(view, judge) {
            return Err(Refusal::Passing);
        }
        Ok(loner)
    }

    fn skips_score(&mut self, view: &View<'_>, judge: &Judge) -> bool {
        let Some(plugin) = &judge.pre_score else { return false };
        if judge.caching.pre_score_depends_on_nodes() {
            return false;
        }
        view.running.set("PreScore", judge.name);
        plugin.pre_score(view.cx, &mut self.state, view.pod, &[]).is_skip()
    }

    fn passes(&self, view: &View<'_>, judge: &Judge, index: NodeIndex) -> Result<bool, Refusal> {
        let Some((_, plugin)) = judge.filter.as_ref().filter(|_| !self.skips_filter) else { return Ok(true) };
        view.running.set("Filter", judge.name);
        let status = plugin.filter(view.cx, &self.state, view.pod, view.nodes.at(index));
        if status.is_success() || status.is_rejected() {
            Ok(status.is_success())
        } else {
            Err(Refusal::Passing)
        }
    }

    fn never_fails(&self, view: &View<'_>, judge: &Judge) -> bool {
        let filters = judge.filter.is_some() && !self.skips_filter;
        !filters || judge.caching.filter_never_fails(view.cx, &self.state, view.pod)
    }
}

impl Loners {
    /// Lets the judges of these numbers prepare for the pod.
    pub(super) fn prepare(view: &View<'_>, judges: &[Judge], numbers: &[usize]) -> Result<Self, Refusal> {
        let loners = numbers.iter().map(|number| Loner::prepare(view, &judges[*number], *number));
        let loners = loners.collect::<Result<_, _>>()?;
        // What is not kept need not be followed.
        view.cx.take_reads();
        Ok(Self(loners))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the judge of this number, if it is one of them, has nothing to say of nodes.
    pub(super) fn skips_filter(&self, number: usize) -> Option<bool> {
        self.0.iter().find(|loner| loner.judge == number).map(|loner| loner.skips_filter)
    }

    /// Whether all of them let the pod go to a node.
    pub(super) fn pass(&self, view: &View<'_>, judges: &[Judge], index: NodeIndex) -> Result<bool, Refusal> {
        for loner in &self.0 {
            if !loner.passes(view, &judges[loner.judge], index)? {
                return Ok(false);
            }
        }
        view.cx.take_reads();
        Ok(true)
    }

    /// Whether none of them would make the attempt fail, whichever node it was asked about.
    pub(super) fn never_fail(&self, view: &View<'_>, judges: &[Judge]) -> bool {
        self.0.iter().all(|loner| loner.never_fails(view, &judges[loner.judge]))
    }

    /// Adds what they have prepared to what the others have.
    pub(super) fn write(&self, judges: &[Judge], state: &mut CycleState, skipped: &mut SkippedFilters) {
        for loner in &self.0 {
            state.absorb(&loner.state);
            if loner.skips_filter {
                skipped.0.push(judges[loner.judge].name);
            }
        }
    }

    /// Adds what plugins that take part later may look for.
    pub(super) fn hand_over(&self, judges: &[Judge], state: &mut CycleState) {
        for loner in self.0.iter().filter(|loner| judges[loner.judge].sets_aside) {
            state.absorb(&loner.state);
        }
    }
}
