//! Why an attempt failed.

use std::fmt;

use supercargo_framework::plugin::Nomination;

use crate::diagnosis::FitError;

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum FailureKind {
    /// No node fits, or the one that did was refused. Events that matter to the plugins to blame help.
    Fit(Box<FitError>),
    /// The pod was turned down and no plugin waits for anything: only time helps.
    Rejected(String),
    /// Something failed.
    Internal(String),
    /// The API server knows no such pod any more. The informer is about to say so; should it not, the pod is not lost.
    Gone,
}

impl FailureKind {
    /// There is no node. Upstream treats this apart: no plugin is to blame, so not even a new node wakes the pod.
    pub(crate) fn no_nodes() -> Self {
        Self::Rejected("no nodes available to schedule pods".to_owned())
    }

    /// Whether the pod was turned down, as opposed to something having failed.
    pub(crate) fn is_rejection(&self) -> bool {
        matches!(self, Self::Fit(_) | Self::Rejected(_))
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fit(error) => error.fmt(f),
            Self::Rejected(message) | Self::Internal(message) => f.write_str(message),
            Self::Gone => f.write_str("the pod is gone"),
        }
    }
}

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// What becomes of the pod's nominated node.
    pub(crate) nomination: Nomination,
}

/// Nearly every failure ends a nomination.
impl From<FailureKind> for Failure {
    fn from(kind: FailureKind) -> Self {
        Self { kind, nomination: Nomination::Override(None) }
    }
}
