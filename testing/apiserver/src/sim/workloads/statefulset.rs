//! Stateful sets.

use std::time::Duration;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::pods::{Counts, Pod};
use super::{BURST, Key, Workloads, min_ready, set_counts, template};
use crate::json::{int, list, object_mut, text, text_at};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const INDEX: &str = "apps.kubernetes.io/pod-index";
const REVISION: &str = "controller-revision-hash";

/// The fields of a stateful set that determine its pods.
struct Wanted {
    first: i64,
    replicas: i64,
    /// Whether each pod waits for the ones before it.
    is_ordered: bool,
    /// Pods with ordinals below the partition are not replaced.
    partition: i64,
    replaces: bool,
    revision: String,
    min_ready: Duration,
}

impl Wanted {
    fn of(set: &Value) -> Self {
        let spec = &set["spec"];
        let strategy = &spec["updateStrategy"];
        Self {
            first: int(&spec["ordinals"], "start").unwrap_or_default(),
            replicas: int(spec, "replicas").unwrap_or(1),
            is_ordered: text(spec, "podManagementPolicy") != "Parallel",
            partition: int(&strategy["rollingUpdate"], "partition").unwrap_or_default(),
            replaces: text(strategy, "type") != "OnDelete",
            revision: format!("{}-{}", text_at(set, "/metadata/name"), template::hash(set)),
            min_ready: min_ready(spec),
        }
    }

    fn end(&self) -> i64 {
        self.first + self.replicas
    }
}

impl Workloads {
    pub(super) fn reconcile_stateful_set(&mut self, key: &Key, set: &Value) {
        let wanted = Wanted::of(set);
        let now = Instant::now();
        let prefix = format!("{}-", text_at(set, "/metadata/name"));
        let ordinal = |pod: &Pod| pod.object.name.strip_prefix(prefix.as_str())?.parse::<i64>().ok();
        let uid = text_at(set, "/metadata/uid");
        let pods: FxHashMap<i64, Pod> =
            self.pods.of(uid).filter_map(|pod| Some((ordinal(pod)?, pod.clone()))).collect();
        self.set_stateful_status(key, set, &wanted, &pods);
        let is_available = |pod: &Pod| pod.is_active() && pod.is_available(wanted.min_ready, now) == Ok(true);
        let mut made = 0;
        for at in wanted.first..wanted.end() {
            match pods.get(&at) {
                None if made < BURST => {
                    made += 1;
                    if !self.create_ordinal(key, set, &wanted, at) || wanted.is_ordered {
                        return;
                    }
                }
                None => return self.retry(key),
                // The pod is created again once it is gone.
                Some(pod) if pod.is_over() && !pod.object.deleting => self.delete_pod(&pod.object),
                Some(pod) if wanted.is_ordered && !is_available(pod) => {
                    self.replace_broken(&wanted, at, pod);
                    return self.look_again(key, pod, &wanted, now);
                }
                Some(_) => {}
            }
        }
        let mut surplus: Vec<i64> =
            pods.keys().copied().filter(|at| *at >= wanted.end() || *at < wanted.first).collect();
        surplus.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
        for at in &surplus {
            if !pods[at].object.deleting {
                self.delete_pod(&pods[at].object);
            }
            if wanted.is_ordered {
                return;
            }
        }
        self.replace_next(&wanted, &pods, is_available);
        for pod in pods.values() {
            self.look_again(key, pod, &wanted, now);
        }
    }

    /// Replaces an unready pod of an old template, so that it does not block the rollout.
    fn replace_broken(&self, wanted: &Wanted, at: i64, pod: &Pod) {
        let is_old = pod.label(REVISION) != wanted.revision && at >= wanted.partition;
        if is_old && wanted.replaces && !pod.is_ready() && !pod.object.deleting {
            self.delete_pod(&pod.object);
        }
    }

    /// Replaces the last pod of an old template, if those after it are available.
    fn replace_next(&self, wanted: &Wanted, pods: &FxHashMap<i64, Pod>, is_available: impl Fn(&Pod) -> bool) {
        if !wanted.replaces {
            return;
        }
        for at in (wanted.first.max(wanted.partition)..wanted.end()).rev() {
            let Some(pod) = pods.get(&at) else { return };
            if pod.label(REVISION) != wanted.revision {
                if !pod.object.deleting {
                    self.delete_pod(&pod.object);
                }
                return;
            }
            if !is_available(pod) {
                return;
            }
        }
    }

