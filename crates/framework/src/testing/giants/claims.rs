//! Claims of giants, with their volumes.

use std::sync::Arc;

use serde_json::json;

use super::{HOSTNAME, key};
use crate::affinity::{NodeSelectorTerm, RawRequirement};
use crate::labels::Labels;
use crate::objects::{
    Body, CsiDriver, CsiNode, CsiNodeDriver, CsiSource, CsiStorageCapacity, Object, PersistentVolume,
    PersistentVolumeClaim, StorageClass, annotations, resources,
};
use crate::selector::LabelSelector;
use crate::testing::object;

/// A class with volumes that exist.
const STATIC: &str = "static";
/// A class with volumes that are provisioned.
const DYNAMIC: &str = "dynamic";
/// Their driver.
const DRIVER: &str = "csi.example.com";
/// The volumes of a cluster with many.
const MANY_VOLUMES: usize = 5000;
/// The bytes of the largest volume.
const LARGEST: i64 = 1 << 40;
/// Values of a label of volumes.
const PARITY: [&str; 2] = ["even", "odd"];

/// Claims with a volume each. No node can access all of them: the last one is in another zone.
pub(super) fn bound(claims: usize) -> Vec<Object> {
    let each = (0..claims).flat_map(|i| {
        let name = key(i);
        let bound = claim(&name, STATIC, &name);
        let annotations = [(annotations::BIND_COMPLETED, "yes")].into_iter().collect();
        [Object { annotations, ..bound }, volume(&name, zone_of(i, claims))]
    });
    each.collect()
}

/// Claims without a volume, and volumes for them. No node can access all of them.
pub(super) fn delayed(claims: usize) -> Vec<Object> {
    let claims = (0..claims).map(|i| claim(&key(i), STATIC, ""));
    static_volumes(claims.len()).chain(claims).collect()
}

/// A claim without a volume, and volumes for it.
pub(super) fn one_delayed(volumes: usize) -> Vec<Object> {
    static_volumes(volumes).chain([claim(&key(0), STATIC, "")]).collect()
}

fn static_volumes(wanted: usize) -> impl Iterator<Item = Object> {
    let volumes = wanted.min(MANY_VOLUMES);
    let volumes = (0..volumes).map(move |i| volume(&key(i), zone_of(i, volumes)));
    [class(STATIC, "kubernetes.io/no-provisioner")].into_iter().chain(volumes)
}

/// Claims whose volumes can be provisioned everywhere.
pub(super) fn provisioned(claims: usize) -> Vec<Object> {
    let claims = (0..claims).map(|i| claim(&key(i), DYNAMIC, ""));
    [class(DYNAMIC, DRIVER)].into_iter().chain(claims).collect()
}

/// Claims of several sizes that select alternate volumes. There is storage for all but the last,
/// and the only volume for that goes to a smaller claim.
pub(super) fn mixed(claims: usize) -> Vec<Object> {
    let volumes = (claims / 2).min(MANY_VOLUMES);
    let volume = |i| {
        let mut volume = volume(&key(i), if i % 4 < 2 { "b" } else { "c" });
        let Body::PersistentVolume(body) = &mut volume.body else { return volume };
        body.storage_class = DYNAMIC.into();
        body.capacity = if i == 1 { LARGEST } else { (1 + i as i64 % 6) << 30 };
        Object { labels: [("disk", PARITY[i % 2])].into_iter().collect(), ..volume }
    };
    let claim = |i| {
        let mut claim = claim(&key(i), DYNAMIC, "");
        let Body::PersistentVolumeClaim(body) = &mut claim.body else { return claim };
        body.request = Some(if i + 1 == claims { LARGEST } else { (1 + i as i64 % 5) << 30 });
        let labels: Labels = [("disk", PARITY[i % 2])].into_iter().collect();
        body.selector = LabelSelector::parse(&labels, []).ok();
        claim
    };
    let storage = ["a", "b", "c"].map(|zone| storage(zone, LARGEST - 1));
    let others = [class(DYNAMIC, DRIVER), driver()].into_iter().chain(storage);
    others.chain((0..volumes).map(volume)).chain((0..claims).map(claim)).collect()
}

