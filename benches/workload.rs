//! Workloads as data, in scheduler_perf's shape: what is created, from which templates, how many, and what is measured.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// A workload, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name, scheduler_perf's.
    pub name: String,
    /// What is done, in order.
    pub ops: Vec<Op>,
    /// How many of everything; the first is the one that is run unless another is named.
    pub workloads: Vec<Size>,
}

/// A size of a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Its name.
    pub name: String,
    /// What the operations' parameters are.
    pub params: Params,
}

/// How many of everything, by name.
pub type Params = BTreeMap<String, usize>;

/// The parameter that says how many pods are measured.
pub const MEASURED: &str = "measurePods";
/// What does not grow with the cluster: there are more namespaces instead.
const PER_NAMESPACE: &str = "initPodsPerNamespace";

/// Something that is done, with scheduler_perf's name for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "opcode", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Op {
    /// Nodes of a template.
    CreateNodes {
        /// How many.
        count: Count,
        /// Their template.
        node_template: String,
        /// A label whose values are given out in turn.
        label_node_prepare_strategy: Option<LabelStrategy>,
        /// How many volumes of a driver each node takes.
        #[serde(default)]
        csi_node_allocatable: BTreeMap<String, usize>,
    },
    /// Namespaces `<prefix>-0`, `<prefix>-1`, …
    CreateNamespaces {
        /// How many.
        count: Count,
        /// What their names begin with.
        prefix: String,
        /// Their labels.
        #[serde(default)]
        labels: BTreeMap<String, String>,
    },
    /// An object of any other kind.
    CreateAny {
        /// Its template.
        template: String,
    },
    /// Pods of a template. Those that are not measured are there before, spread evenly over the nodes.
    CreatePods {
        /// How many.
        count: Count,
        /// Their template.
        pod_template: String,
        /// Their namespace.
        #[serde(default = "default_namespace")]
        namespace: String,
        /// A volume for each of them, and a claim that is bound to it.
        persistent_volume_template: Option<String>,
        /// The claim's template.
        persistent_volume_claim_template: Option<String>,
        /// Whether these are what is measured.
        #[serde(default)]
        collect_metrics: bool,
        /// How many of those that are there before are deleted per second while others are measured.
        #[serde(default)]
        delete_pods_per_second: usize,
    },
    /// As many pods in each of the namespaces with this prefix, there before.
    CreatePodSets {
        /// How many namespaces.
        count: Count,
        /// What their names begin with.
        namespace_prefix: String,
        /// How many pods in each.
        pods_per_namespace: Count,
        /// The pods' template.
        pod_template: String,
    },
    /// Objects that are created while others are measured.
    Churn {
        /// Whether they go again.
        mode: ChurnMode,
        /// Their templates.
        templates: Vec<String>,
        /// One of each comes or goes every so often.
        interval_milliseconds: u64,
        /// How many of each there are at most, when they are created again and again; then they are deleted in turn.
        #[serde(default)]
        number: usize,
    },
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// What becomes of objects that come meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChurnMode {
    /// Ever more of them.
    Create,
    /// As many as `number` says, then those are deleted one by one, and so on.
    Recreate,
}

/// A label that nodes get.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelStrategy {
    /// Its key.
    pub label_key: String,
    /// Its values, given out in turn.
    pub label_values: Vec<String>,
}

/// A number, or `$` and the name of the parameter that has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Count {
    /// The number.
    Number(usize),
    /// The parameter, with its `$`.
    Param(String),
}

impl Count {
    /// The number.
    pub fn of(&self, params: &Params) -> Result<usize> {
        match self {
            Self::Number(count) => Ok(*count),
            Self::Param(name) => {
                let name = self.param().with_context(|| format!("{name} does not begin with $"))?;
                params.get(name).copied().with_context(|| format!("there is no parameter {name}"))
            }
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            Self::Number(_) => None,
            Self::Param(name) => name.strip_prefix('$'),
        }
    }
}

impl Workload {
    /// The size of this name, or the first.
    pub fn size(&self, name: Option<&str>) -> Result<&Size> {
        match name {
            None => self.workloads.first().with_context(|| format!("{} has no sizes", self.name)),
            Some(name) => {
                let names = || self.workloads.iter().map(|size| size.name.as_str()).collect::<Vec<_>>();
                let found = self.workloads.iter().find(|size| size.name == name);
                found.with_context(|| format!("{} has no {name}: it has {}", self.name, names().join(", ")))
            }
        }
    }

