//! The lines of a check: each says ok, or what to do.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::output::{tolerate_closed_pipe, write_text};

/// Prints lines as they come, because later checks may take long.
pub(super) struct Report {
    out: Box<dyn Write + Send>,
    failures: usize,
    warnings: usize,
}

impl Report {
    pub(super) fn to(out: impl Write + Send + 'static) -> Self {
        Self { out: Box::new(out), failures: 0, warnings: 0 }
    }

    /// Begins a group of lines.
    pub(super) fn section(&mut self, name: &str) -> Result<()> {
        self.print(name)
    }

    pub(super) fn ok(&mut self, text: &str) -> Result<()> {
        self.line("ok", text, "")
    }

    /// Not needed for scheduling, or only sometimes.
    pub(super) fn warned(&mut self, text: &str, advice: &str) -> Result<()> {
        self.warnings += 1;
        self.line("WARN", text, advice)
    }

    /// A scheduler cannot work so.
    pub(super) fn failed(&mut self, text: &str, advice: &str) -> Result<()> {
        self.failures += 1;
        self.line("FAIL", text, advice)
    }

    pub(super) fn skipped(&mut self, text: &str) -> Result<()> {
        self.line("skip", text, "")
    }

    fn line(&mut self, outcome: &str, text: &str, advice: &str) -> Result<()> {
        self.print(&format!("  {outcome:<4}  {text}"))?;
        if advice.is_empty() { Ok(()) } else { self.print(&format!("        {advice}")) }
    }

    /// Prints the result. The exit code is 1 after a failure.
    pub(super) fn end(mut self) -> Result<ExitCode> {
        let Self { failures, warnings, .. } = self;
        self.print(&format!("{failures} failed, {warnings} warnings"))?;
        Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print(&mut self, text: &str) -> Result<()> {
        tolerate_closed_pipe(write_text(&mut *self.out, format!("{text}\n").as_bytes()))
    }
}
