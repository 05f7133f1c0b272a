//! Requests and events per second of the API server in memory, in process and over HTTPS, beside
//! the real one (etcd and kube-apiserver), with one client and the same work in one run.
//!
//! `cargo bench -p supercargo-benches --bench apiserver_rates`; `-- --help` lists the options.
//! First, ten times as many nodes and pods are loaded into the server in memory alone, to measure
//! the time and memory of a large cluster. Client and server share the machine. The real server's
//! etcd does not wait for the disk, and its clients are exempt from limits, so that only the work
//! is compared.

mod client;
mod objects;
mod report;
mod work;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Listen, Settings};
use supercargo_benches::{FilterArgs, Output, Progress, RunArgs, grouped};
use supercargo_controlplane::{ControlPlane, Options, assets_or_skip};
use tokio::runtime::Runtime;

use client::Target;
use report::Column;
use work::Scale;

/// The factor between this load and the size of the comparison.
const LOAD: usize = 10;

/// Compare the rates of the API server in memory with the real one
#[derive(Debug, Parser)]
struct Args {
    /// Nodes, ten times as many in the load of the server in memory
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Pods, ten times as many in the load of the server in memory
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,
    /// Concurrent connections
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Watchers of all pods
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    watchers: u32,
    /// Skip the real server
    #[arg(long)]
    alone: bool,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    filter: FilterArgs,
}

/// The time of the server in memory for a large cluster.
struct Load {
    scale: Scale,
    in_process: Duration,
    https: Duration,
    /// The total divided by the pods; `None` if the system does not report it.
    bytes_per_pod: Option<u64>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.filter.leaves_out("apiserver_rates") {
        return Ok(());
    }
    let runtime = Runtime::new()?;
    let progress = Progress::new();
    let scale = args.scale();
    let load = runtime.block_on(load(scale.times(LOAD), progress))?;
    let mut columns = runtime.block_on(in_memory(scale, progress))?;
    if !args.alone && assets_or_skip().is_some() {
        progress.at("real", "start", 0, 1);
        let plane = ControlPlane::start(Options { gogc: None, ..Options::default() })?;
        let target = Target::https("real", plane.url(), plane.ca_pem(), plane.token("admin")?)?;
        columns.push(runtime.block_on(column(&target, scale, progress))?);
    }
    progress.clear();
    match args.run.output {
        Output::Table => print!("{}", show(scale, &load, &columns)),
        Output::Json => println!("{:#}", to_json(scale, &load, &columns)),
    }
    Ok(())
}

impl Args {
    fn scale(&self) -> Scale {
        if self.run.test {
            return Scale { nodes: 5, pods: 50, connections: 4, watchers: 3, rounds: 2, lone_changes: 10 };
        }
        Scale {
            nodes: self.nodes as usize,
            pods: self.pods as usize,
            connections: self.connections as usize,
            watchers: self.watchers as usize,
            rounds: 5,
            lone_changes: 200,
        }
    }
}

impl Scale {
    fn times(self, factor: usize) -> Self {
        Self { nodes: self.nodes * factor, pods: self.pods * factor, ..self }
    }
}

/// Loads a large cluster in process, and another over HTTPS.
async fn load(scale: Scale, progress: Progress) -> Result<Load> {
    let before = resident();
    let server = ApiServer::new(Settings::default());
    let (nodes, pods) = work::load(&Target::in_process(server.clone()), scale, progress).await?;
    let grown = before.and_then(|before| resident()?.checked_sub(before));
    drop(server);
    let in_process = nodes + pods;
    let server = ApiServer::new(Settings::default());
    let endpoint = server.listen(Listen::default()).await?;
    let target = https(&endpoint)?;
    let (nodes, pods) = work::load(&target, scale, progress).await?;
    ensure!(server.resource_version() >= (scale.nodes + scale.pods) as u64, "the load came to nothing");
    let bytes_per_pod = grown.map(|bytes| bytes / scale.pods as u64);
    Ok(Load { scale, in_process, https: nodes + pods, bytes_per_pod })
}

/// Measures the server in memory, in process and over HTTPS.
async fn in_memory(scale: Scale, progress: Progress) -> Result<Vec<Column>> {
    let target = Target::in_process(ApiServer::new(Settings::default()));
    let in_process = column(&target, scale, progress).await?;
    let server = ApiServer::new(Settings::default());
    let endpoint = server.listen(Listen::default()).await?;
    let https = column(&https(&endpoint)?, scale, progress).await?;
    Ok(vec![in_process, https])
}

async fn column(target: &Target, scale: Scale, progress: Progress) -> Result<Column> {
    let measures = work::measure(target, scale, progress).await.context(target.name)?;
    Ok(Column { name: target.name, measures })
}

fn https(endpoint: &supercargo_apiserver::Endpoint) -> Result<Target> {
    Target::https("HTTPS", &endpoint.url(), endpoint.ca_pem().unwrap_or_default(), endpoint.token())
}

/// The memory of this process in bytes, where Linux reports it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn show(scale: Scale, load: &Load, columns: &[Column]) -> String {
    let count = |number: usize| grouped(number as u64);
    let out = format!(
        "{} nodes and {} pods load in {:.2} s in process, {:.2} s over HTTPS",
        count(load.scale.nodes),
        count(load.scale.pods),
        load.in_process.as_secs_f64(),
        load.https.as_secs_f64()
    );
    let memory = load.bytes_per_pod.map(|bytes| format!("; {:.1} KiB a pod", bytes as f64 / 1024.0));
    out + &format!(
        "{}\n\n{} nodes, {} pods, {} connections, {} watchers, {} processors\n\n{}",
        memory.unwrap_or_default(),
        count(scale.nodes),
        count(scale.pods),
        scale.connections,
        scale.watchers,
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        report::table(columns)
    )
}

fn to_json(scale: Scale, load: &Load, columns: &[Column]) -> Value {
    json!({
        "load": {
            "nodes": load.scale.nodes, "pods": load.scale.pods,
            "inProcessSeconds": load.in_process.as_secs_f64(), "httpsSeconds": load.https.as_secs_f64(),
            "bytesPerPod": load.bytes_per_pod,
        },
        "nodes": scale.nodes, "pods": scale.pods,
        "connections": scale.connections, "watchers": scale.watchers,
        "rows": report::to_json(columns),
    })
}
