//! Running schedulers: how each is started and read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use supercargo_controlplane::{Assets, ChildProcess, ControlPlane, Handle, Program, SchedulerOptions};

use super::memory::Embedded;
use super::namespace::NAMESPACE;
use super::scheduler_kind::{Gates, SchedulerKind};
use crate::support;

/// The user of both.
const USER: &str = "system:kube-scheduler";

/// A running scheduler. Dropping it ends it.
#[derive(Debug)]
pub(super) enum Scheduler {
    Upstream(Handle),
    Supercargo(Supercargo),
    Embedded(Embedded),
}

impl Scheduler {
    /// Starts it with these feature gates beside those of all scenarios.
    pub(super) fn start(plane: &ControlPlane, side: SchedulerKind, gates: &Gates) -> Result<Self> {
        let config = side.config(gates);
        let gates = format!("--feature-gates={}", gates.of_schedulers());
        match side {
            SchedulerKind::Upstream => {
                let options = SchedulerOptions {
                    config_yaml: Some(config),
                    user: USER.to_owned(),
                    // kube-scheduler logs final scores from 10 on.
                    verbosity: 10,
                    json_log: true,
                    extra_args: vec![gates],
                    ..Default::default()
                };
                Ok(Self::Upstream(plane.start_kube_scheduler(&options)?))
            }
            SchedulerKind::Supercargo => Ok(Self::Supercargo(Supercargo::start(plane, &config, &gates)?)),
        }
    }

    pub(super) fn side(&self) -> SchedulerKind {
        match self {
            Self::Upstream(_) => SchedulerKind::Upstream,
            Self::Supercargo(_) | Self::Embedded(_) => SchedulerKind::Supercargo,
        }
    }

    /// Fails with the end of its log if it has ended.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        let (alive, log) = match self {
            Self::Upstream(handle) => (handle.is_running(), handle.log_path().to_owned()),
            Self::Supercargo(child) => (child.process.exited()?.is_none(), child.log.clone()),
            Self::Embedded(embedded) => return embedded.check_alive(),
        };
        if !alive {
            let log = fs::read(&log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(15)..].join("\n");
            anyhow::bail!("{:?} has ended; its last log lines:\n{last}", self.side());
        }
        Ok(())
    }

    /// The current end of its log.
    pub(super) fn mark(&self) -> Result<u64> {
        match self {
            Self::Upstream(handle) => Ok(fs::metadata(handle.log_path())?.len()),
            Self::Supercargo(_) | Self::Embedded(_) => Ok(0),
        }
    }

    /// The final scores by pod and node that were logged since `mark`, of each pod's last scored
    /// cycle. A cycle with one feasible node has none. Only kube-scheduler logs them.
    pub(super) fn scores_since(&self, mark: u64) -> Result<Scores> {
        match self {
            Self::Upstream(handle) => read_scores(handle.log_path(), mark),
            Self::Supercargo(_) | Self::Embedded(_) => Ok(Scores::new()),
        }
    }
}

/// By pod, then by node.
pub(super) type Scores = BTreeMap<String, BTreeMap<String, i64>>;

fn read_scores(log: &Path, mark: u64) -> Result<Scores> {
    let mut file = File::open(log).with_context(|| format!("open {}", log.display()))?;
    file.seek(SeekFrom::Start(mark))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut scores = Scores::new();
    for line in text.lines().filter(|line| line.contains("Calculated node's final score for pod")) {
        let line: Value = serde_json::from_str(line).with_context(|| format!("read the log line {line}"))?;
        let text = |pointer: &str| line.pointer(pointer).and_then(Value::as_str);
        let (Some(pod), Some(node)) = (text("/pod/name"), text("/node")) else {
            anyhow::bail!("a line with a final score lacks its pod or node: {line}")
        };
        let score = line.get("score").and_then(Value::as_i64);
        let score = score.with_context(|| format!("a line with a final score lacks the score: {line}"))?;
        if text("/pod/namespace") == Some(NAMESPACE) {
            let nodes = scores.entry(pod.to_owned()).or_default();
            if nodes.contains_key(node) {
                // A later cycle of the same pod.
                nodes.clear();
            }
            nodes.insert(node.to_owned(), score);
        }
    }
    Ok(scores)
}

/// supercargo as a process, with its log in the folder of the control plane.
#[derive(Debug)]
pub(super) struct Supercargo {
    process: ChildProcess,
    log: PathBuf,
}

impl Supercargo {
    fn start(plane: &ControlPlane, config: &str, gates: &str) -> Result<Self> {
        let kubeconfig = plane.kubeconfig(USER)?;
        let (file, log) = (plane.dir().join("supercargo.yaml"), plane.dir().join("supercargo.log"));
        fs::write(&file, config.replace("{kubeconfig}", &kubeconfig.display().to_string()))
            .with_context(|| format!("write {}", file.display()))?;
        let output = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut command = support::command(["run", "--leader-elect=false", gates, "--kubeconfig"]);
        command.arg(&kubeconfig).arg("--config").arg(&file);
        command.stdout(output.try_clone()?).stderr(output);
        Ok(Self { process: ChildProcess::spawn(&mut command, None)?, log })
    }
}

/// The version of kube-scheduler.
pub(super) fn upstream_version() -> Result<String> {
    let program = Assets::locate()?.path(Program::KubeScheduler)?;
    let output = Command::new(&program)
        .arg("--version")
        .output()
        .with_context(|| format!("run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(!text.is_empty(), "kube-scheduler --version prints nothing");
    Ok(text)
}
