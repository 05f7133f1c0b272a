//! The wire in both encodings, against the API server in memory: what is asked for, what is made of the answers,
//! and what of answers that were damaged on their way.

mod damage;
mod kinds;
mod recovery;
mod server;
mod transport;
