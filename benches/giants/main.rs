//! What one enormous object costs: each list-like field of a pod and a node, as large as the API
//! server accepts, on 5,000 nodes with a pod or more each.
//!
//! `cargo bench -p supercargo-benches --bench giants`; `-- --help` lists the options. It fails if
//! decoding or a step of the owner's thread takes longer than 250 ms, or if anything takes more
//! than 100 MB. With `--go`, kube-scheduler gets the same objects in the same run.

mod cluster;
mod go;

use std::alloc::System;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde::Serialize;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use supercargo_benches::{FilterArgs, Output, RunArgs, time_of};
use supercargo_codec::{NodeKind, PodKind};
use supercargo_framework::testing::giants::{Hostile, MOST_BYTES, NodeList, PodList};
use supercargo_framework::{NodeRecord, PodInfo};
use supercargo_scheduler::{Input, Notification};

use cluster::{Size, cluster, decoded, plain, relabelled, try_pod};
use go::Upstream;

const NO_ANNOTATIONS: [&str; 0] = [];

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Measure enormous objects
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    size: Size,
    /// Only lists whose name contains this text
    #[arg(long, default_value = "")]
    list: String,
    /// Items of each list; by default as many as the API server accepts
    #[arg(long)]
    items: Option<usize>,
    /// Measure kube-scheduler, too
    #[arg(long)]
    go: bool,
    /// Stop kube-scheduler after this many seconds per list
    #[arg(long, default_value_t = 120)]
    patience: u64,
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

/// The steps of the owner's thread that are timed.
const STEPS: [&str; 6] =
    ["its object", "first cycle", "on a node", "a plain pod", "node event", "next cycle"];

/// Which of the steps are cycles with the giant, as kube-scheduler's.
const CYCLES_WITH_POD: [usize; 3] = [1, 3, 5];
const CYCLES_WITH_NODE: [usize; 2] = [3, 5];

/// The result of one list: times in milliseconds of processor time.
#[derive(Debug, Serialize)]
struct Measure {
    list: String,
    items: usize,
    protobuf: Decoded,
    json: Decoded,
    steps: Vec<f64>,
    /// What the object and all kept of it take.
    megabytes: f64,
    /// The most that a step allocates in all: at least what it ever uses.
    most_allocated: f64,
    longest_cycle: f64,
    upstream: Option<go::Longest>,
}

/// The cost of decoding.
#[derive(Debug, Serialize)]
struct Decoded {
    milliseconds: f64,
    /// All that is allocated meanwhile: at least what is ever in use.
    megabytes: f64,
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    if args.filter.leaves_out("giants") {
        return Ok(());
    }
    if args.run.test {
        args.size = Size { nodes: 50, pods_per_node: 2, namespaces: 20 };
        args.items = Some(500);
    }
    let upstream = if args.go { Some(Upstream::locate(Duration::from_secs(args.patience))?) } else { None };
    let upstream = upstream.as_ref();
    let is_table = matches!(args.run.output, Output::Table);
    if is_table {
        print!("{}", heading(&args)?);
    }
    let mut measures = Vec::new();
    let mut add = |measure: Measure| {
        if is_table {
            print!("{}", row(&measure)?);
        }
        measures.push(measure);
        Ok::<_, anyhow::Error>(())
    };
    for list in PodList::ALL.into_iter().filter(|list| format!("{list:?}").contains(&args.list)) {
        add(of_pod(&args, list, upstream).with_context(|| format!("pod: {list:?}"))?)?;
    }
    for list in NodeList::ALL.into_iter().filter(|list| format!("{list:?}").contains(&args.list)) {
        add(of_node(&args, list, upstream).with_context(|| format!("node: {list:?}"))?)?;
    }
    for hostile in Hostile::ALL.into_iter().filter(|claim| format!("{claim:?}").contains(&args.list)) {
        add(of_claim(&args, hostile).with_context(|| format!("claim: {hostile:?}"))?)?;
    }
    if !is_table {
        println!("{:#}", json!({"nodes": args.size.nodes, "pods": args.size.pods(), "lists": measures}));
    }
    if args.run.test {
        return Ok(());
    }
    for Measure { list, protobuf, json, steps, megabytes, most_allocated, .. } in &measures {
        let times = steps.iter().chain([&protobuf.milliseconds, &json.milliseconds]);
        let longest = times.copied().fold(0.0, f64::max);
        ensure!(longest <= args.most_time, "{list}: {longest:.0} ms, more than {}", args.most_time);
        let most =
            [*megabytes, *most_allocated, protobuf.megabytes, json.megabytes].into_iter().fold(0.0, f64::max);
        ensure!(most <= args.most_memory, "{list}: {most:.0} MB, more than {}", args.most_memory);
    }
    Ok(())
}

