//! How much of everything exists, counted for each scrape of `/metrics`. It includes what must not
//! grow over time: process memory cannot show that, because an allocator keeps freed memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_informers::InformerMetrics;
use supercargo_framework::PodInfo;
use supercargo_scheduler::{GroupLengths, Rule, Scheduler, Stats};
use tokio::time::{Instant, timeout};

use crate::informers::InformerStats;
use supercargo_client::adaptive_limit::LimitStats;
use supercargo_client::api::Api;
use supercargo_owner::backlog::Backlog;
use supercargo_owner::gauge::{EventGauges, Gauge};
use supercargo_owner::owner::Mailbox;
use supercargo_telemetry::metrics::{Requests, ScrapeCollector, Text, spec};

/// Longest wait for the scheduler. A scrape times out after ten seconds by default, and the other
/// metrics matter most while the scheduler hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything that is counted. Holding it keeps no informer and no writer running.
pub(crate) struct ResourceStats {
    pub(crate) mailbox: Mailbox,
    pub(crate) informers: InformerStats,
    pub(crate) requests: Arc<Requests>,
    /// Clients that limit their concurrent requests, by name.
    pub(crate) clients: Vec<(&'static str, Api)>,
    pub(crate) backlog: Backlog,
    /// Number of events that were dropped.
    pub(crate) events_lost: Arc<AtomicU64>,
    pub(crate) events: EventGauges,
    /// Number of pods whose status is yet to be patched.
    pub(crate) status_writes: Gauge,
}

impl ScrapeCollector for ResourceStats {
    fn collect<'a>(&'a self, text: &'a mut Text) -> BoxFuture<'a, ()> {
        self.write(text).boxed()
    }

    fn pods(&self) -> Option<Vec<Arc<PodInfo>>> {
        self.informers.pods()
    }
}

impl ResourceStats {
    async fn write(&self, text: &mut Text) {
        self.requests.write(text);
        write_informers(text, &self.informers.metrics());
        text.family(&spec::INTERNED);
        for (resource, values) in self.informers.interned().into_iter().flatten() {
            text.sample(&spec::INTERNED, &[resource], values as f64);
        }
        self.write_clients(text);
        text.family(&spec::BACKLOG);
        text.sample(&spec::BACKLOG, &[], self.backlog.count() as f64);
        text.family(&spec::EVENTS_LOST);
        text.sample(&spec::EVENTS_LOST, &[], self.events_lost.load(Ordering::Relaxed) as f64);
        text.family(&spec::EVENT_SERIES);
        text.sample(&spec::EVENT_SERIES, &[], self.events.series.get() as f64);
        text.family(&spec::PENDING_WRITES);
        for (kind, writes) in [("event", &self.events.writes), ("status", &self.status_writes)] {
            text.sample(&spec::PENDING_WRITES, &[kind], writes.get() as f64);
        }
        let asked = Instant::now();
        let look = |scheduler: &Scheduler| {
            let rules = Rule::ALL.map(|rule| (rule, scheduler.applied(rule)));
            (Instant::now(), scheduler.stats(), rules)
        };
        match timeout(ANSWER_TIMEOUT, self.mailbox.ask(look)).await {
            Ok(Some((looked, stats, rules))) => {
                write_delay(text, looked.duration_since(asked));
                write_queue(text, &stats);
                write_cache(text, &stats);
                write_tables(text, &stats, &rules);
            }
            // The scheduler has stopped.
            Ok(None) => {}
            Err(_) => write_delay(text, asked.elapsed()),
        }
    }

