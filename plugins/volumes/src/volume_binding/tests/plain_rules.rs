//! The answers beside a plain statement of upstream's rules: one claim and one volume after the
//! other, on each node.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use supercargo_framework::affinity::Requirement;
use supercargo_framework::label_terms::LabelTerms;
use supercargo_framework::node::HOSTNAME;
use supercargo_framework::objects::{
    Body, CsiStorageCapacity, Object, ObjectBody, Objects, PersistentVolume, PersistentVolumeClaim,
    StorageClass, VolumeMode, annotations,
};
use supercargo_framework::testing::node;
use supercargo_framework::{Labels, NodeSelectorTerm};

use super::world::*;

const ZONES: [&str; 3] = ["a", "b", "c"];
const HOSTS: [&str; 4] = ["a1", "a2", "b1", "c1"];
const NAMES: [&str; 5] = ["c0", "c1", "c2", "c3", "c4"];
const CLASSES: [&str; 4] = [LOCAL, LOCAL, DYNAMIC, DYNAMIC];

const OUT_OF_REACH: &str = "node(s) didn't match PersistentVolume's node affinity";
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const NO_STORAGE: &str = "node(s) did not have enough free storage";
const LOST: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// Bindings, and what is provisioned with which capacity.
type Found = (Vec<(String, String)>, Vec<(String, Option<String>)>);

fn random_affinity() -> impl Strategy<Value = Option<LabelTerms>> {
    prop_oneof![
        3 => Just(None),
        3 => select(&ZONES[..]).prop_map(|zone| affinity("zone", &[zone])),
        1 => Just(affinity("zone", &["a", "b"])),
        2 => select(&HOSTS[..]).prop_map(|host| affinity(HOSTNAME, &[host])),
    ]
}

fn random_modes() -> impl Strategy<Value = Box<[Arc<str>]>> {
    let (once, many) = ("ReadWriteOnce", "ReadWriteMany");
    let modes = select(vec![vec![once], vec![once], vec![once, many], vec![many, once], vec![many]]);
    modes.prop_map(|modes| modes.into_iter().map(Arc::from).collect())
}

/// One in ten volumes or claims has something unusual.
fn is_odd() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.1)
}

fn random_volume(index: usize) -> impl Strategy<Value = Object> {
    let holder = proptest::option::weighted(0.25, (select(&NAMES[..]), select(vec!["", "uid-default/c0"])));
    let oddities = (is_odd(), is_odd(), is_odd(), is_odd());
    (1..6_i64, random_affinity(), random_modes(), holder, select(&CLASSES[..]), 0..3_usize, oddities)
        .prop_map(move |(capacity, node_affinity, access_modes, holder, class, tier, oddities)| {
            let (is_released, is_block, is_gold, is_terminating) = oddities;
            let object = volume(&format!("v{index:02}"), |volume| {
                volume.capacity = capacity;
                volume.node_affinity = node_affinity;
                volume.access_modes = access_modes.into();
                volume.storage_class = class.into();
                volume.claim = holder.and_then(|(name, uid)| claim_ref(name, uid));
                if is_released {
                    volume.phase = "Released".into();
                }
                if is_block {
                    volume.volume_mode = VolumeMode::Block;
                }
                volume.attributes_class = is_gold.then(|| "gold".into());
            });
            let object = Object { terminating: is_terminating, ..object };
            if tier == 0 { object } else { labelled(object, "tier", TIERS[tier - 1]) }
        })
}

const TIERS: [&str; 2] = ["fast", "slow"];

