//! Evaluation tables: what plugins have said of every node, kept from one cycle to the next.
//!
//! Most pods are one of a few templates, and between two cycles almost nothing changes. So the answers for a pod are kept
//! under its signature, and a cycle asks again only where something has changed: the change log says where. A plugin's
//! answers are a column, shared by all pods that this plugin cannot tell apart; a table adds up the columns of one
//! signature and keeps the best node at hand.
//!
//! Whatever does not lend itself to this goes the plain way, and so does whatever fails: the plain path has the last word
//! on errors.

mod answers;
mod column;
mod fallback;
mod groups;
mod invalidation;
mod layout;
mod profile_tables;
mod proportional;
mod reads;
mod relative_scores;
mod rule;
mod select;
mod table;
mod tournament;
mod uncached_plugins;
mod view;
#[cfg(test)]
pub(crate) mod witness;

use std::ops::Range;

use supercargo_framework::signature::Signer;
use supercargo_framework::{Code, Context, CycleState, NodeIndex, PodInfo};

use self::fallback::Fallback;
use self::layout::Topology;
pub(crate) use self::profile_tables::Answer;
use self::profile_tables::{NominatedVerdict, ProfileTables, Signed};
pub use self::rule::Rule;
use self::rule::Rules;
use self::uncached_plugins::UncachedPlugins;
use self::view::View;
use crate::cache::Cache;
use crate::observer::Point;
use crate::plugin_calls::PluginCalls;
use crate::profile::{Profile, ProfileIndex, TablePlugin};

/// So many bytes of tables and columns are kept, unless told otherwise.
const DEFAULT_LIMIT: usize = 256 << 20;
/// Between two counts of all tables and columns there are at least so many cycles.
const MIN_CYCLES_BETWEEN_COUNTS: usize = 64;
/// So many signatures are remembered as not worth a table.
const MOST_REFUSED: usize = 4096;

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

/// The state of all tables.
pub(crate) struct Tables {
    profiles: Vec<ProfileTables>,
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
    is_poisoned: bool,
    /// Cycles answered by a table that has been brought up to date since it was made.
    #[cfg(test)]
    pub(crate) replayed: u64,
}

/// Everything that a cycle reads, for tables.
pub(crate) struct Cluster<'a> {
    pub(crate) cx: &'a Context<'a>,
    pub(crate) cache: &'a Cache,
    pub(crate) calls: &'a PluginCalls<'a>,
}

impl Tables {
    pub(crate) fn new(profiles: usize, limit: usize) -> Self {
        Self {
            profiles: (0..profiles).map(|_| ProfileTables::default()).collect(),
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
            is_poisoned: false,
            #[cfg(test)]
            replayed: 0,
        }
    }

    /// How they have done so far.
    pub(crate) fn stats(&self) -> TableStats {
        let (mut tables, mut columns) = (0, 0);
        for tables_of_profile in &self.profiles {
            tables += tables_of_profile.tables.len();
            columns += tables_of_profile.numbers.len();
        }
        TableStats { tables, columns, bytes: self.bytes(), ..self.stats.clone() }
    }

    /// How often a rule has applied.
    pub(crate) fn applied(&self, rule: Rule) -> u64 {
        self.rules.count(rule)
    }

    /// Switches a rule off, to show that it is needed.
    #[cfg(test)]
    pub(crate) fn switch_off(&mut self, rule: Rule) {
        self.rules.off = Some(rule);
    }

    fn bytes(&self) -> usize {
        self.profiles.iter().map(ProfileTables::bytes).sum::<usize>() + self.topology.bytes()
    }

