//! Events of an in-memory API server, passed through the informers to the scheduler, and bindings
//! back to the server. Most tests run on a paused clock.

mod cluster;
mod missed_changes;
mod objects;
mod outages;
mod pods;
mod start;
