//! The tables of one profile.

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use supercargo_framework::node_statuses::{NodeStatuses, StatusNumber};
use supercargo_framework::{Code, CycleState, NodeIndex, Status};

use super::answers::{PASSES, Verdict};
use super::by_signature::BySignature;
use super::column::Column;
use super::fallback::Fallback;
use super::rule::Rule;
use super::table::{self, ColumnIds, Columns, DomainVerdicts, Table};
use super::uncached_plugins::UncachedPlugins;
use super::view::View;
use crate::skipped_filters::SkippedFilters;
use supercargo_framework::hash_seed::{HashSeed, SeededMap, SeededSet};
use supercargo_runtime::diagnosis::Diagnosis;
use supercargo_runtime::observer::{Evaluated, Point};
use supercargo_runtime::profile::TablePlugin;

/// The maximum number of best nodes to try one by one with uncached plugins. After that, these
/// plugins run for all nodes.
const MAX_TRIED: usize = 32;

/// The answer of a table.
pub struct TableAnswer {
    /// The best node, or why there is none.
    pub found: Result<NodeIndex, Box<Diagnosis>>,
    /// The plugins whose answers it contains.
    pub evaluated: Evaluated,
}

/// The verdict of all filters on a node with its nominated pods.
pub type NominatedVerdict<'a> = &'a mut dyn FnMut(&CycleState, NodeIndex) -> Status;

/// The tables and columns of one profile.
pub(super) struct ProfileTables {
    pub(super) columns: Columns,
    /// Unused column numbers.
    free: Vec<u32>,
    /// Column numbers by plugin and its part of the signature.
    pub(super) numbers: SeededMap<(usize, Box<[u8]>), u32>,
    pub(super) tables: BySignature,
    /// Signatures for which tables never answer.
    pub(super) unsupported: SeededSet<Box<[u8]>>,
}

/// A pod's signature.
#[derive(Clone, Copy)]
pub(super) struct Signed<'a> {
    pub(super) bytes: &'a [u8],
    /// The part of each plugin.
    pub(super) parts: &'a [Range<usize>],
    /// The numbers of the plugins that are not cached for this pod. Their parts only mark that.
    pub(super) uncached: &'a [usize],
}

