//! Persistent volume claims.

use serde_json::{Value, json};

use super::super::checks::{check_class_name, immutable_root, nulls, one_of, same};
use super::super::path::Path;
use super::super::pod::defaults::resource_list;
use super::super::pod::difference;
use super::super::traits::{Lookup, Strategy};
use super::super::{labels, names, resources, status};
use super::{VOLUME_MODES, check_access_modes, check_not_negative, check_positive, default_class, protect};
use crate::json::{entries, list, object_mut, present, remove, restore, set_default, text, text_at};
use crate::kinds::{Kind, built_in};
use crate::quantity::Quantity;
use crate::status::{Result, Status, StatusCause};

/// Claims for volumes.
pub(crate) struct PersistentVolumeClaim;

const SPEC: Path<'static> = Path::root("spec");
const FINALIZER: &str = "kubernetes.io/pvc-protection";
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const STORAGE: &str = "/spec/resources/requests/storage";
const NO_CHANGE: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
const NO_RESIZE: &str = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
const RESIZE_STATES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

impl Strategy for PersistentVolumeClaim {
    fn default(&self, claim: &mut Value) {
        default_claim(claim);
        let status = &mut claim["status"];
        nulls(status, "conditions", &["lastProbeTime", "lastTransitionTime"]);
        for field in ["capacity", "allocatedResources"] {
            resource_list(status, field);
        }
    }

    fn admit(&self, claim: &mut Value, objects: &dyn Lookup) -> Result<()> {
        if !has_class(claim)
            && let Some(class) = default_class(objects)
        {
            claim["spec"]["storageClassName"] = class.into();
        }
        protect(claim, FINALIZER);
        Ok(())
    }

    fn admit_update(&self, claim: &mut Value, old: &Value, objects: &dyn Lookup) -> Result<()> {
        let size = |claim: &Value| claim.pointer(STORAGE).map_or(Quantity::ZERO, Quantity::of);
        if size(claim) <= size(old) {
            return Ok(());
        }
        // Errors about the change itself come first.
        let mut changed = claim.clone();
        restore(&mut changed, old, "status");
        if !self.validate_update(&changed, old).is_empty() {
            return Ok(());
        }
        let refuse = |why: &str| match built_in().iter().find(is_claims) {
            Some(kind) => Err(Status::forbidden(kind, text_at(claim, "/metadata/name"), why)),
            None => Ok(()),
        };
        if text_at(old, "/status/phase") != "Bound" {
            return refuse("Only bound persistent volume claims can be expanded");
        }
        let class = class_of(claim);
        let allows = class_of(old) == class
            && objects
                .get("storage.k8s.io", "storageclasses", "", class)
                .is_some_and(|class| crate::json::flag(&class, "allowVolumeExpansion"));
        if allows { Ok(()) } else { refuse(NO_RESIZE) }
    }

    fn prepare_for_create(&self, claim: &mut Value) {
        claim["status"] = json!({"phase": "Pending"});
        normalize_data_sources(&mut claim["spec"]);
    }

    fn prepare_for_update(&self, claim: &mut Value, old: &Value) {
        restore(claim, old, "status");
        normalize_data_sources(&mut claim["spec"]);
    }

    fn prepare_for_status_update(&self, claim: &mut Value, old: &Value) {
        status::only_status(claim, old);
    }

    fn validate(&self, claim: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        check_spec(&claim["spec"], &SPEC, &mut causes);
        causes
    }

    fn validate_update(&self, claim: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(claim);
        check_change(claim, old, &mut causes);
        causes
    }

    fn validate_status_update(&self, claim: &Value, _old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        if list(&claim["spec"], "accessModes").is_empty() {
            causes.push(Path::root("Spec").child("accessModes").required(""));
        }
        check_status(&claim["status"], &mut causes);
        causes
    }
}

/// Fills in the defaults of a claim in a stateful set.
pub(crate) fn default_template(claim: &mut Value) {
    let Some(fields) = claim.as_object_mut() else { return };
    fields.insert("apiVersion".to_owned(), "v1".into());
    fields.insert("kind".to_owned(), "PersistentVolumeClaim".into());
    default_claim(claim);
}