    fn write_clients(&self, text: &mut Text) {
        text.family(&spec::WINDOW);
        for (client, api) in &self.clients {
            let LimitStats { limit, in_flight, waiting } = api.limit_stats();
            for (state, value) in [("limit", limit), ("under_way", in_flight), ("waiting", waiting)] {
                text.sample(&spec::WINDOW, &[client, state], value as f64);
            }
        }
    }
}

fn write_delay(text: &mut Text, delay: Duration) {
    text.family(&spec::MAILBOX_DELAY);
    text.sample(&spec::MAILBOX_DELAY, &[], delay.as_secs_f64());
}

fn write_queue(text: &mut Text, stats: &Stats) {
    const QUEUES: [&str; 4] = ["active", "backoff", "unschedulable", "gated"];
    let GroupLengths { groups, incomplete, pending, .. } = stats.groups.unwrap_or_default();
    text.family(&spec::PENDING_PODS);
    let aside = [("incomplete", incomplete), ("pending", pending)];
    for (queue, pods) in QUEUES.into_iter().zip(stats.queued_pods()).chain(aside) {
        text.sample(&spec::PENDING_PODS, &[queue], pods as f64);
    }
    text.family(&spec::QUEUED_ENTITIES);
    for (at, queue) in QUEUES.into_iter().enumerate() {
        text.sample(&spec::QUEUED_ENTITIES, &[queue, "pod"], (stats.queue[at] - groups[at]) as f64);
        if stats.groups.is_some() {
            text.sample(&spec::QUEUED_ENTITIES, &[queue, "podgroup"], groups[at] as f64);
        }
    }
    text.family(&spec::INFLIGHT_EVENTS);
    text.sample(&spec::INFLIGHT_EVENTS, &["PodPopped"], stats.queue[4] as f64);
    for (event, count) in &stats.events_in_flight {
        text.sample(&spec::INFLIGHT_EVENTS, &[event], *count as f64);
    }
    if !stats.rejected.is_empty() {
        text.family(&spec::UNSCHEDULABLE_PODS);
    }
    for rejected in &stats.rejected {
        let labels = [&*rejected.plugin, &*rejected.profile];
        text.sample(&spec::UNSCHEDULABLE_PODS, &labels, rejected.pods as f64);
    }
    text.family(&spec::GOROUTINES);
    text.sample(&spec::GOROUTINES, &["binding"], stats.bindings as f64);
    text.sample(&spec::GOROUTINES, &["DefaultPreemption"], stats.preemptions as f64);
    text.family(&spec::BINDINGS);
    text.sample(&spec::BINDINGS, &[], stats.bindings as f64);
    text.family(&spec::ALLOCATIONS);
    text.sample(&spec::ALLOCATIONS, &[], stats.pending_allocations as f64);
}

fn write_cache(text: &mut Text, stats: &Stats) {
    text.family(&spec::CACHE_SIZE);
    for (kind, size) in [("nodes", stats.nodes), ("pods", stats.pods), ("assumed_pods", stats.assumed_pods)] {
        text.sample(&spec::CACHE_SIZE, &[kind], size as f64);
    }
}

fn write_tables(text: &mut Text, stats: &Stats, rules: &[(Rule, u64)]) {
    let tables = &stats.tables;
    text.family(&spec::TABLE_CYCLES);
    for (result, cycles) in [("hit", tables.hits), ("build", tables.builds), ("plain", tables.plain)] {
        text.sample(&spec::TABLE_CYCLES, &[result], cycles as f64);
    }
    text.family(&spec::TABLE_REPLAYS);
    text.sample(&spec::TABLE_REPLAYS, &[], tables.replays as f64);
    text.family(&spec::TABLE_RULES);
    for (rule, applied) in rules {
        text.sample(&spec::TABLE_RULES, &[&format!("{rule:?}")], *applied as f64);
    }
    text.family(&spec::TABLES);
    text.sample(&spec::TABLES, &["table"], tables.tables as f64);
    text.sample(&spec::TABLES, &["column"], tables.columns as f64);
    text.family(&spec::TABLE_BYTES);
    text.sample(&spec::TABLE_BYTES, &[], tables.bytes as f64);
    text.family(&spec::TABLE_CHANGES);
    text.sample(&spec::TABLE_CHANGES, &[], stats.changes as f64);
}

fn write_informers(text: &mut Text, informers: &[InformerMetrics]) {
    let each = |text: &mut Text, spec: &spec::Spec, value: fn(&InformerMetrics) -> Option<f64>| {
        text.family(spec);
        for informer in informers {
            let labels = informer_labels(informer);
            if let Some(value) = value(informer) {
                // Families of client-go have all labels, ours only the last.
                text.sample(spec, &labels[labels.len() - spec.labels.len()..], value);
            }
        }
    };
    each(text, &spec::INFORMER_OBJECTS, |it| Some(it.objects as f64));
    each(text, &spec::INFORMER_QUEUED, |it| Some(it.queued_items as f64));
    each(text, &spec::INFORMER_PENDING, |it| {
        Some(it.handlers.iter().map(|handler| handler.pending).sum::<usize>() as f64)
    });
    each(text, &spec::INFORMER_VERSION, |it| it.store_resource_version.map(|version| version as f64));
    each(text, &spec::INFORMER_UNDECODABLE, |it| Some(it.undecodable as f64));
    text.family(&spec::INFORMER_LAG);
    for informer in informers {
        let latency = &informer.processing_latency;
        let (labels, bounds) = (informer_labels(informer), &kube_informers::LATENCY_BUCKETS);
        text.histogram(&spec::INFORMER_LAG, &labels, bounds, &latency.counts, latency.sum.as_secs_f64());
    }
    text.family(&spec::INFORMER_EVENTS);
    for it in informers {
        for (change, count) in
            [("added", it.added), ("updated", it.updated), ("synced", it.synced), ("deleted", it.deleted)]
        {
            text.sample(&spec::INFORMER_EVENTS, &[&it.resource.resource, change], count as f64);
        }
    }
    text.family(&spec::INFORMER_REQUESTS);
    for it in informers {
        for (request, count) in [("list", it.lists), ("watch", it.watches), ("failed", it.failures)] {
            text.sample(&spec::INFORMER_REQUESTS, &[&it.resource.resource, request], count as f64);
        }
    }
}

/// The labels of client-go's metrics of informers. kube-scheduler gives its informers its own name.
fn informer_labels(informer: &InformerMetrics) -> [&str; 4] {
    let resource = &informer.resource;
    ["kube-scheduler", &resource.group, &resource.version, &resource.resource]
}

#[cfg(test)]
mod tests;
