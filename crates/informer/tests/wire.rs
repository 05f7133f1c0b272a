//! The wire in both encodings, against the API server in memory: what is asked for, what is made of the answers,
//! and what of answers that were damaged on their way.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

mod damage;
mod kinds;
mod recovery;
mod requests;
mod server;
mod transport;
