//! Runtime classes.

use serde_json::Value;

use super::checks::{Shown, duplicate_shown, immutable_by_tag, shown};
use super::path::Path;
use super::pod::requirements;
use super::traits::Strategy;
use super::{labels, names, taints};
use crate::json::{list, present, text};
use crate::status::StatusCause;

/// Runtime classes.
pub(crate) struct RuntimeClass;

/// The fields of a toleration, as upstream shows them.
const TOLERATION: [(&str, &str, Shown); 5] = [
    ("Key", "key", Shown::Text),
    ("Operator", "operator", Shown::Text),
    ("Value", "value", Shown::Text),
    ("Effect", "effect", Shown::Text),
    ("TolerationSeconds", "tolerationSeconds", Shown::Null),
];
/// The fields that identify a toleration.
const TOLERATION_KEYS: [&str; 4] = ["key", "operator", "value", "effect"];

impl Strategy for RuntimeClass {
    fn validate(&self, class: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let (handler, path) = (text(class, "handler"), Path::root("handler"));
        if handler.is_empty() {
            causes.push(path.required(""));
        } else {
            path.invalid_all(handler, names::dns1123_label(handler), &mut causes);
        }
        if let Some(fixed) = present(class, "overhead").and_then(|overhead| present(overhead, "podFixed")) {
            requirements::check_overhead(fixed, &Path::root("overhead"), &mut causes);
        }
        if let Some(scheduling) = present(class, "scheduling") {
            let path = Path::root("scheduling");
            labels::check_labels(scheduling, "nodeSelector", &path, &mut causes);
            taints::check_tolerations(scheduling, "tolerations", &path, &mut causes);
            check_unique(list(scheduling, "tolerations"), &path.child("tolerations"), &mut causes);
        }
        causes
    }

    fn validate_update(&self, class: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(class);
        immutable_by_tag(class, old, "handler", &mut causes);
        causes
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

fn check_unique(tolerations: &[Value], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    for (at, toleration) in tolerations.iter().enumerate() {
        let is_same =
            |other: &Value| TOLERATION_KEYS.iter().all(|key| text(other, key) == text(toleration, key));
        if tolerations[..at].iter().any(is_same) {
            causes.push(duplicate_shown(&path.index(at), &shown(toleration, &TOLERATION)));
        }
    }
}
