//! supercargo: a Kubernetes scheduler in Rust, built on informers.
//!
//! This crate is where the pure scheduler (`supercargo-scheduler`) meets a cluster: it watches through
//! `kube-informers`, owns the scheduler on one thread, and carries out what the scheduler asks for.
//!
//! ```text
//! informers ──> owner (one thread: the scheduler) ──> binder, status_writer, events ──> API server
//!    ^                 ^                                   │
//!    └── API server    └───────────── results ─────────────┘
//! ```

pub mod access;
pub mod api;
mod backlog;
mod binder;
pub mod cli;
pub mod clock;
mod command;
pub mod config;
pub mod demo;
mod events;
mod extender;
pub mod feature_gates;
mod informers;
pub mod logs;
pub mod metrics;
mod observe;
pub mod options;
mod owner;
mod payload;
mod preemptor;
pub mod rate_limit;
pub mod run;
mod shell;
mod status_writer;
#[cfg(test)]
mod testing;
mod transport;
mod window;
pub mod wire;

pub use command::SchedulerCommand;
