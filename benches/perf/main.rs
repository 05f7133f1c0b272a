//! scheduler_perf's workloads on supercargo's scheduler in process, and on kube-scheduler's.
//!
//! `cargo bench -p supercargo-benches --bench perf -- [WORKLOAD]...`; `-- --help` lists the
//! options. The benchmark drives `supercargo_scheduler::Scheduler` with the default configuration:
//! it sends informer notifications, runs cycles, and confirms each binding as the API server and
//! the informer would. With `--go`, kube-scheduler gets the same objects in the same run. Machines
//! are noisy: compare ratios of one run.

mod args;
mod figures;
mod go;
mod memory;
mod report;
mod run;
mod world;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use clap::Parser as _;
use supercargo_benches::check::violations;
use supercargo_benches::plan::Plan;
use supercargo_benches::workload::Library;
use supercargo_benches::{Output, Progress};

use args::{Args, Task};
use go::Upstream;
use report::Row;
use run::Outcome;
use world::{Search, World};

fn main() -> Result<()> {
    let args = Args::parse();
    let library = Library::here();
    let progress = Progress::new();
    let upstream = if args.go { Some(Upstream::locate()?) } else { None };
    let mut rows = Vec::new();
    for task in args.tasks(&library)? {
        rows.push(row(&args, &library, &task, upstream.as_ref(), progress)?);
    }
    progress.clear();
    if let Some(dir) = &args.figures {
        for file in figures::write(&rows, dir)? {
            eprintln!("perf: {file}");
        }
    }
    match args.run.output {
        Output::Table => print!("{}", report::table(&rows)),
        Output::Json => println!("{:#}", report::to_json(&rows)),
    }
    Ok(())
}

/// Runs a task for all rounds, supercargo and kube-scheduler alternating.
fn row(
    args: &Args,
    library: &Library,
    task: &Task,
    upstream: Option<&Upstream>,
    progress: Progress,
) -> Result<Row> {
    let plan = Plan::new(library, &task.workload, &task.params, task.signatures, args.seed)?;
    let mut row = Row::new(task, &plan);
    for _ in 0..args.rounds() {
        let (outcome, placed) = ours(args, &plan, Search::Tables, progress)?;
        row.tables.push(outcome);
        if args.plain || args.run.test {
            let (outcome, plainly) = ours(args, &plan, Search::Plain, progress)?;
            row.plain.push(outcome);
            ensure!(placed == plainly, "{}: the plain path puts pods elsewhere", plan.label);
            row.plain_sample.push(ours(args, &plan, Search::PlainSample, progress)?.0);
        }
        if let Some(upstream) = upstream {
            row.upstream_default.push(upstream.run(&plan, 0, args.budget(), progress)?);
            row.upstream_all.push(upstream.run(&plan, 100, args.budget(), progress)?);
        }
    }
    Ok(row)
}

/// Runs a plan on supercargo. Returns the placements in a smoke test.
fn ours(args: &Args, plan: &Plan, search: Search, progress: Progress) -> Result<(Outcome, Placements)> {
    let budget = (search != Search::Tables && !args.run.test).then(|| args.budget());
    let (outcome, world) = run::run(plan, World::new(search, args.step())?, budget, progress)?;
    ensure!(outcome.decisions > 0, "{}: no pod was scheduled", plan.label);
    progress.at(&plan.label, "checking", 0, 1);
    check(plan, &outcome, &world, args.run.test)?;
    let placed = world.placed().filter(|_| args.run.test);
    let placements = placed.map(|placed| (placed.pod.to_owned(), placed.node.to_owned())).collect();
    Ok((outcome, placements))
}

/// The node of each pod.
type Placements = BTreeMap<String, String>;

/// Fails on invalid placements.
fn check(plan: &Plan, outcome: &Outcome, world: &World, thoroughly: bool) -> Result<()> {
    let mut wrong = violations(plan, world.placed())?;
    let bound = world.placed().filter(|placed| plan.is_measured(placed.pod)).count();
    if bound != outcome.decisions {
        wrong.push(format!("{bound} pods are bound, {} were", outcome.decisions));
    }
    wrong.extend(world.devices_with_two_claims());
    if thoroughly {
        wrong.extend(world.scheduler.inconsistencies());
        if outcome.unscheduled > 0 {
            wrong.push(format!("{} pods found no node", outcome.unscheduled));
        }
    }
    ensure!(wrong.is_empty(), "{}: after the run\n{}", plan.label, wrong.join("\n"));
    Ok(())
}
