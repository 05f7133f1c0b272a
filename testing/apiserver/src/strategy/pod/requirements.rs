//! Validates the resource requirements of a pod.

use serde_json::Value;

use super::super::names;
use super::super::path::Path;
use super::super::resources as names_of;
use super::requests::{self, Amount};
use super::spec::{SpecOwner, claim_names, is_mirror};
use crate::json::{entries, list, present, text};
use crate::quantity::Quantity;
use crate::status::StatusCause;

type CheckName = fn(&str, &Path<'_>, &mut Vec<StatusCause>);

/// Validates the requests, limits and claims of a container.
pub(super) fn check(resources: &Value, claims: &[&str], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    check_amounts(resources, names_of::check_container_name, path, causes);
    check_claim_names(resources, claims, path, causes);
}

/// Validates the overhead of a pod, which upstream treats as limits, also in messages.
pub(in crate::strategy) fn check_overhead(amounts: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let resources = serde_json::json!({"limits": amounts});
    check_amounts(&resources, names_of::check_container_name, path, causes);
}

/// Validates the pod-level resources.
pub(super) fn check_pod_level(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let Some(resources) = present(spec, "resources") else { return };
    let path = path.child("resources");
    if spec.get("os").is_some_and(|os| text(os, "name") == "windows") {
        causes.push(path.forbidden("may not be set for a windows pod"));
        return;
    }
    if resources.get("claims").is_some_and(Value::is_array) {
        causes.push(path.child("claims").forbidden("claims may not be set for Resources at pod-level"));
    }
    check_amounts(resources, check_pod_level_name, &path, causes);
    check_claim_names(resources, &claim_names(spec), &path, causes);
    check_consistency(spec, resources, &path, causes);
}

fn check_pod_level_name(name: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let before = causes.len();
    names_of::check_name(name, path, causes);
    if causes.len() == before && !requests::is_pod_level(name) {
        causes.push(path.not_supported(name, &["cpu", "hugepages-", "memory"]));
    }
}

/// Pod-level amounts must not be less than the total of the containers.
fn check_consistency(spec: &Value, resources: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let own = |field: &str, name: &str| {
        resources.get(field).and_then(|amounts| amounts.get(name)).map(Quantity::of)
    };
    let requests_path = path.child("requests");
    for (name, amount) in requests::of_containers(spec, Amount::Request) {
        if let Some(own) = own("requests", &name).filter(|own| amount > *own) {
            let why = format!("must be greater than or equal to aggregate container requests of {amount}");
            causes.push(requests_path.key(&name).invalid(own, &why));
        }
    }
    let limits_path = path.child("limits");
    for (name, amount) in requests::of_containers(spec, Amount::Limit) {
        if let Some(own) = own("limits", &name).filter(|own| names_of::is_huge_pages(&name) && amount > *own)
        {
            let why = format!("must be greater than or equal to aggregate container limits of {amount}");
            causes.push(limits_path.key(&name).invalid(own, &why));
        }
    }
    let containers = path.child("containers");
    for (i, container) in list(spec, "containers").iter().enumerate() {
        let null = Value::Null;
        for (name, amount) in entries(container.get("resources").unwrap_or(&null), "limits") {
            let amount = Quantity::of(amount);
            if let Some(own) = own("limits", name).filter(|own| amount > *own) {
                let path = containers.index(i);
                let why = format!("must be less than or equal to pod limits of {own}");
                causes.push(path.key(name).child("limits").invalid(amount, &why));
            }
        }
    }
}

fn check_amounts(resources: &Value, check_name: CheckName, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    let (mut has_computed, mut has_huge_pages) = (false, false);
    let mut check_one = |name: &str, value: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>| {
        check_name(name, path, causes);
        names_of::check_amount(name, value, path, causes);
        has_computed |= matches!(name, "cpu" | "memory");
        has_huge_pages |= names_of::is_huge_pages(name);
    };
    for (name, value) in entries(resources, "limits") {
        let path = limits_path.key(name);
        check_one(name, value, &path, causes);
        check_pages(name, value, &path, causes);
    }
    for (name, value) in entries(resources, "requests") {
        let path = requests_path.key(name);
        check_one(name, value, &path, causes);
        let amount = Quantity::of(value);
        let limit = resources.get("limits").and_then(|limits| limits.get(name)).map(Quantity::of);
        let may_be_less = names_of::may_be_overcommitted(name);
        match limit {
            Some(limit) if amount != limit && !may_be_less => {
                let why = format!("must be equal to {name} limit of {limit}");
                causes.push(requests_path.invalid(amount, &why));
            }
            Some(limit) if amount > limit => {
                let why = format!("must be less than or equal to {name} limit of {limit}");
                causes.push(requests_path.invalid(amount, &why));
            }
            None if !may_be_less => {
                causes.push(limits_path.required("Limit must be set for non overcommitable resources"));
            }
            _ => {}
        }
        check_pages(name, value, &path, causes);
    }
    if has_huge_pages && !has_computed {
        causes.push(path.forbidden("HugePages require cpu or memory"));
    }
}

fn check_pages(name: &str, value: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let amount = Quantity::of(value);
    if names_of::is_huge_pages(name) && !names_of::is_whole_pages(name, amount) {
        let why = format!("{amount} is not positive integer multiple of {name}");
        causes.push(path.invalid(amount, &why));
    }
}

/// The claims of a container must be claims of its pod.
fn check_claim_names(resources: &Value, known: &[&str], path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let path = path.child("claims");
    // Claims, and single requests of claims.
    let mut used: Vec<String> = Vec::new();
    for (i, claim) in list(resources, "claims").iter().enumerate() {
        let (name, request, path) = (text(claim, "name"), text(claim, "request"), path.index(i));
        if name.is_empty() {
            causes.push(path.required(""));
            continue;
        }
        let is_used = |key: &str| used.iter().any(|other| other == key);
        if is_used(name) {
            causes.push(path.duplicate(name));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                path.child("request").invalid_all(request, names::dns1123_label(request), causes);
                key = format!("{name}/{request}");
            }
            let is_part = |other: &String| other.split_once('/').is_some_and(|(claim, _)| claim == name);
            if is_used(&key) {
                causes.push(path.duplicate(key.as_str()));
            } else if request.is_empty() {
                let parts = used.iter().filter(|other| is_part(other)).count();
                causes.extend((0..parts).map(|_| path.duplicate(name)));
            }
            if !used.contains(&key) {
                used.push(key);
            }
        }
        if !known.contains(&name) {
            let mut sorted = known.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            let detail = if sorted.is_empty() {
                "must be one of the names in pod.spec.resourceClaims which is empty".to_owned()
            } else {
                format!("must be one of the names in pod.spec.resourceClaims: {}", sorted.join(", "))
            };
            causes.push(path.not_found(name, &detail));
        }
    }
}

