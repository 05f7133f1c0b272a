//! What the generator knows of a group.

use serde_json::Value;

use crate::oracle::history::Reference;

/// A group, and what its members have in common.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) group: Reference,
    /// The composite group above it.
    pub(super) parent: Option<String>,
    pub(super) template: Value,
    pub(super) scheduler: &'static str,
    pub(super) priority: i64,
    pub(super) never_preempts: bool,
    pub(super) is_gang: bool,
    /// Whether a member differs from the others. Upstream names one of those that do, at random.
    pub(super) has_odd_member: bool,
}
