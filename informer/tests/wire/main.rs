//! The wire in both encodings, against the API server in memory: what is asked for, what is made of the answers,
//! and what of answers that were damaged on their way.

mod kinds;
mod server;
mod transport;
