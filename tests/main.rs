//! The one integration-test binary: one link for everything that needs more than one crate.

mod parity;
mod rbac;
mod tidy;
