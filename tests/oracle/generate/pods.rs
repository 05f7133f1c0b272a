//! Pods: templates, and pods made from them.

use serde_json::{Map, Value, json};
use supercargo_framework::Feature;

use super::configuration::PROFILES;
use super::generator::{Generator, moment};
use super::mix::Kind;
use super::names::{APPS, NAMESPACES, TRACKS};
use super::nodes::{DISKS, IMAGES, TAINTS, ZONE, ZONES};
use crate::oracle::subject::TURNSTILE;

pub(super) const GATES: [&str; 2] = ["example.com/quota", "example.com/audit"];

impl Generator<'_> {
    /// The common part of the pods of one template: namespace, labels and spec.
    pub(super) fn template(&mut self) -> Value {
        let namespace = *self
            .random
            .weighted(&[(6, &NAMESPACES[0]), (2, &NAMESPACES[1]), (1, &NAMESPACES[2])])
            .unwrap_or(&NAMESPACES[0]);
        let mut labels = Map::new();
        if self.random.chance(90) {
            labels.insert("app".to_owned(), json!(self.random.pick(&APPS)));
        }
        if self.random.chance(50) {
            labels.insert("track".to_owned(), json!(self.random.pick(&TRACKS)));
        }
        if self.mix.of(Kind::Permit) > 0 && self.has(Kind::Permit) {
            // Not "shut": upstream's failed binding and the cycle that shuts go on at the same
            // time.
            let wish = self.random.pick(&["wait", "wait", "wait", "open", "open", "reject", "fail"]);
            labels.insert(TURNSTILE.to_owned(), json!(wish));
        }
        let containers: Vec<Value> =
            (0..self.random.between(1, 2)).map(|i| self.container(&format!("c{i}"), true)).collect();
        let mut spec =
            json!({ "schedulerName": "supercargo", "containers": containers, "restartPolicy": "Always" });
        if self.has(Kind::InitContainers) {
            let containers = (0..self.random.between(1, 3)).map(|i| {
                let mut container = self.container(&format!("i{i}"), false);
                if self.random.chance(40) {
                    container["restartPolicy"] = json!("Always");
                }
                container
            });
            spec["initContainers"] = containers.collect();
        }
        if self.has(Kind::PodLevel) {
            spec["resources"] = json!({ "requests": self.amounts(&["cpu", "memory"]) });
        }
        if self.has(Kind::Overhead) {
            spec["overhead"] = self.amounts(&["cpu", "memory"]);
        }
        if self.has(Kind::NodeSelector) {
            spec["nodeSelector"] = match self.random.below(3) {
                0 => json!({ "disk": self.random.pick(&DISKS) }),
                1 => json!({ ZONE: self.random.pick(&ZONES) }),
                _ => json!({ "disk": self.random.pick(&DISKS), "missing": "x" }),
            };
        }
        self.node_affinity(&mut spec);
        if self.has(Kind::Taints) {
            spec["tolerations"] = json!(self.tolerations());
        }
        self.topology_spread(&mut spec);
        self.pod_affinity(&mut spec);
        self.volumes(namespace, &mut spec);
        self.pod_resource_claims(namespace, &mut spec);
        if self.may_use_devices(&spec) {
            // Two pods would write at one time.
            labels.retain(|key, value| key != TURNSTILE || value != "open");
        }
        if self.has(Kind::Features) {
            if self.random.chance(50) {
                spec["hostNetwork"] = json!(true);
                spec["hostUsers"] = json!(false);
            } else {
                spec["containers"][0]["restartPolicy"] = json!("Always");
                spec["containers"][0]["restartPolicyRules"] = json!([{
                    "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] },
                }]);
            }
        }
        json!({ "namespace": namespace, "labels": labels, "spec": spec })
    }

    /// A pod from a template.
    pub(super) fn pod(&mut self, template: &Value, name: &str) -> Value {
        let namespace = template["namespace"].as_str().unwrap_or("default").to_owned();
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self.metadata(&namespace, name),
            "spec": template["spec"],
            // Upstream uses the current time for a pod without a start time, and its clock stands
            // still here. Start times do not follow the order of creation.
            "status": { "phase": "Pending", "startTime": moment("1999-12-30T", self.made.wrapping_mul(7919) % 86_399) },
        });
        pod["metadata"]["labels"] = template["labels"].clone();
        pod["metadata"]["generation"] = json!(1);
        let spec = &mut pod["spec"];
        if self.random.chance(3) {
            spec["schedulerName"] = json!("another");
        } else if self.profiles > 1 && self.random.chance(35) {
            spec["schedulerName"] = json!(PROFILES[1]);
        }
        if self.mix.of(Kind::Priorities) > 0 {
            spec["priority"] = json!(self.random.pick(&[0, 0, 10, 100, 1000, -5]));
        }
        if self.mix.of(Kind::Preemption) > 0 {
            spec["priority"] = json!(self.random.pick(&[0, 0, 0, 10, 100, 1000]));
            if self.random.chance(10) {
                spec["preemptionPolicy"] = json!("Never");
            }
            if self.random.chance(50) {
                spec["terminationGracePeriodSeconds"] = json!(self.random.pick(&[0, 5, 30]));
            }
        }
        let waits = template["labels"][TURNSTILE] == "wait";
        if waits && spec["priority"].is_number() {
            // No pod preempts one that waits: whether the preemptor is queued by then is a race
            // upstream.
            spec["priority"] = json!(1000);
        }
        // Two pods would write at one time, or one would promise a volume that upstream's other
        // profiles do not know of.
        if template["labels"][TURNSTILE] == "open" || (waits && self.profiles > 1) {
            remove(spec, "volumes");
        }
        if self.has(Kind::Gates) && self.has_lasting_claims(&namespace, &pod["spec"]) {
            let gates = self.random.at_least_one(60, &GATES);
            pod["spec"]["schedulingGates"] = gates.iter().map(|gate| json!({ "name": gate })).collect();
        }
        pod
    }

    fn container(&mut self, name: &str, may_have_ports: bool) -> Value {
        let mut container = json!({ "name": name, "image": "plain:1" });
        if self.has(Kind::Images) {
            container["image"] = json!(self.random.pick(&IMAGES));
        }
        if self.random.chance(30 + self.mix.of(Kind::Requests)) {
            let requests = self.requests();
            if self.random.chance(20) {
                container["resources"]["limits"] = requests.clone();
            }
            container["resources"]["requests"] = requests;
        }
        if self.has(Kind::ExtendedResources) {
            let (name, amount) = self.extended_resource();
            container["resources"]["requests"][name] = amount;
        }
        if (may_have_ports || self.random.chance(30)) && self.has(Kind::HostPorts) {
            let ports = (0..self.random.between(1, 2)).map(|_| {
                let mut port =
                    json!({ "containerPort": 80, "hostPort": *self.random.pick(&[80, 443, 8080]) });
                if self.random.chance(60) {
                    port["protocol"] = json!(self.random.pick(&["TCP", "UDP"]));
                }
                if self.random.chance(40) {
                    port["hostIP"] = json!(self.random.pick(&["0.0.0.0", "10.0.0.1", "10.0.0.2"]));
                }
                port
            });
            container["ports"] = ports.collect();
        }
        container
    }

    /// Amounts of any resources.
    pub(super) fn requests(&mut self) -> Value {
        let names = self.random.some(80, &["cpu", "memory"]);
        let mut requests = self.amounts(&names);
        if self.has(Kind::Requests) {
            match self.random.below(5) {
                0 => requests["ephemeral-storage"] = json!(self.random.pick(&["500Mi", "3Gi"])),
                1 => requests["example.com/gpu"] = json!(self.random.pick(&["1", "2"])),
                2 => requests["hugepages-2Mi"] = json!(self.random.pick(&["4Mi", "128Mi"])),
                3 => requests["example.com/none"] = json!(self.random.pick(&["1", "0"])),
                _ => requests["cpu"] = json!(self.random.pick(&["3", "0"])),
            }
        }
        requests
    }

    pub(super) fn amounts(&mut self, names: &[&str]) -> Value {
        let mut amounts = Map::new();
        for name in names {
            let choices = if *name == "cpu" {
                ["100m", "250m", "500m", "1", "1500m"]
            } else {
                ["64Mi", "200Mi", "500M", "1Gi", "1500Mi"]
            };
            amounts.insert((*name).to_owned(), json!(self.random.pick(&choices)));
        }
        Value::Object(amounts)
    }

    fn node_affinity(&mut self, spec: &mut Value) {
        let affinity = "nodeAffinity";
        let mut terms: Vec<Value> = Vec::new();
        if self.has(Kind::NodeAffinity) {
            terms.extend((0..self.random.between(1, 2)).map(|_| self.node_term(2)));
        }
        if self.has(Kind::MatchFields) {
            terms.extend((0..self.random.between(1, 2)).map(|_| {
                let name = self.some_node_name();
                let operator = if self.random.chance(75) { "In" } else { "NotIn" };
                let mut term = json!({ "matchFields": [{ "key": "metadata.name", "operator": operator, "values": [name] }] });
                if self.random.chance(25) {
                    term["matchExpressions"] = json!([self.node_expression()]);
                }
                term
            }));
        }
        if !terms.is_empty() {
            spec["affinity"][affinity]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({ "nodeSelectorTerms": terms });
        }
        if self.has(Kind::PreferredNodes) {
            let preferred = (0..self.random.between(1, 3)).map(|_| {
                let weight = *self.random.pick(&[1, 10, 50, 100]);
                json!({ "weight": weight, "preference": self.node_term(1) })
            });
            spec["affinity"][affinity]["preferredDuringSchedulingIgnoredDuringExecution"] =
                preferred.collect();
        }
    }

    fn node_term(&mut self, most: usize) -> Value {
        let expressions: Vec<Value> =
            (0..self.random.between(1, most)).map(|_| self.node_expression()).collect();
        json!({ "matchExpressions": expressions })
    }

    fn node_expression(&mut self) -> Value {
        let random = &mut self.random;
        match random.below(7) {
            0 => json!({ "key": "disk", "operator": "In", "values": [random.pick(&DISKS)] }),
            1 => json!({ "key": "disk", "operator": "NotIn", "values": [random.pick(&DISKS)] }),
            2 => json!({ "key": ZONE, "operator": "In", "values": random.at_least_one(60, &ZONES) }),
            3 => json!({ "key": ZONE, "operator": "Exists" }),
            4 => json!({ "key": "disk", "operator": "DoesNotExist" }),
            5 => {
                json!({ "key": "generation", "operator": "Gt", "values": [random.between(1, 6).to_string()] })
            }
            _ => {
                json!({ "key": "generation", "operator": "Lt", "values": [random.between(3, 9).to_string()] })
            }
        }
    }

    pub(super) fn tolerations(&mut self) -> Vec<Value> {
        let tolerated = self.random.some(40, &TAINTS);
        let mut tolerations: Vec<Value> = tolerated
            .into_iter()
            .map(|(key, value, effect)| {
                let mut toleration = json!({ "key": key });
                if self.random.chance(60) {
                    toleration["operator"] = json!("Equal");
                    toleration["value"] = json!(value);
                } else {
                    toleration["operator"] = json!("Exists");
                }
                if self.random.chance(70) {
                    toleration["effect"] = json!(effect);
                }
                toleration
            })
            .collect();
        if self.is_on(Feature::TaintTolerationComparisonOperators) && self.random.chance(60) {
            let (operator, value) = (*self.random.pick(&["Gt", "Lt"]), *self.random.pick(&["3", "5", "7"]));
            tolerations.push(
                json!({ "key": "level", "operator": operator, "value": value, "effect": "NoSchedule" }),
            );
        }
        if self.random.chance(10) {
            tolerations.push(json!({ "operator": "Exists" }));
        }
        if self.random.chance(10) {
            tolerations.push(json!({ "key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule" }));
        }
        tolerations
    }
}

fn remove(spec: &mut Value, field: &str) {
    if let Some(spec) = spec.as_object_mut() {
        spec.remove(field);
    }
}

/// The generation of a pod whose spec has changed.
pub(super) fn grow(pod: &mut Value) {
    pod["metadata"]["generation"] = json!(pod["metadata"]["generation"].as_i64().unwrap_or(1) + 1);
}
