//! Evaluation tables: what plugins have said of every node, kept from one cycle to the next.
//!
//! Most pods are one of a few templates, and between two cycles almost nothing changes. So the answers for a pod are kept
//! under its signature, and a cycle asks again only where something has changed: the change log says where. A plugin's
//! answers are a column, shared by all pods that this plugin cannot tell apart; a table adds up the columns of one
//! signature and keeps the best node at hand.
//!
//! Whatever does not lend itself to this goes the plain way, and so does whatever fails: the plain path has the last word
//! on errors.

mod again;
mod answers;
mod column;
mod groups;
mod layout;
mod loners;
mod own;
mod proportional;
mod reads;
mod rule;
mod select;
mod table;
mod tournament;
#[cfg(test)]
mod witness;

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use supercargo_framework::node_statuses::StatusNumber;
use supercargo_framework::signature::Signer;
use supercargo_framework::{Code, Context, CycleState, NodeIndex, PodInfo, Status};

use self::answers::{PASSES, Verdict, View};
use self::column::Column;
use self::layout::Topology;
use self::loners::Loners;
pub use self::rule::Rule;
use self::rule::Rules;
use self::select::DomainVerdicts;
use self::table::{ColumnIds, Columns, Table};
#[cfg(test)]
pub(crate) use self::witness::Witness;
use crate::cache::Cache;
use crate::cycle::{Running, SkippedFilters};
use crate::diagnosis::Diagnosis;
use crate::laps::Laps;
use crate::observer::{Evaluated, Point};
use crate::profile::{Judge, Profile, ProfileIndex};

/// So many bytes of tables and columns are kept, unless told otherwise.
const DEFAULT_LIMIT: usize = 256 << 20;
/// Between two counts of all tables and columns there are at least so many cycles.
const MIN_CYCLES_BETWEEN_COUNTS: usize = 64;
/// So many signatures are remembered as not worth a table.
const MOST_REFUSED: usize = 4096;

/// So many of the best nodes at most are tried one by one with plugins that are asked about this pod alone, before those are
/// asked about all nodes.
const MOST_TRIED: usize = 32;

/// Why a table cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not this time.
    Passing,
    /// Not for pods of this signature.
    Lasting,
}

/// How tables have done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Cycles answered by a table that was brought up to date.
    pub hits: u64,
    /// Cycles answered by a table that had to be made, or made anew.
    pub builds: u64,
    /// Cycles that went the plain way.
    pub plain: u64,
    /// Nodes brought up to date one by one.
    pub replays: u64,
    /// Tables that are kept.
    pub tables: usize,
    /// Columns that are kept.
    pub columns: usize,
    /// What they take, roughly, in bytes.
    pub bytes: usize,
}

/// What a table says.
pub(crate) struct Answer {
    /// The best node; or why there is none.
    pub(crate) found: Result<NodeIndex, Box<Diagnosis>>,
    /// The plugins whose word it is.
    pub(crate) evaluated: Evaluated,
}

/// What pods that have been promised a node mean for this one: the verdict of all filters on the node as it will be.
pub(crate) type Promised<'a> = &'a mut dyn FnMut(&CycleState, NodeIndex) -> Status;

/// The state of all tables.
pub(crate) struct Tables {
    profiles: Vec<OfProfile>,
    topology: Topology,
    rules: Rules,
    limit: usize,
    /// What was counted last, and what was made since; columns may be in it several times.
    bytes_at_most: usize,
    /// When all are counted again.
    count_at: u64,
    clock: u64,
    stats: TableStats,
    /// Room for signatures.
    signer: Signer,
    parts: Vec<Range<usize>>,
    /// The numbers of the judges that are asked about this pod alone.
    alone: Vec<usize>,
    /// Whether a plugin has panicked while something here was changed.
    is_torn: bool,
    /// Cycles answered by a table that has been brought up to date since it was made.
    #[cfg(test)]
    pub(crate) replayed: u64,
}

#[derive(Default)]
struct OfProfile {
    columns: Columns,
    /// Numbers that no column has.
    free: Vec<u32>,
    /// The numbers of columns, by judge and what it signs.
    numbers: FxHashMap<(usize, Box<[u8]>), u32>,
    tables: FxHashMap<Box<[u8]>, Table>,
    refused: FxHashSet<Box<[u8]>>,
}

/// A pod's signature.
#[derive(Clone, Copy)]
struct Signed<'a> {
    bytes: &'a [u8],
    /// By judge, its part.
    parts: &'a [Range<usize>],
    /// The numbers of the judges that are asked about this pod alone; their parts only say so.
    alone: &'a [usize],
}