fn default_claim(claim: &mut Value) {
    for field in ["metadata", "spec", "status"] {
        object_mut(claim, field);
    }
    set_default(&mut claim["status"], "phase", "Pending");
    default_spec(&mut claim["spec"]);
}

/// Fills in the defaults of a claim's spec.
pub(crate) fn default_spec(spec: &mut Value) {
    set_default(spec, "volumeMode", "Filesystem");
    for source in ["dataSource", "dataSourceRef"] {
        if let Some(source) = spec.get_mut(source).and_then(Value::as_object_mut) {
            source.entry("apiGroup").or_insert(Value::Null);
        }
    }
    object_mut(spec, "resources");
    for field in ["limits", "requests"] {
        resource_list(&mut spec["resources"], field);
    }
}

/// Validates the spec of a claim.
pub(crate) fn check_spec(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if list(spec, "accessModes").is_empty() {
        causes.push(path.child("accessModes").required("at least 1 access mode is required"));
    }
    if let Some(selector) = present(spec, "selector") {
        labels::check_selector(selector, &path.child("selector"), causes);
    }
    check_access_modes(spec, path, causes);
    let resources_path = path.child("resources");
    let storage = resources_path.key("storage");
    match present(&spec["resources"]["requests"], "storage") {
        None => causes.push(storage.required("")),
        Some(amount) => check_positive(amount, &storage, causes),
    }
    check_class_name(spec, "storageClassName", path, causes);
    one_of(spec, "volumeMode", &VOLUME_MODES, path, causes);
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = present(spec, field) {
            check_data_source(source, &path.child(field), causes);
        }
    }
    check_data_sources(spec, path, causes);
    check_class_name(spec, "volumeAttributesClassName", path, causes);
}

