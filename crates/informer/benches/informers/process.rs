//! Processes that are started to be measured from outside, all by the same measure.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::task::{Answer, Step};

/// A process that takes a task and then steps. It ends with its stdin, so also when this one is killed.
pub(crate) struct Process {
    child: Child,
    /// `None` once it is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// What a step took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) answer: Answer,
    /// Processor time until the process had come to rest, all threads together. `None` where the system does not tell.
    pub(crate) cpu: Option<Duration>,
    /// Until the last listener had seen all.
    pub(crate) wall: Duration,
}

impl Process {
    /// Starts a process and gives it its task.
    pub(crate) fn start(program: &Path, arguments: &[&str], task: &impl Serialize) -> Result<Self> {
        let mut child =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("a process without stdout")?);
        let mut process = Self { child, input, output };
        process.write(&serde_json::to_string(task)?)?;
        Ok(process)
    }

    fn write(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().ok_or("the process was told to end")?;
        input.write_all(line.as_bytes())?;
        input.write_all(b"\n")?;
        Ok(input.flush()?)
    }

    /// Its next line.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("a measured process ended early".into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// Tells it something, and gives its answer.
    pub(crate) fn tell<T: DeserializeOwned>(&mut self, line: &str) -> Result<T> {
        self.write(line)?;
        self.read()
    }

    /// Has it do a step, with something to be done here meanwhile.
    pub(crate) fn step(&mut self, step: Step, meanwhile: impl FnOnce() -> Result<()>) -> Result<Cost> {
        let before = self.rest();
        self.write(step.name())?;
        meanwhile()?;
        let answer: Answer = self.read()?;
        let cpu = before.and_then(|before| Some(self.rest()?.saturating_sub(before)));
        Ok(Cost { answer, cpu, wall: Duration::from_nanos(answer.nanos) })
    }

    /// Waits until next to nothing happens in it any more; its processor time then.
    fn rest(&self) -> Option<Duration> {
        const LOOK: Duration = Duration::from_millis(50);
        const NOTHING: Duration = Duration::from_millis(1);
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut before = self.cpu()?;
        loop {
            thread::sleep(LOOK);
            let now = self.cpu()?;
            if now.saturating_sub(before) < NOTHING || Instant::now() > deadline {
                return Some(now);
            }
            before = now;
        }
    }

    /// Its processor time, where Linux says. Threads that have ended do not count, but neither runtime ends any.
    fn cpu(&self) -> Option<Duration> {
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()? {
            let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            nanos += text.split(' ').next()?.parse::<u64>().ok()?;
        }
        Some(Duration::from_nanos(nanos))
    }

    /// Its resident memory in bytes, where Linux says.
    pub(crate) fn resident(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        // It may be in the middle of something.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
