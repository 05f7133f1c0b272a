//! Typed objects for server-side apply: the schema determines which lists and maps are merged and
//! which are atomic. Upstream's `structured-merge-diff/typed`.

mod compare;
mod edit;
mod merge;
mod types;
mod validate;
mod zero;

pub(super) use compare::{Comparison, compare};
pub(super) use edit::{field_set, remove, with_named_fields};
pub(super) use merge::merge;
pub(super) use types::TypeRef;
pub(super) use validate::validate;
pub(super) use zero::zero;
