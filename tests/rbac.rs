//! The manifests on a real API server, and compared with the code.
#![allow(clippy::unwrap_used)] // all of it is for tests

mod admission;
mod audit;
mod cluster;
mod groups;
mod live;
pub(crate) mod manifests;
mod needed;
mod process;
mod references;
mod rules;
mod work;
