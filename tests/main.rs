//! The one integration-test binary: one link for everything that needs more than one crate.

#![allow(clippy::disallowed_methods, reason = "tests measure the machine's time")]

mod apiserver;
mod config;
mod e2e;
mod informers;
mod kind;
mod mechanisms;
mod metrics;
mod oracle;
mod packaging;
mod parity;
mod rbac;
mod support;
