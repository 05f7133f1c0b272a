//! supercargo, kube-scheduler and a client that only writes, on a real control plane.
//!
//! `cargo bench -p supercargo-benches --bench versus`; `-- --help` lists the options. `README.md`
//! in the parent folder describes the measurements and how to read them.

mod api;
mod checks;
mod cluster;
mod contender;
mod figures;
mod names;
mod process;
mod proto;
mod report;
mod script;
mod stats;
mod turn;
mod watch;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde_json::Value;
use supercargo_benches::{FilterArgs, Output, Progress, RunArgs};
use supercargo_controlplane::{Assets, Program, required};
use tokio::runtime::Runtime;

use api::Wire;
use cluster::Cluster;
use contender::{Bare, ClientOptions, Contender, Scheduler};
use names::Names;
use script::{Encoding, Script};
use turn::{Outcome, Waits};
use workload::{Scale, Size, Workload};

/// The workloads of the goals.
const WORKLOADS: [&str; 5] = [
    "SchedulingBasic",
    "TopologySpreading",
    "SchedulingPodAffinity",
    "SchedulingPodAntiAffinity",
    "SchedulingPreferredPodAffinity",
];

/// Compare supercargo with kube-scheduler and a bare client on a real control plane
#[derive(Debug, Parser)]
struct Args {
    /// A workload of benches/workloads; may be repeated
    #[arg(long = "workload", value_name = "NAME", default_values_t = WORKLOADS.map(String::from))]
    workloads: Vec<String>,
    /// Nodes; everything else scales with them [default: as in the workload, 5,000]
    #[arg(long, value_name = "NUMBER")]
    nodes: Option<usize>,
    /// Pods that are bound before the measurement [default: one per node]
    #[arg(long, value_name = "NUMBER")]
    bound: Option<usize>,
    /// Pods that are scheduled in each turn [default: as in the workload]
    #[arg(long, value_name = "NUMBER")]
    pods: Option<usize>,
    /// The size of pods
    #[arg(long, value_enum, default_value_t = Size::Small)]
    size: Size,
    /// Rounds, with one turn per contender
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds after the last binding until memory is read
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    settle: u64,
    /// Seconds after the last binding until events and constraints are checked
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    events_after: u64,
    /// Numbers of concurrent requests that the bare client tries
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_values_t = [32, 64, 128])]
    in_flight: Vec<usize>,
    /// An existing supercargo program [default: built from this repository]
    #[arg(long, value_name = "FILE", env = "SUPERCARGO_PROGRAM")]
    supercargo: Option<PathBuf>,
    /// Write figures into this folder, if several workloads run
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    filter: FilterArgs,
}

