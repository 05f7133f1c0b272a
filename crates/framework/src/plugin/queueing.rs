//! Extension points of the scheduling queue.

use std::sync::Arc;

use crate::context::QueueContext;
use crate::event::EventRegistration;
use crate::pod::PodInfo;
use crate::status::Status;
use crate::time::Timestamp;

/// Gates pods before they enter activeQ.
///
/// ```
/// use supercargo_framework::context::QueueContext;
/// use supercargo_framework::plugin::PreEnqueuePlugin;
/// use supercargo_framework::{PodInfo, Status};
///
/// struct NeedsTeam;
///
/// impl PreEnqueuePlugin for NeedsTeam {
///     fn pre_enqueue(&self, _: &QueueContext<'_>, pod: &PodInfo) -> Status {
///         match pod.labels.get("team") {
///             Some(_) => Status::success(),
///             None => Status::unresolvable("the pod has no team"),
///         }
///     }
/// }
/// ```
pub trait PreEnqueuePlugin: Send + Sync + 'static {
    /// Success admits the pod to activeQ. Any other status gates it, without an event.
    fn pre_enqueue(&self, cx: &QueueContext<'_>, pod: &PodInfo) -> Status;
}

/// A queued pod, as a queue-sort plugin sees it.
#[derive(Clone, Copy, Debug)]
pub struct Queued<'a> {
    /// The pod.
    pub pod: &'a PodInfo,
    /// When it last entered a queue.
    pub timestamp: Timestamp,
}

/// Orders activeQ.
///
/// ```
/// use supercargo_framework::plugin::{QueueSortPlugin, Queued};
///
/// struct FirstInFirstOut;
///
/// impl QueueSortPlugin for FirstInFirstOut {
///     fn less(&self, a: Queued<'_>, b: Queued<'_>) -> bool {
///         a.timestamp < b.timestamp
///     }
/// }
/// ```
pub trait QueueSortPlugin: Send + Sync + 'static {
    /// Whether `a` is scheduled before `b`. Must be a strict weak order.
    fn less(&self, a: Queued<'_>, b: Queued<'_>) -> bool;
}

/// Registers the events that can make a pod schedulable that this plugin rejected. A plugin without
/// this trait is registered for all events of pods, nodes and the storage kinds of upstream's
/// UnrollWildCardResource: not of VolumeAttachments, and not of custom kinds.
///
/// ```
/// use std::sync::Arc;
/// use supercargo_framework::event::{EventRegistration, QueueingHint};
/// use supercargo_framework::plugin::EnqueueExtensions;
/// use supercargo_framework::{ActionType, EventResource};
///
/// struct NeedsGpu;
///
/// impl EnqueueExtensions for NeedsGpu {
///     fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
///         let added = EventRegistration::hinted(EventResource::Node, ActionType::ADD, |_pod, change| {
///             let has_gpu = change.new_node().is_some_and(|node| node.labels.get("gpu").is_some());
///             Ok(QueueingHint::queue_if(has_gpu))
///         });
///         vec![added]
///     }
/// }
/// ```
pub trait EnqueueExtensions: Send + Sync + 'static {
    /// The events, each with an optional queueing hint. Called once.
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration>;
}
