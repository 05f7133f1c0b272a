//! Both encodings, against the API server in memory: requests, decoded responses, and damaged
//! responses.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

mod damage;
mod kinds;
mod recovery;
mod requests;
mod server;
mod transport;
