//! A scheduler as a process, with its cost.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use serde_json::json;
use supercargo_controlplane::{Assets, ChildProcess, ControlPlane, Program};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::objects::SCHEDULER;

/// The kernel counts CPU time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// A scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    KubeScheduler,
    Supercargo,
}

/// The cost of one start.
#[derive(Debug)]
pub(crate) struct Measure {
    pub(crate) which: Which,
    /// From the start of the process until its first binding was seen.
    pub(crate) first_binding: Duration,
    /// The CPU time until then, on all cores.
    pub(crate) cpu: Duration,
    /// Resident memory after it has settled, in bytes.
    pub(crate) resident: u64,
    /// The peak.
    pub(crate) peak: u64,
}

impl Which {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KubeScheduler => "kube-scheduler",
            Self::Supercargo => "supercargo",
        }
    }

    fn command(self, plane: &ControlPlane) -> Result<Command> {
        let config = plane.dir().join("startup.yaml");
        let kubeconfig = plane.kubeconfig("system:kube-scheduler")?;
        let text = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000},
            "profiles": [{"schedulerName": SCHEDULER}],
        });
        fs::write(&config, text.to_string()).with_context(|| format!("write {}", config.display()))?;
        let command = match self {
            Self::KubeScheduler => {
                let mut command = Command::new(Assets::locate()?.path(Program::KubeScheduler)?);
                command.args(["--leader-elect=false", "--secure-port=0", "-v=2"]);
                command
            }
            Self::Supercargo => {
                let mut command = Command::new(std::env::current_exe().context("this program")?);
                command.args(["run", "--feature-gates=", "--secure-port=0"]);
                command
            }
        };
        let mut command = command;
        command.arg("--config").arg(config);
        Ok(command)
    }

    fn start(self, plane: &ControlPlane) -> Result<ChildProcess> {
        let path = plane.dir().join(format!("startup-{}.log", self.name()));
        let log = File::options().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("open {}", path.display()))?;
        let mut command = self.command(plane)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        ChildProcess::spawn(&mut command, None)
    }
}

/// Starts a scheduler while one pod is pending, and ends it after reading its memory.
pub(crate) async fn measure(
    plane: &ControlPlane,
    cluster: &Cluster,
    which: Which,
    settle: Duration,
) -> Result<Measure> {
    let waiting = cluster.add_waiting().await?;
    let started = Instant::now();
    let mut process = which.start(plane)?;
    let bound = cluster.bound(waiting).await.with_context(|| which.name())?;
    let pid = process.id();
    let cpu = cpu(pid)?;
    tokio::time::sleep(settle).await;
    if let Some(status) = process.exited()? {
        bail!("{} ended by itself: {status}", which.name());
    }
    let [resident, peak] = ["VmRSS:", "VmHWM:"].map(|field| memory(pid, field));
    Ok(Measure { which, first_binding: bound - started, cpu, resident: resident?, peak: peak? })
}

/// Keeps the schedulers' logs, which the control plane would remove.
pub(crate) fn keep_logs(plane: &ControlPlane, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    for which in [Which::KubeScheduler, Which::Supercargo] {
        let name = format!("startup-{}.log", which.name());
        if let Ok(log) = fs::read(plane.dir().join(&name)) {
            fs::write(folder.join(&name), log).with_context(|| format!("write {name}"))?;
        }
    }
    Ok(())
}

/// The CPU time of a process.
fn cpu(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read what a process costs")?;
    // The name in parentheses may contain anything.
    let (_, fields) = stat.rsplit_once(')').context("a process's state")?;
    let mut ticks = fields.split_ascii_whitespace().skip(11).map(str::parse::<u32>);
    let (user, system) = (ticks.next().context("user time")??, ticks.next().context("system time")??);
    Ok(TICK * (user + system))
}

/// A field in KiB of a process's status, in bytes.
fn memory(pid: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("read a process's memory")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).with_context(|| field.to_owned())?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().with_context(|| field.to_owned())?;
    Ok(kib * 1024)
}
