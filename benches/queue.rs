//! The queue with 10,000 pods: push and pop, and an event that runs the hints of every waiting pod.

use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use supercargo_benches::{Bench, default_pod, too_big_pod};
use supercargo_framework::testing::node;
use supercargo_scheduler::{Input, NoCalls, Notification};

const PODS: usize = 10_000;

/// A scheduler with one small node and this many pods, none of which fits.
fn unschedulable() -> Bench {
    let mut bench = Bench::with_nodes(1);
    for i in 0..PODS {
        bench.add_pod(too_big_pod(&format!("pod-{i}")));
    }
    while bench.scheduler.queue_lengths()[0] > 0 {
        bench.scheduler.schedule_one(bench.now, &mut NoCalls);
        bench.scheduler.take_effects();
    }
    bench
}

fn queue(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    group.sample_size(10);
    group.bench_function("add_10000", |b| {
        b.iter_batched(
            || {
                (
                    Bench::with_nodes(0),
                    (0..PODS).map(|i| default_pod(&format!("pod-{i}"))).collect::<Vec<_>>(),
                )
            },
            |(mut bench, pods)| {
                for pod in pods {
                    bench.add_pod(pod);
                }
                bench
            },
            BatchSize::LargeInput,
        );
    });
    group.bench_function("event_that_helps_none_of_10000", |b| {
        let mut bench = unschedulable();
        let mut count = 0;
        b.iter(|| {
            count += 1;
            let small = node(&format!("small-{count}")).allocatable("cpu", "1").build();
            bench.handle(Input::Node(Notification::Added(Arc::new(small))));
        });
    });
    group.bench_function("event_that_helps_all_of_10000", |b| {
        b.iter_batched(
            unschedulable,
            |mut bench| {
                let big = node("big").allocatable("cpu", "1000000").build();
                bench.handle(Input::Node(Notification::Added(Arc::new(big))));
                bench.pass(Duration::from_secs(20));
                bench
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(benches, queue);
criterion_main!(benches);