/// Claims with a selector each, of which half suit no volume. Every second volume is in a zone, the
/// others are on one node each. There is storage for all claims but the last one, and the volumes
/// for that go to smaller ones.
pub(super) fn selecting(claims: usize) -> Vec<Object> {
    let volumes = (claims / 2).min(MANY_VOLUMES);
    let volume = |i: usize| {
        let (name, zone) = (key(i), ["a", "b", "c"][i / 2 % 3]);
        let mut volume = if i.is_multiple_of(2) {
            volume(&name, zone)
        } else {
            local_volume(&format!("local-{name}"), i / 2)
        };
        let Body::PersistentVolume(body) = &mut volume.body else { return volume };
        body.storage_class = DYNAMIC.into();
        body.capacity = if i < 12 { LARGEST } else { (1 + i as i64 / 2 % 6) << 30 };
        Object { labels: [("disk", PARITY[i / 4 % 2])].into_iter().collect(), ..volume }
    };
    let claim = |i| {
        let mut claim = claim(&key(i), DYNAMIC, "");
        let Body::PersistentVolumeClaim(body) = &mut claim.body else { return claim };
        body.request = Some(if i + 1 == claims { LARGEST } else { (1 + i as i64 % 5) << 30 });
        let disk = ["none", "none", "even", "odd"][i % 4];
        let labels: Labels = [("disk", disk)].into_iter().collect();
        body.selector = LabelSelector::parse(&labels, [lacks(i)]).ok();
        claim
    };
    let storage = ["a", "b", "c"].map(|zone| storage(zone, LARGEST - 1));
    let others = [class(DYNAMIC, DRIVER), driver()].into_iter().chain(storage);
    others.chain((0..volumes).map(volume)).chain((0..claims).map(claim)).collect()
}

/// A claim whose volume is on many nodes, none of which exists.
pub(super) fn with_terms(terms: usize) -> Vec<Object> {
    let mut volume = volume_where(&key(0), HOSTNAME, "");
    if let Body::PersistentVolume(body) = &mut volume.body {
        body.node_affinity = Some((0..terms).map(|i| node_term(HOSTNAME, &key(i))).collect());
    }
    let claim = claim(&key(0), STATIC, &key(0));
    let annotations = [(annotations::BIND_COMPLETED, "yes")].into_iter().collect();
    vec![Object { annotations, ..claim }, volume]
}

/// A claim with many requirements, and volumes that all meet them. No node can access any.
pub(super) fn with_requirements(requirements: usize) -> Vec<Object> {
    let mut claim = claim(&key(0), STATIC, "");
    if let Body::PersistentVolumeClaim(body) = &mut claim.body {
        body.selector = LabelSelector::parse(&Labels::default(), (0..requirements).map(lacks)).ok();
    }
    let volumes = (0..MANY_VOLUMES.min(requirements)).map(|i| local_volume(&key(i), usize::MAX));
    [class(STATIC, "kubernetes.io/no-provisioner"), claim].into_iter().chain(volumes).collect()
}

/// A claim of a class with many topologies, none of which a node has.
pub(super) fn with_topologies(topologies: usize) -> Vec<Object> {
    let mut class = class(DYNAMIC, DRIVER);
    if let Body::StorageClass(body) = &mut class.body {
        body.allowed_topologies = (0..topologies).map(|i| node_term(HOSTNAME, &key(i))).collect();
    }
    vec![class, claim(&key(0), DYNAMIC, "")]
}

/// A claim of a class whose only storage is for nodes with many requirements, and too small.
pub(super) fn with_storage(requirements: usize) -> Vec<Object> {
    let mut storage = storage("a", 1);
    if let Body::CsiStorageCapacity(body) = &mut storage.body {
        body.node_topology = LabelSelector::parse(&Labels::default(), (0..requirements).map(lacks)).ok();
    }
    vec![class(DYNAMIC, DRIVER), driver(), storage, claim(&key(0), DYNAMIC, "")]
}