/// Times all calls of a plugin, at the point of most of them.
fn timed<R>(
    view: &mut View<'_>,
    plugin: &TablePlugin,
    ask: impl FnOnce(&mut View<'_>) -> Result<R, Fallback>,
) -> Result<R, Fallback> {
    let point = if plugin.filter.is_some() { Point::Filter } else { Point::Score };
    view.calls.timer.plugin(point, plugin.name, || ask(view), |_| Code::Success)
}

impl ProfileTables {
    pub(super) fn new(seed: &HashSeed) -> Self {
        Self {
            columns: Columns::new(),
            free: Vec::new(),
            numbers: seed.map(),
            tables: BySignature::new(seed),
            unsupported: seed.set(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let keys: usize = self.numbers.keys().map(|(_, signed)| signed.len()).sum();
        let unsupported: usize = self.unsupported.iter().map(|signed| signed.len()).sum();
        self.tables.bytes()
            + keys
            + unsupported
            + self.columns.iter().flatten().map(Column::bytes).sum::<usize>()
    }

    /// The size of a table and its columns.
    pub(super) fn bytes_of(&self, table: &Table) -> usize {
        let columns = table.columns.iter().map(|id| table::column(&self.columns, *id).bytes());
        table.bytes() + columns.sum::<usize>()
    }

    /// Returns the answer and whether it needed no new table. The answer is `None` if the plain
    /// path must choose among the candidates, or report why no node fits.
    #[expect(clippy::too_many_arguments, reason = "the parts of one call, which differ in what they borrow")]
    pub(super) fn find(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        (signed, uncached): (Signed<'_>, &UncachedPlugins),
        table: &mut Option<Table>,
        candidates: Option<&[NodeIndex]>,
        nominated: &[NodeIndex],
        verdict: NominatedVerdict<'_>,
        state: &mut CycleState,
    ) -> Result<(Option<TableAnswer>, bool), Fallback> {
        let is_hit = if let Some(table) = table {
            for (id, plugin) in table.columns.iter().zip(plugins) {
                let column = self.columns[*id as usize].as_mut().ok_or(Fallback::Cycle)?;
                timed(view, plugin, |view| column.catch_up(view, plugin))?;
            }
            table.catch_up(view, plugins, &self.columns)?
        } else {
            let ids = self.current_columns(view, plugins, signed)?;
            let built = Table::new(view, plugins, &self.columns, ids)?;
            for id in &built.columns {
                if let Some(column) = &mut self.columns[*id as usize] {
                    column.users += 1;
                }
            }
            *table = Some(built);
            false
        };
        let Some(table) = table else { return Err(Fallback::Cycle) };
        if candidates.is_some() && !table.is_summed(plugins, &self.columns) {
            return Ok((None, is_hit));
        }
        let update_time = view.calls.timer.lap();
        self.hand_over(plugins, table, state);
        uncached.hand_over(plugins, state);
        let mut rejected: FxHashMap<NodeIndex, Status> = FxHashMap::default();
        if !nominated.is_empty() {
            let states = self.states(plugins, table, uncached);
            for index in nominated {
                let status = verdict(&states, *index);
                if !status.is_success() && !status.is_rejected() {
                    return Err(Fallback::Cycle);
                }
                if status.is_rejected() {
                    rejected.insert(*index, status);
                    if table.passes(*index) {
                        table.exclude_for_cycle(view, plugins, &self.columns, *index, Rule::Nominated)?;
                    }
                }
            }
        }
        if !uncached.is_empty() {
            self.filter_uncached(view, plugins, table, uncached)?;
        }
        let verdicts = table.settle(view, plugins, &self.columns)?;
        let best = match candidates {
            None => table.select(view, plugins, &self.columns, &verdicts)?,
            // Scores that depend on which nodes are feasible are known only now.
            Some(_) if !table.is_summed(plugins, &self.columns) => return Ok((None, is_hit)),
            Some(nodes) => table.select_among(plugins, &self.columns, &verdicts, nodes)?,
        };
        let found = match best {
            Some(index) => {
                #[cfg(any(test, feature = "testing"))]
                if view.rules.are_compared {
                    table.note_totals(view, plugins, &self.columns, &verdicts, candidates)?;
                }
                Some(Ok(index))
            }
            None if !uncached.is_empty() => None,
            None => {
                state.absorb(&self.states(plugins, table, uncached));
                let diagnosis = match candidates {
                    Some(nodes) => self.diagnose(view, plugins, table, &verdicts, &rejected, nodes)?,
                    None => self.diagnose_all(view, plugins, table, &verdicts, &rejected)?,
                };
                Some(Err(Box::new(diagnosis)))
            }
        };
        view.calls.timer.report(Point::Filter, Code::Success, update_time);
        view.calls.timer.point(Point::Score, Code::Success);
        let answer = found.map(|found| {
            let evaluated = self.evaluated(plugins, table, uncached, found.is_ok());
            TableAnswer { found, evaluated }
        });
        Ok((answer, is_hit))
    }

    /// The plugins whose answers a table contains.
    fn evaluated(
        &self,
        plugins: &[TablePlugin],
        table: &Table,
        uncached: &UncachedPlugins,
        has_scored: bool,
    ) -> Evaluated {
        let mut evaluated = Evaluated::default();
        for (number, (id, plugin)) in table.columns.iter().zip(plugins).enumerate() {
            let column = table::column(&self.columns, *id);
            if !uncached.skips_filter(number).unwrap_or(column.skips_filter) {
                evaluated.pre_filter = evaluated.pre_filter.and(plugin.places.pre_filter);
                evaluated.filter = evaluated.filter.and(plugin.places.filter);
            }
            let relative = || {
                table.relative.iter().any(|relative| relative.plugin == number && relative.scores.is_some())
            };
            if has_scored && (column.scores.is_some() || relative()) {
                evaluated.pre_score = evaluated.pre_score.and(plugin.places.pre_score);
                evaluated.score = evaluated.score.and(plugin.places.score);
            }
        }
        evaluated
    }

    /// Excludes nodes that uncached plugins reject. If scores are independent of other nodes, tries
    /// nodes from the best on until one passes.
    fn filter_uncached(
        &self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        table: &mut Table,
        uncached: &UncachedPlugins,
    ) -> Result<(), Fallback> {
        let columns = &self.columns;
        if uncached.never_fail(view, plugins) {
            for _ in 0..MAX_TRIED {
                let verdicts = table.settle(view, plugins, columns)?;
                if !table.scores_are_absolute(plugins, columns) {
                    break;
                }
                let Some(index) = table.select(view, plugins, columns, &verdicts)? else { return Ok(()) };
                if uncached.pass(view, plugins, index)? {
                    return Ok(());
                }
                table.exclude_for_cycle(view, plugins, columns, index, Rule::Alone)?;
            }
        }
        for index in view.nodes.order() {
            if !uncached.pass(view, plugins, *index)? && table.passes(*index) {
                table.exclude_for_cycle(view, plugins, columns, *index, Rule::Alone)?;
            }
        }
        Ok(())
    }

    /// The columns of all plugins, built if needed.
    fn current_columns(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        signed: Signed<'_>,
    ) -> Result<ColumnIds, Fallback> {
        let mut ids = ColumnIds::new();
        for (number, plugin) in plugins.iter().enumerate() {
            let key = (number, Box::from(&signed.bytes[signed.parts[number].clone()]));
            if let Some(id) = self.numbers.get(&key) {
                let column = self.columns[*id as usize].as_mut().ok_or(Fallback::Cycle)?;
                timed(view, plugin, |view| column.catch_up(view, plugin))?;
                ids.push(*id);
                continue;
            }
            let is_uncached = signed.uncached.contains(&number);
            let column = if is_uncached {
                let blank = Column::blank(view);
                view.gain(blank.bytes());
                blank
            } else {
                timed(view, plugin, |view| Column::new(view, plugin))?
            };
            let id = self.free.pop().unwrap_or_else(|| {
                self.columns.push(None);
                self.columns.len() as u32 - 1
            });
            self.columns[id as usize] = Some(column);
            view.gain(key.1.len());
            self.numbers.insert(key, id);
            ids.push(id);
        }
        Ok(ids)
    }

    /// Passes on what later extension points may read.
    fn hand_over(&self, plugins: &[TablePlugin], table: &Table, state: &mut CycleState) {
        for (id, _) in table.columns.iter().zip(plugins).filter(|(_, plugin)| plugin.sets_aside) {
            state.absorb(&table::column(&self.columns, *id).state);
        }
    }

    /// The prepared states of all plugins.
    fn states(&self, plugins: &[TablePlugin], table: &Table, uncached: &UncachedPlugins) -> CycleState {
        let mut states = CycleState::new();
        let mut skipped = SkippedFilters::default();
        for (id, plugin) in table.columns.iter().zip(plugins) {
            let column = table::column(&self.columns, *id);
            states.absorb(&column.state);
            if column.skips_filter {
                skipped.add(plugin.name);
            }
        }
        uncached.write(plugins, &mut states, &mut skipped);
        states.write(skipped);
        states
    }

    /// The reasons why no node is feasible. They are kept: pods that are alike often wait in a row.
    fn diagnose_all(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        table: &mut Table,
        verdicts: &DomainVerdicts,
        rejected: &FxHashMap<NodeIndex, Status>,
    ) -> Result<Diagnosis, Fallback> {
        let now = view.log.end();
        if rejected.is_empty()
            && let Some((_, known)) = table.rejection.as_ref().filter(|(at, _)| *at == now)
        {
            return Ok(known.clone());
        }
        let diagnosis = self.diagnose(view, plugins, table, verdicts, rejected, view.nodes.order())?;
        table.rejection = rejected.is_empty().then(|| (now, diagnosis.clone()));
        Ok(diagnosis)
    }

    /// The reasons why none of these nodes is feasible.
    fn diagnose(
        &mut self,
        view: &mut View<'_>,
        plugins: &[TablePlugin],
        table: &Table,
        verdicts: &DomainVerdicts,
        rejected: &FxHashMap<NodeIndex, Status>,
        nodes: &[NodeIndex],
    ) -> Result<Diagnosis, Fallback> {
        // The filters with answers by node, in their order.
        let mut by_place: SmallVec<[(usize, usize); 20]> = SmallVec::new();
        for (number, plugin) in plugins.iter().enumerate() {
            let verdicts = table::column(&self.columns, table.columns[number]).verdicts.as_ref();
            let place = plugin.filter.as_ref().map(|(place, _)| *place);
            by_place.extend(
                place.filter(|_| verdicts.is_some_and(|it| it.answers.are_by_node())).map(|it| (it, number)),
            );
        }
        by_place.sort_unstable();
        let mut diagnosis = Diagnosis::default();
        let mut statuses = NodeStatuses::default();
        let mut numbers: FxHashMap<(usize, Verdict), StatusNumber> = FxHashMap::default();
        let mut last = None;
        for index in nodes {
            if let Some(status) = rejected.get(index) {
                diagnosis.blame(status);
                statuses.set(*index, status.clone());
                continue;
            }
            let leaf = table.layout.leaf(*index).ok_or(Fallback::Cycle)?;
            let domain = table.layout.place(leaf).0;
            let of_domain = verdicts[domain].as_ref();
            // Domains are numbered after the plugins.
            let mut found = (plugins.len() + domain, PASSES);
            for (place, number) in &by_place {
                if of_domain.is_some_and(|(domains, _)| domains < place) {
                    break;
                }
                let column = self.columns[table.columns[*number] as usize].as_mut().ok_or(Fallback::Cycle)?;
                let verdict = column.verdict(view, &plugins[*number], *index)?;
                if verdict != PASSES {
                    found = (*number, verdict);
                    break;
                }
            }
            let status = match last {
                // Most nodes have the status of the one before.
                Some((of, status)) if of == found => status,
                _ => match numbers.entry(found) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        let (number, verdict) = found;
                        let status = match table.columns.get(number) {
                            Some(id) => table::column(&self.columns, *id).status(verdict),
                            None => of_domain.map(|(_, status)| status),
                        };
                        let status = status.ok_or(Fallback::Cycle)?;
                        diagnosis.blame(status);
                        *new.insert(statuses.number(status.clone()))
                    }
                },
            };
            last = Some((found, status));
            statuses.set_numbered(*index, status);
        }
        diagnosis.statuses = Arc::new(statuses);
        Ok(diagnosis)
    }

    /// Drops the tables last used at this time or earlier, and the columns that no table uses.
    pub(super) fn forget_until(&mut self, last_used: u64) {
        for table in self.tables.remove_until(last_used) {
            self.release(&table);
        }
        let (columns, free) = (&mut self.columns, &mut self.free);
        self.numbers.retain(|_, id| {
            let slot = &mut columns[*id as usize];
            let is_used = slot.as_ref().is_some_and(|column| column.users > 0);
            if !is_used {
                *slot = None;
                free.push(*id);
            }
            is_used
        });
    }

    pub(super) fn release(&mut self, table: &Table) {
        for id in &table.columns {
            if let Some(column) = &mut self.columns[*id as usize] {
                column.users -= 1;
            }
        }
    }
}
