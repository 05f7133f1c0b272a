//! Configurations: profiles with supercargo's plugins, sometimes with arguments.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use supercargo_framework::Feature;
use supercargo_framework::features::{Stage, Version};
use supercargo_plugins::DEFAULT_PLUGINS;

use super::mix::{Kind, Mix};
use crate::oracle::extender;
use crate::oracle::subject::TURNSTILE;
use crate::support::Random;

/// Upstream's default plugins.
const UPSTREAM: [&str; 20] = [
    "SchedulingGates",
    "PrioritySort",
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "DefaultPreemption",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "DefaultBinder",
    "NodeDeclaredFeatures",
];

/// The names of profiles.
pub(super) const PROFILES: [&str; 2] = ["supercargo", "second"];

/// The configuration of a history: one profile or two. Plugins that supercargo lacks are disabled.
pub(super) fn random(random: &mut Random, mix: &Mix) -> Value {
    let count = if random.chance(20) { 2 } else { 1 };
    let profiles: Vec<Value> = PROFILES.iter().take(count).map(|name| profile(random, mix, name)).collect();
    let mut config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": profiles,
    });
    if mix.of(Kind::Extenders) > 0 {
        config["extenders"] = (0..random.between(1, 2)).map(|number| extender(random, number)).collect();
        // As upstream's side: with a filtering extender, the default leaves nodes out.
        config["percentageOfNodesToScore"] = json!(100);
    }
    config
}

/// An extender. It gets the names of nodes: what it says about whole nodes replaces them upstream,
/// which is one of the differences on purpose.
fn extender(random: &mut Random, number: usize) -> Value {
    let mut config = json!({
        "urlPrefix": extender::URL, "nodeCacheCapable": true, "weight": random.between(1, 5),
        "ignorable": random.chance(40),
    });
    for question in random.at_least_one(60, &["filter", "prioritize", "preempt"]) {
        config[format!("{question}Verb")] = json!(extender::verb(question, number));
    }
    // Two extenders may not name one resource.
    if number == 0 && random.chance(25) {
        let ignored = random.chance(50);
        config["managedResources"] = json!([{ "name": "example.com/gpu", "ignoredByScheduler": ignored }]);
    }
    config
}

fn profile(random: &mut Random, mix: &Mix, name: &str) -> Value {
    let is_here = |name: &str| DEFAULT_PLUGINS.iter().any(|plugin| plugin.name == name);
    let disabled: Vec<Value> =
        UPSTREAM.iter().filter(|name| !is_here(name)).map(|name| json!({ "name": name })).collect();
    let mut plugin_config = Vec::new();
    let mut with = |random: &mut Random, plugin: &str, args: fn(&mut Random) -> Value| {
        if is_here(plugin) && random.chance(mix.of(Kind::Arguments)) {
            plugin_config.push(json!({ "name": plugin, "args": args(random) }));
        }
    };
    with(random, "NodeResourcesFit", fit);
    // With a resource that devices provide, upstream's plugin panics.
    if mix.of(Kind::ExtendedResources) == 0 {
        with(random, "NodeResourcesBalancedAllocation", balanced);
    }
    with(random, "NodeAffinity", node_affinity);
    with(random, "PodTopologySpread", spread);
    with(random, "InterPodAffinity", pod_affinity);
    if mix.of(Kind::DeviceConditions) > 0 {
        // The default is a multiple of five seconds.
        plugin_config.push(json!({ "name": "DynamicResources", "args": dynamic_resources(random) }));
    }
    let enabled = if mix.of(Kind::Permit) > 0 { json!([{ "name": TURNSTILE }]) } else { json!([]) };
    json!({
        "schedulerName": name,
        "plugins": { "multiPoint": { "enabled": enabled, "disabled": disabled } },
        "pluginConfig": plugin_config,
    })
}

/// The feature gates that differ from the defaults, each with this probability.
pub(super) fn feature_gates(random: &mut Random, percent: u32) -> BTreeMap<String, bool> {
    let mut gates = BTreeMap::new();
    for feature in Feature::ALL {
        let gate = feature.gate(Version::CURRENT);
        // Without it, upstream checks once a second for completed backoffs, which is one of the
        // differences on purpose. The other gates are about groups.
        let keeps_default = matches!(
            feature,
            Feature::SchedulerPopFromBackoffQ
                | Feature::GenericWorkload
                | Feature::CompositePodGroup
                | Feature::DRAWorkloadResourceClaims
                | Feature::PodGroupPreemptionPolicy
                | Feature::TopologyAwareWorkloadScheduling
        );
        if gate.stage != Stage::Absent && !gate.locked && !keeps_default && random.chance(percent / 3) {
            gates.insert(feature.name().to_owned(), !gate.default);
        }
    }
    // A gate needs those that it extends.
    if gates.get(Feature::DRADeviceTaints.name()) == Some(&false) {
        gates.insert(Feature::DRADeviceTaintRules.name().to_owned(), false);
    }
    if gates.get(Feature::DRAConsumableCapacity.name()) == Some(&false) {
        gates.remove(Feature::DRAFractionalCapacityRange.name());
        // With both off, upstream's allocator visits pools in random order.
        gates.remove(Feature::DRADeviceBindingConditions.name());
        gates.remove(Feature::DRAResourceClaimDeviceStatus.name());
    }
    if gates.get(Feature::PodLevelResources.name()) == Some(&false) {
        gates.insert(Feature::InPlacePodLevelResourcesVerticalScaling.name().to_owned(), false);
    }
    gates
}

