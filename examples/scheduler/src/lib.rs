//! Two plugins as somebody outside of supercargo would write them.
//!
//! * [`node_cost`] has arguments, state within a cycle, a filter, scores and queueing hints.
//! * [`gang`] has Permit: pods of a gang start together or not at all.
//!
//! A plugin is a type with a name that says where it takes part; see `supercargo_framework::plugin`. It gets everything it
//! may read handed in, has no clock and no network, and so is tested without a cluster, as below.

pub mod gang;
pub mod node_cost;
