//! Evaluation tables: the answers of plugins about every node, cached between cycles.
//!
//! Most pods belong to a few templates, and little changes between two cycles. So the answers for a
//! pod are cached under its signature. A cycle evaluates only nodes that the change log names.
//!
//! The answers of one plugin form a column. All pods that the plugin cannot distinguish share it. A
//! table sums the columns of one signature and keeps the best node.
//!
//! Cycles that tables cannot answer take the plain path. So do cycles in which a plugin fails: the
//! plain path reports the error.

mod answers;
mod by_signature;
mod column;
#[cfg(any(test, feature = "testing"))]
pub mod comparison;
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

use std::cell::Cell;
use std::ops::Range;

use supercargo_framework::signature::Signer;
use supercargo_framework::{Code, Context, CycleState, NodeIndex, PodInfo};

use self::fallback::Fallback;
use self::layout::Topology;
pub use self::profile_tables::{NominatedVerdict, TableAnswer};
use self::profile_tables::{ProfileTables, Signed};
pub use self::rule::Rule;
use self::rule::Rules;
use self::table::Table;
use self::uncached_plugins::UncachedPlugins;
use self::view::View;
use crate::cache::Cache;
use supercargo_framework::hash_seed::HashSeed;
use supercargo_runtime::observer::Point;
use supercargo_runtime::plugin_calls::PluginCalls;
use supercargo_runtime::profile::{Profile, ProfileIndex, TablePlugin};

/// The default memory limit of evaluation tables, in bytes.
pub const DEFAULT_TABLE_MEMORY: usize = 256 << 20;
/// The minimum number of cycles between two counts of all tables and columns.
const MIN_CYCLES_BETWEEN_COUNTS: usize = 64;
/// The maximum number of signatures known to have no table.
const MAX_UNSUPPORTED: usize = 4096;

/// Statistics of evaluation tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Cycles answered by an updated table.
    pub hits: u64,
    /// Cycles answered by a new or rebuilt table.
    pub builds: u64,
    /// Cycles on the plain path.
    pub plain: u64,
    /// Nodes updated one by one.
    pub replays: u64,
    /// The number of tables.
    pub tables: usize,
    /// The number of columns.
    pub columns: usize,
    /// Their approximate size in bytes.
    pub bytes: usize,
}

/// All tables.
pub struct Tables {
    profiles: Vec<ProfileTables>,
    seed: HashSeed,
    topology: Topology,
    rules: Rules,
    limit: usize,
    /// The last count plus the size of what was built or grew since. What replaced something
    /// counts, too.
    bytes_at_most: usize,
    /// The cycle of the next count.
    count_at: u64,
    clock: u64,
    stats: TableStats,
    /// Buffers for signatures.
    signer: Signer,
    parts: Vec<Range<usize>>,
    /// The numbers of the plugins that are not cached for this pod.
    uncached_numbers: Vec<usize>,
    /// Whether a plugin panicked during an update.
    is_poisoned: bool,
    /// Cycles answered by a table that was updated since it was built.
    #[cfg(any(test, feature = "testing"))]
    pub replayed: u64,
}

/// What tables read in a cycle.
pub struct CycleInput<'a> {
    /// What plugins read. It tracks reads.
    pub cx: &'a Context<'a>,
    /// The cache that the context is about.
    pub cache: &'a Cache,
    /// Calls the plugins.
    pub calls: &'a PluginCalls<'a>,
    /// The nodes that may be chosen, in visiting order; `None` for all.
    pub candidates: Option<&'a [NodeIndex]>,
}

impl Tables {
    /// Empty tables of this many profiles, with at most `limit` bytes; 0 for the default.
    pub fn new(profiles: usize, limit: usize, seed: &HashSeed) -> Self {
        Self {
            profiles: (0..profiles).map(|_| ProfileTables::new(seed)).collect(),
            seed: seed.clone(),
            topology: Topology::new(seed.clone()),
            rules: Rules::default(),
            limit: if limit == 0 { DEFAULT_TABLE_MEMORY } else { limit },
            bytes_at_most: 0,
            count_at: 0,
            clock: 0,
            stats: TableStats::default(),
            signer: Signer::default(),
            parts: Vec::new(),
            uncached_numbers: Vec::new(),
            is_poisoned: false,
            #[cfg(any(test, feature = "testing"))]
            replayed: 0,
        }
    }

