//! VolumeRestrictions' cached state over random histories.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use supercargo_framework::objects::{Body, Object, PersistentVolumeClaim, resources};
use supercargo_framework::testing::{claim, node, node_info, object, pod, with_claims};
use supercargo_framework::volume::{Volume, VolumeSource};
use supercargo_framework::{NodeInfo, PodInfo};

use crate::history;
use crate::testing::driver;
use crate::volume_restrictions::NAME;

/// A claim that only one pod can use at a time.
fn exclusive(key: &str) -> Object {
    let body = PersistentVolumeClaim {
        access_modes: ["ReadWriteOncePod".into()].into(),
        ..PersistentVolumeClaim::default()
    };
    object(&resources::PERSISTENT_VOLUME_CLAIM, key, Body::PersistentVolumeClaim(body))
}

fn any_user() -> impl Strategy<Value = PodInfo> {
    let claims = vec(select(vec!["own", "shared", "other"]), 0..3);
    (claims, select(vec!["default", "default", "other"]), any::<bool>(), 0..1_000_000_u32).prop_map(
        |(claims, namespace, has_disk, id)| {
            let mut pod = with_claims(pod(&format!("pod-{id}")).namespace(namespace), &claims);
            if has_disk {
                let source = VolumeSource::GcePersistentDisk { pd_name: "a".into(), read_only: false };
                let disk = Volume { name: "disk".into(), source };
                let spec = Arc::make_mut(&mut pod.spec);
                spec.volumes = spec.volumes.iter().cloned().chain([disk]).collect();
            }
            pod
        },
    )
}

fn any_node(name: String) -> impl Strategy<Value = NodeInfo> {
    vec(any_user(), 0..2).prop_map(move |pods| node_info(node(&name).build(), pods))
}

fn any_claim() -> impl Strategy<Value = Object> {
    let keys = vec!["default/own", "default/shared", "default/other", "other/own"];
    (select(keys), any::<bool>()).prop_map(
        |(key, is_exclusive)| {
            if is_exclusive { exclusive(key) } else { claim(key, "", "") }
        },
    )
}

proptest! {
    #[test]
    fn updated_state_equals_a_fresh_one(
        pods in vec(any_user(), 2),
        claims in vec(any_claim().prop_map(history::Step::SetObject), 3),
        steps in history::steps(any_user, any_node, any_claim, 2),
    ) {
        history::check(&driver(NAME), &pods, claims.into_iter().chain(steps).collect())?;
    }
}
