//! Processes that are measured from outside, all in the same way.

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

/// A process that reads a task, then steps. It ends with its stdin, and so with this process.
pub(crate) struct Process {
    child: Child,
    /// `None` once it has to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// The cost of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) answer: Answer,
    /// The processor time of all threads until the process is idle. `None` if the system does not
    /// report it.
    pub(crate) cpu: Option<Duration>,
    /// The time until the last listener has received everything.
    pub(crate) wall: Duration,
}

impl Process {
    /// Starts a process and sends its task.
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
        let input = self.input.as_mut().ok_or("the process is ending")?;
        input.write_all(line.as_bytes())?;
        input.write_all(b"\n")?;
        Ok(input.flush()?)
    }

    /// The next line of its output.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("a measured process ended early".into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// Sends a line, and returns the response.
    pub(crate) fn tell<T: DeserializeOwned>(&mut self, line: &str) -> Result<T> {
        self.write(line)?;
        self.read()
    }

    /// Runs a step, with `meanwhile` in this process.
    pub(crate) fn step(&mut self, step: Step, meanwhile: impl FnOnce() -> Result<()>) -> Result<Cost> {
        let before = self.rest();
        self.write(step.name())?;
        meanwhile()?;
        let answer: Answer = self.read()?;
        let cpu = before.and_then(|before| Some(self.rest()?.saturating_sub(before)));
        Ok(Cost { answer, cpu, wall: Duration::from_nanos(answer.nanos) })
    }

    /// Waits until the process is almost idle. Returns its processor time.
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

    /// The processor time, on Linux. Ended threads do not count, but neither runtime ends threads.
    fn cpu(&self) -> Option<Duration> {
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()? {
            let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            nanos += text.split(' ').next()?.parse::<u64>().ok()?;
        }
        Some(Duration::from_nanos(nanos))
    }

    /// The resident memory in bytes, on Linux.
    pub(crate) fn resident(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        // The process may be busy.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
