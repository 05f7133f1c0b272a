//! The user's own YAML as a plan: nodes, pods, and the pods that workloads would have.

mod read;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::plan::{Action, Manifest, Plan, Step};
use super::text::count;
use read::read;
use workloads::{Expanded, expand};

/// More pods are surely a slip of the finger.
const MOST_PODS: usize = 50_000;
/// Between two pods, if there are few.
const SLOWEST: Duration = Duration::from_millis(40);
/// In which all pods arrive, if there are many.
const WINDOW: Duration = Duration::from_secs(6);

/// What the API server sets, and what means nothing in another cluster.
const FOREIGN_METADATA: [&str; 9] = [
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

/// The plan that the files in a folder (or one file) amount to, for pods of this scheduler. Where
/// they have no nodes, these are used.
pub(crate) fn plan(path: &Path, scheduler: &str, nodes: impl FnOnce() -> Vec<Manifest>) -> Result<Plan> {
    let mut set = ManifestSet::default();
    for object in read(path)? {
        set.take(object)?;
    }
    if set.nodes.is_empty() {
        set.nodes = nodes();
        set.notes.push(format!("The folder has no nodes; the demo's {} are used.", set.nodes.len()));
    }
    set.expand()?;
    set.plan(path, scheduler)
}

/// The objects by what is done with them.
#[derive(Default)]
struct ManifestSet {
    namespaces: Vec<Manifest>,
    classes: Vec<Manifest>,
    nodes: Vec<Manifest>,
    pods: Vec<Manifest>,
    workloads: Vec<Manifest>,
    /// What nothing is done with, by kind.
    others: BTreeMap<String, usize>,
    ended: usize,
    notes: Vec<String>,
}

impl ManifestSet {
    fn take(&mut self, mut object: Manifest) -> Result<()> {
        let kind = object.kind().to_owned();
        if object.name().is_empty() && object.value["metadata"]["generateName"].as_str().is_none() {
            bail!("{}: a {kind} without a name; set metadata.name", object.source.unwrap_or_default());
        }
        if let Some(metadata) = object.value["metadata"].as_object_mut() {
            metadata.retain(|field, _| !FOREIGN_METADATA.contains(&field.as_str()));
        }
        match kind.as_str() {
            "Namespace" => self.namespaces.push(object),
            "PriorityClass" => self.classes.push(object),
            "Node" => self.nodes.push(object),
            "Pod" if matches!(object.value["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) => {
                self.ended += 1;
            }
            "Pod" => self.pods.push(object),
            kind if workloads::is_workload(kind) => self.workloads.push(object),
            _ => *self.others.entry(kind).or_default() += 1,
        }
        Ok(())
    }

    /// Adds the pods of workloads: there is no controller that would.
    fn expand(&mut self) -> Result<()> {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.name().to_owned()).collect();
        let key = |object: &Manifest| (object.namespace().to_owned(), object.name().to_owned());
        let mut taken: BTreeSet<_> = self.pods.iter().map(key).collect();
        let mut seen = BTreeSet::new();
        for workload in &self.workloads {
            let kind = workload.kind();
            if !seen.insert((kind, workload.namespace(), workload.name())) {
                let source = workload.source.as_deref().unwrap_or_default();
                bail!("{source}: {kind} {} is there twice; take one of them out", workload.name());
            }
            let most = MOST_PODS.saturating_sub(self.pods.len());
            let Expanded { mut pods } = expand(workload, workload.name(), &nodes, most)?;
            // A Deployment and a CronJob may have the same name; their controllers would make up
            // different ones.
            if pods.iter().any(|pod| taken.contains(&key(pod))) {
                let base = format!("{}-{}", workload.name(), kind.to_lowercase());
                pods = expand(workload, &base, &nodes, most)?.pods;
            }
            taken.extend(pods.iter().map(key));
            self.pods.extend(pods);
        }
        Ok(())
    }

    fn plan(mut self, path: &Path, scheduler: &str) -> Result<Plan> {
        if self.pods.is_empty() {
            bail!(
                "{}: no pods in it, and no workloads that would have some; write a Pod or a Deployment in a .yaml file",
                path.display()
            );
        }
        if self.pods.len() > MOST_PODS {
            bail!("{}: {} pods; at most {MOST_PODS} will do", path.display(), self.pods.len());
        }
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.settle_nodes());
        notes.extend(self.settle_schedulers(scheduler));
        notes.extend(self.left_out());
        let first = self.namespaces_of_pods().chain(self.namespaces.clone());
        let mut seen = BTreeSet::new();
        let first = first.filter(|namespace| seen.insert(namespace.name().to_owned()));
        let first = first.chain(self.classes).chain(self.nodes).collect();
        let gap = SLOWEST.min(WINDOW / u32::try_from(self.pods.len()).unwrap_or(u32::MAX));
        let steps = self
            .pods
            .into_iter()
            .zip(0_u32..)
            .map(|(pod, number)| Step { at: gap * number, action: Action::Create(without_status(pod)) });
        Ok(Plan { first, steps: steps.collect(), notes })
    }

    /// Pods keep a node that is there.
    fn settle_nodes(&mut self) -> Option<String> {
        let nodes: BTreeSet<&str> = self.nodes.iter().map(Manifest::name).collect();
        let mut freed = 0;
        for pod in &mut self.pods {
            let spec = &mut pod.value["spec"];
            if spec["nodeName"].as_str().is_some_and(|node| !nodes.contains(node)) {
                if let Some(spec) = spec.as_object_mut() {
                    spec.remove("nodeName");
                }
                freed += 1;
            }
        }
        (freed > 0).then(|| format!("{} on nodes that are not here; they are scheduled anew.", were(freed)))
    }

    /// Pods without a node are the demo's scheduler's.
    fn settle_schedulers(&mut self, scheduler: &str) -> Option<String> {
        let mut changed = 0;
        for pod in &mut self.pods {
            let spec = &mut pod.value["spec"];
            // One without a spec is refused by the API server, which says it better.
            if spec.is_object() && spec["nodeName"].is_null() && spec["schedulerName"] != scheduler {
                spec["schedulerName"] = json!(scheduler);
                changed += 1;
            }
        }
        (changed > 0).then(|| {
            format!(
                "{} given spec.schedulerName {scheduler} here; in a cluster, set it in the manifests.",
                were(changed)
            )
        })
    }

    fn left_out(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.ended > 0 {
            let (have, are) = if self.ended == 1 { ("has", "is") } else { ("have", "are") };
            notes.push(format!("{} that {have} ended {are} left out.", count(self.ended, "pod")));
        }
        if !self.others.is_empty() {
            let kinds: Vec<String> = self.others.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            notes.push(format!("Left out: {}.", kinds.join(", ")));
        }
        let bare = self.nodes.iter().filter(|node| node.value["status"]["allocatable"]["pods"].is_null());
        let bare: Vec<&str> = bare
            .filter(|node| node.value["status"]["capacity"]["pods"].is_null())
            .map(Manifest::name)
            .collect();
        if let Some(first) = bare.first() {
            notes.push(format!(
                "{} without status.allocatable.pods ({first}): no pod fits there.",
                count(bare.len(), "node")
            ));
        }
        notes
    }

    /// The namespaces that pods are in need not be written down.
    fn namespaces_of_pods(&self) -> std::vec::IntoIter<Manifest> {
        let given: BTreeSet<&str> = self.namespaces.iter().map(Manifest::name).collect();
        let names: BTreeSet<&str> = self.pods.iter().map(Manifest::namespace).collect();
        let namespace =
            |name: &&str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let missing = names.into_iter().filter(|name| *name != "default" && !given.contains(name));
        missing.map(|name| Manifest::new(namespace(&name))).collect::<Vec<_>>().into_iter()
    }
}

fn were(pods: usize) -> String {
    format!("{} {}", count(pods, "pod"), if pods == 1 { "was" } else { "were" })
}

fn without_status(mut pod: Manifest) -> Manifest {
    if let Value::Object(fields) = &mut pod.value {
        fields.remove("status");
    }
    pod
}

#[cfg(test)]
mod tests;