    /// Statistics since the start.
    pub fn stats(&self) -> TableStats {
        let (mut tables, mut columns) = (0, 0);
        for of_profile in &self.profiles {
            tables += of_profile.tables.len();
            columns += of_profile.numbers.len();
        }
        TableStats { tables, columns, bytes: self.bytes(), ..self.stats.clone() }
    }

    /// How often a rule has applied.
    pub fn applied(&self, rule: Rule) -> u64 {
        self.rules.count(rule)
    }

    /// Switches a rule off, which shows that it is needed.
    #[cfg(any(test, feature = "testing"))]
    pub fn switch_off(&mut self, rule: Rule) {
        self.rules.off = Some(rule);
    }

    /// Keeps what a [`Comparison`](comparison::Comparison) reads, and checks sizes.
    #[cfg(any(test, feature = "testing"))]
    pub fn expect_comparison(&mut self) {
        self.rules.are_compared = true;
    }

    fn bytes(&self) -> usize {
        self.profiles.iter().map(ProfileTables::bytes).sum::<usize>() + self.topology.bytes()
    }

    /// Finds the best node for a pod; `None` if the plain path must. `nominated` lists the nodes
    /// with nominated pods to consider. `state` receives what later extension points may read.
    pub fn answer(
        &mut self,
        input: &CycleInput<'_>,
        (number, profile): (ProfileIndex, &Profile),
        pod: &PodInfo,
        nominated: &[NodeIndex],
        verdict: NominatedVerdict<'_>,
        state: &mut CycleState,
    ) -> Option<TableAnswer> {
        if std::mem::replace(&mut self.is_poisoned, true) {
            self.profiles.iter_mut().for_each(|tables| *tables = ProfileTables::new(&self.seed));
        }
        let answer = self.try_answer(input, (number, profile), pod, nominated, verdict, state);
        self.is_poisoned = false;
        self.bytes_at_most += self.topology.take_added();
        #[cfg(any(test, feature = "testing"))]
        if self.rules.are_compared {
            let (bytes, at_most) = (self.bytes(), self.bytes_at_most);
            assert!(bytes <= at_most, "{bytes} bytes, {at_most} counted");
        }
        self.evict();
        if answer.is_none() {
            self.stats.plain += 1;
        }
        answer
    }

