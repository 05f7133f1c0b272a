//! Claims of giants, with their volumes.

use std::sync::Arc;

use serde_json::json;

use super::key;
use crate::affinity::{NodeSelectorTerm, RawRequirement};
use crate::labels::Labels;
use crate::objects::{
    Body, Object, PersistentVolume, PersistentVolumeClaim, StorageClass, annotations, resources,
};
use crate::testing::object;

/// A class with volumes that exist.
const STATIC: &str = "static";
/// A class with volumes that are provisioned.
const DYNAMIC: &str = "dynamic";
/// The volumes of a cluster with many.
const MANY_VOLUMES: usize = 5000;

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
    let volumes = claims.min(MANY_VOLUMES);
    let volumes = (0..volumes).map(move |i| volume(&key(i), zone_of(i, volumes)));
    let claims = (0..claims).map(|i| claim(&key(i), STATIC, ""));
    [class(STATIC, "kubernetes.io/no-provisioner")].into_iter().chain(volumes).chain(claims).collect()
}

/// Claims whose volumes can be provisioned everywhere.
pub(super) fn provisioned(claims: usize) -> Vec<Object> {
    let claims = (0..claims).map(|i| claim(&key(i), DYNAMIC, ""));
    [class(DYNAMIC, "csi.example.com")].into_iter().chain(claims).collect()
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

fn volume(name: &str, zone: &str) -> Object {
    let in_zone = RawRequirement { key: "zone".into(), operator: "In".into(), values: vec![zone.into()] };
    let body = PersistentVolume {
        capacity: 1 << 30,
        access_modes: ["ReadWriteOnce".into()].into(),
        storage_class: STATIC.into(),
        node_affinity: Some([NodeSelectorTerm::parse(vec![in_zone], vec![])].into()),
        phase: "Available".into(),
        ..PersistentVolume::default()
    };
    let labels: Labels = [("topology.kubernetes.io/zone", zone)].into_iter().collect();
    let volume = object(&resources::PERSISTENT_VOLUME, name, Body::PersistentVolume(body));
    Object { labels, ..volume }
}
