//! Claims of giants, with their volumes.

use serde_json::{Value, json};

use super::{HOSTNAME, cluster_object, is_in, key, lacks, list, namespaced, node_term, one, with};
use crate::objects::annotations;

/// A class with volumes that exist.
const STATIC: &str = "static";
/// A class with volumes that are provisioned.
const DYNAMIC: &str = "dynamic";
/// Their driver.
const DRIVER: &str = "csi.example.com";
/// The volumes of a cluster with many.
const MANY_VOLUMES: usize = 5000;
/// The GiB of the largest volume.
const LARGEST: usize = 1 << 10;
/// Values of a label of volumes.
const PARITY: [&str; 2] = ["even", "odd"];

/// Claims with a volume each. No node can access all of them: the last one is in another zone.
pub(super) fn bound(claims: usize) -> Vec<Value> {
    let each = (0..claims).flat_map(|i| [bound_claim(&key(i)), volume(&key(i), zone_of(i, claims))]);
    each.collect()
}

/// Claims without a volume, and volumes for them. No node can access all of them.
pub(super) fn delayed(claims: usize) -> Vec<Value> {
    let claims = (0..claims).map(|i| claim(&key(i), STATIC));
    static_volumes(claims.len()).chain(claims).collect()
}

/// A claim without a volume, and volumes for it.
pub(super) fn one_delayed(volumes: usize) -> Vec<Value> {
    static_volumes(volumes).chain([claim(&key(0), STATIC)]).collect()
}

fn static_volumes(wanted: usize) -> impl Iterator<Item = Value> {
    let volumes = wanted.min(MANY_VOLUMES);
    let volumes = (0..volumes).map(move |i| volume(&key(i), zone_of(i, volumes)));
    [static_class()].into_iter().chain(volumes)
}

/// Claims whose volumes can be provisioned everywhere.
pub(super) fn provisioned(claims: usize) -> Vec<Value> {
    let claims = (0..claims).map(|i| claim(&key(i), DYNAMIC));
    [dynamic_class()].into_iter().chain(claims).collect()
}

/// Claims of several sizes that select alternate volumes. There is storage for all but the last,
/// and the only volume for that goes to a smaller claim.
pub(super) fn mixed(claims: usize) -> Vec<Value> {
    let disk = |i: usize| json!({ "disk": PARITY[i % 2] });
    let volume = |i| {
        let size = if i == 1 { LARGEST } else { 1 + i % 6 };
        let volume = volume(&key(i), if i % 4 < 2 { "b" } else { "c" });
        dynamic_volume(volume, size, disk(i))
    };
    let claim = |i| sized_claim(i, claims, json!({ "matchLabels": disk(i) }));
    let volumes = (claims / 2).min(MANY_VOLUMES);
    storage_for_all_but_the_last().chain((0..volumes).map(volume)).chain((0..claims).map(claim)).collect()
}

/// Claims with a selector each, of which half suit no volume. Every second volume is in a zone, the
/// others are on one node each. There is storage for all claims but the last one, and the volumes
/// for that go to smaller ones.
pub(super) fn selecting(claims: usize) -> Vec<Value> {
    let volume = |i: usize| {
        let size = if i < 12 { LARGEST } else { 1 + i / 2 % 6 };
        let volume = if i.is_multiple_of(2) {
            volume(&key(i), ["a", "b", "c"][i / 2 % 3])
        } else {
            local_volume(&format!("local-{}", key(i)), i / 2)
        };
        dynamic_volume(volume, size, json!({ "disk": PARITY[i / 4 % 2] }))
    };
    let claim = |i| {
        let disk = ["none", "none", "even", "odd"][i % 4];
        let selector = json!({ "matchLabels": { "disk": disk }, "matchExpressions": [lacks(&key(i))] });
        sized_claim(i, claims, selector)
    };
    let volumes = (claims / 2).min(MANY_VOLUMES);
    storage_for_all_but_the_last().chain((0..volumes).map(volume)).chain((0..claims).map(claim)).collect()
}

/// A claim whose volume is on many nodes, none of which exists.
pub(super) fn with_terms(terms: usize) -> Vec<Value> {
    let terms = list(terms, |i| node_term(is_in(HOSTNAME, json!([key(i)]))));
    vec![bound_claim(&key(0)), volume_where(&key(0), terms)]
}

/// A claim with many requirements, and volumes that all meet them. No node can access any.
pub(super) fn with_requirements(requirements: usize) -> Vec<Value> {
    let selector = json!({ "matchExpressions": list(requirements, |i| lacks(&key(i))) });
    let mut claim = claim(&key(0), STATIC);
    claim["spec"]["selector"] = selector;
    let volumes = (0..MANY_VOLUMES.min(requirements)).map(|i| local_volume(&key(i), usize::MAX));
    [static_class(), claim].into_iter().chain(volumes).collect()
}

