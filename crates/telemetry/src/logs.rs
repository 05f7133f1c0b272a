//! Logs: lines or JSON objects on standard error, and the level, which can change at run time.

mod level;
mod sink;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _};
use std::panic;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt, reload};

pub use level::{LevelError, level_of_verbosity};
pub use sink::{HeldBack, LogLine, LogSink, dropped_lines};

/// Where the logs of the process go. A process has one standard error.
static INSTALLED: OnceLock<LogSink> = OnceLock::new();

/// Waits until logs are written; not for long, because nothing may read them. Must be called before
/// the process exits.
pub fn flush() {
    if let Some(sink) = INSTALLED.get() {
        sink.flush();
    }
}

/// The log level: off, error, warn, info, debug or trace, or per module.
#[derive(Clone)]
pub struct LogLevel {
    apply: Arc<dyn Fn(Targets) -> Result<(), reload::Error> + Send + Sync>,
    text: Arc<Mutex<String>>,
}

impl LogLevel {
    /// The current level.
    pub fn text(&self) -> String {
        self.text.lock().clone()
    }

    /// Sets the level: a value of `--log-level`, or a number as for `-v`.
    pub fn set(&self, level: &str) -> Result<(), LevelError> {
        let level = match level.parse() {
            Ok(verbosity) => level_of_verbosity(verbosity),
            Err(_) => level,
        };
        (self.apply)(level::filter(level)?).map_err(LevelError::Gone)?;
        level.clone_into(&mut self.text.lock());
        Ok(())
    }
}

#[cfg(any(test, feature = "testing"))]
impl LogLevel {
    /// A level that has no effect.
    pub fn detached(level: &str) -> Self {
        Self { apply: Arc::new(|_| Ok(())), text: Arc::new(Mutex::new(level.to_owned())) }
    }
}

/// Sends the logs of the process at this level to the sink, as lines or JSON objects. Must be
/// called only once.
pub fn install(sink: &LogSink, as_json: bool, level: &str) -> Result<LogLevel, LevelError> {
    let (filter, handle) = reload::Layer::new(level::filter(level)?);
    let lines = fmt::layer()
        .with_writer(sink.clone())
        // The reader of the log may be gone; reporting it there would end the process.
        .log_internal_errors(false)
        .with_ansi(is_colored(io::stderr().is_terminal(), |name| std::env::var(name).ok()));
    let logs = tracing_subscriber::registry();
    if as_json {
        logs.with(lines.json().flatten_event(true).with_filter(filter)).init();
    } else {
        logs.with(lines.with_filter(filter)).init();
    }
    let sink = INSTALLED.get_or_init(|| sink.clone());
    log_panics(sink);
    let apply = Arc::new(move |filter| handle.modify(|layer| *layer = filter));
    Ok(LogLevel { apply, text: Arc::new(Mutex::new(level.to_owned())) })
}

/// Whether logs are colored: only on a capable terminal, and not if `NO_COLOR` is set.
fn is_colored(is_terminal: bool, environment: impl Fn(&str) -> Option<String>) -> bool {
    let is_dumb = environment("TERM").is_some_and(|term| term == "dumb");
    let is_refused = environment("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_terminal && !is_dumb && !is_refused
}

/// Logs panics, with a backtrace if the environment requests one. The default hook would write to
/// standard error itself, and block the panicking thread if nothing reads there.
fn log_panics(sink: &'static LogSink) {
    panic::set_hook(Box::new(move |info| {
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        if tracing::enabled!(tracing::Level::ERROR) {
            tracing::error!(backtrace, "{info}");
        } else {
            sink.write_line(&info.to_string());
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_need_a_capable_terminal_and_no_refusal() {
        let of = |is_terminal, variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            is_colored(is_terminal, find)
        };
        assert!(of(true, &[]));
        assert!(of(true, &[("TERM", "xterm-256color"), ("NO_COLOR", "")]));
        assert!(!of(false, &[("TERM", "xterm-256color")]));
        assert!(!of(true, &[("TERM", "dumb")]));
        assert!(!of(true, &[("NO_COLOR", "1")]));
    }
}
