//! What is said: tables and data.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_benches::grouped;

use crate::args::Task;
use crate::go;
use crate::run::Outcome;
use supercargo_benches::plan::{Plan, Signatures};

/// What was measured of a workload in one size, round by round.
pub(crate) struct Row {
    pub(crate) workload: String,
    size: String,
    pub(crate) nodes: usize,
    pods: usize,
    pub(crate) signatures: Signatures,
    pub(crate) ours: Vec<Ours>,
    pub(crate) upstream_default: Vec<go::Measured>,
    pub(crate) upstream_all: Vec<go::Measured>,
}

/// A round of ours. Times are nanoseconds.
pub(crate) struct Ours {
    decisions: usize,
    unscheduled: usize,
    per_second: f64,
    mean: u64,
    p50: u64,
    p99: u64,
    adding: Duration,
    confirming: Duration,
    other: Duration,
    other_cycles: usize,
    resident: Option<u64>,
}

impl Ours {
    pub(crate) fn new(outcome: Outcome) -> Self {
        let spent = outcome.spent;
        let total = spent.total();
        let in_cycles = spent.in_cycles();
        let (other, other_cycles) = (spent.other_cycles + spent.telling, spent.other_cycle_count);
        let mut cycles = spent.cycles;
        cycles.sort_unstable();
        let rank = |percent: usize| {
            let at = (cycles.len() * percent).div_ceil(100).max(1) - 1;
            cycles.get(at).copied().unwrap_or_default().into()
        };
        Self {
            decisions: outcome.decisions,
            unscheduled: outcome.unscheduled,
            per_second: outcome.decisions as f64 / total.as_secs_f64(),
            mean: in_cycles.as_nanos() as u64 / cycles.len().max(1) as u64,
            p50: rank(50),
            p99: rank(99),
            adding: spent.adding,
            confirming: spent.confirming,
            other,
            other_cycles,
            resident: outcome.resident,
        }
    }
}

impl Row {
    pub(crate) fn new(task: &Task, plan: &Plan) -> Self {
        Self {
            workload: task.workload.name.clone(),
            size: task.size.clone(),
            nodes: plan.node_count(),
            pods: plan.measured(),
            signatures: task.signatures,
            ours: Vec::new(),
            upstream_default: Vec::new(),
            upstream_all: Vec::new(),
        }
    }

    /// The median over rounds of a cycle's mean time, in nanoseconds.
    pub(crate) fn mean(&self) -> f64 {
        median(self.ours.iter().map(|ours| ours.mean as f64))
    }

    /// The same of upstream's, if it was measured.
    pub(crate) fn upstream_mean(rounds: &[go::Measured]) -> Option<f64> {
        (!rounds.is_empty()).then(|| median(rounds.iter().map(|measured| measured.mean as f64)))
    }
}

/// The middle of some numbers.
fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() {
        0 => 0.0,
        count if count.is_multiple_of(2) => f64::midpoint(numbers[middle - 1], numbers[middle]),
        _ => numbers[middle],
    }
}

/// The name of a kind of signatures, as the command line has it.
pub(crate) fn signatures_name(signatures: Signatures) -> String {
    match signatures {
        Signatures::Identical => "identical".to_owned(),
        Signatures::Many(count) => count.to_string(),
        Signatures::UniqueLabels => "unique-labels".to_owned(),
    }
}

/// The tables, 80 columns wide.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    if rows.is_empty() {
        return out;
    }
    // A String takes all that is written to it.
    _ = writeln!(
        out,
        "{:<30}{:>9}{:>14}{:>9}{:>9}{:>9}",
        "", "nodes", "signatures", "per s", "p50 µs", "p99 µs"
    );
    for row in rows {
        let of = |value: &dyn Fn(&Ours) -> f64| median(row.ours.iter().map(value));
        _ = writeln!(
            out,
            "{:<30}{:>9}{:>14}{:>9}{:>9}{:>9}",
            clipped(&row.workload, 30),
            grouped(row.nodes as u64),
            signatures_name(row.signatures),
            grouped(of(&|ours| ours.per_second).round() as u64),
            microseconds(of(&|ours| ours.p50 as f64)),
            microseconds(of(&|ours| ours.p99 as f64)),
        );
    }
    let compared: Vec<_> = rows.iter().filter(|row| !row.upstream_default.is_empty()).collect();
    if compared.is_empty() {
        return out;
    }
    _ = writeln!(
        out,
        "\n{:<30}{:>8}{:>10}{:>8}{:>8}{:>8}{:>8}",
        "mean cycle, µs", "nodes", "signat.", "ours", "default", "", "times"
    );
    for row in compared {
        let ours = row.mean();
        let beside = |rounds: &[go::Measured]| {
            let theirs = Row::upstream_mean(rounds)?;
            Some((microseconds(theirs), times(theirs / ours)))
        };
        let (default, default_times) = beside(&row.upstream_default).unwrap_or_default();
        let (all, all_times) = beside(&row.upstream_all).unwrap_or_default();
        _ = writeln!(
            out,
            "{:<24}{:>7}{:>10}{:>8}{:>9}{:>7}{:>9}{:>6}",
            clipped(&row.workload, 24),
            row.nodes,
            clipped(&signatures_name(row.signatures), 9),
            microseconds(ours),
            default,
            default_times,
            all,
            all_times,
        );
    }
    out
}

fn clipped(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

fn microseconds(nanoseconds: f64) -> String {
    let microseconds = nanoseconds / 1000.0;
    match microseconds {
        small if small < 100.0 => format!("{small:.1}"),
        large => grouped(large.round() as u64),
    }
}

fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.1}×") } else { format!("{}×", grouped(ratio.round() as u64)) }
}

/// The same, and more, for programs.
pub(crate) fn to_json(rows: &[Row]) -> Value {
    rows.iter()
        .map(|row| {
            json!({
                "workload": row.workload, "size": row.size, "nodes": row.nodes, "pods": row.pods,
                "signatures": signatures_name(row.signatures),
                "rounds": row.ours.iter().map(Ours::to_json).collect::<Vec<_>>(),
                "upstreamDefault": row.upstream_default, "upstreamAll": row.upstream_all,
            })
        })
        .collect()
}

impl Ours {
    fn to_json(&self) -> Value {
        json!({
            "decisions": self.decisions, "unscheduled": self.unscheduled, "perSecond": self.per_second,
            "cycleMean": self.mean, "cycleP50": self.p50, "cycleP99": self.p99,
            "addingSeconds": self.adding.as_secs_f64(), "confirmingSeconds": self.confirming.as_secs_f64(),
            "otherSeconds": self.other.as_secs_f64(), "otherCycles": self.other_cycles, "residentBytes": self.resident,
        })
    }
}