/// How far a claim is bound.
#[derive(Clone, Debug)]
enum State {
    Delayed,
    Bound(String),
    Selected(&'static str),
}

fn random_claim(index: usize) -> impl Strategy<Value = Object> {
    let state = prop_oneof![
        12 => Just(State::Delayed),
        1 => (0..14).prop_map(|i| State::Bound(format!("v{i:02}"))),
        1 => select(vec!["n-a1", "n-b1"]).prop_map(State::Selected),
    ];
    let request = prop_oneof![
        20 => (1..5_i64).prop_map(Some),
        10 => Just(Some(2)),
        1 => Just(Some(0)),
        1 => Just(None),
    ];
    (state, request, random_modes(), select(&CLASSES[..]), 0..6_usize, is_odd(), is_odd()).prop_map(
        move |(state, request, access_modes, class, tier, is_block, is_gold)| {
            let object = claim(NAMES[index], |claim| {
                claim.request = request;
                claim.access_modes = access_modes.into();
                claim.storage_class = class.into();
                claim.selector = TIERS.get(tier).map(|tier| selector("tier", tier));
                if is_block {
                    claim.volume_mode = VolumeMode::Block;
                }
                claim.attributes_class = is_gold.then(|| "gold".into());
                if let State::Bound(volume) = &state {
                    claim.volume_name = (&**volume).into();
                }
            });
            match state {
                State::Delayed => object,
                State::Bound(_) => annotated(object, annotations::BIND_COMPLETED, "yes"),
                State::Selected(node) => annotated(object, annotations::SELECTED_NODE, node),
            }
        },
    )
}

fn random_storage(index: usize) -> impl Strategy<Value = Object> {
    let zone = proptest::option::weighted(0.9, select(&ZONES[..]));
    let limit = || proptest::option::weighted(0.8, 0..5_i64);
    (zone, limit(), proptest::option::weighted(0.2, 0..5_i64))
        .prop_map(move |(zone, capacity, largest)| storage(&format!("s{index}"), zone, capacity, largest))
}

fn random_objects() -> impl Strategy<Value = Vec<Object>> {
    let volumes = (0..12).map(random_volume).collect::<Vec<_>>();
    let claims = (0..NAMES.len()).map(random_claim).collect::<Vec<_>>();
    let storage = (0..4).map(random_storage).collect::<Vec<_>>();
    let terms: Vec<&[Term<'_>]> = vec![&[], &[], &[&[("zone", &["a", "b"])]], &[&[("zone", &["c"])], &[]]];
    (volumes, 0..13_usize, claims, storage, any::<bool>(), select(terms)).prop_map(
        |(volumes, some, claims, storage, reports, terms)| {
            let volumes = volumes.into_iter().take(some);
            let others = storage.into_iter().chain([csi_driver(reports), dynamic_class_for(terms)]);
            volumes.chain(claims).chain(others).collect()
        },
    )
}

fn body(claim: &Object) -> &PersistentVolumeClaim {
    PersistentVolumeClaim::of(&claim.body).unwrap()
}

fn volume_body(volume: &Object) -> &PersistentVolume {
    PersistentVolume::of(&volume.body).unwrap()
}

/// Whether a node with these labels can access the volume.
fn is_reached(volume: &Object, labels: &Labels) -> bool {
    volume_body(volume).node_affinity.as_ref().is_none_or(|terms| {
        terms.iter().any(|term| {
            let meets =
                |key: &str, values: &[Arc<str>]| labels.get(key).is_some_and(|it| values.contains(it));
            term.match_expressions.iter().all(|it| meets(&it.key, &it.values))
        })
    })
}

/// Whether the volume's `claimRef` is the claim; `None` without one.
fn is_own(volume: &Object, claim: &Object) -> Option<bool> {
    let holder = volume_body(volume).claim.as_ref()?;
    let is_same = &*holder.namespace == claim.namespace() && &*holder.name == claim.name();
    Some(is_same && (holder.uid.is_empty() || holder.uid == claim.uid))
}

/// The volume for one claim, if any, beside the chosen ones.
fn plain_volume<'a>(
    objects: &'a Objects,
    claim: &Object,
    labels: &Labels,
    chosen: &[(String, String)],
) -> Option<&'a Object> {
    let wanted = body(claim);
    let candidates = || {
        objects.list("PersistentVolume").map(|volume| &**volume).filter(|volume| {
            let body = volume_body(volume);
            body.storage_class == wanted.storage_class
                && body.capacity >= wanted.size()
                && body.volume_mode == wanted.volume_mode
                && body.attributes_class.as_deref().unwrap_or("")
                    == wanted.attributes_class.as_deref().unwrap_or("")
                && !volume.terminating
                && !chosen.iter().any(|(_, name)| *name == *volume.key)
        })
    };
    if let Some(own) = candidates().find(|volume| is_own(volume, claim) == Some(true)) {
        return is_reached(own, labels).then_some(own);
    }
    let suits = |volume: &&Object| {
        let body = volume_body(volume);
        body.claim.is_none()
            && &*body.phase == "Available"
            && wanted.access_modes.iter().all(|mode| body.access_modes.contains(mode))
            && wanted.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels))
            && is_reached(volume, labels)
    };
    candidates().filter(suits).min_by_key(|volume| volume_body(volume).capacity)
}

/// The capacity for one claim, `None` if none is needed, or the reason why it cannot be
/// provisioned.
fn plain_storage(objects: &Objects, claim: &Object, labels: &Labels) -> Result<Option<String>, &'static str> {
    let class = objects.get("storage.k8s.io/StorageClass", &body(claim).storage_class).unwrap();
    let class_body = StorageClass::of(&class.body).unwrap();
    let allows = |term: &NodeSelectorTerm| {
        let meets = |it: &Requirement| labels.get(&it.key).is_some_and(|value| it.values.contains(value));
        !term.match_expressions.is_empty() && term.match_expressions.iter().all(meets)
    };
    let terms = &class_body.allowed_topologies;
    if &*class_body.provisioner != DRIVER || !(terms.is_empty() || terms.iter().any(allows)) {
        return Err(NO_VOLUME);
    }
    let driver = objects.get("storage.k8s.io/CSIDriver", DRIVER).unwrap();
    let Body::CsiDriver(driver) = &driver.body else { unreachable!() };
    let Some(request) = body(claim).request.filter(|_| driver.storage_capacity) else { return Ok(None) };
    let mut all = objects.list("storage.k8s.io/CSIStorageCapacity");
    let found = all.find(|storage| {
        let body = CsiStorageCapacity::of(&storage.body).unwrap();
        let limit = body.maximum_volume_size.or(body.capacity);
        body.storage_class == body_class(claim)
            && limit.is_some_and(|limit| limit >= request)
            && body.node_topology.as_ref().is_some_and(|topology| topology.matches(labels))
    });
    found.map(|storage| Some(storage.name().to_owned())).ok_or(NO_STORAGE)
}

