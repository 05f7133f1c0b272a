use serde_json::json;
use supercargo_framework::Now;
use supercargo_framework::objects::Objects;
use supercargo_framework::testing::{node, pod};

use super::*;

fn plugin() -> Arc<NodeCost> {
    Arc::new(NodeCost { args: Args::default() })
}

fn priced(price: &str) -> NodeRecord {
    node("n").label("example.com/price", price).build()
}

/// The verdict on a node of this price, for a pod that may cost so much.
fn verdict(max: Option<&str>, price: &str) -> Status {
    let (nodes, objects) = (supercargo_framework::Nodes::default(), Objects::default());
    let cx = Context::new(&nodes, &objects, &[], Now::default());
    let mut state = CycleState::new();
    let pod = max.map_or(pod("p"), |max| pod("p").label("example.com/max-price", max)).build();
    match plugin().pre_filter(&cx, &mut state, &pod) {
        PreFilter::Reject(status) => status,
        PreFilter::Skip => Status::success(),
        _ => plugin().filter(&cx, &state, &pod, &NodeInfo::new(Arc::new(priced(price)))),
    }
}

#[test]
fn a_pod_stays_off_nodes_that_cost_more_than_it_may() {
    assert_eq!(verdict(None, "100"), Status::success());
    assert_eq!(verdict(Some("5"), "5"), Status::success());
    assert_eq!(verdict(Some("5"), "6"), Status::unresolvable(TOO_EXPENSIVE));
    assert_eq!(verdict(Some("5"), "cheap"), Status::success(), "a price that is none is free");
    assert_eq!(
        verdict(Some("much"), "1"),
        Status::unresolvable("label example.com/max-price of the pod is \"much\", which is no number")
    );
}

#[test]
fn only_a_node_that_becomes_affordable_helps() {
    let waiting = pod("p").label("example.com/max-price", "5").build();
    let change = |old: Option<&str>, new: &str| Change::Node {
        old: old.map(|old| Arc::new(priced(old))),
        new: Some(Arc::new(priced(new))),
    };
    let cases = [
        (change(None, "5"), QueueingHint::Queue),
        (change(None, "6"), QueueingHint::Skip),
        (change(Some("6"), "5"), QueueingHint::Queue),
        (change(Some("4"), "5"), QueueingHint::Skip),
    ];
    for (change, expected) in cases {
        assert_eq!(plugin().after_node_change(&waiting, &change), expected);
    }
}

#[test]
fn arguments_are_checked_where_they_stand() {
    let error = |args| from_args(&args, &Features::default()).err().map(|error| error.to_string());
    assert_eq!(error(json!({})), None);
    assert_eq!(error(json!({"priceLabel": "a/b"})), None);
    assert_eq!(error(json!({"priceLabel": ""})), Some("priceLabel: must be the key of a label".to_owned()));
    assert!(error(json!({"pricelabel": "a"})).is_some_and(|error| error.contains("unknown field")));
}
