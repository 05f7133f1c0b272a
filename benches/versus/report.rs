//! The report as a table or as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_benches::grouped;

use crate::stats::{Ratio, median, range, ratio};
use crate::turn::{Cost, Outcome};

/// The results of a workload.
pub(crate) struct Result {
    pub(crate) workload: String,
    pub(crate) nodes: usize,
    pub(crate) bound: usize,
    pub(crate) pods: usize,
    /// The ResourceClaims of these pods.
    pub(crate) claims: usize,
    /// The size of a pod as the API server stores it.
    pub(crate) pod_bytes: usize,
    pub(crate) rounds: usize,
    /// The time after the last binding when memory is read.
    pub(crate) settle: Duration,
    /// The settings of the bare client.
    pub(crate) bare: String,
    /// Its writes.
    pub(crate) writes: String,
    /// The outcomes of kube-scheduler, supercargo and the bare client, round by round.
    pub(crate) contenders: [(&'static str, Vec<Outcome>); 3],
}

/// A measurement in the unit of the table.
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    key: &'static str,
    of: fn(&Outcome) -> Option<f64>,
}

const MEBIBYTE: f64 = 1_048_576.0;

pub(crate) const THROUGHPUT: Measure = Measure {
    name: "bindings, pods/s",
    key: "podsPerSecond",
    of: |outcome| Some(rate(outcome, outcome.bound)),
};
const WRITTEN: Measure = Measure {
    name: "with events, pods/s",
    key: "podsWithEventsPerSecond",
    of: |outcome| Some(rate(outcome, outcome.written)),
};
const FIRST: Measure = Measure {
    name: "start to first binding, s",
    key: "secondsToFirstBinding",
    of: |outcome| outcome.scheduler.map(|_| outcome.until_first.as_secs_f64()),
};
const STARTING: Measure = Measure {
    name: "CPU until then, s",
    key: "cpuSecondsToFirstBinding",
    of: |outcome| Some(outcome.scheduler?.starting.as_secs_f64()),
};
pub(crate) const SCHEDULING: Measure = Measure {
    name: "scheduler CPU, ms/pod",
    key: "cpuMillisecondsPerPod",
    of: |outcome| Some(per_pod(outcome, outcome.scheduler?.scheduling)),
};
const SERVER: Measure = Measure {
    name: "API server CPU, ms/pod",
    key: "serverCpuMillisecondsPerPod",
    of: |outcome| Some(per_pod(outcome, outcome.server_cpu)),
};
pub(crate) const STEADY: Measure = Measure {
    name: "steady RSS, MiB",
    key: "steadyMebibytes",
    of: |outcome| memory(outcome, |cost| cost.memory.resident),
};
const PEAK: Measure = Measure {
    name: "peak RSS, MiB",
    key: "peakMebibytes",
    of: |outcome| memory(outcome, |cost| cost.memory.peak),
};
const ALL: [Measure; 8] = [THROUGHPUT, WRITTEN, FIRST, STARTING, SCHEDULING, SERVER, STEADY, PEAK];

fn rate(outcome: &Outcome, took: Duration) -> f64 {
    // The first binding starts the clock.
    outcome.pods.saturating_sub(1) as f64 / took.as_secs_f64()
}

fn per_pod(outcome: &Outcome, took: Duration) -> f64 {
    took.as_secs_f64() * 1000.0 / outcome.pods.saturating_sub(1).max(1) as f64
}

fn memory(outcome: &Outcome, of: fn(&Cost) -> u64) -> Option<f64> {
    outcome.scheduler.as_ref().map(|cost| of(cost) as f64 / MEBIBYTE)
}

impl Measure {
    pub(crate) fn values(&self, outcomes: &[Outcome]) -> Vec<f64> {
        outcomes.iter().filter_map(self.of).collect()
    }
}

impl Result {
    /// The ratio of two contenders.
    fn ratio(&self, measure: &Measure, over: usize, under: usize) -> Option<Ratio> {
        let (over, under) =
            (measure.values(&self.contenders[over].1), measure.values(&self.contenders[under].1));
        (!over.is_empty() && over.len() == under.len()).then(|| ratio(&over, &under))
    }

