//! Workloads as data in the shape of scheduler_perf: the created objects, their templates and
//! numbers, and the measured pods.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// A workload file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name in scheduler_perf.
    pub name: String,
    /// The operations in order.
    pub ops: Vec<Op>,
    /// The sizes. The first is the default.
    pub workloads: Vec<Size>,
}

/// A size of a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Its name.
    pub name: String,
    /// The parameters of the operations.
    pub params: Params,
}

/// Numbers by name.
pub type Params = BTreeMap<String, usize>;

/// The parameter with the number of measured pods.
pub const MEASURED: &str = "measurePods";
/// A number that does not scale with the cluster: the number of namespaces scales instead.
const PER_NAMESPACE: &str = "initPodsPerNamespace";

/// An operation, with its name in scheduler_perf.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "opcode", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Op {
    /// Creates nodes from a template.
    CreateNodes {
        /// Their number.
        count: Count,
        /// Their template.
        node_template: String,
        /// A label whose values alternate.
        label_node_prepare_strategy: Option<LabelStrategy>,
        /// The volume limit of a driver on each node.
        #[serde(default)]
        csi_node_allocatable: BTreeMap<String, usize>,
        /// The ResourceSlices of each node, which are a pool with its name.
        #[serde(default)]
        resource_slice_templates: Vec<String>,
    },
    /// Namespaces `<prefix>-0`, `<prefix>-1`, …
    CreateNamespaces {
        /// Their number.
        count: Count,
        /// Their name prefix.
        prefix: String,
        /// Their labels.
        #[serde(default)]
        labels: BTreeMap<String, String>,
    },
    /// Creates an object of any other kind.
    CreateAny {
        /// Its template.
        template: String,
    },
    /// Creates pods from a template. Pods that are not measured exist before, spread evenly over
    /// the nodes.
    CreatePods {
        /// Their number.
        count: Count,
        /// Their template.
        pod_template: String,
        /// Their namespace.
        #[serde(default = "default_namespace")]
        namespace: String,
        /// A volume for each pod, and its bound claim.
        persistent_volume_template: Option<String>,
        /// The claim's template.
        persistent_volume_claim_template: Option<String>,
        /// A ResourceClaim for each pod, as if the pod named a ResourceClaimTemplate. Those of
        /// existing pods have one device each.
        resource_claim_template: Option<String>,
        /// Whether they are measured.
        #[serde(default)]
        collect_metrics: bool,
        /// How many existing pods are deleted per second while others are measured.
        #[serde(default)]
        delete_pods_per_second: usize,
    },
    /// Creates equal numbers of pods in the namespaces with this prefix, before the measurement.
    CreatePodSets {
        /// The number of namespaces.
        count: Count,
        /// Their name prefix.
        namespace_prefix: String,
        /// The number of pods in each.
        pods_per_namespace: Count,
        /// The pods' template.
        pod_template: String,
    },
    /// Creates objects while pods are measured.
    Churn {
        /// Whether they are deleted again.
        mode: ChurnMode,
        /// Their templates.
        templates: Vec<String>,
        /// The interval in which one of each is created or deleted.
        interval_milliseconds: u64,
        /// The maximum number of each, if they are recreated; then they are deleted in turn.
        #[serde(default)]
        number: usize,
    },
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// What happens to churn objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChurnMode {
    /// Their number grows.
    Create,
    /// Created up to `number`, then deleted one by one, and so on.
    Recreate,
}

/// A label of nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelStrategy {
    /// Its key.
    pub label_key: String,
    /// Its values, which alternate.
    pub label_values: Vec<String>,
}

/// A number, or `$` and the name of a parameter.
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

    /// Whether a size of this name exists.
    pub fn has_size(&self, name: &str) -> bool {
        self.workloads.iter().any(|size| size.name == name)
    }

    /// The number of nodes that scales.
    pub fn nodes(&self, params: &Params) -> usize {
        let counts = self.ops.iter().filter_map(|op| match op {
            Op::CreateNodes { count, .. } => params.get(count.param()?),
            _ => None,
        });
        counts.sum()
    }

    /// Scales a size to this many nodes. Everything scales with them, but the number of measured
    /// pods never grows, unless this many pods are requested; then it is limited to what fills the
    /// nodes equally.
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

/// The workload and template files.
#[derive(Debug)]
pub struct Library {
    dir: PathBuf,
}

impl Library {
    /// The files beside the benchmarks.
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

    /// A template: an object, merged into the one that it extends.
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

/// Merges objects; `null` removes a field, and any other value replaces it.
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
