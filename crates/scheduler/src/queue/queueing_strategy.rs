//! What an event means for a pod.

/// What an event means for a pod that waits; more is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum QueueingStrategy {
    /// Nothing.
    Skip,
    /// Try again once its backoff has ended.
    AfterBackoff,
    /// Try again at once.
    Immediately,
}
