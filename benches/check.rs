//! Checks placements from the objects alone, without code of the scheduler or its plugins. It
//! supports the constraints of the workloads' templates.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use supercargo_framework::quantity;

use crate::plan::Plan;

/// The maximum of reported violations.
const TOLD: usize = 20;

/// A pod on a node, by their names.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// The pod.
    pub pod: &'a str,
    /// Its node.
    pub node: &'a str,
}

/// Violations as text: overcommitted nodes, pods on nodes that they or other pods exclude,
/// unbalanced topologies. Empty if the placement is valid.
pub fn violations<'a>(plan: &Plan, placed: impl Iterator<Item = Placed<'a>>) -> Result<Vec<String>> {
    let mut cluster = Cluster::of(plan)?;
    for Placed { pod, node } in placed {
        cluster.place(plan, pod, node)?;
    }
    cluster.check_requests();
    for at in 0..cluster.kinds.len() {
        cluster.check_node_affinity(at);
        cluster.check_pod_affinity(at);
        cluster.check_spread(at);
    }
    Ok(cluster.found)
}

struct Node {
    name: String,
    labels: Value,
    taints: Vec<Value>,
    offers: Amounts,
    holds: Amounts,
}

/// Amounts that nodes offer and pods request.
#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    milli_cpu: i64,
    memory: i64,
    pods: i64,
    volumes: i64,
}

/// Pods that are equal for constraints of other pods: template and namespace.
struct PodKind {
    namespace: String,
    labels: Value,
    spec: Value,
    /// The number of them on each node.
    on: BTreeMap<usize, usize>,
}

struct Cluster {
    nodes: Vec<Node>,
    by_name: HashMap<String, usize>,
    /// Labels by namespace.
    namespaces: BTreeMap<String, Value>,
    kinds: Vec<PodKind>,
    kind_of: HashMap<(String, String), usize>,
    found: Vec<String>,
}

impl Cluster {
    fn of(plan: &Plan) -> Result<Self> {
        let mut cluster = Self {
            nodes: Vec::new(),
            by_name: HashMap::new(),
            namespaces: BTreeMap::new(),
            kinds: Vec::new(),
            kind_of: HashMap::new(),
            found: Vec::new(),
        };
        for object in plan.nodes() {
            cluster.add(&object)?;
        }
        for object in plan.objects().filter(|object| object["kind"] == "Namespace") {
            let name = text(&object["metadata"]["name"]).to_owned();
            cluster.namespaces.insert(name, object["metadata"]["labels"].clone());
        }
        Ok(cluster)
    }

    fn add(&mut self, object: &Value) -> Result<()> {
        let name = text(&object["metadata"]["name"]).to_owned();
        if object["kind"] == "ResourceSlice" {
            return Ok(());
        }
        if object["kind"] == "CSINode" {
            let at = *self.by_name.get(&name).context("a CSINode comes after its node")?;
            let count = &object["spec"]["drivers"][0]["allocatable"]["count"];
            self.nodes[at].offers.volumes = count.as_i64().context("a driver takes some volumes")?;
            return Ok(());
        }
        let allocatable = &object["status"]["allocatable"];
        let offers = Amounts {
            milli_cpu: milli(&allocatable["cpu"])?,
            memory: whole(&allocatable["memory"])?,
            pods: whole(&allocatable["pods"])?,
            volumes: i64::MAX,
        };
        self.by_name.insert(name.clone(), self.nodes.len());
        self.nodes.push(Node {
            name,
            labels: object["metadata"]["labels"].clone(),
            taints: list(&object["spec"]["taints"]).to_vec(),
            offers,
            holds: Amounts::default(),
        });
        Ok(())
    }

