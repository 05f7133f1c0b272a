//! How much memory a pod takes: in the records that the informer decodes, in its store, and in the scheduler's cache; beside
//! it the same pods as k8s-openapi's types.
//!
//! `cargo bench -p supercargo-benches --bench memory`, with `-- --help` for what can be chosen. Pods take the way that they take
//! in production: the server's protobuf, the pod kind, an informer with its store, a handler, the scheduler. What is
//! counted is what the program asks its allocator for; beside it stands by how much the process grew, which has in it what
//! the allocator rounds up and the tables keep in reserve. Each case has a process of its own.

mod interner;
mod pods;
mod way;

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

/// How much memory pods take
#[derive(Debug, Parser)]
struct Args {
    /// Pods
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,
    /// Nodes that they are on
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Fail if a pod in the scheduler takes more bytes than this
    #[arg(long)]
    at_most: Option<f64>,
    /// Measure one case in this process, and write it as JSON
    #[arg(long, hide = true)]
    case: Option<String>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    filter: FilterArgs,
}

/// What a case came to, in bytes per pod; each number has those before it in it.
#[derive(Debug, Serialize, Deserialize)]
struct Measure {
    /// The pod in the encoding that it was read from.
    encoded: usize,
    /// The records alone, with what they share.
    records: f64,
    /// With the informer's store.
    store: f64,
    /// With the scheduler's cache.
    scheduler: f64,
    /// By how much the process grew.
    resident: f64,
}

/// A case: what pods are like, and who keeps them.
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
        println!("{}", serde_json::to_string(&way::measure(case, args.pods as usize, args.nodes as usize)?)?);
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
    // Typed ones take a hundred times as much, and each as much as the next.
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
