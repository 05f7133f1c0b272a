//! Captures the crate's log in tests.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

use crate::reflector::UNREACHABLE_LOG_TARGET;

/// Captures the log of this thread until dropped.
pub(crate) struct CaughtLog {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl CaughtLog {
    pub(crate) fn new() -> Self {
        ask_each_time();
        let lines = Arc::default();
        let guard = tracing::subscriber::set_default(Catcher(Arc::clone(&lines)));
        Self { lines, _guard: guard }
    }

    /// The lines so far: level, message, and fields as `name=value`; `(unreachable)` if that is the
    /// target.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// The lines of this level.
    pub(crate) fn lines_of(&self, level: &str) -> Vec<String> {
        self.lines.lock().iter().filter(|line| line.starts_with(level)).cloned().collect()
    }
}

/// Keeps tracing from remembering that nobody wants an event, which other tests could cause between
/// the start of a capture and its first event.
pub(crate) fn ask_each_time() {
    // Only the first call succeeds.
    let _ = tracing::subscriber::set_global_default(Nobody);
}

/// Wants nothing, but wants to be asked.
struct Nobody;

impl Subscriber for Nobody {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Catcher(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        written.unwrap();
    }
}

impl Subscriber for Catcher {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("kube_informers")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        if event.metadata().target() == UNREACHABLE_LOG_TARGET {
            line.0.push_str(" (unreachable)");
        }
        self.0.lock().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
