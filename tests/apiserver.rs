//! The API server in memory, held against the real one: the same requests, the same commands, and clients that must stay in
//! step with it. `README.md` has the formats, and how to run and add.

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