/// The number of items in the largest object that the API server stores. Items of another object
/// than the giant are assumed to take 25 bytes.
fn most(giant: impl Fn(usize) -> Value) -> Result<usize> {
    let size = |items| Ok::<_, anyhow::Error>(protobuf(&giant(items))?.len());
    let (some, more) = (20_000, 40_000);
    let bytes_each = match size(more)? - size(some)? {
        0 => 25.0,
        grown => grown as f64 / (more - some) as f64,
    };
    Ok((MOST_BYTES as f64 / bytes_each) as usize)
}

fn protobuf(object: &Value) -> Result<Vec<u8>> {
    Ok(supercargo_apiserver::protobuf_message(object).context("encode it in protobuf")?.to_vec())
}

/// The times and the allocated megabytes of inputs and cycles.
#[derive(Default)]
struct Steps {
    times: Vec<f64>,
    most_allocated: f64,
}

impl Steps {
    fn run(&mut self, step: impl FnOnce()) {
        let region = Region::new(ALLOCATOR);
        self.times.push(timed(step));
        self.most_allocated = self.most_allocated.max(region.change().bytes_allocated as f64 / 1e6);
    }
}

/// The time of one input or cycle, in milliseconds.
fn timed(run: impl FnOnce()) -> f64 {
    time_of(run).div_duration_f64(Duration::from_millis(1))
}

fn megabytes(region: &Region<'_, System>) -> f64 {
    let change = region.change();
    (change.bytes_allocated as f64 - change.bytes_deallocated as f64) / 1e6
}

/// Decodes an object, and measures that.
fn decode<T>(run: impl FnOnce() -> Result<T>) -> Result<(Decoded, T)> {
    let region = Region::new(ALLOCATOR);
    let mut decoded = None;
    let milliseconds = timed(|| decoded = Some(run()));
    let megabytes = region.change().bytes_allocated as f64 / 1e6;
    let decoded = decoded.context("it ran")??;
    Ok((Decoded { milliseconds, megabytes }, decoded))
}

fn of_pod(args: &Args, list: PodList, upstream: Option<&Upstream>) -> Result<Measure> {
    let namespaces = if list.concerns_namespace() { 1 } else { args.size.namespaces };
    let size = Size { namespaces, ..args.size };
    let items = args.items.map_or_else(|| most(|items| list.pod("first", items)), Ok)?;
    let giant = list.pod("first", items);
    let (text, message) = (giant.to_string(), protobuf(&giant)?);
    drop(giant);
    let kind = PodKind::new(NO_ANNOTATIONS);
    let (json, _) = decode(|| Ok(PodKind::new(NO_ANNOTATIONS).decode(text.as_bytes())?))?;
    let mut bench = cluster(size)?;
    let objects = decoded(list.objects(items))?;
    let add_objects = || {
        for object in objects {
            bench.handle(Input::Object(Notification::Added(object)));
        }
    };
    let mut steps = Steps::default();
    if list.is_beside_pod() || list == PodList::ServiceSelector {
        steps.run(add_objects);
    } else {
        // Many small ones.
        add_objects();
        steps.run(|| {});
    }
    let region = Region::new(ALLOCATOR);
    let (protobuf, giant) = decode(|| Ok(kind.decode_protobuf(&message)?))?;
    let [bound, next] =
        ["bound", "next"].map(|name| PodInfo { name: name.into(), uid: name.into(), ..giant.clone() });
    let bound = PodInfo { node_name: Some("node-0".into()), ..bound };
    steps.run(|| try_pod(&mut bench, giant));
    steps.run(|| bench.handle(Input::AssignedPod(Notification::Added(Arc::new(bound)))));
    steps.run(|| try_pod(&mut bench, plain("plain")));
    steps.run(|| bench.handle(relabelled(1)));
    steps.run(|| try_pod(&mut bench, next));
    let megabytes = megabytes(&region);
    drop(bench);
    let upstream = upstream.map(|upstream| upstream.with_pod(list, items, size));
    Ok(Measure {
        list: format!("pod: {list:?}"),
        items,
        protobuf,
        json,
        longest_cycle: longest(&steps.times, &CYCLES_WITH_POD),
        steps: steps.times,
        megabytes,
        most_allocated: steps.most_allocated,
        upstream: upstream.transpose()?.flatten(),
    })
}

