//! The objects of a workload: those that exist before, and the pods to be scheduled.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use supercargo_benches::claims;
use supercargo_benches::workload::{Library, Op, Params};

/// A workload to run: nodes, bound pods, and pods to be scheduled.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) name: String,
    nodes: Vec<Nodes>,
    classes: Vec<Value>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    bound: Vec<Pods>,
    measured: Pods,
}

/// Numbers that override those of the workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) nodes: Option<usize>,
    pub(crate) bound: Option<usize>,
    pub(crate) pods: Option<usize>,
}

/// Nodes that differ only in a label with alternating values.
#[derive(Clone, Debug)]
struct Nodes {
    count: usize,
    template: Value,
    label: Option<(String, Vec<String>)>,
    /// The ResourceSlices of each.
    slices: Vec<Value>,
}

/// Identical pods.
#[derive(Clone, Debug)]
struct Pods {
    count: usize,
    namespace: String,
    template: Value,
    /// The ResourceClaim of each.
    claim: Option<Value>,
}

/// The size of pods as the API server stores them, with managedFields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Size {
    /// 2 KB: as in the workload
    Small,
    /// 9.5 KB: with a second container, variables, probes and volumes
    Large,
}

/// The scheduler name of the pods.
pub(crate) const SCHEDULER: &str = "versus";
/// The names of sizes with one pod per node: a bound one, or one to be scheduled with its claim.
const PREFERRED: [&str; 2] = ["OneBoundPodPerNode", "1000Nodes_1000Pods"];

impl Workload {
    /// The workload of this name, in the size with one pod per node if it has one.
    pub(crate) fn named(name: &str, scale: Scale) -> Result<Self> {
        let library = Library::here();
        let all = library.workloads()?;
        let found = all.iter().find(|workload| workload.name == name).with_context(|| {
            let names: Vec<&str> = all.iter().map(|workload| workload.name.as_str()).collect();
            format!("there is no workload {name}: there are {}", names.join(", "))
        })?;
        let size = found.size(PREFERRED.into_iter().find(|size| found.has_size(size)))?;
        let params = found.scaled(&size.params, scale.nodes, scale.pods);
        let mut workload = Self::of(name, &found.ops, &params, &library)?;
        if let Some(wanted) = scale.bound {
            let there = workload.bound_count();
            ensure!(there > 0 || wanted == 0, "{name} has no bound pods that there could be more of");
            for pods in &mut workload.bound {
                pods.count = pods.count * wanted / there.max(1);
            }
        }
        Ok(workload)
    }

    fn of(name: &str, ops: &[Op], params: &Params, library: &Library) -> Result<Self> {
        let (mut nodes, mut classes, mut namespaces) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (mut bound, mut measured) = (Vec::new(), None);
        for op in ops {
            match op {
                Op::CreateNodes {
                    count,
                    node_template,
                    label_node_prepare_strategy,
                    csi_node_allocatable,
                    resource_slice_templates,
                } if csi_node_allocatable.is_empty() => {
                    let label = label_node_prepare_strategy.clone();
                    nodes.push(Nodes {
                        count: count.of(params)?,
                        template: library.template(node_template)?,
                        label: label.map(|label| (label.label_key, label.label_values)),
                        slices: templates(library, resource_slice_templates)?,
                    });
                }
                Op::CreateAny { template } => {
                    let object = library.template(template)?;
                    ensure!(object["kind"] == "DeviceClass", "{name}: {template} is no DeviceClass");
                    classes.push(object);
                }
                Op::CreateNamespaces { count, prefix, labels } => {
                    let names = (0..count.of(params)?).map(|index| format!("{prefix}-{index}"));
                    namespaces.extend(names.map(|name| (name, labels.clone())));
                }
                Op::CreatePods {
                    count,
                    pod_template,
                    namespace,
                    persistent_volume_template: None,
                    persistent_volume_claim_template: None,
                    resource_claim_template,
                    collect_metrics,
                    delete_pods_per_second: 0,
                } => {
                    let pods = Pods {
                        count: count.of(params)?,
                        namespace: namespace.clone(),
                        template: library.template(pod_template)?,
                        claim: templates(library, resource_claim_template)?.pop(),
                    };
                    ensure!(
                        *collect_metrics || pods.count == 0 || pods.claim.is_none(),
                        "{name} has bound pods with claims, which are not supported here"
                    );
                    if *collect_metrics {
                        measured = Some(pods);
                    } else {
                        bound.push(pods);
                    }
                }
                other => bail!("{name} does what is not done on a real control plane here: {other:?}"),
            }
        }
        let measured = measured.with_context(|| format!("{name} measures nothing"))?;
        ensure!(measured.count > 0, "{name} measures no pods");
        Ok(Self { name: name.to_owned(), nodes, classes, namespaces, bound, measured })
    }

