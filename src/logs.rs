//! Where logs go: to standard error, or held back while a picture is on the terminal.

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

/// So many bytes are held back at most; what comes then is left out.
const MOST_HELD: usize = 256 * 1024;

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
    pub(crate) fn hold(&self) -> HeldBack<'_> {
        if io::stderr().is_terminal() {
            self.0.lock().get_or_insert_default();
        }
        HeldBack(self)
    }
}

/// While there is one, logs are held back.
pub(crate) struct HeldBack<'a>(&'a LogSink);

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
