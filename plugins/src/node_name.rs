//! Restricts a pod with `spec.nodeName` to that node.

use std::sync::Arc;

use supercargo_framework::caching::{Caching, Scope, Stateless};
use supercargo_framework::event::EventRegistration;
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, NodeNames, PreFilter, PreFilterPlugin, SignPlugin,
};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, NodeInfo, Nodes, Plugin, PodInfo, Status,
};

/// The plugin's name.
pub const NAME: &str = "NodeName";

#[derive(Default)]
pub(crate) struct NodeName;

impl Plugin for NodeName {
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

impl PreFilterPlugin for NodeName {
    /// Same as upstream's, whose scheduler gives it pods that wait for a resize on their node. Here
    /// a pod with a node is never queued.
    fn pre_filter(&self, _: &Context<'_>, _: &mut CycleState, pod: &PodInfo) -> PreFilter {
        let named = pod.node_name.as_ref().map(|name| NodeNames::from([Arc::clone(name)]));
        named.map_or(PreFilter::AllNodes, PreFilter::Nodes)
    }
}

impl FilterPlugin for NodeName {
    fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if pod.node_name.as_ref().is_none_or(|name| name == node.name()) {
            Status::success()
        } else {
            Status::unresolvable("node(s) didn't match the requested node name")
        }
    }
}

impl EnqueueExtensions for NodeName {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        vec![EventRegistration::always(EventResource::Node, ActionType::ADD)]
    }
}

impl SignPlugin for NodeName {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        signer.write(&pod.node_name);
        Ok(())
    }
}

impl Caching for NodeName {
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
        if let Some(name) = &pod.node_name {
            let named = nodes.index_of(name).map(|index| index.0 as usize);
            let passed = named.is_some_and(|slot| passes[slot]);
            passes.fill(false);
            if let Some(slot) = named {
                passes[slot] = passed;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::event::QueueingHint;
    use supercargo_framework::testing::{node, node_added, node_info, node_updated, pod};

    use super::*;
    use crate::testing::driver;

    #[test]
    fn node_name_matches_only_that_node() {
        let mismatch = || Status::unresolvable("node(s) didn't match the requested node name");
        let cases = [
            ("no name", pod("p").build(), Status::success()),
            ("this node", pod("p").node("n1").build(), Status::success()),
            ("another node", pod("p").node("n2").build(), mismatch()),
        ];
        let node = node_info(node("n1").build(), []);
        for (name, pod, expected) in cases {
            assert_eq!(driver(NAME).filter(&pod, &node), expected, "{name}");
        }
    }

    #[test]
    fn pre_filter_returns_only_the_named_node() {
        let plugin = driver(NAME);
        assert!(matches!(plugin.pre_filter(&pod("p").build()), PreFilter::AllNodes));
        let PreFilter::Nodes(names) = plugin.pre_filter(&pod("p").node("n1").build()) else {
            panic!("the pod names a node");
        };
        assert_eq!(names, NodeNames::from(["n1".into()]));
    }

    #[test]
    fn only_added_nodes_wake_the_pod() {
        let (plugin, waiting) = (driver(NAME), pod("p").node("n2").build());
        let added = node_added(node("n1").build());
        assert_eq!(
            plugin.hint(EventResource::Node, ActionType::ADD, &waiting, &added),
            Some(Ok(QueueingHint::Queue))
        );
        let updated = node_updated(node("n1").build(), node("n1").label("a", "b").build());
        assert_eq!(plugin.hint(EventResource::Node, ActionType::UPDATE_NODE_LABEL, &waiting, &updated), None);
    }
}