    fn place(&mut self, plan: &Plan, name: &str, node: &str) -> Result<()> {
        let (template, pod) =
            plan.pod_named(name).with_context(|| format!("{name} is no pod of the plan"))?;
        let Some(&node) = self.by_name.get(node) else {
            self.found.push(format!("{name} is on {node}, which does not exist"));
            return Ok(());
        };
        let holds = &mut self.nodes[node].holds;
        for container in list(&pod["spec"]["containers"]) {
            let requests = &container["resources"]["requests"];
            holds.milli_cpu += milli(&requests["cpu"])?;
            holds.memory += whole(&requests["memory"])?;
        }
        holds.pods += 1;
        holds.volumes += list(&pod["spec"]["volumes"]).len() as i64;
        let namespace = text(&pod["metadata"]["namespace"]).to_owned();
        let kinds = &mut self.kinds;
        let kind = *self.kind_of.entry((template, namespace.clone())).or_insert_with(|| {
            let (labels, spec) = (pod["metadata"]["labels"].clone(), pod["spec"].clone());
            kinds.push(PodKind { namespace, labels, spec, on: BTreeMap::new() });
            kinds.len() - 1
        });
        *self.kinds[kind].on.entry(node).or_default() += 1;
        Ok(())
    }

    fn report(&mut self, violation: String) {
        if self.found.len() < TOLD {
            self.found.push(violation);
        }
    }

    fn report_all(&mut self, violations: Vec<String>) {
        for violation in violations {
            self.report(violation);
        }
    }

    fn check_requests(&mut self) {
        let over = |node: &Node| {
            let (offers, holds) = (node.offers, node.holds);
            let within = holds.milli_cpu <= offers.milli_cpu
                && holds.memory <= offers.memory
                && holds.pods <= offers.pods
                && holds.volumes <= offers.volumes;
            (!within).then(|| format!("{} holds {holds:?} and offers {offers:?}", node.name))
        };
        let over: Vec<_> = self.nodes.iter().filter_map(over).collect();
        self.report_all(over);
    }

    fn check_node_affinity(&mut self, at: usize) {
        let kind = &self.kinds[at];
        let wrong = |node: &&usize| {
            let node = &self.nodes[**node];
            !admits(node, &kind.spec) || !tolerated(node, &kind.spec)
        };
        let found: Vec<_> = kind
            .on
            .keys()
            .filter(wrong)
            .map(|node| format!("{} is no node for pods like {}", self.nodes[*node].name, kind.labels))
            .collect();
        self.report_all(found);
    }

    fn check_pod_affinity(&mut self, at: usize) {
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        let affinity = self.kinds[at].spec["affinity"].clone();
        for term in list(&affinity["podAntiAffinity"][REQUIRED]) {
            let matching = self.matching(term, at);
            self.check_term(at, term, &matching, |others, _| others == 0);
        }
        for term in list(&affinity["podAffinity"][REQUIRED]) {
            let matching = self.matching(term, at);
            // The first pod of its group may be anywhere.
            self.check_term(at, term, &matching, |others, anywhere| others > 0 || anywhere == 0);
        }
    }

    /// The groups of pods that a term selects.
    fn matching(&self, term: &Value, of: usize) -> BTreeSet<usize> {
        let own = &self.kinds[of].namespace;
        let named = list(&term["namespaces"]);
        let selector = &term["namespaceSelector"];
        let in_scope = |namespace: &String| {
            let selected = !selector.is_null()
                && self.namespaces.get(namespace).is_some_and(|labels| selects(selector, labels));
            let is_own = named.is_empty() && selector.is_null() && namespace == own;
            selected || is_own || named.iter().any(|name| name == namespace)
        };
        let matches =
            |kind: &PodKind| in_scope(&kind.namespace) && selects(&term["labelSelector"], &kind.labels);
        (0..self.kinds.len()).filter(|kind| matches(&self.kinds[*kind])).collect()
    }

