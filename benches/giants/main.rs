//! What one enormous object costs: each list-like field of a pod and a node, as large as the API
//! server accepts, on 5,000 nodes with one pod each.
//!
//! `cargo bench -p supercargo-benches --bench giants`; `-- --help` lists the options. It fails if
//! anything takes the owner's thread longer than 250 ms, or takes more than 100 MB.

use std::alloc::System;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use serde::Serialize;
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use supercargo_benches::{Bench, FilterArgs, Output, RunArgs};
use supercargo_framework::testing::giants::{NodeList, PodList, objects, plain_node, plain_pod};
use supercargo_framework::testing::pod;
use supercargo_framework::{NodeRecord, PodInfo};
use supercargo_scheduler::{Input, NoCalls, Notification};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Measure enormous objects
#[derive(Debug, Parser)]
struct Args {
    /// Nodes, with one pod each
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Namespaces
    #[arg(long, default_value_t = 2000)]
    namespaces: usize,
    /// Only lists whose name contains this text
    #[arg(long, default_value = "")]
    list: String,
    /// Items of each list; by default as many as the API server accepts
    #[arg(long)]
    items: Option<usize>,
    /// Fail if anything takes longer than this, in milliseconds
    #[arg(long, default_value_t = 250.0)]
    most_time: f64,
    /// Fail if an object takes more memory than this, in MB
    #[arg(long, default_value_t = 100.0)]
    most_memory: f64,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    filter: FilterArgs,
}

/// The steps that are timed.
const STEPS: [&str; 5] = ["first cycle", "on a node", "a plain pod", "node event", "next cycle"];

/// The result of one list: milliseconds by step, megabytes.
#[derive(Debug, Serialize)]
struct Measure {
    list: String,
    items: usize,
    milliseconds: [f64; STEPS.len()],
    megabytes: f64,
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    if args.filter.leaves_out("giants") {
        return Ok(());
    }
    if args.run.test {
        (args.nodes, args.namespaces, args.items) = (50, 20, Some(500));
    }
    let mut measures = Vec::new();
    for list in PodList::ALL.into_iter().filter(|list| format!("{list:?}").contains(&args.list)) {
        measures.push(of_pod(&args, list));
    }
    for list in NodeList::ALL.into_iter().filter(|list| format!("{list:?}").contains(&args.list)) {
        measures.push(of_node(&args, list));
    }
    match args.run.output {
        Output::Table => print!("{}", table(&args, &measures)?),
        Output::Json => println!("{:#}", json!({"nodes": args.nodes, "lists": measures})),
    }
    if args.run.test {
        return Ok(());
    }
    for Measure { list, milliseconds, megabytes, .. } in &measures {
        let longest = milliseconds.iter().copied().fold(0.0, f64::max);
        ensure!(longest <= args.most_time, "{list}: {longest:.0} ms, more than {}", args.most_time);
        ensure!(*megabytes <= args.most_memory, "{list}: {megabytes:.0} MB, more than {}", args.most_memory);
    }
    Ok(())
}

/// A cluster in which each node has a pod that giants can preempt.
fn cluster(args: &Args) -> Bench {
    let mut bench = Bench::with_nodes(0);
    for object in objects(args.nodes, args.namespaces) {
        bench.handle(Input::Object(Notification::Added(Arc::new(object))));
    }
    for i in 0..args.nodes {
        let node = plain_node(i);
        let on_it = plain_pod(i, args.namespaces).node(&node.name).priority(-1).build();
        bench.handle(Input::Node(Notification::Added(Arc::new(node))));
        bench.handle(Input::AssignedPod(Notification::Added(Arc::new(on_it))));
    }
    try_pod(&mut bench, plain("warm-up"));
    bench
}

fn plain(name: &str) -> PodInfo {
    pod(name).label("app", name).image("app").request("cpu", "1").build()
}

/// Adds a pod to the queue and runs its first cycle.
fn try_pod(bench: &mut Bench, pod: PodInfo) {
    bench.add_pod(pod);
    bench.scheduler.schedule_one(bench.now, &mut NoCalls);
    bench.scheduler.take_effects();
}

/// The time of one input or cycle, in milliseconds.
fn timed(run: impl FnOnce()) -> f64 {
    let (wall, before) = (Instant::now(), processor_time());
    run();
    let elapsed = match (before, processor_time()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => wall.elapsed(),
    };
    elapsed.div_duration_f64(Duration::from_millis(1))
}

/// The time that this thread has had a processor; `None` where the system does not say. Other
/// programs on the machine lengthen the time on the wall.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn megabytes(region: &Region<'_, System>) -> f64 {
    let change = region.change();
    (change.bytes_allocated as f64 - change.bytes_deallocated as f64) / 1e6
}

/// A label of a node changes.
fn relabelled(i: usize) -> Input {
    let old = Arc::new(plain_node(i));
    let labels = old.labels.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
    let labels = labels.chain([("new".into(), "".into())]).collect();
    let new = NodeRecord { labels, resource_version: "2".into(), ..(*old).clone() };
    Input::Node(Notification::Updated { old, new: Arc::new(new) })
}

fn of_pod(args: &Args, list: PodList) -> Measure {
    let items = args.items.unwrap_or_else(|| list.most());
    let mut bench = cluster(args);
    let region = Region::new(ALLOCATOR);
    let giant = list.pod("first", items);
    let [bound, next] =
        ["bound", "next"].map(|name| PodInfo { name: name.into(), uid: name.into(), ..giant.clone() });
    let bound = PodInfo { node_name: Some("node-0".into()), ..bound };
    let milliseconds = [
        timed(|| try_pod(&mut bench, giant)),
        timed(|| bench.handle(Input::AssignedPod(Notification::Added(Arc::new(bound))))),
        timed(|| try_pod(&mut bench, plain("plain"))),
        timed(|| bench.handle(relabelled(1))),
        timed(|| try_pod(&mut bench, next)),
    ];
    Measure { list: format!("pod: {list:?}"), items, milliseconds, megabytes: megabytes(&region) }
}

fn of_node(args: &Args, list: NodeList) -> Measure {
    let items = args.items.unwrap_or_else(|| list.most());
    let mut bench = cluster(args);
    let region = Region::new(ALLOCATOR);
    let giant = Arc::new(list.node("giant", items));
    let cordoned = Arc::new(NodeRecord { unschedulable: true, ..(*giant).clone() });
    let updated = Notification::Updated { old: Arc::clone(&giant), new: cordoned };
    let milliseconds = [
        timed(|| try_pod(&mut bench, plain("plain"))),
        timed(|| bench.handle(Input::Node(Notification::Added(giant)))),
        timed(|| try_pod(&mut bench, plain("another"))),
        timed(|| bench.handle(Input::Node(updated))),
        timed(|| try_pod(&mut bench, plain("last"))),
    ];
    Measure { list: format!("node: {list:?}"), items, milliseconds, megabytes: megabytes(&region) }
}

fn table(args: &Args, measures: &[Measure]) -> Result<String> {
    let mut text =
        format!("milliseconds of the owner's thread, {} nodes\n\n{:<28}{:>9}", args.nodes, "", "items");
    for step in STEPS {
        write!(text, "{step:>13}")?;
    }
    writeln!(text, "{:>9}", "MB")?;
    for Measure { list, items, milliseconds, megabytes } in measures {
        write!(text, "{list:<28}{items:>9}")?;
        for time in milliseconds {
            write!(text, "{time:>13.1}")?;
        }
        writeln!(text, "{megabytes:>9.1}")?;
    }
    Ok(text)
}
