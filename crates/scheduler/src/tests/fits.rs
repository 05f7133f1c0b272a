//! How many more pods like one fit.

use std::sync::Arc;

use proptest::prelude::*;
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use supercargo_framework::topology_spread::TopologySpreadConstraint;

use super::test_bed::{TestBed, all_plugins, options};
use crate::{Fits, WhyError};

pub(super) fn bed(nodes: &[(&str, u32)]) -> TestBed {
    let mut bed = TestBed::of(options(all_plugins(Vec::new())));
    for (name, cpus) in nodes {
        bed.node(with_cpus(name, *cpus));
    }
    bed
}

pub(super) fn with_cpus(name: &str, cpus: u32) -> NodeBuilder {
    node(name)
        .allocatable("cpu", &cpus.to_string())
        .allocatable("pods", "100")
        .label("kubernetes.io/hostname", name)
        .label("size", &cpus.to_string())
        .label("zone", &name[..1])
}

pub(super) fn asks(name: &str, cpus: u32) -> PodBuilder {
    pod(name).request("cpu", &cpus.to_string())
}

fn fits(bed: TestBed, pod: PodBuilder, most: usize) -> Result<Fits, WhyError> {
    let now = bed.now;
    bed.scheduler.fits(now, &pod.build(), most, &|| false)
}

fn by_node(fits: &Fits) -> String {
    fits.by_node.iter().map(|(node, pods)| format!("{node} {pods}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn pods_fit_until_a_resource_runs_out() {
    let fits = fits(bed(&[("a", 4), ("b", 7)]), asks("p", 2), 100).unwrap();
    assert_eq!((by_node(&fits).as_str(), fits.count()), ("a 2, b 3", 5));
    let then = fits.then.unwrap();
    assert_eq!(
        then.refusals.iter().map(|it| (&*it.reason, it.nodes.len())).collect::<Vec<_>>(),
        [("Insufficient cpu", 2)]
    );
}

#[test]
fn the_limit_ends_the_count() {
    let fits = fits(bed(&[("a", 9)]), asks("p", 1), 3).unwrap();
    assert_eq!((fits.count(), fits.then.is_none()), (3, true));
}

#[test]
fn spreading_limits_what_room_allows() {
    let constraint = TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "zone".into(),
        hard: true,
        selector: Some(LabelSelector::parse(&[("app", "web")].into_iter().collect(), []).unwrap()),
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Box::default(),
    };
    let web = asks("p", 1).label("app", "web").with_spec(|spec| spec.topology_spread = [constraint].into());
    let fits = fits(bed(&[("a", 2), ("b", 9)]), web, 100).unwrap();
    assert_eq!(by_node(&fits), "a 2, b 3");
}

#[test]
fn pods_of_lower_priority_stay() {
    let mut bed = bed(&[("a", 2)]);
    bed.assigned(asks("low", 1).node("a"));
    let fits = fits(bed, asks("p", 1).priority(9), 100).unwrap();
    assert_eq!(fits.count(), 1);
}

proptest! {
    /// As many fit when they are really created, and no more.
    #[test]
    fn as_many_pods_fit_as_are_said_to(cpus in prop::collection::vec(1_u32..9, 1..6), asked in 1_u32..5) {
        let names: Vec<String> = (0..cpus.len()).map(|i| format!("{i}")).collect();
        let nodes: Vec<(&str, u32)> = names.iter().map(String::as_str).zip(cpus.iter().copied()).collect();
        let fit = fits(bed(&nodes), asks("p", asked), 100).unwrap().count();
        let mut bed = bed(&nodes);
        for i in 0..=fit {
            bed.pod(asks(&format!("p{i}"), asked));
            bed.cycle();
        }
        let placed = |i: usize| bed.scheduler.cache.node_of(&Arc::new(asks(&format!("p{i}"), asked).build()).uid).is_some();
        prop_assert!((0..fit).all(placed) && !placed(fit));
    }
}
