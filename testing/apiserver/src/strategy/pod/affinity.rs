//! Validates node and pod affinity.

use serde_json::Value;

use super::super::labels;
use super::super::names;
use super::super::path::Path;
use super::super::selectors;
use crate::json::{list, present, text, texts};
use crate::status::StatusCause;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Validates the affinity of a pod.
pub(super) fn check(affinity: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if let Some(own) = present(affinity, "nodeAffinity") {
        let path = path.child("nodeAffinity");
        if let Some(selector) = present(own, REQUIRED) {
            selectors::check_node_selector(selector, true, &path.child(REQUIRED), causes);
        }
        selectors::check_preferences(list(own, PREFERRED), &path.child(PREFERRED), causes);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(own) = present(affinity, kind) else { continue };
        let path = path.child(kind);
        let required = path.child(REQUIRED);
        for (i, term) in list(own, REQUIRED).iter().enumerate() {
            check_term(term, &required.index(i), causes);
        }
        let preferred = path.child(PREFERRED);
        for (i, weighted) in list(own, PREFERRED).iter().enumerate() {
            let path = preferred.index(i);
            selectors::check_weight(weighted, &path, causes);
            let null = Value::Null;
            let term = weighted.get("podAffinityTerm").unwrap_or(&null);
            check_term(term, &path.child("podAffinityTerm"), causes);
        }
    }
}

fn check_term(term: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    for field in ["labelSelector", "namespaceSelector"] {
        if let Some(selector) = present(term, field) {
            labels::check_selector(selector, &path.child(field), causes);
        }
    }
    for namespace in texts(term, "namespaces") {
        // Upstream's path uses the singular.
        path.child("namespace").invalid_all(namespace, names::dns1123_label(namespace), causes);
    }
    check_label_keys(term, path, causes);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        causes.push(path.child("topologyKey").required("can not be empty"));
    }
    labels::check_key(key, &path.child("topologyKey"), causes);
}

/// Validates the keys of labels whose values matching pods must share, or must not share.
pub(super) fn check_label_keys(term: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let selector = present(term, "labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let path = path.child(field);
        if selector.is_none() && !list(term, field).is_empty() {
            causes.push(path.forbidden("must not be specified when labelSelector is not set"));
            continue;
        }
        for (i, key) in texts(term, field).enumerate() {
            labels::check_key(key, &path.index(i), causes);
        }
    }
    if let Some(selector) = selector {
        // Each key is already part of the selector, so it occurs there once.
        let labelled = selector.get("matchLabels");
        let expressions = list(selector, "matchExpressions");
        for (i, expression) in expressions.iter().enumerate() {
            let key = text(expression, "key");
            let is_earlier = labelled.is_some_and(|labels| labels.get(key).is_some())
                || expressions[..i].iter().any(|other| text(other, "key") == key);
            let position = texts(term, "matchLabelKeys").collect::<Vec<_>>();
            if let Some(at) = position.iter().rposition(|own| *own == key).filter(|_| is_earlier) {
                causes.push(path.index(at).invalid(key, "exists in both matchLabelKeys and labelSelector"));
            }
        }
    }
    let keys = path.child("matchLabelKeys");
    for (i, key) in texts(term, "matchLabelKeys").enumerate() {
        if texts(term, "mismatchLabelKeys").any(|other| other == key) {
            let why = "exists in both matchLabelKeys and mismatchLabelKeys";
            causes.push(keys.index(i).invalid(key, why));
        }
    }
}
