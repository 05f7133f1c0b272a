//! What limits the work of an attempt, and the memory of selectors.
#![allow(clippy::unwrap_used, clippy::wildcard_imports, clippy::default_trait_access)] // all of it is for tests

#[path = "upstream/shared.rs"]
mod shared;

use std::sync::Arc;

use case::{Case, World, object};
use shared::generate::Generator;
use shared::{case, notation};
use supercargo_devices::{AllocateError, Budget, Cluster, Demand};
use supercargo_framework::NodeRecord;
use supercargo_framework::objects::*;

/// Asks about nodes `n0`, `n1` and so on until there is an error.
fn attempt(
    case: &Case,
    world: &mut World,
    nodes: usize,
    budget: &mut Budget,
) -> (usize, Option<AllocateError>) {
    world.matches.begin_attempt();
    let demand = case.demand(&mut world.matches);
    for number in 0..nodes {
        let node = NodeRecord { name: format!("n{number}").into(), ..NodeRecord::default() };
        let cluster = Cluster { inventory: &world.inventory, allocated: &world.allocated };
        if let Err(error) = demand.allocate(cluster, &node, &mut world.matches, budget, &mut || None) {
            return (number, Some(error));
        }
    }
    (nodes, None)
}

/// A cluster of these nodes with these devices on each, and claims.
fn cluster(nodes: usize, devices: &str, claims: &str) -> (Case, World) {
    let slices: String =
        (0..nodes).map(|n| format!("slice s{n} a/p{n} n{n}\ndev {devices}\n")).collect::<Vec<_>>().concat();
    let case = notation::read_one(&format!("{slices}{claims}"));
    let world = case.world();
    (case, world)
}

/// The attribute in which all devices of [`distinct`] differ.
const ID: &str = "device.attributes['a.example.com'].id";

/// As [`cluster`], where no two devices have the same `id`.
fn distinct(nodes: usize, each: usize, claims: &str) -> (Case, World) {
    let device = |node, number| format!("dev d{number} id={}\n", node * each + number);
    let slice = |n| {
        let devices: Vec<_> = (1..=each).map(|number| device(n, number)).collect();
        format!("slice s{n} a/p{n} n{n}\n{}", devices.concat())
    };
    let slices = (0..nodes).map(slice).collect::<Vec<_>>().concat();
    let case = notation::read_one(&format!("{slices}{claims}"));
    let world = case.world();
    (case, world)
}

/// A selector that matches nothing and costs nearly as much as one evaluation may.
fn hostile() -> String {
    let list = |most: usize| format!("{:?}", (0..most).collect::<Vec<_>>());
    let (many, few) = (list(99), list(4));
    format!("{ID} < 0 || !({many}.all(a, {many}.all(b, {few}.all(c, a + b + c >= 0))))")
}

#[test]
fn a_hostile_selector_ends_the_attempt_and_is_named() {
    let claims = format!("claim x\nrequest r c 1 where {}", hostile());
    let (case, mut world) = distinct(100, 8, &claims);
    let mut budget = Budget::new(4_000_000);
    let (asked, error) = attempt(&case, &mut world, 100, &mut budget);
    let error = error.unwrap().to_string();
    assert!(asked < 5 && world.matches.evaluations() < 20, "{asked} nodes");
    let expected =
        "the limit of the attempt is exceeded at claim default/x: selector #0 on device a.example.com/p0/d";
    assert!(error.starts_with(expected), "{error}");
    assert!(budget.is_exhausted());
}

#[test]
fn known_answers_are_charged_as_new_ones() {
    let claims = format!("claim x\nrequest r c 1 where {ID} < 0 || [1, 2].all(a, a > 5)");
    let (case, mut world) = distinct(40, 8, &claims);
    let mut run = || {
        let mut budget = Budget::new(100_000);
        assert_eq!(attempt(&case, &mut world, 40, &mut budget), (40, None));
        (budget.left(), world.matches.evaluations())
    };
    let (new, known) = (run(), run());
    assert_eq!(new, known);
    assert_eq!(new.1, 320);
}

#[test]
fn devices_that_look_alike_are_asked_about_once() {
    let selector = format!("{ID} < 0");
    let claims = format!("claim x\nrequest r c 1 where {selector}");
    let evaluations = |(case, mut world): (Case, World)| {
        let mut budget = Budget::new(100_000);
        assert_eq!(attempt(&case, &mut world, 40, &mut budget), (40, None));
        (world.matches.evaluations(), budget.left())
    };
    let (alike, cheap) = evaluations(cluster(40, "d1-8 id=1", &claims));
    let (others, dear) = evaluations(distinct(40, 8, &claims));
    assert_eq!((alike, others), (1, 320));
    assert!(cheap > dear, "{cheap:?} and {dear:?} are left");
}

/// The most steps that an attempt with the scheduler's budget may take: of up to 60 ns each, they
/// are less than 250 ms.
const MOST_STEPS: u64 = 2_000_000 + 2_000_000;
/// The least steps for a device that no other looks like.
const LEAST_STEPS: u64 = 8 + 32 + 1;

#[test]
fn no_claim_takes_more_than_a_limit_on_any_number_of_devices() {
    let claims = format!("claim x\nrequest r c 1 where {ID} < 0 || [1, 2, 3, 4].all(a, a > 5)");
    let (case, mut world) = distinct(5_000, 16, &claims);
    let (asked, error) = attempt(&case, &mut world, 5_000, &mut Budget::new(2_000_000));
    assert!(asked > 1_000 && error.is_some(), "{asked} nodes");
    let evaluations = world.matches.evaluations();
    assert!(evaluations < MOST_STEPS / LEAST_STEPS, "{evaluations} evaluations");
}

