//! The report as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use supercargo_benches::grouped;
use supercargo_benches::plan::{Plan, Signatures};
use supercargo_scheduler::TableStats;

use crate::args::Task;
use crate::go;
use crate::run::Outcome;

/// The measurements of a workload in one size.
pub(crate) struct Row {
    pub(crate) workload: String,
    size: String,
    title: String,
    pub(crate) nodes: usize,
    pods: usize,
    pub(crate) signatures: Signatures,
    /// supercargo as in production.
    pub(crate) tables: Rounds,
    /// supercargo without evaluation tables.
    pub(crate) plain: Rounds,
    /// The same, with upstream's default sampling.
    pub(crate) plain_sample: Rounds,
    pub(crate) upstream_default: Vec<go::Measured>,
    pub(crate) upstream_all: Vec<go::Measured>,
}

/// In order.
#[derive(Default)]
pub(crate) struct Rounds(Vec<Ours>);

/// A round of supercargo. Times are in nanoseconds.
pub(crate) struct Ours {
    decisions: usize,
    unscheduled: usize,
    per_second: f64,
    mean: f64,
    p50: f64,
    p99: f64,
    adding: f64,
    confirming: f64,
    other: f64,
    other_cycles: usize,
    stats: TableStats,
    resident: Option<u64>,
    peak: Option<u64>,
}

impl Ours {
    pub(crate) fn new(outcome: Outcome) -> Self {
        let spent = outcome.spent;
        let total = spent.total();
        let in_cycles = spent.in_cycles();
        let mut cycles = spent.cycles;
        cycles.sort_unstable();
        // The nearest-rank percentile.
        let rank = |percent: usize| {
            let at = (cycles.len() * percent).div_ceil(100).max(1) - 1;
            cycles.get(at).copied().unwrap_or_default().into()
        };
        Self {
            decisions: outcome.decisions,
            unscheduled: outcome.unscheduled,
            per_second: outcome.decisions as f64 / total.as_secs_f64(),
            mean: in_cycles.as_nanos() as f64 / cycles.len().max(1) as f64,
            p50: rank(50),
            p99: rank(99),
            adding: spent.adding.as_secs_f64(),
            confirming: spent.confirming.as_secs_f64(),
            other: (spent.other_cycles + spent.telling).as_secs_f64(),
            other_cycles: spent.other_cycle_count,
            stats: outcome.stats,
            resident: outcome.resident,
            peak: outcome.peak,
        }
    }

    fn to_json(&self) -> Value {
        let stats = &self.stats;
        json!({
            "decisions": self.decisions, "unscheduled": self.unscheduled, "perSecond": self.per_second,
            "cycleMean": self.mean, "cycleP50": self.p50, "cycleP99": self.p99,
            "addingSeconds": self.adding, "confirmingSeconds": self.confirming, "otherSeconds": self.other,
            "otherCycles": self.other_cycles, "residentBytes": self.resident, "peakBytes": self.peak,
            "tables": {
                "hits": stats.hits, "builds": stats.builds, "plain": stats.plain, "replays": stats.replays,
                "tables": stats.tables, "columns": stats.columns, "bytes": stats.bytes,
            },
        })
    }

    /// Evaluation tables and memory.
    fn remark(&self) -> String {
        let stats = &self.stats;
        let mut parts = Vec::new();
        if self.unscheduled > 0 {
            parts.push(format!("{} pods found no node", grouped(self.unscheduled as u64)));
        }
        let cycles = stats.hits + stats.builds + stats.plain;
        if cycles > 0 {
            let hits = 100.0 * stats.hits as f64 / cycles as f64;
            let replays = stats.replays as f64 / stats.hits.max(1) as f64;
            let tables = grouped(stats.tables as u64);
            parts.push(format!(
                "{tables} tables, {}, {hits:.1} % hits, {replays:.1} replays each",
                size(stats.bytes)
            ));
        }
        if let Some(resident) = self.resident {
            parts.push(format!("{} resident", size(resident as usize)));
        }
        parts.join("; ")
    }
}

impl Rounds {
    pub(crate) fn push(&mut self, outcome: Outcome) {
        self.0.push(Ours::new(outcome));
    }

    fn median(&self, of: impl Fn(&Ours) -> f64) -> Option<f64> {
        median(self.0.iter().map(of))
    }

    /// The median over rounds of the mean cycle time in nanoseconds.
    pub(crate) fn mean(&self) -> Option<f64> {
        self.median(|ours| ours.mean)
    }

    fn line(&self, name: &str, than: Option<f64>) -> Option<Line> {
        Some(Line {
            name: name.to_owned(),
            per_second: self.median(|ours| ours.per_second),
            mean: self.mean()?,
            p50: self.median(|ours| ours.p50)?,
            p99: self.median(|ours| ours.p99)?,
            than,
        })
    }
}

