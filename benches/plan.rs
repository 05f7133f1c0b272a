//! Turns a workload into objects as the API server would store them. Both schedulers get the same
//! objects.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use crate::claims;
use crate::random::mix;
use crate::workload::{ChurnMode, LabelStrategy, Library, Op, Params, Workload};

/// The scheduler name of the pods.
pub const SCHEDULER: &str = "supercargo";

/// The name prefix of churn objects.
pub const CHURN: &str = "churn-";

/// How the measured pods differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures {
    /// Only in their names.
    Identical,
    /// In their requests: this many variants in random order.
    Many(usize),
    /// Each has a unique label.
    UniqueLabels,
}

/// All objects of a run.
pub struct Plan {
    /// The name for progress output.
    pub label: String,
    nodes: Vec<NodeGroup>,
    /// Objects of other kinds.
    objects: Vec<Value>,
    groups: Vec<PodGroup>,
    /// Churn while pods are measured.
    pub churn: Vec<Churn>,
    signatures: Signatures,
    /// The seed of the random order.
    seed: u64,
}

struct NodeGroup {
    template: Value,
    count: usize,
    labels: Option<LabelStrategy>,
    /// The volume limit of a driver on each node.
    csi: BTreeMap<String, usize>,
    /// The ResourceSlices of each node.
    slices: Vec<Value>,
}

/// Pods of one template.
pub struct PodGroup {
    template: Value,
    namespaces: Vec<String>,
    /// Their number.
    pub count: usize,
    volume: Option<(Value, Value)>,
    /// The ResourceClaim of each.
    claim: Option<Value>,
    /// Their role.
    pub kind: GroupKind,
    /// How many existing pods are deleted per second.
    pub deletions_per_second: usize,
}

/// The role of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// Bound before the measurement.
    Bound,
    /// Pending, and not expected to be scheduled.
    Gated,
    /// Measured.
    Measured,
}

/// Churn objects.
pub struct Churn {
    /// The templates, one object each.
    pub templates: Vec<Value>,
    /// The interval.
    pub interval_milliseconds: u64,
    /// Whether they are deleted again.
    pub mode: ChurnMode,
    /// The maximum number, if they are deleted again.
    pub number: usize,
}

impl Plan {
    /// The plan of a workload with these parameters.
    pub fn new(
        library: &Library,
        workload: &Workload,
        params: &Params,
        signatures: Signatures,
        seed: u64,
    ) -> Result<Self> {
        let mut plan = Self {
            label: workload.name.clone(),
            nodes: Vec::new(),
            objects: Vec::new(),
            groups: Vec::new(),
            churn: Vec::new(),
            signatures,
            seed,
        };
        plan.objects.push(namespace("default", &Map::new()));
        for op in &workload.ops {
            plan.add(library, op, params).with_context(|| workload.name.clone())?;
        }
        ensure!(plan.node_count() > 0, "{} has no nodes", workload.name);
        Ok(plan)
    }

