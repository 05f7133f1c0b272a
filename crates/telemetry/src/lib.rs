//! What a scheduler tells its operators: metrics, traces, logs. It knows no client: who scrapes, collects and reads is the
//! program's business.

pub mod logs;
pub mod metrics;
mod observe;
pub mod traces;

pub use observe::LogObserver;
