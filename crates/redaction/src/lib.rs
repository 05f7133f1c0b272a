//! Texts that say nothing about a cluster, and device selectors with other texts.

mod selector;
mod words;

pub use self::selector::redacted;
pub use self::words::{Words, is_amount, is_plain_version};
