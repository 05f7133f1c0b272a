//! What happens to both schedulers.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::exposition::Exposition;
use super::upstream::POINTS;
use crate::support::{Cluster, eventually, node, pod};

/// How long the scheduler may take to come to rest on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// For so long nothing more is counted when it is at rest.
const SETTLING: Duration = Duration::from_millis(300);

/// A scheduler whose metrics can be read.
pub(super) trait Scraped {
    /// Reads them now.
    fn scrape(&self) -> Exposition;
}

/// What was read at three moments of rest.
pub(super) struct Readings {
    /// After pods were bound, found no node, were held, and a node came that helped one.
    pub(super) calm: Exposition,
    /// After a pod has taken the place of another.
    pub(super) preempted: Exposition,
    /// After every pod that waited is gone.
    pub(super) empty: Exposition,
}

/// Plays the scenario for the pods of this scheduler.
pub(super) fn play(cluster: &Cluster, scheduler: &str, scraped: &dyn Scraped) -> Readings {
    let pod = |name: &str| pod(name).by(scheduler).spec("terminationGracePeriodSeconds", json!(0));
    for name in ["n1", "n2"] {
        cluster.create(&node(name, &[("kubernetes.io/hostname", name)], &[("cpu", "2"), ("memory", "4Gi")]));
    }
    for name in ["small-1", "small-2", "small-3"] {
        cluster.create(&pod(name).asking("cpu", "100m").build());
        cluster.bound_node("default", name);
    }
    cluster.create(&pod("too-big").asking("cpu", "64").build());
    cluster.condition("default", "too-big", "Unschedulable");
    cluster.create(&pod("elsewhere").on(("place", "elsewhere")).build());
    cluster.condition("default", "elsewhere", "Unschedulable");
    cluster.create(&pod("held").spec("schedulingGates", json!([{ "name": "example.com/hold" }])).build());
    // Its taint keeps everything else away.
    let mut helpful = node("n3", &[("place", "elsewhere")], &[("cpu", "1"), ("memory", "4Gi")]);
    helpful["spec"] = json!({ "taints": [{ "key": "lonely", "effect": "NoSchedule" }] });
    cluster.create(&pod("tolerant").on(("place", "elsewhere")).spec("tolerations", tolerations()).build());
    cluster.condition("default", "tolerant", "Unschedulable");
    cluster.create(&helpful);
    cluster.bound_node("default", "tolerant");
    // kube-scheduler tells of some things up to a second later.
    let signs = [("extension_point", "Sign")];
    let has_signed = |it: &Exposition| it.sum(&format!("{POINTS}_count"), &signs).is_some();
    let calm = at_rest(scraped, |it| {
        pending(it) == [0.0, 0.0, 2.0, 1.0] && cached(it) == [3.0, 4.0, 0.0] && has_signed(it)
    });

    for name in ["too-big", "elsewhere"] {
        cluster.delete_pod("default", name);
    }
    cluster.create(&high_priority());
    for name in ["low-1", "low-2"] {
        cluster.create(&pod(name).asking("cpu", "1500m").build());
        cluster.bound_node("default", name);
    }
    cluster.create(&pod("high").asking("cpu", "1500m").spec("priorityClassName", json!("high")).build());
    cluster.bound_node("default", "high");
    let preempted =
        at_rest(scraped, |it| pending(it) == [0.0, 0.0, 0.0, 1.0] && cached(it) == [3.0, 6.0, 0.0]);

    cluster.delete_pod("default", "held");
    let turned_down = |it: &Exposition| it.sum("scheduler_unschedulable_pods", &[]).unwrap_or_default();
    let empty =
        at_rest(scraped, |it| pending(it) == [0.0; 4] && in_flight(it) == 0.0 && turned_down(it) == 0.0);
    Readings { calm, preempted, empty }
}

fn tolerations() -> Value {
    json!([{ "key": "lonely", "operator": "Exists" }])
}

fn high_priority() -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": { "name": "high" },
        "value": 1000,
    })
}

/// Pods in activeQ, in backoffQ, unschedulable, and gated.
pub(super) fn pending(it: &Exposition) -> [f64; 4] {
    ["active", "backoff", "unschedulable", "gated"]
        .map(|queue| it.sum("scheduler_pending_pods", &[("queue", queue)]).unwrap_or(f64::NAN))
}

/// Nodes, pods, and assumed pods.
pub(super) fn cached(it: &Exposition) -> [f64; 3] {
    ["nodes", "pods", "assumed_pods"]
        .map(|kind| it.sum("scheduler_cache_size", &[("type", kind)]).unwrap_or(f64::NAN))
}

/// Bindings and the like: what has its effect may not have been counted yet.
fn under_way(it: &Exposition) -> f64 {
    it.sum("scheduler_goroutines", &[]).unwrap_or_default()
}

fn in_flight(it: &Exposition) -> f64 {
    it.sum("scheduler_inflight_events", &[]).unwrap_or_default()
}

/// Everything that schedulers count.
fn counts(it: &Exposition) -> Vec<(&str, f64)> {
    let families = it.0.iter().filter(|(name, _)| name.starts_with("scheduler_"));
    let samples = families.flat_map(|(_, family)| &family.samples);
    samples.map(|sample| (sample.name.as_str(), sample.value)).collect()
}

fn at_rest(scraped: &dyn Scraped, is: impl Fn(&Exposition) -> bool) -> Exposition {
    let is_at_rest = |it: &Exposition| under_way(it) == 0.0 && is(it);
    let read = || {
        let first = Some(scraped.scrape()).filter(is_at_rest)?;
        // Some things are counted after what they count can be seen.
        thread::sleep(SETTLING);
        Some(scraped.scrape()).filter(|it| is_at_rest(it) && counts(it) == counts(&first))
    };
    let state = || {
        let it = scraped.scrape();
        let (pending, cached) = (pending(&it), cached(&it));
        format!(
            "pending {pending:?}, cached {cached:?}, events in flight {}, under way {}",
            in_flight(&it),
            under_way(&it)
        )
    };
    eventually("the scheduler is at rest", PATIENCE, read, state)
}
