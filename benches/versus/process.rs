//! Processes, with the CPU time and memory that Linux reports for them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use supercargo_controlplane::ChildProcess;

/// Ticks per second in `/proc`: the same for all programs on every Linux.
const TICKS: u64 = 100;

/// A running program. It ends with this value, and with this process.
pub(crate) struct Process {
    child: ChildProcess,
    log: PathBuf,
    pub(crate) started: Instant,
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    /// The maximum so far.
    pub(crate) peak: u64,
}

impl Process {
    /// Starts a program that logs to `log`.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let mut command = Command::new(program);
        // The environment must not point to another cluster or change the log level.
        for name in ["SUPERCARGO_LOG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"] {
            command.env_remove(name);
        }
        command.args(arguments).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let started = Instant::now();
        Ok(Self { child: ChildProcess::spawn(&mut command, None)?, log: log.to_owned(), started })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails with the end of its log if it has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.exited()? {
            None => Ok(()),
            Some(status) => {
                bail!("the scheduler has ended with {status}; its last log lines:\n{}", self.log_tail())
            }
        }
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

/// The CPU time of a process with its threads and its children that have ended.
pub(crate) fn cpu(process: u32) -> Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    cpu_of(&stat).with_context(|| format!("{path} has an unknown format"))
}

fn cpu_of(stat: &str) -> Option<Duration> {
    // Only the program's name may have spaces. The rest begins with the third field.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // utime, stime, cutime, cstime.
    let ticks = (14..18).map(|field| fields.get(field - 3)?.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(ticks * 1000 / TICKS))
}

/// The memory of a process.
pub(crate) fn memory(process: u32) -> Result<Memory> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    };
    let memory = field("VmRSS:").zip(field("VmHWM:"));
    let (resident, peak) = memory.with_context(|| format!("{path} has no memory fields"))?;
    Ok(Memory { resident, peak })
}

/// The process ID of a program that this process has started, directly or not.
pub(crate) fn descendant(program: &str) -> Result<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").context("there is no /proc: this benchmark needs Linux")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // It may have ended since the listing.
        if let Some((name, parent)) =
            fs::read_to_string(format!("/proc/{id}/stat")).ok().and_then(|s| parent_of(&s))
        {
            parents.push((id, name, parent));
        }
    }
    let parent = |of: u32| parents.iter().find(|(id, ..)| *id == of).map(|(.., parent)| *parent);
    let ours = |id: u32| std::iter::successors(Some(id), |id| parent(*id)).any(|id| id == std::process::id());
    // Linux truncates names to 15 bytes.
    let short = &program[..program.len().min(15)];
    let found = parents.iter().find(|(id, name, _)| name == short && ours(*id));
    found.map(|(id, ..)| *id).with_context(|| format!("no {program} runs"))
}

/// The name and the parent of a process.
fn parent_of(stat: &str) -> Option<(String, u32)> {
    let (head, rest) = stat.rsplit_once(") ")?;
    let name = head.split_once(" (")?.1;
    Some((name.to_owned(), rest.split_ascii_whitespace().nth(1)?.parse().ok()?))
}
