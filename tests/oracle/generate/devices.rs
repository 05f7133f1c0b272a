//! Devices: the slices of drivers, device classes, and rules that taint devices.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::generator::Generator;
use super::mix::Kind;
use super::nodes::{ZONE, ZONES};
use crate::oracle::history::{Reference, Step};

/// The driver of devices of one node.
pub(super) const GPU: &str = "gpu.example.com";
/// The driver of devices that several nodes can reach.
pub(super) const NIC: &str = "nic.example.com";
/// Device classes, and one that never exists.
pub(super) const CLASSES: [&str; 4] = ["gpu", "nic", "any", "missing"];
/// Taints of devices by key, value and effect.
const DEVICE_TAINTS: [(&str, &str, &str); 4] = [
    ("broken", "", "NoSchedule"),
    ("broken", "very", "NoExecute"),
    ("lent", "team-a", "NoSchedule"),
    ("watched", "", "None"),
];
/// The counters of a node's partitionable devices.
const COUNTERS: &str = "parts";
/// The extended resources of the first two classes, which the classes name, and of the third, which
/// is named after it. Nodes offer the first one, too.
const EXTENDED_RESOURCES: [&str; 3] =
    ["example.com/gpu", "example.com/nic", "deviceclass.resource.kubernetes.io/any"];

