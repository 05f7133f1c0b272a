//! From chosen devices to the allocation of the API.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use supercargo_framework::affinity::{METADATA_NAME, NodeSelectorTerm, RawRequirement};
use supercargo_framework::objects::{
    AllocationResult, ClaimAllocation, DeviceId, DeviceNodeSelector, DevicePlace,
};

use crate::demand::Demand;
use crate::search::{Chosen, Solution};

/// The devices of all claims of a [`Demand`] on one node.
#[derive(Clone, Debug)]
pub struct Allocation(pub(crate) Solution);

impl Allocation {
    /// The alternative that a request got: its place in `firstAvailable`. 0 for a request without
    /// alternatives.
    pub fn selected(&self, demand: &Demand, claim: usize, request: usize) -> Option<usize> {
        let selected = *self.0.selected.get(claim)?.get(request)?;
        Some(selected - demand.claims.get(claim)?.requests.get(request)?.alternatives.start)
    }

    /// The devices of a claim, in the order of the results.
    pub fn devices(&self, claim: usize) -> impl Iterator<Item = DeviceId> {
        self.0.results.get(claim).into_iter().flatten().map(device_id)
    }

    /// The allocations to write, one per claim, without a time. `share_id` makes the identity of a
    /// share of a device, a UUID.
    pub fn into_claims(
        &self,
        demand: &Demand,
        node: &str,
        share_id: &mut dyn FnMut() -> Arc<str>,
    ) -> Vec<ClaimAllocation> {
        let claims = 0..self.0.results.len();
        claims.map(|claim| self.claim(demand, claim, node, share_id)).collect()
    }

    fn claim(
        &self,
        demand: &Demand,
        claim: usize,
        node: &str,
        share_id: &mut dyn FnMut() -> Arc<str>,
    ) -> ClaimAllocation {
        let chosen = &self.0.results[claim];
        let results: Box<[AllocationResult]> =
            chosen.iter().map(|chosen| result(demand, chosen, share_id)).collect();
        let raw: Vec<Value> =
            chosen.iter().zip(&results).map(|(chosen, result)| raw(demand, chosen, result)).collect();
        let mut devices = Map::new();
        insert_list(&mut devices, "results", raw);
        insert_list(&mut devices, "config", self.config(demand, claim));
        let mut allocation = json!({ "devices": devices });
        let node_selector = node_selector(chosen, node, demand.features.is_stable());
        if let Some(selector) = &node_selector {
            allocation["nodeSelector"] = Value::clone(&selector.raw);
        }
        ClaimAllocation { results, node_selector, allocated_at: None, raw: Arc::new(allocation) }
    }

    /// The configurations of the classes, then those of the claim.
    fn config(&self, demand: &Demand, claim: usize) -> Vec<Value> {
        let spec = demand.claims[claim].spec();
        let selected: Vec<(&str, &str, usize)> = self.0.selected[claim]
            .iter()
            .zip(&demand.claims[claim].requests)
            .map(|(selected, request)| {
                (&*request.name, &*demand.alternatives[*selected].full_name, *selected)
            })
            .collect();
        let mut config: Vec<(Vec<&str>, &str, &Value)> = Vec::new();
        let mut classes: Vec<(&str, std::ops::Range<usize>)> = Vec::new();
        for (_, full_name, selected) in &selected {
            let alternative = &demand.alternatives[*selected];
            let (Some(object), Some(class)) = (&alternative.class, alternative.class()) else { continue };
            if let Some((_, range)) = classes.iter().find(|(name, _)| **name == *object.key) {
                config[range.clone()].iter_mut().for_each(|(requests, ..)| requests.push(full_name));
                continue;
            }
            let start = config.len();
            config.extend(class.config.iter().map(|raw| (vec![*full_name], "FromClass", &**raw)));
            classes.push((&object.key, start..config.len()));
        }
        let names = |requests: &[&str], name: &str| requests.contains(&name);
        for own in &spec.config {
            let requests: Vec<&str> = own.requests.iter().map(|name| &**name).collect();
            let applies = |(name, full_name, _): &(&str, &str, usize)| {
                names(&requests, name) || (name != full_name && names(&requests, full_name))
            };
            if requests.is_empty() || selected.iter().any(applies) {
                config.push((requests, "FromClaim", &own.raw));
            }
        }
        let entry = |(requests, source, raw): (Vec<&str>, &str, &Value)| {
            let is_for_all = selected
                .iter()
                .all(|(name, full_name, _)| names(&requests, name) || names(&requests, full_name));
            let mut entry = Map::new();
            entry.insert("source".into(), source.into());
            if !is_for_all && !requests.is_empty() {
                entry.insert("requests".into(), json!(requests));
            }
            entry.extend(
                raw.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())),
            );
            Value::Object(entry)
        };
        config.into_iter().map(entry).collect()
    }
}

fn device_id(chosen: &Chosen) -> DeviceId {
    let spec = chosen.slice.spec();
    DeviceId {
        driver: Arc::clone(&spec.driver),
        pool: Arc::clone(&spec.pool),
        device: Arc::clone(&spec.devices[chosen.place].name),
    }
}