/// The feature gates of groups, in histories that have groups.
pub(super) fn group_gates(random: &mut Random, mix: &Mix) -> BTreeMap<String, bool> {
    let mut gates = BTreeMap::new();
    if mix.of(Kind::Groups) > 0 {
        let mut on = |feature: Feature| gates.insert(feature.name().to_owned(), true);
        on(Feature::GenericWorkload);
        // Without it, a group preempts in another way, which is one of the differences on purpose.
        on(Feature::SchedulerAsyncPreemption);
        if mix.of(Kind::GroupTopology) + mix.of(Kind::GroupTrees) > 0 {
            on(Feature::TopologyAwareWorkloadScheduling);
        }
        if mix.of(Kind::GroupTrees) > 0 {
            on(Feature::CompositePodGroup);
        }
        if random.chance(30) {
            on(Feature::PodGroupPreemptionPolicy);
        }
    }
    gates
}

fn resources(random: &mut Random) -> Value {
    let names = ["cpu", "memory", "example.com/gpu", "ephemeral-storage"];
    let chosen = random.at_least_one(60, &names);
    chosen.into_iter().map(|name| json!({ "name": name, "weight": random.between(1, 5) })).collect()
}

fn fit(random: &mut Random) -> Value {
    let kind = *random.pick(&["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]);
    let mut strategy = json!({ "type": kind, "resources": resources(random) });
    if kind == "RequestedToCapacityRatio" {
        strategy["requestedToCapacityRatio"] = json!({ "shape": [
            { "utilization": 0, "score": random.between(0, 10) },
            { "utilization": random.between(1, 99), "score": random.between(0, 10) },
            { "utilization": 100, "score": random.between(0, 10) },
        ] });
    }
    let mut args = json!({ "scoringStrategy": strategy });
    if random.chance(30) {
        args["ignoredResources"] = json!(["example.com/none"]);
    }
    if random.chance(20) {
        args["ignoredResourceGroups"] = json!(["example.com"]);
    }
    args
}

fn balanced(random: &mut Random) -> Value {
    let names = ["cpu", "memory", "example.com/gpu", "ephemeral-storage"];
    let chosen = random.at_least_one(60, &names);
    let resources: Vec<Value> = chosen.into_iter().map(|name| json!({ "name": name, "weight": 1 })).collect();
    json!({ "resources": resources })
}

fn node_affinity(random: &mut Random) -> Value {
    let disk = *random.pick(&["ssd", "hdd"]);
    let term = json!({ "matchExpressions": [{ "key": "disk", "operator": "NotIn", "values": [disk] }] });
    let mut added = json!({});
    if random.chance(60) {
        added["requiredDuringSchedulingIgnoredDuringExecution"] = json!({ "nodeSelectorTerms": [term] });
    }
    if random.chance(60) {
        added["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!([{ "weight": 20, "preference": term }]);
    }
    json!({ "addedAffinity": added })
}

fn spread(random: &mut Random) -> Value {
    if random.chance(30) {
        return json!({ "defaultingType": "List" });
    }
    let key = *random.pick(&["topology.kubernetes.io/zone", "kubernetes.io/hostname"]);
    let action = *random.pick(&["DoNotSchedule", "ScheduleAnyway"]);
    json!({
        "defaultingType": "List",
        "defaultConstraints": [{
            "maxSkew": random.between(1, 3), "topologyKey": key, "whenUnsatisfiable": action,
        }],
    })
}

/// Not a multiple of five seconds: at such a time, upstream looks at the conditions of devices or
/// gives up.
fn dynamic_resources(random: &mut Random) -> Value {
    json!({ "bindingTimeout": format!("{}s", random.pick(&[7, 12, 33])) })
}

fn pod_affinity(random: &mut Random) -> Value {
    json!({
        "hardPodAffinityWeight": *random.pick(&[0, 1, 50, 100]),
        "ignorePreferredTermsOfExistingPods": random.chance(50),
    })
}