    fn add(&mut self, library: &Library, op: &Op, params: &Params) -> Result<()> {
        match op {
            Op::CreateNodes {
                count,
                node_template,
                label_node_prepare_strategy,
                csi_node_allocatable,
                resource_slice_templates,
            } => {
                let slices = resource_slice_templates.iter().map(|name| library.template(name));
                self.nodes.push(NodeGroup {
                    template: library.template(node_template)?,
                    count: count.of(params)?,
                    labels: label_node_prepare_strategy.clone(),
                    csi: csi_node_allocatable.clone(),
                    slices: slices.collect::<Result<_>>()?,
                });
            }
            Op::CreateNamespaces { count, prefix, labels } => {
                let labels = labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
                let names = (0..count.of(params)?).map(|i| format!("{prefix}-{i}"));
                self.objects.extend(names.map(|name| namespace(&name, &labels)));
            }
            Op::CreateAny { template } => self.objects.push(identified(library.template(template)?)),
            Op::CreatePods {
                count,
                pod_template,
                namespace,
                persistent_volume_template,
                persistent_volume_claim_template,
                resource_claim_template,
                collect_metrics,
                delete_pods_per_second,
            } => {
                let template = library.template(pod_template)?;
                let volume = match (persistent_volume_template, persistent_volume_claim_template) {
                    (Some(volume), Some(claim)) => {
                        Some((library.template(volume)?, library.template(claim)?))
                    }
                    _ => None,
                };
                let kind = match () {
                    () if *collect_metrics => GroupKind::Measured,
                    () if !template["spec"]["schedulingGates"].is_null() => GroupKind::Gated,
                    () => GroupKind::Bound,
                };
                self.groups.push(PodGroup {
                    template,
                    namespaces: vec![namespace.clone()],
                    count: count.of(params)?,
                    volume,
                    claim: resource_claim_template.as_ref().map(|name| library.template(name)).transpose()?,
                    kind,
                    deletions_per_second: *delete_pods_per_second,
                });
            }
            Op::CreatePodSets { count, namespace_prefix, pods_per_namespace, pod_template } => {
                let count = count.of(params)?;
                self.groups.push(PodGroup {
                    template: library.template(pod_template)?,
                    namespaces: (0..count).map(|i| format!("{namespace_prefix}-{i}")).collect(),
                    count: count * pods_per_namespace.of(params)?,
                    volume: None,
                    claim: None,
                    kind: GroupKind::Bound,
                    deletions_per_second: 0,
                });
            }
            Op::Churn { mode, templates, interval_milliseconds, number } => {
                ensure!(*interval_milliseconds > 0, "churn has an interval");
                let templates =
                    templates.iter().map(|name| library.template(name)).collect::<Result<Vec<_>>>()?;
                let (mode, number) = (*mode, (*number).max(1));
                self.churn.push(Churn {
                    templates,
                    interval_milliseconds: *interval_milliseconds,
                    mode,
                    number,
                });
            }
        }
        Ok(())
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.iter().map(|group| group.count).sum()
    }

    /// The pods by template.
    pub fn groups(&self) -> impl Iterator<Item = &PodGroup> {
        self.groups.iter()
    }

    /// The groups of a role, with their numbers.
    pub fn groups_of(&self, kind: GroupKind) -> impl Iterator<Item = (usize, &PodGroup)> {
        self.groups.iter().enumerate().filter(move |(_, group)| group.kind == kind)
    }

    /// Whether the pod of this name is measured.
    pub fn is_measured(&self, name: &str) -> bool {
        let number = name.strip_prefix("pod-").and_then(|rest| rest.split('-').next()?.parse::<usize>().ok());
        let group = number.and_then(|number| self.groups.get(number));
        group.is_some_and(|group| group.kind == GroupKind::Measured)
    }

    /// The pod of this name as it was created, with the name of its group; `None` if there is none.
    pub fn pod_named(&self, name: &str) -> Option<(String, Value)> {
        if name.starts_with(CHURN) {
            let mut templates = self.churn.iter().flat_map(|churn| &churn.templates);
            return Some((CHURN.to_owned(), templates.find(|template| template["kind"] == "Pod")?.clone()));
        }
        let mut parts = name.strip_prefix("pod-")?.split('-').map(str::parse::<usize>);
        let (number, i) = (parts.next()?.ok()?, parts.next()?.ok()?);
        (i < self.groups.get(number)?.count).then(|| (number.to_string(), self.pod(number, i)))
    }

    /// The number of measured pods.
    pub fn measured(&self) -> usize {
        self.groups_of(GroupKind::Measured).map(|(_, group)| group.count).sum()
    }

    /// The nodes, each followed by its other objects.
    pub fn nodes(&self) -> impl Iterator<Item = Value> {
        let firsts = self.nodes.iter().scan(0, |next, group| {
            *next += group.count;
            Some(*next - group.count)
        });
        self.nodes
            .iter()
            .zip(firsts)
            .flat_map(|(group, first)| (0..group.count).flat_map(move |i| group.node(first + i, i)))
    }

    /// The name of a node.
    pub fn node_name(&self, at: usize) -> String {
        let mut first = 0;
        for group in &self.nodes {
            if at < first + group.count {
                return group.name(at);
            }
            first += group.count;
        }
        format!("node-{at}")
    }

