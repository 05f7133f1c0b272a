//! Metrics, traces and logs. This crate makes no requests: the program serves metrics and sends
//! traces.
//!
//! | module | content |
//! |---|---|
//! | [`metrics`] | families, text format, and the observer that updates them |
//! | [`traces`] | OpenTelemetry traces of scheduling attempts |
//! | [`logs`] | log sink, format and level |
//! | [`outage`] | outages of the API server, one line each |
//! | `observe` | log lines for observations of the scheduler |
//!
//! Observers run on the scheduler's thread and never block.

pub mod logs;
pub mod metrics;
mod observe;
pub mod outage;
pub mod traces;

pub use observe::LogObserver;
