//! Volume attachments.

use serde_json::Value;

use super::super::checks::immutable_by_tag;
use super::super::path::Path;
use super::super::traits::Strategy;
use super::super::{names, status};
use crate::json::{object_mut, present, restore, set_default, text};
use crate::status::StatusCause;

/// Attachments of volumes to nodes.
pub(crate) struct VolumeAttachment;

const SPEC: Path<'static> = Path::root("spec");
const ONE_SOURCE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";

impl Strategy for VolumeAttachment {
    fn default(&self, attachment: &mut Value) {
        object_mut(attachment, "spec");
        let spec = &mut attachment["spec"];
        set_default(spec, "attacher", "");
        set_default(spec, "nodeName", "");
        object_mut(spec, "source");
        object_mut(attachment, "status");
        set_default(&mut attachment["status"], "attached", false);
    }

    fn prepare_for_create(&self, attachment: &mut Value) {
        status::reset(attachment);
        self.default(attachment);
    }

    fn prepare_for_update(&self, attachment: &mut Value, old: &Value) {
        restore(attachment, old, "status");
    }

    fn prepare_for_status_update(&self, attachment: &mut Value, old: &Value) {
        status::only_status(attachment, old);
        status::keep_metadata(attachment, old);
    }

    fn validate(&self, attachment: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &attachment["spec"];
        check_source(&spec["source"], &SPEC.child("source"), &mut causes);
        let node = text(spec, "nodeName");
        SPEC.child("nodeName").invalid_all(node, names::dns1123_subdomain(node), &mut causes);
        if let Some(volume) = present(&spec["source"], "persistentVolumeName").and_then(Value::as_str) {
            let path = Path::root("spec.source.persistentVolumeName");
            path.invalid_all(volume, names::dns1123_subdomain(volume), &mut causes);
        }
        check_attacher(text(spec, "attacher"), &mut causes);
        causes
    }

    fn validate_update(&self, attachment: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(attachment);
        immutable_by_tag(attachment, old, "spec", &mut causes);
        causes
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

fn check_source(source: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    match (present(source, "inlineVolumeSpec"), present(source, "persistentVolumeName")) {
        (None, None) => causes.push(path.required(ONE_SOURCE)),
        (Some(_), Some(_)) => causes.push(path.forbidden(ONE_SOURCE)),
        (None, Some(name)) if name == "" => {
            let path = path.child("persistentVolumeName");
            causes.push(path.required("must specify non empty persistentVolumeName"));
        }
        _ => {}
    }
}

/// Upstream validates it by a tag on its type, with a text of its own.
fn check_attacher(attacher: &str, causes: &mut Vec<StatusCause>) {
    let path = SPEC.child("attacher");
    if attacher.is_empty() {
        causes.push(path.required(""));
    } else if !names::dns1123_subdomain(&attacher.to_lowercase()).is_empty() {
        causes.push(path.invalid(attacher, names::SUBDOMAIN_OF_ANY_CASE));
    }
}
