//! Where logs go: to standard error, or held back while a picture is on the terminal. And what is logged, which can be changed
//! while the process runs.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _, Write};
use std::panic;
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::reload;

/// So many bytes are held back at most; what comes then is left out.
const MOST_HELD: usize = 256 * 1024;

/// The client calls every answer of 500 an error, without saying to what; whoever made the request says more.
const NEVER: &str = "kube_client::client::builder=off";

/// Why what is to be logged stays as it was.
#[derive(Debug, Error)]
pub enum LevelError {
    /// It is no level.
    #[error(
        "{level:?}: say error, warn, info, debug, trace, a number as for -v, or per module as in info,supercargo=debug: {problem}"
    )]
    NoLevel {
        /// What was said.
        level: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Nothing is logged any more.
    #[error("what is logged cannot be changed: {0}")]
    Gone(#[source] reload::Error),
}

/// What is logged: error, warn, info, debug, trace, or per module.
#[derive(Clone)]
pub struct LogLevel {
    apply: Arc<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>,
    text: Arc<Mutex<String>>,
}

impl LogLevel {
    /// What is logged now.
    pub fn text(&self) -> String {
        self.text.lock().clone()
    }

    /// Logs this from now on: what `--log-level` takes, or a number as for `-v`.
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
    /// One that changes nothing.
    pub fn detached(level: &str) -> Self {
        Self { apply: Arc::new(|_| Ok(())), text: Arc::new(Mutex::new(level.to_owned())) }
    }
}

/// The level that logs as much as kube-scheduler does at this verbosity: 4 is for debugging, and above it every pod is logged.
pub fn level_of_verbosity(verbosity: u32) -> &'static str {
    match verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    }
}

fn filter(level: &str) -> Result<EnvFilter, LevelError> {
    // Nothing is a filter, too, but one that nobody means.
    let parsed = if level.is_empty() { Err("it is empty".to_owned()) } else { Ok(level) };
    let parsed = parsed
        .and_then(|level| EnvFilter::try_new(format!("{NEVER},{level}")).map_err(|error| error.to_string()));
    parsed.map_err(|problem| LevelError::NoLevel { level: level.to_owned(), problem })
}

/// Sends the logs of the whole process to this sink: everything of this level, as lines or as JSON objects. Colour only to a
/// terminal. It may be called once.
pub fn install(sink: &LogSink, as_json: bool, level: &str) -> Result<LogLevel, LevelError> {
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter(level)?)
        .with_writer(sink.clone())
        // Whoever read the log may be gone; saying so to the same place would end the process.
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

/// Has panics say in the log what they say, with a backtrace where the environment asks for one.
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

/// Writes logs to standard error, now or later.
#[derive(Clone, Debug, Default)]
pub struct LogSink(Arc<Mutex<Option<Held>>>);

#[derive(Debug, Default)]
struct Held {
    logs: Vec<u8>,
    left_out: usize,
}

impl LogSink {
    /// Holds logs back, if they would go to a terminal, until what this returns is dropped. Then they are written.
    pub fn hold(&self) -> HeldBack<'_> {
        if io::stderr().is_terminal() {
            self.0.lock().get_or_insert_default();
        }
        HeldBack(self)
    }
}

/// While there is one, logs are held back.
pub struct HeldBack<'a>(&'a LogSink);

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        let held = self.0.0.lock().take();
        if let Some(held) = held {
            // Whoever read the log may be gone.
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
            writeln!(out, "supercargo: {} more lines of logs were left out", self.left_out)?;
        }
        out.flush()
    }
}

/// One line on its way.
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
    fn what_is_held_back_is_written_in_order_and_within_bounds() {
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
            String::from_utf8(out)
                .unwrap()
                .ends_with("two\nsupercargo: 1 more lines of logs were left out\n")
        );
    }
}
