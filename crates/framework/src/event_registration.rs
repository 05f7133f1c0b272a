//! The events that a plugin registers.

use std::fmt;
use std::sync::Arc;

use crate::caching::{ClaimFn, GroupFn, HintCaching, HintMarks, HintScope, LabelsFn, OfferFn};
use crate::context::QueueContext;
use crate::event::{ActionType, Change, ClusterEvent, EventResource, QueueingHint};
use crate::pod::PodInfo;

/// A queueing hint: evaluates one event for one pending pod. An error counts as `Queue`.
pub type HintFn =
    Arc<dyn Fn(&QueueContext<'_>, &PodInfo, &Change) -> Result<QueueingHint, String> + Send + Sync>;

/// An event that a plugin registers, with its queueing hint.
pub struct EventRegistration {
    /// The event.
    pub event: ClusterEvent,
    /// The hint; `None` always queues.
    pub hint: Option<HintFn>,
    /// What the queue knows of the hint, so that it runs it less often.
    pub caching: HintCaching,
}

impl EventRegistration {
    /// An event that always queues.
    pub fn always(resource: EventResource, action: ActionType) -> Self {
        Self { event: ClusterEvent::new(resource, action), hint: None, caching: HintCaching::default() }
    }

    /// An event that queues if `hint` returns `Queue`. The hint may read all of the pod.
    pub fn hinted(
        resource: EventResource,
        action: ActionType,
        hint: impl Fn(&PodInfo, &Change) -> Result<QueueingHint, String> + Send + Sync + 'static,
    ) -> Self {
        Self::reading(resource, action, move |_, pod, change| hint(pod, change))
    }

    /// The same with a `hint` that reads objects of other kinds.
    pub fn reading(
        resource: EventResource,
        action: ActionType,
        hint: impl Fn(&QueueContext<'_>, &PodInfo, &Change) -> Result<QueueingHint, String>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let event = ClusterEvent::new(resource, action);
        Self { event, hint: Some(Arc::new(hint)), caching: HintCaching::of(HintScope::POD) }
    }
}

impl fmt::Debug for EventRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.event, if self.hint.is_some() { " with hint" } else { "" })
    }
}

/// What lets the queue [keep a hint's answers](crate::caching); without it, the queue asks the hint
/// for every pod.
///
/// ```
/// use supercargo_framework::caching::HintScope;
/// use supercargo_framework::event::{EventRegistration, QueueingHint};
/// use supercargo_framework::{ActionType, EventResource};
///
/// // The node alone decides, so one answer is that of every pod.
/// EventRegistration::hinted(EventResource::Node, ActionType::ADD, |_pod, change| {
///     let has_gpu = change.new_node().is_some_and(|node| node.labels.get("gpu").is_some());
///     Ok(QueueingHint::queue_if(has_gpu))
/// })
/// .scoped(HintScope::empty());
/// ```
impl EventRegistration {
    /// Declares that the hint reads only these parts of the pod.
    #[must_use]
    pub fn scoped(self, scope: HintScope) -> Self {
        Self { caching: HintCaching { scope, ..self.caching }, ..self }
    }

    /// Declares that the hint reads labels only after these changes. The scope must contain labels.
    #[must_use]
    pub fn reading_labels_if(self, labels: LabelsFn) -> Self {
        Self { caching: HintCaching { labels: Some(labels), ..self.caching }, ..self }
    }

    /// Declares that the hint queues no pod that requests more than the change offers, so that the
    /// queue need not call it for such pods. The scope must contain requests.
    #[must_use]
    pub fn offering(self, offer: OfferFn) -> Self {
        Self { caching: HintCaching { offer: Some(offer), ..self.caching }, ..self }
    }

    /// Declares that the hint queues no pod without the claim that the change is about, so that the
    /// queue need not call it for such pods.
    #[must_use]
    pub fn of_claim(self, claim: ClaimFn) -> Self {
        Self { caching: HintCaching { claim: Some(claim), ..self.caching }, ..self }
    }

    /// Declares that the hint queues only pods of the tree of the group that the change is about,
    /// so that the queue need not call it for others.
    #[must_use]
    pub fn of_group(self, group: GroupFn) -> Self {
        Self { caching: HintCaching { group: Some(group), ..self.caching }, ..self }
    }

    /// Declares that the hint queues only pods that ask for something that the change brings, so
    /// that the queue need not call it for others.
    #[must_use]
    pub fn marked(self, marks: HintMarks) -> Self {
        Self { caching: HintCaching { marks: Some(marks), ..self.caching }, ..self }
    }
}
