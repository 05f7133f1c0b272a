//! Drops the fields whose feature gates are off by default.

use serde_json::Value;

use super::defaults::CONTAINERS;
use crate::json::{list_mut, remove};

/// The specs of pods in objects: of pods, workloads, cron jobs and pod templates.
const SPECS: [&str; 4] =
    ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec", "/template/spec"];
/// The probes of a container, and its handlers with the same actions.
const PROBES: [&str; 3] = ["/livenessProbe", "/readinessProbe", "/startupProbe"];
const HANDLERS: [&str; 2] = ["/lifecycle/postStart", "/lifecycle/preStop"];

/// Drops them from the spec of a pod or of a template.
pub(crate) fn drop(spec: &mut Value) {
    remove(spec, "evictionResponders");
    for field in CONTAINERS {
        list_mut(spec, field).iter_mut().for_each(drop_of_container);
    }
    list_mut(spec, "volumes").iter_mut().for_each(drop_of_volume);
}

/// Drops the group of a pod, or of the pods of a template, unless the object had one before.
pub(crate) fn drop_group(object: &mut Value, old: &Value) {
    const FIELD: &str = "schedulingGroup";
    for spec in SPECS {
        if old.pointer(spec).is_some_and(|old| old.get(FIELD).is_some()) {
            continue;
        }
        if let Some(spec) = object.pointer_mut(spec) {
            remove(spec, FIELD);
        }
    }
}

/// Drops them from the status of a pod.
pub(super) fn drop_of_status(status: &mut Value) {
    remove(status, "volumeHealth");
}

fn drop_of_container(container: &mut Value) {
    for handler in PROBES.iter().chain(&HANDLERS) {
        let Some(handler) = container.pointer_mut(handler) else { continue };
        for (action, field) in [("httpGet", "protocol"), ("grpc", "mode")] {
            if let Some(action) = handler.get_mut(action) {
                remove(action, field);
            }
        }
    }
    for mount in list_mut(container, "volumeMounts") {
        remove(mount, "bindMountOptions");
    }
    let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) else { return };
    if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
        remove(container, "lifecycle");
    }
}

fn drop_of_volume(volume: &mut Value) {
    if let Some(directory) = volume.get_mut("emptyDir") {
        remove(directory, "mode");
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        let Some(source) = volume.get_mut(source) else { continue };
        remove(source, "defaultUser");
        drop_owners(source);
        for projection in list_mut(source, "sources") {
            remove(projection, "clusterTrustBundle");
            remove(projection, "podCertificate");
            for source in projection.as_object_mut().into_iter().flat_map(|sources| sources.values_mut()) {
                remove(source, "user");
                drop_owners(source);
            }
        }
    }
}

/// Files have no owners of their own.
fn drop_owners(source: &mut Value) {
    for file in list_mut(source, "items") {
        remove(file, "user");
    }
}
