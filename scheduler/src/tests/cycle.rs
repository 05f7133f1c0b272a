//! The scheduling cycle.

use supercargo_framework::testing::{node, pod};

use super::bed::Bed;

#[test]
fn a_pod_is_bound_to_the_only_node() {
    let mut bed = Bed::new();
    bed.node(node("n1"));
    bed.pod(pod("a"));
    assert!(bed.cycle());
    assert_eq!(bed.said(), ["a bind to n1"]);
    assert!(!bed.cycle());
}
