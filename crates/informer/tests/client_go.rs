//! Informers on a scripted HTTP service, under a paused clock: what goes over the wire, and what comes of it.
#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

mod server;
mod traces;
mod types;
