//! Scenario files and their API objects. `README.md` describes the format.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::expected::{self, Expected};
use super::files::{folder, yaml_files};
use super::namespace::{NAMESPACE, pod_path};
use super::scheduler_kind::{Gates, SchedulerKind};

/// One scenario file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Scenario {
    /// The file's path under `scenarios/`, without `.yaml`.
    #[serde(skip)]
    pub(super) name: String,
    pub(super) about: String,
    #[serde(default = "default_profile")]
    pub(super) profile: String,
    #[serde(default)]
    feature_gates: BTreeSet<String>,
    #[serde(default)]
    disabled_gates: BTreeSet<String>,
    /// Both of them.
    #[serde(skip)]
    pub(super) gates: Gates,
    /// The controllers of kube-controller-manager that the scenario needs. It runs on a real
    /// control plane only, beside kube-scheduler.
    #[serde(default)]
    pub(super) controllers: BTreeSet<String>,
    #[serde(default)]
    pub(super) nodes: Vec<Node>,
    #[serde(default)]
    pub(super) objects: Vec<Object>,
    pub(super) pods: Vec<Pod>,
    #[serde(default)]
    pub(super) steps: Vec<Step>,
    /// The file's second document, if it is recorded already.
    #[serde(skip)]
    expected: Option<Expected>,
}

/// A node, or several that differ only in their names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Node {
    pub(super) name: String,
    count: Option<usize>,
    #[serde(default)]
    labels: Map<String, Value>,
    #[serde(default)]
    taints: Vec<String>,
    #[serde(default)]
    unschedulable: bool,
    #[serde(default)]
    allocatable: Map<String, Value>,
    #[serde(default)]
    images: Vec<Value>,
    #[serde(default)]
    conditions: Vec<Value>,
}

/// Any other object, and the path of its collection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the format's words")]
pub(super) struct Object {
    pub(super) path: String,
    pub(super) object: Value,
    /// Patched in after the creation.
    pub(super) status: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Pod {
    pub(super) name: String,
    profile: Option<String>,
    scheduler: Option<String>,
    #[serde(default)]
    labels: Map<String, Value>,
    #[serde(default)]
    finalizers: Vec<String>,
    #[serde(default)]
    owners: Vec<Value>,
    #[serde(default)]
    requests: Map<String, Value>,
    #[serde(default)]
    limits: Map<String, Value>,
    #[serde(default)]
    ports: Vec<Value>,
    image: Option<String>,
    node: Option<String>,
    priority_class: Option<String>,
    #[serde(default)]
    gates: Vec<String>,
    required: Option<Vec<Value>>,
    preferred: Option<Vec<Value>>,
    #[serde(default)]
    spec: Map<String, Value>,
    pub(super) status: Option<Value>,
    pub(super) expect: Option<Expect>,
}

/// An action, and the conditions to wait for after it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Step {
    pub(super) create: Option<Target>,
    pub(super) patch: Option<Target>,
    pub(super) with: Option<Value>,
    pub(super) subresource: Option<String>,
    pub(super) delete: Option<Target>,
    /// The object to wait for until it has the fields of `has`.
    pub(super) see: Option<Target>,
    pub(super) has: Option<Value>,
    /// Milliseconds. Only for backoffs.
    pub(super) elapse: Option<u64>,
    #[serde(default)]
    pub(super) expect: BTreeMap<String, Expect>,
}

/// `pod/<name>`, `node/<name>`, or `<plural>/<name>` of one of the other objects.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(super) enum Target {
    Pod(String),
    Node(String),
    Other { plural: String, name: String },
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once('/') {
            Some(("pod", name)) => Ok(Self::Pod(name.to_owned())),
            Some(("node", name)) => Ok(Self::Node(name.to_owned())),
            Some((plural, name)) => Ok(Self::Other { plural: plural.to_owned(), name: name.to_owned() }),
            None => Err(format!("{text} is not <what>/<name>")),
        }
    }
}