/// A claim whose volume belongs to the last of a node's many drivers.
pub(super) fn with_drivers(drivers: usize) -> Vec<Object> {
    let mut volume = volume(&key(0), "a");
    if let Body::PersistentVolume(body) = &mut volume.body {
        let driver = key(drivers - 1).into();
        body.csi = Some(CsiSource { driver, handle: "disk".into(), migrated_from: None });
    }
    let driver = |i| CsiNodeDriver { name: key(i).into(), limit: Some(25) };
    let node = CsiNode { drivers: (0..drivers).map(driver).collect() };
    let claim = claim(&key(0), STATIC, &key(0));
    let annotations = [(annotations::BIND_COMPLETED, "yes")].into_iter().collect();
    let node = object(&resources::CSI_NODE, "node-0", Body::CsiNode(node));
    vec![node, Object { annotations, ..claim }, volume]
}

/// A requirement that every node, pod and volume meets.
pub(super) fn lacks(i: usize) -> RawRequirement {
    RawRequirement { key: key(i).into(), operator: "DoesNotExist".into(), values: Vec::new() }
}

fn zone_of(i: usize, all: usize) -> &'static str {
    if i + 1 == all { "b" } else { "a" }
}

fn class(name: &str, provisioner: &str) -> Object {
    let body = StorageClass {
        provisioner: provisioner.into(),
        waits_for_first_consumer: Some(true),
        ..StorageClass::default()
    };
    object(&resources::STORAGE_CLASS, name, Body::StorageClass(body))
}

fn driver() -> Object {
    let body = CsiDriver { storage_capacity: true, ..CsiDriver::default() };
    object(&resources::CSI_DRIVER, DRIVER, Body::CsiDriver(body))
}

fn storage(zone: &str, capacity: i64) -> Object {
    let labels: Labels = [("zone", zone)].into_iter().collect();
    let body = CsiStorageCapacity {
        storage_class: DYNAMIC.into(),
        node_topology: LabelSelector::parse(&labels, []).ok(),
        capacity: Some(capacity),
        ..CsiStorageCapacity::default()
    };
    let key = format!("kube-system/{zone}");
    object(&resources::CSI_STORAGE_CAPACITY, &key, Body::CsiStorageCapacity(body))
}

fn claim(name: &str, class: &str, volume: &str) -> Object {
    let raw = json!({
        "metadata": {"namespace": "default", "name": name, "resourceVersion": "1"},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"]},
    });
    let body = PersistentVolumeClaim {
        volume_name: volume.into(),
        storage_class: class.into(),
        access_modes: ["ReadWriteOnce".into()].into(),
        request: Some(1 << 30),
        raw: Arc::new(raw),
        ..PersistentVolumeClaim::default()
    };
    let key = format!("default/{name}");
    object(&resources::PERSISTENT_VOLUME_CLAIM, &key, Body::PersistentVolumeClaim(body))
}

/// A volume of one node.
fn local_volume(name: &str, node: usize) -> Object {
    volume_where(name, HOSTNAME, &format!("node-{node}"))
}

fn volume(name: &str, zone: &str) -> Object {
    let labels: Labels = [("topology.kubernetes.io/zone", zone)].into_iter().collect();
    Object { labels, ..volume_where(name, "zone", zone) }
}

/// A volume for nodes with this label.
fn volume_where(name: &str, label: &str, value: &str) -> Object {
    let body = PersistentVolume {
        capacity: 1 << 30,
        access_modes: ["ReadWriteOnce".into()].into(),
        storage_class: STATIC.into(),
        node_affinity: Some([node_term(label, value)].into()),
        phase: "Available".into(),
        ..PersistentVolume::default()
    };
    object(&resources::PERSISTENT_VOLUME, name, Body::PersistentVolume(body))
}

pub(super) fn node_term(label: &str, value: &str) -> NodeSelectorTerm {
    let required = RawRequirement { key: label.into(), operator: "In".into(), values: vec![value.into()] };
    NodeSelectorTerm::parse(vec![required], vec![])
}
