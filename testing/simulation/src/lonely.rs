//! A plugin of another author: pods with the label `lonely` want a node without another such pod.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use supercargo_config::Catalog;
use supercargo_framework::event::{EventRegistration, QueueingHint};
use supercargo_framework::plugin::{EnqueueExtensions, ExtensionPoints, FilterPlugin, SignPlugin};
use supercargo_framework::registry::ArgsError;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, Features, NodeInfo, Plugin, PodInfo, Status,
};

use crate::sabotage::Sabotage;

/// The plugin's name, and the label.
pub const NAME: &str = "Lonely";
/// The label.
pub const LABEL: &str = "lonely";

/// The number of objects that it keeps at most, so that a run with this fault stays small.
const MOST_KEPT: usize = 1_000;

struct Lonely {
    /// Whether its hint queues pods. It must.
    hints: bool,
    /// What it keeps from cycle to cycle. It must keep nothing.
    keeps: Keeps,
    kept: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Nothing,
    /// Pods of nodes that it has filtered.
    Pods,
    /// Nodes that it has filtered.
    Nodes,
}

/// The plugins of a simulated scheduler.
pub fn catalog(sabotage: Option<Sabotage>) -> Catalog {
    type Factory = fn(&Value, &Features) -> Result<Arc<dyn Plugin>, ArgsError>;
    let factory: Factory = match sabotage {
        Some(Sabotage::NoHint) => |_, _| Ok(Lonely::plugin(false, Keeps::Nothing)),
        Some(Sabotage::KeptPods) => |_, _| Ok(Lonely::plugin(true, Keeps::Pods)),
        Some(Sabotage::KeptNodes) => |_, _| Ok(Lonely::plugin(true, Keeps::Nodes)),
        _ => |_, _| Ok(Lonely::plugin(true, Keeps::Nothing)),
    };
    Catalog::in_tree().with_plugin(NAME, factory)
}

impl Lonely {
    fn plugin(hints: bool, keeps: Keeps) -> Arc<dyn Plugin> {
        Arc::new(Self { hints, keeps, kept: Mutex::default() })
    }

    /// Keeps what it must not.
    fn keep(&self, node: &NodeInfo) {
        let mut kept = self.kept.lock();
        if kept.len() >= MOST_KEPT {
            return;
        }
        match self.keeps {
            Keeps::Nothing => {}
            Keeps::Pods => kept.extend(node.pods().iter().map(|pod| Arc::clone(pod) as Arc<_>)),
            Keeps::Nodes => kept.push(Arc::clone(node.node()) as Arc<_>),
        }
    }
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
        if self.keeps != Keeps::Nothing {
            self.keep(node);
        }
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
