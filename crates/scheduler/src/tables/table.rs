//! All answers about one signature, added up: for every node whether it is feasible, and what it scores.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::NodeIndex;
use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize};

use super::Refusal;
use super::answers::{Answers, Asked, PASSES, View};
use super::column::Column;
use super::groups::Grouping;
use super::layout::{Keys, Layout};
use super::own::Own;
use super::proportional::Proportional;
use super::rule::Rule;
use super::select::DomainVerdicts;
use super::tournament::{OUT, Tournament};
use crate::changes::Cursor;
use crate::profile::Judge;

/// The columns of a table, one per judge, by number.
pub(super) type ColumnIds = SmallVec<[u32; 20]>;

/// All columns of a profile, by number.
pub(super) type Columns = Vec<Option<Column>>;

/// Everything known of one signature.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: ColumnIds,
    /// The versions of the columns that were added up.
    versions: SmallVec<[u64; 20]>,
    cursor: Cursor,
    pub(super) layout: Arc<Layout>,
    keys: Keys,
    /// By domain of the layout, the sums of what is scored by node alone; nodes that are not feasible are out.
    pub(super) sums: Vec<Tournament>,
    proportional: SmallVec<[Proportional; 2]>,
    /// The plugins whose scores depend on which nodes are feasible.
    pub(super) own: Vec<Own>,
    /// The keys of those scores that are kept by domain.
    own_keys: Keys,
    /// The nodes that may have become feasible, or stopped being so, since those were told.
    unsettled: Vec<NodeIndex>,
    /// By domain, whether its nodes could pass when they were told.
    passed: SmallVec<[bool; 4]>,
    /// Where some scores are normalised over all nodes, those that have the same ones.
    pub(super) grouping: Grouping,
    /// The nodes whose sum or class may be another since they were put into groups.
    ungrouped: Vec<NodeIndex>,
    /// Nodes that are out of the race in this cycle only, for pods that have been promised them.
    disturbed: Vec<NodeIndex>,
    pub(super) last_used: u64,
    /// Whether it has been brought up to date since it was made.
    #[cfg(test)]
    pub(super) has_replayed: bool,
    /// The total scores behind the last answer.
    #[cfg(test)]
    pub(super) totals: Vec<(NodeIndex, i64)>,
}

pub(super) fn column(columns: &Columns, id: u32) -> &Column {
    columns[id as usize].as_ref().expect("a table's columns stay as long as the table")
}

/// How a judge's scores are normalised.
pub(super) fn normalization(judge: &Judge) -> Normalize {
    judge.score.as_ref().map_or(Normalize::None, |(_, plugin)| plugin.normalization())
}

/// A judge whose scores are added up row by row.
struct Summed<'a> {
    judge: usize,
    rows: &'a [i64],
    weight: i64,
    /// `None` when raw scores are scores.
    reverse: Option<bool>,
}

impl Table {
    /// Adds up columns that are current.
    pub(super) fn new(
        view: &mut View<'_>,
        judges: &[Judge],
        columns: &Columns,
        ids: ColumnIds,
    ) -> Result<Self, Refusal> {
        let mut table = Self {
            columns: ids,
            versions: SmallVec::new(),
            cursor: view.log.end(),
            layout: view.topology.layout(view.nodes, &Keys::new()),
            keys: Keys::new(),
            sums: Vec::new(),
            proportional: SmallVec::new(),
            own: Vec::new(),
            own_keys: Keys::new(),
            unsettled: Vec::new(),
            passed: SmallVec::new(),
            grouping: Grouping::default(),
            ungrouped: Vec::new(),
            disturbed: Vec::new(),
            last_used: 0,
            #[cfg(test)]
            has_replayed: false,
            #[cfg(test)]
            totals: Vec::new(),
        };
        table.rebuild(view, judges, columns)?;
        Ok(table)
    }

    fn rebuild(&mut self, view: &mut View<'_>, judges: &[Judge], columns: &Columns) -> Result<(), Refusal> {
        self.cursor = view.log.end();
        self.disturbed.clear();
        self.versions = self.columns.iter().map(|id| column(columns, *id).version).collect();
        if self.own_keys.iter().any(|key| !view.topology.is_coarse(view.nodes, key)) {
            self.own_keys.clear();
        }
        self.keys = self.shared_keys(columns);
        self.layout = view.topology.layout(view.nodes, &self.keys);
        self.add_up(view, judges, columns)?;
        self.own.clear();
        self.unsettled.clear();
        for (number, judge) in judges.iter().enumerate() {
            if judge.pre_score.is_some() && judge.caching.pre_score_depends_on_nodes() {
                self.own.push(Own::new(number));
            }
        }
        Ok(())
    }

