//! Deployments: one replica set for each revision of the template.

use std::sync::Arc;

use serde_json::{Value, json};

use super::rollout::{self, Set};
use super::{Key, Managed, Workloads, controls, set_counts, template};
use crate::json::{entries, flag, int, remove, text, text_at};
use crate::kinds::Kind;
use crate::rest::Part;
use crate::sim::conditions::{self, Condition};
use crate::sim::objects::Identity;

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const TIMES: [&str; 2] = ["lastTransitionTime", "lastUpdateTime"];

impl Workloads {
    pub(super) fn reconcile_deployment(&mut self, key: &Key, deployment: &Value) {
        let mut sets = self.replica_sets(deployment);
        let is_paused = flag(&deployment["spec"], "paused");
        let mut newest = newest(deployment, &sets);
        let plan = rollout::Plan::of(deployment);
        if newest.is_none() && !is_paused && (plan.surges || self.old_pods_are_gone(&sets)) {
            self.create_replica_set(key, deployment, &sets, &plan);
            sets = self.replica_sets(deployment);
            newest = self::newest(deployment, &sets);
        }
        if let Some(newest) = newest
            && !is_paused
        {
            self.set_revision(key, deployment, &mut sets, newest);
        }
        let old_are_gone = self.old_pods_are_gone_but(&sets, newest);
        let targets = plan.targets(&sets, newest, is_paused, old_are_gone);
        for (at, target) in targets {
            self.scale(&sets[at], target, &plan);
        }
        if let Some(newest) = newest
            && plan.is_complete(&sets, newest)
        {
            self.delete_oldest(deployment, &sets, newest);
        }
        self.set_deployment_status(key, deployment, &sets, newest, &plan);
    }

    /// The replica sets of a deployment, oldest first.
    fn replica_sets(&self, deployment: &Value) -> Vec<Set> {
        let uid = text_at(deployment, "/metadata/uid");
        let kind = self.kind(Managed::ReplicaSet);
        let table = kind.resource_key();
        let objects = self.objects.with(|state| {
            let keys = state.store.dependents(uid).filter(|(own, _)| *own == table);
            let table = state.store.table(&table);
            keys.filter_map(|(_, key)| table?.get(key).cloned()).collect::<Vec<_>>()
        });
        let values = objects.iter().filter(|object| !object.deleting).map(|object| object.value(kind));
        let mut sets: Vec<Set> = values.filter(|value| controls(uid, value)).map(Set::of).collect();
        sets.sort_by_cached_key(|set| {
            let created = text_at(&set.value, "/metadata/creationTimestamp").to_owned();
            (created, set.revision(), text_at(&set.value, "/metadata/name").to_owned())
        });
        sets
    }

    fn old_pods_are_gone(&self, sets: &[Set]) -> bool {
        self.old_pods_are_gone_but(sets, None)
    }

    /// Whether all pods of replica sets other than the newest are gone, including terminating ones.
    fn old_pods_are_gone_but(&self, sets: &[Set], newest: Option<usize>) -> bool {
        let mut old = sets.iter().enumerate().filter(|(at, _)| Some(*at) != newest);
        old.all(|(_, set)| {
            let uid = text_at(&set.value, "/metadata/uid");
            set.replicas == 0 && self.pods.of(uid).all(super::pods::Pod::is_over)
        })
    }