    /// The objects of other kinds that exist before any pod.
    pub fn objects(&self) -> impl Iterator<Item = Value> {
        let volumes = self.groups.iter().enumerate().flat_map(|(number, group)| {
            (0..group.count).filter_map(move |i| group.volume(number, i)).flatten()
        });
        let claims = self
            .groups()
            .enumerate()
            .flat_map(move |(number, group)| (0..group.count).filter_map(move |i| self.claim(number, i)));
        self.objects.iter().cloned().chain(volumes).chain(claims)
    }

    /// The ResourceClaim of a pod. That of an existing pod has a device of the pod's node.
    pub fn claim(&self, number: usize, i: usize) -> Option<Value> {
        let group = &self.groups[number];
        let mut claim = group.claim(number, i)?;
        if group.kind == GroupKind::Bound {
            let at = self.bound_before(number) + i;
            let node = self.node_name(at % self.node_count());
            let devices = self.nodes.iter().flat_map(|group| &group.slices);
            let device = devices
                .flat_map(|slice| {
                    slice["spec"]["devices"].as_array().into_iter().flatten().zip(std::iter::repeat(slice))
                })
                .nth(at / self.node_count());
            let (device, slice) = device?;
            let request = &claim["spec"]["devices"]["requests"][0]["name"];
            let result = json!({
                "request": request, "driver": slice["spec"]["driver"], "pool": node, "device": device["name"],
            });
            let terms =
                json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] }]);
            let pod = group.pod(number, i);
            claim["status"] = json!({
                "allocation": { "devices": { "results": [result] }, "nodeSelector": { "nodeSelectorTerms": terms } },
                "reservedFor": [{
                    "resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
                }],
            });
        }
        Some(claim)
    }

    /// The number of existing pods before those of a group.
    fn bound_before(&self, number: usize) -> usize {
        let bound = self.groups[..number].iter().filter(|other| other.kind == GroupKind::Bound);
        bound.map(|other| other.count).sum()
    }

    /// A pod as it is created. An existing pod has its node.
    pub fn pod(&self, number: usize, i: usize) -> Value {
        let group = &self.groups[number];
        let mut pod = group.pod(number, i);
        match group.kind {
            GroupKind::Bound => {
                let at = self.bound_before(number) + i;
                pod["spec"]["nodeName"] = self.node_name(at % self.node_count()).into();
                pod["status"]["phase"] = json!("Running");
            }
            GroupKind::Gated => {}
            GroupKind::Measured => self.vary(&mut pod, i),
        }
        pod
    }

    /// Gives a measured pod its signature.
    fn vary(&self, pod: &mut Value, i: usize) {
        match self.signatures {
            Signatures::Identical => {}
            Signatures::Many(count) => {
                set_signature(pod, (mix(self.seed ^ i as u64) % count as u64) as usize);
            }
            Signatures::UniqueLabels => {
                pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] =
                    pod["metadata"]["name"].clone();
            }
        }
    }
}

impl NodeGroup {
    fn name(&self, at: usize) -> String {
        let own = self.template["metadata"]["name"].as_str();
        own.map_or_else(|| format!("scheduler-perf-{at}"), str::to_owned)
    }

    fn node(&self, at: usize, i: usize) -> Vec<Value> {
        let name = self.name(at);
        let mut node = identified(self.template.clone());
        node["metadata"]["name"] = json!(name);
        node["metadata"]["uid"] = json!(uid(0, at));
        node["metadata"]["labels"]["kubernetes.io/hostname"] = json!(name);
        if let Some(LabelStrategy { label_key, label_values }) = &self.labels
            && !label_values.is_empty()
        {
            node["metadata"]["labels"][label_key] = json!(label_values[i % label_values.len()]);
        }
        let slices = claims::slices(&self.slices, &name).map(identified);
        std::iter::once(node).chain(self.csi_node(&name)).chain(slices).collect()
    }

