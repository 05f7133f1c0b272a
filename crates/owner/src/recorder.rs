//! Writes the record of a run (`--record`) from a thread of its own.
//!
//! A record must not stop the scheduler. If it cannot be written, or not fast enough, or is as
//! large as it may be, an error is logged and recording ends: a record with gaps does not replay.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use supercargo_scheduler::record::{RecordedCall, StepLog};

/// Maximum memory of queued lines: the writer can be some seconds behind, even on a slow disk.
const MOST_QUEUED: usize = 128 << 20;
/// A segment of this size is complete.
const SEGMENT_BYTES: u64 = 256 << 20;
/// Maximum number of segments: 4 GiB, a small part of a node's disk. Recording then ends, instead
/// of deleting the oldest segment: a record without its beginning does not replay.
const MOST_SEGMENTS: u32 = 16;
/// How long the end of the process waits for queued lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Queues steps, as lines, for the thread that writes them. Drops them once recording has ended.
pub struct Recorder(Option<Queue>);

/// The sender's end of the queue.
struct Queue {
    lines: Sender<Vec<u8>>,
    /// Memory of the lines that are queued.
    bytes: Arc<AtomicUsize>,
    most_bytes: usize,
}

/// The receiver's end of the queue.
struct QueuedLines {
    lines: Receiver<Vec<u8>>,
    bytes: Arc<AtomicUsize>,
}

/// Why a step was not queued.
#[derive(Debug, PartialEq, Eq)]
enum QueueError {
    /// The step cannot be written as JSON.
    Unwritable(String),
    /// The writer is too slow.
    Full,
    /// The writer has ended, and has logged why.
    Ended,
}

/// Waits, when dropped, until the queued steps of a [`Recorder`] are written. The recorder must be
/// dropped before.
pub struct Recording(Receiver<()>);

impl Recorder {
    /// Starts recording a run to files that are named after this one, the start time and a number.
    pub fn start(path: &Path, started: Timestamp) -> io::Result<(Self, Recording)> {
        Self::start_with(Segments::of_run(path, started, SEGMENT_BYTES), MOST_QUEUED)
    }

    fn start_with(mut segments: Segments, most_bytes: usize) -> io::Result<(Self, Recording)> {
        let (queue, queued) = Queue::of(most_bytes);
        let (ended, end) = channel::<()>();
        thread::Builder::new().name("record".into()).spawn(move || {
            if let Err(error) = segments.write_all(&queued) {
                let file = segments.name();
                let file = file.display();
                tracing::error!(%file, %error, "cannot write the record; recording ends");
            }
            // Tells that all is written.
            drop(ended);
        })?;
        Ok((Self(Some(queue)), Recording(end)))
    }
}

impl StepLog for Recorder {
    fn push(&mut self, step: RecordedCall) {
        let Some(queue) = &self.0 else { return };
        let Err(error) = queue.push(&step) else { return };
        match error {
            QueueError::Unwritable(error) => tracing::error!(error, "cannot write a step; recording ends"),
            QueueError::Full => tracing::error!("the record is written too slowly; recording ends"),
            QueueError::Ended => {}
        }
        self.0 = None;
    }
}

impl Queue {
    fn of(most_bytes: usize) -> (Self, QueuedLines) {
        let (sender, lines) = channel();
        let bytes = Arc::<AtomicUsize>::default();
        (Self { lines: sender, bytes: Arc::clone(&bytes), most_bytes }, QueuedLines { lines, bytes })
    }

    /// Queues a line, not the step, whose objects would take memory that nobody has counted.
    fn push(&self, step: &RecordedCall) -> Result<(), QueueError> {
        let line = step.to_line().map_err(|error| QueueError::Unwritable(error.to_string()))?;
        let size = line.capacity();
        if self.bytes.fetch_add(size, Ordering::Relaxed) + size > self.most_bytes {
            return Err(QueueError::Full);
        }
        self.lines.send(line).map_err(|_| QueueError::Ended)
    }
}

impl QueuedLines {
    /// The next line, if one is queued.
    fn try_next(&self) -> Result<Vec<u8>, TryRecvError> {
        self.lines.try_recv().inspect(|line| self.forget(line))
    }

    /// Waits for the next line; `None` once the recorder is dropped.
    fn next(&self) -> Option<Vec<u8>> {
        self.lines.recv().ok().inspect(|line| self.forget(line))
    }

    fn forget(&self, line: &Vec<u8>) {
        self.bytes.fetch_sub(line.capacity(), Ordering::Relaxed);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.0.recv_timeout(FLUSH_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the record was not written within {} s", FLUSH_TIMEOUT.as_secs());
        }
    }
}

/// The files of one run.
struct Segments {
    /// Their common name.
    prefix: PathBuf,
    number: u32,
    /// Size at which a segment is complete.
    limit: u64,
    /// Maximum number of segments.
    most: u32,
}

impl Segments {
    /// The time in their name keeps a restart from overwriting the record of the run that crashed.
    fn of_run(path: &Path, started: Timestamp, limit: u64) -> Self {
        let time = started.strftime("%Y%m%dT%H%M%S%.3fZ").to_string();
        let mut prefix = path.as_os_str().to_owned();
        prefix.push(format!(".{time}"));
        Self { prefix: prefix.into(), number: 1, limit, most: MOST_SEGMENTS }
    }

