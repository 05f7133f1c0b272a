//! The time from a scheduler's start to its first binding in a cluster with many pods, and its
//! memory: kube-scheduler and supercargo in turn on one real control plane with the same
//! configuration.
//!
//! `cargo bench -p supercargo-benches --bench startup`; `-- --help` lists the options. All pods but
//! one are bound when a scheduler starts. The time runs from the start of its process until a watch
//! shows that the last pod has a node. Control plane, watch and scheduler share the machine. The
//! measured supercargo is this program, started with `run`.

#[path = "../apiserver_rates/client.rs"]
#[allow(dead_code)] // what it can do beside is for the other benchmark
mod client;
mod cluster;
mod objects;
mod scheduler;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde_json::{Value, json};
use supercargo_benches::{FilterArgs, Output, RunArgs};
use supercargo_controlplane::{ControlPlane, Options, assets_or_skip};
use tokio::runtime::Runtime;

use client::Target;
use cluster::Cluster;
use scheduler::{Measure, Which};

/// Measure the time to the first binding and the memory in a cluster with many pods
#[derive(Debug, Parser)]
struct Args {
    /// Nodes
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Pods that are bound when a scheduler starts
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,
    /// Give each pod unique labels
    #[arg(long)]
    unique_labels: bool,
    /// Use pods of 9.5 KB in JSON instead of 2 KB
    #[arg(long)]
    large: bool,
    /// Starts of each scheduler
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds that a scheduler runs in the last round before its memory is read
    #[arg(long, default_value_t = 60)]
    settle: u64,
    /// Measure only this scheduler
    #[arg(long, value_enum)]
    only: Option<Which>,
    /// Keep the schedulers' logs and print their paths
    #[arg(long)]
    keep_logs: bool,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    filter: FilterArgs,
}

fn main() -> ExitCode {
    // The measured scheduler.
    if std::env::args().nth(1).as_deref() == Some("run") {
        return supercargo::SchedulerCommand::new().main();
    }
    match measured(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("startup: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measured(mut args: Args) -> Result<()> {
    if args.filter.leaves_out("startup") {
        return Ok(());
    }
    if args.run.test {
        (args.nodes, args.pods, args.rounds, args.settle) = (5, 50, 1, 1);
    }
    if assets_or_skip().is_none() {
        return Ok(());
    }
    let plane = ControlPlane::start(Options { gogc: None, ..Options::default() })?;
    let target = Target::https("real", plane.url(), plane.ca_pem(), plane.token("admin")?)?;
    let runtime = Runtime::new()?;
    let pods = objects::Pods { unique_labels: args.unique_labels, large: args.large };
    let cluster = runtime.block_on(Cluster::load(&target, args.nodes as usize, args.pods as usize, pods))?;
    let mut measures = Vec::new();
    for round in 1..=args.rounds {
        let settle = if round == args.rounds { Duration::from_secs(args.settle) } else { Duration::ZERO };
        for which in [Which::KubeScheduler, Which::Supercargo] {
            if args.only.is_none_or(|only| only == which) {
                let measure = runtime.block_on(scheduler::measure(&plane, &cluster, which, settle));
                measures.push(measure.with_context(|| format!("round {round}"))?);
            }
        }
    }
    if args.keep_logs {
        let kept = std::env::temp_dir().join(format!("supercargo-startup-{}", std::process::id()));
        scheduler::keep_logs(&plane, &kept)?;
        eprintln!("startup: the schedulers' logs are in {}", kept.display());
    }
    match args.run.output {
        Output::Table => print!("{}", table(&args, &measures)?),
        Output::Json => println!("{:#}", data(&args, &measures)?),
    }
    Ok(())
}

/// The measurements of one scheduler in the order of rounds.
fn of(which: Which, measures: &[Measure]) -> Vec<&Measure> {
    measures.iter().filter(|measure| measure.which == which).collect()
}

fn median(mut values: Vec<f64>) -> Result<f64> {
    ensure!(!values.is_empty(), "nothing was measured");
    values.sort_by(f64::total_cmp);
    Ok(values[values.len() / 2])
}

fn data(args: &Args, measures: &[Measure]) -> Result<Value> {
    let mut schedulers = serde_json::Map::new();
    for which in [Which::KubeScheduler, Which::Supercargo] {
        let own = of(which, measures);
        let Some(last) = own.last() else { continue };
        let column =
            |value: fn(&Measure) -> f64| own.iter().map(|measure| value(measure)).collect::<Vec<_>>();
        schedulers.insert(
            which.name().to_owned(),
            json!({
                "firstBindingSeconds": column(|m| m.first_binding.as_secs_f64()),
                "firstBindingSecondsMedian": median(column(|m| m.first_binding.as_secs_f64()))?,
                "cpuSecondsUntilThen": column(|m| m.cpu.as_secs_f64()),
                "cpuSecondsUntilThenMedian": median(column(|m| m.cpu.as_secs_f64()))?,
                "peakResidentBytes": column(|m| m.peak as f64),
                "residentBytes": last.resident,
            }),
        );
    }
    Ok(json!({
        "nodes": args.nodes, "pods": args.pods, "uniqueLabels": args.unique_labels, "large": args.large,
        "settleSeconds": args.settle, "rounds": args.rounds, "schedulers": schedulers,
    }))
}

fn table(args: &Args, measures: &[Measure]) -> Result<String> {
    use std::fmt::Write as _;
    let mut text = format!(
        "{} nodes, {} pods on them, {} rounds; memory {} s after the last first binding\n\n{:<16}{:>22}{:>12}{:>12}{:>12}{:>12}\n",
        args.nodes,
        args.pods,
        args.rounds,
        args.settle,
        "",
        "first binding, s",
        "least",
        "CPU, s",
        "RSS, MB",
        "peak, MB",
    );
    for which in [Which::KubeScheduler, Which::Supercargo] {
        let own = of(which, measures);
        let Some(last) = own.last() else { continue };
        let seconds: Vec<_> = own.iter().map(|m| m.first_binding.as_secs_f64()).collect();
        let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let cpu = median(own.iter().map(|m| m.cpu.as_secs_f64()).collect())?;
        let peak = own.iter().map(|m| m.peak).max().unwrap_or_default();
        writeln!(
            text,
            "{:<16}{:>22.2}{:>12.2}{:>12.2}{:>12.1}{:>12.1}",
            which.name(),
            median(seconds)?,
            least,
            cpu,
            last.resident as f64 / 1e6,
            peak as f64 / 1e6
        )?;
    }
    Ok(text)
}
