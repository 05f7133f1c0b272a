//! Nodes that are too small even when empty are skipped by totals, and filters run only where they
//! matter.

use std::cell::Cell;

use supercargo_framework::PodTotals;
use supercargo_framework::caching::CachingFilters;

use super::*;

/// [`ByCpu`] that can answer from totals, and counts its calls.
#[derive(Default)]
struct ByTotals {
    at_first: Cell<usize>,
    again: Cell<usize>,
}

fn count(calls: &Cell<usize>) {
    calls.set(calls.get() + 1);
}

impl RunFilters for ByTotals {
    fn run_filters(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        count(&self.at_first);
        ByCpu.run_filters(state, pod, node)
    }

    fn add_pod(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeInfo) -> Status {
        panic!("no state depends on the pods")
    }

    fn remove_pod(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeInfo) -> Status {
        panic!("no state depends on the pods")
    }

    fn extend_preemption(
        &self,
        pod: &Arc<PodInfo>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status> {
        ByCpu.extend_preemption(pod, candidates)
    }

    fn caching(&self) -> Option<&dyn CachingFilters> {
        Some(self)
    }
}

impl CachingFilters for ByTotals {
    fn run_filters_again(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        count(&self.again);
        ByCpu.run_filters(state, pod, node)
    }

    fn filter_totals(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
        totals: &PodTotals,
    ) -> Option<Status> {
        let others = super::pod("others").request("cpu", &format!("{}m", totals.requested.milli_cpu));
        Some(ByCpu.run_filters(state, pod, &node_info((**node.node()).clone(), [others.build()])))
    }

    fn follow_pods(&self) -> bool {
        false
    }
}

/// The result, and how often `run_filters` and `run_filters_again` ran.
pub(super) fn with_totals(pod: PodBuilder, cluster: &Nodes, objects: &Objects) -> (Answer, usize, usize) {
    let filters = ByTotals::default();
    let answer = run(&driver(NAME).points, pod, cluster, objects, &filters, None);
    (answer, filters.at_first.get(), filters.again.get())
}

#[test]
fn nodes_too_small_even_when_empty_are_skipped() {
    let full = |name: &str| {
        let low = |i: u32| cpus(&format!("{name}-low-{i}"), 1);
        four(name, [cpus(&format!("{name}-high"), 2).priority(9), low(1), low(2)])
    };
    let cluster = nodes([full("a"), full("b"), four("c", [cpus("equal", 4).priority(1)])]);
    let high = || cpus("p", 3).priority(1);
    let (answer, at_first, again) = with_totals(high(), &cluster, &Objects::default());
    assert_eq!(answer, post_filter(high(), &cluster, &Objects::default()));
    let status = none_found(
        "0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Insufficient cpu.",
    );
    assert_eq!((answer.status, at_first, again), (status, 0, 0));
}

#[test]
fn filters_run_once_per_reprieve_candidate() {
    let cluster = nodes([four("a", [cpus("one", 1), cpus("two", 2), cpus("other", 1)])]);
    let high = || cpus("p", 2).priority(1);
    let (answer, at_first, again) = with_totals(high(), &cluster, &Objects::default());
    assert_eq!(answer, post_filter(high(), &cluster, &Objects::default()));
    assert_eq!((at_first, again), (0, 3));
}