/// Everything that a cycle reads, for tables.
pub(crate) struct Cluster<'a> {
    pub(crate) cx: &'a Context<'a>,
    pub(crate) cache: &'a Cache,
    pub(crate) running: &'a Running,
    pub(crate) laps: &'a Laps<'a>,
}

impl Tables {
    pub(crate) fn new(profiles: usize, limit: usize) -> Self {
        Self {
            profiles: (0..profiles).map(|_| OfProfile::default()).collect(),
            topology: Topology::default(),
            rules: Rules::default(),
            limit: if limit == 0 { DEFAULT_LIMIT } else { limit },
            bytes_at_most: 0,
            count_at: 0,
            clock: 0,
            stats: TableStats::default(),
            signer: Signer::default(),
            parts: Vec::new(),
            alone: Vec::new(),
            is_torn: false,
            #[cfg(test)]
            replayed: 0,
        }
    }

    /// How they have done so far.
    pub(crate) fn stats(&self) -> TableStats {
        let (mut tables, mut columns) = (0, 0);
        for of_profile in &self.profiles {
            tables += of_profile.tables.len();
            columns += of_profile.numbers.len();
        }
        TableStats { tables, columns, bytes: self.bytes(), ..self.stats.clone() }
    }

    /// How often a rule has applied.
    pub(crate) fn applied(&self, rule: Rule) -> u64 {
        self.rules.count(rule)
    }

    /// Switches a rule off, to show that it is needed.
    pub(crate) fn switch_off(&mut self, rule: Rule) {
        self.rules.off = Some(rule);
    }

    fn bytes(&self) -> usize {
        self.profiles.iter().map(OfProfile::bytes).sum::<usize>() + self.topology.bytes()
    }

    /// Finds the best node for a pod; `None` when the plain path must. `promised` are the nodes that others have been
    /// promised. `state` gets what a later part of the attempt may look for.
    pub(crate) fn answer(
        &mut self,
        cluster: &Cluster<'_>,
        (number, profile): (ProfileIndex, &Profile),
        pod: &PodInfo,
        promised: &[NodeIndex],
        verdict: Promised<'_>,
        state: &mut CycleState,
    ) -> Option<Answer> {
        if std::mem::replace(&mut self.is_torn, true) {
            self.profiles.iter_mut().for_each(|of_profile| *of_profile = OfProfile::default());
        }
        let answer = self.try_answer(cluster, (number, profile), pod, promised, verdict, state);
        self.is_torn = false;
        self.evict();
        if answer.is_none() {
            self.stats.plain += 1;
        }
        answer
    }

    fn try_answer(
        &mut self,
        cluster: &Cluster<'_>,
        (number, profile): (ProfileIndex, &Profile),
        pod: &PodInfo,
        promised: &[NodeIndex],
        verdict: Promised<'_>,
        state: &mut CycleState,
    ) -> Option<Answer> {
        let judges = profile.judges.as_deref()?;
        self.sign(cluster.cx, judges, pod);
        cluster.laps.point(Point::Sign, Code::Success);
        self.topology.refresh(cluster.cache);
        let of_profile = &mut self.profiles[number.0];
        if of_profile.refused.contains(self.signer.bytes()) {
            return None;
        }
        self.clock += 1;
        let mut view = View {
            cx: cluster.cx,
            nodes: cluster.cache.nodes(),
            log: &cluster.cache.changes,
            labels_version: cluster.cache.labels_version(),
            pod,
            running: cluster.running,
            laps: cluster.laps,
            topology: &mut self.topology,
            rules: &mut self.rules,
            replays: &mut self.stats.replays,
        };
        let loners = Loners::prepare(&view, judges, &self.alone).ok()?;
        let signed = Signed { bytes: self.signer.bytes(), parts: &self.parts, alone: &self.alone };
        let signature = signed.bytes;
        let mut table = of_profile.tables.remove(signature);
        let found =
            of_profile.find(&mut view, judges, (signed, &loners), &mut table, promised, verdict, state);
        // Whoever asks for something to be done while he judges must be asked each time.
        let found = if cluster.cx.has_commands() { Err(Refusal::Lasting) } else { found };
        match (found, table) {
            (Ok((answer, is_hit)), Some(mut table)) => {
                table.last_used = self.clock;
                if !is_hit {
                    self.bytes_at_most += signature.len() + of_profile.bytes_of(&table);
                }
                self.stats.hits += u64::from(is_hit && answer.is_some());
                #[cfg(test)]
                {
                    self.replayed += u64::from(is_hit && answer.is_some() && table.has_replayed);
                }
                self.stats.builds += u64::from(!is_hit && answer.is_some());
                of_profile.tables.insert(signature.into(), table);
                answer
            }
            (Err(refusal), table) => {
                if let Some(table) = table {
                    of_profile.release(&table);
                }
                if refusal == Refusal::Lasting {
                    if of_profile.refused.len() == MOST_REFUSED {
                        of_profile.refused.clear();
                    }
                    of_profile.refused.insert(signature.into());
                }
                None
            }
            (Ok(_), None) => None,
        }
    }