    /// Whether there is a size of this name.
    pub fn has_size(&self, name: &str) -> bool {
        self.workloads.iter().any(|size| size.name == name)
    }

    /// How many nodes there are beside those whose number is part of the workload.
    pub fn nodes(&self, params: &Params) -> usize {
        let counts = self.ops.iter().filter_map(|op| match op {
            Op::CreateNodes { count, .. } => params.get(count.param()?),
            _ => None,
        });
        counts.sum()
    }

    /// The same for as many nodes: everything grows or shrinks with them, but what is measured does not grow, unless so many
    /// pods are asked for; and then not beyond what fills the nodes as much.
    pub fn scaled(&self, params: &Params, nodes: Option<usize>, pods: Option<usize>) -> Params {
        let base = self.nodes(params);
        let wanted = nodes.filter(|_| base > 0).unwrap_or(base);
        let scaled = |(name, &count): (&String, &usize)| {
            let most = if base == 0 || count == 0 { count } else { (count * wanted / base).max(1) };
            let count = match name.as_str() {
                MEASURED => pods.unwrap_or(count).min(most),
                PER_NAMESPACE => count,
                _ => most,
            };
            (name.clone(), count)
        };
        params.iter().map(scaled).collect()
    }
}

/// The files of workloads and templates.
#[derive(Debug)]
pub struct Library {
    dir: PathBuf,
}

impl Library {
    /// Those beside the benchmarks.
    pub fn here() -> Self {
        Self { dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads") }
    }

    /// All workloads, by name.
    pub fn workloads(&self) -> Result<Vec<Workload>> {
        let entries = fs::read_dir(&self.dir).with_context(|| format!("read {}", self.dir.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        let mut workloads = paths.iter().map(|path| read(path)).collect::<Result<Vec<Workload>>>()?;
        workloads.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(workloads)
    }

    /// A template: an object, laid over another if it extends one.
    pub fn template(&self, name: &str) -> Result<Value> {
        let path = self.dir.join("templates").join(format!("{name}.yaml"));
        let mut template: Value = read(&path)?;
        let extends = template.as_object_mut().and_then(|object| object.remove("extends"));
        let Some(base) = extends else { return Ok(template) };
        let base = base.as_str().with_context(|| format!("{name} extends what is no name"))?;
        ensure!(base != name, "{name} extends itself");
        let mut whole = self.template(base)?;
        lay_over(&mut whole, template);
        Ok(whole)
    }
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("read {}", path.display()))
}

/// Objects are merged, `null` takes away, anything else replaces.
fn lay_over(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    under.remove(&key);
                } else {
                    lay_over(under.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (under, over) => *under = over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_is_merged_into_the_one_it_extends() {
        let library = Library::here();
        let pod = library.template("pod-with-preferred-zone-spread").unwrap();
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "100m");
        assert_eq!(pod["metadata"]["labels"]["color"], "blue");
        assert_eq!(pod["spec"]["topologySpreadConstraints"][0]["whenUnsatisfiable"], "ScheduleAnyway");
        assert!(pod["extends"].is_null());
    }

    #[test]
    fn measured_pods_scale_down_with_nodes_but_not_up() {
        let workloads = Library::here().workloads().unwrap();
        let basic = workloads.iter().find(|workload| workload.name == "SchedulingBasic").unwrap();
        let own = &basic.size(None).unwrap().params;
        let scaled = |nodes, pods| {
            let params = basic.scaled(own, nodes, pods);
            (params["initNodes"], params["initPods"], params[MEASURED])
        };
        assert_eq!(scaled(None, None), (5000, 1000, 10_000));
        assert_eq!(scaled(Some(500), None), (500, 100, 1000));
        assert_eq!(scaled(Some(50_000), None), (50_000, 10_000, 10_000));
        assert_eq!(scaled(Some(50_000), Some(20_000)), (50_000, 10_000, 20_000));
        assert_eq!(scaled(Some(500), Some(20_000)), (500, 100, 1000), "it would be fuller than the file's");
    }

    #[test]
    fn unknown_size_is_rejected_with_the_known_ones() {
        let workloads = Library::here().workloads().unwrap();
        let error = workloads[0].size(Some("none")).unwrap_err().to_string();
        assert!(error.contains(&workloads[0].workloads[0].name), "{error}");
    }
}
