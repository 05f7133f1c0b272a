//! Candidates, and the API server in memory, by a paused clock.

mod property;
mod several;
mod single;
mod world;
