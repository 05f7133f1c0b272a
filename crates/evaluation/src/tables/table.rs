//! The summed answers of one signature: for every node whether it is feasible, and its score.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize};
use supercargo_framework::{NodeIndex, Status};

use super::answers::{Answers, Asked, PASSES};
use super::column::Column;
use super::fallback::Fallback;
use super::groups::Grouping;
use super::layout::{Keys, Layout, text_bytes};
use super::proportional::{Proportional, in_proportion};
use super::relative_scores::RelativeScores;
use super::rule::Rule;
use super::tournament::{OUT, Tournament};
use super::view::View;
use crate::changes::Cursor;
use supercargo_runtime::diagnosis::Diagnosis;
use supercargo_runtime::profile::TablePlugin;

/// The columns of a table by number, one per plugin.
pub(super) type ColumnIds = SmallVec<[u32; 20]>;

/// All columns of a profile, by number.
pub(super) type Columns = Vec<Option<Column>>;

/// What filters say of each domain: `None` where nodes may pass.
pub(super) type DomainVerdicts = SmallVec<[Option<(usize, Status)>; 4]>;

/// All answers for one signature.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: ColumnIds,
    /// The versions of the summed columns.
    versions: SmallVec<[u64; 20]>,
    cursor: Cursor,
    pub(super) layout: Arc<Layout>,
    keys: Keys,
    /// By domain of the layout, the sums of scores by node; nodes that are not feasible are out.
    pub(super) sums: Vec<Tournament>,
    proportional: SmallVec<[Proportional; 2]>,
    /// The plugins whose scores depend on which nodes are feasible.
    pub(super) relative: Vec<RelativeScores>,
    /// The keys of their scores by domain.
    relative_keys: Keys,
    /// The nodes that may have become feasible or infeasible since these plugins were last told.
    unsettled: Vec<NodeIndex>,
    /// By domain, whether its nodes could pass at that time.
    passed: SmallVec<[bool; 4]>,
    /// The groups of nodes, if some scores are normalized over all nodes.
    pub(super) grouping: Grouping,
    /// The nodes whose sum or class may have changed since they were grouped.
    ungrouped: Vec<NodeIndex>,
    /// Nodes excluded in this cycle only.
    excluded: Vec<NodeIndex>,
    /// The last answer without a node, which holds until something changes, and the end of the log
    /// then.
    pub(super) rejection: Option<(Cursor, Diagnosis)>,
    pub(super) last_used: u64,
    /// Whether it was updated since it was built.
    #[cfg(any(test, feature = "testing"))]
    pub(super) has_replayed: bool,
    /// The total scores behind the last answer.
    #[cfg(any(test, feature = "testing"))]
    pub(super) totals: Vec<(NodeIndex, i64)>,
}

pub(super) fn column(columns: &Columns, id: u32) -> &Column {
    columns[id as usize].as_ref().expect("a table's columns stay as long as the table")
}

/// A plugin whose scores are summed by row.
struct Summed<'a> {
    plugin: usize,
    rows: &'a [i64],
    weight: i64,
    /// `None` if scores are not normalized.
    reverse: Option<bool>,
}

impl Table {
    /// A table that sums current columns.
    pub(super) fn new(
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
        ids: ColumnIds,
    ) -> Result<Self, Fallback> {
        let mut table = Self {
            columns: ids,
            versions: SmallVec::new(),
            cursor: view.log.end(),
            layout: view.topology.layout(view.nodes, &Keys::new()),
            keys: Keys::new(),
            sums: Vec::new(),
            proportional: SmallVec::new(),
            relative: Vec::new(),
            relative_keys: Keys::new(),
            unsettled: Vec::new(),
            passed: SmallVec::new(),
            grouping: Grouping::default(),
            ungrouped: Vec::new(),
            excluded: Vec::new(),
            rejection: None,
            last_used: 0,
            #[cfg(any(test, feature = "testing"))]
            has_replayed: false,
            #[cfg(any(test, feature = "testing"))]
            totals: Vec::new(),
        };
        table.rebuild(view, plugins, columns)?;
        Ok(table)
    }