    /// Finds the best node for a pod; `None` when the plain path must. `promised` are the nodes that others have been
    /// promised. `state` gets what a later part of the attempt may look for.
    pub(crate) fn answer(
        &mut self,
        cluster: &Cluster<'_>,
        (number, profile): (ProfileIndex, &Profile),
        pod: &PodInfo,
        nominated: &[NodeIndex],
        verdict: NominatedVerdict<'_>,
        state: &mut CycleState,
    ) -> Option<Answer> {
        if std::mem::replace(&mut self.is_poisoned, true) {
            self.profiles
                .iter_mut()
                .for_each(|tables_of_profile| *tables_of_profile = ProfileTables::default());
        }
        let answer = self.try_answer(cluster, (number, profile), pod, nominated, verdict, state);
        self.is_poisoned = false;
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
        nominated: &[NodeIndex],
        verdict: NominatedVerdict<'_>,
        state: &mut CycleState,
    ) -> Option<Answer> {
        let plugins = profile.table_plugins.as_deref()?;
        self.sign(cluster.cx, plugins, pod);
        cluster.calls.timer.point(Point::Sign, Code::Success);
        self.topology.refresh(cluster.cache);
        let tables_of_profile = &mut self.profiles[number.0];
        if tables_of_profile.refused.contains(self.signer.bytes()) {
            return None;
        }
        self.clock += 1;
        let mut view = View {
            cx: cluster.cx,
            nodes: cluster.cache.nodes(),
            log: &cluster.cache.changes,
            labels_version: cluster.cache.labels_version(),
            pod,
            calls: cluster.calls,
            topology: &mut self.topology,
            rules: &mut self.rules,
            replays: &mut self.stats.replays,
        };
        let uncached = UncachedPlugins::prepare(&view, plugins, &self.alone).ok()?;
        let signed = Signed { bytes: self.signer.bytes(), parts: &self.parts, alone: &self.alone };
        let signature = signed.bytes;
        let mut table = tables_of_profile.tables.remove(signature);
        let found = tables_of_profile.find(
            &mut view,
            plugins,
            (signed, &uncached),
            &mut table,
            nominated,
            verdict,
            state,
        );
        // Whoever asks for something to be done while he judges must be asked each time.
        let found = if cluster.cx.has_commands() { Err(Fallback::Signature) } else { found };
        match (found, table) {
            (Ok((answer, is_hit)), Some(mut table)) => {
                table.last_used = self.clock;
                if !is_hit {
                    self.bytes_at_most += signature.len() + tables_of_profile.bytes_of(&table);
                }
                self.stats.hits += u64::from(is_hit && answer.is_some());
                #[cfg(test)]
                {
                    self.replayed += u64::from(is_hit && answer.is_some() && table.has_replayed);
                }
                self.stats.builds += u64::from(!is_hit && answer.is_some());
                tables_of_profile.tables.insert(signature.into(), table);
                answer
            }
            (Err(fallback), table) => {
                if let Some(table) = table {
                    tables_of_profile.release(&table);
                }
                if fallback == Fallback::Signature {
                    if tables_of_profile.refused.len() == MOST_REFUSED {
                        tables_of_profile.refused.clear();
                    }
                    tables_of_profile.refused.insert(signature.into());
                }
                None
            }
            (Ok(_), None) => None,
        }
    }

    /// Writes the pod's signature, and where each judge's part of it is.
    fn sign(&mut self, cx: &Context<'_>, plugins: &[TablePlugin], pod: &PodInfo) {
        self.signer.clear();
        self.parts.clear();
        self.alone.clear();
        for (number, plugin) in plugins.iter().enumerate() {
            let start = self.signer.bytes().len();
            self.signer.write(&false);
            if plugin.sign.stands_alone(pod) || plugin.sign.sign(cx, pod, &mut self.signer).is_err() {
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
        let tables: usize =
            self.profiles.iter().map(|tables_of_profile| tables_of_profile.tables.len()).sum();
        self.count_at = self.clock + tables.max(MIN_CYCLES_BETWEEN_COUNTS) as u64;
        self.bytes_at_most = self.bytes();
        if self.bytes_at_most <= self.limit {
            return;
        }
        // Columns that no table has come of go first.
        self.profiles.iter_mut().for_each(|tables_of_profile| tables_of_profile.forget_until(0));
        let mut used: Vec<u64> =
            self.profiles.iter().flat_map(|it| it.tables.values()).map(|it| it.last_used).collect();
        used.sort_unstable();
        while self.bytes() > self.limit && !used.is_empty() {
            let oldest: Vec<u64> = used.drain(..used.len().div_ceil(4)).collect();
            let newest_to_go = oldest.last().copied().unwrap_or_default();
            for tables_of_profile in &mut self.profiles {
                tables_of_profile.forget_until(newest_to_go);
            }
        }
        self.bytes_at_most = self.bytes();
    }
}
