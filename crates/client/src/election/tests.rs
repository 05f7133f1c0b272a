//! Candidates and the API server in memory, with a paused clock.

mod frozen;
mod property;
mod several;
mod single;
mod world;
