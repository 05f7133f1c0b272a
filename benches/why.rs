//! What answers to questions cost: `cargo bench -p supercargo-benches --bench why`. For the page in
//! a cluster of 100,000 nodes and a million pods: `PAGE_NODES=100000 cargo bench … -- page`.

use std::sync::Arc;
use std::time::Instant;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use supercargo_benches::{Bench, default_options};
use supercargo_framework::TaintEffect;
use supercargo_framework::pod::OwnerRef;
use supercargo_framework::testing::{node, pod};
use supercargo_page::Overview;
use supercargo_report::overview;
use supercargo_scheduler::{Fork, Input, Notification, Verb};

/// The number of nodes that are drained.
const DRAINED: usize = 20;
/// The number of open pages, and of nodes that change between two updates of them.
const WATCHERS: usize = 10;
const CHANGED: usize = 100;

/// The number of nodes of the page's cluster, if it is not 5,000. A large one takes a minute.
const PAGE_NODES: &str = "PAGE_NODES";

/// A cluster of full nodes, a third of them tainted. Their pods are of ReplicaSets.
fn full(nodes: usize) -> Bench {
    with_pods(nodes, 30)
}

fn with_pods(nodes: usize, pods: usize) -> Bench {
    let mut bench = Bench::with_nodes(0);
    let text = |text: &str| text.into();
    let owner = OwnerRef {
        api_version: text("apps/v1"),
        kind: text("ReplicaSet"),
        name: text("web"),
        uid: text("web"),
    };
    let owner = Arc::new(owner);
    for i in 0..nodes {
        let name = format!("node-{i}");
        let node =
            node(&name).allocatable("cpu", "8").allocatable("memory", "32Gi").allocatable("pods", "110");
        let node = if i % 3 == 0 { node.taint("gpu", "", TaintEffect::NoSchedule) } else { node };
        bench.handle(Input::Node(Notification::Added(Arc::new(node.build()))));
        for j in 0..pods {
            let on_it = pod(&format!("{name}-{j}")).request("cpu", "250m").request("memory", "1Gi");
            let on_it = on_it.node(&name).with(|pod| pod.controller = Some(Arc::clone(&owner)));
            bench.handle(Input::AssignedPod(Notification::Added(Arc::new(on_it.build()))));
        }
    }
    bench
}

fn fork(bench: &Bench) -> Fork {
    bench.scheduler.fork(bench.now, default_options()).expect("the default options make a scheduler")
}

/// A pod comes to each node and goes again.
fn change_every_node(bench: &mut Bench, nodes: usize) {
    for i in 0..nodes {
        let pod = Arc::new(pod("passing").request("cpu", "1m").node(&format!("node-{i}")).build());
        bench.handle(Input::AssignedPod(Notification::Added(Arc::clone(&pod))));
        bench.handle(Input::AssignedPod(Notification::Deleted(pod)));
    }
}

fn why(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("why");
    group.sample_size(10);
    for nodes in [500, 5000] {
        let bench = full(nodes);
        let pending = Arc::new(pod("pending").request("cpu", "4").request("memory", "4Gi").build());
        group.bench_function(BenchmarkId::new("fork", nodes), |b| b.iter(|| fork(&bench)));
        let mut asked = fork(&bench);
        group.bench_function(BenchmarkId::new("pending", nodes), |b| {
            b.iter(|| asked.why(&pending));
        });
        drop(asked);
        // The first change of each node after a copy costs more than later ones.
        let mut bench = bench;
        for copied in [false, true] {
            let name = if copied { "changes-after-a-fork" } else { "changes" };
            group.bench_function(BenchmarkId::new(name, nodes), |b| {
                b.iter_custom(|times| {
                    (0..times)
                        .map(|_| {
                            let copy = copied.then(|| fork(&bench));
                            let began = Instant::now();
                            change_every_node(&mut bench, nodes);
                            let took = began.elapsed();
                            drop(copy);
                            took
                        })
                        .sum()
                });
            });
        }
        let drained = (0..DRAINED).map(|i| format!("node-{i}").into()).collect();
        let drain = [Verb::Drain(drained)];
        group.bench_function(BenchmarkId::new("what-if-drain", nodes), |b| {
            b.iter_batched(|| fork(&bench), |mut fork| fork.what_if(&drain, 20), BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// What an update of open pages costs, four times a second: a copy, on the owner's thread, and what
/// follows on others. Each page lacks changes that no other one lacks, as slow browsers do.
fn page(criterion: &mut Criterion) {
    let nodes = std::env::var(PAGE_NODES).ok().and_then(|text| text.parse().ok()).unwrap_or(5000);
    let mut bench = if nodes > 5000 { with_pods(nodes, 10) } else { full(nodes) };
    let mut sent: Vec<Overview> = Vec::new();
    for watcher in 0..WATCHERS {
        sent.push(overview(&fork(&bench)));
        for i in 0..CHANGED {
            let (name, on) =
                (format!("new-{watcher}-{i}"), format!("node-{}", (watcher * CHANGED + i) % nodes));
            let new = Arc::new(pod(&name).request("cpu", "500m").node(&on).build());
            bench.handle(Input::AssignedPod(Notification::Added(new)));
        }
    }
    let mut group = criterion.benchmark_group("page");
    group.sample_size(10);
    group.bench_function(BenchmarkId::new("copy", nodes), |b| b.iter(|| fork(&bench)));
    let copy = fork(&bench);
    group.bench_function(BenchmarkId::new("overview", nodes), |b| b.iter(|| overview(&copy)));
    let now = overview(&copy);
    group.bench_function(BenchmarkId::new("changes-for-10-pages", nodes), |b| {
        b.iter(|| {
            let text = |old| now.changes_since(old).map(|changes| changes.json(&now).to_string().len());
            sent.iter().filter_map(text).sum::<usize>()
        });
    });
    group.finish();
}

criterion_group!(benches, why, page);
criterion_main!(benches);
