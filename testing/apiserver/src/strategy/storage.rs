//! Volumes, claims, and their provisioning.

mod attachment;
pub(crate) mod claim;
mod class;
mod csi;
mod volume;

pub(crate) use attachment::VolumeAttachment;
pub(crate) use claim::PersistentVolumeClaim;
pub(crate) use class::{StorageClass, default_class};
pub(crate) use csi::{CsiDriver, CsiNode, CsiStorageCapacity};
pub(crate) use volume::PersistentVolume;

use serde_json::{Value, json};

use super::path::Path;
use crate::json::{list, object_mut, texts};
use crate::quantity::Quantity;
use crate::status::StatusCause;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const SINGLE_POD: &str = "ReadWriteOncePod";

fn check_access_modes(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let path = path.child("accessModes");
    for mode in texts(spec, "accessModes").filter(|mode| !ACCESS_MODES.contains(mode)) {
        causes.push(path.not_supported(mode, &ACCESS_MODES));
    }
    let has = |is: fn(&str) -> bool| texts(spec, "accessModes").any(is);
    if has(|mode| mode == SINGLE_POD) && has(|mode| mode != SINGLE_POD && ACCESS_MODES.contains(&mode)) {
        causes.push(path.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

fn check_positive(amount: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let amount = Quantity::of(amount);
    if amount.is_zero() || amount.is_negative() {
        causes.push(path.invalid(amount, "must be greater than zero"));
    }
}

fn check_not_negative(amount: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let amount = Quantity::of(amount);
    if amount.value() < 0 {
        causes.push(path.invalid(amount.value(), "must be a valid resource quantity"));
    }
}

/// Adds a finalizer that protects an object in use.
fn protect(object: &mut Value, finalizer: &str) {
    object_mut(object, "metadata");
    let metadata = &mut object["metadata"];
    if texts(metadata, "finalizers").any(|name| name == finalizer) {
        return;
    }
    let mut finalizers = list(metadata, "finalizers").to_vec();
    finalizers.push(json!(finalizer));
    metadata["finalizers"] = finalizers.into();
}
