//! Selects the best node from cached answers.

use smallvec::SmallVec;
use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize};
use supercargo_framework::{CycleState, NodeIndex};

use super::answers::{Answers, Scores};
use super::fallback::Fallback;
use super::groups::{Grouping, Groups, RowsByPlugin};
use super::relative_scores::RelativeScores;
use super::table::{Columns, DomainVerdicts, Table, column};
use super::tournament::OUT;
use super::view::View;
use crate::scoring::by_max;
use supercargo_runtime::profile::TablePlugin;

/// Scores that are not part of the sums.
struct LateScores<'a> {
    plugin: &'a TablePlugin,
    state: &'a CycleState,
    scores: &'a Scores,
    weight: i64,
}

impl<'a> LateScores<'a> {
    /// Whether all nodes of a domain have the same score, independent of other nodes.
    fn is_by_domain(&self) -> bool {
        matches!(self.scores.answers, Answers::PerDomain(_))
            && (self.plugin.normalization() != Normalize::Custom || self.plugin.normalizes_by_range())
    }

    /// By node, its class, if nodes of a domain and class differ only by normalization.
    fn classes(&self) -> Option<&'a [i64]> {
        self.scores.rows().filter(|_| self.plugin.normalizes_by_range())
    }

    /// The raw score of a class with this node.
    fn raw_of_class(&self, view: &View<'_>, class: i64, index: NodeIndex) -> Result<i64, Fallback> {
        match self.scores.answers {
            Answers::PerNode(_) => Ok(class),
            Answers::Classes(..) | Answers::PerDomain(_) => self.raw_of_node(view, index),
        }
    }

    fn normalize(&self, view: &View<'_>, raw: &mut [i64]) -> Result<(), Fallback> {
        let Some((_, score)) = &self.plugin.score else { return Ok(()) };
        match score.normalization() {
            Normalize::None => {}
            Normalize::ByMax { reverse } => by_max(raw, reverse),
            Normalize::Custom => {
                view.calls.enter("NormalizeScore", self.plugin.name);
                if !score.normalize(self.state, view.pod, raw).is_success() {
                    return Err(Fallback::Cycle);
                }
            }
        }
        let is_score = |score: &i64| (0..=MAX_NODE_SCORE).contains(score);
        if raw.iter().all(is_score) { Ok(()) } else { Err(Fallback::Cycle) }
    }

    fn raw_of_node(&self, view: &View<'_>, index: NodeIndex) -> Result<i64, Fallback> {
        let Some((_, score)) = &self.plugin.score else { return Ok(0) };
        view.calls.enter("Score", self.plugin.name);
        score.score(view.cx, self.state, view.pod, view.nodes.at(index)).map_err(|_| Fallback::Cycle)
    }
}

impl Table {
    /// The first rejection of each domain by filters that run by domain, with the filter's
    /// position.
    pub(super) fn domain_verdicts(
        &self,
        view: &View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
    ) -> Result<DomainVerdicts, Fallback> {
        let mut found: DomainVerdicts = self.layout.domains().map(|_| None).collect();
        for (number, plugin) in plugins.iter().enumerate() {
            let column = column(columns, self.columns[number]);
            let (Some((place, filter)), Some(verdicts)) = (&plugin.filter, &column.verdicts) else {
                continue;
            };
            if !matches!(verdicts.answers, Answers::PerDomain(_)) {
                continue;
            }
            view.calls.enter("Filter", plugin.name);
            for (leaves, found) in self.layout.domains().zip(&mut found) {
                let node = view.nodes.at(self.layout.node(leaves.start));
                let status = filter.filter(view.cx, &column.state, view.pod, node);
                if !status.is_success() && !status.is_rejected() {
                    return Err(Fallback::Cycle);
                }
                if status.is_rejected() && found.as_ref().is_none_or(|(first, _)| place < first) {
                    *found = Some((*place, status.by(plugin.name)));
                }
            }
        }
        // Filters by domain run in every cycle, so their reads need not be tracked.
        view.cx.take_reads();
        Ok(found)
    }

