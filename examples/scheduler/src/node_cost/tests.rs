use serde_json::json;
use supercargo_framework::testing::caching::Histories;
use supercargo_framework::testing::{Driver, node, pod};

use super::*;

fn plugin() -> Arc<NodeCost> {
    Arc::new(NodeCost { args: Args::default() })
}

fn priced(price: &str) -> NodeRecord {
    node("n").label("example.com/price", price).build()
}

/// The verdict on a node with this price, for a pod with this limit.
fn verdict(max: Option<&str>, price: &str) -> Status {
    let pod = max.map_or(pod("p"), |max| pod("p").label("example.com/max-price", max)).build();
    Driver::new(plugin()).filter(&pod, &NodeInfo::new(Arc::new(priced(price))))
}

#[test]
fn nodes_above_the_limit_are_rejected() {
    assert_eq!(verdict(None, "100"), Status::success());
    assert_eq!(verdict(Some("5"), "5"), Status::success());
    assert_eq!(verdict(Some("5"), "6"), Status::unresolvable(TOO_EXPENSIVE));
    assert_eq!(verdict(Some("5"), "cheap"), Status::success(), "an invalid price counts as free");
    assert_eq!(
        verdict(Some("much"), "1"),
        Status::unresolvable("pod label example.com/max-price is \"much\", not a number")
    );
}

#[test]
fn only_a_node_that_becomes_affordable_wakes_the_pod() {
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
fn invalid_arguments_are_rejected_with_their_path() {
    let error = |args| from_args(&args, &Features::default()).err().map(|error| error.to_string());
    assert_eq!(error(json!({})), None);
    assert_eq!(error(json!({"priceLabel": "a/b"})), None);
    assert_eq!(error(json!({"priceLabel": ""})), Some("priceLabel: must be the key of a label".to_owned()));
    assert!(error(json!({"pricelabel": "a"})).is_some_and(|error| error.contains("unknown field")));
}

#[test]
fn cached_answers_equal_fresh_ones() {
    let histories = Histories::new(
        |random| match random.pick(&[None, Some("2"), Some("5")]) {
            Some(max) => pod("p").label("example.com/max-price", max).build(),
            None => pod("p").build(),
        },
        |random, name| node(name).label("example.com/price", random.pick(&["1", "3", "8"])).build(),
    );
    assert!(histories.check(plugin(), 100) > 0);
}
