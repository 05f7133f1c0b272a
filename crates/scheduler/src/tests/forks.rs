//! How often the state may be copied.

use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::testing::{node, pod};

use super::test_bed::{TestBed, all_plugins, options};
use crate::{ForkPace, Input, Notification};

#[test]
fn a_fork_is_shared_longer_if_nodes_change_meanwhile() {
    let mut pace = ForkPace::default();
    let mut millis = |copied| pace.share_for(Duration::from_millis(1), copied).as_millis();
    assert_eq!([0, 10_000, 10_000, 1_000_000_000].map(&mut millis), [100, 250, 100, 5000]);
    assert_eq!(millis(7), 100, "another scheduler");
}

#[test]
fn only_the_first_change_after_a_fork_copies() {
    let mut bed = TestBed::of(options(all_plugins(Vec::new())));
    bed.node(node("n1").allocatable("cpu", "8"));
    let add = |bed: &mut TestBed, name: &str| {
        let before = bed.scheduler.cache().copied();
        bed.handle(Input::AssignedPod(Notification::Added(Arc::new(pod(name).node("n1").build()))));
        bed.scheduler.cache().copied() - before
    };
    assert_eq!(add(&mut bed, "a"), 0);
    let fork = bed.scheduler.fork(bed.now, options(all_plugins(Vec::new()))).unwrap();
    // The node with a pod, and the pod again if it is in the same part.
    assert!((2..=3).contains(&add(&mut bed, "b")));
    assert_eq!(add(&mut bed, "b-2"), 0);
    drop(fork);
    assert_eq!(add(&mut bed, "c"), 0);
}
