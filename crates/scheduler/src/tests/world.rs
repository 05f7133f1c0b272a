//! Random histories of a small cluster, with invariants that hold after every step.

mod api;
mod histories;
mod model;
mod steps;
