//! The command line, and the selected runs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Parser;
use supercargo_benches::RunArgs;
use supercargo_benches::plan::Signatures;
use supercargo_benches::workload::{Library, MEASURED, Params, Workload};

/// The size of the goals.
const GOAL: &str = "OneBoundPodPerNode";
/// The size of a smoke test.
const TESTED: &[Signatures] = &[Signatures::Identical, Signatures::Many(100), Signatures::UniqueLabels];
/// The workloads with a million nodes.
const MILLION: [&str; 3] = ["SchedulingBasic", "SchedulingNodeAffinity", "TopologySpreading"];

/// Run scheduler_perf's workloads in process
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Names of workloads or parts of names [default: all]
    #[arg(value_name = "WORKLOAD")]
    pub(crate) workloads: Vec<String>,
    /// Nodes; existing objects and measured pods scale with them [default: as in the file]
    #[arg(long, value_delimiter = ',', value_name = "NUMBER,...")]
    pub(crate) nodes: Vec<usize>,
    /// Measured pods, limited to what fills the nodes as in the file [default: as in the file, or
    /// fewer on fewer nodes]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) pods: Option<usize>,
    /// How the measured pods differ: identical, this many requests in random order, unique-labels
    #[arg(long, value_delimiter = ',', value_name = "KIND,...", default_value = "identical", value_parser = signatures)]
    pub(crate) signatures: Vec<Signatures>,
    /// The name of a size in the file [default: the first]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["goals", "million"])]
    pub(crate) size: Option<String>,
    /// Run the workloads of the goals, with one bound pod on each node
    #[arg(long, conflicts_with = "million")]
    pub(crate) goals: bool,
    /// A million nodes and a million pods; Basic, NodeAffinity and TopologySpreading unless
    /// workloads are named
    #[arg(long, conflicts_with_all = ["nodes", "go", "plain"])]
    pub(crate) million: bool,
    /// Also measure supercargo without evaluation tables, on all nodes and with kube-scheduler's
    /// default sampling
    #[arg(long)]
    pub(crate) plain: bool,
    /// Also measure kube-scheduler, with percentageOfNodesToScore at its default and at 100
    #[arg(long)]
    pub(crate) go: bool,
    /// Rounds, whose medians are shown [default: 3 with --go or --plain, else 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// The time limit in seconds for the plain path and for kube-scheduler, per round
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) budget: u64,
    /// The seed of the random order
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write figures into this folder: cost by cluster size and by signatures, where several are
    /// measured
    #[arg(long, value_name = "DIR")]
    pub(crate) figures: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// A workload with its size.
pub(crate) struct Task {
    pub(crate) workload: Workload,
    pub(crate) size: String,
    /// The name of the workload, and of the size if one was selected.
    pub(crate) title: String,
    pub(crate) params: Params,
    pub(crate) signatures: Signatures,
}

fn signatures(text: &str) -> Result<Signatures, String> {
    match text {
        "identical" => Ok(Signatures::Identical),
        "unique-labels" => Ok(Signatures::UniqueLabels),
        number => match number.parse() {
            Ok(number) if (1..=10_000).contains(&number) => Ok(Signatures::Many(number)),
            _ => Err("it is identical, unique-labels, or a number from 1 to 10000".to_owned()),
        },
    }
}

impl Args {
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if (self.go || self.plain) && !self.run.test { 3 } else { 1 })
    }

    pub(crate) fn budget(&self) -> Duration {
        Duration::from_secs(self.budget)
    }

    /// The scheduler's time per cycle. With few pods, more time must pass for churn to happen.
    pub(crate) fn step(&self) -> Duration {
        Duration::from_millis(if self.run.test { 50 } else { 1 })
    }

    /// The runs in order.
    pub(crate) fn tasks(&self, library: &Library) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        for workload in library.workloads()?.iter().filter(|workload| self.wants(workload)) {
            for &nodes in &self.node_counts(workload)? {
                for &signatures in if self.run.test { TESTED } else { &self.signatures } {
                    tasks.push(self.task(workload, nodes, signatures)?);
                }
            }
        }
        if tasks.is_empty() {
            // It may be the name of another benchmark.
            eprintln!("perf: no workload is named {}", self.workloads.join(", "));
        }
        Ok(tasks)
    }

    fn wants(&self, workload: &Workload) -> bool {
        let named = |part: &String| workload.name.to_lowercase().contains(&part.to_lowercase());
        let wanted = if !self.workloads.is_empty() {
            self.workloads.iter().any(named)
        } else if self.million {
            MILLION.contains(&workload.name.as_str())
        } else {
            true
        };
        wanted && (!self.goals || workload.has_size(GOAL))
    }

    /// `None` for the number of the file.
    fn node_counts(&self, workload: &Workload) -> Result<Vec<Option<usize>>> {
        let own = workload.size(self.size_name())?;
        let scales = workload.nodes(&own.params) > 0;
        Ok(match () {
            () if !scales => vec![None],
            () if self.run.test => vec![Some(120)],
            () if self.million => vec![Some(1_000_000)],
            () if self.nodes.is_empty() => vec![None],
            () => self.nodes.iter().copied().map(Some).collect(),
        })
    }

    fn size_name(&self) -> Option<&str> {
        if self.goals { Some(GOAL) } else { self.size.as_deref() }
    }

    fn task(&self, workload: &Workload, nodes: Option<usize>, signatures: Signatures) -> Result<Task> {
        let size = workload.size(self.size_name())?;
        let pods = match () {
            () if self.run.test => Some(48),
            () if self.million => Some(self.pods.unwrap_or(1_000_000)),
            () => self.pods,
        };
        let mut params = workload.scaled(&size.params, nodes, pods);
        if self.run.test && workload.nodes(&size.params) == 0 {
            // Objects that do not scale with the nodes are few, too.
            for count in params.values_mut() {
                *count = (*count).min(100);
            }
        }
        if self.million {
            // These pods are the measured ones.
            for (_, count) in
                params.iter_mut().filter(|(name, _)| *name != MEASURED && name.ends_with("Pods"))
            {
                *count = 0;
            }
        }
        let measured = params.get(MEASURED).copied().unwrap_or_default();
        if measured == 0 {
            return Err(anyhow!("{} measures no pods", workload.name));
        }
        let title = match self.size_name() {
            Some(size) => format!("{}, {size}", workload.name),
            None => workload.name.clone(),
        };
        Ok(Task { workload: workload.clone(), size: size.name.clone(), title, params, signatures })
    }
}
