//! A program beside the API server, and its handle for tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::assets::Program;
use crate::process::{self, Process};

/// How long a started program is observed for a rejected configuration.
const SETTLE: Duration = Duration::from_millis(500);

/// The time limit for the first log line. A program that is not upstream's may log something else.
const SILENCE: Duration = Duration::from_secs(30);

/// The time limit for kwok, which logs no such line.
const SILENCE_OF_KWOK: Duration = Duration::from_secs(5);

/// The log message of Kubernetes programs after reading their configuration.
const STARTS: &str = "Starting";

/// The state that a handle shares with its control plane.
#[derive(Debug)]
pub(crate) struct Component {
    pub(crate) program: Program,
    name: String,
    log: PathBuf,
    process: Mutex<Process>,
}

impl Component {
    pub(crate) fn new(program: Program, name: String, log: PathBuf, process: Process) -> Arc<Self> {
        Arc::new(Self { program, name, log, process: Mutex::new(process) })
    }

    /// Waits a moment for the program to reject its configuration, and fails if it does. The time
    /// runs from its first log line, because a busy machine may take long to load it.
    pub(crate) fn settle(&self) -> Result<()> {
        let started = Instant::now();
        let silence = if self.program == Program::Kwok { SILENCE_OF_KWOK } else { SILENCE };
        let mut starts = None;
        loop {
            thread::sleep(Duration::from_millis(50));
            let mut process = self.process();
            if let Some(status) = process.exited()? {
                bail!("{} ended with {status}; its last lines:\n{}", self.name, process.log_tail());
            }
            if starts.is_none() && fs::read_to_string(&self.log).is_ok_and(|log| log.contains(STARTS)) {
                starts = Some(Instant::now());
            }
            if starts.is_some_and(|since| since.elapsed() > SETTLE) || started.elapsed() > silence {
                return Ok(());
            }
        }
    }

    pub(crate) fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running kube-scheduler, kube-controller-manager or kwok. Dropping the handle or its control
/// plane stops the program.
#[derive(Debug)]
#[must_use = "dropping the handle stops the program"]
pub struct Handle(pub(crate) Arc<Component>);

impl Handle {
    /// The program's name, with a number for further instances (`kube-scheduler-2`).
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The path of its log.
    pub fn log_path(&self) -> &Path {
        &self.0.log
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        process::read_log(&self.0.log)
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        matches!(self.0.process().exited(), Ok(None))
    }

    /// Ends it gracefully (SIGTERM, then SIGKILL after 5 s) and waits for its end. The log stays.
    pub fn stop(&self) {
        self.0.process().stop();
    }

    /// Kills it (SIGKILL), like a crash.
    pub fn kill(&self) {
        self.0.process().kill();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}
