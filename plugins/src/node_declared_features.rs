//! Filters nodes that do not declare the features that the pod requires.

use std::sync::Arc;

use serde_json::Value;
use supercargo_framework::caching::HintScope;
use supercargo_framework::caching::{Caching, Scope, Stateless};
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, PreFilter, PreFilterPlugin, SignPlugin,
};
use supercargo_framework::registry::{ArgsError, without_args};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, Feature, Features, NodeFlags, NodeIndex, NodeInfo, Nodes,
    Plugin, PodInfo, Status,
};

use supercargo_framework::hint::{self, Hint};

/// The plugin's name.
pub const NAME: &str = "NodeDeclaredFeatures";

#[derive(Default)]
struct NodeDeclaredFeatures {
    /// Whether the feature gate is enabled. If not, a configuration can enable the plugin, but it
    /// does nothing.
    enabled: bool,
}

/// Builds the plugin.
pub(crate) fn from_args(args: &Value, features: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    // For the errors.
    without_args::<NodeDeclaredFeatures>(args, features)?;
    Ok(Arc::new(NodeDeclaredFeatures { enabled: features.enabled(Feature::NodeDeclaredFeatures) }))
}

/// Whether the node declares every feature that the pod requires.
fn declares_all(pod: &PodInfo, node: &NodeInfo) -> bool {
    let declared = &node.node().declared_features;
    pod.spec.required_features.iter().all(|feature| declared.binary_search(feature).is_ok())
}

fn after_node_change(_: &PodInfo, change: &Change) -> Hint {
    let new = hint::new_node(change)?;
    let differs = change.old_node().is_none_or(|old| old.declared_features != new.declared_features);
    Ok(QueueingHint::queue_if(differs))
}

fn after_own_update(_: &PodInfo, change: &Change) -> Hint {
    let (old, new) = (hint::old_pod(change)?, hint::new_pod(change)?);
    Ok(QueueingHint::queue_if(old.spec.required_features != new.spec.required_features))
}

impl Plugin for NodeDeclaredFeatures {
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

impl PreFilterPlugin for NodeDeclaredFeatures {
    fn pre_filter(&self, _: &Context<'_>, _: &mut CycleState, pod: &PodInfo) -> PreFilter {
        if self.enabled && !pod.spec.required_features.is_empty() {
            PreFilter::AllNodes
        } else {
            PreFilter::Skip
        }
    }
}

impl FilterPlugin for NodeDeclaredFeatures {
    fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if !self.enabled || declares_all(pod, node) {
            Status::success()
        } else {
            Status::unresolvable("node(s) didn't match Pod's required features")
        }
    }
}

impl EnqueueExtensions for NodeDeclaredFeatures {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        if !self.enabled {
            return Vec::new();
        }
        vec![
            EventRegistration::hinted(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_DECLARED_FEATURE,
                after_node_change,
            )
            .scoped(HintScope::empty()),
            EventRegistration::hinted(EventResource::TargetPod, ActionType::UPDATE, after_own_update)
                .scoped(HintScope::empty()),
        ]
    }
}

impl SignPlugin for NodeDeclaredFeatures {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        signer.write(&pod.spec.required_features);
        Ok(())
    }
}

impl Caching for NodeDeclaredFeatures {
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
        if !self.enabled || pod.spec.required_features.is_empty() {
            return true;
        }
        let flags = &nodes.columns().flags;
        for ((slot, passes), flags) in passes.iter_mut().enumerate().zip(flags) {
            *passes = *passes
                && flags.contains(NodeFlags::FEATURES)
                && declares_all(pod, nodes.at(NodeIndex(slot as u32)));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::objects::Objects;
    use supercargo_framework::testing::{self, node, node_added, node_info, node_updated, pod, pod_updated};
    use supercargo_framework::{CycleState, NodeRecord, Nodes};

    use super::*;
    use crate::testing::driver;

    fn list(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn needing(name: &str, features: &[&str]) -> PodInfo {
        pod(name).with_spec(|spec| spec.required_features = list(features).into()).build()
    }

    fn declaring(features: &[&str]) -> NodeRecord {
        NodeRecord { declared_features: list(features).into(), ..node("n").build() }
    }

    #[test]
    fn nodes_must_declare_every_required_feature() {
        let lacking = || Status::unresolvable("node(s) didn't match Pod's required features");
        let cases: [(&str, &[&str], &[&str], Status); 6] = [
            ("nothing needed", &[], &[], Status::success()),
            ("declared", &["A"], &["A"], Status::success()),
            ("declared among others", &["B"], &["A", "B", "C"], Status::success()),
            ("nothing declared", &["A"], &[], lacking()),
            ("another one declared", &["A"], &["B"], lacking()),
            ("one of two declared", &["A", "B"], &["B", "C"], lacking()),
        ];
        for (name, needed, declared, expected) in cases {
            let status = driver(NAME).filter(&needing("p", needed), &node_info(declaring(declared), []));
            assert_eq!(status, expected, "{name}");
        }
        assert!(matches!(driver(NAME).pre_filter(&needing("p", &[])), PreFilter::Skip));
        assert!(matches!(driver(NAME).pre_filter(&needing("p", &["A"])), PreFilter::AllNodes));
    }

    #[test]
    fn new_nodes_and_changed_declarations_wake_the_pod() {
        use QueueingHint::{Queue, Skip};
        const CHANGED: ActionType = ActionType::UPDATE_NODE_DECLARED_FEATURE;
        let cases = [
            ("new", ActionType::ADD, node_added(declaring(&[])), Queue),
            ("more", CHANGED, node_updated(declaring(&[]), declaring(&["A"])), Queue),
            ("fewer", CHANGED, node_updated(declaring(&["A"]), declaring(&[])), Queue),
            ("the same", CHANGED, node_updated(declaring(&["A"]), declaring(&["A"])), Skip),
        ];
        for (name, action, change, expected) in cases {
            let hint = driver(NAME).hint(EventResource::Node, action, &needing("p", &["A"]), &change);
            assert_eq!(hint, Some(Ok(expected)), "{name}");
        }
    }

    #[test]
    fn updates_of_required_features_wake_the_pod() {
        use QueueingHint::{Queue, Skip};
        let cases = [
            ("less", needing("p", &[]), Queue),
            ("something else", needing("p", &["B"]), Queue),
            ("the same", needing("p", &["A"]), Skip),
        ];
        let waiting = needing("p", &["A"]);
        for (name, new, expected) in cases {
            for action in [ActionType::UPDATE, ActionType::UPDATE_POD_LABEL] {
                let change = pod_updated(waiting.clone(), new.clone());
                let hint = driver(NAME).hint(EventResource::TargetPod, action, &waiting, &change);
                assert_eq!(hint, Some(Ok(expected)), "{name}");
            }
        }
    }

    #[test]
    fn the_plugin_requires_its_feature_gate() {
        let off = Features::default().with(Feature::NodeDeclaredFeatures, false);
        let plugin = from_args(&Value::Null, &off).expect("no arguments are fine");
        assert_eq!(plugin.name(), NAME);
        let driver = testing::Driver::new(plugin);
        let pod = needing("p", &["A"]);
        assert!(matches!(driver.pre_filter(&pod), PreFilter::Skip));
        assert!(driver.events().is_empty());
        let node = node_info(declaring(&[]), []);
        let (nodes, objects) = (Nodes::default(), Objects::default());
        let cx = Context::at_rest(&nodes, &objects);
        let filter = driver.points.filter.as_ref().expect("it filters");
        assert!(filter.filter(&cx, &CycleState::new(), &pod, &node).is_success());
    }
}
