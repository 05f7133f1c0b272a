//! Writes the record of a run (`--record`) from a thread of its own.
//!
//! A record must not stop the scheduler. If it cannot be written, or not fast enough, an error is
//! logged and recording ends: a record with gaps does not replay.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, channel, sync_channel,
};
use std::thread;
use std::time::Duration;

use supercargo_scheduler::record::{Step, StepLog};

/// Maximum number of queued steps. All pods of a large cluster arrive at once, faster than they are
/// written.
const MOST_QUEUED: usize = 1 << 18;
/// A segment of this size is complete.
const SEGMENT_BYTES: u64 = 256 << 20;
/// How long the end of the process waits for queued steps.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Queues steps for the thread that writes them. Drops them once recording has ended.
pub(crate) struct Recorder(Option<SyncSender<Step>>);

/// Waits, when dropped, until the queued steps of a [`Recorder`] are written. The recorder must be
/// dropped before.
pub(crate) struct Recording(Receiver<()>);

impl Recorder {
    /// Starts recording a run to files that are named after this one, the time and a number.
    pub(crate) fn start(path: &Path) -> io::Result<(Self, Recording)> {
        Self::start_with(Segments::of_run(path, SEGMENT_BYTES), MOST_QUEUED)
    }

    fn start_with(mut segments: Segments, most_queued: usize) -> io::Result<(Self, Recording)> {
        let (sender, steps) = sync_channel(most_queued);
        let (ended, end) = channel::<()>();
        thread::Builder::new().name("record".into()).spawn(move || {
            if let Err(error) = segments.write_all(&steps) {
                let file = segments.name();
                let file = file.display();
                tracing::error!(%file, %error, "cannot write the record; recording ends");
            }
            // Tells that all is written.
            drop(ended);
        })?;
        Ok((Self(Some(sender)), Recording(end)))
    }
}

impl StepLog for Recorder {
    fn push(&mut self, step: Step) {
        let Some(sender) = &self.0 else { return };
        match sender.try_send(step) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                tracing::error!("the record is written too slowly; recording ends");
                self.0 = None;
            }
            // The thread has logged why.
            Err(TrySendError::Disconnected(_)) => self.0 = None,
        }
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
}

impl Segments {
    /// The time in their name keeps a restart from overwriting the record of the run that crashed.
    fn of_run(path: &Path, limit: u64) -> Self {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ").to_string();
        let mut prefix = path.as_os_str().to_owned();
        prefix.push(format!(".{time}"));
        Self { prefix: prefix.into(), number: 1, limit }
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

    /// Writes steps until the recorder is dropped. Steps are flushed when no more are queued.
    fn write_all(&mut self, steps: &Receiver<Step>) -> io::Result<()> {
        let (mut file, mut written) = (self.open()?, 0);
        loop {
            let step = match steps.try_recv() {
                Ok(step) => step,
                Err(TryRecvError::Empty) => {
                    file.flush()?;
                    match steps.recv() {
                        Ok(step) => step,
                        Err(_) => return Ok(()),
                    }
                }
                Err(TryRecvError::Disconnected) => return file.flush(),
            };
            if written >= self.limit {
                file.flush()?;
                self.number += 1;
                (file, written) = (self.open()?, 0);
            }
            let line = step.to_line()?;
            file.write_all(&line)?;
            written += line.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use supercargo_framework::Now;
    use supercargo_scheduler::record::Call;

    use super::*;

    fn step(number: u64) -> Step {
        let now = Now { monotonic: Duration::from_secs(number), ..Now::default() };
        Step { now, call: Call::ScheduleOne(Vec::new()), effects: Vec::new() }
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
        let run = |steps: std::ops::Range<u64>| {
            let segments = Segments::of_run(&path, line.len() as u64 * 3);
            let (mut recorder, recording) = Recorder::start_with(segments, 100).unwrap();
            steps.for_each(|number| recorder.push(step(number)));
            drop(recorder);
            drop(recording);
        };
        run(1..8);
        let first = files(folder.path());
        assert_eq!(first.iter().map(|(_, text)| text.lines().count()).collect::<Vec<_>>(), [3, 3, 1]);
        let all: String = first.iter().map(|(_, text)| text.as_str()).collect();
        let expected: Vec<u8> = (1..8).flat_map(|number| step(number).to_line().unwrap()).collect();
        assert_eq!(all.as_bytes(), expected);
        let name = &first[0].0;
        assert!(name.starts_with("record.20") && name.ends_with("Z.0001"), "{name}");
        thread::sleep(Duration::from_millis(2));
        run(1..2);
        assert_eq!(files(folder.path()).len(), 4);
    }

    #[test]
    fn record_that_cannot_be_written_ends_and_blocks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing").join("record");
        let (mut recorder, recording) = Recorder::start_with(Segments::of_run(&missing, 1), 2).unwrap();
        // The recorder ends by itself, whether the thread has failed yet or not.
        for number in 0..100 {
            recorder.push(step(number));
        }
        drop(recording);
        recorder.push(step(0));
        assert!(recorder.0.is_none());
    }

    #[test]
    fn steps_that_are_written_too_slowly_end_the_record() {
        let (sender, steps) = sync_channel(2);
        let mut recorder = Recorder(Some(sender));
        for number in 0..3 {
            recorder.push(step(number));
        }
        assert!(recorder.0.is_none());
        assert_eq!(steps.iter().count(), 2);
    }
}
