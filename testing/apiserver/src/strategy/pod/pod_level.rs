//! The defaults of pod-level resources.

use serde_json::Value;

use super::super::resources::{is_huge_pages, may_be_overcommitted};
use super::defaults::CONTAINERS;
use super::requests::{self, Amount};
use crate::json::{entries, list, object_mut, present};
use crate::quantity::Quantity;

/// Completes them from those of the containers: the limits of huge pages, then all requests, then
/// the limits of what every container limits. A pod without pod-level resources stays without.
pub(super) fn complete(spec: &mut Value) {
    let Some(mut resources) = present(spec, "resources").cloned() else { return };
    if ["requests", "limits"].iter().all(|field| entries(&resources, field).next().is_none()) {
        return;
    }
    let asked = requests::of_containers(spec, Amount::Request);
    let limited = requests::of_containers(spec, Amount::Limit);
    let requested = |resources: &Value, name: &str| present(&resources["requests"], name).is_some();

    let pages = limited.iter().filter(|(name, _)| is_huge_pages(name) && !requested(&resources, name));
    let pages: Vec<_> = pages.map(|(name, amount)| (name.clone(), Value::from(*amount))).collect();
    add(&mut resources, "limits", pages);

    let own =
        asked.into_iter().filter(|(name, _)| requests::is_pod_level(name) && may_be_overcommitted(name));
    let own: Vec<_> = own.map(|(name, amount)| (name, Value::from(amount))).collect();
    add(&mut resources, "requests", own);
    let from_limits = entries(&resources, "limits").filter(|(name, _)| requests::is_pod_level(name));
    let from_limits = from_limits.map(|(name, amount)| (name.to_owned(), amount.clone())).collect();
    add(&mut resources, "requests", from_limits);

    let is_limited_everywhere = |name: &str| {
        let limits =
            |container: &Value| entries(&container["resources"], "limits").any(|(own, _)| own == name);
        CONTAINERS.iter().all(|field| list(spec, field).iter().all(limits))
    };
    let candidates = entries(&resources, "requests");
    let candidates =
        candidates.filter(|(name, _)| requests::is_pod_level(name) && is_limited_everywhere(name));
    let most = candidates.filter_map(|(name, request)| {
        let limit = Quantity::of(request).max(*limited.get(name)?);
        Some((name.to_owned(), Value::from(limit)))
    });
    let most = most.collect();
    add(&mut resources, "limits", most);
    spec["resources"] = resources;
}

/// Adds amounts of resources that have none.
fn add(resources: &mut Value, field: &str, amounts: Vec<(String, Value)>) {
    if amounts.is_empty() {
        return;
    }
    if let Some(known) = object_mut(resources, field) {
        for (name, amount) in amounts {
            known.entry(name).or_insert(amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn completed(resources: Value, containers: Value) -> Value {
        let mut spec = json!({ "resources": resources, "containers": containers });
        complete(&mut spec);
        spec["resources"].take()
    }

    #[test]
    fn limits_of_every_container_become_the_limit_of_the_pod() {
        let containers = json!([
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}},
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}},
        ]);
        assert_eq!(
            completed(json!({"requests": {"cpu": "3"}}), containers.clone()),
            json!({"requests": {"cpu": "3"}, "limits": {"cpu": "4"}})
        );
        assert_eq!(
            completed(json!({"requests": {"cpu": "9"}}), containers),
            json!({"requests": {"cpu": "9"}, "limits": {"cpu": "9"}})
        );
    }

    #[test]
    fn requests_come_from_the_containers_and_then_from_the_limits() {
        let containers = json!([{"resources": {"requests": {"cpu": "1"}}}]);
        assert_eq!(
            completed(json!({"limits": {"cpu": "2", "memory": "1Gi"}}), containers),
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}})
        );
        assert_eq!(completed(json!({}), json!([{"resources": {"limits": {"cpu": "1"}}}])), json!({}));
    }
}