    /// Writes the pod's signature, and where each judge's part of it is.
    fn sign(&mut self, cx: &Context<'_>, judges: &[Judge], pod: &PodInfo) {
        self.signer.clear();
        self.parts.clear();
        self.alone.clear();
        for (number, judge) in judges.iter().enumerate() {
            let start = self.signer.bytes().len();
            self.signer.write(&false);
            if judge.caching.stands_alone(pod) || judge.sign.sign(cx, pod, &mut self.signer).is_err() {
                self.signer.cut(start);
                self.signer.write(&true);
                self.alone.push(number);
            }
            self.parts.push(start..self.signer.bytes().len());
        }
        // Signing reads anew each time.
        cx.take_reads();
    }

    /// Gives back what has not been used for longest, a quarter at a time, when there is too much.
    fn evict(&mut self) {
        // Counting takes longer the more tables there are, and is done the less often.
        if self.bytes_at_most <= self.limit && self.clock < self.count_at {
            return;
        }
        let tables: usize = self.profiles.iter().map(|of_profile| of_profile.tables.len()).sum();
        self.count_at = self.clock + tables.max(MIN_CYCLES_BETWEEN_COUNTS) as u64;
        self.bytes_at_most = self.bytes();
        if self.bytes_at_most <= self.limit {
            return;
        }
        // Columns that no table has come of go first.
        self.profiles.iter_mut().for_each(|of_profile| of_profile.forget_until(0));
        let mut used: Vec<u64> =
            self.profiles.iter().flat_map(|it| it.tables.values()).map(|it| it.last_used).collect();
        used.sort_unstable();
        while self.bytes() > self.limit && !used.is_empty() {
            let oldest: Vec<u64> = used.drain(..used.len().div_ceil(4)).collect();
            let newest_to_go = oldest.last().copied().unwrap_or_default();
            for of_profile in &mut self.profiles {
                of_profile.forget_until(newest_to_go);
            }
        }
        self.bytes_at_most = self.bytes();
    }
}