fn of_node(args: &Args, list: NodeList, upstream: Option<&Upstream>) -> Result<Measure> {
    let items = args.items.map_or_else(|| most(|items| list.node("giant", items)), Ok)?;
    let giant = list.node("giant", items);
    let (text, message) = (giant.to_string(), protobuf(&giant)?);
    drop(giant);
    let kind = NodeKind::new(NO_ANNOTATIONS);
    let (json, _) = decode(|| Ok(NodeKind::new(NO_ANNOTATIONS).decode(text.as_bytes())?))?;
    let mut bench = cluster(args.size)?;
    let region = Region::new(ALLOCATOR);
    let (protobuf, giant) = decode(|| Ok(kind.decode_protobuf(&message)?))?;
    let giant = Arc::new(giant);
    let cordoned = Arc::new(NodeRecord { unschedulable: true, ..(*giant).clone() });
    let updated = Notification::Updated { old: Arc::clone(&giant), new: cordoned };
    let mut steps = Steps::default();
    steps.run(|| {});
    steps.run(|| try_pod(&mut bench, plain("plain")));
    steps.run(|| bench.handle(Input::Node(Notification::Added(giant))));
    steps.run(|| try_pod(&mut bench, plain("another")));
    steps.run(|| bench.handle(Input::Node(updated)));
    steps.run(|| try_pod(&mut bench, plain("last")));
    let megabytes = megabytes(&region);
    drop(bench);
    let upstream = upstream.map(|upstream| upstream.with_node(list, items, args.size));
    Ok(Measure {
        list: format!("node: {list:?}"),
        items,
        protobuf,
        json,
        longest_cycle: longest(&steps.times, &CYCLES_WITH_NODE),
        steps: steps.times,
        megabytes,
        most_allocated: steps.most_allocated,
        upstream: upstream.transpose()?.flatten(),
    })
}

/// A small claim. kube-scheduler is not measured: it takes hours for some of them.
fn of_claim(args: &Args, hostile: Hostile) -> Result<Measure> {
    let giant = hostile.pod("first");
    let next = hostile.pod("next");
    let mut bench = cluster(args.size)?;
    let region = Region::new(ALLOCATOR);
    let mut steps = Steps::default();
    for object in hostile.objects(args.size.nodes) {
        bench.handle(Input::Object(Notification::Added(Arc::new(object))));
    }
    steps.run(|| {});
    steps.run(|| try_pod(&mut bench, giant));
    steps.run(|| {});
    steps.run(|| try_pod(&mut bench, plain("plain")));
    steps.run(|| bench.handle(relabelled(1)));
    steps.run(|| try_pod(&mut bench, next));
    let megabytes = megabytes(&region);
    let none = || Decoded { milliseconds: 0.0, megabytes: 0.0 };
    Ok(Measure {
        list: format!("claim: {hostile:?}"),
        items: 1,
        protobuf: none(),
        json: none(),
        longest_cycle: longest(&steps.times, &CYCLES_WITH_POD),
        steps: steps.times,
        megabytes,
        most_allocated: steps.most_allocated,
        upstream: None,
    })
}

fn longest(steps: &[f64], which: &[usize]) -> f64 {
    which.iter().map(|step| steps[*step]).fold(0.0, f64::max)
}

fn heading(args: &Args) -> Result<String> {
    let (nodes, pods) = (args.size.nodes, args.size.pods());
    let mut text =
        format!("milliseconds of processor time, {nodes} nodes, {pods} pods\n\n{:<26}{:>8}", "", "items");
    for heading in
        ["protobuf", "json", "MB"].into_iter().chain(STEPS).chain(["step MB", "kept MB", "upstream", "times"])
    {
        write!(text, "{heading:>12}")?;
    }
    text.push('\n');
    Ok(text)
}

fn row(measure: &Measure) -> Result<String> {
    let Measure { list, items, protobuf, json, steps, longest_cycle, upstream, .. } = measure;
    let mut text = format!("{list:<26}{items:>8}");
    let decoding = [protobuf.milliseconds, json.milliseconds, protobuf.megabytes.max(json.megabytes)];
    for number in decoding.iter().chain(steps).chain([&measure.most_allocated, &measure.megabytes]) {
        write!(text, "{number:>12.1}")?;
    }
    let (time, times) = upstream
        .as_ref()
        .map_or_else(|| ("–".to_owned(), "–".to_owned()), |longest| longest.beside(*longest_cycle));
    writeln!(text, "{time:>12}{times:>12}")?;
    Ok(text)
}
