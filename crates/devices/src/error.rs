//! Why there is no answer for a node.

use std::sync::Arc;

use thiserror::Error;

/// Why claims cannot be allocated on a node, in upstream's words. Not fitting is not an error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AllocateError {
    /// Nothing else fits, and a pool is invalid. This concerns the node alone.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// The caller has interrupted the search, for this reason.
    #[error("filter operation aborted: {0}")]
    Aborted(Arc<str>),
    /// The [`Budget`](crate::Budget) ends, at this request or selector.
    #[error("the limit of the attempt is exceeded at {0}")]
    Exhausted(Box<str>),
    /// An object is wrong, which ends the whole attempt of the pod.
    #[error("{0}")]
    Fatal(Box<str>),
}

impl AllocateError {
    pub(crate) fn fatal(text: impl Into<Box<str>>) -> Self {
        Self::Fatal(text.into())
    }

    /// Whether other nodes may still do.
    pub const fn is_of_node(&self) -> bool {
        matches!(self, Self::InvalidPools)
    }
}
