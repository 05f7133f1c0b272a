//! ResourceClaims: those of users and of pods, and the work of their controller and of drivers.

use anyhow::Result;
use serde_json::{Value, json};

use super::devices::{CLASSES, GPU, selectors};
use super::generator::Generator;
use super::mix::Kind;
use super::names::NAMESPACES;
use crate::oracle::history::{Reference, Step};

/// The names of claims: few, so that pods share them, and one that never exists.
const CLAIMS: [&str; 7] = ["r0", "r1", "r2", "r3", "r4", "r5", "missing"];

impl Generator<'_> {
    /// The claims of a template of pods.
    pub(super) fn pod_resource_claims(&mut self, namespace: &str, spec: &mut Value) {
        if !self.has_devices() || !self.has(Kind::Devices) {
            return;
        }
        let count = if self.random.chance(30) { 2 } else { 1 };
        let mut claims: Vec<Value> = (0..count)
            .map(|number| {
                let name = format!("claim-{number}");
                if self.random.chance(50) {
                    return json!({ "name": name, "resourceClaimTemplateName": "template" });
                }
                json!({ "name": name, "resourceClaimName": self.some_resource_claim(namespace) })
            })
            .collect();
        // Two bindings that both fail at the second name would write at one time.
        claims.dedup_by(|one, other| {
            one["resourceClaimName"].is_string() && one["resourceClaimName"] == other["resourceClaimName"]
        });
        spec["resourceClaims"] = json!(claims);
    }

    /// The name of a claim, in most cases of an existing one, and often of one with devices.
    fn some_resource_claim(&mut self, namespace: &str) -> String {
        let mut claims = self.subject.objects("ResourceClaim");
        claims.retain(|claim| claim["metadata"]["namespace"] == *namespace);
        let has_devices = |claim: &Value| claim["status"]["allocation"].is_object();
        if self.random.chance(50) && claims.iter().any(has_devices) {
            claims.retain(has_devices);
        }
        if claims.is_empty() || self.random.chance(10) {
            return (*self.random.pick(&CLAIMS)).to_owned();
        }
        claims[self.random.below(claims.len())]["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether the claims of a pod exist as long as it has gates. Upstream asks the plugins
    /// that hold a pod back in random order, so only one of them may do so.
    pub(super) fn has_lasting_claims(&self, namespace: &str, spec: &Value) -> bool {
        let claims = self.subject.objects("ResourceClaim");
        spec["resourceClaims"].as_array().into_iter().flatten().all(|used| {
            let name = used["resourceClaimName"].as_str().unwrap_or_default();
            let exists = |claim: &Value| {
                claim["metadata"]["namespace"] == *namespace
                    && claim["metadata"]["name"] == *name
                    && claim["metadata"]["deletionTimestamp"].is_null()
            };
            CLAIMS.contains(&name) && claims.iter().any(exists)
        })
    }

    /// Whether a pod with gates uses the claim.
    fn is_used_behind_gates(&self, claim: &Reference) -> bool {
        self.subject.objects("Pod").iter().any(|pod| {
            let mut used = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
            pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
                && pod["metadata"]["namespace"] == *claim.namespace
                && used.any(|used| used["resourceClaimName"] == *claim.name)
        })
    }

    /// Creates a claim of one of the known names, sometimes with an allocation by another
    /// scheduler.
    pub(super) fn add_resource_claim(&mut self) -> Result<()> {
        let namespace =
            *self.random.weighted(&[(5, &NAMESPACES[0]), (1, &NAMESPACES[1])]).unwrap_or(&NAMESPACES[0]);
        let name = CLAIMS[self.random.below(CLAIMS.len() - 1)];
        let mut claim = self.resource_claim(namespace, name);
        if self.subject.object(&Reference::of(&claim)).is_some() {
            return Ok(());
        }
        if self.random.chance(15) {
            self.allocate_elsewhere(&mut claim);
        }
        self.apply(claim)
    }

    fn resource_claim(&mut self, namespace: &str, name: &str) -> Value {
        let count = *self.random.pick(&[1, 1, 1, 2]);
        let requests: Vec<Value> = (0..count).map(|number| self.request(&format!("q{number}"))).collect();
        let mut devices = json!({ "requests": requests });
        if self.random.chance(25) {
            let attribute =
                *self.random.pick(&["gpu.example.com/model", "gpu.example.com/numa", "example.com/rack"]);
            let constraint = if self.random.chance(75) { "matchAttribute" } else { "distinctAttribute" };
            devices["constraints"] = json!([{ constraint: attribute }]);
            if self.random.chance(30) {
                devices["constraints"][0]["requests"] = json!(["q0"]);
            }
        }
        if self.random.chance(20) {
            devices["config"] =
                json!([{ "opaque": { "driver": GPU, "parameters": { "by": "claim", "a": [1, "b"] } } }]);
            if self.random.chance(50) {
                devices["config"][0]["requests"] = json!(["q0"]);
            }
        }
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": self.metadata(namespace, name),
            "spec": { "devices": devices },
        })
    }

    fn request(&mut self, name: &str) -> Value {
        if self.has(Kind::Alternatives) {
            let alternatives: Vec<Value> = (0..self.random.between(1, 3))
                .map(|number| {
                    let mut alternative = self.exact_request();
                    alternative["name"] = json!(format!("s{number}"));
                    alternative
                })
                .collect();
            return json!({ "name": name, "firstAvailable": alternatives });
        }
        let mut exactly = self.exact_request();
        if self.random.chance(8) {
            exactly["adminAccess"] = json!(self.random.chance(80));
        }
        json!({ "name": name, "exactly": exactly })
    }

    fn exact_request(&mut self) -> Value {
        let class = *self
            .random
            .weighted(&[(10, &CLASSES[0]), (4, &CLASSES[1]), (4, &CLASSES[2]), (1, &CLASSES[3])])
            .unwrap_or(&CLASSES[0]);
        let mut request = json!({ "deviceClassName": class });
        if self.random.chance(12) {
            request["allocationMode"] = json!("All");
        } else {
            request["allocationMode"] = json!("ExactCount");
            request["count"] = json!(*self.random.pick(&[1, 1, 1, 1, 2, 3, 33]));
        }
        if self.random.chance(30) {
            let expressions: Vec<String> =
                (0..self.random.between(1, 2)).map(|_| self.expression()).collect();
            request["selectors"] = selectors(&expressions);
        }
        if self.has(Kind::DeviceTaints) {
            request["tolerations"] = json!(self.device_tolerations());
        }
        if self.has(Kind::SharedDevices) {
            let amount = *self.random.pick(&["1Gi", "3Gi", "5Gi", "20Gi"]);
            let name = if self.random.chance(92) { "memory" } else { "speed" };
            request["capacity"] = json!({ "requests": { name: amount } });
        }
        request
    }

    /// Gives a claim a device, as another scheduler does.
    fn allocate_elsewhere(&mut self, claim: &mut Value) {
        let slices = self.subject.objects("ResourceSlice");
        let Some(slice) = (!slices.is_empty()).then(|| &slices[self.random.below(slices.len())]) else {
            return;
        };
        let devices = slice["spec"]["devices"].as_array().cloned().unwrap_or_default();
        if devices.is_empty() {
            return;
        }
        let device = &devices[self.random.below(devices.len())];
        if self.is_taken(&slice["spec"], device) {
            return;
        }
        let request = &claim["spec"]["devices"]["requests"][0];
        let mut result = json!({
            "request": request["name"], "driver": slice["spec"]["driver"], "pool": slice["spec"]["pool"]["name"],
            "device": device["name"],
        });
        if let Some(alternative) = request["firstAvailable"][0]["name"].as_str() {
            let name = request["name"].as_str().unwrap_or_default();
            result["request"] = json!(format!("{name}/{alternative}"));
        }
        for field in ["bindingConditions", "bindingFailureConditions"] {
            if device[field].is_array() {
                result[field] = device[field].clone();
            }
        }
        if device["allowMultipleAllocations"] == true && device["capacity"]["memory"].is_object() {
            result["shareID"] = json!(format!("00000000-0000-4000-8000-{:012}", self.made));
            result["consumedCapacity"] = json!({ "memory": "2Gi" });
        }
        let mut allocation = json!({ "devices": { "results": [result] } });
        if self.random.chance(80) {
            let node = match slice["spec"]["nodeName"].as_str() {
                Some(node) => node.to_owned(),
                None => self.some_node_name(),
            };
            let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
            allocation["nodeSelector"] = json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
        }
        if self.random.chance(70) {
            allocation["allocationTimestamp"] = json!("1999-12-31T00:00:00Z");
        }
        claim["status"] = json!({ "allocation": allocation });
        if self.random.chance(30) {
            claim["status"]["reservedFor"] =
                json!([{ "resource": "pods", "name": "elsewhere", "uid": "uid-elsewhere" }]);
        }
        if self.random.chance(80) {
            claim["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
        }
    }

    /// Whether a claim has the device for itself, or a binding is about to give it to one.
    fn is_taken(&self, slice: &Value, device: &Value) -> bool {
        let mut claims =
            self.subject.objects("ResourceClaim").into_iter().chain(self.subject.pending_claims());
        claims.any(|claim| {
            let results = claim["status"]["allocation"]["devices"]["results"].as_array();
            results.into_iter().flatten().any(|result| {
                result["driver"] == slice["driver"]
                    && result["pool"] == slice["pool"]["name"]
                    && result["device"] == device["name"]
                    && result["shareID"].is_null()
            })
        })
    }

    /// Changes claims.
    pub(super) fn change_resource_claims(&mut self) -> Result<()> {
        match self.random.below(10) {
            0 | 1 => self.add_resource_claim(),
            2 => self.with_idle_claim(|this, claim| {
                if this.is_used_behind_gates(&claim) { Ok(()) } else { this.take(Step::Delete(claim)) }
            }),
            3 => self.with_some("ResourceClaim", |this, claim| {
                let may_go = !this.is_used_behind_gates(&claim);
                this.change(&claim, |this, claim| {
                    if may_go && this.random.chance(30) {
                        claim["metadata"]["deletionTimestamp"] = json!("2000-01-02T00:00:00Z");
                    } else {
                        claim["metadata"]["labels"]["note"] = json!(this.version.to_string());
                    }
                })
            }),
            4 => self.with_idle_claim(|this, claim| {
                this.change(&claim, |this, claim| {
                    if claim["status"]["allocation"].is_object() {
                        deallocate(claim);
                    } else {
                        this.allocate_elsewhere(claim);
                    }
                })
            }),
            5 | 6 => self.give_back(),
            _ => self.generate_resource_claims(),
        }
    }

    /// Changes a claim that no binding in flight allocates or has reserved: upstream keeps what
    /// such a binding is to write.
    fn with_idle_claim(&mut self, change: impl FnOnce(&mut Self, Reference) -> Result<()>) -> Result<()> {
        self.with_some("ResourceClaim", |this, claim| {
            let is_idle = this.subject.object(&claim).is_some_and(|claim| !this.is_being_bound(&claim));
            if is_idle { change(this, claim) } else { Ok(()) }
        })
    }

    fn is_being_bound(&self, claim: &Value) -> bool {
        let reserved = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        let is_reserved = |uid: &Value| reserved.iter().any(|consumer| consumer["uid"] == *uid);
        let is_allocated = claim["status"]["allocation"].is_object();
        self.subject.bindings_with(claim).iter().any(|uid| !is_allocated || is_reserved(uid))
    }

    /// Takes a claim away from a pod that waits on Permit.
    pub(super) fn lose_claim(&mut self) -> Result<()> {
        let mut claims = self.subject.objects("ResourceClaim");
        claims.retain(|claim| {
            !self.subject.bindings_with(claim).is_empty()
                && !self.is_being_bound(claim)
                && !self.is_used_behind_gates(&Reference::of(claim))
        });
        if claims.is_empty() {
            return Ok(());
        }
        let claim = Reference::of(self.random.pick(&claims));
        if self.random.chance(50) {
            return self.take(Step::Delete(claim));
        }
        self.change(&claim, |_, claim| deallocate(claim))
    }

    /// Acts as the driver of one claim's devices, if any has conditions.
    pub(super) fn report_devices(&mut self) -> Result<()> {
        let mut claims = self.subject.objects("ResourceClaim");
        claims.retain(|claim| claim["status"]["allocation"].to_string().contains("bindingConditions"));
        if claims.is_empty() {
            return Ok(());
        }
        let claim = Reference::of(self.random.pick(&claims));
        self.change(&claim, Self::report_conditions)
    }

    /// Reports the conditions of a claim's devices.
    fn report_conditions(&mut self, claim: &mut Value) {
        let results =
            claim["status"]["allocation"]["devices"]["results"].as_array().cloned().unwrap_or_default();
        let mut devices = Vec::new();
        for result in results.iter().filter(|result| result["bindingConditions"].is_array()) {
            let mut device =
                json!({ "driver": result["driver"], "pool": result["pool"], "device": result["device"] });
            if result["shareID"].is_string() {
                device["shareID"] = result["shareID"].clone();
            }
            let (kind, status) = *self
                .random
                .weighted(&[
                    (6, &("example.com/attached", "True")),
                    (1, &("example.com/attached", "False")),
                    (2, &("example.com/broken", "True")),
                ])
                .unwrap_or(&("example.com/attached", "True"));
            device["conditions"] = json!([{
                "type": kind, "status": status, "reason": "Reported", "message": "as \"seen\"",
                "lastTransitionTime": self.random.pick(&["2000-01-01T00:00:00Z", "2000-01-01T00:01:00Z"]),
            }]);
            // The scheduler does not read it, but notices the change.
            if self.random.chance(30) {
                device["networkData"] = json!({ "interfaceName": self.random.pick(&["eth0", "eth1"]) });
            }
            devices.push(device);
        }
        if !devices.is_empty() {
            claim["status"]["devices"] = json!(devices);
        }
    }

    /// Acts as the controller: pods that are gone give claims back, and claims without pods
    /// devices.
    fn give_back(&mut self) -> Result<()> {
        let pods = self.subject.objects("Pod");
        let lives = |uid: &Value| {
            pods.iter().any(|pod| {
                pod["metadata"]["uid"] == *uid
                    && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
            })
        };
        for claim in self.subject.objects("ResourceClaim") {
            let reference = Reference::of(&claim);
            let owner = &claim["metadata"]["ownerReferences"][0]["uid"];
            if owner.is_string() && !lives(owner) {
                self.take(Step::Delete(reference))?;
                continue;
            }
            let reserved = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
            let kept: Vec<Value> =
                reserved.iter().filter(|consumer| lives(&consumer["uid"])).cloned().collect();
            if kept.len() < reserved.len() {
                self.change(&reference, |_, claim| {
                    if kept.is_empty() {
                        deallocate(claim);
                    } else {
                        claim["status"]["reservedFor"] = json!(kept);
                    }
                })?;
            }
        }
        Ok(())
    }

    /// Acts as the controller: creates the claims of pods with templates, and tells the pods.
    pub(super) fn generate_resource_claims(&mut self) -> Result<()> {
        for pod in self.subject.objects("Pod") {
            let wanted = pod["spec"]["resourceClaims"].as_array().cloned().unwrap_or_default();
            let known = pod["status"]["resourceClaimStatuses"].as_array().map_or(0, Vec::len);
            let generated: Vec<&Value> =
                wanted.iter().filter(|claim| claim["resourceClaimTemplateName"].is_string()).collect();
            let reference = Reference::of(&pod);
            if generated.len() <= known
                || self.terminates_before_binding(&reference)
                || self.random.chance(15)
            {
                continue;
            }
            let mut statuses = Vec::new();
            for entry in generated {
                if self.random.chance(4) {
                    // The template asks for no claim.
                    statuses.push(json!({ "name": entry["name"] }));
                    continue;
                }
                let name = format!("{}-{}", reference.name, self.made);
                let mut claim = self.resource_claim(&reference.namespace, &name);
                if self.random.chance(95) {
                    claim["metadata"]["ownerReferences"] = json!([{
                        "apiVersion": "v1", "kind": "Pod", "name": reference.name, "uid": pod["metadata"]["uid"],
                        "controller": true,
                    }]);
                }
                self.apply(claim)?;
                statuses.push(json!({ "name": entry["name"], "resourceClaimName": name }));
            }
            self.change(&reference, |_, pod| pod["status"]["resourceClaimStatuses"] = json!(statuses))?;
        }
        Ok(())
    }
}

fn deallocate(claim: &mut Value) {
    if let Some(claim) = claim.as_object_mut() {
        claim.remove("status");
    }
    if let Some(metadata) = claim["metadata"].as_object_mut() {
        metadata.remove("finalizers");
    }
}
