//! From kept answers to the best node.

use smallvec::SmallVec;
use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize};
use supercargo_framework::{CycleState, NodeIndex, Status};

use super::Refusal;
use super::answers::{Answers, Scores, View};
use super::groups::{Grouping, Groups, RowsByPlugin};
use super::table::{Columns, Table, column, normalization};
use super::tournament::OUT;
use crate::profile::Judge;
use crate::scoring::by_max;

/// What filters say of each domain: `None` where nodes may pass.
pub(super) type DomainVerdicts = SmallVec<[Option<(usize, Status)>; 4]>;

/// Scores that are not part of the sums.
struct Late<'a> {
    judge: &'a Judge,
    state: &'a CycleState,
    scores: &'a Scores,
    weight: i64,
}

impl<'a> Late<'a> {
    /// Whether the scores of a domain's nodes are the same, whatever the other nodes' are like.
    fn is_by_domain(&self) -> bool {
        matches!(self.scores.answers, Answers::PerDomain(_)) && normalization(self.judge) != Normalize::Custom
    }

    /// By node, its class, where the scores of a domain's nodes of one class are the same but for how they are normalised.
    fn classes(&self) -> Option<&'a [i64]> {
        self.scores.rows().filter(|_| normalization(self.judge) == Normalize::ByRange)
    }

    /// The raw score of a class, of which one node is.
    fn raw_of_class(&self, view: &View<'_>, class: i64, index: NodeIndex) -> Result<i64, Refusal> {
        match self.scores.answers {
            Answers::PerNode(_) => Ok(class),
            Answers::Classes(..) | Answers::PerDomain(_) => self.raw_of_node(view, index),
        }
    }

    fn normalize(&self, view: &View<'_>, raw: &mut [i64]) -> Result<(), Refusal> {
        let Some((_, plugin)) = &self.judge.score else { return Ok(()) };
        match plugin.normalization() {
            Normalize::None => {}
            Normalize::ByMax { reverse } => by_max(raw, reverse),
            Normalize::ByRange | Normalize::Custom => {
                view.running.set("NormalizeScore", self.judge.name);
                if !plugin.normalize(self.state, view.pod, raw).is_success() {
                    return Err(Refusal::Passing);
                }
            }
        }
        let is_score = |score: &i64| (0..=MAX_NODE_SCORE).contains(score);
        if raw.iter().all(is_score) { Ok(()) } else { Err(Refusal::Passing) }
    }

    fn raw_of_node(&self, view: &View<'_>, index: NodeIndex) -> Result<i64, Refusal> {
        let Some((_, plugin)) = &self.judge.score else { return Ok(0) };
        view.running.set("Score", self.judge.name);
        plugin.score(view.cx, self.state, view.pod, view.nodes.at(index)).map_err(|_| Refusal::Passing)
    }
}

impl Table {
    /// What the filters that are asked by domain say of each, the one first in order; by its place among the filters.
    pub(super) fn domain_verdicts(
        &self,
        view: &View<'_>,
        judges: &[Judge],
        columns: &Columns,
    ) -> Result<DomainVerdicts, Refusal> {
        let mut found: DomainVerdicts = self.layout.domains().map(|_| None).collect();
        for (number, judge) in judges.iter().enumerate() {
            let column = column(columns, self.columns[number]);
            let (Some((place, plugin)), Some(verdicts)) = (&judge.filter, &column.verdicts) else { continue };
            if !matches!(verdicts.answers, Answers::PerDomain(_)) {
                continue;
            }
            view.running.set("Filter", judge.name);
            for (leaves, found) in self.layout.domains().zip(&mut found) {
                let node = view.nodes.at(self.layout.node(leaves.start));
                let status = plugin.filter(view.cx, &column.state, view.pod, node);
                if !status.is_success() && !status.is_rejected() {
                    return Err(Refusal::Passing);
                }
                if status.is_rejected() && found.as_ref().is_none_or(|(first, _)| place < first) {
                    *found = Some((*place, status.by(judge.name)));
                }
            }
        }
        // What is read about a domain is read anew each time.
        view.cx.take_reads();
        Ok(found)
    }

    /// Tells the plugins whose scores depend on it which nodes are feasible. Answers whether nodes are in other domains now.
    pub(super) fn settle_own(
        &mut self,
        view: &mut View<'_>,
        judges: &[Judge],
        columns: &Columns,
        verdicts: &DomainVerdicts,
    ) -> Result<bool, Refusal> {
        if self.own.is_empty() {
            return Ok(false);
        }
        let unsettled = self.take_unsettled(verdicts.iter().map(Option::is_none));
        let mut owns = std::mem::take(&mut self.own);
        for own in &mut owns {
            let filter_state = &column(columns, self.columns[own.judge]).state;
            let feasible = |index| {
                let leaf = self.layout.leaf(index);
                leaf.is_some_and(|leaf| verdicts[self.layout.place(leaf).0].is_none()) && self.passes(index)
            };
            let candidates = unsettled.iter().copied();
            let asked = own.settle(view, &judges[own.judge], filter_state, feasible, candidates)?;
            self.note_asked(asked);
        }
        self.own = owns;
        self.lay_out_own(view, judges, columns)
    }

