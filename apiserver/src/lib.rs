//! A Kubernetes API server in memory.

mod body;
pub mod discovery;
mod encode;
pub mod faults;
mod handle;
pub mod kinds;
mod listen;
mod media;
mod nonresource;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod proto;
pub mod prune;
mod random;
mod registry;
mod request;
mod rest;
pub mod schema;
mod selector;
mod server;
mod service;
pub mod sim;
mod state;
pub mod status;
mod store;
pub mod strategy;
pub mod table;
#[cfg(test)]
mod tests;
mod watch;

pub use listen::{Endpoint, Listen};
pub use server::{ApiServer, Body, Clock, Disconnect, Settings};
pub use service::Service;
pub use state::LoadError;