    pub(crate) fn node_count(&self) -> usize {
        self.nodes.iter().map(|nodes| nodes.count).sum()
    }

    pub(crate) fn bound_count(&self) -> usize {
        self.bound.iter().map(|pods| pods.count).sum()
    }

    pub(crate) fn measured_count(&self) -> usize {
        self.measured.count
    }

    /// The namespace of the scheduled pods.
    pub(crate) fn measured_namespace(&self) -> &str {
        &self.measured.namespace
    }

    /// The namespaces to create.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = Value> {
        self.namespaces.iter().map(|(name, labels)| {
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        })
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = Value> {
        let all = self.nodes.iter().flat_map(|nodes| (0..nodes.count).map(move |index| (nodes, index)));
        all.enumerate().map(|(index, (nodes, of_kind))| nodes.node(&node_name(index), of_kind))
    }

    /// The DeviceClasses.
    pub(crate) fn classes(&self) -> impl Iterator<Item = Value> {
        self.classes.iter().cloned()
    }

    /// The ResourceSlices of all nodes.
    pub(crate) fn slices(&self) -> impl Iterator<Item = Value> {
        let all = self.nodes.iter().flat_map(|nodes| std::iter::repeat_n(nodes, nodes.count));
        all.enumerate()
            .flat_map(|(index, nodes)| claims::slices(&nodes.slices, &node_name(index)).collect::<Vec<_>>())
    }

    /// The bound pods, spread evenly over the nodes.
    pub(crate) fn bound_pods(&self, size: Size) -> impl Iterator<Item = Value> {
        let nodes = self.node_count().max(1);
        let all = self.bound.iter().flat_map(|pods| (0..pods.count).map(move |_| pods));
        all.enumerate().map(move |(index, pods)| {
            let mut pod = pods.pod(&format!("bound-{index:06}"), size);
            pod["spec"]["nodeName"] = json!(node_name(index % nodes));
            pod
        })
    }

    /// A pod to be scheduled.
    pub(crate) fn measured_pod(&self, name: &str, size: Size) -> Value {
        self.measured.pod(name, size)
    }

    /// Whether each pod to be scheduled has a ResourceClaim.
    pub(crate) const fn has_claims(&self) -> bool {
        self.measured.claim.is_some()
    }

    /// The ResourceClaim of a pod to be scheduled.
    pub(crate) fn claim(&self, pod: &str, uid: &str) -> Option<Value> {
        Some(claims::claim(self.measured.claim.as_ref()?, &self.measured.namespace, pod, uid))
    }
}

fn templates<'a>(library: &Library, names: impl IntoIterator<Item = &'a String>) -> Result<Vec<Value>> {
    names.into_iter().map(|name| library.template(name)).collect()
}

fn node_name(index: usize) -> String {
    format!("node-{index:06}")
}

impl Nodes {
    fn node(&self, name: &str, index: usize) -> Value {
        let mut node = self.template.clone();
        let metadata = &mut node["metadata"];
        metadata["name"] = json!(name);
        metadata["labels"]["kubernetes.io/hostname"] = json!(name);
        if let Some((key, values)) = &self.label
            && let Some(value) = index.checked_rem(values.len()).and_then(|index| values.get(index))
        {
            metadata["labels"][key] = json!(value);
        }
        node
    }
}

impl Pods {
    fn pod(&self, name: &str, size: Size) -> Value {
        let mut pod = self.template.clone();
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = json!(self.namespace);
        pod["spec"]["schedulerName"] = json!(SCHEDULER);
        if self.claim.is_some() {
            claims::want_claim(&mut pod);
        }
        if size == Size::Large {
            enlarge(&mut pod);
        }
        pod
    }
}

/// Makes a pod large with fields that schedulers ignore.
fn enlarge(pod: &mut Value) {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": 8080}, "periodSeconds": 5});
    let variable =
        |i: usize| json!({"name": format!("SETTING_{i:02}"), "value": format!("value-{i:02}-of-a-setting")});
    let sidecar = json!({
        "name": "sidecar", "image": "registry.example/sidecar:1.27",
        "env": (0..22).map(variable).collect::<Vec<_>>(),
        "readinessProbe": probe("/ready"),
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}, {"name": "info", "mountPath": "/info"}],
    });
    if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
        if let Some(first) = containers.first_mut() {
            first["env"] = (22..45).map(variable).collect();
            first["livenessProbe"] = probe("/live");
            first["readinessProbe"] = probe("/ready");
        }
        containers.push(sidecar);
    }
    let field = json!({"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}});
    pod["spec"]["volumes"] =
        json!([{"name": "cache", "emptyDir": {}}, {"name": "info", "downwardAPI": {"items": [field]}}]);
    pod["metadata"]["annotations"]["prometheus.io/scrape"] = json!("true");
}
