//! Persistent volumes.

use serde_json::{Value, json};

use super::super::checks::{
    check_class_name, check_driver_name, immutable_root, invalid_shown, one_of, same,
};
use super::super::path::Path;
use super::super::pod::defaults::{network_volume, resource_list};
use super::super::pod::difference;
use super::super::traits::{Lookup, Strategy};
use super::super::{selectors, status};
use super::{VOLUME_MODES, check_access_modes, check_not_negative, check_positive, protect};
use crate::json::{entries, list, list_mut, object_mut, present, restore, set_default, text};
use crate::status::{Result, StatusCause};

/// Volumes.
pub(crate) struct PersistentVolume;

const SPEC: Path<'static> = Path::root("spec");
const FINALIZER: &str = "kubernetes.io/pv-protection";
/// The time of the last change of the phase.
const SINCE: &str = "lastPhaseTransitionTime";
/// The volume sources, of which exactly one must be set.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];
/// Deprecated node labels and their replacements.
const RENAMED_LABELS: [(&str, &str); 3] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

impl Strategy for PersistentVolume {
    fn default(&self, volume: &mut Value) {
        for field in ["spec", "status"] {
            object_mut(volume, field);
        }
        set_default(&mut volume["status"], "phase", "Pending");
        let spec = &mut volume["spec"];
        set_default(spec, "persistentVolumeReclaimPolicy", "Retain");
        set_default(spec, "volumeMode", "Filesystem");
        resource_list(spec, "capacity");
        default_source(spec);
    }

    fn admit(&self, volume: &mut Value, _objects: &dyn Lookup) -> Result<()> {
        protect(volume, FINALIZER);
        Ok(())
    }

    fn prepare_for_create(&self, volume: &mut Value) {
        volume["status"] = json!({"phase": "Pending"});
    }

    fn stamp_new(&self, volume: &mut Value, now: &str) {
        volume["status"][SINCE] = now.into();
    }

    fn prepare_for_update(&self, volume: &mut Value, old: &Value) {
        restore(volume, old, "status");
    }

    fn prepare_for_status_update(&self, volume: &mut Value, old: &Value) {
        status::only_status(volume, old);
        let (status, before) = (&mut volume["status"], &old["status"]);
        if status.get("phase") == before.get("phase") && present(status, SINCE).is_none() {
            restore(status, before, SINCE);
        }
    }

    fn stamp_status(&self, volume: &mut Value, old: &Value, now: &str) {
        let (status, before) = (&mut volume["status"], &old["status"]);
        if status.get("phase") != before.get("phase")
            && (present(status, SINCE).is_none() || status.get(SINCE) == before.get(SINCE))
        {
            status[SINCE] = now.into();
        }
    }

    fn validate(&self, volume: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &volume["spec"];
        if list(spec, "accessModes").is_empty() {
            causes.push(SPEC.child("accessModes").required(""));
        }
        check_access_modes(spec, &SPEC, &mut causes);
        check_capacity(spec, &mut causes);
        let policies = ["Delete", "Recycle", "Retain"];
        one_of(spec, "persistentVolumeReclaimPolicy", &policies, &SPEC, &mut causes);
        check_affinity(spec, &mut causes);
        check_source(spec, &mut causes);
        check_class_name(spec, "storageClassName", &SPEC, &mut causes);
        one_of(spec, "volumeMode", &VOLUME_MODES, &SPEC, &mut causes);
        check_attributes_class(spec, &mut causes);
        causes
    }

    fn validate_update(&self, volume: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(volume);
        let (spec, old) = (&volume["spec"], &old["spec"]);
        if !is_same_source(spec, old) {
            let difference = difference::of(&source_of(old), &source_of(spec));
            let why = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
            causes.push(SPEC.child("persistentvolumesource").forbidden(&why));
        }
        immutable_root(spec, old, "volumeMode", &mut causes);
        let affinity = spec.get("nodeAffinity").unwrap_or(&Value::Null);
        if let Some(before) = present(old, "nodeAffinity")
            && !same(affinity, before)
            && !same(affinity, &with_new_labels(before))
        {
            let why = "field is immutable, except for updating from beta label to GA";
            causes.push(invalid_shown(&Path::root("nodeAffinity"), &affinity.to_string(), why));
        }
        let had_class = present(old, "volumeAttributesClassName").is_some();
        if had_class && present(spec, "volumeAttributesClassName").is_none() {
            let why = "update from non-nil value to nil is forbidden";
            causes.push(SPEC.child("volumeAttributesClassName").forbidden(why));
        }
        causes
    }
}

fn default_source(spec: &mut Value) {
    if let Some(spec) = spec.as_object_mut() {
        network_volume(spec);
    }
    if let Some(path) = spec.get_mut("hostPath").filter(|path| path.is_object()) {
        set_default(path, "type", "");
    }
    if let Some(claim) = spec.get_mut("claimRef").and_then(Value::as_object_mut) {
        claim.retain(|_, value| value != "");
    }
}

