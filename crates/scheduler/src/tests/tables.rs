//! Evaluation tables decide as the plain path does, whatever happens.

mod edges;
mod histories;
mod steps;
mod tally;
mod templates;
mod twins;
