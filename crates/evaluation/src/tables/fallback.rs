//! Why a cycle falls back to the plain path.

/// Why tables cannot answer a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// Tables may answer the next cycle.
    Cycle,
    /// Tables never answer for pods of this signature.
    Signature,
}