    /// Sees to it that the domains are fine enough for scores that depend on the feasible nodes; whether they were not.
    pub(super) fn lay_out_own(
        &mut self,
        view: &mut View<'_>,
        judges: &[Judge],
        columns: &Columns,
    ) -> Result<bool, Refusal> {
        let scores = self.own.iter().filter_map(|own| own.scores.as_ref());
        let mut missing =
            scores.flat_map(|scores| scores.answers.keys()).filter(|key| !self.keys.contains(key));
        if missing.next().is_none() {
            return Ok(false);
        }
        let scores = self.own.iter().filter_map(|own| own.scores.as_ref());
        self.own_keys = scores.flat_map(|scores| scores.answers.keys()).cloned().collect();
        self.keys = self.shared_keys(columns);
        self.layout = view.topology.layout(view.nodes, &self.keys);
        self.add_up(view, judges, columns)?;
        Ok(true)
    }

    /// The keys of all columns that are kept by domain.
    fn shared_keys(&self, columns: &Columns) -> Keys {
        let mut keys = self.own_keys.clone();
        for id in &self.columns {
            let column = column(columns, *id);
            let filter = column.verdicts.as_ref().map(|verdicts| verdicts.answers.keys());
            let score = column.scores.as_ref().map(|scores| scores.answers.keys());
            keys.extend(filter.into_iter().chain(score).flatten().cloned());
        }
        keys.sort();
        keys.dedup();
        keys
    }

