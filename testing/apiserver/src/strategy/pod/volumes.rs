//! Validates the volumes of a pod and their use by its containers.

use rustc_hash::FxHashMap;
use serde_json::Value;

use super::super::checks::required_one_of;
use super::super::names;
use super::super::path::Path;
use super::environment;
use super::file_path::{check_descends, check_file_path, check_no_backsteps, has_backsteps};
use super::spec::SpecOwner;
use crate::json::{flag, int, list, present, text, text_at, texts};
use crate::quantity::Quantity;
use crate::status::StatusCause;

/// The valid volumes of a pod, by name.
pub(super) type Volumes<'a> = FxHashMap<&'a str, &'a Value>;

/// The volume sources in upstream's order, with the names that upstream's errors give a second
/// source.
const SOURCES: [(&str, &str); 29] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
];
const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Validates the volumes of a pod. Returns those that containers may use.
pub(super) fn check_volumes<'a>(
    spec: &'a Value,
    owner: SpecOwner<'_>,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) -> Volumes<'a> {
    let (volumes, path) = (list(spec, "volumes"), path.child("volumes"));
    let mut sound = Volumes::default();
    let pod_name = owner.pod.map_or("", |pod| text_at(pod, "/metadata/name"));
    for (i, volume) in volumes.iter().enumerate() {
        let (name, path) = (text(volume, "name"), path.index(i));
        let before = causes.len();
        check_source(volume, owner, pod_name, &path, causes);
        let name_path = path.child("name");
        if name.is_empty() {
            causes.push(name_path.required(""));
        } else {
            name_path.invalid_all(name, names::dns1123_label(name), causes);
        }
        if sound.contains_key(name) {
            causes.push(name_path.duplicate(name));
        }
        if causes.len() == before {
            sound.insert(name, volume);
        }
        if let Some(claim) = present(volume, "persistentVolumeClaim") {
            let claim = text(claim, "claimName");
            let is_own =
                claim.strip_prefix(pod_name).and_then(|rest| rest.strip_prefix('-')).is_some_and(|rest| {
                    let mut own = volumes.iter().filter(|other| present(other, "ephemeral").is_some());
                    !pod_name.is_empty() && own.any(|other| text(other, "name") == rest)
                });
            if is_own {
                let path = path.child("persistentVolumeClaim");
                let why = "must not reference a PVC that gets created for an ephemeral volume";
                causes.push(path.child("claimName").invalid(claim, why));
            }
        }
    }
    sound
}

fn check_source(
    volume: &Value,
    owner: SpecOwner<'_>,
    pod_name: &str,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let mut has_one = false;
    for (field, shown) in SOURCES.into_iter().chain([("image", "image")]) {
        let Some(source) = present(volume, field) else { continue };
        if has_one {
            causes.push(path.child(shown).forbidden("may not specify more than 1 volume type"));
            continue;
        }
        has_one = true;
        let source_path = path.child(field);
        match field {
            "emptyDir" => {
                let limit = source.get("sizeLimit").map_or(Quantity::ZERO, Quantity::of);
                if limit.is_negative() {
                    let why = "SizeLimit field must be a valid resource quantity";
                    causes.push(source_path.child("sizeLimit").forbidden(why));
                }
            }
            "hostPath" => check_host_path(source, &source_path, causes),
            "gcePersistentDisk" => required(source, "pdName", &path.child("persistentDisk"), causes),
            "awsElasticBlockStore" => required(source, "volumeID", &source_path, causes),
            "secret" => {
                required(source, "secretName", &source_path, causes);
                check_files(source, &source_path, causes);
            }
            "configMap" => {
                required(source, "name", &source_path, causes);
                check_files(source, &source_path, causes);
            }
            "nfs" => {
                required(source, "server", &source_path, causes);
                required(source, "path", &source_path, causes);
                let target = text(source, "path");
                if !target.starts_with('/') {
                    causes.push(source_path.child("path").invalid(target, "must be an absolute path"));
                }
            }
            "persistentVolumeClaim" => required(source, "claimName", &source_path, causes),
            "downwardAPI" => {
                check_mode(source, "defaultMode", &source_path, causes);
                for file in list(source, "items") {
                    check_downward_file(file, &source_path, causes);
                }
            }
            "projected" => check_projected(source, &source_path, causes),
            "csi" => {
                check_driver(text(source, "driver"), &source_path.child("driver"), causes);
                if let Some(secret) = present(source, "nodePublishSecretRef") {
                    required(secret, "name", &source_path.child("nodePublishSecretRef"), causes);
                }
            }
            "ephemeral" => check_ephemeral(volume, source, pod_name, path, causes),
            "image" => {
                if owner.pod.is_some() {
                    required(source, "reference", &source_path, causes);
                }
                required_one_of(
                    source,
                    "pullPolicy",
                    &["Always", "IfNotPresent", "Never"],
                    &source_path,
                    causes,
                );
            }
            _ => {}
        }
    }
    if !has_one {
        causes.push(path.required("must specify a volume type"));
    }
}

