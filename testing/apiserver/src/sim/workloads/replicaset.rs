//! Replica sets and replication controllers.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::pods::{Counts, Pod};
use super::{BURST, Key, Workloads, min_ready, set_counts, template};
use crate::json::{int, text_at};

impl Workloads {
    pub(super) fn reconcile_replica_set(&mut self, key: &Key, set: &Value) {
        let uid = text_at(set, "/metadata/uid");
        let replicas = int(&set["spec"], "replicas").unwrap_or(1);
        let counts = Counts::of(self.pods.of(uid), min_ready(&set["spec"]), Instant::now());
        if counts.active < replicas {
            let missing = usize::try_from(replicas - counts.active).unwrap_or_default();
            let mut pod = template::pod(self.kind(key.managed), set);
            template::generate_name(&mut pod, set);
            self.create_pods(key, std::iter::repeat_n(pod, missing));
        } else {
            let mut active: Vec<&Pod> = self.pods.of(uid).filter(|pod| pod.is_active()).collect();
            active.sort_by_cached_key(|pod| pod.rank());
            let surplus = usize::try_from(counts.active - replicas).unwrap_or_default().min(BURST);
            let surplus: Vec<_> = active[..surplus].iter().map(|pod| Arc::clone(&pod.object)).collect();
            for pod in &surplus {
                self.delete_pod(pod);
            }
        }
        let generation = int(&set["metadata"], "generation").unwrap_or_default();
        self.set_status(key, set, |set| {
            let otherwise = [
                ("fullyLabeledReplicas", counts.active),
                ("readyReplicas", counts.ready),
                ("availableReplicas", counts.available),
                ("observedGeneration", generation),
            ];
            set_counts(&mut set["status"], &[("replicas", counts.active)], &otherwise);
            if set["kind"] == "ReplicaSet" {
                set_counts(&mut set["status"], &[("terminatingReplicas", counts.terminating)], &[]);
            }
        });
        if let Some(next) = counts.next {
            self.enqueue_at(next, key);
        }
    }
}
