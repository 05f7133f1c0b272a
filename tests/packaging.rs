//! What is shipped: the image's recipe, the manifests and the chart, the cluster to try them on, the workflows and the guides.
#![allow(clippy::unwrap_used)] // all of it is for tests

mod chart;
mod dockerfile;
mod guides;
mod handover;
mod image;
mod install;
mod kind;
mod overlays;
mod profiles;
mod render;
mod workflows;
