//! The reasons why attempts fail.

use std::fmt;

use supercargo_framework::plugin::Nomination;

use crate::diagnosis::{Diagnosis, FitError};

/// Why an attempt failed.
#[derive(Debug)]
pub enum FailureKind {
    /// No node fits, or the chosen one was rejected. Events that the rejecting plugins registered
    /// for help.
    Fit(Box<FitError>),
    /// The pod was rejected, and no plugin waits for an event: only the backoff helps.
    Rejected(String),
    /// Something failed.
    Internal(String),
    /// The API server does not know the pod. The informer usually reports the deletion soon after;
    /// if it does not, the pod stays queued.
    Gone,
}

impl FailureKind {
    /// There is no node. As upstream, no plugin is named, so not even a new node wakes the pod.
    pub fn no_nodes() -> Self {
        Self::Rejected("no nodes available to schedule pods".to_owned())
    }

    /// No node of `all_nodes` fits.
    pub fn no_fit(all_nodes: usize, diagnosis: Diagnosis) -> Self {
        Self::Fit(Box::new(FitError { all_nodes, diagnosis }))
    }

    /// Whether the pod was rejected, as opposed to an error.
    pub fn is_rejection(&self) -> bool {
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
pub struct Failure {
    /// What failed.
    pub kind: FailureKind,
    /// The change of the pod's nominated node.
    pub nomination: Nomination,
}

/// Most failures end a nomination.
impl From<FailureKind> for Failure {
    fn from(kind: FailureKind) -> Self {
        Self { kind, nomination: Nomination::Override(None) }
    }
}
