//! Random histories for [`replay`], as proptest strategies.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::{Union, ValueTree};
use proptest::test_runner::TestRunner;
use supercargo_framework::caching::Stateless;
use supercargo_framework::objects::Object;
use supercargo_framework::testing::caching::{NODES, replay};
use supercargo_framework::testing::{Driver, pod};
use supercargo_framework::{NodeInfo, PodInfo};

pub(crate) use supercargo_framework::testing::caching::Step;

/// Pods of one template, of which some have other labels: some of them have equal signatures.
pub(crate) fn of_one_template(
    template: impl Strategy<Value = PodInfo>,
    other: impl Strategy<Value = PodInfo>,
) -> impl Strategy<Value = Vec<PodInfo>> {
    (template, vec((other, any::<bool>()), 2)).prop_map(|(first, others)| {
        let like_first = |(other, labelled): (PodInfo, bool)| {
            let labels = if labelled { other.labels } else { first.labels.clone() };
            let namespace = Arc::clone(&first.namespace);
            PodInfo { labels, namespace, spec: Arc::clone(&first.spec), ..pod("other").build() }
        };
        others.into_iter().map(like_first).chain([first.clone()]).collect()
    })
}

/// Any history of such pods, nodes (by name) and objects of other kinds. It starts with nodes and
/// ends with a pod to schedule.
pub(crate) fn steps<P, N, O>(
    pods: impl Fn() -> P,
    nodes: impl Fn(String) -> N,
    objects: impl Fn() -> O,
    pods_to_schedule: usize,
) -> impl Strategy<Value = Vec<Step>>
where
    P: Strategy<Value = PodInfo> + 'static,
    N: Strategy<Value = NodeInfo> + 'static,
    O: Strategy<Value = Object> + 'static,
{
    let node = |i: usize| nodes(format!("n{i}")).prop_map(Step::SetNode);
    let place = 0..NODES;
    let any_node = (0..NODES).map(node).map(Strategy::boxed).collect::<Vec<_>>();
    let step = prop_oneof![
        6 => (place.clone(), pods()).prop_map(|(node, pod)| Step::AddPod(node, pod)),
        3 => (place.clone(), 0..9_usize).prop_map(|(node, pod)| Step::RemovePod(node, pod)),
        1 => (place.clone(), 0..9_usize, pods()).prop_map(|(node, pod, new)| Step::UpdatePod(node, pod, new)),
        1 => (place.clone(), 0..9_usize).prop_map(|(node, pod)| Step::TerminatePod(node, pod)),
        2 => Union::new(any_node).boxed(),
        1 => place.clone().prop_map(Step::RemoveNode),
        3 => place.prop_map(Step::ToggleFeasible),
        1 => objects().prop_map(Step::SetObject),
        1 => Just(Step::ClearObjects),
        12 => (0..pods_to_schedule).prop_map(Step::Schedule),
    ];
    let start = (0..NODES - 1).map(node).map(Strategy::boxed).collect::<Vec<_>>();
    (start, vec(step, 1..40), 0..pods_to_schedule).prop_map(|(start, steps, last)| {
        start.into_iter().chain(steps).chain([Step::Schedule(last)]).collect()
    })
}

/// Replays 100 histories twice: with the plugin, which must use cached answers often, and with a
/// plugin whose state follows no change, which must often be found wrong.
pub(crate) fn check_sensitivity(
    driver: &Driver,
    histories: impl Strategy<Value = (Vec<PodInfo>, Vec<Step>)>,
) {
    let mut runner = TestRunner::deterministic();
    let mut deaf = driver.points.clone();
    deaf.incremental = Some(Arc::new(Stateless));
    let (mut reused, mut found) = (0, 0);
    for _ in 0..100 {
        let (pods, steps) = histories.new_tree(&mut runner).expect("the strategy has values").current();
        reused += check(driver, &pods, steps.clone()).expect("the plugin is correct");
        found += usize::from(replay(&deaf, &pods, steps).is_err());
    }
    assert!(reused > 200 && found > 30, "reused {reused} times, found {found} times");
}

/// Replays a history; see [`replay`]. Returns how often cached answers were used.
pub(crate) fn check(driver: &Driver, pods: &[PodInfo], steps: Vec<Step>) -> Result<usize, TestCaseError> {
    replay(&driver.points, pods, steps).map_err(|mismatch| TestCaseError::fail(mismatch.to_string()))
}
