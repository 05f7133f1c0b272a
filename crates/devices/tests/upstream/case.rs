//! A question to both allocators: the objects of a small cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use supercargo_devices::{AllocatedState, Budget, Cluster, Demand, Features, Inventory, Matches};
use supercargo_framework::hash_seed::HashSeed;
use supercargo_framework::objects::*;
use supercargo_framework::{NodeRecord, TaintEffect};

/// The steps after which a case is given up: both searches are exponential.
const MAX_STEPS: u64 = 5_000;

#[derive(Clone, Debug, Default)]
pub struct Case {
    pub features: Features,
    pub slices: Vec<(String, ResourceSlice)>,
    pub classes: Vec<(String, DeviceClass)>,
    pub rules: Vec<(String, DeviceTaintRule)>,
    pub allocated: Vec<AllocationResult>,
    pub claims: Vec<(String, ResourceClaim)>,
    pub nodes: Vec<(String, BTreeMap<String, String>)>,
}

/// What an allocator says about a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Outcome {
    /// The API's allocations; none and no error if the claims do not fit.
    pub results: Vec<Value>,
    pub error: String,
    pub node_only: bool,
    pub steps: u64,
    pub panic: String,
}

pub fn object(key: &str, body: Body) -> Arc<Object> {
    Arc::new(Object {
        resource: "".into(),
        key: key.into(),
        uid: key.into(),
        resource_version: "1".into(),
        labels: Default::default(),
        annotations: Default::default(),
        terminating: false,
        controller: None,
        node_name: None,
        body,
    })
}

/// The state that a case is asked in, which may be older than the case.
pub struct World {
    pub inventory: Inventory,
    pub allocated: AllocatedState,
    pub matches: Matches,
}

impl World {
    pub fn new() -> Self {
        let seed = HashSeed::new(7);
        let (inventory, matches) = (Inventory::new(seed.clone()), Matches::new(&seed));
        Self { inventory, allocated: AllocatedState::new(seed), matches }
    }

    pub fn insert(&mut self, slice: &(String, ResourceSlice)) {
        self.inventory.insert(&object(&slice.0, Body::ResourceSlice(slice.1.clone())));
    }

    pub fn insert_rule(&mut self, rule: &(String, DeviceTaintRule)) -> bool {
        self.inventory.insert_rule(&object(&rule.0, Body::DeviceTaintRule(rule.1.clone())))
    }
}

impl Case {
    /// The state of this case alone. Rules come before and after slices.
    pub fn world(&self) -> World {
        let mut world = World::new();
        let (early, late) = self.rules.split_at(self.rules.len() / 2);
        for rule in early {
            world.insert_rule(rule);
        }
        self.slices.iter().for_each(|slice| world.insert(slice));
        for rule in late {
            world.insert_rule(rule);
        }
        world.allocated.add(&self.allocated, self.features.consumable_capacity);
        world
    }

    /// What this crate says about each node; nothing if a search takes too long.
    pub fn ask_here(&self) -> Option<Vec<Outcome>> {
        self.ask(&mut self.world())
    }

    /// As [`Self::ask_here`], in a given state.
    pub fn ask(&self, world: &mut World) -> Option<Vec<Outcome>> {
        self.ask_within(world, Budget::unlimited)
    }

    fn claim_objects(&self) -> Vec<Arc<Object>> {
        let object = |(name, claim): &(_, ResourceClaim)| {
            object(&format!("default/{name}"), Body::ResourceClaim(claim.clone()))
        };
        self.claims.iter().map(object).collect()
    }

    /// What the claims ask for, if every class has every device.
    pub fn demand(&self, matches: &mut Matches) -> Demand {
        let class = object("c", Body::DeviceClass(DeviceClass::default()));
        Demand::new(self.features, &self.claim_objects(), |_| Some(class.clone()), matches)
    }