fn required(source: &Value, field: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if text(source, field).is_empty() {
        causes.push(path.child(field).required(""));
    }
}

fn check_mode(source: &Value, field: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if let Some(mode) = int(source, field).filter(|mode| !(0..=0o777).contains(mode)) {
        causes.push(path.child(field).invalid(mode, FILE_MODE));
    }
}

fn check_host_path(source: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let target = text(source, "path");
    if target.is_empty() {
        causes.push(path.child("path").required(""));
        return;
    }
    check_no_backsteps(target, &path.child("path"), causes);
    let kind = text(source, "type");
    if !HOST_PATH_TYPES.contains(&kind) {
        causes.push(path.child("type").not_supported(kind, &HOST_PATH_TYPES));
    }
}

fn check_files(source: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    check_mode(source, "defaultMode", path, causes);
    check_items(source, path, causes);
}

fn check_items(source: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let items = path.child("items");
    for (i, item) in list(source, "items").iter().enumerate() {
        check_item(item, &items.index(i), causes);
    }
}

fn check_item(item: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    required(item, "key", path, causes);
    required(item, "path", path, causes);
    check_file_path(text(item, "path"), &path.child("path"), causes);
    check_mode(item, "mode", path, causes);
}

/// Rejects duplicate paths in a projection.
fn check_distinct<'a>(
    target: &'a str,
    shown: &str,
    known: &mut Vec<&'a str>,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    if known.contains(&target) && !target.is_empty() {
        causes.push(path.invalid(shown, "conflicting duplicate paths"));
    }
    known.push(target);
}

fn check_downward_file(file: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    required(file, "path", path, causes);
    check_file_path(text(file, "path"), &path.child("path"), causes);
    let resource = present(file, "resourceFieldRef");
    match (present(file, "fieldRef"), resource) {
        (Some(field), _) => {
            environment::check_field(field, &FILE_FIELDS, &path.child("fieldRef"), causes);
            if resource.is_some() {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                causes.push(path.invalid("resource", why));
            }
        }
        (None, Some(resource)) => {
            environment::check_resource(resource, true, &path.child("resourceFieldRef"), causes);
        }
        (None, None) => causes.push(path.required("one of fieldRef and resourceFieldRef is required")),
    }
    check_mode(file, "mode", path, causes);
}

fn check_projected(source: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let projected = path;
    check_mode(source, "defaultMode", path, causes);
    let sources = path.child("sources");
    let mut files: Vec<&str> = Vec::new();
    for (i, projection) in list(source, "sources").iter().enumerate() {
        let source_path = sources.index(i);
        for field in ["secret", "configMap"] {
            if let Some(own) = present(projection, field) {
                let path = source_path.child(field);
                required(own, "name", &path, causes);
                for (i, item) in list(own, "items").iter().enumerate() {
                    check_item(item, &path.child("items").index(i), causes);
                    check_distinct(text(item, "path"), text(own, "name"), &mut files, projected, causes);
                }
            }
        }
        if let Some(own) = present(projection, "downwardAPI") {
            let path = source_path.child("downwardAPI");
            for file in list(own, "items") {
                check_downward_file(file, &path, causes);
                let target = text(file, "path");
                check_distinct(target, target, &mut files, projected, causes);
            }
        }
        if let Some(own) = present(projection, "serviceAccountToken") {
            let token_path = source_path.child("serviceAccountToken");
            let seconds = int(own, "expirationSeconds").unwrap_or_default();
            let seconds_path = token_path.child("expirationSeconds");
            if seconds < 600 {
                let why = "may not specify a duration less than 10 minutes";
                causes.push(seconds_path.invalid(seconds, why));
            }
            if seconds > 1 << 32 {
                let why = "may not specify a duration larger than 2^32 seconds";
                causes.push(seconds_path.invalid(seconds, why));
            }
            required(own, "path", path, causes);
            check_file_path(text(own, "path"), &path.child("path"), causes);
        }
        let count = projection.as_object().map_or(0, |map| map.values().filter(|own| !own.is_null()).count());
        if count > 1 {
            causes.push(source_path.forbidden("may not specify more than 1 volume type per source"));
        }
    }
}

