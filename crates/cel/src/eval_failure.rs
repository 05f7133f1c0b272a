//! How an evaluation fails, and the work it may do.

use std::sync::Arc;

/// The work of one evaluation beside its cost: evaluated nodes, comparisons and copies. Upstream
/// has no such limit; it is reached only by expressions with much that costs nothing, such as
/// values that contain themselves many times over, which upstream would compare for hours.
pub(crate) const MAX_STEPS: u64 = 20_000_000;

/// Why there is no value.
#[derive(Clone, Debug)]
pub(crate) enum EvalFailure {
    /// An error of the expression, which `&&` and `||` may absorb.
    Error(Arc<str>),
    /// The evaluation ends.
    Halt(Arc<str>),
}

impl EvalFailure {
    pub(crate) fn error(message: impl Into<Arc<str>>) -> Self {
        Self::Error(message.into())
    }

    pub(crate) fn halt(message: impl Into<Arc<str>>) -> Self {
        Self::Halt(message.into())
    }

    /// What upstream prints when its evaluation panics.
    pub(crate) fn panic(message: &str) -> Self {
        Self::halt(format!("internal error: {message}"))
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::error("no such overload")
    }

    pub(crate) fn int_overflow() -> Self {
        Self::error("integer overflow")
    }

    pub(crate) fn uint_overflow() -> Self {
        Self::error("unsigned integer overflow")
    }

    /// The message.
    pub(crate) fn text(&self) -> &Arc<str> {
        match self {
            Self::Error(text) | Self::Halt(text) => text,
        }
    }
}

/// The work that is left.
#[derive(Debug)]
pub(crate) struct Steps {
    left: u64,
    /// Whether more was asked for.
    pub(crate) ran_out: bool,
}

impl Default for Steps {
    fn default() -> Self {
        Self::new(MAX_STEPS)
    }
}

impl Steps {
    pub(crate) const fn new(left: u64) -> Self {
        Self { left, ran_out: false }
    }

    pub(crate) const fn left(&self) -> u64 {
        self.left
    }

    /// Uses up some work.
    pub(crate) fn take(&mut self, count: u64) -> Result<(), EvalFailure> {
        if let Some(rest) = self.left.checked_sub(count) {
            self.left = rest;
            return Ok(());
        }
        self.ran_out = true;
        Err(EvalFailure::halt("operation cancelled: too many comparisons and copies"))
    }
}
