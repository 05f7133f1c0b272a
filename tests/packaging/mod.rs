//! What is shipped: the image's recipe, the rendered manifests, the cluster to try them on.
#![allow(clippy::unwrap_used)] // all of it is for tests

mod dockerfile;
mod image;
mod install;
mod kind;
mod profiles;
mod render;