fn check_driver(driver: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if driver.is_empty() {
        causes.push(path.required(""));
        return;
    }
    if driver.len() > 63 {
        causes.push(path.too_long(63));
    }
    path.invalid_all(driver, names::dns1123_subdomain(&driver.to_lowercase()), causes);
}

/// A claim template in a pod.
fn check_ephemeral(
    volume: &Value,
    source: &Value,
    pod_name: &str,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let ephemeral = path.child("ephemeral");
    let template_path = ephemeral.child("volumeClaimTemplate");
    match present(source, "volumeClaimTemplate") {
        None => causes.push(template_path.required("")),
        Some(template) => {
            let (null, path) = (Value::Null, template_path.child("spec"));
            let spec = template.get("spec").unwrap_or(&null);
            check_access_modes(spec, &path.child("accessModes"), causes);
            let resources = path.child("resources");
            match spec.pointer("/resources/requests/storage") {
                None => causes.push(resources.key("storage").required("")),
                Some(amount) if Quantity::of(amount) <= Quantity::ZERO => {
                    let path = resources.key("storage");
                    causes.push(path.invalid(Quantity::of(amount), "must be greater than zero"));
                }
                Some(_) => {}
            }
        }
    }
    let name = text(volume, "name");
    if !pod_name.is_empty() && !name.is_empty() {
        let claim = format!("{pod_name}-{name}");
        for why in names::dns1123_subdomain(&claim) {
            causes.push(path.child("name").invalid(name, &format!("PVC name {claim:?}: {why}")));
        }
    }
}

