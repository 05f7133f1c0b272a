//! Random histories of a small cluster, and what must hold after every step of each.

mod api;
mod histories;
mod model;
mod steps;
