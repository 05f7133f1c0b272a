//! Default arguments of the in-tree plugins, for writing a completed configuration.
//!
//! The plugins apply their defaults themselves. Tests compare these with the output of
//! kube-scheduler.

use serde_json::{Map, Value, json};
use supercargo_framework::features::{Feature, Features};

use super::file::API_VERSION;

/// The arguments of a plugin with defaults; `None` for a plugin without arguments.
pub(super) fn completed(plugin: &str, given: Option<&Value>, features: &Features) -> Option<Value> {
    let mut args = given.and_then(Value::as_object).cloned().unwrap_or_default();
    // Null counts as absent.
    args.retain(|_, value| !value.is_null());
    let Some(defaults) = defaults(plugin, features) else {
        return (!args.is_empty()).then_some(Value::Object(args));
    };
    complete_resources(&mut args);
    if let Some(Value::Object(strategy)) = args.get_mut("scoringStrategy") {
        strategy.retain(|_, value| !value.is_null());
        complete_resources(strategy);
        strategy.entry("resources").or_insert_with(cpu_and_memory);
    }
    if let Value::Object(defaults) = defaults {
        for (field, value) in defaults {
            args.entry(field).or_insert(value);
        }
    }
    args.insert("apiVersion".to_owned(), API_VERSION.into());
    args.insert("kind".to_owned(), format!("{plugin}Args").into());
    Some(Value::Object(args))
}

fn defaults(plugin: &str, features: &Features) -> Option<Value> {
    Some(match plugin {
        "DefaultPreemption" => json!({"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100}),
        "DynamicResources" => dynamic_resources(features),
        "InterPodAffinity" => {
            json!({"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": false})
        }
        "NodeAffinity" => json!({}),
        "NodeResourcesBalancedAllocation" => json!({"resources": cpu_and_memory()}),
        "NodeResourcesFit" => {
            json!({"scoringStrategy": {"type": "LeastAllocated", "resources": cpu_and_memory()}})
        }
        "PodTopologySpread" => json!({"defaultingType": "System"}),
        "VolumeBinding" if features.enabled(Feature::StorageCapacityScoring) => {
            let shape = json!([{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]);
            json!({"bindTimeoutSeconds": 600, "shape": shape})
        }
        "VolumeBinding" => json!({"bindTimeoutSeconds": 600}),
        _ => return None,
    })
}

/// Each timeout only if the gates that it needs are on.
fn dynamic_resources(features: &Features) -> Value {
    let mut timeouts = Map::new();
    if features.enabled(Feature::DRASchedulerFilterTimeout) {
        timeouts.insert("filterTimeout".to_owned(), "10s".into());
    }
    if features.enabled(Feature::DRADeviceBindingConditions)
        && features.enabled(Feature::DRAResourceClaimDeviceStatus)
    {
        timeouts.insert("bindingTimeout".to_owned(), "10m0s".into());
    }
    Value::Object(timeouts)
}

fn cpu_and_memory() -> Value {
    json!([{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}])
}

/// Weights default to 1. An empty list of resources selects the default ones.
fn complete_resources(args: &mut Map<String, Value>) {
    let Some(Value::Array(resources)) = args.get_mut("resources") else { return };
    if resources.is_empty() {
        args.remove("resources");
        return;
    }
    for resource in resources.iter_mut().filter_map(Value::as_object_mut) {
        if resource.get("weight").is_none_or(|weight| weight.as_f64() == Some(0.0)) {
            resource.insert("weight".to_owned(), 1.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_of_dynamic_resources_depend_on_gates() {
        let all = Features::default();
        let completed = |features: &Features| completed("DynamicResources", None, features).unwrap();
        let both = completed(&all);
        assert_eq!((&both["filterTimeout"], &both["bindingTimeout"]), (&json!("10s"), &json!("10m0s")));
        let without = completed(&all.with(Feature::DRADeviceBindingConditions, false));
        assert_eq!((&without["filterTimeout"], without.get("bindingTimeout")), (&json!("10s"), None));
    }
}
