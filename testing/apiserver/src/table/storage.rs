//! Volumes, claims, storage classes and drivers.

use std::cmp::Reverse;

use jiff::Timestamp;
use serde_json::Value;

use super::Layout;
use super::access::{age, flag_or, has, is_deleted, items, joined, name, present_or, text, time};
use super::columns::{AGE, NAME, boolean, integer, text as column, wide};

pub(super) static PERSISTENT_VOLUMES: Layout = Layout {
    columns: &[
        NAME,
        column("Capacity"),
        column("Access Modes"),
        column("Reclaim Policy"),
        column("Status"),
        column("Claim"),
        column("StorageClass"),
        column("VolumeAttributesClass"),
        column("Reason"),
        AGE,
        wide("VolumeMode"),
    ],
    cells: persistent_volume,
};

pub(super) static PERSISTENT_VOLUME_CLAIMS: Layout = Layout {
    columns: &[
        NAME,
        column("Status"),
        column("Volume"),
        column("Capacity"),
        column("Access Modes"),
        column("StorageClass"),
        column("VolumeAttributesClass"),
        AGE,
        wide("VolumeMode"),
    ],
    cells: persistent_volume_claim,
};

pub(super) static STORAGE_CLASSES: Layout = Layout {
    columns: &[
        NAME,
        column("Provisioner"),
        column("ReclaimPolicy"),
        column("VolumeBindingMode"),
        column("AllowVolumeExpansion"),
        AGE,
    ],
    cells: storage_class,
};

pub(super) static VOLUME_ATTACHMENTS: Layout = Layout {
    columns: &[NAME, column("Attacher").of_names(), column("PV"), column("Node"), boolean("Attached"), AGE],
    cells: volume_attachment,
};

pub(super) static CSI_NODES: Layout = Layout { columns: &[NAME, integer("Drivers"), AGE], cells: csi_node };

pub(super) static CSI_DRIVERS: Layout = Layout {
    columns: &[
        NAME,
        boolean("AttachRequired"),
        boolean("PodInfoOnMount"),
        boolean("StorageCapacity"),
        column("TokenRequests"),
        boolean("RequiresRepublish"),
        column("Modes"),
        AGE,
    ],
    cells: csi_driver,
};

const UNSET: &str = "<unset>";

fn phase(object: &Value) -> &str {
    if is_deleted(object) { "Terminating" } else { text(object, "/status/phase") }
}

/// In a fixed order, without duplicates.
fn access_modes(object: &Value, pointer: &str) -> String {
    let modes = items(object, pointer);
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let short: Vec<&str> = known
        .iter()
        .filter(|(mode, _)| modes.iter().any(|has| has == mode))
        .map(|(_, short)| *short)
        .collect();
    short.join(",")
}

/// The legacy annotation has precedence over the field.
fn class(object: &Value) -> &str {
    let annotation = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
    present_or(object, annotation, text(object, "/spec/storageClassName"))
}

fn persistent_volume(volume: &Value, now: Timestamp) -> Vec<Value> {
    let claim = if has(volume, "/spec/claimRef") {
        format!("{}/{}", text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"))
    } else {
        String::new()
    };
    vec![
        name(volume),
        present_or(volume, "/spec/capacity/storage", "0").into(),
        access_modes(volume, "/spec/accessModes").into(),
        text(volume, "/spec/persistentVolumeReclaimPolicy").into(),
        phase(volume).into(),
        claim.into(),
        class(volume).into(),
        present_or(volume, "/spec/volumeAttributesClassName", UNSET).into(),
        text(volume, "/status/reason").into(),
        age(volume, now),
        present_or(volume, "/spec/volumeMode", UNSET).into(),
    ]
}

fn persistent_volume_claim(claim: &Value, now: Timestamp) -> Vec<Value> {
    let volume = text(claim, "/spec/volumeName");
    let (capacity, modes) = if volume.is_empty() {
        ("", String::new())
    } else {
        (present_or(claim, "/status/capacity/storage", "0"), access_modes(claim, "/status/accessModes"))
    };
    vec![
        name(claim),
        phase(claim).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class(claim).into(),
        present_or(claim, "/spec/volumeAttributesClassName", UNSET).into(),
        age(claim, now),
        present_or(claim, "/spec/volumeMode", UNSET).into(),
    ]
}

/// Marks the default class in a list: the newest of those with the annotation, and of equally old
/// ones the first by name. As upstream, a class printed alone is never marked.
pub(super) fn mark_default(classes: &[&Value], rows: &mut [Value]) {
    let annotations = [
        "/metadata/annotations/storageclass.kubernetes.io~1is-default-class",
        "/metadata/annotations/storageclass.beta.kubernetes.io~1is-default-class",
    ];
    let is_marked = |class: &Value| annotations.iter().any(|annotation| text(class, annotation) == "true");
    let created = |class: &Value| time(class, "/metadata/creationTimestamp");
    let rank = |class: &Value| (created(class), Reverse(text(class, "/metadata/name").to_owned()));
    let marked = classes.iter().enumerate().filter(|(_, class)| is_marked(class));
    let Some((at, class)) = marked.max_by_key(|(_, class)| rank(class)) else { return };
    rows[at]["cells"][0] = format!("{} (default)", text(class, "/metadata/name")).into();
}

fn storage_class(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(class),
        text(class, "/provisioner").into(),
        present_or(class, "/reclaimPolicy", "Delete").into(),
        present_or(class, "/volumeBindingMode", "Immediate").into(),
        flag_or(class, "/allowVolumeExpansion", false).into(),
        age(class, now),
    ]
}

fn volume_attachment(attachment: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(attachment),
        text(attachment, "/spec/attacher").into(),
        text(attachment, "/spec/source/persistentVolumeName").into(),
        text(attachment, "/spec/nodeName").into(),
        flag_or(attachment, "/status/attached", false).into(),
        age(attachment, now),
    ]
}

fn csi_node(node: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(node), items(node, "/spec/drivers").len().into(), age(node, now)]
}

fn csi_driver(driver: &Value, now: Timestamp) -> Vec<Value> {
    let modes = joined(driver, "/spec/volumeLifecycleModes");
    let audiences = if has(driver, "/spec/tokenRequests") {
        let requests = items(driver, "/spec/tokenRequests").iter();
        requests.map(|request| text(request, "/audience")).collect::<Vec<_>>().join(",")
    } else {
        UNSET.to_owned()
    };
    vec![
        name(driver),
        flag_or(driver, "/spec/attachRequired", true).into(),
        flag_or(driver, "/spec/podInfoOnMount", false).into(),
        flag_or(driver, "/spec/storageCapacity", false).into(),
        audiences.into(),
        flag_or(driver, "/spec/requiresRepublish", false).into(),
        if modes.is_empty() { "<none>".into() } else { modes.into() },
        age(driver, now),
    ]
}
