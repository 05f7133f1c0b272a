//! supercargo: a Kubernetes scheduler in Rust, built on informers.
//!
//! This crate connects the pure scheduler (`supercargo-scheduler`) to a cluster: it watches objects
//! through `kube-informers`. `supercargo-owner` owns the scheduler on one thread, and carries out
//! its effects.

mod check;
pub mod cli;
mod command;
mod debugger;
#[cfg(feature = "demo")]
pub mod demo;
mod informers;
mod insight;
mod page;
mod reload;
mod resource_stats;
pub mod run;
mod trace_collector;

pub use command::SchedulerCommand;

/// The version, with the commit if the build knew it.
pub const VERSION: &str = env!("SUPERCARGO_VERSION");
pub use supercargo_config as config;
