//! Daemon sets: one pod on each eligible node.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::pods::Pod;
use super::{BURST, Key, Workloads, min_ready, scaled, set_counts, template};
use crate::json::{flag, int, list, object_mut, text, text_at};
use crate::object::StoredObject;

const REVISION: &str = "controller-revision-hash";
const GENERATION: &str = "pod-template-generation";
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// The taints that the pods of all daemon sets tolerate.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
const NO_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

#[derive(Default)]
struct Tally {
    desired: i64,
    current: i64,
    misplaced: i64,
    ready: i64,
    available: i64,
    updated: i64,
    next: Option<Instant>,
}

impl Workloads {
    pub(super) fn reconcile_daemon_set(&mut self, key: &Key, set: &Value) {
        let mut pod = template::pod(self.kind(key.managed), set);
        let hash = template::hash(set);
        template::generate_name(&mut pod, set);
        template::set_label(&mut pod, REVISION, &hash);
        let generation = text(&set["metadata"]["annotations"], TEMPLATE_GENERATION);
        if !generation.is_empty() {
            template::set_label(&mut pod, GENERATION, generation);
        }
        tolerate(&mut pod["spec"]);
        let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        let uid = text_at(set, "/metadata/uid");
        for pod in self.pods.of(uid) {
            by_node.entry(&pod.node).or_default().push(pod);
        }
        let long_enough = min_ready(&set["spec"]);
        let now = Instant::now();
        let mut tally = Tally::default();
        let (mut missing, mut doomed, mut old) = (Vec::new(), Vec::new(), Vec::new());
        for (name, node) in self.nodes.iter() {
            let pods = by_node.remove(name).unwrap_or_default();
            let (starts, stays) = node.takes(name, &pod["spec"]);
            // Finished pods are replaced; of several pods on a node the oldest stays.
            doomed.extend(pods.iter().filter(|pod| pod.is_over()).map(|pod| Arc::clone(&pod.object)));
            let mut here: Vec<&Pod> = pods.into_iter().filter(|pod| !pod.is_over()).collect();
            here.sort_by_key(|pod| std::cmp::Reverse(pod.rank()));
            if starts {
                tally.desired += 1;
                tally.count(here.first().copied(), &hash, long_enough, now);
            } else if !here.is_empty() {
                tally.misplaced += 1;
            }
            let kept = usize::from(stays);
            doomed.extend(here.iter().skip(kept).map(|pod| Arc::clone(&pod.object)));
            match here.first() {
                None if starts => missing.push(name.to_owned()),
                Some(pod) if stays && pod.label(REVISION) != hash => old.push(*pod),
                _ => {}
            }
        }
        // The remaining pods are for removed nodes.
        doomed.extend(by_node.values().flatten().map(|pod| Arc::clone(&pod.object)));
        doomed.extend(replaced(set, &tally, &old));
        let more = missing.len() > BURST;
        let pods = missing.iter().map(|node| for_node(pod.clone(), node));
        let pods: Vec<Value> = pods.take(BURST).collect();
        self.create_pods(key, pods);
        for pod in doomed.iter().filter(|pod| !pod.deleting) {
            self.delete_pod(pod);
        }
        if more {
            self.enqueue_at(now, key);
        }
        self.set_daemon_status(key, set, &tally);
        if let Some(next) = tally.next {
            self.enqueue_at(next, key);
        }
    }

    fn set_daemon_status(&mut self, key: &Key, set: &Value, tally: &Tally) {
        let generation = int(&set["metadata"], "generation").unwrap_or_default();
        self.set_status(key, set, |set| {
            let always = [
                ("currentNumberScheduled", tally.current),
                ("numberMisscheduled", tally.misplaced),
                ("desiredNumberScheduled", tally.desired),
                ("numberReady", tally.ready),
            ];
            let otherwise = [
                ("observedGeneration", generation),
                ("updatedNumberScheduled", tally.updated),
                ("numberAvailable", tally.available),
                ("numberUnavailable", tally.desired - tally.available),
            ];
            set_counts(&mut set["status"], &always, &otherwise);
        });
    }
}

impl Tally {
    fn count(&mut self, pod: Option<&Pod>, hash: &str, long_enough: std::time::Duration, now: Instant) {
        let Some(pod) = pod else { return };
        self.current += 1;
        self.updated += i64::from(pod.label(REVISION) == hash);
        if pod.object.deleting {
            return;
        }
        self.ready += i64::from(pod.is_ready());
        match pod.is_available(long_enough, now) {
            Ok(is_available) => self.available += i64::from(is_available),
            Err(at) => self.next = Some(self.next.map_or(at, |next| next.min(at))),
        }
    }
}

/// The pods of an old template that may be deleted now, within `maxUnavailable`.
fn replaced(set: &Value, tally: &Tally, old: &[&Pod]) -> Vec<Arc<StoredObject>> {
    let strategy = &set["spec"]["updateStrategy"];
    if text(strategy, "type") == "OnDelete" {
        return Vec::new();
    }
    let most = scaled(&strategy["rollingUpdate"]["maxUnavailable"], tally.desired, true).max(1);
    let mut room = most - (tally.desired - tally.available);
    let mut replaced = Vec::new();
    for pod in old.iter().filter(|pod| !pod.object.deleting) {
        // Deleting an unready pod does not reduce the availability.
        if pod.is_ready() {
            if room <= 0 {
                continue;
            }
            room -= 1;
        }
        replaced.push(Arc::clone(&pod.object));
    }
    replaced
}

fn tolerate(spec: &mut Value) {
    let mut tolerations: Vec<Value> = list(spec, "tolerations").to_vec();
    let network = flag(spec, "hostNetwork").then_some(NO_NETWORK);
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    spec["tolerations"] = tolerations.into();
}

/// Requires the node by name, replacing the affinity of the template.
fn for_node(mut pod: Value, node: &str) -> Value {
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let spec = &mut pod["spec"];
    object_mut(spec, "affinity");
    object_mut(&mut spec["affinity"], "nodeAffinity");
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [term]});
    pod
}