fn check_capacity(spec: &Value, causes: &mut Vec<StatusCause>) {
    let path = SPEC.child("capacity");
    let amounts: Vec<_> = entries(spec, "capacity").collect();
    if amounts.is_empty() {
        causes.push(path.required(""));
    }
    if amounts.iter().all(|(name, _)| *name != "storage") || amounts.len() > 1 {
        let shown = spec.get("capacity").cloned().unwrap_or_default();
        causes.push(path.not_supported(shown, &["storage"]));
    }
    for (name, amount) in amounts {
        check_not_negative(amount, &path.key(name), causes);
        check_positive(amount, &path.key(name), causes);
    }
}

fn check_affinity(spec: &Value, causes: &mut Vec<StatusCause>) {
    let Some(affinity) = present(spec, "nodeAffinity") else { return };
    let path = SPEC.child("nodeAffinity");
    let path = path.child("required");
    match present(affinity, "required") {
        Some(required) => selectors::check_node_selector(required, true, &path, causes),
        None => causes.push(path.required("must specify required node constraints")),
    }
}

fn check_source(spec: &Value, causes: &mut Vec<StatusCause>) {
    let mut sources = SOURCES.iter().filter(|field| present(spec, field).is_some());
    let Some(first) = sources.next() else {
        causes.push(SPEC.required("must specify a volume type"));
        return;
    };
    check_details(spec, first, causes);
    for other in sources {
        causes.push(SPEC.child(other).forbidden("may not specify more than 1 volume type"));
    }
    let host_path = &spec["hostPath"];
    let recycles = text(spec, "persistentVolumeReclaimPolicy") == "Recycle";
    if recycles && is_root(text(host_path, "path")) {
        let path = SPEC.child("persistentVolumeReclaimPolicy");
        causes.push(path.forbidden("may not be 'recycle' for a hostPath mount of '/'"));
    }
}

fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "."))
}

/// Validates the sources used outside of clouds; the others are not validated.
fn check_details(spec: &Value, field: &str, causes: &mut Vec<StatusCause>) {
    let (source, path) = (&spec[field], SPEC.child(field));
    let required: &[&str] = match field {
        "hostPath" | "local" => &["path"],
        "nfs" => &["server", "path"],
        "csi" => {
            check_driver_name(source, "driver", &path, causes);
            &["volumeHandle"]
        }
        _ => &[],
    };
    for field in required {
        if text(source, field).is_empty() {
            causes.push(path.child(field).required(""));
        }
    }
    let (place, path) = (text(source, "path"), path.child("path"));
    if field == "nfs" && !place.starts_with('/') {
        causes.push(path.invalid(place, "must be an absolute path"));
    }
    if matches!(field, "hostPath" | "local") && place.split('/').any(|part| part == "..") {
        causes.push(path.invalid(place, "must not contain '..'"));
    }
    if field == "local" && present(spec, "nodeAffinity").is_none() {
        causes.push(SPEC.child("nodeAffinity").required("Local volume requires node affinity"));
    }
}

fn check_attributes_class(spec: &Value, causes: &mut Vec<StatusCause>) {
    let Some(class) = present(spec, "volumeAttributesClassName") else { return };
    if class == "" {
        let path = SPEC.child("volumeAttributesClassName");
        causes.push(path.required("an empty string is disallowed"));
    }
    check_class_name(spec, "volumeAttributesClassName", &SPEC, causes);
    if present(spec, "csi").is_none() {
        let why = "has to be specified when using volumeAttributesClassName";
        causes.push(SPEC.child("csi").required(why));
    }
}

/// The secret for expansion of a CSI volume may be added later.
fn is_same_source(spec: &Value, old: &Value) -> bool {
    const SECRET: &str = "controllerExpandSecretRef";
    SOURCES.iter().all(|field| {
        let (source, before) =
            (spec.get(field).unwrap_or(&Value::Null), old.get(field).unwrap_or(&Value::Null));
        if *field == "csi" && source.is_object() && before.is_object() && present(before, SECRET).is_none() {
            let mut source = source.clone();
            crate::json::remove(&mut source, SECRET);
            return same(&source, before);
        }
        same(source, before)
    })
}

fn source_of(spec: &Value) -> Value {
    let source =
        SOURCES.iter().filter_map(|field| Some(((*field).to_owned(), present(spec, field)?.clone())));
    source.collect()
}

fn with_new_labels(affinity: &Value) -> Value {
    let mut affinity = affinity.clone();
    let terms = affinity.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for term in terms.into_iter().flatten() {
        for requirement in list_mut(term, "matchExpressions") {
            let renamed = RENAMED_LABELS.iter().find(|(old, _)| *old == text(requirement, "key"));
            if let Some((_, new)) = renamed {
                requirement["key"] = (*new).into();
            }
        }
    }
    affinity
}
