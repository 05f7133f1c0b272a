//! Preemption. `crates/scheduler/src/tests/preemption.rs` tests that victims are deleted beside the
//! next cycles and that PreEnqueue holds the preemptor meanwhile: here, the deletions may complete
//! too early to be seen.

use supercargo_framework::Status;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::status::Reasons;

use super::super::alteration::{Alteration, Change};
use super::super::altered_plugin::{post_filter, post_filter_sees};
use super::{alter, plugin, resolvable, with_spec};

const NAME: &str = "DefaultPreemption";

/// A successful preemption has no message.
fn without_success(nomination: Nomination, status: Status) -> (Nomination, Status) {
    (nomination, if status.is_success() { Status::success() } else { status })
}

pub(super) fn all() -> Vec<Alteration> {
    vec![
        alter(
            "DefaultPreemption: disabled",
            "a pod that fits nowhere may preempt (5.16)",
            Change::Plugins(|plugins| plugins.post_filter.clear()),
            &["preemption/victim-is-deleted"],
        ),
        alter(
            "DefaultPreemption: no message",
            "the event has the message of preemption (5.16)",
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
            "DefaultPreemption: no message of success",
            "the event names the node and counts the victims of a preemption (5.16)",
            plugin(NAME, post_filter(without_success)),
            &["preemption/message-names-node-and-one-victim"],
        ),
        alter(
            "DefaultPreemption: no message of success beside unhelpful nodes",
            "the message follows the reasons of all nodes (5.16)",
            plugin(NAME, post_filter(without_success)),
            &["preemption/message-follows-reasons-of-all-nodes"],
        ),
        alter(
            "DefaultPreemption: no message of success in a long condition",
            "the condition keeps the message that the event loses (5.16)",
            plugin(NAME, post_filter(without_success)),
            &["preemption/message-is-cut-from-a-long-event"],
        ),
        alter(
            "DefaultPreemption: no nomination",
            "the preemptor is nominated for the node of its victims (5.16)",
            plugin(NAME, post_filter(|_, status| (Nomination::Keep, status))),
            &["preemption/preemptor-waits-for-terminating-victim"],
        ),
        alter(
            "DefaultPreemption: a stale nomination kept",
            "a failed preemption clears the nomination (5.16)",
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
            "a pod with preemptionPolicy Never preempts nothing (5.16)",
            plugin(NAME, post_filter_sees(|pod, _| with_spec(pod, |spec| spec.never_preempts = false))),
            &["preemption/preemption-policy-never"],
        ),
        alter(
            "DefaultPreemption: equal priority is preempted",
            "only pods of lower priority are victims (5.16)",
            plugin(NAME, post_filter_sees(|pod, _| pod.priority = pod.priority.saturating_add(1))),
            &["preemption/equal-priority-is-not-preempted"],
        ),
        alter(
            "DefaultPreemption: no victims",
            "pods of lower priority are victims (5.16)",
            plugin(NAME, post_filter_sees(|pod, _| pod.priority = i32::MIN)),
            &["preemption/victim-is-deleted"],
        ),
        alter(
            "DefaultPreemption: unresolvable rejections ignored",
            "nodes with unresolvable rejections are excluded (5.16)",
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
