//! Support for tests of plugins: builders of pods and nodes, a driver for one plugin, and a check
//! of its caching.
//!
//! Enabled by the cargo feature `testing`; add it under `[dev-dependencies]`.
//!
//! * [`pod`], [`node`] and [`object`] build what a plugin reads; [`nodes`] and [`objects`] make a
//!   cluster of them.
//! * [`pod_updated`] and its siblings are the changes that queueing hints are about.
//! * [`Driver`] calls a plugin at its extension points as the scheduler does.
//! * [`giants`] builds pods and nodes with one enormous list each.
//! * [`caching`] compares a plugin's cached answers with fresh ones over random histories.

mod builders;
pub mod caching;
mod changes;
mod cluster;
mod driver;
pub mod giants;
mod random;

pub use builders::{NodeBuilder, PodBuilder, amount, node, object, pod};
pub use changes::{
    node_added, node_updated, object_added, object_deleted, object_updated, pod_deleted, pod_updated,
};
pub use cluster::{claim, claim_source, node_info, nodes, objects, with_claims, with_volumes};
pub use driver::Driver;
pub use random::SplitMix64;
