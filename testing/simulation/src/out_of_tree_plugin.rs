//! A plugin of another author: pods with the label `lonely` want a node without another such pod.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use supercargo_config::Catalog;
use supercargo_framework::event::{EventRegistration, QueueingHint};
use supercargo_framework::objects::{Object, resources};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, PreEnqueuePlugin, ReservePlugin, SignPlugin,
};
use supercargo_framework::registry::ArgsError;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{
    ActionType, Command, Context, CycleState, EventResource, Features, NodeInfo, Plugin, PodInfo,
    QueueContext, Status, Uid,
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
    /// Pods that it has rejected.
    rejected: Mutex<HashSet<Uid>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Nothing,
    /// Pods of nodes that it has filtered.
    Pods,
    /// Nodes that it has filtered.
    Nodes,
    /// Its own rejections of pods.
    Rejections,
    /// Allocations of devices whose binding has failed.
    Allocations,
    /// Not even the allocations that bindings are about to write.
    NoAllocations,
    /// Pods of groups that it has filtered, which it lets into no queue again.
    Groups,
}

/// The plugins of a simulated scheduler.
pub fn catalog(sabotage: Option<Sabotage>, features: &Features) -> Catalog {
    type Factory = fn(&Value, &Features) -> Result<Arc<dyn Plugin>, ArgsError>;
    let factory: Factory = match sabotage {
        Some(Sabotage::NoHint) => |_, _| Ok(Lonely::plugin(false, Keeps::Nothing)),
        Some(Sabotage::KeptPods) => |_, _| Ok(Lonely::plugin(true, Keeps::Pods)),
        Some(Sabotage::KeptNodes) => |_, _| Ok(Lonely::plugin(true, Keeps::Nodes)),
        Some(Sabotage::KeptRejections) => |_, _| Ok(Lonely::plugin(true, Keeps::Rejections)),
        Some(Sabotage::KeptAllocation) => |_, _| Ok(Lonely::plugin(true, Keeps::Allocations)),
        Some(Sabotage::LostAllocation) => |_, _| Ok(Lonely::plugin(true, Keeps::NoAllocations)),
        Some(Sabotage::ForgottenGroup) => |_, _| Ok(Lonely::plugin(true, Keeps::Groups)),
        _ => |_, _| Ok(Lonely::plugin(true, Keeps::Nothing)),
    };
    Catalog::in_tree().with_plugin(NAME, factory).with_features(features.clone())
}

impl Lonely {
    fn plugin(hints: bool, keeps: Keeps) -> Arc<dyn Plugin> {
        Arc::new(Self { hints, keeps, kept: Mutex::default(), rejected: Mutex::default() })
    }

    /// Whether it has rejected a pod once. Those of the end of a run have names of their own, and
    /// are forgotten.
    fn has_rejected(&self, pod: &PodInfo, is_taken: bool) -> bool {
        if is_taken && !pod.name.starts_with("lonely") {
            self.rejected.lock().insert(pod.uid.clone());
        }
        self.rejected.lock().contains(&pod.uid)
    }

    /// Keeps what it must not.
    fn keep(&self, node: &NodeInfo) {
        let mut kept = self.kept.lock();
        if kept.len() >= MOST_KEPT {
            return;
        }
        match self.keeps {
            Keeps::Nothing
            | Keeps::Rejections
            | Keeps::Allocations
            | Keeps::NoAllocations
            | Keeps::Groups => {}
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
        let points = ExtensionPoints::new().filter(&self).enqueue_extensions(&self).sign(&self);
        match self.keeps {
            Keeps::Allocations | Keeps::NoAllocations => points.reserve(&self),
            Keeps::Groups => points.pre_enqueue(&self),
            _ => points,
        }
    }
}

impl FilterPlugin for Lonely {
    fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if self.keeps != Keeps::Nothing {
            self.keep(node);
        }
        let is_taken = is_lonely(pod) && node.pods().iter().any(|other| is_lonely(other));
        if self.keeps == Keeps::Groups && pod.spec.group().is_some() {
            self.rejected.lock().insert(pod.uid.clone());
        }
        let has_rejected = self.keeps == Keeps::Rejections && self.has_rejected(pod, is_taken);
        if is_taken || has_rejected {
            return Status::unschedulable("node(s) had a lonely pod");
        }
        Status::success()
    }
}

/// Forgets groups that were tried.
impl PreEnqueuePlugin for Lonely {
    fn pre_enqueue(&self, _: &QueueContext<'_>, pod: &PodInfo) -> Status {
        if self.rejected.lock().contains(&pod.uid) {
            return Status::unresolvable("its group was tried");
        }
        Status::success()
    }
}

/// Spoils what the plugin for devices reserves, before which it comes in no case but Unreserve.
impl ReservePlugin for Lonely {
    fn reserve(&self, cx: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) -> Status {
        if self.keeps == Keeps::NoAllocations {
            for claim in claims(cx, pod) {
                cx.command(Command::RemovePending(Arc::clone(claim)));
            }
        }
        Status::success()
    }

    fn unreserve(&self, cx: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) {
        if self.keeps == Keeps::Allocations {
            for pending in claims(cx, pod).filter_map(|claim| cx.pending_allocation(claim)) {
                let uid = format!("{} of {}", pending.uid, pod.uid).into();
                cx.command(Command::AddPending(Arc::new(Object { uid, ..(**pending).clone() })));
            }
        }
    }
}

/// The claims of a pod that exist.
fn claims<'a>(cx: &Context<'a>, pod: &PodInfo) -> impl Iterator<Item = &'a Arc<Object>> {
    let keys = pod.claim_names().map(|name| format!("{}/{name}", pod.namespace));
    keys.filter_map(|key| cx.object(&resources::RESOURCE_CLAIM, &key))
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
