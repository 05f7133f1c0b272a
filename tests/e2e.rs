//! `supercargo` as its users run it: the binary, a real control plane, and what both have to say in the end.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

mod bad_files;
mod bad_nodes;
mod bad_pods;
mod capacity;
mod changes;
mod demo;
mod endpoints;
mod events;
mod extenders;
mod failover;
mod operations;
mod outage;
mod permissions;
mod pressure;
mod refused;
mod replay;
mod restart;
mod scheduling;
mod shutdown;
mod soak;
mod suite;
