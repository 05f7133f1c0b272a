//! Gangs: pods that start together or not at all.
//!
//! Pods of one namespace with the same label `example.com/gang` form a gang. Their label
//! `example.com/gang-size` is the number of pods that must have a node before any of them is bound.
//! Until then, pods with a node wait on Permit and keep their resources. If one of them is
//! rejected, all are, so that two gangs cannot block each other.
//!
//! This is an example of Permit. Most users do not need it: supercargo schedules the groups of
//! Kubernetes itself (`docs/groups.md`), each in one cycle.
//!
//! ```yaml
//! pluginConfig:
//! - name: Gang
//!   args: {timeoutSeconds: 60}
//! ```

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use supercargo_framework::context::Command;
use supercargo_framework::event::{EventRegistration, QueueingHint};
use supercargo_framework::plugin::{EnqueueExtensions, ExtensionPoints, Permit, PermitPlugin, ReservePlugin};
use supercargo_framework::registry::{ArgsError, decode_args};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, Features, Plugin, PodInfo, Status, Uid,
};

/// The plugin's name.
pub const NAME: &str = "Gang";

/// The label that names a pod's gang.
pub const GANG: &str = "example.com/gang";
/// The label with the number of pods of the gang that must have a node.
pub const GANG_SIZE: &str = "example.com/gang-size";

/// The arguments.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Args {
    timeout_seconds: u64,
}

impl Default for Args {
    fn default() -> Self {
        Self { timeout_seconds: 60 }
    }
}

struct Gang {
    timeout: Duration,
}

/// Builds the plugin.
pub fn from_args(args: &Value, _: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    let Args { timeout_seconds } = decode_args(args)?;
    if timeout_seconds == 0 {
        return Err(ArgsError::new("timeoutSeconds", "must be at least 1"));
    }
    Ok(Arc::new(Gang { timeout: Duration::from_secs(timeout_seconds) }))
}

/// The pod's gang, and its size.
fn gang_of(pod: &PodInfo) -> Option<(&Arc<str>, usize)> {
    let gang = pod.labels.get(GANG)?;
    let size = pod.labels.get(GANG_SIZE)?.parse().ok()?;
    Some((gang, size))
}

fn are_one_gang(a: &PodInfo, b: &PodInfo) -> bool {
    a.namespace == b.namespace && a.labels.get(GANG).is_some() && a.labels.get(GANG) == b.labels.get(GANG)
}

/// The pods of the gang that this plugin holds on Permit.
fn waiting(cx: &Context<'_>, pod: &PodInfo) -> Vec<Uid> {
    let is_of_gang = |waiting: &&supercargo_framework::WaitingPod| {
        let held_here = waiting.pending.iter().any(|(plugin, _)| *plugin == NAME);
        let on_node = cx.nodes().get(&waiting.node_name);
        let found = on_node.and_then(|node| node.pods().iter().find(|other| other.uid == waiting.uid));
        held_here && found.is_some_and(|other| are_one_gang(pod, other))
    };
    cx.waiting_pods().iter().filter(is_of_gang).map(|waiting| waiting.uid.clone()).collect()
}

/// The number of pods of the gang with a node, bound or reserved, this one included.
fn placed(cx: &Context<'_>, pod: &PodInfo) -> usize {
    let on_nodes = cx.nodes().iter().flat_map(|(_, node)| node.pods());
    on_nodes.filter(|other| !other.terminating && are_one_gang(pod, other)).count()
}

impl Plugin for Gang {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().permit(&self).reserve(&self).enqueue_extensions(&self)
    }
}

impl PermitPlugin for Gang {
    fn permit(&self, cx: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) -> Permit {
        let Some((_, size)) = gang_of(pod) else {
            return Permit::Allow;
        };
        if placed(cx, pod) < size {
            return Permit::Wait(self.timeout);
        }
        for pod in waiting(cx, pod) {
            cx.command(Command::Allow { pod, plugin: NAME.into() });
        }
        Permit::Allow
    }
}

/// Reserve does nothing. Unreserve is called when a pod of a gang loses its node.
impl ReservePlugin for Gang {
    fn reserve(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &Arc<str>) -> Status {
        Status::success()
    }

    fn unreserve(&self, cx: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) {
        let Some((gang, _)) = gang_of(pod) else {
            return;
        };
        for other in waiting(cx, pod).into_iter().filter(|other| *other != pod.uid) {
            let message = format!("pod {} of gang {gang} gave up", pod.key());
            cx.command(Command::Reject { pod: other, plugin: NAME.into(), message: message.into() });
        }
    }
}

impl EnqueueExtensions for Gang {
    /// A new pod may complete the gang.
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        vec![EventRegistration::hinted(EventResource::UnscheduledPod, ActionType::ADD, |pod, change| {
            let same = change.new_pod().is_some_and(|new| are_one_gang(pod, new));
            Ok(QueueingHint::queue_if(same))
        })]
    }
}

#[cfg(test)]
mod tests;
