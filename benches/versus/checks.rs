//! Checks all placements against their constraints, from a fresh list of all objects. It shares no
//! code with supercargo, so that errors cannot hide.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;
use supercargo_benches::devices::Devices;

use crate::api::{Connection, Server, Wire};

/// The page size of lists.
const PAGE: usize = 1000;
/// The maximum of reported violations.
const TOLD: usize = 5;

/// The fields of pods and nodes that lists provide.
pub(crate) struct World {
    nodes: HashMap<String, Node>,
    pods: Vec<Pod>,
    devices: Devices,
}

#[derive(Deserialize)]
struct List<T> {
    metadata: ListMeta,
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    r#continue: String,
    remaining_item_count: usize,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Node {
    metadata: Metadata,
    status: NodeStatus,
}

#[derive(Deserialize)]
struct NodeStatus {
    allocatable: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    spec: PodSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_name: String,
    containers: Vec<Container>,
    #[serde(default)]
    affinity: Affinity,
    #[serde(default)]
    topology_spread_constraints: Vec<Spread>,
}

#[derive(Deserialize)]
struct Container {
    #[serde(default)]
    resources: Resources,
}

#[derive(Default, Deserialize)]
struct Resources {
    #[serde(default)]
    requests: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    pod_affinity: Terms,
    pod_anti_affinity: Terms,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Terms {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Vec<Term>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    topology_key: String,
    #[serde(default)]
    label_selector: Selector,
    #[serde(default)]
    namespaces: Vec<String>,
    namespace_selector: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spread {
    max_skew: usize,
    topology_key: String,
    when_unsatisfiable: String,
    #[serde(default)]
    label_selector: Selector,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Value>,
}

/// The number of objects at a path, from a list of one object.
pub(crate) async fn count(connection: &mut Connection, path: &str) -> Result<usize> {
    let list: List<Value> = connection.read(&format!("{path}?limit=1")).await?;
    Ok(list.items.len() + list.metadata.remaining_item_count)
}

/// All objects of a path.
pub(crate) async fn list<T: for<'de> Deserialize<'de>>(server: &Server, path: &str) -> Result<Vec<T>> {
    let mut connection = server.connect(Wire::Http1).await?;
    let (mut all, mut from) = (Vec::new(), String::new());
    loop {
        let page: List<T> = connection.read(&format!("{path}?limit={PAGE}{from}")).await?;
        all.extend(page.items);
        if page.metadata.r#continue.is_empty() {
            return Ok(all);
        }
        from = format!("&continue={}", page.metadata.r#continue);
    }
}

/// The devices, claims and pods with claims, if there are devices.
async fn devices(server: &Server) -> Result<Devices> {
    let mut devices = Devices {
        slices: list(server, "/apis/resource.k8s.io/v1/resourceslices").await?,
        ..Devices::default()
    };
    if !devices.slices.is_empty() {
        devices.claims = list(server, "/apis/resource.k8s.io/v1/resourceclaims").await?;
        devices.pods = list(server, "/api/v1/pods").await?;
        devices.pods.retain(|pod| pod["spec"]["resourceClaims"].is_array());
    }
    Ok(devices)
}

impl World {
    pub(crate) async fn read(server: &Server) -> Result<Self> {
        let nodes: Vec<Node> = list(server, "/api/v1/nodes").await?;
        let nodes = nodes.into_iter().map(|node| (node.metadata.name.clone(), node)).collect();
        let pods = list(server, "/api/v1/pods").await?;
        Ok(Self { nodes, pods, devices: devices(server).await? })
    }

    /// The violations: pods without a node, overcommitted nodes, broken constraints, and claims
    /// without devices of their own.
    pub(crate) fn violations(&self) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for pod in self.pods.iter().filter(|pod| !self.nodes.contains_key(&pod.spec.node_name)) {
            wrong.push(format!("{} is on no node: {:?}", pod.metadata.name, pod.spec.node_name));
        }
        self.overcommit(&mut wrong)?;
        self.skew(&mut wrong)?;
        self.affinity(&mut wrong)?;
        wrong.extend(self.devices.violations());
        let more = wrong.len().saturating_sub(TOLD);
        wrong.truncate(TOLD);
        wrong.extend((more > 0).then(|| format!("and {more} more")));
        Ok(wrong)
    }

    fn overcommit(&self, wrong: &mut Vec<String>) -> Result<()> {
        let mut taken: HashMap<(&str, &str), u128> = HashMap::new();
        for pod in &self.pods {
            *taken.entry((&pod.spec.node_name, "pods")).or_default() += 1000;
            for (resource, quantity) in pod.spec.containers.iter().flat_map(|c| &c.resources.requests) {
                *taken.entry((&pod.spec.node_name, resource)).or_default() += milli(quantity)?;
            }
        }
        for ((node, resource), taken) in taken {
            let Some(node) = self.nodes.get(node) else { continue };
            let there = node.status.allocatable.get(resource).map_or(Ok(0), |quantity| milli(quantity))?;
            if taken > there {
                wrong.push(format!(
                    "{} has {there} m of {resource}, and {taken} m are taken",
                    node.metadata.name
                ));
            }
        }
        Ok(())
    }

    /// Required constraints held for each pod when it was bound. Because no pod has left, they must
    /// hold for all.
    fn skew(&self, wrong: &mut Vec<String>) -> Result<()> {
        let mut seen = HashSet::new();
        for pod in &self.pods {
            for spread in pod
                .spec
                .topology_spread_constraints
                .iter()
                .filter(|s| s.when_unsatisfiable == "DoNotSchedule")
            {
                let namespace = &pod.metadata.namespace;
                if !seen.insert((namespace, &spread.topology_key, &spread.label_selector.match_labels)) {
                    continue;
                }
                let domains =
                    self.nodes.values().filter_map(|node| node.metadata.labels.get(&spread.topology_key));
                let mut counts: BTreeMap<&String, usize> = domains.map(|domain| (domain, 0)).collect();
                for other in self.pods.iter().filter(|other| other.metadata.namespace == *namespace) {
                    if let Some(domain) = self.domain(other, &spread.topology_key)
                        && spread.label_selector.matches(other)?
                    {
                        *counts.entry(domain).or_default() += 1;
                    }
                }
                let (least, most) =
                    (counts.values().min().unwrap_or(&0), counts.values().max().unwrap_or(&0));
                if most - least > spread.max_skew {
                    wrong.push(format!(
                        "the skew over {} is {}: {counts:?}",
                        spread.topology_key,
                        most - least
                    ));
                }
            }
        }
        Ok(())
    }

    /// Required affinity and anti-affinity hold.
    fn affinity(&self, wrong: &mut Vec<String>) -> Result<()> {
        // For each term, the number of matching pods in each domain.
        let mut matching: HashMap<String, HashMap<&str, usize>> = HashMap::new();
        for pod in &self.pods {
            let affinity = &pod.spec.affinity;
            let attracts = affinity.pod_affinity.required.iter().map(|term| (term, true));
            let repels = affinity.pod_anti_affinity.required.iter().map(|term| (term, false));
            for (term, attracts) in attracts.chain(repels) {
                let key = format!(
                    "{:?} {} {:?}",
                    term.of(pod),
                    term.topology_key,
                    term.label_selector.match_labels
                );
                if !matching.contains_key(&key) {
                    let mut counts = HashMap::new();
                    for other in &self.pods {
                        if let Some(domain) = self.domain(other, &term.topology_key)
                            && term.matches(pod, other)?
                        {
                            *counts.entry(domain.as_str()).or_default() += 1;
                        }
                    }
                    matching.insert(key.clone(), counts);
                }
                let counts = &matching[&key];
                let itself = usize::from(term.matches(pod, pod)?);
                let domain = self.domain(pod, &term.topology_key);
                let here = domain.and_then(|domain| counts.get(domain.as_str())).copied().unwrap_or(0);
                let others = here.saturating_sub(itself);
                // The first pod of its group needs no match.
                let alone = itself == 1 && counts.values().sum::<usize>() <= 1;
                if attracts && (domain.is_none() || others == 0 && !alone) {
                    wrong.push(format!("{} has none beside it that it must have", pod.metadata.name));
                } else if !attracts && domain.is_some() && others > 0 {
                    wrong.push(format!("{} has {others} beside it that it must not have", pod.metadata.name));
                }
            }
        }
        Ok(())
    }

    fn domain(&self, pod: &Pod, key: &str) -> Option<&String> {
        self.nodes.get(&pod.spec.node_name)?.metadata.labels.get(key)
    }
}

impl Term {
    /// The namespaces of a term.
    fn of<'a>(&'a self, pod: &'a Pod) -> &'a [String] {
        if self.namespaces.is_empty() {
            std::slice::from_ref(&pod.metadata.namespace)
        } else {
            &self.namespaces
        }
    }

    fn matches(&self, pod: &Pod, other: &Pod) -> Result<bool> {
        anyhow::ensure!(self.namespace_selector.is_none(), "namespace selectors are not checked");
        Ok(self.of(pod).contains(&other.metadata.namespace) && self.label_selector.matches(other)?)
    }
}

impl Selector {
    fn matches(&self, pod: &Pod) -> Result<bool> {
        anyhow::ensure!(self.match_expressions.is_empty(), "expressions in selectors are not checked");
        Ok(self.match_labels.iter().all(|(key, value)| pod.metadata.labels.get(key) == Some(value)))
    }
}

/// A quantity in thousandths.
fn milli(quantity: &str) -> Result<u128> {
    let digits = quantity.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit: u128 = match &quantity[digits.len()..] {
        "m" => 1,
        "" => 1000,
        "k" => 1000 * 1000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        other => anyhow::bail!("{quantity} has the unknown unit {other}"),
    };
    let digits: u128 = digits.parse().with_context(|| format!("{quantity} is no whole number"))?;
    Ok(digits * unit)
}
