//! A Kubernetes API server in memory.

pub mod discovery;
pub mod faults;
pub mod kinds;
pub mod openapi;
pub mod patch;
pub mod proto;
pub mod prune;
pub mod schema;
pub mod sim;
pub mod status;
pub mod strategy;
pub mod table;