fn result(demand: &Demand, chosen: &Chosen, share_id: &mut dyn FnMut() -> Arc<str>) -> AllocationResult {
    let alternative = &demand.alternatives[chosen.alternative];
    let device = &chosen.slice.spec().devices[chosen.place];
    let capacities = chosen.slice.capacities(chosen.place);
    let consumed = capacities.iter().zip(&chosen.taken);
    let has_conditions = demand.features.binding_conditions;
    AllocationResult {
        request: Arc::clone(&alternative.full_name),
        device: device_id(chosen),
        admin_access: alternative.is_admin,
        share_id: chosen.is_shared.then(share_id),
        consumed: consumed.map(|(it, taken)| (Arc::clone(&it.name), taken.canonical().into())).collect(),
        binding_conditions: device.binding_conditions.clone().filter(|_| has_conditions).unwrap_or_default(),
        binding_failure_conditions: if has_conditions {
            device.binding_failure_conditions.clone()
        } else {
            Box::default()
        },
        skips_node_operations: false,
    }
}

fn raw(demand: &Demand, chosen: &Chosen, result: &AllocationResult) -> Value {
    let mut raw = Map::new();
    let mut insert = |name: &str, value: Value| raw.insert(name.into(), value);
    insert("request", (*result.request).into());
    insert("driver", (*result.device.driver).into());
    insert("pool", (*result.device.pool).into());
    insert("device", (*result.device.device).into());
    if result.admin_access {
        insert("adminAccess", true.into());
    }
    if let Some(id) = &result.share_id {
        insert("shareID", (**id).into());
    }
    if !result.consumed.is_empty() {
        let consumed: Map<String, Value> =
            result.consumed.iter().map(|(name, text)| (name.to_string(), (**text).into())).collect();
        insert("consumedCapacity", consumed.into());
    }
    let tolerations = &demand.request(&demand.alternatives[chosen.alternative]).tolerations;
    insert_list(&mut raw, "tolerations", tolerations.iter().map(|it| Value::clone(&it.raw)).collect());
    let texts = |list: &[Arc<str>]| list.iter().map(|text| Value::from(&**text)).collect();
    insert_list(&mut raw, "bindingConditions", texts(&result.binding_conditions));
    insert_list(&mut raw, "bindingFailureConditions", texts(&result.binding_failure_conditions));
    Value::Object(raw)
}

/// The API leaves empty lists out.
fn insert_list(object: &mut Map<String, Value>, name: &str, list: Vec<Value>) {
    if !list.is_empty() {
        object.insert(name.into(), list.into());
    }
}

fn place(chosen: &Chosen) -> &DevicePlace {
    let spec = chosen.slice.spec();
    match &spec.place {
        DevicePlace::PerDevice => &spec.devices[chosen.place].place,
        place => place,
    }
}

/// The number of terms of a selector that upstream cannot merge: it wants one term.
pub(crate) fn unsupported_terms(chosen: &[Chosen], is_stable: bool) -> Option<usize> {
    for chosen in chosen {
        match place(chosen) {
            _ if is_of_one_node(chosen, is_stable) => return None,
            DevicePlace::Selector(selector) if selector.terms.len() > 1 => return Some(selector.terms.len()),
            _ => {}
        }
    }
    None
}

fn is_of_one_node(chosen: &Chosen, is_stable: bool) -> bool {
    let device = &chosen.slice.spec().devices[chosen.place];
    matches!(place(chosen), DevicePlace::Node(_)) || (device.binds_to_node && !is_stable)
}

/// The nodes that can use all chosen devices; nothing if all can.
fn node_selector(chosen: &[Chosen], node: &str, is_stable: bool) -> Option<DeviceNodeSelector> {
    let mut fields: Vec<Value> = Vec::new();
    let mut expressions: Vec<Value> = Vec::new();
    for chosen in chosen {
        if is_of_one_node(chosen, is_stable) {
            fields = vec![json!({ "key": METADATA_NAME, "operator": "In", "values": [node] })];
            expressions.clear();
            break;
        }
        if let DevicePlace::Selector(selector) = place(chosen) {
            let term = &selector.raw["nodeSelectorTerms"][0];
            merge(&term["matchFields"], &mut fields);
            merge(&term["matchExpressions"], &mut expressions);
        }
    }
    if fields.is_empty() && expressions.is_empty() {
        return None;
    }
    let term = NodeSelectorTerm::parse(requirements(&expressions), requirements(&fields));
    let mut raw = Map::new();
    insert_list(&mut raw, "matchExpressions", expressions);
    insert_list(&mut raw, "matchFields", fields);
    let raw = Arc::new(json!({ "nodeSelectorTerms": [raw] }));
    Some(DeviceNodeSelector { terms: [term].into(), raw })
}

/// Adds the requirements that are not there yet. The order of values, and how often one is there,
/// do not matter.
fn merge(from: &Value, to: &mut Vec<Value>) {
    for requirement in from.as_array().into_iter().flatten() {
        let values = |requirement: &Value| {
            let list = requirement["values"].as_array().into_iter().flatten();
            list.filter_map(|value| value.as_str().map(str::to_owned))
                .collect::<std::collections::BTreeSet<_>>()
        };
        let is_same = |known: &Value| {
            known["key"] == requirement["key"]
                && known["operator"] == requirement["operator"]
                && values(known) == values(requirement)
        };
        if !to.iter().any(is_same) {
            to.push(requirement.clone());
        }
    }
}

fn requirements(raw: &[Value]) -> Vec<RawRequirement> {
    let text = |value: &Value| Arc::from(value.as_str().unwrap_or_default());
    raw.iter()
        .map(|raw| RawRequirement {
            key: text(&raw["key"]),
            operator: text(&raw["operator"]),
            values: raw["values"].as_array().into_iter().flatten().map(text).collect(),
        })
        .collect()
}
