//! Compares the API server in memory with the real one: the same requests, the same commands, and
//! clients that must follow it. `README.md` describes the formats, and how to run and add tests.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

mod changes;
mod differences;
mod exchange;
mod follower;
mod informers;
mod kube_informers;
mod kubectl;
mod normal;
mod output;
mod requests;
mod session;
mod table;
mod target;
