//! The effect of an event on a pod.

use supercargo_runtime::observer::QueueName;

/// What to do with a waiting pod after an event; greater is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueingStrategy {
    /// The event does not help.
    Skip,
    /// Try again when its backoff has ended.
    AfterBackoff,
    /// Try again at once.
    Immediately,
}

impl QueueingStrategy {
    /// The queue that it aims at.
    pub(crate) fn queue(self) -> QueueName {
        match self {
            Self::Skip => QueueName::Unschedulable,
            Self::AfterBackoff => QueueName::Backoff,
            Self::Immediately => QueueName::Active,
        }
    }
}