    /// The current segment.
    fn name(&self) -> PathBuf {
        let mut name = self.prefix.clone().into_os_string();
        // Padded, so that a shell lists them in order.
        name.push(format!(".{:04}", self.number));
        name.into()
    }

    fn open(&self) -> io::Result<BufWriter<File>> {
        let file = OpenOptions::new().write(true).create_new(true).open(self.name())?;
        tracing::info!(file = %self.name().display(), "recording");
        Ok(BufWriter::new(file))
    }

    /// Writes lines until the recorder is dropped. They are flushed when no more are queued.
    fn write_all(&mut self, queued: &QueuedLines) -> io::Result<()> {
        let (mut file, mut written) = (self.open()?, 0);
        loop {
            let line = match queued.try_next() {
                Ok(line) => line,
                Err(TryRecvError::Empty) => {
                    file.flush()?;
                    match queued.next() {
                        Some(line) => line,
                        None => return Ok(()),
                    }
                }
                Err(TryRecvError::Disconnected) => return file.flush(),
            };
            if written >= self.limit {
                file.flush()?;
                self.advance()?;
                (file, written) = (self.open()?, 0);
            }
            file.write_all(&line)?;
            written += line.len() as u64;
        }
    }

    /// Goes on to the next segment.
    fn advance(&mut self) -> io::Result<()> {
        if self.number == self.most {
            let full = format!("{} files of {} MiB are full", self.most, self.limit >> 20);
            return Err(io::Error::new(ErrorKind::QuotaExceeded, full));
        }
        self.number += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use supercargo_framework::Now;
    use supercargo_scheduler::record::SchedulerCall;

    use super::*;

    fn step(number: u64) -> RecordedCall {
        let now = Now { monotonic: Duration::from_secs(number), ..Now::default() };
        RecordedCall { now, call: SchedulerCall::ScheduleOne(Vec::new()), effects: Vec::new() }
    }

    /// The content of each file in the folder, by name.
    fn files(folder: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let text = fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn segments_hold_all_steps_in_order_and_a_restart_begins_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        let line = String::from_utf8(step(1).to_line().unwrap()).unwrap();
        let run = |started: &str, steps: std::ops::Range<u64>| {
            let segments = Segments::of_run(&path, started.parse().unwrap(), line.len() as u64 * 3);
            let (mut recorder, recording) = Recorder::start_with(segments, MOST_QUEUED).unwrap();
            steps.for_each(|number| recorder.push(step(number)));
            drop(recorder);
            drop(recording);
        };
        run("2026-01-02T03:04:05.678Z", 1..8);
        let first = files(folder.path());
        assert_eq!(first.iter().map(|(_, text)| text.lines().count()).collect::<Vec<_>>(), [3, 3, 1]);
        let all: String = first.iter().map(|(_, text)| text.as_str()).collect();
        let expected: Vec<u8> = (1..8).flat_map(|number| step(number).to_line().unwrap()).collect();
        assert_eq!(all.as_bytes(), expected);
        assert_eq!(first[0].0, "record.20260102T030405.678Z.0001");
        run("2026-01-02T03:04:05.679Z", 1..2);
        assert_eq!(files(folder.path()).len(), 4);
    }

    #[test]
    fn record_that_cannot_be_written_ends_and_blocks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing").join("record");
        let most_bytes = step(0).to_line().unwrap().capacity() * 2;
        let segments = Segments::of_run(&missing, Timestamp::UNIX_EPOCH, 1);
        let (mut recorder, recording) = Recorder::start_with(segments, most_bytes).unwrap();
        // The recorder ends by itself, whether the thread has failed yet or not.
        for number in 0..100 {
            recorder.push(step(number));
        }
        drop(recording);
        recorder.push(step(0));
        assert!(recorder.0.is_none());
    }

    #[test]
    fn full_record_ends_and_keeps_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        let segments = Segments { most: 2, ..Segments::of_run(&path, Timestamp::UNIX_EPOCH, 1) };
        let (mut recorder, recording) = Recorder::start_with(segments, MOST_QUEUED).unwrap();
        (1..=4).for_each(|number| recorder.push(step(number)));
        drop(recorder);
        drop(recording);
        let written: String = files(folder.path()).into_iter().map(|(_, text)| text).collect();
        let expected: Vec<u8> = (1..=2).flat_map(|number| step(number).to_line().unwrap()).collect();
        assert_eq!(written.as_bytes(), expected);
    }

    #[test]
    fn steps_that_are_written_too_slowly_end_the_record() {
        let size = step(0).to_line().unwrap().capacity();
        let (queue, queued) = Queue::of(size * 2);
        let mut recorder = Recorder(Some(queue));
        // What has been taken does not count.
        for number in 0..10 {
            recorder.push(step(number));
            assert!(queued.next().is_some());
        }
        for number in 0..3 {
            assert!(recorder.0.is_some());
            recorder.push(step(number));
        }
        assert!(recorder.0.is_none());
        assert_eq!(queued.lines.iter().count(), 2);
    }

    #[test]
    fn one_large_step_fills_the_queue() {
        let (queue, queued) = Queue::of(1 << 20);
        let large = RecordedCall { effects: vec!["x".repeat(2 << 20)], ..step(0) };
        assert_eq!(queue.push(&large), Err(QueueError::Full));
        drop(queue);
        assert!(queued.next().is_none());
    }
}
