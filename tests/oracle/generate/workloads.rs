//! Objects that select pods: Services, workloads and PodDisruptionBudgets.

use anyhow::Result;
use serde_json::{Value, json};

use super::generator::Generator;
use super::mix::Kind;
use super::names::{APPS, NAMESPACES};
use crate::oracle::history::Step;

impl Generator<'_> {
    pub(super) fn prepare_workloads(&mut self) -> Result<()> {
        if self.mix.of(Kind::Workloads) > 0 {
            for _ in 0..self.random.between(1, 4) {
                self.add_workload()?;
            }
        }
        if self.mix.of(Kind::Preemption) > 0 {
            for _ in 0..self.random.between(0, 3) {
                self.add_budget()?;
            }
        }
        Ok(())
    }

    fn some_namespace(&mut self) -> &'static str {
        if self.random.chance(70) {
            return NAMESPACES[0];
        }
        let any: &&str = self.random.pick(&NAMESPACES);
        any
    }

    fn add_workload(&mut self) -> Result<()> {
        let (namespace, name) = (self.some_namespace(), format!("w{}", self.made));
        let metadata = self.metadata(namespace, &name);
        let app = *self.random.pick(&APPS);
        let (api_version, kind, selector) = match self.random.below(4) {
            0 => ("apps/v1", "ReplicaSet", self.label_selector()),
            1 => ("apps/v1", "StatefulSet", json!({ "matchLabels": { "app": app } })),
            2 => ("v1", "ReplicationController", json!({ "app": app })),
            _ => ("v1", "Service", json!({ "app": app })),
        };
        let mut spec = json!({ "selector": selector });
        if api_version == "apps/v1" {
            spec["template"] =
                json!({ "metadata": { "labels": { "app": app } }, "spec": { "containers": [] } });
        }
        self.apply(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec }))
    }

    /// Makes a matching workload the owner of a pod.
    pub(super) fn adopt(&mut self, pod: &mut Value) {
        if !self.has(Kind::Workloads) {
            return;
        }
        let kind = *self.random.pick(&["ReplicaSet", "StatefulSet", "ReplicationController"]);
        let mut workloads = self.subject.objects(kind);
        workloads.retain(|workload| workload["metadata"]["namespace"] == pod["metadata"]["namespace"]);
        if workloads.is_empty() {
            return;
        }
        let workload = &workloads[self.random.below(workloads.len())];
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": workload["apiVersion"], "kind": kind, "name": workload["metadata"]["name"],
            "uid": workload["metadata"]["uid"], "controller": true,
        }]);
    }

    fn add_budget(&mut self) -> Result<()> {
        let (namespace, name) = (self.some_namespace(), format!("b{}", self.made));
        let metadata = self.metadata(namespace, &name);
        let selector = self.label_selector();
        let allowed = self.random.below(3);
        self.apply(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata,
            "spec": { "selector": selector, "minAvailable": 1 },
            "status": {
                "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
            },
        }))
    }

    /// Changes one of the objects that select pods.
    pub(super) fn change_workloads(&mut self) -> Result<()> {
        match self.random.below(6) {
            0 if self.mix.of(Kind::Workloads) > 0 => self.add_workload(),
            1 => self.with_some("Service", |this, service| this.take(Step::Delete(service))),
            2 if self.mix.of(Kind::Preemption) > 0 => self.add_budget(),
            3 => self.with_some("PodDisruptionBudget", |this, budget| {
                this.change(&budget, |this, budget| {
                    budget["status"]["disruptionsAllowed"] = json!(this.random.below(3));
                })
            }),
            4 => self.with_some("Namespace", |this, namespace| {
                this.change(&namespace, |this, namespace| {
                    namespace["metadata"]["labels"]["team"] = json!(this.random.pick(&["a", "b"]));
                })
            }),
            _ => Ok(()),
        }
    }
}
