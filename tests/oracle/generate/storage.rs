//! Storage: classes, drivers with limits, volumes and claims.

use anyhow::Result;
use serde_json::{Value, json};
use supercargo_framework::Feature;

use super::generator::Generator;
use super::mix::Kind;
use super::names::NAMESPACES;
use super::nodes::{BETA_ZONE, HOSTNAME, ZONE, ZONES};

pub(super) const DRIVERS: [&str; 2] = ["disk.example", "file.example"];
/// In-tree plugins with their CSI drivers.
const MIGRATED: [(&str, &str); 3] = [
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
];
/// Classes by name, provisioner, and whether they wait for the first consumer.
const CLASSES: [(&str, &str, bool); 4] = [
    ("now", "disk.example", false),
    ("later", "disk.example", true),
    ("zonal", "file.example", true),
    ("local", "kubernetes.io/no-provisioner", true),
];
/// The names of claims: few, so that pods share them, and one that never exists.
pub(super) const CLAIMS: [&str; 7] = ["c0", "c1", "c2", "c3", "c4", "c5", "missing"];

impl Generator<'_> {
    fn has_storage(&self) -> bool {
        self.mix.of(Kind::Claims) + self.mix.of(Kind::VolumeLimits) > 0
    }

    /// The objects that exist before any pod.
    pub(super) fn prepare_storage(&mut self) -> Result<()> {
        if !self.has_storage() {
            return Ok(());
        }
        for name in DRIVERS {
            if self.random.chance(80) {
                let driver = self.csi_driver(name);
                self.apply(driver)?;
            }
        }
        for (name, provisioner, waits) in CLASSES {
            if self.random.chance(92) {
                let class = self.storage_class(name, provisioner, waits);
                self.apply(class)?;
            }
        }
        for _ in 0..self.random.between(0, 3) {
            self.add_capacity()?;
        }
        for _ in 0..self.random.between(1, 5) {
            self.add_volume()?;
        }
        for _ in 0..self.random.between(4, 12) {
            self.add_claim()?;
        }
        Ok(())
    }

    fn csi_driver(&mut self, name: &str) -> Value {
        let mut driver = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": self.metadata("", name),
            "spec": { "storageCapacity": self.random.chance(50) },
        });
        if self.is_on(Feature::VolumeLimitScaling) {
            driver["spec"]["preventPodSchedulingIfMissing"] = json!(self.random.chance(50));
        }
        driver
    }

    fn storage_class(&mut self, name: &str, provisioner: &str, waits: bool) -> Value {
        let mut class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": self.metadata("", name),
            "provisioner": provisioner,
            "volumeBindingMode": if waits { "WaitForFirstConsumer" } else { "Immediate" },
        });
        if name == "zonal" {
            let zones = self.random.at_least_one(60, &ZONES);
            class["allowedTopologies"] =
                json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": zones }] }]);
        }
        class
    }

    pub(super) fn add_capacity(&mut self) -> Result<()> {
        let name = format!("capacity-{}", self.made);
        let capacity = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": self.metadata("default", &name),
            "storageClassName": *self.random.pick(&["later", "zonal"]),
            "nodeTopology": { "matchLabels": { ZONE: self.random.pick(&ZONES) } },
            "capacity": *self.random.pick(&["1Gi", "5Gi", "100Gi"]),
        });
        self.apply(capacity)
    }

    /// The volume limits of a node.
    pub(super) fn csi_node(&mut self, name: &str) -> Value {
        let drivers = self.random.some(80, &DRIVERS).into_iter().map(|driver| {
            let mut driver = json!({ "name": driver, "nodeID": name, "topologyKeys": [ZONE] });
            if self.mix.of(Kind::VolumeLimits) > 0 && self.random.chance(80) {
                driver["allocatable"] = json!({ "count": self.random.between(0, 3) });
            }
            driver
        });
        let mut drivers: Vec<Value> = drivers.collect();
        let migrated = self.random.some(70, &MIGRATED);
        for (_, driver) in &migrated {
            drivers.push(json!({
                "name": driver, "nodeID": name, "topologyKeys": [ZONE],
                "allocatable": { "count": self.random.between(0, 3) },
            }));
        }
        let mut node = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": self.metadata("", name),
            "spec": { "drivers": drivers },
        });
        let plugins: Vec<&str> = migrated.iter().map(|(plugin, _)| *plugin).collect();
        if !plugins.is_empty() {
            let key = "storage.alpha.kubernetes.io/migrated-plugins";
            node["metadata"]["annotations"] = json!({ key: plugins.join(",") });
        }
        node
    }

    /// The source of a volume: sometimes an in-tree one, a few of which have no CSI equivalent.
    fn volume_source(&mut self, name: &str) -> (&'static str, Value) {
        if self.random.chance(75) {
            let driver = self.random.pick(&DRIVERS);
            return ("csi", json!({ "driver": driver, "volumeHandle": format!("handle-{name}") }));
        }
        match self.random.below(3) {
            0 => ("gcePersistentDisk", json!({ "pdName": name })),
            1 => {
                let id = *self
                    .random
                    .weighted(&[(8, &"vol-1"), (8, &"aws://a/vol-1"), (1, &"aws://a/x")])
                    .unwrap_or(&"vol-1");
                ("awsElasticBlockStore", json!({ "volumeID": id }))
            }
            _ => {
                let kind = *self.random.weighted(&[(8, &"Managed"), (1, &"Dedicated")]).unwrap_or(&"Managed");
                ("azureDisk", json!({ "diskName": name, "diskURI": format!("/{name}"), "kind": kind }))
            }
        }
    }

    /// An unclaimed volume.
    pub(super) fn add_volume(&mut self) -> Result<()> {
        let name = format!("v{}", self.made);
        let class = *self.random.pick(&["local", "local", "now", "later"]);
        let volume = self.volume(&name, class);
        self.apply(volume)
    }

    /// A volume on some node.
    pub(super) fn volume(&mut self, name: &str, class: &str) -> Value {
        let mut spec = json!({
            "capacity": { "storage": *self.random.pick(&["1Gi", "2Gi", "5Gi", "10Gi"]) },
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Retain",
            "volumeMode": "Filesystem",
        });
        let (kind, source) = self.volume_source(name);
        spec[kind] = source;
        let affinity = match self.random.below(4) {
            3 if kind != "csi" => Some((BETA_ZONE, (*self.random.pick(&ZONES)).to_owned())),
            0 => Some((HOSTNAME, self.some_node_name())),
            1 => Some((ZONE, (*self.random.pick(&ZONES)).to_owned())),
            _ => None,
        };
        if let Some((key, value)) = affinity {
            spec["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": [{
                "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }],
            }] } });
        }
        let mut volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": self.metadata("", name),
            "spec": spec, "status": { "phase": "Available" },
        });
        if self.random.chance(35) {
            let zones = *self.random.pick(&["a", "b", "a__b"]);
            let key = *self.random.pick(&[ZONE, ZONE, BETA_ZONE]);
            volume["metadata"]["labels"] = json!({ key: zones });
        }
        volume
    }

    /// A claim of one of the known names: bound to its own volume, or unbound.
    pub(super) fn add_claim(&mut self) -> Result<()> {
        let namespace =
            *self.random.weighted(&[(4, &NAMESPACES[0]), (1, &NAMESPACES[1])]).unwrap_or(&NAMESPACES[0]);
        let name = CLAIMS[self.random.below(CLAIMS.len() - 1)];
        let class = *self
            .random
            .weighted(&[(2, &"now"), (3, &"later"), (2, &"zonal"), (3, &"local"), (1, &"gone")])
            .unwrap_or(&"now");
        let mut claim = self.claim(namespace, name, class);
        if self.subject.object(&crate::oracle::history::Reference::of(&claim)).is_some() {
            return Ok(());
        }
        if self.random.chance(40) {
            self.bind(&mut claim)?;
        }
        self.apply(claim)
    }

    pub(super) fn claim(&mut self, namespace: &str, name: &str, class: &str) -> Value {
        let mode = if self.random.chance(20) { "ReadWriteOncePod" } else { "ReadWriteOnce" };
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": self.metadata(namespace, name),
            "spec": {
                "accessModes": [mode],
                "storageClassName": class,
                "resources": { "requests": { "storage": *self.random.pick(&["1Gi", "2Gi", "4Gi"]) } },
                "volumeMode": "Filesystem",
            },
            "status": { "phase": "Pending" },
        })
    }

    /// Provisions a volume for a claim and binds them, as the volume controller and a provisioner
    /// do.
    pub(super) fn bind(&mut self, claim: &mut Value) -> Result<()> {
        let name = format!("pv-{}", self.made);
        let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default().to_owned();
        let mut volume = self.volume(&name, &class);
        volume["spec"]["accessModes"] = claim["spec"]["accessModes"].clone();
        volume["spec"]["claimRef"] = json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1",
            "namespace": claim["metadata"]["namespace"], "name": claim["metadata"]["name"],
            "uid": claim["metadata"]["uid"],
        });
        volume["status"]["phase"] = json!("Bound");
        self.apply(volume)?;
        bound_to(claim, &name);
        Ok(())
    }
}

/// Binds the claim to this volume.
pub(super) fn bound_to(claim: &mut Value, volume: &str) {
    claim["spec"]["volumeName"] = json!(volume);
    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
    claim["status"]["phase"] = json!("Bound");
}
