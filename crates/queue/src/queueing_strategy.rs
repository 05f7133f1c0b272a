//! The effect of an event on a pod.

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
