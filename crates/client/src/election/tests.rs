//! Candidates, and the API server in memory, by a paused clock.

mod alone;
mod property;
mod several;
mod world;