    fn try_answer(
        &mut self,
        input: &CycleInput<'_>,
        (number, profile): (ProfileIndex, &Profile),
        pod: &PodInfo,
        nominated: &[NodeIndex],
        verdict: NominatedVerdict<'_>,
        state: &mut CycleState,
    ) -> Option<TableAnswer> {
        let plugins = profile.table_plugins.as_deref()?;
        self.sign(input.cx, plugins, pod);
        input.calls.timer.point(Point::Sign, Code::Success);
        self.topology.refresh(input.cache);
        let profile_tables = &mut self.profiles[number.0];
        if profile_tables.unsupported.contains(self.signer.bytes()) {
            return None;
        }
        // Such plugins would run for all nodes.
        if input.candidates.is_some() && !self.uncached_numbers.is_empty() {
            return None;
        }
        self.clock += 1;
        let mut view = View {
            cx: input.cx,
            nodes: input.cache.nodes(),
            log: &input.cache.changes,
            labels_version: input.cache.labels_version(),
            pod,
            calls: input.calls,
            topology: &mut self.topology,
            rules: &mut self.rules,
            replays: &mut self.stats.replays,
            gained: Cell::default(),
        };
        let uncached = UncachedPlugins::prepare(&view, plugins, &self.uncached_numbers).ok()?;
        let signed =
            Signed { bytes: self.signer.bytes(), parts: &self.parts, uncached: &self.uncached_numbers };
        let signature = signed.bytes;
        let (place, mut table) = profile_tables.tables.take(signature).unzip();
        let rows = table.as_ref().map_or(0, Table::row_bytes);
        let found = profile_tables.find(
            &mut view,
            plugins,
            (signed, &uncached),
            &mut table,
            input.candidates,
            nominated,
            verdict,
            state,
        );
        let gained = view.gained.get();
        // A plugin that issues commands must run in every cycle.
        let found = if input.cx.has_commands() { Err(Fallback::Signature) } else { found };
        match (found, table) {
            (Ok((answer, is_hit)), Some(mut table)) => {
                table.last_used = self.clock;
                let size = if is_hit { gained } else { signature.len() + profile_tables.bytes_of(&table) };
                self.bytes_at_most += table.row_bytes().saturating_sub(rows) + gained;
                self.stats.hits += u64::from(is_hit && answer.is_some());
                #[cfg(any(test, feature = "testing"))]
                {
                    self.replayed += u64::from(is_hit && answer.is_some() && table.has_replayed);
                }
                self.stats.builds += u64::from(!is_hit && answer.is_some());
                match place {
                    _ if size > self.limit / 2 => {
                        // It would displace the tables of all other pods.
                        profile_tables.release(&table);
                        profile_tables.tables.remove(signature);
                        self.count_at = self.clock;
                    }
                    Some(place) => profile_tables.tables.put_back(place, table),
                    None => {
                        self.bytes_at_most += signature.len();
                        profile_tables.tables.insert(signature, table);
                    }
                }
                answer
            }
            (Err(fallback), table) => {
                self.bytes_at_most += gained;
                if let Some(table) = table {
                    profile_tables.release(&table);
                    profile_tables.tables.remove(signature);
                }
                if fallback == Fallback::Signature {
                    if profile_tables.unsupported.len() == MAX_UNSUPPORTED {
                        profile_tables.unsupported.clear();
                    }
                    profile_tables.unsupported.insert(signature.into());
                    self.bytes_at_most += signature.len();
                }
                None
            }
            (Ok(_), None) => None,
        }
    }

    /// Writes the pod's signature, and notes each plugin's part of it.
    fn sign(&mut self, cx: &Context<'_>, plugins: &[TablePlugin], pod: &PodInfo) {
        self.signer.clear();
        self.parts.clear();
        self.uncached_numbers.clear();
        for (number, plugin) in plugins.iter().enumerate() {
            let start = self.signer.bytes().len();
            self.signer.write(&false);
            if plugin.caching.stands_alone(pod) || plugin.sign.sign(cx, pod, &mut self.signer).is_err() {
                self.signer.cut(start);
                self.signer.write(&true);
                self.uncached_numbers.push(number);
            }
            self.parts.push(start..self.signer.bytes().len());
        }
        // Signing happens in every cycle, so its reads need not be tracked.
        cx.take_reads();
    }

    /// Drops what nothing uses. If the memory limit is still exceeded, evicts the least recently
    /// used tables, a quarter at a time.
    fn evict(&mut self) {
        // Counting takes longer with more tables, and is done less often.
        if self.bytes_at_most <= self.limit && self.clock < self.count_at {
            return;
        }
        let tables: usize = self.profiles.iter().map(|it| it.tables.len()).sum();
        self.count_at = self.clock + tables.max(MIN_CYCLES_BETWEEN_COUNTS) as u64;
        // Columns without a table first.
        self.profiles.iter_mut().for_each(|it| it.forget_until(0));
        self.topology.drop_unused();
        self.bytes_at_most = self.bytes();
        if self.bytes_at_most <= self.limit {
            return;
        }
        self.profiles.iter_mut().for_each(|it| it.unsupported.clear());
        let mut used: Vec<u64> =
            self.profiles.iter().flat_map(|it| it.tables.values()).map(|it| it.last_used).collect();
        used.sort_unstable();
        while self.bytes() > self.limit && !used.is_empty() {
            let oldest: Vec<u64> = used.drain(..used.len().div_ceil(4)).collect();
            let newest_to_go = oldest.last().copied().unwrap_or_default();
            for tables in &mut self.profiles {
                tables.forget_until(newest_to_go);
            }
            self.topology.drop_layouts();
        }
        if self.bytes() > self.limit {
            self.topology.drop_domains();
        }
        self.bytes_at_most = self.bytes();
    }
}
