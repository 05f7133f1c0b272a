//! The limit of a search, `filterTimeout`; claims that other pods are about to write.

use supercargo_framework::objects::{DeviceCount, Objects};
use supercargo_framework::plugin::PreFilter;
use supercargo_framework::pod::RareSpec;
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::testing::giants::Hostile;
use supercargo_framework::testing::{Driver, node, node_info, nodes, pod};
use supercargo_framework::{Code, Context, CycleState, Feature, Features, Nodes, PodInfo, Status};

use super::*;
use crate::testing::{driver_with_args, driver_with_features};

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
    verdict_with(&objects, args)
}

/// A pod with the claim `c` under this many names.
fn pod_with_claim(names: usize) -> PodInfo {
    let entry =
        |number| PodClaim { name: format!("c{number}").into(), source: PodClaimSource::Claim("c".into()) };
    let rare = RareSpec { resource_claims: (0..names).map(entry).collect(), ..RareSpec::default() };
    pod("p").with_spec(|spec| spec.rare = Some(Box::new(rare))).build()
}

/// The verdict on a node for a pod with the claim `c`.
fn verdict_with(objects: &Objects, args: &Value) -> Status {
    let pod = pod_with_claim(1);
    let cluster = nodes([node_info(node("n").build(), [])]);
    driver_with_args(args.clone()).verdicts(&pod, &cluster, objects).remove(0)
}

#[test]
fn a_pod_waits_for_a_claim_that_another_is_about_to_write() {
    let mut objects = Objects::default();
    for object in [class(), slice("s", &["a", "b"], 1), claim("c", |_| {})] {
        objects.insert(object.into());
    }
    assert!(objects.add_pending(claim("c", |body| body.allocation = Some(allocation("a"))).into()));
    let status = verdict_with(&objects, &json!({}));
    let text = "resource claim default/c is in the process of being allocated";
    assert_eq!((status.code(), &*status.message()), (Code::UnschedulableAndUnresolvable, text));
    objects.remove_pending("uid-default/c");
    assert!(verdict_with(&objects, &json!({})).is_success());
}

#[test]
fn a_prioritized_list_needs_its_feature_gate() {
    let choice = RequestChoice::FirstAvailable(Box::default());
    let list = claim("c", |claim| claim.requests = Box::new([ClaimRequest { name: "r".into(), choice }]));
    let mut objects = Objects::default();
    objects.insert(list.into());
    let cluster = nodes([node_info(node("n").build(), [])]);
    let cx = Context::at_rest(&cluster, &objects);
    let features = Features::default().with(Feature::DRAPrioritizedList, false);
    let pre_filter = driver_with_features(&features).points.pre_filter.unwrap();
    let answer = pre_filter.pre_filter(&cx, &mut CycleState::new(), &pod_with_claim(1));
    let PreFilter::Reject(status) = answer else { panic!("{answer:?}") };
    let text = "resource claim default/c, request r: has subrequests, \
                but the DRAPrioritizedList feature is disabled";
    assert_eq!((status.code(), &*status.message()), (Code::UnschedulableAndUnresolvable, text));
}

#[test]
fn a_claim_under_many_names_is_looked_at_once_on_each_node() {
    let mut allocation = allocation("a");
    allocation.results[0].skips_node_operations = true;
    let mut objects = Objects::default();
    objects.insert(claim("c", |claim| claim.allocation = Some(allocation)).into());
    let (nodes, mut state) = (Nodes::default(), CycleState::new());
    let cx = Context::at_rest(&nodes, &objects);
    let pre_filter = driver_with_args(json!({})).points.pre_filter.unwrap();
    pre_filter.pre_filter(&cx, &mut state, &pod_with_claim(10_000));
    let claims = crate::claims(&state).unwrap();
    assert_eq!((claims.all.len(), claims.limits.len()), (10_000, 1));
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

/// The verdicts of one attempt on nodes with 16 devices each, up to the first error.
fn attempt(hostile: Hostile, plugin: &Driver, count: usize) -> Vec<Status> {
    let mut objects = Objects::default();
    for object in hostile.objects(count) {
        objects.insert(object.into());
    }
    let cluster = nodes((0..count).map(|i| node_info(node(&format!("node-{i}")).build(), [])));
    let cx = Context::at_rest(&cluster, &objects);
    let (pod, mut state) = (hostile.pod("p"), CycleState::new());
    plugin.points.pre_filter.as_ref().unwrap().pre_filter(&cx, &mut state, &pod);
    let filter = plugin.points.filter.as_ref().unwrap();
    let mut verdicts = Vec::new();
    for (_, node) in cluster.iter() {
        verdicts.push(filter.filter(&cx, &state, &pod, node));
        if verdicts.last().is_some_and(|verdict| verdict.code() == Code::Error) {
            break;
        }
    }
    verdicts
}

#[test]
fn searches_on_all_nodes_together_end_with_the_attempts_budget() {
    let plugin = driver_with_args(json!({"filterTimeout": "0s"}));
    for (hostile, expected) in [
        (
            Hostile::Selector,
            "timed out trying to allocate devices: the limit of the attempt is exceeded at claim \
             default/k000000: selector #0 on device",
        ),
        (
            Hostile::Pair,
            "timed out trying to allocate devices: the limit of the attempt is exceeded at claim \
             default/k000001, request r",
        ),
    ] {
        // Another attempt has a budget of its own.
        for _ in 0..2 {
            let verdicts = attempt(hostile, &plugin, 2_000);
            let last = verdicts.last().unwrap();
            assert_eq!(last.code(), Code::Error, "{hostile:?}");
            assert!(last.message().contains(expected), "{hostile:?}: {}", last.message());
        }
    }
}

#[test]
fn a_request_without_devices_takes_no_long_search() {
    let plugin = driver_with_args(json!({}));
    let verdicts = attempt(Hostile::Hopeless, &plugin, 5_000);
    assert_eq!(verdicts.len(), 5_000);
    assert!(verdicts.iter().all(|verdict| verdict.code() == Code::UnschedulableAndUnresolvable));
}

#[test]
fn a_filter_timeout_of_zero_is_no_limit() {
    let unlimited = verdict(&json!({"filterTimeout": "0s"}), 11);
    assert_eq!(
        (unlimited.code(), unlimited.message().as_str()),
        (Code::UnschedulableAndUnresolvable, "cannot allocate all claims")
    );
}