impl Object {
    /// Its name.
    pub(super) fn name(&self) -> &str {
        self.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Its name in steps.
    pub(super) fn target(&self) -> Target {
        let (_, plural) = self.path.rsplit_once('/').unwrap_or_default();
        Target::Other { plural: plural.to_owned(), name: self.name().to_owned() }
    }

    /// Its path in the API.
    pub(super) fn own_path(&self) -> String {
        format!("{}/{}", self.path, self.name())
    }
}

/// A condition of a pod to wait for.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "Value")]
pub(super) enum Expect {
    /// It has a node, or this node, with its event and condition.
    Bound(Option<String>),
    /// It has failed this often, and its condition matches its last event.
    Failed { times: u64, note: Option<String> },
    /// It has this many events.
    Events(u64),
    /// It has no node and no event. Checked at once.
    Quiet,
}

impl TryFrom<Value> for Expect {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let refuse = || Err(format!("{value} is no expectation: see README.md"));
        match &value {
            Value::String(word) => match word.as_str() {
                "bound" => Ok(Self::Bound(None)),
                "failed" => Ok(Self::Failed { times: 1, note: None }),
                "quiet" => Ok(Self::Quiet),
                _ => refuse(),
            },
            Value::Object(map) => {
                let number = |key: &str| map.get(key).and_then(Value::as_u64);
                let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
                let known = |keys: &[&str]| map.keys().all(|key| keys.contains(&key.as_str()));
                match (text("bound"), number("failed"), number("events")) {
                    (Some(node), None, None) if known(&["bound"]) => Ok(Self::Bound(Some(node))),
                    (None, Some(times), None) if known(&["failed", "note"]) => {
                        Ok(Self::Failed { times, note: text("note") })
                    }
                    (None, None, Some(times)) if known(&["events"]) => Ok(Self::Events(times)),
                    _ => refuse(),
                }
            }
            _ => refuse(),
        }
    }
}

impl Scenario {
    /// Every scenario in the order of names. The files are read once per process.
    pub(super) fn all() -> Result<&'static [Self]> {
        static ALL: OnceLock<Result<Vec<Scenario>, String>> = OnceLock::new();
        let all = ALL.get_or_init(|| Self::read_all().map_err(|error| format!("{error:#}")));
        all.as_deref().map_err(|error| anyhow!("{error}"))
    }

    fn read_all() -> Result<Vec<Self>> {
        let folder = folder("scenarios");
        let files = yaml_files(&folder)?;
        files.iter().map(|file| Self::read(file, &name_of(&folder, file)?)).collect()
    }

    fn read(file: &Path, name: &str) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        Self::parse(name, &text)
    }

    /// Parses the text of a scenario file.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self> {
        let (text, recorded) = expected::split(text);
        let mut scenario: Self = serde_saphyr::from_str(text).with_context(|| format!("read {name}"))?;
        scenario.expected = recorded.map(|text| Expected::parse(name, text)).transpose()?;
        scenario.gates = Gates {
            on: std::mem::take(&mut scenario.feature_gates),
            off: std::mem::take(&mut scenario.disabled_gates),
        };
        name.clone_into(&mut scenario.name);
        scenario.nodes = scenario.nodes.iter().flat_map(Node::each).collect();
        scenario.check().with_context(|| format!("check {}", scenario.name))?;
        Ok(scenario)
    }

    /// What kube-scheduler did.
    pub(super) fn expected(&self) -> Result<&Expected> {
        let expected = self.expected.as_ref();
        expected.with_context(|| format!("{} is not recorded: see README.md", self.name))
    }

    fn check(&self) -> Result<()> {
        ensure!(self.about.ends_with('.'), "`about` is not a sentence");
        let pods: BTreeSet<&str> = self.pods.iter().map(|pod| pod.name.as_str()).collect();
        ensure!(pods.len() == self.pods.len(), "two pods have one name");
        for step in &self.steps {
            let targets = [&step.create, &step.patch, &step.delete, &step.see];
            let verbs = targets.iter().filter(|target| target.is_some()).count();
            let verbs = verbs + usize::from(step.elapse.is_some());
            ensure!(verbs <= 1 && (verbs == 1 || !step.expect.is_empty()), "a step does one thing: {step:?}");
            ensure!(step.patch.is_some() == step.with.is_some(), "`patch` and `with` go together: {step:?}");
            ensure!(step.see.is_some() == step.has.is_some(), "`see` and `has` go together: {step:?}");
            for name in step.expect.keys() {
                ensure!(pods.contains(name.as_str()), "a step expects something of {name}");
            }
            match &step.create {
                Some(Target::Pod(name)) => ensure!(pods.contains(name.as_str()), "there is no pod {name}"),
                Some(target @ Target::Node(_)) => drop(self.node(target)?),
                Some(Target::Other { .. }) | None => {}
            }
            for target in targets.into_iter().flatten() {
                self.path(target)?;
            }
        }
        Ok(())
    }

    /// Whether it has objects of dynamic resource allocation.
    pub(super) fn has_devices(&self) -> bool {
        self.objects.iter().any(|object| object.path.starts_with("/apis/resource.k8s.io/"))
    }

    /// Whether it runs on API servers of other releases, too, whose scheduler has no gate off.
    pub(super) fn runs_on_other_releases(&self) -> bool {
        self.gates.off.is_empty() && self.runs_in_memory()
    }

    /// Whether it runs on the API server in memory, which has no controllers.
    pub(super) fn runs_in_memory(&self) -> bool {
        self.controllers.is_empty()
    }

    /// Whether a step creates this object.
    pub(super) fn comes_later(&self, target: &Target) -> bool {
        self.steps.iter().any(|step| step.create.as_ref() == Some(target))
    }

    /// The path of the target in the API.
    pub(super) fn path(&self, target: &Target) -> Result<String> {
        match target {
            Target::Pod(name) => Ok(pod_path(name)),
            Target::Node(name) => Ok(format!("/api/v1/nodes/{name}")),
            Target::Other { .. } => Ok(self.object(target)?.own_path()),
        }
    }

    /// One of the other objects.
    pub(super) fn object(&self, target: &Target) -> Result<&Object> {
        let object = self.objects.iter().find(|object| object.target() == *target);
        object.with_context(|| format!("there is no {target:?}"))
    }

    /// The pod of that name.
    pub(super) fn pod(&self, name: &str) -> Result<&Pod> {
        let mut pods = self.pods.iter();
        pods.find(|pod| pod.name == name).with_context(|| format!("there is no pod {name}"))
    }

    /// The node's API object.
    pub(super) fn node(&self, target: &Target) -> Result<Value> {
        let node = self.nodes.iter().find(|node| *target == Target::Node(node.name.clone()));
        node.with_context(|| format!("there is no {target:?}"))?.object()
    }
}