fn body_class(claim: &Object) -> Arc<str> {
    Arc::clone(&body(claim).storage_class)
}

/// The reason of the bound claims.
fn plain_bound(objects: &Objects, claims: &[&Object], labels: &Labels) -> Option<&'static str> {
    claims.iter().filter(|claim| !body(claim).volume_name.is_empty()).find_map(|claim| {
        match objects.get("PersistentVolume", &body(claim).volume_name) {
            None => Some(LOST),
            Some(volume) => (!is_reached(volume, labels)).then_some(OUT_OF_REACH),
        }
    })
}

/// What the other claims get, or the reason why one gets nothing.
fn plain_delayed(
    objects: &Objects,
    claims: &[&Object],
    labels: &Labels,
    node: &str,
) -> Result<Found, &'static str> {
    let delayed = claims.iter().filter(|claim| body(claim).volume_name.is_empty());
    let selected_node = |claim: &Object| claim.annotations.get(annotations::SELECTED_NODE).cloned();
    let (mut to_provision, mut to_match): (Vec<&Object>, Vec<&Object>) =
        delayed.partition(|claim| selected_node(claim).is_some());
    if to_provision.iter().any(|claim| *selected_node(claim).unwrap() != *node) {
        return Err(NO_VOLUME);
    }
    to_match.sort_by_key(|claim| body(claim).size());
    let mut bindings = Vec::new();
    for claim in to_match {
        match plain_volume(objects, claim, labels, &bindings) {
            Some(volume) => bindings.push((claim.name().to_owned(), volume.key.to_string())),
            None => to_provision.push(claim),
        }
    }
    let mut provisions = Vec::new();
    for claim in to_provision {
        provisions.push((claim.name().to_owned(), plain_storage(objects, claim, labels)?));
    }
    Ok((bindings, provisions))
}

/// What a pod with these claims gets on a node, or the reasons why it does not fit.
fn plain(objects: &Objects, names: &[&str], labels: &Labels, node: &str) -> Result<Found, String> {
    let claim_of = |name: &&str| &**objects.get("PersistentVolumeClaim", &format!("default/{name}")).unwrap();
    let claims: Vec<&Object> = names.iter().map(claim_of).collect();
    let bound = plain_bound(objects, &claims, labels);
    let delayed = plain_delayed(objects, &claims, labels, node);
    let (of_reach, lost) =
        (bound.filter(|reason| *reason == OUT_OF_REACH), bound.filter(|reason| *reason == LOST));
    match (delayed, bound) {
        (Ok(found), None) => Ok(found),
        (delayed, _) => {
            let reasons = [of_reach, delayed.err(), lost];
            Err(reasons.into_iter().flatten().collect::<Vec<_>>().join(", "))
        }
    }
}

proptest! {
    #[test]
    fn answers_equal_a_plain_statement_of_upstreams_rules(
        objects in random_objects(),
        names in proptest::collection::vec(select(&NAMES[..]), 1..20),
    ) {
        let on = |host: &str| node(&format!("n-{host}")).label("zone", &host[..1]).label(HOSTNAME, host);
        let world = World::new(objects, HOSTS.map(on));
        let pod = pod_with(&names).build();
        let reasons = world.reasons(&pod);
        let state = world.state(&pod);
        let prepared = crate::volume_binding::claims(&state).unwrap();
        for ((_, node), reason) in world.nodes.iter().zip(reasons) {
            let name = &**node.name();
            let expected = plain(&world.objects, &names, &node.node().labels, name);
            prop_assert_eq!(&reason, expected.as_ref().err().map_or("", |reasons| &**reasons), "{}", name);
            let found = prepared.find(&world.context(), node).map_err(|status| status.message());
            let names = found.map(|found| {
                let bindings = found.bindings.iter();
                let bindings =
                    bindings.map(|(claim, volume)| (claim.claim.name().to_owned(), volume.key.to_string()));
                let provisions = found.provisions.iter().map(|(claim, storage)| {
                    (claim.claim.name().to_owned(), storage.map(|storage| storage.name().to_owned()))
                });
                (bindings.collect(), provisions.collect())
            });
            prop_assert_eq!(names, expected);
        }
    }
}