    /// Tells the plugins with relative scores which nodes are feasible. Returns whether the domains
    /// changed.
    pub(super) fn settle_relative(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
        verdicts: &DomainVerdicts,
    ) -> Result<bool, Fallback> {
        if self.relative.is_empty() {
            return Ok(false);
        }
        let unsettled = self.take_unsettled(verdicts.iter().map(Option::is_none));
        let mut all_relative = std::mem::take(&mut self.relative);
        for relative in &mut all_relative {
            let filter_state = &column(columns, self.columns[relative.plugin]).state;
            let feasible = |index| {
                let leaf = self.layout.leaf(index);
                leaf.is_some_and(|leaf| verdicts[self.layout.place(leaf).0].is_none()) && self.passes(index)
            };
            let candidates = unsettled.iter().copied();
            let asked =
                relative.settle(view, &plugins[relative.plugin], filter_state, feasible, candidates)?;
            self.note_asked(asked);
        }
        self.relative = all_relative;
        self.lay_out_relative(view, plugins, columns)
    }

    /// Whether a node's score is independent of which other nodes are feasible.
    pub(super) fn scores_are_absolute(&self, plugins: &[TablePlugin], columns: &Columns) -> bool {
        self.is_flat()
            && self.late(plugins, columns).iter().all(|late| late.plugin.normalization() == Normalize::None)
    }

    /// Updates scores to the feasible nodes. Returns the verdicts by domain.
    pub(super) fn settle(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
    ) -> Result<DomainVerdicts, Fallback> {
        let mut verdicts = self.domain_verdicts(view, plugins, columns)?;
        if self.settle_relative(view, plugins, columns, &verdicts)? {
            verdicts = self.domain_verdicts(view, plugins, columns)?;
        }
        self.settle_greatest(view, plugins, columns, &verdicts)?;
        self.regroup(view, plugins, columns);
        Ok(verdicts)
    }

    /// The best node; `None` if no node is feasible.
    pub(super) fn select(
        &self,
        view: &View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
        verdicts: &DomainVerdicts,
    ) -> Result<Option<NodeIndex>, Fallback> {
        let late = self.late(plugins, columns);
        let (by_domain, by_node): (SmallVec<[&LateScores<'_>; 4]>, SmallVec<[&LateScores<'_>; 4]>) =
            late.iter().partition(|late| late.is_by_domain());
        let offsets = self.offsets(view, &by_domain, verdicts)?;
        let leaf = if by_node.is_empty() {
            self.winner(&offsets)
        } else if let Grouping::Kept(groups) = &self.grouping {
            self.best_of_groups(view, &by_node, &offsets, groups)?
        } else {
            self.best_of_all(view, &by_node, &offsets)?
        };
        Ok(leaf.map(|leaf| self.layout.node(leaf)))
    }

    /// Whether the total score of any set of nodes follows from their raw scores by node.
    pub(super) fn is_summed(&self, plugins: &[TablePlugin], columns: &Columns) -> bool {
        !self.relative.iter().any(RelativeScores::may_score) && self.late(plugins, columns).is_empty()
    }

    /// The best of these nodes, which are in visiting order, if the scores are summed; `None` if no
    /// node is feasible.
    pub(super) fn select_among(
        &self,
        plugins: &[TablePlugin],
        columns: &Columns,
        verdicts: &DomainVerdicts,
        nodes: &[NodeIndex],
    ) -> Result<Option<NodeIndex>, Fallback> {
        let mut best: Option<(NodeIndex, i64)> = None;
        for (index, total) in self.totals_among(plugins, columns, verdicts, nodes)? {
            if best.is_none_or(|(_, greatest)| total > greatest) {
                best = Some((index, total));
            }
        }
        Ok(best.map(|(index, _)| index))
    }

