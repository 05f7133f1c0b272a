//! What an answer to "why is my pod pending?" costs: `cargo bench -p supercargo-benches --bench why`.

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use supercargo_benches::Bench;
use supercargo_framework::TaintEffect;
use supercargo_framework::testing::{node, pod};
use supercargo_scheduler::{Input, Notification};

/// A cluster of full nodes, a third of them tainted.
fn full(nodes: usize) -> Bench {
    let mut bench = Bench::with_nodes(0);
    for i in 0..nodes {
        let name = format!("node-{i}");
        let node =
            node(&name).allocatable("cpu", "8").allocatable("memory", "32Gi").allocatable("pods", "110");
        let node = if i % 3 == 0 { node.taint("gpu", "", TaintEffect::NoSchedule) } else { node };
        bench.handle(Input::Node(Notification::Added(Arc::new(node.build()))));
        for j in 0..30 {
            let on_it =
                pod(&format!("{name}-{j}")).request("cpu", "250m").request("memory", "1Gi").node(&name);
            bench.handle(Input::AssignedPod(Notification::Added(Arc::new(on_it.build()))));
        }
    }
    bench
}

fn why(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("why");
    group.sample_size(10);
    for nodes in [500, 5000] {
        let mut bench = full(nodes);
        let pending = Arc::new(pod("pending").request("cpu", "4").request("memory", "4Gi").build());
        group.bench_function(BenchmarkId::new("pending", nodes), |b| {
            b.iter(|| bench.scheduler.why(bench.now, &pending));
        });
    }
    group.finish();
}

criterion_group!(benches, why);
criterion_main!(benches);
