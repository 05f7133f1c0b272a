//! The queue: push and pop, failed attempts, events that help all of 10,000 waiting pods, and
//! events that help none of 100,000. An event that helps none must cost at most a millisecond.

use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use supercargo_benches::{Bench, default_pod};
use supercargo_framework::PodInfo;
use supercargo_framework::affinity::Requirement;
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::testing::{node, pod};
use supercargo_scheduler::{Input, NoCalls, Notification};

const PODS: usize = 10_000;
const MANY: usize = 100_000;
/// What each pod that fits nowhere requests at least.
const LEAST_MILLI_CPU: usize = 900_000;

/// A pod that fits nowhere. No two pods are equal; this many kinds differ in their requests.
fn distinct_pod(i: usize, kinds: usize) -> PodInfo {
    let (name, cpu) = (format!("pod-{i}"), format!("{}m", LEAST_MILLI_CPU + i % kinds));
    pod(&name).request("cpu", &cpu).image(&name).label("index", &name).build()
}

/// A scheduler with one small node and this many waiting pods.
fn unschedulable(pods: usize, kinds: usize) -> Bench {
    let mut bench = Bench::with_nodes(1);
    (0..pods).for_each(|i| bench.add_pod(distinct_pod(i, kinds)));
    attempt_all(&mut bench);
    bench
}

/// A scheduler with one node and this many waiting pods. Each wants a pod near that does not exist.
fn lonely(pods: usize) -> Bench {
    let mut bench = Bench::with_nodes(1);
    for i in 0..pods {
        let app = Requirement::equals(&"app".into(), &format!("app-{i}").into());
        let term = PodAffinityTerm {
            selector: Some(LabelSelector::new([app])),
            topology_key: "kubernetes.io/hostname".into(),
            ..PodAffinityTerm::default()
        };
        let affinity = PodAffinity { required_affinity: Box::new([term]), ..PodAffinity::default() };
        let lonely = pod(&format!("pod-{i}")).with_spec(|spec| spec.pod_affinity = Some(affinity.into()));
        bench.add_pod(lonely.build());
    }
    attempt_all(&mut bench);
    bench
}

fn attempt_all(bench: &mut Bench) {
    while bench.scheduler.queue_lengths()[0] > 0 {
        bench.scheduler.schedule_one(bench.now, &mut NoCalls);
        bench.scheduler.take_effects();
    }
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
    group.bench_function("attempts_that_fail_10000", |b| {
        b.iter_batched(
            || {
                let mut bench = unschedulable(1, 1);
                (1..PODS).for_each(|i| bench.add_pod(distinct_pod(i, 1)));
                bench
            },
            |mut bench| {
                attempt_all(&mut bench);
                bench
            },
            BatchSize::LargeInput,
        );
    });
    for kinds in [1, 100, MANY] {
        let mut bench = unschedulable(MANY, kinds);
        let mut count = 0;
        // No plugin that rejected the pods registers for it.
        group.bench_function(BenchmarkId::new("unregistered_event_100000", kinds), |b| {
            b.iter(|| {
                count += 1;
                let bound = pod(&format!("bound-{count}")).node("node-0").build();
                bench.handle(Input::AssignedPod(Notification::Added(Arc::new(bound))));
            });
        });
        for (name, milli_cpu) in [
            ("two_events_that_help_none_100000", 1_000),
            ("two_events_that_almost_help_100000", LEAST_MILLI_CPU - 1_000),
        ] {
            group.bench_function(BenchmarkId::new(name, kinds), |b| {
                let small = |cpu| Arc::new(node(name).allocatable("cpu", &format!("{cpu}m")).build());
                let (one, two) = (small(milli_cpu), small(milli_cpu + 500));
                bench.handle(Input::Node(Notification::Added(Arc::clone(&one))));
                b.iter(|| {
                    let more = Notification::Updated { old: Arc::clone(&one), new: Arc::clone(&two) };
                    bench.handle(Input::Node(more));
                    let less = Notification::Updated { old: Arc::clone(&two), new: Arc::clone(&one) };
                    bench.handle(Input::Node(less));
                });
            });
        }
    }
    let mut bench = lonely(MANY);
    let mut count = 0;
    group.bench_function("event_that_meets_no_term_of_100000", |b| {
        b.iter(|| {
            count += 1;
            let bound = pod(&format!("bound-{count}")).label("app", "other").node("node-0").build();
            bench.handle(Input::AssignedPod(Notification::Added(Arc::new(bound))));
        });
    });
    group.bench_function("event_that_helps_all_of_10000", |b| {
        b.iter_batched(
            || unschedulable(PODS, 1),
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
