//! Upstream's scheduling cycles in process (`schedbench/`), for benchmarks.

use std::io::{BufWriter, ErrorKind, Result as IoResult, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};

use crate::assets::{Assets, Program};

/// The program. `schedbench/main.go` describes input and output.
#[derive(Debug)]
pub struct SchedBench(PathBuf);

/// Its input.
#[derive(Debug)]
pub struct SchedBenchInput(BufWriter<ChildStdin>);

impl SchedBench {
    /// Builds it, if it is missing.
    pub fn locate() -> Result<Self> {
        Ok(Self(Assets::locate()?.path(Program::SchedBench)?))
    }

    /// Starts it.
    pub fn start(&self) -> Result<(Child, SchedBenchInput, ChildStdout)> {
        let mut child = Command::new(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", self.0.display()))?;
        let input = child.stdin.take().context("its input is a pipe")?;
        let output = child.stdout.take().context("its output is a pipe")?;
        Ok((child, SchedBenchInput(BufWriter::new(input)), output))
    }
}

impl SchedBenchInput {
    /// Writes a line: `{"WHAT": VALUE}`.
    pub fn line(&mut self, what: &str, value: Value) -> IoResult<()> {
        serde_json::to_writer(&mut self.0, &json!({ what: value }))?;
        self.0.write_all(b"\n")
    }

    /// Writes all lines, and ends the input. The program may stop reading earlier: when its time is
    /// used up, or when it is stopped.
    pub fn write(mut self, lines: impl FnOnce(&mut Self) -> IoResult<()>) -> Result<()> {
        match lines(&mut self).and_then(|()| self.0.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written.context("tell schedbench"),
        }
    }

    /// The same in another thread.
    pub fn write_beside(
        self,
        lines: impl FnOnce(&mut Self) -> IoResult<()> + Send + 'static,
    ) -> SchedBenchWriter {
        SchedBenchWriter(thread::spawn(move || self.write(lines)))
    }
}

/// A thread that writes its input.
#[derive(Debug)]
pub struct SchedBenchWriter(JoinHandle<Result<()>>);

impl SchedBenchWriter {
    /// Waits for its end.
    pub fn end(self) -> Result<()> {
        self.0.join().map_err(|_| anyhow!("the writer of schedbench's input panicked"))?
    }
}
