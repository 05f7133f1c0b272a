//! The queue: push and pop, failed attempts, events that help all of 10,000 waiting pods, and
//! events that help none of 100,000. An event that helps none must cost at most a millisecond.

use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use supercargo_benches::{Bench, default_pod};
use supercargo_framework::affinity::Requirement;
use supercargo_framework::objects::{Body, Object, PersistentVolumeClaim, resources};
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::taint::{Toleration, TolerationOperator};
use supercargo_framework::testing::{PodBuilder, node, object, pod};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{NodeRecord, PodInfo, TaintEffect, Volume, VolumeSource};
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

/// Gives a pod a wish that `node-0` does not meet. Part of it is shared by all pods, and met.
type Wish = fn(pod: PodBuilder, own: &str) -> PodBuilder;
/// The number of times that an event has happened makes it different each time.
type Event = fn(time: usize) -> Input;

/// Wishes, each with an event that its hints must look at and that helps no pod.
const WISHES: [(&str, Wish, Event); 6] = [
    ("pod_affinity", affine, bound_pod),
    ("spread_constraint", spread, bound_pod),
    ("spread_constraint_and_node", spread, changed_node),
    (
        "node_selector",
        |pod, own| tolerant(pod).node_selector("area", "shared").node_selector("pool", own),
        changed_node,
    ),
    ("toleration", |pod, own| pod.tolerates(own, "", TaintEffect::NoSchedule), changed_node),
    (
        "claim",
        |pod, own| {
            let source = VolumeSource::Claim(own.into());
            pod.with_spec(|spec| spec.volumes = [Volume { name: "data".into(), source }].into())
        },
        |time| Input::Object(Notification::Added(Arc::new(volume_claim(&format!("other-{time}"))))),
    ),
];

fn affine(pod: PodBuilder, app: &str) -> PodBuilder {
    let term = PodAffinityTerm {
        selector: Some(of_app(app)),
        topology_key: "kubernetes.io/hostname".into(),
        ..PodAffinityTerm::default()
    };
    let affinity = PodAffinity { required_affinity: Box::new([term]), ..PodAffinity::default() };
    tolerant(pod).with_spec(|spec| spec.pod_affinity = Some(affinity.into()))
}

fn spread(pod: PodBuilder, own: &str) -> PodBuilder {
    let constraint = TopologySpreadConstraint {
        max_skew: 1,
        topology_key: own.into(),
        hard: true,
        selector: Some(of_app(own)),
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Box::default(),
    };
    tolerant(pod).with_spec(|spec| spec.topology_spread = [constraint].into())
}

/// The taints of `node-0` do not reject the pod.
fn tolerant(pod: PodBuilder) -> PodBuilder {
    let all =
        Toleration { key: "".into(), operator: TolerationOperator::Exists, value: "".into(), effect: None };
    pod.toleration(all)
}

fn of_app(app: &str) -> LabelSelector {
    let equals = |(key, value): (&str, &str)| Requirement::equals(&key.into(), &value.into());
    LabelSelector::new([("area", "shared"), ("app", app)].map(equals))
}

fn volume_claim(name: &str) -> Object {
    let claim = PersistentVolumeClaim::default();
    object(
        &resources::PERSISTENT_VOLUME_CLAIM,
        &format!("default/{name}"),
        Body::PersistentVolumeClaim(claim),
    )
}

fn bound_pod(time: usize) -> Input {
    let bound = pod(&format!("bound-{time}")).label("app", "other").label("area", "shared").node("node-0");
    Input::AssignedPod(Notification::Added(Arc::new(bound.build())))
}

/// The node's label and taint change.
fn changed_node(time: usize) -> Input {
    let [old, new] = [time, time + 1].map(|time| Arc::new(tainted_node(&format!("other-{}", time % 2))));
    Input::Node(Notification::Updated { old, new })
}

fn tainted_node(other: &str) -> NodeRecord {
    node("node-0")
        .label("area", "shared")
        .label("pool", other)
        .taint(other, "", TaintEffect::NoSchedule)
        .build()
}

/// A scheduler with `node-0` and this many waiting pods, each with a wish of its own.
fn wishing(pods: usize, wish: Wish) -> Bench {
    let mut bench = Bench::with_nodes(0);
    bench.handle(Input::Node(Notification::Added(Arc::new(tainted_node("other-0")))));
    for i in 0..pods {
        let own = format!("own-{i}");
        bench.add_pod(wish(pod(&own), &own).build());
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
    for (name, wish, event) in WISHES {
        let (mut bench, mut time) = (wishing(MANY, wish), 0);
        group.bench_function(BenchmarkId::new("event_that_helps_none_of_100000", name), |b| {
            b.iter(|| {
                bench.handle(event(time));
                time += 1;
            });
        });
        assert_eq!(bench.scheduler.queue_lengths()[..3], [0, 0, MANY], "{name}");
    }
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
