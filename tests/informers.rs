//! `kube-informers` on whole API servers: the real one and the one in memory.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

mod backlog;
mod load;
mod model;
mod pods;
mod proxy;
mod soak;
mod subject;
mod trouble;
