//! Workloads: the simulated controllers create their pods.

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};

use super::super::plan::Manifest;

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

/// The Job of a CronJob: nothing simulates the CronJob controller, so its first run starts
/// immediately.
pub(super) fn first_job(mut cron_job: Manifest) -> Manifest {
    let metadata = json!({
        "name": format!("{}-1", cron_job.name()),
        "namespace": cron_job.namespace(),
    });
    let spec = cron_job.value["spec"]["jobTemplate"]["spec"].take();
    cron_job.value = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec });
    cron_job
}

/// The number of pods that the controller of a workload creates. For a DaemonSet this is an upper
/// bound: pods on all nodes.
pub(super) fn pods(workload: &Manifest, nodes: usize) -> Result<usize> {
    let (kind, source) = (workload.kind(), workload.source.as_deref().unwrap_or_default());
    let spec = &workload.value["spec"];
    if !spec["template"]["spec"].is_object() {
        bail!("{source}: {kind} {} has no pod template; set spec.template", workload.name());
    }
    let number = |field: &str| match &spec[field] {
        Value::Null => Ok(None),
        value => value.as_u64().map(Some).ok_or_else(|| {
            anyhow!("{source}: spec.{field} of {kind} {} must be a number, is {value}", workload.name())
        }),
    };
    let pods = match kind {
        "DaemonSet" => return Ok(nodes),
        "Job" => {
            let parallel = number("parallelism")?.unwrap_or(1);
            number("completions")?.map_or(parallel, |completions| parallel.min(completions))
        }
        _ => number("replicas")?.unwrap_or(1),
    };
    Ok(usize::try_from(pods).unwrap_or(usize::MAX))
}
