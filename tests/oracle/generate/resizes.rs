//! In-place resizes, and what kubelets report about them.

use serde_json::{Value, json};

use super::generator::Generator;
use super::pods::grow;

/// The containers of a spec, and their statuses.
const CONTAINERS: [(&str, &str); 2] =
    [("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")];

impl Generator<'_> {
    /// Changes the requests of a pod, or what the kubelet has reported about them, or both. As the
    /// scheduler reads the status of any pod, some pods have one before they have a node.
    pub(super) fn resize(&mut self, pod: &mut Value) {
        let old = pod["spec"].clone();
        if self.random.chance(70) {
            self.change_requests(&mut pod["spec"]);
            grow(pod);
        }
        if old["nodeName"].is_string() || self.random.chance(10) {
            let new = pod["spec"].clone();
            self.report_containers(&old, &new, &mut pod["status"]);
            self.report_pod_level(&old, &new, &mut pod["status"]);
            self.report_pending(&mut pod["status"]);
        }
    }

    fn change_requests(&mut self, spec: &mut Value) {
        for (containers, _) in CONTAINERS {
            for container in spec.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
                if self.random.chance(60) {
                    self.change_amounts(&mut container["resources"]);
                }
            }
        }
        let pod_level = spec.get_mut("resources").filter(|resources| resources["requests"].is_object());
        if let Some(resources) = pod_level.filter(|_| self.random.chance(60)) {
            self.change_amounts(resources);
        }
    }

    /// Only CPU and memory can be resized, and neither can be removed.
    fn change_amounts(&mut self, resources: &mut Value) {
        let names = self.random.at_least_one(60, &["cpu", "memory"]);
        let amounts = self.amounts(&names);
        for (name, amount) in amounts.as_object().into_iter().flatten() {
            resources["requests"][name] = amount.clone();
            if let Some(limit) = resources.get_mut("limits").and_then(|limits| limits.get_mut(name)) {
                *limit = amount.clone();
            }
        }
    }

    fn report_containers(&mut self, old: &Value, new: &Value, status: &mut Value) {
        for (containers, statuses) in CONTAINERS {
            let (old, new) = (old[containers].as_array(), new[containers].as_array());
            let mut reports = Vec::new();
            for (old, new) in old.into_iter().flatten().zip(new.into_iter().flatten()) {
                if self.random.chance(85) {
                    reports.push(self.container_status(old, new));
                }
            }
            if !reports.is_empty() {
                status[statuses] = json!(reports);
            }
        }
    }

    fn container_status(&mut self, old: &Value, new: &Value) -> Value {
        let mut status =
            json!({ "name": new["name"], "image": "", "imageID": "", "ready": true, "restartCount": 0 });
        let (old, new) = (&old["resources"]["requests"], &new["resources"]["requests"]);
        if let Some(allocated) = self.reported(old, new) {
            status["allocatedResources"] = allocated;
        }
        if let Some(actuated) = self.reported(old, new) {
            status["resources"] = json!({ "requests": actuated });
        } else if self.random.chance(30) {
            status["resources"] = json!({});
        }
        status
    }

    fn report_pod_level(&mut self, old: &Value, new: &Value, status: &mut Value) {
        let (old, new) = (&old["resources"]["requests"], &new["resources"]["requests"]);
        if !new.is_object() && self.random.chance(70) {
            return;
        }
        let allocated = self.reported(old, new);
        let actuated = self.reported(old, new).map(|requests| json!({ "requests": requests }));
        let resources = actuated.or_else(|| self.random.chance(30).then(|| json!({})));
        for (field, value) in [("allocatedResources", allocated), ("resources", resources)] {
            set(status, field, value);
        }
    }

    /// The amounts before or after the change, others, or none. The API server sends no empty list.
    fn reported(&mut self, old: &Value, new: &Value) -> Option<Value> {
        let amounts = match self.random.below(5) {
            0 => return None,
            1 | 2 => old.clone(),
            3 => new.clone(),
            _ => self.requests(),
        };
        amounts.as_object().is_some_and(|amounts| !amounts.is_empty()).then_some(amounts)
    }

    fn report_pending(&mut self, status: &mut Value) {
        let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "PodResizePending");
        if self.random.chance(50) {
            let reason = self.random.pick(&["Deferred", "Infeasible"]);
            conditions.push(json!({ "type": "PodResizePending", "status": "True", "reason": reason }));
        }
        set(status, "conditions", (!conditions.is_empty()).then(|| json!(conditions)));
    }
}

/// Sets a field, or removes it.
fn set(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    match value {
        Some(value) => object.insert(field.to_owned(), value),
        None => object.remove(field),
    };
}
