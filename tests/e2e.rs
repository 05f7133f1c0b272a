//! The program as its users run it, on control planes.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

mod bad_files;
mod bad_nodes;
mod bad_pods;
mod capacity;
mod capture;
mod changes;
mod check;
mod claim_races;
mod demo;
mod endpoints;
mod events;
mod extenders;
mod failover;
mod group_claims;
mod group_races;
mod insight;
mod leader;
mod operations;
mod outage;
mod output;
mod permissions;
mod pressure;
mod refused;
mod replay;
mod restart;
mod scheduling;
mod shutdown;
mod soak;
mod suite;
mod timeline;
mod what_if;
mod why;
mod wire;

pub(crate) use wire::ask;
