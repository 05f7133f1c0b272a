//! Logs: output to standard error, which is buffered while a picture is on the terminal; and the
//! level, which can change at run time.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _, Write};
use std::panic;
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::reload;

/// Maximum number of buffered bytes; further lines are dropped.
const MOST_HELD: usize = 256 * 1024;

/// kube's client logs every 5xx response as an error without naming the request. The caller logs
/// more.
const NEVER: &str = "kube_client::client::builder=off";

/// Why the log level cannot be set.
#[derive(Debug, Error)]
pub enum LevelError {
    /// Not a log level.
    #[error(
        "{level:?}: must be error, warn, info, debug, trace, a number as for -v, or per module as in info,supercargo=debug: {problem}"
    )]
    NoLevel {
        /// The rejected level.
        level: String,
        /// The problem.
        problem: String,
    },
    /// The logger has shut down.
    #[error("cannot change the log level: {0}")]
    Gone(#[source] reload::Error),
}

/// The log level: error, warn, info, debug or trace, or per module.
#[derive(Clone)]
pub struct LogLevel {
    apply: Arc<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>,
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
        (self.apply)(filter(level)?).map_err(LevelError::Gone)?;
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

/// The level for this verbosity of kube-scheduler: 4 is for debugging, and above it every pod is
/// logged.
pub fn level_of_verbosity(verbosity: u32) -> &'static str {
    match verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    }
}

fn filter(level: &str) -> Result<EnvFilter, LevelError> {
    // An empty text is a valid filter, but never intended.
    let parsed = if level.is_empty() { Err("it is empty".to_owned()) } else { Ok(level) };
    let parsed = parsed
        .and_then(|level| EnvFilter::try_new(format!("{NEVER},{level}")).map_err(|error| error.to_string()));
    parsed.map_err(|problem| LevelError::NoLevel { level: level.to_owned(), problem })
}

/// Sends the logs of the process at this level to the sink, as lines or JSON objects. Colored only
/// on a terminal. Must be called only once.
pub fn install(sink: &LogSink, as_json: bool, level: &str) -> Result<LogLevel, LevelError> {
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter(level)?)
        .with_writer(sink.clone())
        // The reader of the log may be gone; reporting it there would end the process.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    let apply: Arc<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync> = if as_json {
        let logs = logs.json().flatten_event(true).with_filter_reloading();
        let handle = logs.reload_handle();
        logs.init();
        log_panics();
        Arc::new(move |filter| handle.reload(filter))
    } else {
        let logs = logs.with_filter_reloading();
        let handle = logs.reload_handle();
        logs.init();
        Arc::new(move |filter| handle.reload(filter))
    };
    Ok(LogLevel { apply, text: Arc::new(Mutex::new(level.to_owned())) })
}

/// Logs panics, with a backtrace if the environment requests one.
fn log_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !tracing::enabled!(tracing::Level::ERROR) {
            return usual(info);
        }
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        tracing::error!(backtrace, "{info}");
    }));
}

/// Writes logs to standard error, directly or after buffering.
#[derive(Clone, Debug, Default)]
pub struct LogSink(Arc<Mutex<Option<Held>>>);

#[derive(Debug, Default)]
struct Held {
    logs: Vec<u8>,
    left_out: usize,
}

impl LogSink {
    /// Buffers logs, if standard error is a terminal, until the returned guard is dropped.
    pub fn hold(&self) -> HeldBack<'_> {
        if io::stderr().is_terminal() {
            self.0.lock().get_or_insert_default();
        }
        HeldBack(self)
    }
}

/// Logs are buffered until this guard is dropped.
pub struct HeldBack<'a>(&'a LogSink);

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        let held = self.0.0.lock().take();
        if let Some(held) = held {
            // The reader of the log may be gone.
            let _ = held.write(&mut io::stderr().lock());
        }
    }
}

impl Held {
    fn take(&mut self, line: &[u8]) {
        if self.logs.len() + line.len() > MOST_HELD {
            self.left_out += 1;
        } else {
            self.logs.extend_from_slice(line);
        }
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.logs)?;
        if self.left_out > 0 {
            writeln!(out, "supercargo: {} more log lines were dropped", self.left_out)?;
        }
        out.flush()
    }
}

/// The writer of one line.
pub struct LogLine<'a>(&'a LogSink);

impl Write for LogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut *self.0.0.lock() {
            Some(held) => held.take(line),
            None => io::stderr().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogSink {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> LogLine<'a> {
        LogLine(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffered_logs_are_written_in_order_and_bounded() {
        let mut held = Held::default();
        held.take(b"one\n");
        held.take(b"two\n");
        let mut out = Vec::new();
        held.write(&mut out).unwrap();
        assert_eq!(out, b"one\ntwo\n");
        held.take(&vec![b'x'; MOST_HELD]);
        out.clear();
        held.write(&mut out).unwrap();
        assert!(
            String::from_utf8(out).unwrap().ends_with("two\nsupercargo: 1 more log lines were dropped\n")
        );
    }
}
