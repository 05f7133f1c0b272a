//! Evaluation tables and the plain path make the same decisions.

mod claims;
mod edges;
mod histories;
mod redaction;
mod steps;
mod tally;
pub(super) mod templates;
mod twins;
