//! The pods that a workload's controller would make of its template.

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};

use super::super::plan::Manifest;

/// What taints a DaemonSet's pods tolerate without saying so.
const DAEMON_TOLERATIONS: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Whether objects of this kind have pods.
pub(super) fn is_workload(kind: &str) -> bool {
    matches!(
        kind,
        "Deployment"
            | "ReplicaSet"
            | "ReplicationController"
            | "StatefulSet"
            | "DaemonSet"
            | "Job"
            | "CronJob"
    )
}

/// What a workload amounts to.
pub(super) struct Expanded {
    /// Its pods.
    pub(super) pods: Vec<Manifest>,
}

/// The pods of a workload, with names that begin so: at most so many, and a DaemonSet's on these
/// nodes.
pub(super) fn expand(workload: &Manifest, base: &str, nodes: &[String], most: usize) -> Result<Expanded> {
    let (kind, source) = (workload.kind(), workload.source.clone().unwrap_or_default());
    let spec = match kind {
        "CronJob" => &workload.value["spec"]["jobTemplate"]["spec"],
        _ => &workload.value["spec"],
    };
    if !spec["template"]["spec"].is_object() {
        bail!("{source}: {kind} {} has no pod template; set spec.template", workload.name());
    }
    let number = |field: &str| match &spec[field] {
        Value::Null => Ok(None),
        value => value.as_u64().map(Some).ok_or_else(|| {
            anyhow!("{source}: spec.{field} of {kind} {} must be a number, is {value}", workload.name())
        }),
    };
    let replicas = match kind {
        "DaemonSet" => nodes.len() as u64,
        "Job" | "CronJob" => {
            let parallel = number("parallelism")?.unwrap_or(1);
            number("completions")?.map_or(parallel, |completions| parallel.min(completions))
        }
        _ => number("replicas")?.unwrap_or(1),
    };
    let replicas = usize::try_from(replicas).unwrap_or(usize::MAX);
    if replicas > most {
        bail!(
            "{source}: {kind} {} has {replicas} pods, which is too many here; lower spec.replicas",
            workload.name()
        );
    }
    let first = usize::from(kind != "StatefulSet");
    let pods = (0..replicas).map(|index| {
        let mut pod = pod_of(workload, &spec["template"], &format!("{base}-{}", index + first));
        match kind {
            "DaemonSet" => pin(&mut pod.value["spec"], &nodes[index]),
            "StatefulSet" => claim(&mut pod.value["spec"], workload, index),
            _ => {}
        }
        pod
    });
    Ok(Expanded { pods: pods.collect() })
}

fn pod_of(workload: &Manifest, template: &Value, name: &str) -> Manifest {
    let mut metadata = json!({ "name": name, "namespace": workload.namespace() });
    for field in ["labels", "annotations"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    let value = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"] });
    Manifest { value, source: workload.source.clone() }
}

/// As the StatefulSet controller does it: a volume for each template of a claim, in place of the
/// pod's own of that name.
fn claim(spec: &mut Value, set: &Manifest, index: usize) {
    let templates = set.value["spec"]["volumeClaimTemplates"].as_array();
    for name in templates.into_iter().flatten().filter_map(|template| template["metadata"]["name"].as_str()) {
        let claim = format!("{name}-{}-{index}", set.name());
        let volume = json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } });
        match spec["volumes"].as_array_mut() {
            Some(volumes) => {
                volumes.retain(|volume| volume["name"] != name);
                volumes.push(volume);
            }
            None => spec["volumes"] = json!([volume]),
        }
    }
}

/// As the DaemonSet controller does it: the pod may be on this node only, whatever else it asks
/// for.
fn pin(spec: &mut Value, node: &str) {
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    let affinity = &mut spec["affinity"];
    if !affinity.is_object() {
        *affinity = json!({});
    }
    if !affinity["nodeAffinity"].is_object() {
        affinity["nodeAffinity"] = json!({});
    }
    let required = &mut affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    match required["nodeSelectorTerms"].as_array_mut() {
        Some(terms) => {
            for term in terms.iter_mut().filter(|term| term.is_object()) {
                term["matchFields"] = json!([field]);
            }
        }
        None => *required = json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] }),
    }
    let own = DAEMON_TOLERATIONS
        .iter()
        .map(|(key, effect)| json!({ "key": key, "operator": "Exists", "effect": effect }));
    match spec["tolerations"].as_array_mut() {
        Some(tolerations) => tolerations.extend(own),
        None => spec["tolerations"] = own.collect(),
    }
}