impl Node {
    fn each(&self) -> Vec<Self> {
        let Some(count) = self.count else {
            return vec![self.clone()];
        };
        let name = |number| format!("{}-{number:02}", self.name);
        (1..=count).map(|number| Self { name: name(number), count: None, ..self.clone() }).collect()
    }

    /// The API object with its status: a node may be created with it.
    pub(super) fn object(&self) -> Result<Value> {
        let taints: Vec<Value> = self.taints.iter().map(|text| taint(text)).collect::<Result<_>>()?;
        let mut allocatable = quantities(&json!({
            "cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"
        }));
        allocatable.extend(quantities(&Value::Object(self.allocatable.clone())));
        let conditions = if self.conditions.is_empty() {
            vec![json!({"type": "Ready", "status": "True", "reason": "KubeletReady"})]
        } else {
            self.conditions.clone()
        };
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": self.name, "labels": self.labels },
            "spec": { "taints": taints, "unschedulable": self.unschedulable },
            "status": {
                "capacity": allocatable,
                "allocatable": allocatable,
                "images": self.images,
                "conditions": conditions,
            },
        }))
    }
}

impl Pod {
    /// The API object for one side.
    pub(super) fn object(&self, scenario: &Scenario, side: SchedulerKind) -> Value {
        let scheduler = self.scheduler.clone().unwrap_or_else(|| {
            let profile = self.profile.as_ref().unwrap_or(&scenario.profile);
            side.scheduler_name(profile)
        });
        let container = json!({
            "name": "main",
            "image": self.image.as_deref().unwrap_or("app:1"),
            "ports": self.ports,
            "resources": {
                "requests": quantities(&Value::Object(self.requests.clone())),
                "limits": quantities(&Value::Object(self.limits.clone())),
            },
        });
        let gates: Vec<Value> = self.gates.iter().map(|name| json!({"name": name})).collect();
        let mut spec = json!({
            "schedulerName": scheduler,
            "containers": [container],
            "schedulingGates": gates,
            "nodeName": self.node,
            "priorityClassName": self.priority_class,
        });
        if let Some(terms) = &self.required {
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({ "nodeSelectorTerms": terms });
        }
        if let Some(terms) = &self.preferred {
            spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!(terms);
        }
        for (key, value) in &self.spec {
            spec[key] = value.clone();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": NAMESPACE,
                "labels": self.labels,
                "finalizers": self.finalizers,
                "ownerReferences": self.owners,
            },
            "spec": spec,
        })
    }
}

/// A file's path relative to `folder`, without its extension.
fn name_of(folder: &Path, file: &Path) -> Result<String> {
    let name = file.strip_prefix(folder)?.with_extension("");
    Ok(name.to_str().context("a file name is not text")?.to_owned())
}

/// `key=value:Effect` or `key:Effect`.
fn taint(text: &str) -> Result<Value> {
    let Some((key, effect)) = text.rsplit_once(':') else { bail!("{text} is no taint") };
    let (key, value) = key.split_once('=').unwrap_or((key, ""));
    Ok(json!({ "key": key, "value": value, "effect": effect }))
}

/// Quantities for the API: numbers become text.
fn quantities(amounts: &Value) -> Map<String, Value> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    amounts.as_object().map_or_else(Map::new, |amounts| {
        let amounts = amounts.iter();
        amounts.map(|(name, value)| (name.clone(), Value::String(text(value)))).collect()
    })
}

fn default_profile() -> String {
    "parity".to_owned()
}
