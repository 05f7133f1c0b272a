//! supercargo: a Kubernetes scheduler in Rust, built on informers.
//!
//! This crate connects the pure scheduler (`supercargo-scheduler`) to a cluster: it watches objects
//! through `kube-informers`, owns the scheduler on one thread, and carries out its effects.
//!
//! ```text
//! informers ──> owner (one thread: the scheduler) ──> binder, preemptor, status_writer, events ──> API server
//!    ^                 ^                                   │
//!    └── API server    └───────────── results ─────────────┘
//! ```

mod backlog;
mod binder;
mod check;
pub mod cli;
mod command;
mod debugger;
#[cfg(feature = "demo")]
pub mod demo;
mod effects;
mod events;
mod extender;
mod gauge;
mod informers;
mod insight;
mod memory_limit;
pub mod options;
pub mod owner;
mod page;
mod preemptor;
mod recorder;
mod reload;
mod resource_stats;
pub mod run;
mod status_writer;
mod trace_collector;
mod watchdog;

pub use command::SchedulerCommand;

/// The version, with the commit if the build knew it.
pub const VERSION: &str = env!("SUPERCARGO_VERSION");
pub use supercargo_config as config;