    fn rebuild(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
    ) -> Result<(), Fallback> {
        self.cursor = view.log.end();
        self.excluded.clear();
        self.versions = self.columns.iter().map(|id| column(columns, *id).version).collect();
        if self.relative_keys.iter().any(|key| !view.topology.is_coarse(view.nodes, key)) {
            self.relative_keys.clear();
        }
        self.keys = self.shared_keys(columns);
        view.gain(self.keys_bytes() + size_of::<Self>());
        self.layout = view.topology.layout(view.nodes, &self.keys);
        self.add_up(view, plugins, columns)?;
        self.relative.clear();
        self.unsettled.clear();
        for (number, plugin) in plugins.iter().enumerate() {
            if plugin.pre_score.is_some() && plugin.caching.pre_score_depends_on_nodes() {
                let relative = RelativeScores::new(number);
                view.gain(relative.bytes());
                self.relative.push(relative);
            }
        }
        Ok(())
    }

    /// Refines the domains for relative scores. Returns whether that was necessary.
    pub(super) fn lay_out_relative(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
    ) -> Result<bool, Fallback> {
        let scores = self.relative.iter().filter_map(|relative| relative.scores.as_ref());
        let mut missing =
            scores.flat_map(|scores| scores.answers.keys()).filter(|key| !self.keys.contains(key));
        if missing.next().is_none() {
            return Ok(false);
        }
        let scores = self.relative.iter().filter_map(|relative| relative.scores.as_ref());
        self.relative_keys = scores.flat_map(|scores| scores.answers.keys()).cloned().collect();
        self.keys = self.shared_keys(columns);
        view.gain(self.keys_bytes());
        self.layout = view.topology.layout(view.nodes, &self.keys);
        self.add_up(view, plugins, columns)?;
        Ok(true)
    }

