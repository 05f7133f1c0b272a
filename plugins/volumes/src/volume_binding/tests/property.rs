//! Properties in any cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use supercargo_framework::objects::{
    Body, ClaimRef, Object, ObjectBody, Objects, PersistentVolume, PersistentVolumeClaim, annotations,
};
use supercargo_framework::testing::node;

use super::world::*;

const ZONES: [&str; 3] = ["a", "b", "c"];
const NAMES: [&str; 4] = ["c0", "c1", "c2", "c3"];

fn random_volume(index: usize) -> impl Strategy<Value = Object> {
    let zone = proptest::option::of(0..ZONES.len());
    let holder = proptest::option::weighted(0.3, (0..NAMES.len() + 1, any::<bool>()));
    (1..6_i64, zone, 0..10, any::<bool>(), holder).prop_map(move |(capacity, zone, oddity, fast, holder)| {
        let mut object = volume(&format!("v{index}"), |volume| {
            volume.capacity = capacity;
            volume.node_affinity = zone.and_then(|zone| affinity("zone", &[ZONES[zone]]));
            volume.claim = holder.and_then(|(claim, by_uid)| {
                let name = NAMES.get(claim).copied().unwrap_or("stranger");
                claim_ref(name, if by_uid { "uid-default/c0" } else { "" })
            });
            match oddity {
                0 => volume.phase = "Released".into(),
                1 => volume.storage_class = DYNAMIC.into(),
                2 => volume.access_modes = ["ReadWriteOnce".into(), "ReadWriteMany".into()].into(),
                3 => volume.attributes_class = Some("gold".into()),
                _ => {}
            }
        });
        object.terminating = oddity == 4;
        if fast { labelled(object, "tier", "fast") } else { object }
    })
}

fn random_claim(index: usize) -> impl Strategy<Value = Object> {
    (1..5_i64, 0..10, any::<bool>()).prop_map(move |(request, oddity, dynamic)| {
        claim(NAMES[index], |claim| {
            claim.request = Some(request);
            claim.storage_class = if dynamic { DYNAMIC } else { LOCAL }.into();
            match oddity {
                0 => claim.selector = Some(selector("tier", "fast")),
                1 => claim.access_modes = ["ReadWriteMany".into()].into(),
                2 => claim.attributes_class = Some("gold".into()),
                _ => {}
            }
        })
    })
}

fn random_objects() -> impl Strategy<Value = Vec<Object>> {
    let volumes: Vec<_> = (0..6).map(random_volume).collect();
    let claims: Vec<_> = (0..NAMES.len()).map(random_claim).collect();
    (volumes, claims).prop_map(|(volumes, claims)| volumes.into_iter().chain(claims).collect())
}

fn world_of(objects: Vec<Object>) -> World {
    World::new(objects, ZONES.iter().map(|zone| node(&format!("n-{zone}")).label("zone", zone)))
}

fn volumes(objects: &Objects) -> impl Iterator<Item = &Arc<Object>> {
    objects.list("PersistentVolume")
}

fn claim_of<'a>(objects: &'a Objects, name: &str) -> &'a Object {
    objects.get("PersistentVolumeClaim", &format!("default/{name}")).unwrap()
}

fn holder_of(volume: &Object) -> Option<&ClaimRef> {
    PersistentVolume::of(&volume.body)?.claim.as_ref()
}

/// Whether the volume may be bound to the claim on a node of that zone: an independent
/// implementation of the rules.
fn is_admissible(volume: &Object, claim: &Object, zone: &str) -> bool {
    let (Body::PersistentVolume(v), Body::PersistentVolumeClaim(c)) = (&volume.body, &claim.body) else {
        return false;
    };
    let fits = v.capacity >= c.size()
        && v.storage_class == c.storage_class
        && v.attributes_class == c.attributes_class
        && !volume.terminating;
    let reached = v.node_affinity.as_ref().is_none_or(|terms| {
        terms.iter().any(|term| term.match_expressions.iter().all(|r| r.values.iter().any(|z| &**z == zone)))
    });
    let own = v.claim.as_ref().map(|holder| {
        holder.name.as_ref() == claim.name() && (holder.uid.is_empty() || holder.uid == claim.uid)
    });
    let free = &*v.phase == "Available"
        && c.access_modes.iter().all(|mode| v.access_modes.contains(mode))
        && c.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels));
    fits && reached && own.unwrap_or(free)
}

/// Checks the assignment of a pod on a node of this zone.
fn check(before: &Objects, after: &Objects, claims: &[&str], zone: &str) -> Result<(), TestCaseError> {
    let mut holders = BTreeSet::new();
    for (was, is) in volumes(before).zip(volumes(after)).filter(|(was, is)| was != is) {
        let holder = holder_of(is).unwrap();
        prop_assert!(claims.contains(&&*holder.name), "{:?} is none of the pod's claims", holder);
        prop_assert!(holders.insert(&holder.name), "{:?} gets two volumes", holder);
        let claim = claim_of(before, &holder.name);
        prop_assert_eq!(&holder.uid, &claim.uid);
        prop_assert!(is_admissible(was, claim, zone), "{:?} for {:?} in {}", was, claim, zone);
    }
    for name in claims {
        let (was, is) = (claim_of(before, name), claim_of(after, name));
        let suits = |volume: &Arc<Object>| {
            holder_of(volume).is_some_and(|holder| &*holder.name == *name && holder.uid == was.uid)
                && before
                    .get("PersistentVolume", &volume.key)
                    .is_some_and(|volume| is_admissible(volume, was, zone))
        };
        match is.annotations.get(annotations::SELECTED_NODE) {
            Some(node) => {
                prop_assert_eq!(&**node, format!("n-{zone}"));
                let body = PersistentVolumeClaim::of(&is.body).unwrap();
                prop_assert_eq!(&*body.storage_class, DYNAMIC, "nobody provisions for the other class");
                prop_assert!(!holders.contains(&Arc::from(*name)), "both a volume and a node");
            }
            None => prop_assert!(volumes(after).any(suits), "{} has neither a volume nor a node", name),
        }
    }
    Ok(())
}

proptest! {
    /// Pods reserve nodes one after the other, and some unreserve. No volume is assigned to two
    /// claims, every volume matches its claim, and every claim has a volume or a node to provision
    /// on.
    #[test]
    fn volumes_are_assigned_once_and_match_their_claims(
        objects in random_objects(),
        pods in proptest::collection::vec(
            (proptest::sample::subsequence(NAMES.to_vec(), 1..=NAMES.len()), 0..ZONES.len(), any::<bool>()),
            1..5,
        ),
    ) {
        let mut world = world_of(objects);
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        for (claims, start, gives_back) in pods {
            let claims: Vec<&str> = claims.into_iter().filter(|claim| !taken.contains(claim)).collect();
            let pod = pod_with(&claims).build();
            let feasible = world.feasible(&pod);
            let Some(at) = (0..ZONES.len()).map(|i| (start + i) % ZONES.len()).find(|i| feasible[*i]) else {
                continue;
            };
            let (zone, name) = (ZONES[at], format!("n-{}", ZONES[at]));
            let before = world.objects.clone();
            let mut state = world.reserve(&pod, &name);
            check(&before, &world.objects, &claims, zone)?;
            if gives_back {
                world.unreserve(&mut state, &pod, &name);
                prop_assert!(volumes(&before).eq(volumes(&world.objects)));
            } else {
                taken.extend(claims);
            }
        }
    }
}