impl Generator<'_> {
    pub(super) fn has_devices(&self) -> bool {
        self.mix.of(Kind::Devices) + self.mix.of(Kind::ExtendedResources) > 0
    }

    /// A request for an extended resource.
    pub(super) fn extended_resource(&mut self) -> (&'static str, Value) {
        let name = *self
            .random
            .weighted(&[
                (3, &EXTENDED_RESOURCES[0]),
                (1, &EXTENDED_RESOURCES[1]),
                (1, &EXTENDED_RESOURCES[2]),
            ])
            .unwrap_or(&EXTENDED_RESOURCES[0]);
        (name, json!(self.random.pick(&["1", "1", "1", "2", "0"])))
    }

    /// Whether a pod has claims for devices, or may get one for its extended resources.
    pub(super) fn may_use_devices(&self, spec: &Value) -> bool {
        let may_request = self.mix.of(Kind::ExtendedResources) > 0;
        let containers = ["containers", "initContainers"].map(|field| spec[field].as_array());
        let mut containers = containers.into_iter().flatten().flatten();
        let requests = |container: &Value| {
            EXTENDED_RESOURCES.iter().any(|name| !container["resources"]["requests"][*name].is_null())
        };
        spec["resourceClaims"].is_array() || may_request && containers.any(requests)
    }

    /// The objects that exist before any pod.
    pub(super) fn prepare_devices(&mut self) -> Result<()> {
        if !self.has_devices() {
            return Ok(());
        }
        for name in &CLASSES[..3] {
            if self.random.chance(94) {
                let class = self.device_class(name);
                self.apply(class)?;
            }
        }
        for number in 0..self.random.between(0, 2) {
            self.publish_network(number)?;
        }
        for _ in 0..self.random.between(3, 8) {
            self.add_resource_claim()?;
        }
        Ok(())
    }

    fn device_class(&mut self, name: &str) -> Value {
        let mut class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": self.metadata("", name), "spec": {},
        });
        class["spec"] = self.class_spec(name);
        class
    }

    fn class_spec(&mut self, name: &str) -> Value {
        let mut expressions: Vec<String> = match name {
            "gpu" => vec![format!("device.driver == '{GPU}'")],
            "nic" => vec![format!("device.driver == '{NIC}'")],
            _ => Vec::new(),
        };
        let mut spec = json!({});
        let provides = EXTENDED_RESOURCES[..2].iter().find(|resource| resource.ends_with(name));
        if let Some(resource) = provides
            && self.mix.of(Kind::ExtendedResources) > 0
        {
            // Upstream's scores remember by its name whether a device is of such a class.
            if self.random.chance(90) {
                spec["extendedResourceName"] = json!(resource);
            }
        } else if name == "gpu" && self.random.chance(25) {
            expressions.push(self.expression());
        }
        if !expressions.is_empty() {
            spec["selectors"] = selectors(&expressions);
        }
        if self.random.chance(25) {
            let driver = if name == "nic" { NIC } else { GPU };
            spec["config"] =
                json!([{ "opaque": { "driver": driver, "parameters": { "by": "class", "level": 3 } } }]);
        }
        spec
    }

    /// The expression of a selector. A few fail on some devices, or always.
    pub(super) fn expression(&mut self) -> String {
        let model = *self.random.pick(&["a", "b"]);
        let gpu = format!("device.attributes['{GPU}']");
        let choices = [
            (6, format!("device.driver == '{GPU}' && {gpu}.model == '{model}'")),
            (4, format!("{gpu}.?healthy.orValue(false)")),
            (
                3,
                format!(
                    "device.capacity['{GPU}'].?memory.orValue(quantity('0')).compareTo(quantity('20Gi')) > 0"
                ),
            ),
            (2, "'rack' in device.attributes['example.com']".to_owned()),
            (2, format!("has({gpu}.numa) ? {gpu}.numa == 0 : device.driver.startsWith('nic')")),
            (1, format!("{gpu}.numa == 1")),
            (1, format!("{gpu}.?firmware.hasValue() && {gpu}.firmware.isGreaterThan(semver('1.0.0'))")),
            (1, "!device.allowMultipleAllocations".to_owned()),
        ];
        let weights: Vec<(u32, usize)> = choices.iter().map(|(weight, _)| *weight).zip(0..).collect();
        let rare = ["device.driver", "device.nothing == 1"];
        if self.random.chance(2) {
            return (*self.random.pick(&rare)).to_owned();
        }
        choices[self.random.weighted(&weights).unwrap_or(0)].1.clone()
    }

    fn device(&mut self, name: &str, driver: &str) -> Value {
        let random = &mut self.random;
        let mut attributes = Map::new();
        if driver == GPU {
            attributes.insert("model".to_owned(), json!({ "string": random.pick(&["a", "b"]) }));
            attributes.insert("healthy".to_owned(), json!({ "bool": random.chance(80) }));
            if random.chance(80) {
                attributes.insert("numa".to_owned(), json!({ "int": random.below(2) }));
            }
            if random.chance(20) {
                attributes
                    .insert("firmware".to_owned(), json!({ "version": random.pick(&["0.9.1", "1.2.0"]) }));
            }
        }
        if random.chance(70) {
            attributes.insert("example.com/rack".to_owned(), json!({ "string": random.pick(&["x", "y"]) }));
        }
        let mut device = json!({ "name": name });
        if !attributes.is_empty() {
            device["attributes"] = Value::Object(attributes);
        }
        if driver == GPU || random.chance(30) {
            let memory = *random.pick(&["10Gi", "40Gi"]);
            device["capacity"] = json!({ "memory": { "value": memory } });
        }
        if self.has(Kind::SharedDevices) {
            device["allowMultipleAllocations"] = json!(true);
            if self.mix.of(Kind::DeviceConditions) > 0 {
                // While a pod waits for its devices, upstream counts what it has of them twice.
                device["capacity"] =
                    json!({ "memory": { "value": "1Pi", "requestPolicy": { "default": "1Gi" } } });
            } else if device["capacity"].is_object() && self.random.chance(75) {
                device["capacity"]["memory"]["requestPolicy"] = self.request_policy();
            }
        }
        if self.has(Kind::DeviceTaints) {
            device["taints"] = json!(self.device_taints());
        }
        if self.has(Kind::DeviceConditions) {
            device["bindingConditions"] = json!(["example.com/attached"]);
            device["bindingFailureConditions"] = json!(["example.com/broken"]);
            if self.random.chance(40) {
                device["bindsToNode"] = json!(true);
            }
        }
        device
    }

    fn request_policy(&mut self) -> Value {
        match self.random.below(4) {
            0 => json!({ "default": "10Gi" }),
            1 => json!({ "default": "5Gi", "validValues": ["5Gi", "10Gi"] }),
            2 => json!({ "default": "2Gi", "validRange": { "min": "2Gi", "max": "8Gi", "step": "2Gi" } }),
            _ => json!({ "default": "1Gi", "validRange": { "min": "1Gi" } }),
        }
    }

    fn device_taints(&mut self) -> Vec<Value> {
        let taints = self.random.at_least_one(25, &DEVICE_TAINTS);
        taints.into_iter().map(device_taint).collect()
    }

    /// Tolerations of requests for devices.
    pub(super) fn device_tolerations(&mut self) -> Vec<Value> {
        let tolerated = self.random.at_least_one(40, &DEVICE_TAINTS);
        let toleration = |(key, value, effect): (&str, &str, &str)| match self.random.below(3) {
            0 => json!({ "operator": "Exists" }),
            1 => json!({ "key": key, "operator": "Exists", "effect": effect }),
            _ if value.is_empty() => json!({ "key": key, "operator": "Equal" }),
            _ => json!({ "key": key, "operator": "Equal", "value": value }),
        };
        tolerated.into_iter().map(toleration).collect()
    }

    /// Publishes the devices of a node as a new generation, in one slice or two. Sometimes the
    /// driver stops halfway.
    pub(super) fn publish_devices(&mut self, node: &str) -> Result<()> {
        let generation = self.made + 1;
        let with_counters = self.has(Kind::DeviceCounters);
        let count = self.random.between(1, 2);
        let mut specs: Vec<Value> = Vec::new();
        for slice in 0..count {
            let devices: Vec<Value> = (0..self.random.between(1, 3))
                .map(|number| {
                    // Two slices rarely share a name.
                    let slice = if self.random.chance(4) { 0 } else { slice };
                    let mut device = self.device(&format!("d{slice}{number}"), GPU);
                    if with_counters {
                        let parts = *self.random.pick(&["1", "2", "4"]);
                        device["consumesCounters"] =
                            json!([{ "counterSet": COUNTERS, "counters": { "slices": { "value": parts } } }]);
                    }
                    device
                })
                .collect();
            specs.push(json!({ "devices": devices }));
        }
        if with_counters {
            let parts = *self.random.pick(&["2", "4", "5"]);
            specs.push(
                json!({ "sharedCounters": [{ "name": COUNTERS, "counters": { "slices": { "value": parts } } }] }),
            );
        }
        let pool = json!({ "name": node, "generation": generation, "resourceSliceCount": specs.len() });
        for (number, mut spec) in specs.into_iter().enumerate() {
            if number > 0 && self.random.chance(8) {
                return Ok(());
            }
            spec["driver"] = json!(GPU);
            spec["pool"] = pool.clone();
            spec["nodeName"] = json!(node);
            self.publish(&format!("{node}-gpu-{number}"), spec)?;
        }
        for slice in self.subject.objects("ResourceSlice") {
            let is_old =
                slice["spec"]["pool"]["name"] == *node && slice["spec"]["pool"]["generation"] != generation;
            if is_old && slice["spec"]["driver"] == GPU {
                self.take(Step::Delete(Reference::of(&slice)))?;
            }
        }
        Ok(())
    }

    /// Publishes a slice whose devices several nodes can reach.
    fn publish_network(&mut self, number: usize) -> Result<()> {
        let is_per_device = self.random.chance(20);
        let mut devices = Vec::new();
        for number in 0..self.random.between(1, 3) {
            let mut device = self.device(&format!("port{number}"), NIC);
            if is_per_device {
                let (field, value) = self.reach();
                device[field] = value;
            }
            devices.push(device);
        }
        let pool =
            json!({ "name": format!("net-{number}"), "generation": self.made + 1, "resourceSliceCount": 1 });
        let mut spec = json!({ "driver": NIC, "pool": pool, "devices": devices });
        if is_per_device {
            spec["perDeviceNodeSelection"] = json!(true);
        } else {
            let (field, value) = self.reach();
            spec[field] = value;
        }
        self.publish(&format!("net-{number}"), spec)
    }

    /// The nodes that reach a slice or a device.
    fn reach(&mut self) -> (&'static str, Value) {
        match self.random.below(4) {
            0 => ("nodeName", json!(self.some_node_name())),
            1 => ("allNodes", json!(true)),
            _ => {
                let zones = self.random.at_least_one(50, &ZONES);
                let term =
                    json!({ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": zones }] });
                ("nodeSelector", json!({ "nodeSelectorTerms": [term] }))
            }
        }
    }

    /// Creates a slice, or updates it.
    fn publish(&mut self, name: &str, spec: Value) -> Result<()> {
        let mut slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec,
        });
        let known = self.subject.object(&Reference::of(&slice));
        let metadata = self.metadata("", name);
        slice["metadata"] = match known {
            Some(mut known) => {
                known["metadata"]["resourceVersion"] = metadata["resourceVersion"].clone();
                known["metadata"].take()
            }
            None => metadata,
        };
        self.apply(slice)
    }

    /// Changes devices, classes or rules, as drivers and administrators do.
    pub(super) fn change_devices(&mut self) -> Result<()> {
        match self.random.below(10) {
            0 | 1 => self.with_some("Node", |this, node| this.publish_devices(&node.name)),
            2 => {
                let number = self.random.below(2);
                self.publish_network(number)
            }
            3 => self.with_some("ResourceSlice", |this, slice| this.take(Step::Delete(slice))),
            4 => self.with_some("DeviceClass", |this, class| {
                this.change(&class, |this, object| object["spec"] = this.class_spec(&class.name))
            }),
            5 if self.random.chance(40) => {
                self.with_some("DeviceClass", |this, class| this.take(Step::Delete(class)))
            }
            5 => {
                let name = CLASSES[self.random.below(3)];
                let class = self.device_class(name);
                let known = self.subject.object(&Reference::of(&class)).is_some();
                if known { Ok(()) } else { self.apply(class) }
            }
            6 | 7 if self.mix.of(Kind::DeviceTaints) > 0 => self.change_taint_rules(),
            _ => self.with_some("ResourceSlice", |this, slice| this.change(&slice, Self::change_device)),
        }
    }

    /// Changes a device in place: its taints, or an attribute.
    fn change_device(&mut self, slice: &mut Value) {
        let Some(devices) = slice["spec"]["devices"].as_array_mut().filter(|devices| !devices.is_empty())
        else {
            return;
        };
        let device = self.random.below(devices.len());
        let device = &mut devices[device];
        if self.mix.of(Kind::DeviceTaints) > 0 && self.random.chance(60) {
            match device.as_object_mut().and_then(|device| device.remove("taints")) {
                Some(_) => {}
                None => device["taints"] = json!(self.device_taints()),
            }
        } else {
            device["attributes"]["example.com/rack"] = json!({ "string": self.random.pick(&["x", "y"]) });
        }
    }

    fn change_taint_rules(&mut self) -> Result<()> {
        let count = self.subject.objects("DeviceTaintRule").len();
        if count > 0 && self.random.chance(60) {
            return self.with_some("DeviceTaintRule", |this, rule| {
                if this.random.chance(70) {
                    return this.take(Step::Delete(rule));
                }
                this.change(&rule, |this, rule| rule["spec"] = this.rule_spec())
            });
        }
        let name = format!("rule-{}", self.made);
        let metadata = self.metadata("", &name);
        let spec = self.rule_spec();
        self.apply(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": metadata, "spec": spec,
        }))
    }

    fn rule_spec(&mut self) -> Value {
        let mut selector = Map::new();
        if self.random.chance(50) {
            selector.insert("driver".to_owned(), json!(self.random.pick(&[GPU, NIC])));
        }
        if self.random.chance(50) {
            selector.insert("pool".to_owned(), json!(self.some_node_name()));
        }
        if self.random.chance(30) {
            selector.insert("device".to_owned(), json!(self.random.pick(&["d00", "d10", "port0"])));
        }
        let taint = device_taint(*self.random.pick(&DEVICE_TAINTS));
        json!({ "deviceSelector": selector, "taint": taint })
    }
}

/// Selectors with these expressions.
pub(super) fn selectors(expressions: &[String]) -> Value {
    expressions.iter().map(|expression| json!({ "cel": { "expression": expression } })).collect()
}

fn device_taint((key, value, effect): (&str, &str, &str)) -> Value {
    let mut taint = json!({ "key": key, "effect": effect, "timeAdded": "1999-12-31T00:00:00Z" });
    if !value.is_empty() {
        taint["value"] = json!(value);
    }
    taint
}