    /// The keys of all columns with answers by domain.
    fn shared_keys(&self, columns: &Columns) -> Keys {
        let mut keys = self.relative_keys.clone();
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

    /// The plugins whose scores are summed by row, with their rows.
    fn summed<'a>(
        ids: &'a [u32],
        plugins: &'a [TablePlugin],
        columns: &'a Columns,
    ) -> impl Iterator<Item = Summed<'a>> {
        plugins.iter().enumerate().filter_map(move |(number, plugin)| {
            let (weight, score) = plugin.score.as_ref()?;
            let Answers::PerNode(rows) = &column(columns, ids[number]).scores.as_ref()?.answers else {
                return None;
            };
            let reverse = match score.normalization() {
                Normalize::None => None,
                Normalize::ByMax { reverse } => Some(reverse),
                Normalize::Custom => return None,
            };
            Some(Summed { plugin: number, rows, weight: *weight, reverse })
        })
    }

    /// Sums all columns for all nodes.
    fn add_up(
        &mut self,
        view: &View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
    ) -> Result<(), Fallback> {
        let before = self.sums_bytes();
        let feasible = self.feasible(view, columns);
        self.proportional = Self::summed(&self.columns, plugins, columns)
            .filter_map(|Summed { plugin, rows, reverse, .. }| {
                Some(Proportional::new(plugin, reverse?, rows, &feasible, &self.layout))
            })
            .collect();
        self.sum_up(plugins, columns, &feasible)?;
        view.gain(self.sums_bytes().saturating_sub(before));
        Ok(())
    }

    /// The feasible ones of these nodes, with their totals. The scores must be
    /// [summed](Self::is_summed).
    pub(super) fn totals_among(
        &self,
        plugins: &[TablePlugin],
        columns: &Columns,
        verdicts: &DomainVerdicts,
        nodes: &[NodeIndex],
    ) -> Result<Vec<(NodeIndex, i64)>, Fallback> {
        let is_feasible = |index: &NodeIndex| {
            self.layout.leaf(*index).is_some_and(|leaf| verdicts[self.layout.place(leaf).0].is_none())
                && self.passes(*index)
        };
        let mut totals: Vec<_> =
            nodes.iter().filter(|index| is_feasible(index)).map(|index| (*index, 0)).collect();
        for Summed { rows, weight, reverse, .. } in Self::summed(&self.columns, plugins, columns) {
            let raw_of = |index: NodeIndex| rows.get(index.0 as usize).copied().unwrap_or_default();
            let greatest = totals.iter().map(|(index, _)| raw_of(*index)).max().unwrap_or_default();
            for (index, total) in &mut totals {
                let raw = raw_of(*index);
                let score = reverse.map_or(raw, |reverse| in_proportion(raw, greatest, reverse));
                if !(0..=MAX_NODE_SCORE).contains(&score) {
                    return Err(Fallback::Cycle);
                }
                *total += score * weight;
            }
        }
        Ok(totals)
    }

    /// Whether no score depends on the greatest raw score.
    pub(super) fn is_flat(&self) -> bool {
        self.proportional.iter().all(Proportional::is_flat)
    }

    /// Scales scores to the greatest raw score of the domains that pass.
    pub(super) fn settle_greatest(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
        verdicts: &DomainVerdicts,
    ) -> Result<(), Fallback> {
        let mut same = true;
        for share in &mut self.proportional {
            same &= share.settle(verdicts.iter().map(Option::is_none));
        }
        if !same && view.rules.follow(Rule::Greatest) {
            let feasible = self.feasible(view, columns);
            self.sum_up(plugins, columns, &feasible)?;
        }
        Ok(())
    }

    /// Sums scores for all nodes, in proportion to the known greatest raw scores.
    fn sum_up(
        &mut self,
        plugins: &[TablePlugin],
        columns: &Columns,
        feasible: &[bool],
    ) -> Result<(), Fallback> {
        let mut sums = vec![0_i64; feasible.len()];
        for Summed { plugin, rows, weight, reverse } in Self::summed(&self.columns, plugins, columns) {
            let mut out_of_range = false;
            match reverse {
                None => {
                    for ((sum, raw), feasible) in sums.iter_mut().zip(rows).zip(feasible) {
                        out_of_range |= *feasible & !(0..=MAX_NODE_SCORE).contains(raw);
                        *sum = sum.wrapping_add(raw.wrapping_mul(weight));
                    }
                }
                Some(_) => {
                    let share = self.proportional.iter().find(|share| share.plugin == plugin);
                    let share = share.ok_or(Fallback::Cycle)?;
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
                return Err(Fallback::Cycle);
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

    /// Whether each node passes the filters with answers by node.
    fn feasible(&self, view: &View<'_>, columns: &Columns) -> Vec<bool> {
        let mut feasible = vec![false; view.nodes.columns().len()];
        for slot in self.layout.slots() {
            feasible[*slot as usize] = true;
        }
        for index in &self.excluded {
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

    /// Applies the changes since the last call; the columns are current. Returns whether the table
    /// was updated, not rebuilt.
    pub(super) fn catch_up(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
    ) -> Result<bool, Fallback> {
        let Some(mut rows) = self.changed_rows(view, columns) else {
            self.rebuild(view, plugins, columns)?;
            #[cfg(any(test, feature = "testing"))]
            {
                self.has_replayed = false;
            }
            return Ok(false);
        };
        let cursor = std::mem::replace(&mut self.cursor, view.log.end());
        self.rejection.take_if(|(at, _)| *at != view.log.end());
        rows.extend(view.log.since(cursor).filter_map(|(_, change)| change.index()));
        rows.sort_unstable();
        rows.dedup();
        view.replayed(rows.len());
        #[cfg(any(test, feature = "testing"))]
        {
            self.has_replayed |= !rows.is_empty();
        }
        for relative in &mut self.relative {
            relative.take(view, &plugins[relative.plugin], cursor);
        }
        self.add_up_rows(view, plugins, columns, &rows)?;
        Ok(true)
    }

    /// The rows invalidated by causes other than changes of their node; `None` if the table should
    /// be rebuilt.
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
        let mut rows: SmallVec<[NodeIndex; 16]> = self.excluded.drain(..).collect();
        for id in &self.columns {
            rows.extend(column(columns, *id).touched_since(self.cursor)?);
        }
        Some(rows)
    }

    fn add_up_rows(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
        rows: &[NodeIndex],
    ) -> Result<(), Fallback> {
        if !self.relative.is_empty() {
            self.unsettled.extend_from_slice(rows);
        }
        self.note_asked(Asked::Some(rows.into()));
        for index in rows {
            if !self.add_up_row(view, plugins, columns, *index)? {
                return self.add_up(view, plugins, columns);
            }
        }
        Ok(())
    }

    /// Notes that the answers about these nodes changed.
    pub(super) fn note_asked(&mut self, asked: Asked) {
        match asked {
            Asked::All => self.grouping = Grouping::Stale,
            Asked::Some(rows) => self.ungrouped.extend(rows),
        }
    }

    /// Groups nodes if some scores are normalized over all nodes, or moves changed nodes between
    /// groups.
    pub(super) fn regroup(&mut self, view: &mut View<'_>, plugins: &[TablePlugin], columns: &Columns) {
        let mut grouping = std::mem::take(&mut self.grouping);
        let mut changed = std::mem::take(&mut self.ungrouped);
        match self.classes(plugins, columns) {
            Some(classes) => grouping.follow(view, &self.layout, &self.sums, &classes, &changed),
            None => grouping = Grouping::Stale,
        }
        changed.clear();
        (self.grouping, self.ungrouped) = (grouping, changed);
    }

    /// Sums the answers about one node; `false` if all nodes must be summed again.
    fn add_up_row(
        &mut self,
        view: &View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
        index: NodeIndex,
    ) -> Result<bool, Fallback> {
        let Some(leaf) = self.layout.leaf(index).filter(|_| view.nodes.has(index)) else { return Ok(true) };
        let slot = index.0 as usize;
        let passes = |id: &u32| match column(columns, *id).verdicts.as_ref().map(|it| &it.answers) {
            Some(Answers::PerNode(rows)) => rows.get(slot).is_none_or(|verdict| *verdict == PASSES),
            _ => true,
        };
        let feasible = !self.excluded.contains(&index) && self.columns.iter().all(passes);
        let mut sum = 0_i64;
        for Summed { plugin, rows, weight, reverse } in Self::summed(&self.columns, plugins, columns) {
            let raw = rows.get(slot).copied().unwrap_or_default();
            let score = match reverse {
                None => raw,
                Some(_) => {
                    let share = self.proportional.iter_mut().find(|share| share.plugin == plugin);
                    let Some(share) = share else { return Ok(false) };
                    if !share.set(&self.layout, leaf, feasible.then_some(raw)) {
                        return Ok(false);
                    }
                    if !share.covers(raw) {
                        // All nodes are summed again, or the node is in a rejected domain.
                        continue;
                    }
                    share.score(raw)
                }
            };
            if feasible && !(0..=MAX_NODE_SCORE).contains(&score) {
                return Err(Fallback::Cycle);
            }
            sum += score * weight;
        }
        let (domain, place) = self.layout.place(leaf);
        self.sums[domain].set(place, if feasible { sum } else { OUT });
        Ok(true)
    }

    /// Excludes a node for this cycle, by this rule.
    pub(super) fn exclude_for_cycle(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        columns: &Columns,
        index: NodeIndex,
        rule: Rule,
    ) -> Result<(), Fallback> {
        if view.rules.follow(rule) {
            self.excluded.push(index);
            self.add_up_rows(view, plugins, columns, &[index])?;
        }
        Ok(())
    }

    /// Whether the node passes the filters with answers by node.
    pub(super) fn passes(&self, index: NodeIndex) -> bool {
        self.layout.leaf(index).is_some_and(|leaf| {
            let (domain, place) = self.layout.place(leaf);
            self.sums[domain].leaves()[place] != OUT
        })
    }

    /// The nodes that may have become feasible or infeasible since the last call.
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

    fn keys_bytes(&self) -> usize {
        text_bytes(&self.keys) + text_bytes(&self.relative_keys)
    }

    fn sums_bytes(&self) -> usize {
        self.sums.iter().map(Tournament::bytes).sum()
    }

    /// The size in bytes of what any update may lengthen, but for reads.
    pub(super) fn row_bytes(&self) -> usize {
        let relative: usize = self.relative.iter().map(RelativeScores::row_bytes).sum();
        relative + self.own_row_bytes()
    }

    fn own_row_bytes(&self) -> usize {
        let proportional: usize = self.proportional.iter().map(Proportional::bytes).sum();
        let nodes = self.unsettled.capacity() + self.ungrouped.capacity() + self.excluded.capacity();
        let rejection = self.rejection.as_ref().map_or(0, |(_, diagnosis)| diagnosis.statuses.bytes());
        proportional + nodes * size_of::<NodeIndex>() + rejection
    }

    /// The approximate size in bytes, without the layout.
    pub(super) fn bytes(&self) -> usize {
        let relative: usize = self.relative.iter().map(RelativeScores::bytes).sum();
        let sums = self.sums_bytes() + self.grouping.bytes();
        relative + sums + self.own_row_bytes() + self.keys_bytes() + size_of::<Self>()
    }
}
