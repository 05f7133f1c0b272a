//! Turns the user's manifests into a plan: nodes, pods and workloads.

mod read;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::plan::{Action, Manifest, Plan, TimedAction};
use super::text::count;
use read::read;

/// Maximum number of pods.
const MAX_PODS: usize = 50_000;
/// Longest time between two pods.
const LONGEST_GAP: Duration = Duration::from_millis(40);
/// Time within which all pods arrive, if there are many.
const WINDOW: Duration = Duration::from_secs(6);

/// Metadata that the API server sets, or that has no meaning in another cluster.
const SERVER_METADATA: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The plan for the manifests in a folder or file. Uses `nodes` if they include none. All pods get
/// the scheduler name `scheduler`.
pub(crate) fn plan(path: &Path, scheduler: &str, nodes: impl FnOnce() -> Vec<Manifest>) -> Result<Plan> {
    let mut set = ManifestSet::default();
    for manifest in read(path)? {
        set.add(manifest)?;
    }
    if set.nodes.is_empty() {
        set.nodes = nodes();
        set.notes.push(format!(
            "No nodes in the manifests; using {} of the demo.",
            count(set.nodes.len(), "node")
        ));
    }
    set.plan(path, scheduler)
}

/// Manifests by their role in the plan.
#[derive(Default)]
struct ManifestSet {
    namespaces: Vec<Manifest>,
    /// Priority classes, groups of pods, and what claims for devices need: classes, slices,
    /// templates and claims.
    classes: Vec<Manifest>,
    nodes: Vec<Manifest>,
    pods: Vec<Manifest>,
    workloads: Vec<Manifest>,
    /// Number of skipped objects by kind.
    skipped: BTreeMap<String, usize>,
    finished_pods: usize,
    notes: Vec<String>,
}

impl ManifestSet {
    fn add(&mut self, mut manifest: Manifest) -> Result<()> {
        let kind = manifest.kind().to_owned();
        if manifest.name().is_empty() && manifest.value["metadata"]["generateName"].as_str().is_none() {
            bail!("{}: {kind} without a name; set metadata.name", manifest.source.unwrap_or_default());
        }
        if let Some(metadata) = manifest.value["metadata"].as_object_mut() {
            metadata.retain(|field, _| !SERVER_METADATA.contains(&field.as_str()));
        }
        match kind.as_str() {
            "Namespace" => self.namespaces.push(manifest),
            "PriorityClass"
            | "DeviceClass"
            | "ResourceSlice"
            | "ResourceClaimTemplate"
            | "ResourceClaim"
            | "PodGroup" => self.classes.push(without_status(manifest)),
            "Node" => self.nodes.push(manifest),
            "Pod" if matches!(manifest.value["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) => {
                self.finished_pods += 1;
            }
            "Pod" => self.pods.push(manifest),
            "CronJob" => self.workloads.push(workloads::first_job(manifest)),
            kind if workloads::is_workload(kind) => self.workloads.push(manifest),
            _ => *self.skipped.entry(kind).or_default() += 1,
        }
        Ok(())
    }

    fn plan(mut self, path: &Path, scheduler: &str) -> Result<Plan> {
        let mut objects: Vec<(Manifest, usize)> = self.pods.drain(..).map(|pod| (pod, 1)).collect();
        for workload in self.workloads.drain(..) {
            let pods = workloads::pods(&workload, self.nodes.len())?;
            objects.push((workload, pods));
        }
        if objects.is_empty() {
            bail!("{}: no pods and no workloads; add a Pod or a Deployment", path.display());
        }
        let pods = objects.iter().fold(0_usize, |sum, (_, pods)| sum.saturating_add(*pods));
        if pods > MAX_PODS {
            bail!("{}: {pods} pods; at most {MAX_PODS} are supported", path.display());
        }
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.remove_unknown_nodes(&mut objects));
        notes.extend(set_scheduler_name(&mut objects, scheduler));
        notes.extend(self.notes_on_skipped());
        let namespaces = self.namespaces_of(&objects);
        let mut seen = BTreeSet::new();
        let first = namespaces.into_iter().chain(self.namespaces);
        let first = first.filter(|namespace| seen.insert(namespace.name().to_owned()));
        let first = first.chain(self.classes).chain(self.nodes).collect();
        let gap = LONGEST_GAP.min(WINDOW / u32::try_from(pods).unwrap_or(u32::MAX).max(1));
        let mut arrived = 0;
        let steps = objects.into_iter().map(|(object, pods)| {
            let at = gap * arrived;
            arrived += u32::try_from(pods).unwrap_or(u32::MAX);
            TimedAction { at, action: Action::Create(without_status(object)) }
        });
        Ok(Plan { first, steps: steps.collect(), pods, notes })
    }