#[test]
fn ordinary_selectors_fit_in_a_large_cluster() {
    let id = format!("{ID} == -1");
    let model = format!("device.driver == 'a.example.com' && {} == 'x'", ID.replace("id", "model"));
    for (selector, values) in [(id, ""), (model, " model=\"y\" a=1 b=2 c=3 d=4 e=5 f=6")] {
        let claims = format!("claim x\nrequest r c 1 where {selector}");
        let (case, mut world) = if values.is_empty() {
            distinct(5_000, 12, &claims)
        } else {
            cluster(5_000, &format!("d1-16 id=1{values}"), &claims)
        };
        let (asked, error) = attempt(&case, &mut world, 5_000, &mut Budget::new(2_000_000));
        assert_eq!((asked, error), (5_000, None), "{selector}");
    }
}

#[test]
fn a_request_without_devices_ends_the_search_before_it_goes_back() {
    let claims = "claim x\nrequest r c 8\nclaim y\nrequest r c 1 where false";
    let (case, mut world) = cluster(1, "d1-16", claims);
    let mut budget = Budget::new(100_000);
    assert_eq!(attempt(&case, &mut world, 1, &mut budget), (1, None));
    let taken = 100_000 + 16 * (64 + 12) - budget.left().unwrap();
    assert!(taken < 500, "{taken} steps");
}

#[test]
fn selectors_that_are_too_long_in_all_are_not_compiled() {
    let requests: String = (0..8)
        .map(|i| format!("request r{i} c 1 where {i} == {}\n", "1+".repeat(5_000) + "1"))
        .collect::<Vec<_>>()
        .concat();
    let (case, mut world) = cluster(1, "d1", &format!("claim x\n{requests}"));
    let error = attempt(&case, &mut world, 1, &mut Budget::unlimited()).1.unwrap().to_string();
    let text = "claim default/x, request r3: the selectors of all claims are longer than 32768 bytes";
    assert_eq!(error, text);
}

#[test]
fn one_budget_is_for_all_nodes() {
    let (case, mut world) = cluster(100, "d1-16", "claim x\nrequest r c 8\nrequest s c 9");
    let mut budget = Budget::new(1_000_000);
    let (asked, error) = attempt(&case, &mut world, 100, &mut budget);
    let text = "the limit of the attempt is exceeded at claim default/x, request s";
    assert_eq!((asked, error.unwrap().to_string().as_str()), (0, text));
    let (case, mut world) = cluster(100, "d1-6", "claim x\nrequest r c 3\nrequest s c 4");
    let (asked, error) = attempt(&case, &mut world, 100, &mut Budget::new(20_000));
    assert!((1..100).contains(&asked) && error.is_some(), "{asked} nodes");
}

#[test]
fn answers_within_a_budget_are_those_of_the_whole_search() {
    let mut shorter = 0;
    for seed in 0..3_000 {
        let case = Generator::new(seed).case();
        let Some(whole) = case.ask_here() else { continue };
        let limited = case.ask_within(&mut case.world(), || Budget::new(u64::MAX / 2)).unwrap();
        for (whole, limited) in whole.iter().zip(limited) {
            shorter += usize::from(limited.steps < whole.steps);
            assert_eq!(case::Outcome { steps: whole.steps, ..limited }, *whole, "seed {seed}");
        }
    }
    assert!(shorter > 20, "{shorter} searches ended early");
}

/// A claim with selectors that no other claim has.
fn with_selectors(number: usize) -> Arc<Object> {
    let selector = |i: usize| {
        let list: Vec<_> = (0..100).map(|j| number * 1_000_000 + i * 1_000 + j).collect();
        Some(format!("{list:?}.exists(a, a < 0)").into())
    };
    let request = DeviceRequest {
        class: "c".into(),
        selectors: (0..24).map(selector).collect(),
        ..DeviceRequest::default()
    };
    let choice = RequestChoice::Exactly(request);
    let requests = Box::new([ClaimRequest { name: "r".into(), choice }]);
    object("default/x", Body::ResourceClaim(ResourceClaim { requests, ..ResourceClaim::default() }))
}

#[test]
fn selectors_of_claims_that_are_gone_give_their_memory_back() {
    let mut world = World::new();
    let class = object("c", Body::DeviceClass(DeviceClass::default()));
    let mut demand = |number| {
        let claims = [with_selectors(number)];
        let demand = Demand::new(Default::default(), &claims, |_| Some(class.clone()), &mut world.matches);
        (demand.bytes(), demand)
    };
    let (size, held) = demand(0);
    let total: usize = (1..400).map(|number| demand(number).0).sum();
    drop(demand(400));
    assert!(total > 64 << 20, "{total} bytes in all");
    let bytes = world.matches.bytes();
    assert!(bytes <= 32 << 20 && bytes > 8 << 20, "{bytes} bytes");
    // Once for those that were used since.
    world.matches.forget_unused();
    world.matches.forget_unused();
    let bytes = world.matches.bytes();
    assert!(bytes >= size && bytes < 2 * size, "{bytes} bytes, of which {size} are held");
    drop(held);
    world.matches.forget_unused();
    assert_eq!(world.matches.bytes(), 0);
}
