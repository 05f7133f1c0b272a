//! Checks that each pod's claims are allocated and reserved for it, on its node, and that no device
//! is in two claims.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

/// Objects as the API server lists them.
#[derive(Debug, Default)]
pub struct Devices {
    /// The claims.
    pub claims: Vec<Value>,
    /// The slices.
    pub slices: Vec<Value>,
    /// The pods with claims.
    pub pods: Vec<Value>,
}

/// A device by driver, pool and name.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Hash)]
struct Device {
    driver: String,
    pool: String,
    #[serde(rename = "device")]
    name: String,
}

impl Devices {
    /// What is wrong.
    pub fn violations(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        self.twice(&mut wrong);
        let claims: HashMap<_, _> = self
            .claims
            .iter()
            .map(|claim| ((text(claim, "namespace"), text(claim, "name")), claim))
            .collect();
        let nodes = self.nodes();
        for pod in &self.pods {
            for wanted in items(&pod["spec"]["resourceClaims"]) {
                let mut statuses = items(&pod["status"]["resourceClaimStatuses"]);
                let status = statuses.find(|status| status["name"] == wanted["name"]);
                let name = status.and_then(|status| status["resourceClaimName"].as_str());
                let claim = name.and_then(|name| claims.get(&(text(pod, "namespace"), name)));
                let problem = match claim {
                    Some(claim) => mismatch(claim, pod, &nodes),
                    None => Some("does not exist".to_owned()),
                };
                wrong.extend(problem.map(|problem| format!("the claim of {} {problem}", text(pod, "name"))));
            }
        }
        wrong
    }

    /// Devices that are in two claims.
    fn twice(&self, wrong: &mut Vec<String>) {
        let mut taken: HashMap<Device, &str> = HashMap::new();
        for claim in &self.claims {
            let name = text(claim, "name");
            for device in devices(claim) {
                if let Some(other) = taken.insert(device.clone(), name) {
                    wrong.push(format!("{device:?} is in {other} and in {name}"));
                }
            }
        }
    }

    /// The node of each device.
    fn nodes(&self) -> HashMap<Device, &str> {
        let mut nodes = HashMap::new();
        for slice in &self.slices {
            let spec = &slice["spec"];
            for device in items(&spec["devices"]) {
                let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let key = Device {
                    driver: part(&spec["driver"]),
                    pool: part(&spec["pool"]["name"]),
                    name: part(&device["name"]),
                };
                nodes.insert(key, spec["nodeName"].as_str().unwrap_or_default());
            }
        }
        nodes
    }
}

/// What is wrong with a pod's claim.
fn mismatch(claim: &Value, pod: &Value, nodes: &HashMap<Device, &str>) -> Option<String> {
    let (uid, node) = (&pod["metadata"]["uid"], pod["spec"]["nodeName"].as_str());
    if devices(claim).next().is_none() {
        return Some("has no device".to_owned());
    }
    if !items(&claim["status"]["reservedFor"]).any(|consumer| consumer["uid"] == *uid) {
        return Some("is not reserved for it".to_owned());
    }
    let mut elsewhere = devices(claim).filter(|device| nodes.get(device).copied() != node);
    elsewhere.next().map(|device| format!("has {device:?}, which is not on {node:?}"))
}

/// The devices of a claim.
fn devices(claim: &Value) -> impl Iterator<Item = Device> {
    let results = items(&claim["status"]["allocation"]["devices"]["results"]);
    results.filter_map(|result| Device::deserialize(result).ok())
}

fn items(list: &Value) -> std::slice::Iter<'_, Value> {
    list.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod per node, each with a claim and these devices of the pool of this node.
    fn devices_of(results: &[(&str, &str)]) -> Devices {
        let result = |(pool, device): &(&str, &str)| json!({"driver": "d", "pool": pool, "device": device});
        let claim = |(index, device)| {
            json!({
                "metadata": {"namespace": "ns", "name": format!("pod-{index}-claim")},
                "status": {
                    "allocation": {"devices": {"results": [result(device)]}},
                    "reservedFor": [{"uid": format!("uid-{index}")}],
                },
            })
        };
        let pod = |index| {
            json!({
                "metadata": {"namespace": "ns", "name": format!("pod-{index}"), "uid": format!("uid-{index}")},
                "spec": {"nodeName": format!("node-{index}"), "resourceClaims": [{"name": "claim"}]},
                "status": {"resourceClaimStatuses": [
                    {"name": "claim", "resourceClaimName": format!("pod-{index}-claim")},
                ]},
            })
        };
        let slice = |index| {
            let node = format!("node-{index}");
            json!({"spec": {
                "driver": "d", "pool": {"name": node}, "nodeName": node,
                "devices": [{"name": "a"}, {"name": "b"}],
            }})
        };
        Devices {
            claims: results.iter().enumerate().map(claim).collect(),
            slices: (0..results.len()).map(slice).collect(),
            pods: (0..results.len()).map(pod).collect(),
        }
    }

    #[test]
    fn claims_with_devices_of_their_own_are_right() {
        assert_eq!(devices_of(&[("node-0", "a"), ("node-1", "a")]).violations(), Vec::<String>::new());
    }

    #[test]
    fn device_in_two_claims_is_found() {
        let mut all = devices_of(&[("node-0", "a"), ("node-0", "a")]);
        all.pods[1]["spec"]["nodeName"] = json!("node-0");
        let found = all.violations();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with("is in pod-0-claim and in pod-1-claim"), "{found:?}");
    }

    #[test]
    fn device_of_another_node_is_found() {
        let found = devices_of(&[("node-0", "a"), ("node-0", "b")]).violations();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("which is not on Some(\"node-1\")"), "{found:?}");
    }

    #[test]
    fn claims_that_were_not_written_are_found() {
        let found = |change: fn(&mut Devices)| {
            let mut all = devices_of(&[("node-0", "a")]);
            change(&mut all);
            all.violations()
        };
        let absent = found(|all| all.claims.clear());
        assert_eq!(absent, ["the claim of pod-0 does not exist"]);
        let pending = found(|all| all.claims[0]["status"] = json!({}));
        assert_eq!(pending, ["the claim of pod-0 has no device"]);
        let unreserved = found(|all| all.claims[0]["status"]["reservedFor"] = json!([]));
        assert_eq!(unreserved, ["the claim of pod-0 is not reserved for it"]);
    }
}
