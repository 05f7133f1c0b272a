//! Preemption. `crates/scheduler/src/tests/preemption.rs` tests that victims are deleted beside the
//! next cycles and that PreEnqueue holds the preemptor meanwhile: here, the deletions may complete
//! too early to be seen.

use supercargo_framework::Status;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::status::Reasons;

use super::super::alteration::{Alteration, Change};
use super::super::twist::{post_filter, post_filter_sees};
use super::{alter, plugin, resolvable, with_spec};

const NAME: &str = "DefaultPreemption";

pub(super) fn all() -> Vec<Alteration> {
    vec![
        alter(
            "DefaultPreemption: left out",
            "a pod that fits nowhere may make room for itself (5.16)",
            Change::Plugins(|plugins| plugins.post_filter.clear()),
            &["preemption/victim-is-deleted"],
        ),
        alter(
            "DefaultPreemption: says nothing",
            "the event says why preemption does not help (5.16)",
            plugin(
                NAME,
                post_filter(|nomination, status| {
                    let code = status.code();
                    let silent = Status::with_reasons(code, Reasons::default());
                    (nomination, if status.is_success() { status } else { silent })
                }),
            ),
            &["preemption/equal-priority-is-not-preempted"],
        ),
        alter(
            "DefaultPreemption: nominates nobody",
            "the pod is nominated to the node where room is made (5.16)",
            plugin(NAME, post_filter(|_, status| (Nomination::Keep, status))),
            &["preemption/preemptor-waits-for-terminating-victim"],
        ),
        alter(
            "DefaultPreemption: a stale nomination kept",
            "who finds no way out loses his nomination (5.16)",
            plugin(
                NAME,
                post_filter(|nomination, status| match nomination {
                    Nomination::Override(None) => (Nomination::Keep, status),
                    other => (other, status),
                }),
            ),
            &["preemption/failed-preemption-clears-nomination"],
        ),
        alter(
            "DefaultPreemption: preemptionPolicy ignored",
            "a pod whose policy is Never preempts nobody (5.16)",
            plugin(NAME, post_filter_sees(|pod, _| with_spec(pod, |spec| spec.never_preempts = false))),
            &["preemption/preemption-policy-never"],
        ),
        alter(
            "DefaultPreemption: equals give way",
            "only pods of lower priority give way (5.16)",
            plugin(NAME, post_filter_sees(|pod, _| pod.priority = pod.priority.saturating_add(1))),
            &["preemption/equal-priority-is-not-preempted"],
        ),
        alter(
            "DefaultPreemption: nobody gives way",
            "pods of lower priority give way (5.16)",
            plugin(NAME, post_filter_sees(|pod, _| pod.priority = i32::MIN)),
            &["preemption/victim-is-deleted"],
        ),
        alter(
            "DefaultPreemption: no node is beyond help",
            "nodes that no removal helps are left out (5.16)",
            plugin(
                NAME,
                post_filter_sees(|_, statuses| {
                    let absent = statuses.absent.take().map(resolvable);
                    let by_node = statuses.iter().map(|(node, status)| (node, resolvable(status.clone())));
                    *statuses = by_node.collect();
                    statuses.absent = absent;
                }),
            ),
            &["preemption/message-counts-unhelpful-nodes"],
        ),
    ]
}