/// Asks one plugin for all that it has to say, at the point that most of it belongs to.
fn watched<R>(
    view: &mut View<'_>,
    judge: &Judge,
    ask: impl FnOnce(&mut View<'_>) -> Result<R, Refusal>,
) -> Result<R, Refusal> {
    let point = if judge.filter.is_some() { Point::Filter } else { Point::Score };
    view.laps.plugin(point, judge.name, || ask(view), |_| Code::Success)
}

impl OfProfile {
    fn bytes(&self) -> usize {
        let tables: usize = self.tables.iter().map(|(key, table)| key.len() + table.bytes()).sum();
        let keys: usize = self.numbers.keys().map(|(_, signed)| signed.len()).sum();
        tables + keys + self.columns.iter().flatten().map(Column::bytes).sum::<usize>()
    }

    /// What a table and its columns take.
    fn bytes_of(&self, table: &Table) -> usize {
        let columns = table.columns.iter().map(|id| table::column(&self.columns, *id).bytes());
        table.bytes() + columns.sum::<usize>()
    }

    /// The answer, `None` when the plain path is to say why there is no node, and whether it needed no table to be made.
    #[expect(clippy::too_many_arguments, reason = "the parts of one call, which differ in what they borrow")]
    fn find(
        &mut self,
        view: &mut View<'_>,
        judges: &[Judge],
        (signed, loners): (Signed<'_>, &Loners),
        table: &mut Option<Table>,
        promised: &[NodeIndex],
        verdict: Promised<'_>,
        state: &mut CycleState,
    ) -> Result<(Option<Answer>, bool), Refusal> {
        let is_hit = if let Some(table) = table {
            for (id, judge) in table.columns.iter().zip(judges) {
                let column = self.columns[*id as usize].as_mut().ok_or(Refusal::Passing)?;
                watched(view, judge, |view| column.catch_up(view, judge))?;
            }
            table.catch_up(view, judges, &self.columns)?
        } else {
            let ids = self.current_columns(view, judges, signed)?;
            let made = Table::new(view, judges, &self.columns, ids)?;
            for id in &made.columns {
                if let Some(column) = &mut self.columns[*id as usize] {
                    column.users += 1;
                }
            }
            *table = Some(made);
            false
        };
        let Some(table) = table else { return Err(Refusal::Passing) };
        let brought_up_to_date = view.laps.lap();
        self.hand_over(judges, table, state);
        loners.hand_over(judges, state);
        let mut refused: SmallVec<[(NodeIndex, Status); 2]> = SmallVec::new();
        if !promised.is_empty() {
            let states = self.states(judges, table, loners);
            for index in promised {
                let status = verdict(&states, *index);
                if !status.is_success() && !status.is_rejected() {
                    return Err(Refusal::Passing);
                }
                if status.is_rejected() {
                    refused.push((*index, status));
                    if table.passes(*index) {
                        table.disturb(view, judges, &self.columns, *index, Rule::Nominated)?;
                    }
                }
            }
        }
        if !loners.is_empty() {
            self.ask_loners(view, judges, table, loners)?;
        }
        let verdicts = table.settle(view, judges, &self.columns)?;
        let found = match table.select(view, judges, &self.columns, &verdicts)? {
            Some(index) => {
                #[cfg(test)]
                table.note_totals(view, judges, &self.columns, &verdicts)?;
                Some(Ok(index))
            }
            None if !loners.is_empty() => None,
            None => {
                state.absorb(&self.states(judges, table, loners));
                Some(Err(Box::new(self.diagnose(view, judges, table, &verdicts, &refused)?)))
            }
        };
        view.laps.told(Point::Filter, Code::Success, brought_up_to_date);
        view.laps.point(Point::Score, Code::Success);
        let answer = found.map(|found| {
            let evaluated = self.evaluated(judges, table, loners, found.is_ok());
            Answer { found, evaluated }
        });
        Ok((answer, is_hit))
    }

    /// The plugins whose word a table's answer is.
    fn evaluated(&self, judges: &[Judge], table: &Table, loners: &Loners, has_scored: bool) -> Evaluated {
        let mut evaluated = Evaluated::default();
        for (number, (id, judge)) in table.columns.iter().zip(judges).enumerate() {
            let column = table::column(&self.columns, *id);
            if !loners.skips_filter(number).unwrap_or(column.skips_filter) {
                evaluated.pre_filter = evaluated.pre_filter.and(judge.places.pre_filter);
                evaluated.filter = evaluated.filter.and(judge.places.filter);
            }
            let own = || table.own.iter().any(|own| own.judge == number && own.scores.is_some());
            if has_scored && (column.scores.is_some() || own()) {
                evaluated.pre_score = evaluated.pre_score.and(judge.places.pre_score);
                evaluated.score = evaluated.score.and(judge.places.score);
            }
        }
        evaluated
    }

    /// Takes the nodes out of the race that plugins turn down which are asked about this pod alone. Where a node's score is its
    /// own affair, only as many as it takes to see that the best node is not one of them.
    fn ask_loners(
        &self,
        view: &mut View<'_>,
        judges: &[Judge],
        table: &mut Table,
        loners: &Loners,
    ) -> Result<(), Refusal> {
        let columns = &self.columns;
        if loners.never_fail(view, judges) {
            for _ in 0..MOST_TRIED {
                let verdicts = table.settle(view, judges, columns)?;
                if !table.scores_are_absolute(judges, columns) {
                    break;
                }
                let Some(index) = table.select(view, judges, columns, &verdicts)? else { return Ok(()) };
                if loners.pass(view, judges, index)? {
                    return Ok(());
                }
                table.disturb(view, judges, columns, index, Rule::Alone)?;
            }
        }
        for index in view.nodes.order() {
            if !loners.pass(view, judges, *index)? && table.passes(*index) {
                table.disturb(view, judges, columns, *index, Rule::Alone)?;
            }
        }
        Ok(())
    }

    /// A column per judge, made where there is none.
    fn current_columns(
        &mut self,
        view: &mut View<'_>,
        judges: &[Judge],
        signed: Signed<'_>,
    ) -> Result<ColumnIds, Refusal> {
        let mut ids = ColumnIds::new();
        for (number, judge) in judges.iter().enumerate() {
            let key = (number, Box::from(&signed.bytes[signed.parts[number].clone()]));
            if let Some(id) = self.numbers.get(&key) {
                let column = self.columns[*id as usize].as_mut().ok_or(Refusal::Passing)?;
                watched(view, judge, |view| column.catch_up(view, judge))?;
                ids.push(*id);
                continue;
            }
            let is_alone = signed.alone.contains(&number);
            let column = if is_alone {
                Column::blank(view)
            } else {
                watched(view, judge, |view| Column::new(view, judge))?
            };
            let id = self.free.pop().unwrap_or_else(|| {
                self.columns.push(None);
                self.columns.len() as u32 - 1
            });
            self.columns[id as usize] = Some(column);
            self.numbers.insert(key, id);
            ids.push(id);
        }
        Ok(ids)
    }

    /// What the plugins that take part later may look for.
    fn hand_over(&self, judges: &[Judge], table: &Table, state: &mut CycleState) {
        for (id, _) in table.columns.iter().zip(judges).filter(|(_, judge)| judge.sets_aside) {
            state.absorb(&table::column(&self.columns, *id).state);
        }
    }

    /// What all plugins have prepared.
    fn states(&self, judges: &[Judge], table: &Table, loners: &Loners) -> CycleState {
        let mut states = CycleState::new();
        let mut skipped = SkippedFilters::default();
        for (id, judge) in table.columns.iter().zip(judges) {
            let column = table::column(&self.columns, *id);
            states.absorb(&column.state);
            if column.skips_filter {
                skipped.0.push(judge.name);
            }
        }
        loners.write(judges, &mut states, &mut skipped);
        states.write(skipped);
        states
    }

    /// Why no node is feasible.
    fn diagnose(
        &mut self,
        view: &mut View<'_>,
        judges: &[Judge],
        table: &Table,
        verdicts: &DomainVerdicts,
        refused: &[(NodeIndex, Status)],
    ) -> Result<Diagnosis, Refusal> {
        // The filters whose answers are kept by node, in their order.
        let mut by_place: SmallVec<[(usize, usize); 20]> = SmallVec::new();
        for (number, judge) in judges.iter().enumerate() {
            let verdicts = table::column(&self.columns, table.columns[number]).verdicts.as_ref();
            let place = judge.filter.as_ref().map(|(place, _)| *place);
            by_place.extend(
                place.filter(|_| verdicts.is_some_and(|it| it.answers.are_by_node())).map(|it| (it, number)),
            );
        }
        by_place.sort_unstable();
        let mut diagnosis = Diagnosis::default();
        let mut known: FxHashMap<(usize, Verdict), StatusNumber> = FxHashMap::default();
        for index in view.nodes.order() {
            if let Some((_, status)) = refused.iter().find(|(refused, _)| refused == index) {
                diagnosis.set(*index, status.clone());
                continue;
            }
            let leaf = table.layout.leaf(*index).ok_or(Refusal::Passing)?;
            let domain = table.layout.place(leaf).0;
            let of_domain = verdicts[domain].as_ref();
            // Domains come after the judges.
            let mut found = (judges.len() + domain, PASSES);
            for (place, number) in &by_place {
                if of_domain.is_some_and(|(domains, _)| domains < place) {
                    break;
                }
                let column =
                    self.columns[table.columns[*number] as usize].as_mut().ok_or(Refusal::Passing)?;
                let verdict = column.verdict(view, &judges[*number], *index)?;
                if verdict != PASSES {
                    found = (*number, verdict);
                    break;
                }
            }
            let status = match known.get(&found) {
                Some(status) => *status,
                None => {
                    let (number, verdict) = found;
                    let status = match table.columns.get(number) {
                        Some(id) => table::column(&self.columns, *id).status(verdict),
                        None => of_domain.map(|(_, status)| status),
                    };
                    let number = diagnosis.number(status.ok_or(Refusal::Passing)?);
                    known.insert(found, number);
                    number
                }
            };
            diagnosis.statuses.set_numbered(*index, status);
        }
        Ok(diagnosis)
    }

    /// Forgets the tables that were last used then or earlier, and the columns that no table is made of.
    fn forget_until(&mut self, last_used: u64) {
        let gone = self.tables.extract_if(|_, table| table.last_used <= last_used);
        let gone: Vec<Table> = gone.map(|(_, table)| table).collect();
        for table in &gone {
            self.release(table);
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

    fn release(&mut self, table: &Table) {
        for id in &table.columns {
            if let Some(column) = &mut self.columns[*id as usize] {
                column.users -= 1;
            }
        }
    }
}
