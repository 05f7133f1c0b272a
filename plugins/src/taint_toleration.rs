//! Filters nodes with untolerated taints, and prefers nodes with fewer untolerated PreferNoSchedule
//! taints.

use std::sync::Arc;

use supercargo_framework::caching::{Caching, HintMarks, HintScope, Mark, Scope, Stateless};
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, Normalize, PreFilter, PreFilterPlugin, PreScorePlugin,
    ScorePlugin, SignPlugin,
};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::taint::{first_untolerated, tolerated};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, NodeFlags, NodeIndex, NodeInfo, NodeRecord, Nodes,
    Plugin, PodInfo, Status, TaintEffect,
};

use supercargo_framework::hint::{self, Hint};

/// The plugin's name.
pub const NAME: &str = "TaintToleration";

#[derive(Default)]
pub(crate) struct TaintToleration;

fn is_untolerated(pod: &PodInfo, node: &NodeRecord) -> bool {
    first_untolerated(&node.taints, &pod.spec.tolerations).is_some()
}

/// The number of untolerated PreferNoSchedule taints.
fn disliked(pod: &PodInfo, node: &NodeRecord) -> i64 {
    let disliked = node.taints.iter().filter(|taint| {
        taint.effect == TaintEffect::PreferNoSchedule && !tolerated(&pod.spec.tolerations, taint)
    });
    disliked.count() as i64
}

fn after_node_change(pod: &PodInfo, change: &Change) -> Hint {
    let was_untolerated = change.old_node().is_none_or(|old| is_untolerated(pod, old));
    let is_tolerated = !is_untolerated(pod, hint::new_node(change)?);
    Ok(QueueingHint::queue_if(was_untolerated && is_tolerated))
}

/// Finds the pods that tolerate the first taint of the event's node, if it has one.
const MARKS: HintMarks = HintMarks {
    of_pod: |pod| Mark::of_tolerations(&pod.spec.tolerations),
    of_change: |change| {
        let taints = &change.new_node()?.taints;
        Some(Mark::of_taint(taints.iter().find(|taint| taint.effect.forbids())?))
    },
};

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .pre_filter(&self)
            .filter(&self)
            .pre_score(&self)
            .score(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&Arc::new(Stateless))
    }
}

impl PreFilterPlugin for TaintToleration {
    /// Prepares nothing. Same as upstream's, so that configurations that enable this plugin at
    /// PreFilter are valid.
    fn pre_filter(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo) -> PreFilter {
        PreFilter::AllNodes
    }
}

impl FilterPlugin for TaintToleration {
    fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if is_untolerated(pod, node.node()) {
            Status::unresolvable("node(s) had untolerated taint(s)")
        } else {
            Status::success()
        }
    }
}

impl PreScorePlugin for TaintToleration {
    /// Prepares nothing: matching a PreferNoSchedule taint already ignores tolerations of other
    /// effects. Registered so that configurations that enable this plugin at PreScore are valid.
    fn pre_score(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &[NodeIndex]) -> Status {
        Status::success()
    }
}

impl ScorePlugin for TaintToleration {
    fn score(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<i64, Status> {
        Ok(disliked(pod, node.node()))
    }

    fn normalization(&self) -> Normalize {
        Normalize::ByMax { reverse: true }
    }
}

impl EnqueueExtensions for TaintToleration {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        vec![
            EventRegistration::hinted(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_TAINT,
                after_node_change,
            )
            .scoped(HintScope::TOLERATIONS)
            .marked(MARKS),
            EventRegistration::always(EventResource::TargetPod, ActionType::UPDATE_POD_TOLERATION),
        ]
    }
}

impl SignPlugin for TaintToleration {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        signer.write(&pod.spec.tolerations);
        Ok(())
    }
}