    /// The CSINode with the node's volume limit.
    fn csi_node(&self, name: &str) -> Option<Value> {
        if self.csi.is_empty() {
            return None;
        }
        let driver = |(driver, count): (&String, &usize)| json!({ "name": driver, "nodeID": name, "allocatable": { "count": count } });
        let drivers: Vec<_> = self.csi.iter().map(driver).collect();
        Some(identified(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": { "name": name }, "spec": { "drivers": drivers },
        })))
    }
}

impl PodGroup {
    fn pod(&self, number: usize, i: usize) -> Value {
        let mut pod = self.template.clone();
        pod["metadata"]["name"] = json!(pod_name(number, i));
        pod["metadata"]["namespace"] = json!(self.namespaces[i % self.namespaces.len()]);
        pod["spec"]["schedulerName"] = json!(SCHEDULER);
        if self.volume.is_some() {
            let claim = json!({ "claimName": pod_name(number, i) });
            pod["spec"]["volumes"] = json!([{ "name": "vol", "persistentVolumeClaim": claim }]);
        }
        if self.claim.is_some() {
            claims::want_claim(&mut pod);
            pod["status"]["resourceClaimStatuses"] = claims::claim_statuses(&pod_name(number, i));
        }
        let mut pod = identified(pod);
        pod["metadata"]["uid"] = json!(uid(number + 1, i));
        pod
    }

    /// A pod's ResourceClaim, as the controller makes it of a template.
    fn claim(&self, number: usize, i: usize) -> Option<Value> {
        let namespace = &self.namespaces[i % self.namespaces.len()];
        let claim = claims::claim(self.claim.as_ref()?, namespace, &pod_name(number, i), &uid(number + 1, i));
        Some(identified(claim))
    }

    /// A pod's volume and its bound claim, both with the pod's name.
    fn volume(&self, number: usize, i: usize) -> Option<[Value; 2]> {
        let (volume, claim) = self.volume.as_ref()?;
        let name = pod_name(number, i);
        let namespace = &self.namespaces[i % self.namespaces.len()];
        let (mut volume, mut claim) = (volume.clone(), claim.clone());
        for object in [&mut volume, &mut claim] {
            object["metadata"]["name"] = json!(name);
        }
        claim["metadata"]["namespace"] = json!(namespace);
        claim["spec"]["volumeName"] = json!(name);
        claim["status"] = json!({ "phase": "Bound" });
        let (mut volume, claim) = (identified(volume), identified(claim));
        if volume["spec"]["csi"].is_object() {
            volume["spec"]["csi"]["volumeHandle"] = json!(name);
        }
        volume["spec"]["claimRef"] = json!({
            "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": claim["metadata"]["uid"],
        });
        volume["status"] = json!({ "phase": "Bound" });
        Some([volume, claim])
    }
}

fn pod_name(number: usize, i: usize) -> String {
    format!("pod-{number}-{i}")
}

/// A UID of the usual length.
fn uid(group: usize, i: usize) -> String {
    format!("{group:08x}-0000-4000-8000-{i:012x}")
}

fn namespace(name: &str, labels: &Map<String, Value>) -> Value {
    identified(
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } }),
    )
}

/// Sets the metadata that the server would set: UID, version, time.
pub fn identified(mut object: Value) -> Value {
    let metadata = &mut object["metadata"];
    if metadata["uid"].is_null() {
        let identity =
            ["namespace", "name"].map(|part| metadata[part].as_str().unwrap_or_default().to_owned());
        metadata["uid"] = json!(identity.join("/"));
    }
    metadata["resourceVersion"] = json!("1");
    metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    object
}

/// Makes a pod the `at`-th variant, by the requests of its first container or, without requests, by
/// a toleration without effect.
fn set_signature(pod: &mut Value, at: usize) {
    let requests = &mut pod["spec"]["containers"][0]["resources"]["requests"];
    let (Some(cpu), Some(memory)) = (amount(&requests["cpu"], "m"), amount(&requests["memory"], "Mi")) else {
        pod["spec"]["tolerations"] =
            json!([{ "key": "signature", "operator": "Equal", "value": at.to_string() }]);
        return;
    };
    // A hundred amounts of CPU, each with several amounts of memory. They differ so little that all
    // fit where one does.
    requests["cpu"] = json!(format!("{}m", cpu + at % 100));
    requests["memory"] = json!(format!("{}Mi", memory + at / 100));
    if let Some(resources) = pod["spec"]["containers"][0]["resources"].as_object_mut() {
        resources.remove("limits");
    }
}