    /// A ready pod becomes available without any change that would be noticed.
    fn look_again(&mut self, key: &Key, pod: &Pod, wanted: &Wanted, now: Instant) {
        if let Err(at) = pod.is_available(wanted.min_ready, now) {
            self.enqueue_at(at, key);
        }
    }

    fn create_ordinal(&mut self, key: &Key, set: &Value, wanted: &Wanted, ordinal: i64) -> bool {
        let name = format!("{}-{ordinal}", text_at(set, "/metadata/name"));
        let mut pod = template::pod(self.kind(key.managed), set);
        pod["metadata"]["name"] = name.as_str().into();
        for (label, value) in
            [(POD_NAME, name.as_str()), (INDEX, &ordinal.to_string()), (REVISION, &wanted.revision)]
        {
            template::set_label(&mut pod, label, value);
        }
        let spec = &mut pod["spec"];
        spec["hostname"] = name.as_str().into();
        if !text(&set["spec"], "serviceName").is_empty() {
            spec["subdomain"] = set["spec"]["serviceName"].clone();
        }
        if !self.create_claims(key, set, &name, spec) {
            self.retry(key);
            return false;
        }
        match self.objects.create(&self.pod_kind, &key.namespace, pod) {
            Ok(_) => true,
            Err(status) => {
                tracing::debug!(message = status.message, "cannot create a pod");
                self.retry(key);
                false
            }
        }
    }

    /// Creates missing claims of a pod, and adds them to its volumes.
    fn create_claims(&self, key: &Key, set: &Value, pod: &str, spec: &mut Value) -> bool {
        let templates = list(&set["spec"], "volumeClaimTemplates");
        if templates.is_empty() {
            return true;
        }
        let Some(kind) = self.objects.kind("", "persistentvolumeclaims") else { return false };
        let mut volumes: Vec<Value> = list(spec, "volumes").to_vec();
        for template in templates {
            let volume = text_at(template, "/metadata/name");
            let name = format!("{volume}-{pod}");
            volumes.retain(|known| text(known, "name") != volume);
            volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": name}}));
            if self.objects.get(&kind, &key.namespace, &name).is_some() {
                continue;
            }
            let mut claim = json!({
                "metadata": {"name": name, "labels": template["metadata"]["labels"]}, "spec": template["spec"],
            });
            if let Some(labels) = object_mut(&mut claim["metadata"], "labels")
                && let Some(own) = set["spec"]["selector"]["matchLabels"].as_object()
            {
                labels.extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            if let Err(status) = self.objects.create(&kind, &key.namespace, claim) {
                tracing::debug!(message = status.message, "cannot create a claim");
                return false;
            }
        }
        spec["volumes"] = volumes.into();
        true
    }

    fn set_stateful_status(&mut self, key: &Key, set: &Value, wanted: &Wanted, pods: &FxHashMap<i64, Pod>) {
        let counts = Counts::of(pods.values(), wanted.min_ready, Instant::now());
        let replicas = pods.values().filter(|pod| !pod.is_over()).count();
        let replicas = i64::try_from(replicas).unwrap_or_default();
        let is_new = |pod: &&Pod| pod.label(REVISION) == wanted.revision && pod.is_active();
        let updated = i64::try_from(pods.values().filter(is_new).count()).unwrap_or_default();
        let generation = int(&set["metadata"], "generation").unwrap_or_default();
        let known = text_at(set, "/status/currentRevision");
        let is_current = known.is_empty()
            || (updated == wanted.replicas && replicas == wanted.replicas && counts.ready == wanted.replicas);
        let current = if is_current { wanted.revision.clone() } else { known.to_owned() };
        let has_current = |pod: &&Pod| pod.label(REVISION) == current && pod.is_active();
        let of_current = i64::try_from(pods.values().filter(has_current).count()).unwrap_or_default();
        self.set_status(key, set, |set| {
            let status = &mut set["status"];
            let always =
                [("replicas", replicas), ("availableReplicas", counts.available), ("collisionCount", 0)];
            let otherwise = [
                ("observedGeneration", generation),
                ("readyReplicas", counts.ready),
                ("currentReplicas", of_current),
                ("updatedReplicas", updated),
            ];
            set_counts(status, &always, &otherwise);
            status["currentRevision"] = current.into();
            status["updateRevision"] = wanted.revision.as_str().into();
        });
    }
}
