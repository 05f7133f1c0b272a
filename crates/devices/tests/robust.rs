//! Objects that the API server would not admit, and long searches: no panic, and bounded time and
//! stack.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_imports,
    clippy::default_trait_access,
    clippy::disallowed_types,
    clippy::disallowed_methods
)] // a test chooses a small stack

#[path = "upstream/shared.rs"]
mod shared;

use std::sync::Arc;

use case::Case;
use shared::generate::Generator;
use shared::{case, notation};
use supercargo_devices::{AllocateError, Budget, Cluster};
use supercargo_framework::NodeRecord;
use supercargo_framework::objects::*;

/// The answer about `n0`, and the number of steps, at most `most`.
fn allocate(case: &Case, most: u64) -> (Result<bool, AllocateError>, u64) {
    let mut world = case.world();
    let demand = case.demand(&mut world.matches);
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
    let mut case = notation::read_one("slice s a/p n0\ndev d1\nclaim x\nrequest r c");
    for choice in [RequestChoice::Unknown, RequestChoice::FirstAvailable(Box::default())] {
        case.claims[0].1.requests[0].choice = choice;
        let error = allocate(&case, 10).0.unwrap_err();
        let text = "claim default/x, request r: missing device class name (unsupported request type?)";
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn interrupt_ends_an_exponential_search() {
    let case = notation::read_one("slice s a/p n0\ndev d1-30\nclaim x\nrequest r c 15\nrequest o c 16");
    let (found, steps) = allocate(&case, 10_000);
    assert_eq!(found.unwrap_err().to_string(), "filter operation aborted: context deadline exceeded");
    assert_eq!(steps, 10_001);
}

#[test]
fn many_claims_need_little_stack() {
    let mut case = notation::read_one("slice s a/p n0\ndev d1 shared");
    let claim = notation::read_one("claim x\nrequest r c").claims.remove(0).1;
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
