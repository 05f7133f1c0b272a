//! Why a pod enters a queue.

use supercargo_framework::Text;
use supercargo_runtime::observer::{Entity, Observation, QueueName};

use super::context::QueueCx;
use super::queueing_strategy::QueueingStrategy;

/// Why a pod enters a queue.
#[derive(Clone, Copy)]
pub(crate) struct EntryReason<'a> {
    /// The event's label.
    event: &'a Text,
    /// What hints said; `None` if they were not asked.
    strategy: Option<QueueingStrategy>,
}

impl<'a> EntryReason<'a> {
    /// A cause without hints.
    pub(crate) fn new(event: &'a Text) -> Self {
        Self { event, strategy: None }
    }

    /// An event after which hints chose this strategy.
    pub(crate) fn chosen(event: &'a Text, strategy: QueueingStrategy) -> Self {
        Self { event, strategy: Some(strategy) }
    }

    /// Reports that a pod or a group enters a queue.
    ///
    /// As upstream, it counts as a queued entity unless the strategy led straight to this queue.
    pub(crate) fn report(self, cx: &QueueCx<'_>, queue: QueueName, entity: Entity) {
        let is_entity = self.strategy.is_none_or(|strategy| strategy.queue() != queue);
        cx.observer.observe(Observation::QueueIncoming { queue, event: self.event, entity, is_entity });
    }
}