    /// The classes of the nodes for each plugin with scores normalized over all nodes; `None` if
    /// there is no such plugin, or one without classes.
    pub(super) fn classes<'a>(
        &'a self,
        plugins: &'a [TablePlugin],
        columns: &'a Columns,
    ) -> Option<RowsByPlugin<'a>> {
        let late = self.late(plugins, columns);
        let classes = late.into_iter().filter(|late| !late.is_by_domain()).map(|late| late.classes());
        classes.collect::<Option<RowsByPlugin<'_>>>().filter(|classes| !classes.is_empty())
    }

    fn late<'a>(&'a self, plugins: &'a [TablePlugin], columns: &'a Columns) -> SmallVec<[LateScores<'a>; 4]> {
        let mut late = SmallVec::new();
        for (number, plugin) in plugins.iter().enumerate() {
            let Some((weight, _)) = &plugin.score else { continue };
            let relative = self.relative.iter().find(|relative| relative.plugin == number);
            let column = column(columns, self.columns[number]);
            let (state, scores) = match relative {
                Some(relative) => (relative.state(), relative.scores.as_ref()),
                None => (&column.state, column.scores.as_ref()),
            };
            let Some(scores) = scores else { continue };
            let summed = relative.is_none()
                && matches!(scores.answers, Answers::PerNode(_))
                && matches!(plugin.normalization(), Normalize::None | Normalize::ByMax { .. });
            if !summed {
                late.push(LateScores { plugin, state, scores, weight: *weight });
            }
        }
        late
    }

    /// By domain, the scores to add to the sums of its nodes; `None` if none is feasible.
    fn offsets(
        &self,
        view: &View<'_>,
        late: &[&LateScores<'_>],
        verdicts: &DomainVerdicts,
    ) -> Result<SmallVec<[Option<i64>; 4]>, Fallback> {
        let competes = |(sums, verdict): (&super::tournament::Tournament, &Option<_>)| {
            (verdict.is_none() && sums.best() != OUT).then_some(0)
        };
        let mut offsets: SmallVec<[Option<i64>; 4]> = self.sums.iter().zip(verdicts).map(competes).collect();
        for late in late {
            let mut raw: SmallVec<[i64; 4]> = SmallVec::new();
            for (leaves, _) in self.layout.domains().zip(&offsets).filter(|(_, offset)| offset.is_some()) {
                raw.push(late.raw_of_node(view, self.layout.node(leaves.start))?);
            }
            late.normalize(view, &mut raw)?;
            for (offset, score) in offsets.iter_mut().flatten().zip(&raw) {
                *offset += score * late.weight;
            }
        }
        view.cx.take_reads();
        Ok(offsets)
    }

    /// The leaf with the greatest total, the first in visiting order among equals.
    fn winner(&self, offsets: &[Option<i64>]) -> Option<usize> {
        let mut best: Option<(i64, std::cmp::Reverse<u32>, usize)> = None;
        for ((sums, leaves), offset) in self.sums.iter().zip(self.layout.domains()).zip(offsets) {
            let (Some((place, sum)), Some(offset)) = (sums.winner(), offset) else { continue };
            let leaf = leaves.start + place;
            let candidate = (sum + offset, std::cmp::Reverse(self.layout.rank(leaf)), leaf);
            if best.is_none_or(|best| candidate > best) {
                best = Some(candidate);
            }
        }
        best.map(|(_, _, leaf)| leaf)
    }

    /// The best leaf if some scores are normalized over all feasible nodes, and these are in
    /// groups.
    fn best_of_groups(
        &self,
        view: &View<'_>,
        late: &[&LateScores<'_>],
        offsets: &[Option<i64>],
        groups: &Groups,
    ) -> Result<Option<usize>, Fallback> {
        let competing: SmallVec<[_; 16]> =
            groups.iter().filter_map(|group| Some((group, group.best()?, offsets[group.domain]?))).collect();
        let mut totals: SmallVec<[i64; 16]> =
            competing.iter().map(|(_, best, offset)| best.sum() + offset).collect();
        for (place, late) in late.iter().enumerate() {
            let mut raw: SmallVec<[i64; 16]> = SmallVec::new();
            for (group, best, _) in &competing {
                raw.push(late.raw_of_class(view, group.class[place], self.layout.node(best.leaf()))?);
            }
            late.normalize(view, &mut raw)?;
            for (total, score) in totals.iter_mut().zip(&raw) {
                *total += score * late.weight;
            }
        }
        view.cx.take_reads();
        let bests = totals.iter().zip(&competing).map(|(total, (_, best, _))| (*total, *best));
        Ok(bests
            .max_by_key(|(total, best)| (*total, std::cmp::Reverse(best.rank)))
            .map(|(_, best)| best.leaf()))
    }

    /// The same without groups.
    fn best_of_all(
        &self,
        view: &View<'_>,
        late: &[&LateScores<'_>],
        offsets: &[Option<i64>],
    ) -> Result<Option<usize>, Fallback> {
        let (leaves, totals) = self.totals_of_all(view, late, offsets)?;
        let best = totals.iter().copied().max();
        Ok(best.and_then(|best| totals.iter().position(|total| *total == best)).map(|place| leaves[place]))
    }

    /// The feasible leaves and their totals, in visiting order.
    fn totals_of_all(
        &self,
        view: &View<'_>,
        late: &[&LateScores<'_>],
        offsets: &[Option<i64>],
    ) -> Result<(Vec<usize>, Vec<i64>), Fallback> {
        let mut leaves: Vec<usize> = Vec::new();
        let mut totals: Vec<i64> = Vec::new();
        for ((sums, domain), offset) in self.sums.iter().zip(self.layout.domains()).zip(offsets) {
            let Some(offset) = offset else { continue };
            for (leaf, sum) in domain.zip(sums.leaves()).filter(|(_, sum)| **sum != OUT) {
                leaves.push(leaf);
                totals.push(sum + offset);
            }
        }
        if self.sums.len() > 1 {
            // Normalization may depend on visiting order, and ties do.
            let mut places: Vec<usize> = (0..leaves.len()).collect();
            places.sort_unstable_by_key(|place| self.layout.rank(leaves[*place]));
            totals = places.iter().map(|place| totals[*place]).collect();
            leaves = places.iter().map(|place| leaves[*place]).collect();
        }
        let mut raw: Vec<i64> = Vec::with_capacity(leaves.len());
        for late in late {
            raw.clear();
            match &late.scores.answers {
                Answers::PerNode(rows) => {
                    let slots = self.layout.slots();
                    raw.extend(leaves.iter().map(|leaf| rows[slots[*leaf] as usize]));
                }
                Answers::PerDomain(_) | Answers::Classes(..) => {
                    for leaf in &leaves {
                        raw.push(late.raw_of_node(view, self.layout.node(*leaf))?);
                    }
                    view.cx.take_reads();
                }
            }
            late.normalize(view, &mut raw)?;
            for (total, score) in totals.iter_mut().zip(&raw) {
                *total += score * late.weight;
            }
        }
        Ok((leaves, totals))
    }

    /// Keeps the totals behind an answer for the comparison.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn note_totals(
        &mut self,
        view: &View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
        verdicts: &DomainVerdicts,
        candidates: Option<&[NodeIndex]>,
    ) -> Result<(), Fallback> {
        if let Some(nodes) = candidates {
            self.totals = self.totals_among(plugins, columns, verdicts, nodes)?;
            return Ok(());
        }
        let (leaves, totals) = {
            let late = self.late(plugins, columns);
            let (by_domain, by_node): (Vec<&LateScores<'_>>, Vec<&LateScores<'_>>) =
                late.iter().partition(|late| late.is_by_domain());
            self.totals_of_all(view, &by_node, &self.offsets(view, &by_domain, verdicts)?)?
        };
        self.totals = leaves.iter().map(|leaf| self.layout.node(*leaf)).zip(totals).collect();
        Ok(())
    }
}
