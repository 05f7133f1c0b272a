//! Volumes of pods, and the work of volume controllers.

use anyhow::Result;
use serde_json::{Value, json};

use super::generator::Generator;
use super::mix::Kind;
use super::nodes::IMAGES;
use super::storage::{CLAIMS, DRIVERS, bound_to};
use crate::oracle::history::{Reference, Step};

impl Generator<'_> {
    /// The volumes of a template.
    pub(super) fn volumes(&mut self, namespace: &str, spec: &mut Value) {
        let mut volumes: Vec<Value> = Vec::new();
        if self.has(Kind::Claims) {
            for i in 0..self.random.between(1, 2) {
                let claim = self.some_claim(namespace);
                volumes.push(
                    json!({ "name": format!("claim-{i}"), "persistentVolumeClaim": { "claimName": claim } }),
                );
            }
            if self.random.chance(15) {
                let spec = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "later" });
                volumes.push(
                    json!({ "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": spec } } }),
                );
            }
        }
        if self.has(Kind::InlineVolumes) {
            for i in 0..self.random.between(1, 2) {
                let mut volume = self.inline_volume();
                volume["name"] = json!(format!("inline-{i}"));
                volumes.push(volume);
            }
        }
        if self.has(Kind::Images) && self.random.chance(30) {
            let image = self.random.pick(&IMAGES);
            volumes.push(json!({ "name": "image", "image": { "reference": image, "pullPolicy": "Always" } }));
        }
        if !volumes.is_empty() {
            spec["volumes"] = json!(volumes);
        }
    }

    /// The name of a claim, in most cases of an existing one.
    fn some_claim(&mut self, namespace: &str) -> String {
        let mut claims = self.subject.objects("PersistentVolumeClaim");
        claims.retain(|claim| claim["metadata"]["namespace"] == *namespace);
        if claims.is_empty() || self.random.chance(15) {
            return (*self.random.pick(&CLAIMS)).to_owned();
        }
        claims[self.random.below(claims.len())]["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }

    fn inline_volume(&mut self) -> Value {
        let read_only = self.random.chance(40);
        let disk = *self.random.pick(&["disk-a", "disk-b"]);
        match self.random.below(8) {
            6 => json!({ "azureFile": { "secretName": "s", "shareName": disk } }),
            7 => json!({ "vsphereVolume": { "volumePath": disk } }),
            0 => json!({ "gcePersistentDisk": { "pdName": disk, "readOnly": read_only } }),
            1 => json!({ "awsElasticBlockStore": { "volumeID": disk, "readOnly": read_only } }),
            2 => {
                json!({ "iscsi": { "targetPortal": "10.0.0.9", "iqn": disk, "lun": 0, "readOnly": read_only } })
            }
            3 => {
                json!({ "rbd": { "monitors": ["m1", "m2"], "pool": "p", "image": disk, "readOnly": read_only } })
            }
            4 => json!({ "csi": { "driver": self.random.pick(&DRIVERS) } }),
            _ => json!({ "emptyDir": {} }),
        }
    }

    /// Changes storage.
    pub(super) fn change_storage(&mut self) -> Result<()> {
        if self.mix.of(Kind::Claims) + self.mix.of(Kind::VolumeLimits) == 0 {
            return Ok(());
        }
        match self.random.below(16) {
            0 => self.add_volume(),
            1 => self.add_claim(),
            2 => self.add_capacity(),
            3 => self.with_some("PersistentVolume", |this, volume| this.take(Step::Delete(volume))),
            4 => self.with_some("PersistentVolumeClaim", |this, claim| this.take(Step::Delete(claim))),
            5 => self.with_some("CSINode", |this, node| {
                let spec = this.csi_node(&node.name)["spec"].clone();
                this.change(&node, |_, node| node["spec"] = spec)
            }),
            6 => self.with_some("CSIStorageCapacity", |this, capacity| {
                this.change(&capacity, |this, capacity| {
                    capacity["capacity"] = json!(this.random.pick(&["0", "2Gi", "200Gi"]));
                })
            }),
            7 => self.with_some("CSIDriver", |this, driver| {
                this.change(&driver, |_, driver| {
                    let tracked = driver["spec"]["storageCapacity"] == true;
                    driver["spec"]["storageCapacity"] = json!(!tracked);
                })
            }),
            15 => self.with_some("PersistentVolumeClaim", |this, claim| {
                this.change(&claim, |this, claim| {
                    let is_bound = claim["spec"]["volumeName"].is_string();
                    let phase = if is_bound && this.random.chance(50) { "Lost" } else { "Bound" };
                    if is_bound {
                        claim["status"]["phase"] = json!(phase);
                    }
                })
            }),
            8 => self.attach(),
            9 => self.with_some("VolumeAttachment", |this, attachment| this.take(Step::Delete(attachment))),
            _ => self.control_claims(),
        }
    }

    fn attach(&mut self) -> Result<()> {
        let volumes = self.subject.objects("PersistentVolume");
        if volumes.is_empty() {
            return Ok(());
        }
        let volume = &volumes[self.random.below(volumes.len())];
        let name = format!("attachment-{}", self.made);
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": self.metadata("", &name),
            "spec": {
                "attacher": volume["spec"]["csi"]["driver"].as_str().unwrap_or("pd.csi.storage.gke.io"),
                "nodeName": self.some_node_name(),
                "source": { "persistentVolumeName": volume["metadata"]["name"] },
            },
            "status": { "attached": true },
        });
        self.apply(attachment)
    }

    /// Acts as volume controller and provisioner for claims with a node or a volume.
    pub(super) fn control_claims(&mut self) -> Result<()> {
        let volumes = self.subject.objects("PersistentVolume");
        for claim in self.subject.objects("PersistentVolumeClaim") {
            if claim["spec"]["volumeName"].is_string() {
                continue;
            }
            let reference = Reference::of(&claim);
            let reserved = volumes.iter().find(|volume| {
                let held = &volume["spec"]["claimRef"];
                held["name"] == *reference.name && held["namespace"] == *reference.namespace
            });
            let chosen = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_string();
            if let Some(volume) = reserved.and_then(|volume| volume["metadata"]["name"].as_str()) {
                let volume = volume.to_owned();
                self.change(&reference, |_, claim| bound_to(claim, &volume))?;
            } else if chosen && self.random.chance(80) {
                let mut bound = claim.clone();
                self.bind(&mut bound)?;
                let version = self.version_after(&bound);
                bound["metadata"]["resourceVersion"] = json!(version);
                self.apply(bound)?;
            } else if chosen {
                // The provisioner gives up, so another node must be chosen.
                self.change(&reference, |_, claim| {
                    if let Some(annotations) = claim["metadata"]["annotations"].as_object_mut() {
                        annotations.remove("volume.kubernetes.io/selected-node");
                    }
                })?;
            }
        }
        Ok(())
    }

    /// Creates the claims of ephemeral volumes, as their controller does.
    pub(super) fn add_ephemeral_claims(&mut self, pod: &Value) -> Result<()> {
        let volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        for volume in volumes.iter().filter(|volume| volume["ephemeral"].is_object()) {
            if self.random.chance(20) {
                continue;
            }
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
            let mut claim = self.claim(&namespace, &format!("{name}-{}", text(&volume["name"])), "later");
            if self.random.chance(85) {
                claim["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"],
                    "controller": true,
                }]);
            }
            self.apply(claim)?;
        }
        Ok(())
    }
}
