//! Shared helpers: a cluster to write to, `supercargo` as a process, and waiting for conditions.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

pub(crate) mod access;
mod audit;
mod cluster;
mod eventually;
mod extender;
mod fake_api;
pub(crate) mod http;
mod https;
mod objects;
mod process;
mod random;
mod requests;
mod sightings;
mod slim;

pub(crate) use self::http::get;
pub(crate) use audit::Bindings;
pub(crate) use cluster::{Cluster, own_plane, send};
pub(crate) use eventually::{eventually, say};
pub(crate) use extender::Extender;
pub(crate) use fake_api::FakeApi;
pub(crate) use https::{Answered, Https, Identity};
pub(crate) use objects::{
    PodBuilder, amount_of, config, name_of, namespace, node, node_of, pod, pods, priority_class,
};
pub(crate) use process::{Supercargo, answer, command, free_port, output, segment};
pub(crate) use random::Random;
pub(crate) use requests::Requests;
pub(crate) use sightings::Sightings;
pub(crate) use slim::Slim;
