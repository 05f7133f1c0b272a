//! The command line, and what is to be run by it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Parser;
use supercargo_benches::RunArgs;
use supercargo_benches::plan::Signatures;
use supercargo_benches::workload::{Library, MEASURED, Params, Workload};

/// The size that the goals are set for.
const GOAL: &str = "OneBoundPodPerNode";
/// What is run to see that it works.
const TESTED: &[Signatures] = &[Signatures::Identical, Signatures::Many(100), Signatures::UniqueLabels];
/// What is run on a million nodes.
const MILLION: [&str; 3] = ["SchedulingBasic", "SchedulingNodeAffinity", "TopologySpreading"];

/// scheduler_perf's workloads in process
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Names of workloads, or parts of names; all if there are none
    #[arg(value_name = "WORKLOAD")]
    pub(crate) workloads: Vec<String>,
    /// How many nodes there are; what is on them and how many pods are measured goes with that. As in the file if not
    /// given
    #[arg(long, value_delimiter = ',', value_name = "NUMBER,...")]
    pub(crate) nodes: Vec<usize>,
    /// How many pods are measured, at most what would fill the nodes as the file does. As in the file, or fewer on fewer
    /// nodes, if not given
    #[arg(long, value_name = "NUMBER")]
    pub(crate) pods: Option<usize>,
    /// How the pods that are measured differ: identical, so many different requests in random order, unique-labels
    #[arg(long, value_delimiter = ',', value_name = "KIND,...", default_value = "identical", value_parser = signatures)]
    pub(crate) signatures: Vec<Signatures>,
    /// A size by its name in the file, instead of the first
    #[arg(long, value_name = "NAME", conflicts_with_all = ["goals", "million"])]
    pub(crate) size: Option<String>,
    /// What goals are set for: workloads with one bound pod on each node
    #[arg(long, conflicts_with = "million")]
    pub(crate) goals: bool,
    /// A million nodes, and a million pods for them; Basic, NodeAffinity and TopologySpreading unless others are named
    #[arg(long, conflicts_with_all = ["nodes", "go", "plain"])]
    pub(crate) million: bool,
    /// Measure our scheduler without evaluation tables, too
    #[arg(long)]
    pub(crate) plain: bool,
    /// Measure upstream's scheduler beside ours, with percentageOfNodesToScore at its default and at 100
    #[arg(long)]
    pub(crate) go: bool,
    /// How often each is run, in turn; 3 with --go or --plain and else once if not given. Medians are shown
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// For how many seconds the plain path and upstream's scheduler are measured at most, each time
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) budget: u64,
    /// Where the random order begins
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write figures into this folder: cost against the size of the cluster and against signatures, where several are
    /// measured
    #[arg(long, value_name = "DIR")]
    pub(crate) figures: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// A workload to be run in a size.
pub(crate) struct Task {
    pub(crate) workload: Workload,
    pub(crate) size: String,
    /// What it is called: the workload, and the size if one was asked for.
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

    /// How much time passes with each cycle, as the scheduler sees it. With few pods more has to pass for anything to happen
    /// meanwhile.
    pub(crate) fn step(&self) -> Duration {
        Duration::from_millis(if self.run.test { 50 } else { 1 })
    }

    /// What is to be run, in order.
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
            // Perhaps it is another benchmark's name.
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

    /// `None` for as many as the file says.
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
            // What does not go with the nodes is not much either.
            for count in params.values_mut() {
                *count = (*count).min(100);
            }
        }
        if self.million {
            // The pods are those that are measured.
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
