//! Evaluates all nodes with every default plugin: node by node, and by columns where plugins
//! support it. The throughput is in nodes.

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use supercargo_framework::caching::{Caching, Uncached};
use supercargo_framework::objects::Objects;
use supercargo_framework::plugin::{ExtensionPoints, FilterPlugin, PreFilter, ScorePlugin};
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{Context, CycleState, Features, NodeInfo, Nodes, PodInfo};

/// Nodes of 4 CPUs and 32 GiB in three zones, each with a pod like the one to place.
fn cluster(count: usize) -> Nodes {
    let mut nodes = Nodes::default();
    let order = (0..count).map(|i| {
        let name = format!("node-{i}");
        let record = node(&name).label("kubernetes.io/hostname", &name).zone(&format!("zone-{}", i % 3));
        let mut info = NodeInfo::new(Arc::new(record.build()));
        info.add_pod(Arc::new(basic_pod(&format!("bound-{i}"))));
        nodes.insert(info)
    });
    let order = order.collect();
    nodes.set_order(order);
    nodes
}

/// The pod of scheduler_perf's SchedulingBasic.
fn basic_pod(name: &str) -> PodInfo {
    pod(name).request("cpu", "100m").request("memory", "500Mi").build()
}

/// The default plugins that do not skip the pod.
struct Scan<'a> {
    cx: Context<'a>,
    nodes: &'a Nodes,
    pod: PodInfo,
    state: CycleState,
    filters: Vec<(Arc<dyn FilterPlugin>, Arc<dyn Caching>)>,
    scores: Vec<(Arc<dyn ScorePlugin>, Arc<dyn Caching>)>,
}

impl<'a> Scan<'a> {
    fn new(nodes: &'a Nodes, objects: &'a Objects) -> Self {
        let cx = Context::at_rest(nodes, objects);
        let (pod, mut state) = (basic_pod("new"), CycleState::new());
        let (mut filters, mut scores) = (Vec::new(), Vec::new());
        for plugin in supercargo_plugins::DEFAULT_PLUGINS {
            let registry = supercargo_plugins::registry();
            let factory = registry.get(plugin.name).expect("every default plugin is registered");
            let built = factory(&serde_json::Value::Null, &Features::default());
            let ExtensionPoints { pre_filter, filter, pre_score, score, caching, .. } =
                built.expect("every default plugin builds without arguments").extension_points();
            let caching = caching.unwrap_or_else(|| Arc::new(Uncached));
            let prepared = pre_filter.map(|plugin| plugin.pre_filter(&cx, &mut state, &pod));
            let filter = filter.filter(|_| !matches!(prepared, Some(PreFilter::Skip)));
            filters.extend(filter.map(|filter| (filter, Arc::clone(&caching))));
            let prepared = pre_score.map(|plugin| plugin.pre_score(&cx, &mut state, &pod, nodes.order()));
            let score = score.filter(|_| prepared.is_none_or(|status| status.is_success()));
            scores.extend(score.map(|score| (score, caching)));
        }
        Self { cx, nodes, pod, state, filters, scores }
    }

    /// Every filter, and every score of the feasible nodes.
    fn one_by_one(&self, passes: &mut [bool], totals: &mut [i64]) {
        for (index, node) in self.nodes.iter() {
            let passed = |(filter, _): &(Arc<dyn FilterPlugin>, _)| {
                filter.filter(&self.cx, &self.state, &self.pod, node).is_success()
            };
            passes[index.0 as usize] = self.filters.iter().all(passed);
        }
        for (score, _) in &self.scores {
            for (index, node) in self.nodes.iter().filter(|(index, _)| passes[index.0 as usize]) {
                let scored = score.score(&self.cx, &self.state, &self.pod, node);
                totals[index.0 as usize] += scored.unwrap_or_default();
            }
        }
    }

    /// The same by columns, or node by node where a plugin has none.
    fn by_columns(&self, passes: &mut [bool], totals: &mut [i64], scores: &mut [i64]) {
        passes.fill(true);
        for (filter, caching) in &self.filters {
            if !caching.filter_columns(&self.cx, &self.state, &self.pod, self.nodes, passes) {
                for (index, node) in self.nodes.iter() {
                    let passes = &mut passes[index.0 as usize];
                    *passes = *passes && filter.filter(&self.cx, &self.state, &self.pod, node).is_success();
                }
            }
        }
        for (score, caching) in &self.scores {
            if !caching.score_columns(&self.cx, &self.state, &self.pod, self.nodes, scores) {
                for (index, node) in self.nodes.iter() {
                    let scored = score.score(&self.cx, &self.state, &self.pod, node);
                    scores[index.0 as usize] = scored.unwrap_or_default();
                }
            }
            for (total, score) in totals.iter_mut().zip(&*scores) {
                *total += score;
            }
        }
    }
}

fn first_scans(c: &mut Criterion) {
    let mut group = c.benchmark_group("first_scan");
    for count in [5_000, 50_000] {
        let (nodes, objects) = (cluster(count), Objects::default());
        let scan = Scan::new(&nodes, &objects);
        let (mut passes, mut totals, mut scores) = (vec![false; count], vec![0; count], vec![0; count]);
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("one_by_one", count), |b| {
            b.iter(|| scan.one_by_one(&mut passes, &mut totals));
        });
        group.bench_function(BenchmarkId::new("by_columns", count), |b| {
            b.iter(|| scan.by_columns(&mut passes, &mut totals, &mut scores));
        });
    }
    group.finish();
}

criterion_group!(benches, first_scans);
criterion_main!(benches);
