//! What several tests share: each uses a part of it.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::disallowed_macros,
    clippy::unwrap_used,
    clippy::format_push_string,
    clippy::wildcard_imports,
    clippy::default_trait_access,
    clippy::match_same_arms,
    clippy::needless_for_each,
    clippy::new_without_default
)]

pub mod case;
pub mod generate;
pub mod notation;