/// A claim of a class with many topologies, none of which a node has.
pub(super) fn with_topologies(topologies: usize) -> Vec<Value> {
    let topology = |i| json!({ "matchLabelExpressions": [{ "key": HOSTNAME, "values": [key(i)] }] });
    let class = with(dynamic_class(), "allowedTopologies", list(topologies, topology));
    vec![class, claim(&key(0), DYNAMIC)]
}

/// A claim of a class whose only storage is for nodes with many requirements, and too small.
pub(super) fn with_storage(requirements: usize) -> Vec<Value> {
    let topology = json!({ "matchExpressions": list(requirements, |i| lacks(&key(i))) });
    vec![dynamic_class(), driver(), storage("a", topology, "1"), claim(&key(0), DYNAMIC)]
}

/// A claim whose volume belongs to the last of a node's many drivers.
pub(super) fn with_drivers(drivers: usize) -> Vec<Value> {
    let driver = |i| json!({ "name": key(i), "nodeID": "n", "allocatable": { "count": 25 } });
    let node = cluster_object("storage.k8s.io/v1", "CSINode", "node-0");
    let node = with(node, "spec", json!({ "drivers": list(drivers, driver) }));
    let mut volume = volume(&key(0), "a");
    volume["spec"]["csi"] = json!({ "driver": key(drivers - 1), "volumeHandle": "disk" });
    vec![node, bound_claim(&key(0)), volume]
}

fn zone_of(i: usize, all: usize) -> &'static str {
    if i + 1 == all { "b" } else { "a" }
}

fn static_class() -> Value {
    class(STATIC, "kubernetes.io/no-provisioner")
}

fn dynamic_class() -> Value {
    class(DYNAMIC, DRIVER)
}

fn class(name: &str, provisioner: &str) -> Value {
    let class = cluster_object("storage.k8s.io/v1", "StorageClass", name);
    with(with(class, "provisioner", provisioner.into()), "volumeBindingMode", "WaitForFirstConsumer".into())
}

fn driver() -> Value {
    let driver = cluster_object("storage.k8s.io/v1", "CSIDriver", DRIVER);
    with(driver, "spec", json!({ "storageCapacity": true }))
}

fn storage_for_all_but_the_last() -> impl Iterator<Item = Value> {
    let of_zone =
        |zone| storage(zone, json!({ "matchLabels": { "zone": zone } }), &format!("{}Gi", LARGEST - 1));
    [dynamic_class(), driver()].into_iter().chain(["a", "b", "c"].map(of_zone))
}

fn storage(name: &str, topology: Value, capacity: &str) -> Value {
    let storage = namespaced("storage.k8s.io/v1", "CSIStorageCapacity", "kube-system", name);
    let storage = with(with(storage, "storageClassName", DYNAMIC.into()), "nodeTopology", topology);
    with(storage, "capacity", capacity.into())
}

fn claim(name: &str, class: &str) -> Value {
    let claim = namespaced("v1", "PersistentVolumeClaim", "default", name);
    let spec = json!({
        "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } },
    });
    with(claim, "spec", spec)
}

/// A claim whose volume has its name.
fn bound_claim(name: &str) -> Value {
    let mut claim = claim(name, STATIC);
    claim["metadata"]["annotations"] = json!({ annotations::BIND_COMPLETED: "yes" });
    claim["spec"]["volumeName"] = name.into();
    claim
}

/// One of many claims; the last one is too large for all storage.
fn sized_claim(i: usize, claims: usize, selector: Value) -> Value {
    let mut claim = claim(&key(i), DYNAMIC);
    let size = if i + 1 == claims { LARGEST } else { 1 + i % 5 };
    claim["spec"]["resources"]["requests"]["storage"] = format!("{size}Gi").into();
    claim["spec"]["selector"] = selector;
    claim
}

/// A volume of a class whose volumes are else provisioned.
fn dynamic_volume(mut volume: Value, size: usize, labels: Value) -> Value {
    volume["metadata"]["labels"] = labels;
    volume["spec"]["storageClassName"] = DYNAMIC.into();
    volume["spec"]["capacity"]["storage"] = format!("{size}Gi").into();
    volume
}

/// A volume of one node.
fn local_volume(name: &str, node: usize) -> Value {
    volume_where(name, one(node_term(is_in(HOSTNAME, json!([format!("node-{node}")])))))
}

fn volume(name: &str, zone: &str) -> Value {
    let mut volume = volume_where(name, one(node_term(is_in("zone", json!([zone])))));
    volume["metadata"]["labels"] = json!({ "topology.kubernetes.io/zone": zone });
    volume
}

/// A volume for nodes that one of these terms selects.
fn volume_where(name: &str, terms: Value) -> Value {
    let volume = cluster_object("v1", "PersistentVolume", name);
    let spec = json!({
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": STATIC,
        "nodeAffinity": { "required": { "nodeSelectorTerms": terms } },
    });
    with(with(volume, "spec", spec), "status", json!({ "phase": "Available" }))
}
