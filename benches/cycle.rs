//! One scheduling cycle with binding and confirmation on 500 and 5,000 nodes; `measured` is `fits`
//! with metrics.

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use supercargo_benches::{Bench, default_pod, too_big_pod};
use supercargo_config::{Catalog, Config};
use supercargo_scheduler::Unobserved;
use supercargo_telemetry::metrics::Metrics;

fn cycles(c: &mut Criterion) {
    let mut group = c.benchmark_group("cycle");
    group.sample_size(20);
    for nodes in [500, 5_000] {
        for (kind, make, is_measured) in [
            ("fits", default_pod as fn(&str) -> _, false),
            ("measured", default_pod, true),
            ("fits_nowhere", too_big_pod, false),
        ] {
            group.bench_function(BenchmarkId::new(kind, nodes), |b| {
                let mut bench = Bench::with_nodes(nodes);
                if is_measured {
                    let metrics = Metrics::new(
                        &Config::default_with(&Catalog::in_tree()).expect("it is valid").features,
                    );
                    bench = bench.watched_by(metrics.observer(Box::new(Unobserved)));
                }
                let mut count = 0;
                b.iter_batched(
                    || {
                        count += 1;
                        make(&format!("pod-{count}"))
                    },
                    |pod| {
                        bench.add_pod(pod);
                        bench.schedule_and_bind()
                    },
                    BatchSize::SmallInput,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, cycles);
criterion_main!(benches);
