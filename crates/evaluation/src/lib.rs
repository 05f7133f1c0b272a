//! Finds the best node for a pod, or the reasons why there is none.
//!
//! * [`cache`] has the nodes with their pods, and logs what changes.
//! * [`cycle`] evaluates a pod against it: [`filtering`], [`scoring`], [`sampling`] and
//!   [`extender_calls`]. This is the plain path, which every pod can take.
//! * [`tables`] keep answers from pod to pod, and give the same ones.
//!
//! The scheduler decides which pod is next, and what follows from the result.

// Tests print.
#![cfg_attr(test, allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

pub mod cache;
mod cached_pods;
mod changes;
pub mod cycle;
pub mod extender;
pub mod extender_calls;
pub mod filtering;
mod node_tree;
pub mod sampling;
pub mod scoring;
pub mod skipped_filters;
pub mod tables;
mod tie_breakers;