    /// As [`Self::ask`], with a budget for each node.
    pub fn ask_within(&self, world: &mut World, budget: fn() -> Budget) -> Option<Vec<Outcome>> {
        let World { inventory, allocated, matches } = world;
        let claims = self.claim_objects();
        let classes: BTreeMap<_, _> = self
            .classes
            .iter()
            .map(|(name, class)| (&**name, object(name, Body::DeviceClass(class.clone()))))
            .collect();
        let demand = Demand::new(self.features, &claims, |name| classes.get(name).cloned(), matches);
        let cluster = Cluster { inventory, allocated };
        let mut outcomes = Vec::new();
        for (name, labels) in &self.nodes {
            let labels = labels.iter().map(|(name, value)| (&**name, &**value)).collect();
            let node = NodeRecord { name: (**name).into(), labels, ..NodeRecord::default() };
            let mut steps = 0;
            let answer = demand.allocate(cluster, &node, matches, &mut budget(), &mut || {
                steps += 1;
                (steps > MAX_STEPS).then(|| "too long".into())
            });
            if steps > MAX_STEPS {
                return None;
            }
            let mut outcome = Outcome { steps, ..Outcome::default() };
            match answer {
                Ok(Some(found)) => {
                    let claims = found.into_claims(&demand, name, &mut || "share".into());
                    outcome.results = claims.iter().map(|claim| Value::clone(&claim.raw)).collect();
                    for (claim, allocation) in self.claims.iter().zip(&claims) {
                        check(allocation, claim, name);
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    outcome.error = error.to_string();
                    outcome.node_only = error.is_of_node();
                }
            }
            outcomes.push(outcome);
        }
        Some(outcomes)
    }

    /// The question in the words of the API.
    pub fn question(&self) -> String {
        let f = self.features;
        json!({ "allocate": {
            "features": {
                "adminAccess": f.admin_access,
                "consumableCapacity": f.consumable_capacity,
                "deviceBindingAndStatus": f.binding_conditions,
                "deviceTaints": f.device_taints,
                "fractionalCapacityRange": f.fractional_capacity_range,
                "partitionableDevices": f.partitionable_devices,
                "prioritizedList": f.prioritized_list,
            },
            "slices": self.slices.iter().map(|(name, slice)| slice_json(name, slice)).collect::<Vec<_>>(),
            "classes": self.classes.iter().map(|(name, class)| json!({
                "metadata": { "name": name },
                "spec": {
                    "selectors": class.selectors.iter().map(selector_json).collect::<Vec<_>>(),
                    "config": class.config.iter().map(|raw| Value::clone(raw)).collect::<Vec<_>>(),
                },
            })).collect::<Vec<_>>(),
            "taintRules": self.rules.iter().map(|(name, rule)| rule_json(name, rule)).collect::<Vec<_>>(),
            "allocated": [{
                "metadata": { "name": "allocated", "namespace": "default" },
                "status": { "allocation": { "devices": {
                    "results": self.allocated.iter().map(result_json).collect::<Vec<_>>(),
                } } },
            }],
            "claims": self.claims.iter().map(|(name, claim)| claim_json(name, claim)).collect::<Vec<_>>(),
            "nodes": self.nodes.iter().map(|(name, labels)| {
                json!({ "metadata": { "name": name, "labels": labels } })
            }).collect::<Vec<_>>(),
        } })
        .to_string()
    }
}

/// The typed result says the same as the API's.
fn check(allocation: &ClaimAllocation, claim: &(String, ResourceClaim), node: &str) {
    let raw = allocation.raw["devices"]["results"].as_array().map_or(&[][..], |list| list);
    assert_eq!(raw.len(), allocation.results.len(), "{claim:?}");
    for (raw, result) in raw.iter().zip(&allocation.results) {
        let DeviceId { driver, pool, device } = &result.device;
        let typed = [&**driver, &**pool, &**device, &*result.request];
        assert_eq!([&raw["driver"], &raw["pool"], &raw["device"], &raw["request"]], typed);
    }
    let selector = allocation.node_selector.as_ref().map(|selector| &*selector.raw);
    assert_eq!(selector, allocation.raw.get("nodeSelector"));
    assert!(allocation.node_selector.iter().all(|selector| selector.terms.len() == 1), "{node}");
}

/// Share identities are random upstream.
pub fn normalize(outcome: &mut Outcome) {
    for result in &mut outcome.results {
        let devices = result.pointer_mut("/devices/results").and_then(Value::as_array_mut);
        for device in devices.into_iter().flatten() {
            if let Some(id) = device.get_mut("shareID") {
                *id = json!("share");
            }
        }
    }
}

fn insert(object: &mut Map<String, Value>, name: &str, value: Value) {
    object.insert(name.into(), value);
}

fn place_json(place: &DevicePlace, to: &mut Map<String, Value>) {
    match place {
        DevicePlace::Unset => {}
        DevicePlace::Node(name) => insert(to, "nodeName", json!(&**name)),
        DevicePlace::Selector(selector) => insert(to, "nodeSelector", Value::clone(&selector.raw)),
        DevicePlace::AllNodes => insert(to, "allNodes", json!(true)),
        DevicePlace::PerDevice => insert(to, "perDeviceNodeSelection", json!(true)),
    }
}

fn quantities_json(quantities: &Quantities, wrap: bool) -> Value {
    let value = |text: &Arc<str>| if wrap { json!({ "value": &**text }) } else { json!(&**text) };
    quantities.iter().map(|(name, text)| (name.to_string(), value(text))).collect::<Map<_, _>>().into()
}

fn slice_json(name: &str, slice: &ResourceSlice) -> Value {
    let mut spec = Map::new();
    insert(&mut spec, "driver", json!(&*slice.driver));
    let pool = json!({
        "name": &*slice.pool, "generation": slice.generation, "resourceSliceCount": slice.slice_count,
    });
    insert(&mut spec, "pool", pool);
    place_json(&slice.place, &mut spec);
    insert(&mut spec, "devices", slice.devices.iter().map(device_json).collect());
    let sets = slice
        .shared_counters
        .iter()
        .map(|set| json!({ "name": &*set.name, "counters": quantities_json(&set.counters, true) }));
    insert(&mut spec, "sharedCounters", sets.collect());
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn texts(list: &[Arc<str>]) -> Value {
    list.iter().map(|text| json!(&**text)).collect()
}

fn device_json(device: &Device) -> Value {
    let mut json = Map::new();
    insert(&mut json, "name", json!(&*device.name));
    let attributes = device.attributes.iter().map(|(name, value)| {
        let value = match value {
            DeviceAttribute::Int(value) => json!({ "int": value }),
            DeviceAttribute::Bool(value) => json!({ "bool": value }),
            DeviceAttribute::String(text) => json!({ "string": &**text }),
            DeviceAttribute::Version(text) => json!({ "version": &**text }),
            DeviceAttribute::Unsupported => match &**name {
                "common-list" => json!({ "strings": ["one"] }),
                "own-list" => json!({ "strings": [&*device.name] }),
                _ => json!({}),
            },
        };
        (name.to_string(), value)
    });
    insert(&mut json, "attributes", attributes.collect::<Map<_, _>>().into());
    let capacity = device.capacity.iter().map(|(name, capacity)| {
        let mut value = json!({ "value": &*capacity.value });
        if let Some(policy) = &capacity.policy {
            value["requestPolicy"] = policy_json(policy);
        }
        (name.to_string(), value)
    });
    insert(&mut json, "capacity", capacity.collect::<Map<_, _>>().into());
    let consumption = device.consumes_counters.iter().map(|used| {
        let groups: &[&str] = if used.has_compatibility_groups { &["group"] } else { &[] };
        json!({
            "counterSet": &*used.counter_set,
            "counters": quantities_json(&used.counters, true),
            "compatibilityGroups": groups,
        })
    });
    insert(&mut json, "consumesCounters", consumption.collect());
    place_json(&device.place, &mut json);
    insert(&mut json, "taints", device.taints.iter().map(taint_json).collect());
    insert(&mut json, "bindsToNode", json!(device.binds_to_node));
    if let Some(conditions) = &device.binding_conditions {
        insert(&mut json, "bindingConditions", texts(conditions));
    }
    insert(&mut json, "bindingFailureConditions", texts(&device.binding_failure_conditions));
    insert(&mut json, "allowMultipleAllocations", json!(device.allows_multiple_allocations));
    json.into()
}

fn policy_json(policy: &CapacityPolicy) -> Value {
    let mut json = Map::new();
    if let Some(default) = &policy.default {
        insert(&mut json, "default", json!(&**default));
    }
    if !policy.valid_values.is_empty() {
        insert(&mut json, "validValues", texts(&policy.valid_values));
    }
    if let Some(range) = &policy.valid_range {
        let mut to = Map::new();
        for (name, value) in [("min", &range.min), ("max", &range.max), ("step", &range.step)] {
            if let Some(value) = value {
                insert(&mut to, name, json!(&**value));
            }
        }
        insert(&mut json, "validRange", to.into());
    }
    json.into()
}

fn effect(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::NoExecute => "NoExecute",
        _ => "None",
    }
}

fn taint_json(taint: &DeviceTaint) -> Value {
    json!({ "key": &*taint.key, "value": &*taint.value, "effect": effect(taint.effect) })
}

fn rule_json(name: &str, rule: &DeviceTaintRule) -> Value {
    let mut spec = Map::new();
    if let Some(selector) = &rule.selector {
        let mut to = Map::new();
        for (name, value) in
            [("driver", &selector.driver), ("pool", &selector.pool), ("device", &selector.device)]
        {
            if let Some(value) = value {
                insert(&mut to, name, json!(&**value));
            }
        }
        insert(&mut spec, "deviceSelector", to.into());
    }
    insert(&mut spec, "taint", taint_json(&rule.taint));
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn selector_json(selector: &DeviceSelector) -> Value {
    selector.as_ref().map_or(json!({}), |text| json!({ "cel": { "expression": &**text } }))
}

pub fn toleration_json(toleration: &DeviceToleration) -> Value {
    let mut json = Map::new();
    if !toleration.key.is_empty() {
        insert(&mut json, "key", json!(&*toleration.key));
    }
    let operator = match toleration.operator {
        DeviceTolerationOperator::Equal => "Equal",
        DeviceTolerationOperator::Exists => "Exists",
        DeviceTolerationOperator::Unknown => "Unknown",
    };
    insert(&mut json, "operator", json!(operator));
    if !toleration.value.is_empty() {
        insert(&mut json, "value", json!(&*toleration.value));
    }
    if let Some(of) = toleration.effect {
        insert(&mut json, "effect", json!(effect(of)));
    }
    json.into()
}

fn request_json(request: &DeviceRequest, is_sub: bool) -> Value {
    let mut json = Map::new();
    if is_sub {
        insert(&mut json, "name", json!(&*request.name));
    }
    insert(&mut json, "deviceClassName", json!(&*request.class));
    insert(&mut json, "selectors", request.selectors.iter().map(selector_json).collect());
    let (mode, count) = match &request.count {
        DeviceCount::Exact(count) => ("ExactCount", *count),
        DeviceCount::All => ("All", 0),
        DeviceCount::Unknown(mode) => (&**mode, 0),
    };
    insert(&mut json, "allocationMode", json!(mode));
    insert(&mut json, "count", json!(count));
    if let Some(admin) = request.admin_access {
        insert(&mut json, "adminAccess", json!(admin));
    }
    insert(&mut json, "tolerations", request.tolerations.iter().map(|it| Value::clone(&it.raw)).collect());
    if let Some(capacity) = &request.capacity {
        insert(&mut json, "capacity", json!({ "requests": quantities_json(capacity, false) }));
    }
    if request.has_derived_attributes {
        insert(&mut json, "derivedAttributes", json!([{ "name": "x" }]));
    }
    json.into()
}

fn claim_json(name: &str, claim: &ResourceClaim) -> Value {
    let requests = claim.requests.iter().map(|request| match &request.choice {
        RequestChoice::Exactly(exactly) => {
            json!({ "name": &*request.name, "exactly": request_json(exactly, false) })
        }
        RequestChoice::FirstAvailable(list) => json!({
            "name": &*request.name,
            "firstAvailable": list.iter().map(|sub| request_json(sub, true)).collect::<Vec<_>>(),
        }),
        RequestChoice::Unknown => json!({ "name": &*request.name }),
    });
    let constraints = claim.constraints.iter().map(|constraint| {
        let mut json = json!({ "requests": texts(&constraint.requests) });
        match &constraint.rule {
            ConstraintRule::Match(name) => json["matchAttribute"] = json!(&**name),
            ConstraintRule::Distinct(name) => json["distinctAttribute"] = json!(&**name),
            ConstraintRule::Unknown => {}
        }
        json
    });
    let config = claim.config.iter().map(|config| {
        let mut json = Value::clone(&config.raw);
        json["requests"] = texts(&config.requests);
        json
    });
    json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "devices": {
            "requests": requests.collect::<Vec<_>>(),
            "constraints": constraints.collect::<Vec<_>>(),
            "config": config.collect::<Vec<_>>(),
        } },
    })
}

fn result_json(result: &AllocationResult) -> Value {
    let DeviceId { driver, pool, device } = &result.device;
    let mut json = json!({
        "request": "r", "driver": &**driver, "pool": &**pool, "device": &**device,
        "adminAccess": result.admin_access,
    });
    if let Some(id) = &result.share_id {
        json["shareID"] = json!(&**id);
        json["consumedCapacity"] = quantities_json(&result.consumed, false);
    }
    json
}
