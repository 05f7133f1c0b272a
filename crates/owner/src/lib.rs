//! The thread that owns the scheduler, and what carries out the scheduler's effects.
//!
//! ```text
//! informers ──> owner ──> effects ──> binder, preemptor, status_writer, events ──> API server
//!                 ^                                  │
//!                 └──────────── results ─────────────┘
//! ```

pub mod backlog;
pub mod binder;
pub mod effects;
pub mod events;
pub mod extender;
pub mod gauge;
mod memory_limit;
pub mod options;
pub mod owner;
pub mod preemptor;
pub mod recorder;
pub mod status_writer;
pub mod watchdog;