    /// Whether what a node scores does not depend on which other nodes are feasible.
    pub(super) fn scores_are_absolute(&self, judges: &[Judge], columns: &Columns) -> bool {
        self.is_flat()
            && self.late(judges, columns).iter().all(|late| normalization(late.judge) == Normalize::None)
    }

    /// Sees to it that scores are those of the feasible nodes; what the filters that are asked by domain say of each.
    pub(super) fn settle(
        &mut self,
        view: &mut View<'_>,
        judges: &[Judge],
        columns: &Columns,
    ) -> Result<DomainVerdicts, Refusal> {
        let mut verdicts = self.domain_verdicts(view, judges, columns)?;
        if self.settle_own(view, judges, columns, &verdicts)? {
            verdicts = self.domain_verdicts(view, judges, columns)?;
        }
        self.settle_greatest(view, judges, columns, &verdicts)?;
        self.regroup(view, judges, columns);
        Ok(verdicts)
    }

    /// The best node; `None` when no node is feasible.
    pub(super) fn select(
        &self,
        view: &View<'_>,
        judges: &[Judge],
        columns: &Columns,
        verdicts: &DomainVerdicts,
    ) -> Result<Option<NodeIndex>, Refusal> {
        let late = self.late(judges, columns);
        let (by_domain, by_node): (SmallVec<[&Late<'_>; 4]>, SmallVec<[&Late<'_>; 4]>) =
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

    /// The classes of the nodes for each plugin whose scores are normalised over all of them; `None` when there is no such
    /// plugin, or one that has none.
    pub(super) fn classes<'a>(
        &'a self,
        judges: &'a [Judge],
        columns: &'a Columns,
    ) -> Option<RowsByPlugin<'a>> {
        let late = self.late(judges, columns);
        let classes = late.into_iter().filter(|late| !late.is_by_domain()).map(|late| late.classes());
        classes.collect::<Option<RowsByPlugin<'_>>>().filter(|classes| !classes.is_empty())
    }

    fn late<'a>(&'a self, judges: &'a [Judge], columns: &'a Columns) -> SmallVec<[Late<'a>; 4]> {
        let mut late = SmallVec::new();
        for (number, judge) in judges.iter().enumerate() {
            let Some((weight, _)) = &judge.score else { continue };
            let own = self.own.iter().find(|own| own.judge == number);
            let column = column(columns, self.columns[number]);
            let (state, scores) = match own {
                Some(own) => (own.state(), own.scores.as_ref()),
                None => (&column.state, column.scores.as_ref()),
            };
            let Some(scores) = scores else { continue };
            let summed = own.is_none()
                && matches!(scores.answers, Answers::PerNode(_))
                && matches!(normalization(judge), Normalize::None | Normalize::ByMax { .. });
            if !summed {
                late.push(Late { judge, state, scores, weight: *weight });
            }
        }
        late
    }

    /// By domain, what its nodes score on top of their sums; `None` where none of its nodes is feasible.
    fn offsets(
        &self,
        view: &View<'_>,
        late: &[&Late<'_>],
        verdicts: &DomainVerdicts,
    ) -> Result<SmallVec<[Option<i64>; 4]>, Refusal> {
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

    /// The leaf with the greatest sum, the first in visiting order of several.
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

    /// The same where some scores are normalised over all feasible nodes, and those are in groups.
    fn best_of_groups(
        &self,
        view: &View<'_>,
        late: &[&Late<'_>],
        offsets: &[Option<i64>],
        groups: &Groups,
    ) -> Result<Option<usize>, Refusal> {
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

    /// The same node by node.
    fn best_of_all(
        &self,
        view: &View<'_>,
        late: &[&Late<'_>],
        offsets: &[Option<i64>],
    ) -> Result<Option<usize>, Refusal> {
        let (leaves, totals) = self.totals_of_all(view, late, offsets)?;
        let best = totals.iter().copied().max();
        Ok(best.and_then(|best| totals.iter().position(|total| *total == best)).map(|place| leaves[place]))
    }

    /// The feasible leaves and their totals, in visiting order.
    fn totals_of_all(
        &self,
        view: &View<'_>,
        late: &[&Late<'_>],
        offsets: &[Option<i64>],
    ) -> Result<(Vec<usize>, Vec<i64>), Refusal> {
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
            // Whoever normalises may count on visiting order, and so do ties.
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

    /// Keeps the totals behind an answer, for comparison.
    #[cfg(test)]
    pub(super) fn note_totals(
        &mut self,
        view: &View<'_>,
        judges: &[Judge],
        columns: &Columns,
        verdicts: &DomainVerdicts,
    ) -> Result<(), Refusal> {
        let (leaves, totals) = {
            let late = self.late(judges, columns);
            let (by_domain, by_node): (Vec<&Late<'_>>, Vec<&Late<'_>>) =
                late.iter().partition(|late| late.is_by_domain());
            self.totals_of_all(view, &by_node, &self.offsets(view, &by_domain, verdicts)?)?
        };
        self.totals = leaves.iter().map(|leaf| self.layout.node(*leaf)).zip(totals).collect();
        Ok(())
    }
}
