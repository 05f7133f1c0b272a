//! The memory of a pod: in the informer's records, in its store and in the scheduler's cache,
//! beside the same pods as k8s-openapi's types.
//!
//! `cargo bench -p supercargo-benches --bench memory`; `-- --help` lists the options. Pods take
//! their production path: protobuf, the pod kind, an informer with its store, a handler, the
//! scheduler. The table shows what the program requests from its allocator, and the growth of the
//! process, which includes rounding by the allocator and reserve of tables. Each case has its own
//! process.

mod interner;
mod path;
mod pods;

use std::alloc::System;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use supercargo_benches::{FilterArgs, Output, RunArgs};

use pods::Shape;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Measure the memory of pods
#[derive(Debug, Parser)]
struct Args {
    /// Pods
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,
    /// Nodes with these pods
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Fail if a pod in the scheduler takes more bytes than this
    #[arg(long)]
    at_most: Option<f64>,
    /// Measure one case in this process and print it as JSON
    #[arg(long, hide = true)]
    case: Option<String>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    filter: FilterArgs,
}

/// The result of a case in bytes per pod. Each number includes those before it.
#[derive(Debug, Serialize, Deserialize)]
struct Measure {
    /// The encoded pod.
    encoded: usize,
    /// The records, with their shared parts.
    records: f64,
    /// With the informer's store.
    store: f64,
    /// With the scheduler's cache.
    scheduler: f64,
    /// The growth of the process.
    resident: f64,
}

/// A case: the pods, and their representation.
#[derive(Clone, Copy, Debug)]
struct Case {
    shape: Shape,
    typed: bool,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let shapes = [false, true]
            .into_iter()
            .flat_map(|large| [false, true].map(|unique_labels| Shape { large, unique_labels }));
        shapes.flat_map(|shape| [false, true].map(|typed| Self { shape, typed }))
    }

    fn name(self) -> String {
        let size = if self.shape.large { "9.5 KB" } else { "2 KB" };
        let labels = if self.shape.unique_labels { "unique labels" } else { "equal labels" };
        let keeper = if self.typed { ", k8s-openapi" } else { "" };
        format!("{size}, {labels}{keeper}")
    }
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    if args.filter.leaves_out("memory") {
        return Ok(());
    }
    if args.run.test {
        (args.pods, args.nodes) = (2000, 20);
    }
    if let Some(name) = &args.case {
        let case =
            Case::all().find(|case| case.name() == *name).with_context(|| format!("no case {name:?}"))?;
        println!(
            "{}",
            serde_json::to_string(&path::measure(case, args.pods as usize, args.nodes as usize)?)?
        );
        return Ok(());
    }
    let mut measures = Vec::new();
    for case in Case::all() {
        measures.push((case, in_process_of_its_own(&args, case)?));
    }
    let lookups = interner::lookups(args.pods as usize);
    match args.run.output {
        Output::Table => print!("{}\n{lookups}\n", table(&args, &measures)?),
        Output::Json => {
            let cases = measures.iter().map(|(case, measure)| {
                json!({
                    "large": case.shape.large, "uniqueLabels": case.shape.unique_labels, "typed": case.typed,
                    "bytesPerPod": measure,
                })
            });
            let cases: Vec<_> = cases.collect();
            println!(
                "{:#}",
                json!({"pods": args.pods, "nodes": args.nodes, "cases": cases, "internerNanoseconds": lookups})
            );
        }
    }
    let ours = measures.iter().filter(|(case, _)| !case.typed);
    for (case, measure) in ours {
        let most = args.at_most.unwrap_or(f64::INFINITY);
        let bytes = measure.scheduler;
        ensure!(bytes <= most, "{}: {bytes:.0} bytes per pod, more than {most}", case.name());
    }
    Ok(())
}

fn in_process_of_its_own(args: &Args, case: Case) -> Result<Measure> {
    let mut command = Command::new(std::env::current_exe().context("this program")?);
    command.arg("--case").arg(case.name());
    // Typed pods take a hundred times as much, all alike.
    let pods = if case.typed { args.pods.div_ceil(10) } else { args.pods };
    command.args(["--pods", &pods.to_string(), "--nodes", &args.nodes.to_string()]);
    let output = command.output().context("start this program again")?;
    ensure!(output.status.success(), "{}: {}", case.name(), String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).with_context(|| case.name())
}

fn table(args: &Args, measures: &[(Case, Measure)]) -> Result<String> {
    use std::fmt::Write as _;
    let mut text = format!(
        "bytes per pod, {} pods on {} nodes; each column has those before it in it\n\n{:<40}{:>10}{:>10}{:>10}{:>12}{:>10}\n",
        args.pods, args.nodes, "", "encoded", "records", "+ store", "+ scheduler", "RSS",
    );
    for (case, m) in measures {
        writeln!(
            text,
            "{:<40}{:>10}{:>10.0}{:>10.0}{:>12.0}{:>10.0}",
            case.name(),
            m.encoded,
            m.records,
            m.store,
            m.scheduler,
            m.resident
        )?;
    }
    Ok(text)
}