    fn create_replica_set(&mut self, key: &Key, deployment: &Value, sets: &[Set], plan: &rollout::Plan) {
        let hash = template::hash(deployment);
        let metadata = &deployment["metadata"];
        let name = format!("{}-{hash}", text(metadata, "name"));
        let mut template = deployment["spec"]["template"].clone();
        template::set_label(&mut template, HASH, &hash);
        let mut selector = deployment["spec"]["selector"].clone();
        if let Some(labels) = crate::json::object_mut(&mut selector, "matchLabels") {
            labels.insert(HASH.to_owned(), hash.as_str().into());
        }
        let annotations: serde_json::Map<String, Value> = entries(metadata, "annotations")
            .filter(|(key, _)| ![LAST_APPLIED, REVISION, DESIRED, MOST].contains(key))
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect();
        let all = sets.iter().map(|set| set.replicas).sum();
        let mut set = json!({
            "metadata": {
                "name": name,
                "labels": template["metadata"]["labels"],
                "annotations": annotations,
                "ownerReferences": template::controller(self.kind(Managed::Deployment), deployment),
            },
            "spec": {
                "replicas": plan.first_replicas(all),
                "selector": selector,
                "template": template,
            },
        });
        if let Some(seconds) = int(&deployment["spec"], "minReadySeconds") {
            set["spec"]["minReadySeconds"] = seconds.into();
        }
        template::set_annotation(&mut set, REVISION, &next_revision(sets, None).to_string());
        set_sizes(&mut set, plan);
        let kind = Arc::clone(self.kind(Managed::ReplicaSet));
        match self.objects.create(&kind, &key.namespace, set) {
            Ok(_) => {
                let message = format!("Created new replica set \"{name}\"");
                let now = self.objects.stamp();
                self.set_status(key, deployment, |deployment| {
                    let condition =
                        Condition::new("Progressing", true).because("NewReplicaSetCreated", &message);
                    conditions::set(deployment, condition, &TIMES, &now);
                });
            }
            Err(status) => {
                tracing::debug!(message = status.message, "cannot create a replica set");
                self.retry(key);
            }
        }
    }

    /// Sets the highest revision on the newest replica set and on the deployment.
    fn set_revision(&mut self, key: &Key, deployment: &Value, sets: &mut [Set], newest: usize) {
        let revision = next_revision(sets, Some(newest)).max(sets[newest].revision());
        let text = revision.to_string();
        if sets[newest].revision() != revision {
            let kind = Arc::clone(self.kind(Managed::ReplicaSet));
            self.update(&kind, &sets[newest].value, |set| template::set_annotation(set, REVISION, &text));
            template::set_annotation(&mut sets[newest].value, REVISION, &text);
        }
        if deployment["metadata"]["annotations"][REVISION] != text.as_str() {
            let kind = Arc::clone(self.kind(key.managed));
            self.update(&kind, deployment, |deployment| {
                template::set_annotation(deployment, REVISION, &text);
            });
        }
    }

    fn scale(&self, set: &Set, replicas: i64, plan: &rollout::Plan) {
        let kind = Arc::clone(self.kind(Managed::ReplicaSet));
        self.update(&kind, &set.value, |set| {
            set["spec"]["replicas"] = replicas.into();
            set_sizes(set, plan);
        });
    }

    fn update(&self, kind: &Kind, object: &Value, change: impl FnOnce(&mut Value)) {
        if let Err(status) = self.objects.update(kind, &Identity::of(object), Part::Main, change) {
            tracing::debug!(message = status.message, "cannot update an object");
        }
    }

    /// Deletes the oldest replica sets beyond the revision history limit.
    fn delete_oldest(&self, deployment: &Value, sets: &[Set], newest: usize) {
        let limit = int(&deployment["spec"], "revisionHistoryLimit").unwrap_or(10);
        let old =
            sets.iter().enumerate().filter(|(at, set)| *at != newest && set.replicas == 0 && set.actual == 0);
        let mut old: Vec<&Set> = old.map(|(_, set)| set).collect();
        old.sort_by_key(|set| set.revision());
        let surplus = old.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        let kind = self.kind(Managed::ReplicaSet);
        for set in &old[..surplus] {
            let _ = self.objects.delete(kind, &Identity::of(&set.value), None);
        }
    }