/// Validates the claims of a pod.
pub(super) fn check_claims(
    spec: &Value,
    owner: SpecOwner<'_>,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let (claims, path) = (list(spec, "resourceClaims"), path.child("resourceClaims"));
    for (i, claim) in claims.iter().enumerate() {
        if owner.pod.is_some_and(is_mirror) {
            // Upstream has no path here, and shows it like this.
            causes.push(Path::root("[]").forbidden("static pods do not support resource claims"));
            continue;
        }
        let path = path.index(i);
        let name = text(claim, "name");
        if name.is_empty() {
            causes.push(path.child("name").required(""));
        } else if claims[..i].iter().any(|other| text(other, "name") == name) {
            causes.push(path.child("name").duplicate(name));
        } else {
            path.child("name").invalid_all(name, names::dns1123_label(name), causes);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let given: Vec<&str> =
            sources.into_iter().filter(|source| present(claim, source).is_some()).collect();
        match given.len() {
            0 => {
                let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                causes.push(invalid_claim(claim, &path, why));
            }
            1 => {}
            _ => {
                let why =
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                causes.push(invalid_claim(claim, &path, why));
            }
        }
        for source in given {
            let name = text(claim, source);
            path.child(source).invalid_all(name, names::dns1123_subdomain(name), causes);
        }
    }
}

/// Upstream shows the claim as its internal type, with that type's field names and order.
fn invalid_claim(claim: &Value, path: &Path<'_>, why: &str) -> StatusCause {
    let shown = |field| claim.get(field).unwrap_or(&Value::Null).to_string();
    StatusCause {
        reason: "FieldValueInvalid",
        message: format!(
            r#"Invalid value: {{"Name":{},"ResourceClaimName":{},"ResourceClaimTemplateName":{}}}: {why}"#,
            Value::from(text(claim, "name")),
            shown("resourceClaimName"),
            shown("resourceClaimTemplateName"),
        ),
        field: path.to_string(),
    }
}