fn amount(quantity: &Value, unit: &str) -> Option<usize> {
    quantity.as_str()?.strip_suffix(unit)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plan(name: &str, signatures: Signatures) -> Plan {
        let library = Library::here();
        let workloads = library.workloads().unwrap();
        let workload = workloads.iter().find(|workload| workload.name == name).unwrap();
        let params = &workload.size(None).unwrap().params;
        Plan::new(&library, workload, params, signatures, 1).unwrap()
    }

    fn distinct(signatures: Signatures, part: &str, pods: usize) -> usize {
        let plan = plan("SchedulingBasic", signatures);
        let (number, _) = plan.groups_of(GroupKind::Measured).next().unwrap();
        let parts = (0..pods).map(|i| plan.pod(number, i).pointer(part).map(ToString::to_string));
        parts.collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn plan_has_the_requested_signatures() {
        assert_eq!(distinct(Signatures::Identical, "/spec", 1000), 1);
        assert_eq!(distinct(Signatures::Many(100), "/spec", 2000), 100);
        let many = distinct(Signatures::Many(10_000), "/spec", 10_000);
        assert!((6000..10_000).contains(&many), "10,000 random draws give {many} signatures");
        assert_eq!(distinct(Signatures::UniqueLabels, "/spec", 1000), 1);
        assert_eq!(distinct(Signatures::UniqueLabels, "/metadata/labels", 1000), 1000);
    }

    #[test]
    fn existing_pods_are_spread_evenly() {
        let plan = plan("PreemptionAsync", Signatures::Identical);
        let (number, group) = plan.groups_of(GroupKind::Bound).next().unwrap();
        let node = |i| plan.pod(number, i)["spec"]["nodeName"].as_str().unwrap().to_owned();
        assert_eq!(group.count, 4 * plan.node_count());
        assert_eq!(node(0), node(plan.node_count()));
        assert_eq!((0..5000).map(node).collect::<BTreeSet<_>>().len(), 5000);
    }

    #[test]
    fn pod_is_identified_by_its_name() {
        let plan = plan("Unschedulable", Signatures::Identical);
        assert_eq!(plan.pod_named("pod-1-7").unwrap().1["metadata"]["name"], "pod-1-7");
        assert!(plan.pod_named("pod-1-10000").is_none());
        assert_eq!(plan.pod_named("churn-3").unwrap().1["spec"]["priority"], 10);
    }

    #[test]
    fn claims_of_existing_pods_have_devices_of_their_nodes() {
        let plan = plan("SteadyStateResourceClaimTemplate", Signatures::Identical);
        let (number, group) = plan.groups_of(GroupKind::Bound).next().unwrap();
        let mut taken = BTreeSet::new();
        for i in 0..group.count {
            let (pod, claim) = (plan.pod(number, i), plan.claim(number, i).unwrap());
            assert_eq!(
                pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"],
                claim["metadata"]["name"]
            );
            let result = &claim["status"]["allocation"]["devices"]["results"][0];
            assert_eq!(result["pool"], pod["spec"]["nodeName"]);
            assert!(taken.insert(result.to_string()), "{result} is taken");
        }
    }

    #[test]
    fn volumes_and_claims_match() {
        let plan = plan("SchedulingCSIPVs", Signatures::Identical);
        let find = |kind: &str| plan.objects().find(|object| object["kind"] == kind).unwrap();
        let (volume, claim) = (find("PersistentVolume"), find("PersistentVolumeClaim"));
        assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
        assert_eq!(claim["spec"]["volumeName"], volume["metadata"]["name"]);
        assert_eq!(plan.nodes().count(), 2 * plan.node_count(), "a CSINode for each node");
    }
}
