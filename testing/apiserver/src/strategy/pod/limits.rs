//! The limit ranges of a namespace: defaults for its pods, and rejections.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::traits::Lookup;
use super::requests::{self, Amount};
use crate::json::{entries, list, list_mut, object_mut, text, text_at};
use crate::quantity::Quantity;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const KINDS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];

type Amounts = BTreeMap<String, Quantity>;

/// The limit ranges of a pod's namespace, sorted by name.
pub(super) fn ranges(pod: &Value, objects: &dyn Lookup) -> Vec<Value> {
    let mut ranges = objects.list("", "limitranges", text_at(pod, "/metadata/namespace"));
    ranges.sort_by(|one, other| text_at(one, "/metadata/name").cmp(text_at(other, "/metadata/name")));
    ranges
}

/// Fills in missing amounts of a new pod's containers.
pub(super) fn default(pod: &mut Value, range: &Value) {
    let mut given: Vec<String> = Vec::new();
    let Some(spec) = pod.get_mut("spec") else { return };
    for (field, shown) in KINDS {
        for container in list_mut(spec, field) {
            for (amounts, from, what) in
                [("requests", "defaultRequest", "request"), ("limits", "default", "limit")]
            {
                let set = give(container, amounts, range, from);
                if !set.is_empty() {
                    let name = text(container, "name");
                    given.push(format!("{} {what} for {shown} {name}", set.join(", ")));
                }
            }
        }
    }
    if given.is_empty() {
        return;
    }
    if let Some(annotations) =
        pod.get_mut("metadata").and_then(|metadata| object_mut(metadata, "annotations"))
    {
        let reported = format!("LimitRanger plugin set: {}", given.join("; "));
        annotations.insert(ANNOTATION.to_owned(), reported.into());
    }
}

fn give(container: &mut Value, field: &str, range: &Value, from: &str) -> Vec<String> {
    let mut defaults: BTreeMap<&str, &Value> = BTreeMap::new();
    for limit in limits(range, "Container") {
        defaults.extend(entries(limit, from));
    }
    let own = container.get("resources").and_then(|resources| resources.get(field));
    defaults.retain(|name, _| own.is_none_or(|own| own.get(name).is_none()));
    if defaults.is_empty() {
        return Vec::new();
    }
    object_mut(container, "resources");
    let Some(amounts) = container.get_mut("resources").and_then(|resources| object_mut(resources, field))
    else {
        return Vec::new();
    };
    amounts.extend(defaults.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).clone())));
    defaults.into_keys().map(str::to_owned).collect()
}

fn limits<'a>(range: &'a Value, kind: &str) -> impl Iterator<Item = &'a Value> {
    let spec = range.get("spec").unwrap_or(&Value::Null);
    list(spec, "limits").iter().filter(move |limit| text(limit, "type") == kind)
}

/// Why a limit range rejects a pod.
pub(super) fn refusal(pod: &Value, range: &Value) -> Option<String> {
    let spec = pod.get("spec")?;
    let mut wrong: Vec<String> = Vec::new();
    for limit in list(range.get("spec")?, "limits") {
        match text(limit, "type") {
            kind @ "Container" => {
                for container in KINDS.into_iter().flat_map(|(field, _)| list(spec, field)) {
                    let null = Value::Null;
                    let resources = container.get("resources").unwrap_or(&null);
                    let of = |field| -> Amounts {
                        let read = |(name, amount): (&str, &Value)| (name.to_owned(), Quantity::of(amount));
                        entries(resources, field).map(read).collect()
                    };
                    check(limit, kind, &of("requests"), &of("limits"), &mut wrong);
                }
            }
            kind @ "Pod" => {
                let (asked, most) = (of_pod(spec, Amount::Request), of_pod(spec, Amount::Limit));
                check(limit, kind, &asked, &most, &mut wrong);
            }
            _ => {}
        }
    }
    match wrong.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        _ => Some(format!("[{}]", wrong.join(", "))),
    }
}

/// The sum over all containers, unless the pod sets its own amounts.
fn of_pod(spec: &Value, amount: Amount) -> Amounts {
    let mut all = requests::of_containers(spec, amount);
    if let Some(resources) = spec.get("resources") {
        let own = entries(resources, amount.field()).filter(|(name, _)| matches!(*name, "cpu" | "memory"));
        all.extend(own.map(|(name, amount)| (name.to_owned(), Quantity::of(amount))));
    }
    all
}

fn check(limit: &Value, kind: &str, requests: &Amounts, limits: &Amounts, wrong: &mut Vec<String>) {
    let mut refuse = |why: String| {
        // Upstream's error aggregate drops duplicates.
        if !wrong.contains(&why) {
            wrong.push(why);
        }
    };
    for (name, least) in entries(limit, "min") {
        let least = Quantity::of(least);
        let rule = format!("minimum {name} usage per {kind} is {least}");
        match (requests.get(name), limits.get(name)) {
            (None, _) => refuse(format!("{rule}.  No request is specified")),
            (Some(own), _) if *own < least => refuse(format!("{rule}, but request is {own}")),
            (_, Some(own)) if *own < least => refuse(format!("{rule}, but limit is {own}")),
            _ => {}
        }
    }
    for (name, most) in entries(limit, "max") {
        let most = Quantity::of(most);
        let rule = format!("maximum {name} usage per {kind} is {most}");
        match (requests.get(name), limits.get(name)) {
            (_, None) => refuse(format!("{rule}.  No limit is specified")),
            (_, Some(own)) if *own > most => refuse(format!("{rule}, but limit is {own}")),
            (Some(own), _) if *own > most => refuse(format!("{rule}, but request is {own}")),
            _ => {}
        }
    }
    for (name, most) in entries(limit, "maxLimitRequestRatio") {
        let most = Quantity::of(most);
        let rule = format!("{name} max limit to request ratio per {kind} is {most}");
        let amount = |amounts: &Amounts| amounts.get(name).copied().filter(|amount| !amount.is_zero());
        match (amount(requests), amount(limits)) {
            (None, _) => refuse(format!("{rule}, but no request is specified or request is 0")),
            (_, None) => refuse(format!("{rule}, but no limit is specified or limit is 0")),
            (Some(request), Some(own)) => {
                let ratio = own.as_f64() / request.as_f64();
                if ratio > most.as_f64() {
                    refuse(format!("{rule}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
}