    fn set_deployment_status(
        &mut self,
        key: &Key,
        deployment: &Value,
        sets: &[Set],
        newest: Option<usize>,
        plan: &rollout::Plan,
    ) {
        let sum = |of: fn(&Set) -> i64| sets.iter().map(of).sum::<i64>();
        let (actual, ready, available) =
            (sum(|set| set.actual), sum(|set| set.ready), sum(|set| set.available));
        let updated = newest.map_or(0, |newest| sets[newest].actual);
        let unavailable = (sum(|set| set.replicas) - available).max(0);
        let generation = int(&deployment["metadata"], "generation").unwrap_or_default();
        let is_available = available >= plan.replicas - plan.max_unavailable;
        let is_complete = newest.is_some_and(|newest| plan.is_complete(sets, newest));
        let name = newest.map_or("", |newest| text_at(&sets[newest].value, "/metadata/name")).to_owned();
        let is_paused = flag(&deployment["spec"], "paused");
        let now = self.objects.stamp();
        self.set_status(key, deployment, |deployment| {
            let otherwise = [
                ("observedGeneration", generation),
                ("replicas", actual),
                ("updatedReplicas", updated),
                ("readyReplicas", ready),
                ("availableReplicas", available),
                ("unavailableReplicas", unavailable),
            ];
            set_counts(
                &mut deployment["status"],
                &[("terminatingReplicas", sum(|set| set.terminating))],
                &otherwise,
            );
            let condition = if is_available {
                let why = "Deployment has minimum availability.";
                Condition::new("Available", true).because("MinimumReplicasAvailable", why)
            } else {
                let why = "Deployment does not have minimum availability.";
                Condition::new("Available", false).because("MinimumReplicasUnavailable", why)
            };
            conditions::set(deployment, condition, &TIMES, &now);
            set_progress(
                deployment,
                &Progress { set: &name, is_paused, is_complete, is_updated: actual == updated },
                &now,
            );
        });
    }
}

struct Progress<'a> {
    /// The name of the newest replica set.
    set: &'a str,
    is_paused: bool,
    is_complete: bool,
    /// Whether only pods of the newest replica set exist.
    is_updated: bool,
}

fn set_progress(deployment: &mut Value, progress: &Progress<'_>, now: &str) {
    let known = conditions::find(deployment, "Progressing");
    let reason = known.map_or("", |known| text(known, "reason")).to_owned();
    let condition = if progress.is_paused {
        let paused = Condition::new("Progressing", true).because("DeploymentPaused", "Deployment is paused");
        Condition { status: "Unknown", ..paused }
    } else if progress.set.is_empty() || (progress.is_updated && reason == "NewReplicaSetAvailable") {
        return;
    } else if progress.is_complete {
        let message = format!("ReplicaSet \"{}\" has successfully progressed.", progress.set);
        let condition = Condition::new("Progressing", true).because("NewReplicaSetAvailable", &message);
        return conditions::set(deployment, condition, &TIMES, now);
    } else {
        let message = format!("ReplicaSet \"{}\" is progressing.", progress.set);
        let condition = Condition::new("Progressing", true).because("ReplicaSetUpdated", &message);
        return conditions::set(deployment, condition, &TIMES, now);
    };
    conditions::set(deployment, condition, &TIMES, now);
}

/// The replica set with the deployment's template; the oldest if there are several.
fn newest(deployment: &Value, sets: &[Set]) -> Option<usize> {
    let wanted = &deployment["spec"]["template"];
    sets.iter().position(|set| {
        let mut template = set.value["spec"]["template"].clone();
        remove(&mut template["metadata"]["labels"], HASH);
        let is_empty = |labels: &Value| labels.as_object().is_none_or(serde_json::Map::is_empty);
        if is_empty(&template["metadata"]["labels"]) && is_empty(&wanted["metadata"]["labels"]) {
            template["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
        }
        template == *wanted
    })
}

/// The revision after those of all replica sets except `but`.
fn next_revision(sets: &[Set], but: Option<usize>) -> i64 {
    let others = sets.iter().enumerate().filter(|(at, _)| Some(*at) != but);
    others.map(|(_, set)| set.revision()).max().unwrap_or_default() + 1
}

fn set_sizes(set: &mut Value, plan: &rollout::Plan) {
    template::set_annotation(set, DESIRED, &plan.replicas.to_string());
    template::set_annotation(set, MOST, &(plan.replicas + plan.max_surge).to_string());
}
