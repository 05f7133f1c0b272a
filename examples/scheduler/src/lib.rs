//! Two plugins, written as an author outside this repository writes them.
//!
//! * [`node_cost`] has arguments, state within a cycle, a filter, scores, queueing hints and
//!   caching.
//! * [`gang`] has Permit: the pods of a gang start together or not at all.
//!
//! `supercargo_framework::plugin` describes the extension points. A plugin has no clock and no
//! network, so it is tested without a cluster.

pub mod gang;
pub mod node_cost;