    /// The judges whose scores are added up row by row, with their rows.
    fn summed<'a>(
        ids: &'a [u32],
        judges: &'a [Judge],
        columns: &'a Columns,
    ) -> impl Iterator<Item = Summed<'a>> {
        judges.iter().enumerate().filter_map(move |(number, judge)| {
            let (weight, plugin) = judge.score.as_ref()?;
            let Answers::PerNode(rows) = &column(columns, ids[number]).scores.as_ref()?.answers else {
                return None;
            };
            let reverse = match plugin.normalization() {
                Normalize::None => None,
                Normalize::ByMax { reverse } => Some(reverse),
                Normalize::ByRange | Normalize::Custom => return None,
            };
            Some(Summed { judge: number, rows, weight: *weight, reverse })
        })
    }

    /// Adds up all columns for all nodes.
    fn add_up(&mut self, view: &View<'_>, judges: &[Judge], columns: &Columns) -> Result<(), Refusal> {
        let feasible = self.feasible(view, columns);
        self.proportional = Self::summed(&self.columns, judges, columns)
            .filter_map(|Summed { judge, rows, reverse, .. }| {
                Some(Proportional::new(judge, reverse?, rows, &feasible, &self.layout))
            })
            .collect();
        self.sum_up(judges, columns, &feasible)
    }

    /// Whether nothing is in proportion to the greatest: all feasible nodes have the same.
    pub(super) fn is_flat(&self) -> bool {
        self.proportional.iter().all(Proportional::is_flat)
    }

    /// Sees to it that scores are in proportion to the greatest of a node in a domain that is not ruled out.
    pub(super) fn settle_greatest(
        &mut self,
        view: &mut View<'_>,
        judges: &[Judge],
        columns: &Columns,
        verdicts: &DomainVerdicts,
    ) -> Result<(), Refusal> {
        let mut same = true;
        for share in &mut self.proportional {
            same &= share.settle(verdicts.iter().map(Option::is_none));
        }
        if !same && view.rules.follow(Rule::Greatest) {
            let feasible = self.feasible(view, columns);
            self.sum_up(judges, columns, &feasible)?;
        }
        Ok(())
    }

    /// Adds up for all nodes, in proportion to what is known to be the greatest.
    fn sum_up(&mut self, judges: &[Judge], columns: &Columns, feasible: &[bool]) -> Result<(), Refusal> {
        let mut sums = vec![0_i64; feasible.len()];
        for Summed { judge, rows, weight, reverse } in Self::summed(&self.columns, judges, columns) {
            let mut out_of_range = false;
            match reverse {
                None => {
                    for ((sum, raw), feasible) in sums.iter_mut().zip(rows).zip(feasible) {
                        out_of_range |= *feasible & !(0..=MAX_NODE_SCORE).contains(raw);
                        *sum = sum.wrapping_add(raw.wrapping_mul(weight));
                    }
                }
                Some(_) => {
                    let share = self.proportional.iter().find(|share| share.judge == judge);
                    let share = share.ok_or(Refusal::Passing)?;
                    if share.is_flat() {
                        let same = share.score(0);
                        for sum in &mut sums {
                            *sum += same * weight;
                        }
                        continue;
                    }
                    for ((sum, raw), feasible) in sums.iter_mut().zip(rows).zip(feasible) {
                        let score = share.score(*raw);
                        let counts = *feasible & share.covers(*raw);
                        out_of_range |= counts & !(0..=MAX_NODE_SCORE).contains(&score);
                        *sum = sum.wrapping_add(score.wrapping_mul(weight));
                    }
                }
            }
            if out_of_range {
                return Err(Refusal::Passing);
            }
        }
        let layout = &self.layout;
        let sum_of = |leaf: usize| {
            let slot = layout.node(leaf).0 as usize;
            if feasible[slot] { sums[slot] } else { OUT }
        };
        self.sums = layout.domains().map(|leaves| Tournament::new(leaves.map(sum_of).collect())).collect();
        self.note_asked(Asked::All);
        Ok(())
    }

    /// Whether each node passes the filters whose answers are kept by node.
    fn feasible(&self, view: &View<'_>, columns: &Columns) -> Vec<bool> {
        let mut feasible = vec![false; view.nodes.columns().len()];
        for slot in self.layout.slots() {
            feasible[*slot as usize] = true;
        }
        for index in &self.disturbed {
            feasible[index.0 as usize] = false;
        }
        for id in &self.columns {
            let verdicts = column(columns, *id).verdicts.as_ref();
            if let Some(Answers::PerNode(rows)) = verdicts.map(|verdicts| &verdicts.answers) {
                for (feasible, verdict) in feasible.iter_mut().zip(rows) {
                    *feasible &= *verdict == PASSES;
                }
            }
        }
        feasible
    }

    /// Works in what has changed since; the columns are current. Whether that was possible without starting over.
    pub(super) fn catch_up(
        &mut self,
        view: &mut View<'_>,
        judges: &[Judge],
        columns: &Columns,
    ) -> Result<bool, Refusal> {
        let Some(mut rows) = self.changed_rows(view, columns) else {
            self.rebuild(view, judges, columns)?;
            #[cfg(test)]
            {
                self.has_replayed = false;
            }
            return Ok(false);
        };
        let cursor = std::mem::replace(&mut self.cursor, view.log.end());
        rows.extend(view.log.since(cursor).filter_map(|(_, change)| change.index()));
        rows.sort_unstable();
        rows.dedup();
        view.replayed(rows.len());
        #[cfg(test)]
        {
            self.has_replayed |= !rows.is_empty();
        }
        for own in &mut self.own {
            own.take(view, &judges[own.judge], cursor);
        }
        self.add_up_rows(view, judges, columns, &rows)?;
        Ok(true)
    }

    /// The rows that are others for other reasons than that their node has changed; `None` when it is better to start over.
    fn changed_rows(&mut self, view: &mut View<'_>, columns: &Columns) -> Option<SmallVec<[NodeIndex; 16]>> {
        let same = |(id, version): (&u32, &u64)| column(columns, *id).version == *version;
        if !self.columns.iter().zip(&self.versions).all(same) {
            return None;
        }
        let layout = view.topology.layout(view.nodes, &self.keys);
        if !Arc::ptr_eq(&layout, &self.layout) {
            let rule = if self.keys.is_empty() { Rule::Order } else { Rule::Domain };
            if view.rules.follow(rule) {
                return None;
            }
        }
        let bearable = |lag: usize| lag <= 64.max(view.nodes.len() / 4);
        if !view.log.lag(self.cursor).is_some_and(bearable) && view.rules.follow(Rule::Behind) {
            return None;
        }
        let mut rows: SmallVec<[NodeIndex; 16]> = self.disturbed.drain(..).collect();
        for id in &self.columns {
            rows.extend(column(columns, *id).touched_since(self.cursor)?);
        }
        Some(rows)
    }

    fn add_up_rows(
        &mut self,
        view: &mut View<'_>,
        judges: &[Judge],
        columns: &Columns,
        rows: &[NodeIndex],
    ) -> Result<(), Refusal> {
        if !self.own.is_empty() {
            self.unsettled.extend_from_slice(rows);
        }
        self.note_asked(Asked::Some(rows.into()));
        for index in rows {
            if !self.add_up_row(view, judges, columns, *index)? {
                return self.add_up(view, judges, columns);
            }
        }
        Ok(())
    }

    /// Takes note that these nodes' answers are others.
    pub(super) fn note_asked(&mut self, asked: Asked) {
        match asked {
            Asked::All => self.grouping = Grouping::Stale,
            Asked::Some(rows) => self.ungrouped.extend(rows),
        }
    }

    /// Puts nodes into groups where scores are normalised over all of them, or moves those between groups that are others.
    pub(super) fn regroup(&mut self, view: &mut View<'_>, judges: &[Judge], columns: &Columns) {
        let mut grouping = std::mem::take(&mut self.grouping);
        let mut changed = std::mem::take(&mut self.ungrouped);
        match self.classes(judges, columns) {
            Some(classes) => grouping.follow(view, &self.layout, &self.sums, &classes, &changed),
            None => grouping = Grouping::Stale,
        }
        changed.clear();
        (self.grouping, self.ungrouped) = (grouping, changed);
    }

    /// Adds up the answers about one node; `false` when everything is to be added up anew.
    fn add_up_row(
        &mut self,
        view: &View<'_>,
        judges: &[Judge],
        columns: &Columns,
        index: NodeIndex,
    ) -> Result<bool, Refusal> {
        let Some(leaf) = self.layout.leaf(index).filter(|_| view.nodes.has(index)) else { return Ok(true) };
        let slot = index.0 as usize;
        let passes = |id: &u32| match column(columns, *id).verdicts.as_ref().map(|it| &it.answers) {
            Some(Answers::PerNode(rows)) => rows.get(slot).is_none_or(|verdict| *verdict == PASSES),
            _ => true,
        };
        let feasible = !self.disturbed.contains(&index) && self.columns.iter().all(passes);
        let mut sum = 0_i64;
        for Summed { judge, rows, weight, reverse } in Self::summed(&self.columns, judges, columns) {
            let raw = rows.get(slot).copied().unwrap_or_default();
            let score = match reverse {
                None => raw,
                Some(_) => {
                    let share = self.proportional.iter_mut().find(|share| share.judge == judge);
                    let Some(share) = share else { return Ok(false) };
                    if !share.set(&self.layout, leaf, feasible.then_some(raw)) {
                        return Ok(false);
                    }
                    if !share.covers(raw) {
                        // All is about to be summed up, or the node is in a domain that is ruled out.
                        continue;
                    }
                    share.score(raw)
                }
            };
            if feasible && !(0..=MAX_NODE_SCORE).contains(&score) {
                return Err(Refusal::Passing);
            }
            sum += score * weight;
        }
        let (domain, place) = self.layout.place(leaf);
        self.sums[domain].set(place, if feasible { sum } else { OUT });
        Ok(true)
    }

    /// Takes a node out of the race, for this cycle and by this rule.
    pub(super) fn disturb(
        &mut self,
        view: &mut View<'_>,
        judges: &[Judge],
        columns: &Columns,
        index: NodeIndex,
        rule: Rule,
    ) -> Result<(), Refusal> {
        if view.rules.follow(rule) {
            self.disturbed.push(index);
            self.add_up_rows(view, judges, columns, &[index])?;
        }
        Ok(())
    }

    /// Whether the node passes the filters whose answers are kept by node.
    pub(super) fn passes(&self, index: NodeIndex) -> bool {
        self.layout.leaf(index).is_some_and(|leaf| {
            let (domain, place) = self.layout.place(leaf);
            self.sums[domain].leaves()[place] != OUT
        })
    }

    /// The nodes that may have become feasible, or stopped being so, since this was last asked.
    pub(super) fn take_unsettled(&mut self, passed: impl Iterator<Item = bool>) -> Vec<NodeIndex> {
        let mut unsettled = std::mem::take(&mut self.unsettled);
        let passed: SmallVec<[bool; 4]> = passed.collect();
        for (domain, leaves) in self.layout.domains().enumerate() {
            if self.passed.get(domain) != passed.get(domain) {
                unsettled.extend(leaves.map(|leaf| self.layout.node(leaf)));
            }
        }
        self.passed = passed;
        unsettled
    }

    /// How many bytes it takes, roughly.
    pub(super) fn bytes(&self) -> usize {
        let sums: usize = self.sums.iter().map(Tournament::bytes).sum();
        let proportional: usize = self.proportional.iter().map(Proportional::bytes).sum();
        let own: usize = self.own.iter().map(Own::bytes).sum();
        sums + proportional + own + self.grouping.bytes() + size_of::<Self>()
    }
}
