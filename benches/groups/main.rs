//! What groups cost, beside kube-scheduler's group cycle on the same objects.
//!
//! `cargo bench -p supercargo-benches --bench groups -- --go`; `-- --help` lists the options.

mod cases;
mod go;
mod subject;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use serde::Serialize;
use supercargo_benches::{FilterArgs, Output, Progress, RunArgs};

use cases::{CASES, Case, Policy, UNFIT};
use go::Upstream;
use subject::Subject;

/// Measure the scheduling cycles of groups
#[derive(Debug, Parser)]
struct Args {
    /// Nodes, with a pod on each
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Only cases whose name contains this text
    #[arg(long, default_value = "")]
    case: String,
    /// Measure supercargo without evaluation tables, too
    #[arg(long)]
    plain: bool,
    /// Measure kube-scheduler, too, with percentageOfNodesToScore at its default and at 100
    #[arg(long)]
    go: bool,
    /// Stop kube-scheduler after this many seconds per case, and after one group at least
    #[arg(long, default_value_t = 20)]
    budget: u64,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    filter: FilterArgs,
}

/// Milliseconds per group: medians.
#[derive(Debug, Serialize)]
struct Measure {
    case: &'static str,
    supercargo: f64,
    /// The longest group.
    longest: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    plain: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_scheduler: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_scheduler_all_nodes: Option<f64>,
}

/// Milliseconds of pods that fit nowhere.
#[derive(Debug, Serialize)]
struct Unfit {
    as_group: f64,
    alone: f64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.filter.leaves_out("groups") {
        return Ok(());
    }
    let nodes = if args.run.test { 100 } else { args.nodes };
    let sized = |case: Case| if args.run.test { case.small() } else { case };
    let upstream = args.go.then(|| Upstream::locate(Duration::from_secs(args.budget))).transpose()?;
    let progress = Progress::new();
    let mut measures = Vec::new();
    for case in CASES.into_iter().filter(|case| case.name.contains(&args.case)).map(sized) {
        measures.push(measure(case, nodes, args.plain, upstream.as_ref(), progress)?);
    }
    let unfit = measure_unfit(sized(UNFIT), nodes)?;
    progress.clear();
    match args.run.output {
        Output::Json => {
            let all = serde_json::json!({ "groups": measures, "unfit": unfit });
            println!("{}", serde_json::to_string_pretty(&all)?);
        }
        Output::Table => print!("{}", table(&measures, &unfit)),
    }
    Ok(())
}

fn measure(
    case: Case,
    nodes: usize,
    plain: bool,
    upstream: Option<&Upstream>,
    progress: Progress,
) -> Result<Measure> {
    let mut supercargo = supercargo(case, nodes, false, progress)?;
    let plain = plain.then(|| supercargo_plain(case, nodes, progress)).transpose()?;
    let beside = |percentage| {
        progress.at(case.name, "kube-scheduler", 0, 1);
        upstream.map(|upstream| kube_scheduler(upstream, case, nodes, percentage)).transpose()
    };
    Ok(Measure {
        case: case.name,
        longest: supercargo.iter().copied().fold(0.0, f64::max),
        supercargo: median(&mut supercargo),
        plain,
        kube_scheduler: beside(0)?,
        kube_scheduler_all_nodes: beside(100)?,
    })
}

/// The times of all gangs. Each is bound, or preempts, whole.
fn supercargo(case: Case, nodes: usize, plain: bool, progress: Progress) -> Result<Vec<f64>> {
    let mut subject = Subject::new(case, Policy::Gang, nodes, plain)?;
    let gang = |gang| {
        progress.at(case.name, if plain { "plain path" } else { "supercargo" }, gang, case.gangs);
        let (took, placed) = subject.schedule_group(case.gang(gang))?;
        ensure!(placed == case.size, "{placed} pods of gang {gang} found a node, of {}", case.size);
        Ok(milliseconds(took))
    };
    (0..case.gangs).map(gang).collect()
}

/// Two gangs are enough.
fn supercargo_plain(case: Case, nodes: usize, progress: Progress) -> Result<f64> {
    let case = Case { gangs: case.gangs.min(2), ..case };
    Ok(median(&mut supercargo(case, nodes, true, progress)?))
}

/// Until all pods have been tried, and, if they preempt, until the victims are chosen.
fn kube_scheduler(upstream: &Upstream, case: Case, nodes: usize, percentage: i32) -> Result<f64> {
    let cycles = upstream.cycles(case, nodes, percentage)?;
    let placed = |cycle: &&go::Cycle| case.preempts || cycle.bound == case.size;
    let mut times: Vec<f64> = cycles
        .iter()
        .filter(placed)
        .map(|cycle| if case.preempts { cycle.wall } else { cycle.algorithm } as f64 / 1e6)
        .collect();
    ensure!(!times.is_empty(), "kube-scheduler places no gang");
    Ok(median(&mut times))
}

/// Every pod of a group without a minimum is tried.
fn measure_unfit(case: Case, nodes: usize) -> Result<Unfit> {
    let mut subject = Subject::new(case, Policy::Basic, nodes, false)?;
    let alone = subject.schedule_alone(case.pods("alone".to_owned()))?;
    let mut subject = Subject::new(case, Policy::Basic, nodes, false)?;
    let (as_group, placed) = subject.schedule_group(case.gang(0))?;
    ensure!(placed == 0, "{placed} pods found a node");
    Ok(Unfit { as_group: milliseconds(as_group), alone: milliseconds(alone) })
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn table(measures: &[Measure], unfit: &Unfit) -> String {
    let mut table = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(table, "milliseconds per group (times supercargo's median)\n");
    let _ = writeln!(
        table,
        "{:34} {:>10} {:>9} {:>16} {:>20} {:>20}",
        "groups", "supercargo", "longest", "plain path", "kube-scheduler", "all nodes"
    );
    for it in measures {
        let beside = |other: Option<f64>| match other {
            None => "–".to_owned(),
            Some(other) => format!("{other:.1} ({:.0})", other / it.supercargo),
        };
        let _ = writeln!(
            table,
            "{:34} {:>10.2} {:>9.2} {:>16} {:>20} {:>20}",
            it.case,
            it.supercargo,
            it.longest,
            beside(it.plain),
            beside(it.kube_scheduler),
            beside(it.kube_scheduler_all_nodes)
        );
    }
    let Unfit { as_group, alone } = unfit;
    let _ = writeln!(table, "\n{}: {as_group:.2} as a group, {alone:.2} alone", UNFIT.name);
    table
}