fn check_data_source(source: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    for field in ["name", "kind"] {
        if text(source, field).is_empty() {
            causes.push(path.child(field).required(""));
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        causes.push(path.invalid(kind, why));
    }
    if !group.is_empty() {
        path.child("apiGroup").invalid_all(group, names::dns1123_subdomain(group), causes);
    }
}

fn check_data_sources(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (Some(source), Some(reference)) = (present(spec, "dataSource"), present(spec, "dataSourceRef"))
    else {
        return;
    };
    let is_same = ["apiGroup", "kind", "name"].iter().all(|field| source.get(field) == reference.get(field));
    let why = if !text(reference, "namespace").is_empty() {
        "may not be specified when dataSourceRef.namespace is specified"
    } else if is_same {
        return;
    } else {
        "must match dataSourceRef"
    };
    causes.push(path.invalid(path.child("dataSource").to_string(), why));
}

/// Drops a data source that is neither a claim nor a snapshot, and copies each of the two fields to
/// the other.
fn normalize_data_sources(spec: &mut Value) {
    if let Some(source) = present(spec, "dataSource") {
        let is_known = match text(source, "apiGroup") {
            "" => text(source, "kind") == "PersistentVolumeClaim",
            "snapshot.storage.k8s.io" => text(source, "kind") == "VolumeSnapshot",
            _ => false,
        };
        if !is_known && present(spec, "dataSourceRef").is_none() {
            remove(spec, "dataSource");
        }
    }
    let (source, reference) = (present(spec, "dataSource").cloned(), present(spec, "dataSourceRef").cloned());
    match (source, reference) {
        (Some(source), None) => spec["dataSourceRef"] = source,
        (None, Some(reference)) if text(&reference, "namespace").is_empty() => spec["dataSource"] = reference,
        _ => {}
    }
}

fn check_change(claim: &Value, old: &Value, causes: &mut Vec<StatusCause>) {
    let (mut now, mut before) = (claim["spec"].clone(), old["spec"].clone());
    if text(&before, "volumeName").is_empty() {
        restore(&mut before, &now, "volumeName");
    }
    let (class, old_class) =
        (present(&now, "storageClassName").cloned(), present(&before, "storageClassName"));
    let annotation = |claim: &Value| claim["metadata"]["annotations"].get(CLASS_ANNOTATION).cloned();
    let old_annotation = annotation(old);
    if old_class.is_none() && class.is_some() && (old_annotation.is_none() || old_annotation == class) {
        remove(&mut now, "storageClassName");
    } else if annotation(claim) != old_annotation {
        let metadata = Path::root("metadata");
        let path = metadata.child("annotations");
        let value = annotation(claim).unwrap_or_else(|| "".into());
        causes.push(path.key(CLASS_ANNOTATION).invalid(value, "field is immutable"));
    }
    if text_at(claim, "/status/phase") == "Bound" {
        if let Some(amount) = before.pointer("/resources/requests/storage").cloned() {
            object_mut(&mut now, "resources");
            if let Some(requests) = object_mut(&mut now["resources"], "requests") {
                requests.insert("storage".to_owned(), amount);
            }
        }
        restore(&mut now, &before, "volumeAttributesClassName");
    }
    if !same(&now, &before) {
        causes.push(SPEC.forbidden(&format!("{NO_CHANGE}\n{}", difference::of(&before, &now))));
    }
    check_size(claim, old, causes);
    let (now, before) = (&claim["spec"], &old["spec"]);
    immutable_root(now, before, "volumeMode", causes);
    check_attributes_class(now, before, &old["status"], causes);
}

fn check_size(claim: &Value, old: &Value, causes: &mut Vec<StatusCause>) {
    let amount = |claim: &Value, pointer: &str| claim.pointer(pointer).map_or(Quantity::ZERO, Quantity::of);
    let size = amount(claim, STORAGE);
    if size < amount(old, STORAGE) && size <= amount(old, "/status/capacity/storage") {
        let requests = SPEC.child("resources");
        let requests = requests.child("requests");
        let path = requests.child("storage");
        causes.push(path.forbidden("field can not be less than status.capacity"));
    }
}

fn check_attributes_class(spec: &Value, old: &Value, old_status: &Value, causes: &mut Vec<StatusCause>) {
    const FIELD: &str = "volumeAttributesClassName";
    if spec.get(FIELD) == old.get(FIELD) || present(old_status, "currentVolumeAttributesClassName").is_none()
    {
        return;
    }
    let what = match present(spec, FIELD).and_then(Value::as_str) {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let why =
        format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
    causes.push(SPEC.child(FIELD).forbidden(&why));
}

fn check_status(status: &Value, causes: &mut Vec<StatusCause>) {
    let path = Path::root("status");
    let capacity = path.child("capacity");
    for (name, amount) in entries(status, "capacity") {
        check_not_negative(amount, &capacity.key(name), causes);
    }
    let states = path.child("allocatedResourceStatuses");
    for (name, state) in entries(status, "allocatedResourceStatuses") {
        check_resource(name, &states, causes);
        if !state.as_str().is_some_and(|state| RESIZE_STATES.contains(&state)) {
            causes.push(states.not_supported(name, &RESIZE_STATES));
        }
    }
    let allocated = path.child("allocatedResources");
    for (name, amount) in entries(status, "allocatedResources") {
        if check_resource(name, &allocated, causes) {
            check_not_negative(amount, &allocated.key(name), causes);
        }
    }
}

fn check_resource(name: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) -> bool {
    let before = causes.len();
    path.invalid_all(name, labels::key(name), causes);
    if causes.len() == before && resources::is_native(name) && name != "storage" {
        causes.push(path.not_supported(name, &["storage"]));
    }
    causes.len() == before
}

fn has_class(claim: &Value) -> bool {
    claim["metadata"]["annotations"].get(CLASS_ANNOTATION).is_some()
        || present(&claim["spec"], "storageClassName").is_some()
}

fn class_of(claim: &Value) -> &str {
    match text(&claim["metadata"]["annotations"], CLASS_ANNOTATION) {
        "" => text(&claim["spec"], "storageClassName"),
        class => class,
    }
}

fn is_claims(kind: &&Kind) -> bool {
    kind.resource == "persistentvolumeclaims"
}
