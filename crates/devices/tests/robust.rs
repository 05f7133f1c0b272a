//! Objects that the API server would not admit, and long searches: no panic, and bounded time and
//! stack.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::format_push_string,
    clippy::wildcard_imports,
    clippy::default_trait_access,
    clippy::match_same_arms,
    clippy::needless_for_each,
    clippy::new_without_default
)] // a test shares its generator with others, and chooses a small stack

#[path = "upstream/case.rs"]
mod case;
#[path = "upstream/generate.rs"]
mod generate;
#[path = "upstream/notation.rs"]
mod notation;

use std::sync::Arc;

use case::{Case, object};
use generate::Generator;
use supercargo_devices::{AllocateError, Budget, Cluster, Demand};
use supercargo_framework::NodeRecord;
use supercargo_framework::objects::*;

fn read(text: &str) -> Case {
    notation::read(&format!("\ncase x\n{text}")).remove(0).case
}

/// The answer about `n0`, and the number of steps, at most `most`.
fn allocate(case: &Case, most: u64) -> (Result<bool, AllocateError>, u64) {
    let mut world = case.world();
    let claims: Vec<_> = case
        .claims
        .iter()
        .map(|(name, claim)| object(&format!("default/{name}"), Body::ResourceClaim(claim.clone())))
        .collect();
    let class = object("c", Body::DeviceClass(DeviceClass::default()));
    let demand = Demand::new(case.features, &claims, |_| Some(class.clone()), &mut world.matches);
    let node = NodeRecord { name: "n0".into(), ..NodeRecord::default() };
    let cluster = Cluster { inventory: &world.inventory, allocated: &world.allocated };
    let mut steps = 0;
    let found = demand.allocate(cluster, &node, &mut world.matches, &mut Budget::unlimited(), &mut || {
        steps += 1;
        (steps > most).then(|| "context deadline exceeded".into())
    });
    (found.map(|found| found.is_some()), steps)
}

#[test]
fn requests_without_a_known_form_are_refused() {
    let mut case = read("slice s a/p n0\ndev d1\nclaim x\nrequest r c");
    for choice in [RequestChoice::Unknown, RequestChoice::FirstAvailable(Box::default())] {
        case.claims[0].1.requests[0].choice = choice;
        let error = allocate(&case, 10).0.unwrap_err();
        let text = "claim default/x, request r: missing device class name (unsupported request type?)";
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn interrupt_ends_an_exponential_search() {
    let case = read("slice s a/p n0\ndev d1-30\nclaim x\nrequest r c 15\nrequest o c 16");
    let (found, steps) = allocate(&case, 10_000);
    assert_eq!(found.unwrap_err().to_string(), "filter operation aborted: context deadline exceeded");
    assert_eq!(steps, 10_001);
}

#[test]
fn many_claims_need_little_stack() {
    let mut case = read("slice s a/p n0\ndev d1 shared");
    let claim = read("claim x\nrequest r c").claims.remove(0).1;
    case.claims = (0..10_000).map(|number| (format!("x{number}"), claim.clone())).collect();
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(move || allocate(&case, u64::MAX));
    let (found, steps) = thread.unwrap().join().unwrap();
    assert_eq!((found, steps), (Ok(true), 30_001));
}

#[test]
fn invalid_quantities_do_not_panic() {
    const WRONG: &[&str] = &[
        "",
        "x",
        "0",
        "-1",
        "1e99",
        "-1e99",
        "1e-99",
        "9223372036854775807",
        "-9223372036854775808",
        "1n",
        "10E",
        "0Ki",
    ];
    for seed in 0..3_000 {
        let mut case = Generator::new(seed).case();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut spoil = |text: &mut Arc<str>| {
            if rng.u32(..3) == 0 {
                *text = WRONG[rng.usize(..WRONG.len())].into();
            }
        };
        for (_, slice) in &mut case.slices {
            slice
                .shared_counters
                .iter_mut()
                .flat_map(|set| &mut set.counters)
                .for_each(|(_, text)| spoil(text));
            for device in &mut slice.devices {
                for (_, capacity) in &mut device.capacity {
                    spoil(&mut capacity.value);
                    let Some(policy) = &mut capacity.policy else { continue };
                    policy.default.iter_mut().for_each(&mut spoil);
                    policy.valid_values.iter_mut().for_each(&mut spoil);
                    if let Some(range) = &mut policy.valid_range {
                        [&mut range.min, &mut range.max, &mut range.step]
                            .into_iter()
                            .flatten()
                            .for_each(&mut spoil);
                    }
                }
                let used = device.consumes_counters.iter_mut();
                used.flat_map(|used| &mut used.counters).for_each(|(_, text)| spoil(text));
            }
        }
        case.allocated.iter_mut().flat_map(|result| &mut result.consumed).for_each(|(_, text)| spoil(text));
        for (_, claim) in &mut case.claims {
            for request in &mut claim.requests {
                if let RequestChoice::Exactly(request) = &mut request.choice {
                    request.capacity.iter_mut().flatten().for_each(|(_, text)| spoil(text));
                }
            }
        }
        let _ = allocate(&case, 500);
    }
}
