//! The whole way from an API server in memory over the informers into the scheduler and, for bindings, back. Time is the
//! runtime's and stands still unless everything waits.

mod cluster;
mod gaps;
mod objects;
mod outages;
mod pods;
mod start;
