//! Writes logs to standard error from a thread of its own, so that a reader that is slow or gone
//! stops nothing else.

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// Maximum number of queued bytes; further lines are dropped.
const MOST_QUEUED: usize = 1 << 20;
/// How long the end of the process waits for queued lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Lines that were dropped since the process started.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The number of log lines that were dropped because they could not be written in time.
pub fn dropped_lines() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Queues log lines for the thread that writes them.
#[derive(Clone, Debug)]
pub struct LogSink(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    /// Lines dropped since the last ones were written.
    dropped: u64,
    /// Whether the writer has taken lines that it has not written yet.
    is_writing: bool,
    /// Whether lines wait for the end of a picture on the terminal.
    is_held: bool,
}

impl LogSink {
    /// Starts the thread that writes to standard error.
    pub fn start() -> io::Result<Self> {
        Self::writing_to(io::stderr())
    }

    fn writing_to(out: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let writer = Arc::clone(&shared);
        thread::Builder::new().name("logs".into()).spawn(move || writer.write_forever(out))?;
        Ok(Self(shared))
    }

    /// Queues a text and a line break.
    pub fn write_line(&self, text: &str) {
        self.0.push(format!("{text}\n").as_bytes());
    }

    /// Waits until queued lines are written; not for long, because nothing may read them.
    pub fn flush(&self) {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        let mut queue = self.0.queue.lock();
        while !queue.is_idle() && !self.0.changed.wait_until(&mut queue, deadline).timed_out() {}
    }

    /// Holds lines back, if standard error is a terminal, until the returned guard is dropped.
    pub fn hold(&self) -> HeldBack<'_> {
        self.flush();
        self.0.queue.lock().is_held = io::stderr().is_terminal();
        HeldBack(self)
    }
}

/// Lines are held back until this guard is dropped.
pub struct HeldBack<'a>(&'a LogSink);

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.0.0.queue.lock().is_held = false;
        self.0.0.changed.notify_all();
        self.0.flush();
    }
}

impl Shared {
    fn push(&self, line: &[u8]) {
        self.queue.lock().push(line);
        self.changed.notify_all();
    }

    fn write_forever(&self, mut out: impl Write) {
        loop {
            let lines = self.take();
            // The reader of the log may be gone.
            let _ = out.write_all(&lines).and_then(|()| out.flush());
            self.queue.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    /// Waits for lines.
    fn take(&self) -> Vec<u8> {
        let mut queue = self.queue.lock();
        while queue.is_held || queue.lines.is_empty() {
            self.changed.wait(&mut queue);
        }
        queue.take()
    }
}

impl Queue {
    fn push(&mut self, line: &[u8]) {
        // No line is written after a gap before the gap itself is reported.
        if self.dropped > 0 || self.lines.len() + line.len() > MOST_QUEUED {
            self.dropped += 1;
            DROPPED.fetch_add(1, Ordering::Relaxed);
        } else {
            self.lines.extend_from_slice(line);
        }
    }

    /// All lines, and how many were dropped after them.
    fn take(&mut self) -> Vec<u8> {
        self.is_writing = true;
        let mut lines = std::mem::take(&mut self.lines);
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let note = format!("supercargo: {dropped} log lines were dropped: they were not read in time\n");
            lines.extend_from_slice(note.as_bytes());
        }
        lines
    }

    fn is_idle(&self) -> bool {
        self.is_held || (self.lines.is_empty() && !self.is_writing)
    }
}

/// The writer of one line.
pub struct LogLine<'a>(&'a LogSink);

impl Write for LogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.0.push(line);
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
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    /// A pipe whose reader waits for the test.
    struct Pipe {
        written: Sender<Vec<u8>>,
        read: Receiver<()>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.send(bytes.to_vec()).map_err(io::Error::other)?;
            self.read.recv().map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn pipe() -> (LogSink, Receiver<Vec<u8>>, Sender<()>) {
        let ((written, output), (reader, read)) = (mpsc::channel(), mpsc::channel());
        (LogSink::writing_to(Pipe { written, read }).unwrap(), output, reader)
    }

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_counted() {
        let (sink, output, reader) = pipe();
        sink.write_line("first");
        assert_eq!(output.recv().unwrap(), b"first\n");
        // The writer now waits for its reader, as on a full pipe.
        let line = "x".repeat(1023);
        let before = dropped_lines();
        for _ in 0..1500 {
            sink.write_line(&line);
        }
        assert!(dropped_lines() >= before + 476);
        sink.flush();
        reader.send(()).unwrap();
        let rest = String::from_utf8(output.recv().unwrap()).unwrap();
        assert_eq!(rest.lines().count(), 1025);
        let note = "\nsupercargo: 476 log lines were dropped: they were not read in time\n";
        assert!(rest.ends_with(note), "{}", &rest[rest.len() - 200..]);
        reader.send(()).unwrap();
        sink.write_line("last");
        assert_eq!(output.recv().unwrap(), b"last\n");
    }

    /// A file that the test reads.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn flush_waits_until_lines_are_written_in_order() {
        let file = Output::default();
        let sink = LogSink::writing_to(file.clone()).unwrap();
        sink.write_line("one");
        sink.write_line("two");
        sink.flush();
        assert_eq!(*file.0.lock(), b"one\ntwo\n");
    }

    #[test]
    fn held_lines_are_written_after_the_picture() {
        let file = Output::default();
        let sink = LogSink::writing_to(file.clone()).unwrap();
        let held = sink.hold();
        sink.0.queue.lock().is_held = true;
        sink.write_line("one");
        sink.flush();
        assert!(file.0.lock().is_empty());
        drop(held);
        assert_eq!(*file.0.lock(), b"one\n");
    }
}
