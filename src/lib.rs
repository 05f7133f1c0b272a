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

mod backlog;
mod binder;
pub mod cli;
pub mod clock;
mod collectors;
mod command;
mod debugger;
#[cfg(feature = "demo")]
pub mod demo;
mod events;
mod extender;
mod footprint;
mod gauge;
mod informers;
pub mod options;
mod owner;
mod preemptor;
mod pulse;
mod reload;
pub mod run;
mod shell;
mod status_writer;
mod trace_collector;

pub use command::SchedulerCommand;
pub use supercargo_config as config;
