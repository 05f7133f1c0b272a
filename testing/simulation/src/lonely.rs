//! A plugin of another author: pods with the label `lonely` want a node without another such pod.

use std::sync::Arc;

use serde_json::Value;
use supercargo_config::Catalog;
use supercargo_framework::event::{EventRegistration, QueueingHint};
use supercargo_framework::plugin::{EnqueueExtensions, ExtensionPoints, FilterPlugin, SignPlugin};
use supercargo_framework::registry::ArgsError;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, Features, NodeInfo, Plugin, PodInfo, Status,
};

/// The plugin's name, and the label.
pub const NAME: &str = "Lonely";
/// The label.
pub const LABEL: &str = "lonely";

struct Lonely {
    /// Whether its hint queues pods. It must.
    hints: bool,
}

/// The plugins of a simulated scheduler. Without `hints`, this one never queues a pod.
pub fn catalog(hints: bool) -> Catalog {
    let factory = if hints { honest } else { dishonest };
    Catalog::in_tree().with_plugin(NAME, factory)
}

fn honest(_: &Value, _: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    Ok(Arc::new(Lonely { hints: true }))
}

fn dishonest(_: &Value, _: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    Ok(Arc::new(Lonely { hints: false }))
}

fn is_lonely(pod: &PodInfo) -> bool {
    pod.labels.get(LABEL).is_some()
}

impl Plugin for Lonely {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().filter(&self).enqueue_extensions(&self).sign(&self)
    }
}

impl FilterPlugin for Lonely {
    fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if is_lonely(pod) && node.pods().iter().any(|other| is_lonely(other)) {
            return Status::unschedulable("node(s) had a lonely pod");
        }
        Status::success()
    }
}

impl SignPlugin for Lonely {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        signer.write(&is_lonely(pod));
        Ok(())
    }
}

impl EnqueueExtensions for Lonely {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        let hints = self.hints;
        let node = ActionType::ADD;
        vec![
            EventRegistration::hinted(EventResource::Node, node, move |_, _| {
                Ok(QueueingHint::queue_if(hints))
            }),
            EventRegistration::hinted(EventResource::AssignedPod, ActionType::DELETE, move |_, change| {
                Ok(QueueingHint::queue_if(hints && change.old_pod().is_some_and(|pod| is_lonely(pod))))
            }),
        ]
    }
}
