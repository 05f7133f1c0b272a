//! Informers on a scripted HTTP service, under a paused clock: what goes over the wire, and what comes of it.

mod server;
mod traces;
mod types;