fn check_access_modes(claim: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    const KNOWN: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes: Vec<&str> = texts(claim, "accessModes").collect();
    if modes.is_empty() {
        causes.push(path.required("at least 1 access mode is required"));
    }
    for mode in modes.iter().filter(|mode| !KNOWN.contains(mode)) {
        causes.push(path.not_supported(*mode, &KNOWN));
    }
    if modes.contains(&"ReadWriteOncePod") && KNOWN[..3].iter().any(|mode| modes.contains(mode)) {
        causes.push(path.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

/// Validates the volume mounts of a container.
pub(super) fn check_mounts(
    container: &Value,
    volumes: &Volumes<'_>,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let (mounts, devices) = (list(container, "volumeMounts"), list(container, "volumeDevices"));
    let all = path.child("volumeMounts");
    for (i, mount) in mounts.iter().enumerate() {
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        let path = all.index(i);
        if name.is_empty() {
            causes.push(path.child("name").required(""));
        }
        if !volumes.contains_key(name) {
            causes.push(path.child("name").not_found(name, ""));
        }
        if target.is_empty() {
            causes.push(path.child("mountPath").required(""));
        }
        if mounts[..i].iter().any(|other| text(other, "mountPath") == target) {
            causes.push(path.child("mountPath").invalid(target, "must be unique"));
        }
        if devices.iter().any(|device| text(device, "name") == name) {
            causes.push(path.child("name").invalid(name, "must not already exist in volumeDevices"));
        }
        if devices.iter().any(|device| text(device, "devicePath") == target) {
            let why = "must not already exist as a path in volumeDevices";
            causes.push(path.child("mountPath").invalid(target, why));
        }
        // From here on, upstream's paths lack the index.
        let (below, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        check_descends(below, &all.child("subPath"), causes);
        if !expression.is_empty() {
            if !below.is_empty() {
                let why = "subPathExpr and subPath are mutually exclusive";
                causes.push(path.child("subPathExpr").invalid(expression, why));
            }
            check_descends(expression, &all.child("subPathExpr"), causes);
        }
        check_propagation(container, mount, &all, causes);
    }
}

fn check_propagation(container: &Value, mount: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    const KNOWN: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    let propagation = present(mount, "mountPropagation").and_then(Value::as_str);
    if let Some(propagation) = propagation {
        let path = path.child("mountPropagation");
        if !KNOWN.contains(&propagation) {
            causes.push(path.not_supported(propagation, &KNOWN));
        }
        let is_privileged = container.get("securityContext").is_some_and(|own| flag(own, "privileged"));
        if propagation == "Bidirectional" && !is_privileged {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            causes.push(path.forbidden(why));
        }
    }
    let path = path.child("recursiveReadOnly");
    match present(mount, "recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !flag(mount, "readOnly") {
                causes.push(path.forbidden("may only be specified when readOnly is true"));
            }
            if propagation.is_some_and(|propagation| propagation != "None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                causes.push(path.forbidden(why));
            }
        }
        Some(other) => causes.push(path.not_supported(other, &["Disabled", "Enabled", "IfPossible"])),
    }
}

/// Validates the block devices of a container.
pub(super) fn check_devices(
    container: &Value,
    volumes: &Volumes<'_>,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let (mounts, devices) = (list(container, "volumeMounts"), list(container, "volumeDevices"));
    let all = path.child("volumeDevices");
    for (i, device) in devices.iter().enumerate() {
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        let path = all.index(i);
        let (name_path, device_path) = (path.child("name"), path.child("devicePath"));
        if name.is_empty() {
            causes.push(name_path.required(""));
        }
        if devices[..i].iter().any(|other| text(other, "name") == name && !name.is_empty()) {
            causes.push(name_path.invalid(name, "must be unique"));
        }
        match volumes.get(name) {
            None => causes.push(name_path.not_found(name, "")),
            Some(volume) => {
                let is_claim = ["persistentVolumeClaim", "ephemeral"]
                    .into_iter()
                    .any(|source| present(volume, source).is_some());
                if !is_claim {
                    let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                    causes.push(name_path.invalid(name, why));
                }
            }
        }
        if target.is_empty() {
            causes.push(device_path.required(""));
        }
        let is_sound = |other: &Value| !has_backsteps(text(other, "devicePath"));
        if devices[..i].iter().any(|other| text(other, "devicePath") == target && is_sound(other)) {
            causes.push(device_path.invalid(target, "must be unique"));
        }
        if has_backsteps(target) {
            causes.push(device_path.invalid(target, "can not contain backsteps ('..')"));
        }
        if mounts.iter().any(|mount| text(mount, "name") == name) {
            causes.push(name_path.invalid(name, "must not already exist in volumeMounts"));
        }
        if mounts.iter().any(|mount| text(mount, "mountPath") == target) {
            let why = "must not already exist as a path in volumeMounts";
            causes.push(device_path.invalid(target, why));
        }
    }
}

/// Files with environment variables must be in an emptyDir volume.
pub(super) fn check_file_references(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    for field in super::defaults::CONTAINERS {
        let all = path.child(field);
        for (i, container) in list(spec, field).iter().enumerate() {
            let container_path = all.index(i);
            let variables = container_path.child("env");
            for (j, variable) in list(container, "env").iter().enumerate() {
                let Some(file) = variable.pointer("/valueFrom/fileKeyRef").filter(|file| file.is_object())
                else {
                    continue;
                };
                let variable_path = variables.index(j);
                let source = variable_path.child("valueFrom");
                let reference = source.child("fileKeyRef");
                let path = reference.child("volumeName");
                let name = text(file, "volumeName");
                match list(spec, "volumes").iter().rfind(|volume| text(volume, "name") == name) {
                    None => causes.push(path.not_found(name, "")),
                    Some(volume) if present(volume, "emptyDir").is_none() => {
                        causes.push(path.invalid(name, "referenced volume must be of type emptyDir"));
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