    /// Removes nodes that do not exist from pods, which are then scheduled.
    fn remove_unknown_nodes(&self, objects: &mut [(Manifest, usize)]) -> Option<String> {
        let nodes: BTreeSet<&str> = self.nodes.iter().map(Manifest::name).collect();
        let mut changed = 0;
        for (object, pods) in objects {
            let spec = pod_spec(object);
            if spec["nodeName"].as_str().is_some_and(|node| !nodes.contains(node)) {
                if let Some(spec) = spec.as_object_mut() {
                    spec.remove("nodeName");
                }
                changed += *pods;
            }
        }
        (changed > 0).then(|| {
            format!("{} on nodes that are not in the manifests; they are scheduled again.", were(changed))
        })
    }

    fn notes_on_skipped(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.finished_pods > 0 {
            notes.push(format!("Skipped: {}.", count(self.finished_pods, "finished pod")));
        }
        if !self.skipped.is_empty() {
            let kinds: Vec<String> = self.skipped.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            notes.push(format!("Skipped: {}.", kinds.join(", ")));
        }
        let has_pods = |node: &Manifest, amounts: &str| !node.value["status"][amounts]["pods"].is_null();
        let bare =
            self.nodes.iter().filter(|node| !has_pods(node, "allocatable") && !has_pods(node, "capacity"));
        let bare: Vec<&str> = bare.map(Manifest::name).collect();
        if let Some(first) = bare.first() {
            notes.push(format!(
                "{} without status.allocatable.pods ({first}): no pod fits.",
                count(bare.len(), "node")
            ));
        }
        notes
    }

    /// Namespaces of the objects that the manifests do not include.
    fn namespaces_of(&self, objects: &[(Manifest, usize)]) -> Vec<Manifest> {
        let given: BTreeSet<&str> = self.namespaces.iter().map(Manifest::name).collect();
        let objects = objects.iter().map(|(object, _)| object).chain(&self.classes);
        let names: BTreeSet<&str> = objects.map(Manifest::namespace).collect();
        let missing = names.into_iter().filter(|name| *name != "default" && !given.contains(name));
        let namespace =
            |name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        missing.map(|name| Manifest::new(namespace(name))).collect()
    }
}

/// Gives pods without a node to the demo's scheduler.
fn set_scheduler_name(objects: &mut [(Manifest, usize)], scheduler: &str) -> Option<String> {
    let mut changed = 0;
    for (object, pods) in objects {
        let spec = pod_spec(object);
        // Without a spec the API server rejects the pod with a better message.
        if spec.is_object() && spec["nodeName"].is_null() && spec["schedulerName"] != scheduler {
            spec["schedulerName"] = json!(scheduler);
            changed += *pods;
        }
    }
    (changed > 0).then(|| {
        format!(
            "{} given spec.schedulerName {scheduler} here; in a cluster, set it in the manifests.",
            were(changed)
        )
    })
}

/// The spec of a pod, or of a workload's pods.
fn pod_spec(object: &mut Manifest) -> &mut Value {
    match object.kind() {
        "Pod" => &mut object.value["spec"],
        _ => &mut object.value["spec"]["template"]["spec"],
    }
}

fn were(pods: usize) -> String {
    format!("{} {}", count(pods, "pod"), if pods == 1 { "was" } else { "were" })
}

fn without_status(mut object: Manifest) -> Manifest {
    if let Value::Object(fields) = &mut object.value {
        fields.remove("status");
    }
    object
}

#[cfg(test)]
mod tests;
