//! Everything that is shipped: image, manifests, chart, kind guide, workflows and documentation.
#![allow(clippy::unwrap_used)] // all of it is for tests

mod chart;
mod dockerfile;
mod guides;
mod handover;
mod image;
mod install;
mod kind;
mod krew;
mod overlays;
mod profiles;
mod render;
mod tutorial;
mod workflows;
