//! A program beside the API server, and the handle a test holds to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::assets::Program;
use crate::process::{self, Process};

/// How long a program is watched, once it says that it starts, for a refusal of its configuration.
const SETTLE: Duration = Duration::from_millis(500);

/// How long it may take to say so; a program that is not upstream's says something else, or nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// The same for kwok, which never says so.
const SILENCE_OF_KWOK: Duration = Duration::from_secs(5);

/// What Kubernetes' own programs say when they have understood their configuration.
const STARTS: &str = "Starting";

/// What a handle and its control plane share.
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

    /// Gives the program time to refuse what it was given, and says so if it did. The time counts from when it
    /// says that it starts, because a busy machine may take long to load it.
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

/// A running kube-scheduler, kube-controller-manager or kwok. Dropping it stops the program; so does dropping
/// its control plane.
#[derive(Debug)]
#[must_use = "dropping the handle stops the program"]
pub struct Handle(pub(crate) Arc<Component>);

impl Handle {
    /// The program's name, with a number from the second of its kind on (`kube-scheduler-2`).
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Where its log is written.
    pub fn log_path(&self) -> &Path {
        &self.0.log
    }

    /// Everything it has logged so far.
    pub fn log(&self) -> String {
        process::read_log(&self.0.log)
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        matches!(self.0.process().exited(), Ok(None))
    }

    /// Ends it in order (SIGTERM, then SIGKILL after 5 s) and waits for that. The log stays.
    pub fn stop(&self) {
        self.0.process().stop();
    }

    /// Ends it at once (SIGKILL), as a crash would.
    pub fn kill(&self) {
        self.0.process().kill();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}