impl Caching for TaintToleration {
    fn filter_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        Scope::NodeObject
    }

    fn filter_columns(
        &self,
        _: &Context<'_>,
        _: &CycleState,
        pod: &PodInfo,
        nodes: &Nodes,
        passes: &mut [bool],
    ) -> bool {
        for index in nodes.columns().with_flags(NodeFlags::FORBIDS) {
            let passes = &mut passes[index.0 as usize];
            *passes = *passes && !is_untolerated(pod, nodes.at(index).node());
        }
        true
    }

    fn pre_score_depends_on_nodes(&self) -> bool {
        false
    }

    fn score_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        Scope::NodeObject
    }

    fn score_columns(
        &self,
        _: &Context<'_>,
        _: &CycleState,
        pod: &PodInfo,
        nodes: &Nodes,
        scores: &mut [i64],
    ) -> bool {
        scores.fill(0);
        for index in nodes.columns().with_flags(NodeFlags::DISCOURAGES) {
            scores[index.0 as usize] = disliked(pod, nodes.at(index).node());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::Toleration;
    use supercargo_framework::taint::TolerationOperator;
    use supercargo_framework::testing::{
        NodeBuilder, node, node_added, node_info, node_updated, nodes, pod, pod_updated,
    };

    use super::*;
    use crate::testing::driver;

    const NO_SCHEDULE: TaintEffect = TaintEffect::NoSchedule;
    const PREFER: TaintEffect = TaintEffect::PreferNoSchedule;

    fn tainted(effect: TaintEffect) -> NodeBuilder {
        node("n").taint("k", "v", effect)
    }

    fn exists(key: &str, effect: Option<TaintEffect>) -> Toleration {
        Toleration { key: key.into(), operator: TolerationOperator::Exists, value: "".into(), effect }
    }

    #[test]
    fn no_schedule_and_no_execute_taints_must_be_tolerated() {
        let untolerated = || Status::unresolvable("node(s) had untolerated taint(s)");
        let cases = [
            ("no taint", pod("p"), node("n"), Status::success()),
            ("NoSchedule", pod("p"), tainted(NO_SCHEDULE), untolerated()),
            ("NoExecute", pod("p"), tainted(TaintEffect::NoExecute), untolerated()),
            ("PreferNoSchedule does not forbid", pod("p"), tainted(PREFER), Status::success()),
            ("tolerated", pod("p").tolerates("k", "v", NO_SCHEDULE), tainted(NO_SCHEDULE), Status::success()),
            (
                "tolerated with another value",
                pod("p").tolerates("k", "w", NO_SCHEDULE),
                tainted(NO_SCHEDULE),
                untolerated(),
            ),
            (
                "everything tolerated",
                pod("p").toleration(exists("", None)),
                tainted(TaintEffect::NoExecute),
                Status::success(),
            ),
            (
                "one of two tolerated",
                pod("p").tolerates("k", "v", NO_SCHEDULE),
                tainted(NO_SCHEDULE).taint("l", "", NO_SCHEDULE),
                untolerated(),
            ),
        ];
        for (name, pod, node, expected) in cases {
            let status = driver(NAME).filter(&pod.build(), &node_info(node.build(), []));
            assert_eq!(status, expected, "{name}");
        }
    }

    #[test]
    fn fewer_prefer_no_schedule_taints_score_higher() {
        let three = [
            node("none"),
            node("one").taint("k", "v", PREFER).taint("x", "", NO_SCHEDULE),
            node("two").taint("k", "v", PREFER).taint("l", "", PREFER),
        ];
        let three = nodes(three.map(|node| node_info(node.build(), [])));
        let cases = [
            ("no toleration", pod("p"), [0, 1, 2], [100, 50, 0]),
            ("one tolerated", pod("p").tolerates("k", "v", PREFER), [0, 0, 1], [100, 100, 0]),
            (
                "a toleration of another effect does not count",
                pod("p").tolerates("k", "v", NO_SCHEDULE),
                [0, 1, 2],
                [100, 50, 0],
            ),
            (
                "a toleration without effect does",
                pod("p").toleration(exists("k", None)),
                [0, 0, 1],
                [100, 100, 0],
            ),
            (
                "all tolerated: every node is best",
                pod("p").toleration(exists("", None)),
                [0, 0, 0],
                [100, 100, 100],
            ),
        ];
        for (name, pod, raw, normalized) in cases {
            let (plugin, pod) = (driver(NAME), pod.build());
            assert_eq!(plugin.raw_scores(&pod, &three), Some(raw.to_vec()), "{name}");
            assert_eq!(plugin.scores(&pod, &three), normalized, "{name}");
        }
    }

    #[test]
    fn nodes_that_become_tolerated_wake_the_pod() {
        let (good, bad) = (|| node("n").build(), || tainted(NO_SCHEDULE).build());
        let cases = [
            ("a new tolerable node", ActionType::ADD, node_added(good()), QueueingHint::Queue),
            ("a new intolerable node", ActionType::ADD, node_added(bad()), QueueingHint::Skip),
            (
                "the taint is gone",
                ActionType::UPDATE_NODE_TAINT,
                node_updated(bad(), good()),
                QueueingHint::Queue,
            ),
            (
                "the taint is new",
                ActionType::UPDATE_NODE_TAINT,
                node_updated(good(), bad()),
                QueueingHint::Skip,
            ),
            (
                "it was tolerable before",
                ActionType::UPDATE_NODE_TAINT,
                node_updated(good(), tainted(PREFER).build()),
                QueueingHint::Skip,
            ),
        ];
        for (name, action, change, expected) in cases {
            let hint = driver(NAME).hint(EventResource::Node, action, &pod("p").build(), &change);
            assert_eq!(hint, Some(Ok(expected)), "{name}");
        }
    }

    #[test]
    fn new_tolerations_of_the_pod_wake_it() {
        let old = pod("p").build();
        let change = pod_updated(old.clone(), pod("p").tolerates("unrelated", "", NO_SCHEDULE).build());
        let hint = |resource| driver(NAME).hint(resource, ActionType::UPDATE_POD_TOLERATION, &old, &change);
        assert_eq!(hint(EventResource::TargetPod), Some(Ok(QueueingHint::Queue)));
        assert_eq!(hint(EventResource::UnscheduledPod), None);
    }
}
