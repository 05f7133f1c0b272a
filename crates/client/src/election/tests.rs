//! Candidates and the API server in memory, with a paused clock.

mod dead_connections;
mod property;
mod several;
mod single;
mod world;