    /// Failures: broken constraints, and missing events of supercargo.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for (name, outcomes) in &self.contenders {
            for (round, outcome) in outcomes.iter().enumerate() {
                let of = format!("{}, {name}, round {}", self.workload, round + 1);
                failures.extend(outcome.violations.iter().map(|violation| format!("{of}: {violation}")));
                if *name != UPSTREAM && outcome.events != outcome.pods {
                    failures.push(format!(
                        "{of}: {} of {} pods have an event Scheduled",
                        outcome.events, outcome.pods
                    ));
                }
            }
        }
        failures
    }

    /// The table, at most 80 columns wide.
    pub(crate) fn table(&self) -> String {
        let mut out = format!(
            "{}: {} nodes, {} pods bound before, {} pods of {:.1} KB{}\n{} round{}, medians (least–most), {} processors\nthe bare client: {}; {}\n\n",
            self.workload,
            count(self.nodes),
            count(self.bound),
            count(self.pods),
            self.pod_bytes as f64 / 1000.0,
            if self.claims > 0 { ", each with a claim" } else { "" },
            self.rounds,
            if self.rounds == 1 { "" } else { "s" },
            processors(),
            self.bare,
            self.writes,
        );
        row(&mut out, "", self.contenders.iter().map(|(name, _)| (*name).to_owned()));
        for measure in &ALL {
            let cells = self.contenders.iter().map(|(_, outcomes)| shown(&measure.values(outcomes)));
            row(&mut out, measure.name, cells);
            if [THROUGHPUT.key, WRITTEN.key].contains(&measure.key) {
                let of_bare = |who| self.ratio(measure, who, BARE);
                row(
                    &mut out,
                    "  of the bare client's",
                    [0, 1].map(|who| share(of_bare(who).map(|r| r.median))),
                );
                row(
                    &mut out,
                    "    at least, 90 %",
                    [0, 1].map(|who| share(of_bare(who).map(|r| r.at_least))),
                );
            } else if measure.key != SERVER.key {
                let ratio = self.ratio(measure, 1, 0).map(|ratio| ratio.median);
                row(&mut out, "  of kube-scheduler's", [String::new(), share(ratio)]);
            }
        }
        let found = |outcomes: &[Outcome]| {
            let sum = |of: fn(&Outcome) -> usize| count(outcomes.iter().map(of).sum());
            format!("{}/{}", sum(|outcome| outcome.events), sum(|outcome| outcome.pods))
        };
        row(&mut out, "Scheduled events found", self.contenders.iter().map(|(_, outcomes)| found(outcomes)));
        let holds = |outcomes: &[Outcome]| {
            if outcomes.iter().all(|o| o.violations.is_empty()) { "hold" } else { "BROKEN" }
        };
        row(&mut out, "constraints", self.contenders.iter().map(|(_, outcomes)| holds(outcomes).to_owned()));
        out
    }

    /// The report as JSON with every round.
    pub(crate) fn to_json(&self) -> Value {
        let contender = |(name, outcomes): &(&'static str, Vec<Outcome>)| {
            let measures = ALL.iter().map(|measure| {
                let values = measure.values(outcomes);
                let middle = (!values.is_empty()).then(|| median(&values));
                (measure.key.to_owned(), json!({"median": middle, "rounds": values}))
            });
            let measures: serde_json::Map<String, Value> = measures.collect();
            let events: Vec<usize> = outcomes.iter().map(|outcome| outcome.events).collect();
            let violations: Vec<&[String]> =
                outcomes.iter().map(|outcome| outcome.violations.as_slice()).collect();
            json!({"name": name, "measures": measures, "scheduledEvents": events, "violations": violations})
        };
        let ratios = |over: usize, under: usize| -> serde_json::Map<String, Value> {
            let all = ALL.iter().filter_map(|measure| Some((measure, self.ratio(measure, over, under)?)));
            all.map(|(measure, r)| {
                (measure.key.to_owned(), json!({"median": r.median, "lower90": r.at_least}))
            })
            .collect()
        };
        json!({
            "workload": self.workload, "nodes": self.nodes, "boundPods": self.bound, "pods": self.pods, "claims": self.claims,
            "podBytes": self.pod_bytes, "rounds": self.rounds, "settleSeconds": self.settle.as_secs_f64(),
            "processors": processors(), "bareClient": self.bare, "writes": self.writes,
            "contenders": self.contenders.iter().map(contender).collect::<Value>(),
            "ratios": {
                "supercargoToBareClient": ratios(1, BARE),
                "kubeSchedulerToBareClient": ratios(0, BARE),
                "supercargoToKubeScheduler": ratios(1, 0),
            },
        })
    }
}

/// kube-scheduler may lose events, because it drops some under load.
pub(crate) const UPSTREAM: &str = "kube-scheduler";
/// The index of the bare client.
const BARE: usize = 2;

fn row(out: &mut String, name: &str, cells: impl IntoIterator<Item = String>) {
    // Writing to a String cannot fail.
    _ = write!(out, "{name:<26}");
    for cell in cells {
        _ = write!(out, "{cell:>18}");
    }
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
}

fn shown(values: &[f64]) -> String {
    if values.is_empty() {
        return "–".to_owned();
    }
    let (least, most) = range(values);
    match values {
        [one] => number(*one),
        _ => format!("{} ({}–{})", number(median(values)), number(least), number(most)),
    }
}

/// Three significant digits.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => grouped(value.round() as u64),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn share(value: Option<f64>) -> String {
    value.map_or_else(
        || "–".to_owned(),
        |value| if value < 0.1 { format!("{value:.3}") } else { format!("{value:.2}") },
    )
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn count(number: usize) -> String {
    grouped(number as u64)
}
