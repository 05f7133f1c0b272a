//! The scenario that both schedulers run.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::devices::use_devices;
use super::exposition::Exposition;
use super::upstream::POINTS;
use crate::support::{Cluster, eventually, node, pod};

/// The time limit for the scheduler to become idle on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// An idle scheduler counts nothing more for this long.
const SETTLING: Duration = Duration::from_millis(300);

/// A scheduler with readable metrics.
pub(super) trait Scraped {
    /// Reads the metrics.
    fn scrape(&self) -> Exposition;
}

/// The metrics at three idle moments.
pub(super) struct Readings {
    /// After pods were bound, rejected and gated, some with devices, and a new node has helped one.
    pub(super) calm: Exposition,
    /// After a preemption.
    pub(super) preempted: Exposition,
    /// After every waiting pod is deleted.
    pub(super) empty: Exposition,
}

/// Runs the scenario for the pods of this scheduler.
pub(super) fn play(cluster: &Cluster, scheduler: &str, scraped: &dyn Scraped) -> Readings {
    let pod = |name: &str| pod(name).by(scheduler).spec("terminationGracePeriodSeconds", json!(0));
    for name in ["n1", "n2"] {
        cluster.create(&node(name, &[("kubernetes.io/hostname", name)], &[("cpu", "2"), ("memory", "4Gi")]));
    }
    for name in ["small-1", "small-2", "small-3"] {
        cluster.create(&pod(name).asking("cpu", "100m").build());
        cluster.bound_node("default", name);
    }
    use_devices(cluster, "n1", pod);
    cluster.create(&pod("too-big").asking("cpu", "64").build());
    cluster.condition("default", "too-big", "Unschedulable");
    cluster.create(&pod("elsewhere").on(("place", "elsewhere")).build());
    cluster.condition("default", "elsewhere", "Unschedulable");
    cluster.create(&pod("held").spec("schedulingGates", json!([{ "name": "example.com/hold" }])).build());
    // Its taint repels every other pod.
    let mut helpful = node("n3", &[("place", "elsewhere")], &[("cpu", "1"), ("memory", "4Gi")]);
    helpful["spec"] = json!({ "taints": [{ "key": "lonely", "effect": "NoSchedule" }] });
    cluster.create(&pod("tolerant").on(("place", "elsewhere")).spec("tolerations", tolerations()).build());
    cluster.condition("default", "tolerant", "Unschedulable");
    cluster.create(&helpful);
    cluster.bound_node("default", "tolerant");
    // kube-scheduler updates some metrics up to a second later.
    let signs = [("extension_point", "Sign")];
    let has_signed = |it: &Exposition| it.sum(&format!("{POINTS}_count"), &signs).is_some();
    let calm = at_rest(scraped, |it| {
        pending(it) == [0.0, 0.0, 3.0, 1.0] && cached(it) == [3.0, 6.0, 0.0] && has_signed(it)
    });

    for name in ["too-big", "elsewhere", "none-left"] {
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
        at_rest(scraped, |it| pending(it) == [0.0, 0.0, 0.0, 1.0] && cached(it) == [3.0, 8.0, 0.0]);

    cluster.delete_pod("default", "held");
    let turned_down = |it: &Exposition| it.sum("scheduler_unschedulable_pods", &[]).unwrap_or_default();
    let empty =
        at_rest(scraped, |it| pending(it) == [0.0; 4] && in_flight(it) == 0.0 && turned_down(it) == 0.0);
    Readings { calm, preempted, empty }
}

fn tolerations() -> Value {
    json!([{ "key": "lonely", "operator": "Exists" }])
}

pub(super) fn high_priority() -> Value {
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

/// Metrics of actions, such as bindings: their effects may be visible before they are counted.
fn under_way(it: &Exposition) -> f64 {
    it.sum("scheduler_goroutines", &[]).unwrap_or_default()
}

fn in_flight(it: &Exposition) -> f64 {
    it.sum("scheduler_inflight_events", &[]).unwrap_or_default()
}

/// All counters.
fn counts(it: &Exposition) -> Vec<(&str, f64)> {
    let families = it.0.iter().filter(|(name, _)| name.starts_with("scheduler_"));
    let samples = families.flat_map(|(_, family)| &family.samples);
    samples.map(|sample| (sample.name.as_str(), sample.value)).collect()
}

/// Waits until the scheduler is idle and this holds.
pub(super) fn at_rest(scraped: &dyn Scraped, is: impl Fn(&Exposition) -> bool) -> Exposition {
    let is_at_rest = |it: &Exposition| under_way(it) == 0.0 && is(it);
    let read = || {
        let first = Some(scraped.scrape()).filter(is_at_rest)?;
        // Some counters change after the effect is visible.
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