fn main() -> Result<ExitCode> {
    let mut args = Args::parse();
    if args.filter.leaves_out("versus") {
        return Ok(ExitCode::SUCCESS);
    }
    if args.run.test {
        args.shrink();
    }
    let Some(upstream) = upstream()? else { return Ok(ExitCode::SUCCESS) };
    let supercargo = match &args.supercargo {
        Some(path) => path.canonicalize().with_context(|| format!("find {}", path.display()))?,
        None => contender::build_supercargo()?,
    };
    let versus = Versus { args, upstream, supercargo, progress: Progress::new() };
    let failures = Runtime::new()?.block_on(versus.run())?;
    for failure in &failures {
        eprintln!("versus: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The path of kube-scheduler, or `None` after printing why no control plane is available.
fn upstream() -> Result<Option<PathBuf>> {
    const WANTED: [Program; 3] = [
        Program::Etcd,
        Program::KubeApiserver(supercargo_controlplane::Release::Baseline),
        Program::KubeScheduler,
    ];
    let found = Assets::locate_or_build(&WANTED).and_then(|assets| assets.path(Program::KubeScheduler));
    match found {
        Ok(path) => Ok(Some(path)),
        Err(why) if required() => Err(why),
        Err(why) => {
            eprintln!("SKIPPED: no control plane: {why:#}");
            Ok(None)
        }
    }
}

impl Args {
    /// A small size for a smoke test.
    fn shrink(&mut self) {
        self.workloads.retain(|name| name == "SchedulingPodAntiAffinity");
        (self.nodes, self.pods) = (Some(self.nodes.unwrap_or(60)), Some(self.pods.unwrap_or(30)));
        (self.size, self.rounds, self.settle, self.events_after) = (Size::Large, 1, 1, 5);
        self.in_flight = vec![16];
    }

    fn scale(&self) -> Scale {
        Scale { nodes: self.nodes, bound: self.bound, pods: self.pods }
    }

    fn waits(&self) -> Waits {
        Waits {
            events: Duration::from_secs(self.events_after),
            settle: Duration::from_secs(self.settle),
            patience: Duration::from_mins(2),
        }
    }
}

/// The whole run.
struct Versus {
    args: Args,
    upstream: PathBuf,
    supercargo: PathBuf,
    progress: Progress,
}

impl Versus {
    /// Runs every workload and returns the failures.
    async fn run(&self) -> Result<Vec<String>> {
        let workloads = self.args.workloads.iter().map(|name| Workload::named(name, self.args.scale()));
        let workloads = workloads.collect::<Result<Vec<_>>>()?;
        let (mut failures, mut results) = (Vec::new(), Vec::new());
        let mut way = None;
        for workload in &workloads {
            let result = self.workload(workload, &mut way).await.with_context(|| workload.name.clone())?;
            self.progress.clear();
            failures.extend(result.failures());
            if self.args.run.output == Output::Table {
                println!("{}", result.table());
            }
            results.push(result);
        }
        if self.args.run.output == Output::Json {
            println!("{:#}", results.iter().map(report::Result::to_json).collect::<Value>());
        }
        if let Some(dir) = &self.args.figures {
            for path in figures::write(&results, dir)? {
                eprintln!("wrote {}", path.display());
            }
        }
        Ok(failures)
    }

    async fn workload(
        &self,
        workload: &Workload,
        way: &mut Option<(ClientOptions, Encoding)>,
    ) -> Result<report::Result> {
        let cluster = Cluster::start(workload, self.args.size, self.progress).await?;
        let (waits, rounds) = (self.args.waits(), self.args.rounds as usize);
        let mut turns = 0;
        let mut names = |count| {
            turns += 1;
            Names { namespace: workload.measured_namespace().to_owned(), turn: turns, count }
        };
        // A warm-up turn that is not counted. It fills caches and records the writes.
        let supercargo = Contender::Scheduler(Scheduler::Supercargo(self.supercargo.clone()));
        let first = names(workload.measured_count());
        let hasty = Waits { settle: Duration::ZERO, ..waits };
        let (outcome, seen) =
            turn::take(&cluster, &supercargo, &first, hasty).await.context("the first turn")?;
        ensure!(outcome.violations.is_empty(), "the first turn: {}", outcome.violations.join("; "));
        let script = Script::record(&seen.changes, seen.events, &seen.claims, &first);
        let (chosen, encoding) = match *way {
            Some(chosen) => chosen,
            None => {
                *way.insert(self.fastest(&cluster, &script, &mut names, workload.measured_count()).await?)
            }
        };
        let writes = script.counts().to_string();
        let bare = Bare { script, way: chosen, encoding };
        let reported = bare.to_string();
        let upstream = Contender::Scheduler(Scheduler::Upstream(self.upstream.clone()));
        let contenders = [upstream, supercargo, Contender::Bare(bare)];
        let mut outcomes: [Vec<Outcome>; 3] = Default::default();
        for round in 0..rounds {
            // The order of contenders rotates.
            for place in 0..contenders.len() {
                let who = (round + place) % contenders.len();
                let names = names(workload.measured_count());
                let turn = turn::take(&cluster, &contenders[who], &names, waits).await;
                let (outcome, _) =
                    turn.with_context(|| format!("{}, round {}", contenders[who].name(), round + 1))?;
                outcomes[who].push(outcome);
            }
        }
        let mut outcomes = outcomes.into_iter();
        Ok(report::Result {
            workload: workload.name.clone(),
            nodes: workload.node_count(),
            bound: workload.bound_count(),
            claims: if workload.has_claims() { workload.measured_count() } else { 0 },
            pods: workload.measured_count(),
            pod_bytes: outcome.pod_bytes,
            rounds,
            settle: waits.settle,
            bare: reported,
            writes,
            contenders: contenders.each_ref().map(|who| (who.name(), outcomes.next().unwrap_or_default())),
        })
    }

    /// Finds the fastest settings of the bare client: protocol, number of concurrent requests, and
    /// encoding.
    async fn fastest(
        &self,
        cluster: &Cluster,
        script: &Script,
        names: &mut impl FnMut(usize) -> Names,
        pods: usize,
    ) -> Result<(ClientOptions, Encoding)> {
        /// Enough pods for the comparison.
        const ENOUGH: usize = 1000;
        let mut best: Option<(Duration, (ClientOptions, Encoding))> = None;
        let numbers = self.args.in_flight.iter();
        let mut ways: Vec<_> = numbers
            .map(|n| (ClientOptions { wire: Wire::Http1, in_flight: *n }, Encoding::Protobuf))
            .collect();
        // First the best number of requests, then the other settings with that number.
        for others in [true, false] {
            let tried = std::mem::take(&mut ways);
            // Twice, because one run may be disturbed.
            for (way, encoding) in tried.repeat(2) {
                let bare = Bare { script: script.clone(), way, encoding };
                let reported = bare.to_string();
                let names = names(pods.min(ENOUGH));
                let turn = turn::take(cluster, &Contender::Bare(bare), &names, self.args.waits()).await;
                let (outcome, _) = turn.with_context(|| format!("the bare client, {reported}"))?;
                let took = outcome.written;
                if best.is_none_or(|(least, _)| took < least) {
                    best = Some((took, (way, encoding)));
                }
            }
            if let Some((_, (way, encoding))) = best.filter(|_| others) {
                ways = vec![(way, Encoding::Json), (ClientOptions { wire: Wire::Http2, ..way }, encoding)];
            }
        }
        best.map(|(_, way)| way).context("--in-flight has no number")
    }
}
