//! Processes, and what Linux says of the processor time and memory they take.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Ends the process `$1` when whoever holds our standard input is gone, in whatever way.
const LEASH: &str = r#"read -r _; kill -KILL "$1""#;

/// Ticks a second in `/proc`: the same for all programs on every Linux there is.
const TICKS: u64 = 100;

/// A program that runs. It ends with this value, and with this process.
pub(crate) struct Process {
    child: Child,
    leash: Child,
    log: PathBuf,
    pub(crate) started: Instant,
}

/// What a process holds, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    /// The most it has held so far.
    pub(crate) peak: u64,
}

impl Process {
    /// Starts a program whose words go to `log`.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let mut command = Command::new(program);
        // Nothing in the environment tells it where another cluster is, or to say more than it does by itself.
        for name in ["SUPERCARGO_LOG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"] {
            command.env_remove(name);
        }
        command.args(arguments).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        let leash = Command::new("sh")
            .args(["-c", LEASH, "leash", &child.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match leash {
            Ok(leash) => Ok(Self { child, leash, log: log.to_owned(), started }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error).context("start a shell that ends the program with us")
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error with its last words, if it has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                bail!("the scheduler has ended with {status}; its last words:\n{}", self.last_words())
            }
        }
    }

    pub(crate) fn last_words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The leash first: once the process is reaped its number may be somebody else's.
        let _ = self.leash.kill();
        let _ = self.leash.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processor time that a process, its threads, and those of its children that have ended have taken.
pub(crate) fn cpu(process: u32) -> Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    cpu_of(&stat).with_context(|| format!("{path} is not as Linux writes it"))
}

fn cpu_of(stat: &str) -> Option<Duration> {
    // The program's name may have spaces; the rest has none, and begins with the third field.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // utime, stime, cutime, cstime.
    let ticks = (14..18).map(|field| fields.get(field - 3)?.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(ticks * 1000 / TICKS))
}

/// The memory that a process holds.
pub(crate) fn memory(process: u32) -> Result<Memory> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    };
    let memory = field("VmRSS:").zip(field("VmHWM:"));
    let (resident, peak) = memory.with_context(|| format!("{path} says nothing of memory"))?;
    Ok(Memory { resident, peak })
}

/// The process of a program that this one has started, itself or through others.
pub(crate) fn descendant(program: &str) -> Result<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").context("there is no /proc: this benchmark needs Linux")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // It may have ended since it was listed.
        if let Some((name, parent)) =
            fs::read_to_string(format!("/proc/{id}/stat")).ok().and_then(|s| parent_of(&s))
        {
            parents.push((id, name, parent));
        }
    }
    let parent = |of: u32| parents.iter().find(|(id, ..)| *id == of).map(|(.., parent)| *parent);
    let ours = |id: u32| std::iter::successors(Some(id), |id| parent(*id)).any(|id| id == std::process::id());
    // The system cuts names after 15 bytes.
    let short = &program[..program.len().min(15)];
    let found = parents.iter().find(|(id, name, _)| name == short && ours(*id));
    found.map(|(id, ..)| *id).with_context(|| format!("no {program} runs here"))
}

/// The name of a process's program, and its parent.
fn parent_of(stat: &str) -> Option<(String, u32)> {
    let (head, rest) = stat.rsplit_once(") ")?;
    let name = head.split_once(" (")?.1;
    Some((name.to_owned(), rest.split_ascii_whitespace().nth(1)?.parse().ok()?))
}
