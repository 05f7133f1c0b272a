//! Filters cordoned nodes.

use std::sync::Arc;

use supercargo_framework::caching::HintScope;
use supercargo_framework::caching::{Caching, Scope, Stateless};
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, PreFilter, PreFilterPlugin, SignPlugin,
};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::taint::tolerated;
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, NodeFlags, NodeInfo, Nodes, Plugin, PodInfo, Status,
    Taint, TaintEffect,
};

use supercargo_framework::hint::{self, Hint};

/// The plugin's name.
pub const NAME: &str = "NodeUnschedulable";

pub(crate) struct NodeUnschedulable {
    /// Pods that tolerate this taint can run on a cordoned node, even if the node does not have the
    /// taint.
    cordon: Taint,
}

impl Default for NodeUnschedulable {
    fn default() -> Self {
        Self {
            cordon: Taint {
                key: "node.kubernetes.io/unschedulable".into(),
                value: "".into(),
                effect: TaintEffect::NoSchedule,
            },
        }
    }
}

impl NodeUnschedulable {
    fn is_tolerated(&self, pod: &PodInfo) -> bool {
        tolerated(&pod.spec.tolerations, &self.cordon)
    }

    /// Other taints are TaintToleration's: only a toleration of the cordon helps.
    fn after_toleration(&self, change: &Change) -> Hint {
        Ok(QueueingHint::queue_if(self.is_tolerated(hint::new_pod(change)?)))
    }
}

fn after_node_change(_: &PodInfo, change: &Change) -> Hint {
    let was_closed = change.old_node().is_none_or(|old| old.unschedulable);
    let is_open = !hint::new_node(change)?.unschedulable;
    Ok(QueueingHint::queue_if(was_closed && is_open))
}

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .pre_filter(&self)
            .filter(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&Arc::new(Stateless))
    }
}

impl PreFilterPlugin for NodeUnschedulable {
    /// Prepares nothing. Same as upstream's, so that configurations that enable this plugin at
    /// PreFilter are valid.
    fn pre_filter(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo) -> PreFilter {
        PreFilter::AllNodes
    }
}

impl FilterPlugin for NodeUnschedulable {
    fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if !node.node().unschedulable || self.is_tolerated(pod) {
            Status::success()
        } else {
            Status::unresolvable("node(s) were unschedulable")
        }
    }
}

impl EnqueueExtensions for NodeUnschedulable {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        vec![
            EventRegistration::hinted(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_TAINT,
                after_node_change,
            )
            .scoped(HintScope::empty()),
            EventRegistration::hinted(
                EventResource::TargetPod,
                ActionType::UPDATE_POD_TOLERATION,
                move |_, change| self.after_toleration(change),
            )
            .scoped(HintScope::empty()),
        ]
    }
}

impl SignPlugin for NodeUnschedulable {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        signer.write(&self.is_tolerated(pod));
        Ok(())
    }
}

impl Caching for NodeUnschedulable {
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
        if !self.is_tolerated(pod) {
            for index in nodes.columns().with_flags(NodeFlags::UNSCHEDULABLE) {
                passes[index.0 as usize] = false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::{
        PodBuilder, node, node_added, node_info, node_updated, pod, pod_updated,
    };

    use super::*;
    use crate::testing::driver;

    fn tolerant(name: &str) -> PodBuilder {
        pod(name).tolerates("node.kubernetes.io/unschedulable", "", TaintEffect::NoSchedule)
    }

    #[test]
    fn cordoned_nodes_admit_only_tolerating_pods() {
        let closed = || Status::unresolvable("node(s) were unschedulable");
        let cordoned = || node("n").unschedulable().build();
        let cases = [
            ("an open node", pod("p"), node("n").build(), Status::success()),
            ("a cordoned node", pod("p"), cordoned(), closed()),
            ("with the toleration", tolerant("p"), cordoned(), Status::success()),
            (
                "with a toleration of something else",
                pod("p").tolerates("other", "", TaintEffect::NoSchedule),
                cordoned(),
                closed(),
            ),
            (
                "with the toleration for another effect",
                pod("p").tolerates("node.kubernetes.io/unschedulable", "", TaintEffect::NoExecute),
                cordoned(),
                closed(),
            ),
        ];
        for (name, pod, node, expected) in cases {
            let status = driver(NAME).filter(&pod.build(), &node_info(node, []));
            assert_eq!(status, expected, "{name}");
        }
    }

    #[test]
    fn new_or_uncordoned_nodes_wake_the_pod() {
        let (open, closed) = (|| node("n").build(), || node("n").unschedulable().build());
        let cases = [
            ("a new open node", ActionType::ADD, node_added(open()), QueueingHint::Queue),
            ("a new cordoned node", ActionType::ADD, node_added(closed()), QueueingHint::Skip),
            (
                "uncordoned",
                ActionType::UPDATE_NODE_TAINT,
                node_updated(closed(), open()),
                QueueingHint::Queue,
            ),
            ("still open", ActionType::UPDATE_NODE_TAINT, node_updated(open(), open()), QueueingHint::Skip),
            (
                "still cordoned",
                ActionType::UPDATE_NODE_TAINT,
                node_updated(closed(), closed()),
                QueueingHint::Skip,
            ),
        ];
        for (name, action, change, expected) in cases {
            let hint = driver(NAME).hint(EventResource::Node, action, &pod("p").build(), &change);
            assert_eq!(hint, Some(Ok(expected)), "{name}");
        }
    }

    #[test]
    fn a_new_toleration_of_the_cordon_wakes_the_pod() {
        let other = || pod("p").tolerates("other", "", TaintEffect::NoSchedule).build();
        let cases = [
            ("of the cordon", tolerant("p").build(), QueueingHint::Queue),
            ("of something else", other(), QueueingHint::Skip),
        ];
        for (name, new, expected) in cases {
            let hint = driver(NAME).hint(
                EventResource::TargetPod,
                ActionType::UPDATE_POD_TOLERATION,
                &pod("p").build(),
                &pod_updated(pod("p").build(), new),
            );
            assert_eq!(hint, Some(Ok(expected)), "{name}");
        }
    }
}
