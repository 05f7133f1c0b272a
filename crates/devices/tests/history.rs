//! State that follows changes answers as state that is made anew: nothing stale is kept.
#![allow(clippy::unwrap_used, clippy::wildcard_imports, clippy::default_trait_access)] // all of it is for tests

#[path = "upstream/shared.rs"]
mod shared;

use case::{Case, World, object};
use shared::generate::Generator;
use shared::{case, notation};
use supercargo_devices::{Budget, Cluster, Demand, Features};
use supercargo_framework::NodeRecord;
use supercargo_framework::objects::*;

/// One change of a world.
type Change<'a> = Box<dyn Fn(&mut World) + 'a>;

/// Moves the world to another case by its differences, in random order.
fn follow(world: &mut World, from: &Case, to: &Case, rng: &mut fastrand::Rng) {
    let mut steps: Vec<Change<'_>> = Vec::new();
    for (name, _) in &from.slices {
        if !to.slices.iter().any(|(other, _)| other == name) {
            steps.push(Box::new(move |world| world.inventory.remove(name)));
        }
    }
    for (name, _) in &from.rules {
        if !to.rules.iter().any(|(other, _)| other == name) {
            steps.push(Box::new(move |world| world.inventory.remove_rule(name)));
        }
    }
    for slice in to.slices.iter().filter(|slice| !from.slices.contains(slice)) {
        steps.push(Box::new(move |world| world.insert(slice)));
    }
    for rule in to.rules.iter().filter(|rule| !from.rules.contains(rule)) {
        steps.push(Box::new(move |world| _ = world.insert_rule(rule)));
    }
    let is_sharing = from.features.consumable_capacity;
    steps.push(Box::new(move |world| world.allocated.remove(&from.allocated, is_sharing)));
    rng.shuffle(&mut steps);
    for step in &steps {
        step(world);
    }
    world.allocated.add(&to.allocated, is_sharing);
}

#[test]
fn state_that_follows_changes_answers_as_a_new_one() {
    let mut fitting = 0;
    for seed in 0..50 {
        let mut generator = Generator::new(seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut last = generator.case();
        let mut world = last.world();
        for _ in 0..6 {
            let mut next = generator.case();
            next.features = last.features;
            // Some slices stay, under their names.
            let kept = last.slices.iter().filter(|_| rng.bool()).cloned();
            next.slices.extend(kept);
            next.slices.sort_by(|(a, _), (b, _)| a.cmp(b));
            next.slices.dedup_by(|(a, _), (b, _)| a == b);
            if rng.bool() {
                (next.classes, next.claims) = (last.classes.clone(), last.claims.clone());
            }
            follow(&mut world, &last, &next, &mut rng);
            let (Some(here), Some(anew)) = (next.ask(&mut world), next.ask_here()) else {
                last = next;
                continue;
            };
            assert_eq!(here, anew, "seed {seed}: {}", next.question());
            fitting += here.iter().filter(|outcome| !outcome.results.is_empty()).count();
            let before = world.matches.evaluations();
            assert_eq!(next.ask(&mut world).as_ref(), Some(&here), "seed {seed}");
            assert_eq!(world.matches.evaluations(), before, "answers are kept");
            last = next;
        }
    }
    assert!(fitting > 50, "{fitting}");
}

#[test]
fn allocated_devices_are_taken_until_they_are_free_again() {
    let case = Case { features: Features::ALL, ..Case::default() };
    let mut world = case.world();
    let device = |name: &str| Device { name: name.into(), ..Device::default() };
    let slice = ResourceSlice {
        driver: "a.example.com".into(),
        pool: "pool".into(),
        slice_count: 1,
        place: DevicePlace::Node("n0".into()),
        devices: Box::new([device("dev1"), device("dev2")]),
        ..ResourceSlice::default()
    };
    world.insert(&("slice".into(), slice));
    let request = DeviceRequest { class: "class".into(), ..DeviceRequest::default() };
    let request = ClaimRequest { name: "r".into(), choice: RequestChoice::Exactly(request) };
    let claim = ResourceClaim { requests: Box::new([request]), ..ResourceClaim::default() };
    let claim = object("default/claim", Body::ResourceClaim(claim));
    let class = object("class", Body::DeviceClass(DeviceClass::default()));
    let demand = Demand::new(Features::ALL, &[claim], |_| Some(class.clone()), &mut world.matches);
    let node = NodeRecord { name: "n0".into(), ..NodeRecord::default() };
    let mut given = Vec::new();
    let allocate = |world: &mut World| {
        let cluster = Cluster { inventory: &world.inventory, allocated: &world.allocated };
        let found = demand
            .allocate(cluster, &node, &mut world.matches, &mut Budget::unlimited(), &mut || None)
            .unwrap()?;
        let claim = found.into_claims(&demand, "n0", &mut || "share".into()).remove(0);
        world.allocated.add(&claim.results, true);
        Some(claim)
    };
    for name in ["dev1", "dev2"] {
        let claim = allocate(&mut world).unwrap();
        assert_eq!(&*claim.results[0].device.device, name);
        given.push(claim);
    }
    assert!(allocate(&mut world).is_none());
    world.allocated.remove(&given[0].results, true);
    assert_eq!(allocate(&mut world).unwrap().results, given[0].results);
}

#[test]
fn replaced_rule_frees_the_device_that_it_had_tainted() {
    let text = "slice s a/p n0\ndev d1-2\nrule k:NoSchedule device=d1\nclass c\nclaim x\nrequest r c";
    let case = notation::read_one(text);
    let mut world = case.world();
    let found = |world: &mut World| notation::write(&case.ask(world).unwrap()[0]);
    assert_eq!(found(&mut world), "r=a/p/d2 @metadata.name=n0");
    let mut rule = case.rules[0].clone();
    rule.1.selector = Some(TaintRuleSelector { driver: Some("b.example.com".into()), ..Default::default() });
    assert!(world.insert_rule(&rule));
    assert!(!world.insert_rule(&rule), "as after an update of its status");
    assert_eq!(found(&mut world), "r=a/p/d1 @metadata.name=n0");
    world.insert_rule(&case.rules[0]);
    world.inventory.remove_rule("rule0");
    assert_eq!(found(&mut world), "r=a/p/d1 @metadata.name=n0");
}
