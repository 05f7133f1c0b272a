//! Disruption budgets.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{BUDGET_PAUSE, Key, Workloads};
use crate::json::int;
use crate::object::StoredObject;
use crate::strategy::labels;
use crate::strategy::pod::pdb;

impl Workloads {
    pub(super) fn budget_changed(&mut self, key: &Key, object: &StoredObject) {
        let value = object.value(self.kind(key.managed));
        let selector = value["spec"]["selector"].clone();
        self.budgets.entry(key.namespace.clone()).or_default().insert(key.name.clone(), selector);
    }

    /// Schedules the budgets of a pod to be reconciled soon.
    pub(super) fn pod_concerns_budgets(&mut self, pod: &StoredObject) {
        let Some(budgets) = self.budgets.get(&pod.namespace).filter(|budgets| !budgets.is_empty()) else {
            return;
        };
        let labels = labels_of(pod);
        let concerned = budgets.iter().filter(|(_, selector)| selects(selector, &labels));
        let key = |name: &str| Key {
            managed: super::Managed::Budget,
            namespace: pod.namespace.clone(),
            name: name.into(),
        };
        let concerned: Vec<Key> = concerned.map(|(name, _)| key(name)).collect();
        for key in concerned {
            if self.budgets_due.insert(key.clone()) {
                self.enqueue_at(Instant::now() + BUDGET_PAUSE, &key);
            }
        }
    }

    pub(super) fn reconcile_budget(&mut self, key: &Key, budget: &Value) {
        let selector = &budget["spec"]["selector"];
        let table = self.pod_kind.resource_key();
        let covered = |pod: &&Arc<StoredObject>| selects(selector, &labels_of(pod));
        let pods: Vec<Arc<StoredObject>> = self.objects.with(|state| {
            let pods = state.store.table(&table).map(|table| table.range(&key.namespace, None));
            pods.into_iter().flatten().filter(covered).cloned().collect()
        });
        for pod in &pods {
            let parsed = self.parsed_pods.entry(pod.uid.clone()).or_default();
            if parsed.0 != pod.version() {
                *parsed = (pod.version(), pod.metadata_and_status());
            }
        }
        let pods = pods.iter().map(|pod| &self.parsed_pods[&pod.uid].1);
        let now = self.objects.now();
        let mut status = self.objects.with(|state| pdb::compute_status(budget, pods, state, now));
        status["observedGeneration"] = int(&budget["metadata"], "generation").unwrap_or_default().into();
        pdb::set_condition(&mut status, &self.objects.stamp());
        self.set_status(key, budget, |budget| budget["status"] = status);
    }
}

fn labels_of(object: &StoredObject) -> Value {
    let labels = object.labels.iter().map(|(key, value)| (key.to_string(), Value::from(&**value)));
    Value::Object(labels.collect::<Map<String, Value>>())
}

/// A budget without a selector covers no pods.
fn selects(selector: &Value, labels: &Value) -> bool {
    selector.is_object() && labels::selects(selector, labels)
}
