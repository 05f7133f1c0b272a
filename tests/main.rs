//! The one integration-test binary: one link for everything that needs more than one crate.

mod e2e;
mod packaging;
mod parity;
mod rbac;
mod support;
mod tidy;
