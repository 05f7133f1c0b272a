//! Informers on a scripted HTTP service, under a paused clock: requests and outcomes.
#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

mod server;
mod traces;
mod types;
