//! The limit of a search: `filterTimeout`.

use supercargo_framework::objects::{DeviceCount, Objects};
use supercargo_framework::pod::RareSpec;
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::testing::{node, node_info, nodes, pod};
use supercargo_framework::{Code, Status};

use super::*;
use crate::dynamic_resources::NAME;
use crate::testing::driver_with_args;

/// The verdict on a node with nine devices for a claim of this many and then as many again.
fn verdict(args: &Value, count: i64) -> Status {
    let names: Vec<String> = (0..9).map(|i| format!("gpu-{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let twice = claim("c", |claim| {
        let request = |name: &str| {
            let request =
                DeviceRequest { class: "gpu".into(), count: DeviceCount::Exact(count), ..Default::default() };
            ClaimRequest { name: name.into(), choice: RequestChoice::Exactly(request) }
        };
        claim.requests = Box::new([request("r"), request("s")]);
    });
    let mut objects = Objects::default();
    for object in [class(), slice("s", &names, 1), twice] {
        objects.insert(object.into());
    }
    let entry = PodClaim { name: "c".into(), source: PodClaimSource::Claim("c".into()) };
    let rare = RareSpec { resource_claims: Box::new([entry]), ..RareSpec::default() };
    let pod = pod("p").with_spec(|spec| spec.rare = Some(Box::new(rare))).build();
    let cluster = nodes([node_info(node("n").build(), [])]);
    driver_with_args(NAME, args.clone()).verdicts(&pod, &cluster, &objects).remove(0)
}

#[test]
fn a_search_beyond_the_filter_timeout_ends_the_attempt() {
    let short = json!({"filterTimeout": "100us"});
    let late = verdict(&short, 5);
    assert_eq!(
        (late.code(), late.message().as_str()),
        (Code::Error, "node n: timed out trying to allocate devices")
    );
    assert!(verdict(&short, 4).is_success());
}

#[test]
fn a_filter_timeout_of_zero_is_no_limit() {
    let unlimited = verdict(&json!({"filterTimeout": "0s"}), 11);
    assert_eq!(
        (unlimited.code(), unlimited.message().as_str()),
        (Code::UnschedulableAndUnresolvable, "cannot allocate all claims")
    );
}