    /// The number of pods of some groups in each domain of a topology.
    fn by_domain(&self, key: &str, kinds: &BTreeSet<usize>) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for (node, count) in kinds.iter().flat_map(|kind| &self.kinds[*kind].on) {
            if let Some(domain) = self.nodes[*node].labels[key].as_str() {
                *counts.entry(domain).or_default() += count;
            }
        }
        counts
    }

    /// Counts for each pod of a group the pods that a term selects, in its domain and in total.
    fn check_term(
        &mut self,
        at: usize,
        term: &Value,
        matching: &BTreeSet<usize>,
        allowed: impl Fn(usize, usize) -> bool,
    ) {
        let key = text(&term["topologyKey"]);
        let itself = usize::from(matching.contains(&at));
        let counts = self.by_domain(key, matching);
        let anywhere: usize = counts.values().sum();
        let mut wrong = Vec::new();
        for node in self.kinds[at].on.keys() {
            let node = &self.nodes[*node];
            let here = node.labels[key].as_str().and_then(|domain| counts.get(domain)).copied();
            let others = here.unwrap_or_default().saturating_sub(itself);
            if !allowed(others, anywhere - itself.min(anywhere)) {
                wrong.push(format!("{}: {others} others in the {key} of a pod that says {term}", node.name));
            }
        }
        self.report_all(wrong);
    }

    fn check_spread(&mut self, at: usize) {
        let kind = &self.kinds[at];
        let constraints: Vec<_> = list(&kind.spec["topologySpreadConstraints"])
            .iter()
            .filter(|constraint| constraint["whenUnsatisfiable"] == "DoNotSchedule")
            .cloned()
            .collect();
        for constraint in constraints {
            let kind = &self.kinds[at];
            let key = text(&constraint["topologyKey"]);
            let eligible = |node: &Node| {
                admits(node, &kind.spec)
                    && (constraint["nodeTaintsPolicy"] != "Honor" || tolerated(node, &kind.spec))
            };
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            let eligible: Vec<bool> = self.nodes.iter().map(eligible).collect();
            for (node, _) in self.nodes.iter().zip(&eligible).filter(|(_, eligible)| **eligible) {
                if let Some(domain) = node.labels[key].as_str() {
                    counts.entry(domain).or_default();
                }
            }
            let alike = |other: &&PodKind| {
                other.namespace == kind.namespace && selects(&constraint["labelSelector"], &other.labels)
            };
            for (node, count) in self.kinds.iter().filter(alike).flat_map(|other| &other.on) {
                if eligible[*node]
                    && let Some(domain) = self.nodes[*node].labels[key].as_str()
                {
                    *counts.entry(domain).or_default() += count;
                }
            }
            let (most, least) = (counts.values().max(), counts.values().min());
            let skew = most.copied().unwrap_or_default() - least.copied().unwrap_or_default();
            if Some(skew as u64) > constraint["maxSkew"].as_u64() {
                self.report(format!("the skew over {key} is {skew}: {constraint}"));
            }
        }
    }
}

/// Whether a node matches a pod's required node affinity.
fn admits(node: &Node, spec: &Value) -> bool {
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let any_of =
        |requirement: &Value, value: &Value| list(&requirement["values"]).iter().any(|one| one == value);
    let term = |term: &Value| {
        let name = Value::from(node.name.clone());
        list(&term["matchExpressions"])
            .iter()
            .all(|requirement| any_of(requirement, &node.labels[text(&requirement["key"])]))
            && list(&term["matchFields"]).iter().all(|requirement| any_of(requirement, &name))
    };
    required.is_null() || list(&required["nodeSelectorTerms"]).iter().any(term)
}

/// Whether a pod tolerates the taints of a node.
fn tolerated(node: &Node, spec: &Value) -> bool {
    let tolerates =
        |taint: &Value| list(&spec["tolerations"]).iter().any(|toleration| toleration["key"] == taint["key"]);
    node.taints.iter().filter(|taint| taint["effect"] == "NoSchedule").all(tolerates)
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector["matchLabels"].as_object();
    wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn milli(value: &Value) -> Result<i64> {
    amount(value, quantity::milli_value(value.as_str().unwrap_or("0")).ok())
}

fn whole(value: &Value) -> Result<i64> {
    amount(value, quantity::value(value.as_str().unwrap_or("0")).ok())
}

fn amount(value: &Value, parsed: Option<i64>) -> Result<i64> {
    ensure!(value.is_null() || value.is_string(), "{value} is not a quantity");
    parsed.with_context(|| format!("{value} is not a quantity"))
}

#[cfg(test)]
mod tests;