impl Row {
    pub(crate) fn new(task: &Task, plan: &Plan) -> Self {
        Self {
            workload: task.workload.name.clone(),
            size: task.size.clone(),
            title: task.title.clone(),
            nodes: plan.node_count(),
            pods: plan.measured(),
            signatures: task.signatures,
            tables: Rounds::default(),
            plain: Rounds::default(),
            plain_sample: Rounds::default(),
            upstream_default: Vec::new(),
            upstream_all: Vec::new(),
        }
    }

    /// The median over rounds of kube-scheduler's mean time in nanoseconds, if it was measured.
    pub(crate) fn upstream_default_mean(&self) -> Option<f64> {
        median(self.upstream_default.iter().map(|measured| measured.mean as f64))
    }

    /// The same with all nodes scored.
    pub(crate) fn upstream_all_mean(&self) -> Option<f64> {
        median(self.upstream_all.iter().map(|measured| measured.mean as f64))
    }

    fn lines(&self) -> Vec<Line> {
        let ours = self.tables.mean();
        let upstream = |name: &str, rounds: &[go::Measured]| {
            let of = |value: fn(&go::Measured) -> u64| median(rounds.iter().map(|round| value(round) as f64));
            Some(Line {
                name: name.to_owned(),
                per_second: None,
                mean: of(|measured| measured.mean)?,
                p50: of(|measured| measured.p50)?,
                p99: of(|measured| measured.p99)?,
                than: ours,
            })
        };
        let own = self.tables.line(&signatures_name(self.signatures), None);
        let plain = self.plain.line("  plain path", ours);
        let plain_sample = self.plain_sample.line("  plain path, sample", ours);
        let default = upstream("  upstream", &self.upstream_default);
        let all = upstream("  upstream, all nodes", &self.upstream_all);
        [own, plain, plain_sample, default, all].into_iter().flatten().collect()
    }

    fn to_json(&self) -> Value {
        let rounds = |rounds: &Rounds| rounds.0.iter().map(Ours::to_json).collect::<Vec<_>>();
        let times = |other: Option<f64>| Some(other? / self.tables.mean()?);
        json!({
            "workload": self.workload, "size": self.size, "nodes": self.nodes, "pods": self.pods,
            "signatures": signatures_name(self.signatures),
            "rounds": rounds(&self.tables), "plain": rounds(&self.plain),
            "plainSample": rounds(&self.plain_sample),
            "upstreamDefault": self.upstream_default, "upstreamAll": self.upstream_all,
            "times": {
                "plain": times(self.plain.mean()), "plainSample": times(self.plain_sample.mean()),
                "upstreamDefault": times(self.upstream_default_mean()),
                "upstreamAll": times(self.upstream_all_mean()),
            },
        })
    }
}

/// The median.
fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len().is_multiple_of(2) {
        let below = numbers.get(middle.checked_sub(1)?)?;
        return Some(f64::midpoint(*below, numbers[middle]));
    }
    numbers.get(middle).copied()
}

/// The name of a kind of signatures on the command line.
pub(crate) fn signatures_name(signatures: Signatures) -> String {
    match signatures {
        Signatures::Identical => "identical".to_owned(),
        Signatures::Many(count) => count.to_string(),
        Signatures::UniqueLabels => "unique-labels".to_owned(),
    }
}

/// A line of the table. Times are in nanoseconds.
struct Line {
    name: String,
    per_second: Option<f64>,
    mean: f64,
    p50: f64,
    p99: f64,
    /// The baseline of the mean.
    than: Option<f64>,
}

/// The table, 80 columns wide.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut heading = String::new();
    for row in rows {
        if row.title != heading {
            if heading.is_empty() {
                // Writing to a String cannot fail.
                _ = writeln!(
                    out,
                    "{:>9}  {:<22}{:>10}{:>10}{:>10}{:>10}{:>7}",
                    "nodes", "pods", "1/s", "mean µs", "p50 µs", "p99 µs", "times"
                );
            }
            _ = writeln!(out, "\n{}", row.title);
            heading.clone_from(&row.title);
        }
        for (at, line) in row.lines().iter().enumerate() {
            let nodes = if at == 0 { grouped(row.nodes as u64) } else { String::new() };
            let per_second = line.per_second.map(|rate| grouped(rate.round() as u64)).unwrap_or_default();
            let times = line.than.map(|than| times(line.mean / than)).unwrap_or_default();
            let text = format!(
                "{nodes:>9}  {:<22}{per_second:>10}{:>10}{:>10}{:>10}{times:>7}",
                line.name,
                microseconds(line.mean),
                microseconds(line.p50),
                microseconds(line.p99),
            );
            _ = writeln!(out, "{}", text.trim_end());
        }
        if let Some(last) = row.tables.0.last() {
            _ = writeln!(out, "{:>11}{}", "", last.remark());
        }
    }
    out
}

fn microseconds(nanoseconds: f64) -> String {
    match nanoseconds / 1000.0 {
        small if small < 100.0 => format!("{small:.1}"),
        large => grouped(large.round() as u64),
    }
}

fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.1}") } else { grouped(ratio.round() as u64) }
}

fn size(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The report as JSON, with more details.
pub(crate) fn to_json(rows: &[Row]) -> Value {
    rows.iter().map(Row::to_json).collect()
}
