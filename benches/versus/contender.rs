//! The contenders: the two schedulers, and a client that only writes.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::api::Wire;
use crate::cluster::{Cluster, USER};
use crate::process::Process;
use crate::script::{Encoding, Script};
use crate::workload::SCHEDULER;

/// A contender.
pub(crate) enum Contender {
    Scheduler(Scheduler),
    Bare(Bare),
}

/// A scheduler to start.
pub(crate) enum Scheduler {
    Upstream(PathBuf),
    Supercargo(PathBuf),
}

/// A client that repeats supercargo's writes as fast as possible.
pub(crate) struct Bare {
    pub(crate) script: Script,
    pub(crate) way: ClientOptions,
    pub(crate) encoding: Encoding,
}

/// Its protocol and concurrency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientOptions {
    pub(crate) wire: Wire,
    pub(crate) in_flight: usize,
}

impl Contender {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Scheduler(Scheduler::Upstream(_)) => "kube-scheduler",
            Self::Scheduler(Scheduler::Supercargo(_)) => "supercargo",
            Self::Bare(_) => "bare client",
        }
    }
}

impl Scheduler {
    /// Starts it with a configuration that is equal for both: the defaults, except for the request
    /// limits.
    pub(crate) fn start(&self, cluster: &Cluster) -> Result<Process> {
        let kubeconfig = cluster.plane.kubeconfig(USER)?.display().to_string();
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000},
            "leaderElection": {"leaderElect": false},
            "profiles": [{"schedulerName": SCHEDULER}],
        });
        let path = cluster.plane.dir().join("versus.yaml");
        fs::write(&path, config.to_string()).with_context(|| format!("write {}", path.display()))?;
        let config = format!("--config={}", path.display());
        let log = |name| cluster.plane.dir().join(name);
        match self {
            // Its endpoints are not needed, and its default port may be in use.
            Self::Upstream(program) => {
                Process::start(program, &[config, "--secure-port=0".to_owned()], &log("upstream.log"))
            }
            Self::Supercargo(program) => {
                let arguments = ["run".to_owned(), config, "--secure-port=0".to_owned()];
                Process::start(program, &arguments, &log("supercargo.log"))
            }
        }
    }
}

/// Builds supercargo in the profile of this program.
pub(crate) fn build_supercargo() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let mut command = xtask::workspace::cargo();
    command.args(["build", "--locked", "--package", "supercargo", "--bin", "supercargo"]);
    command.args(["--message-format", "json-render-diagnostics", "--quiet", "--manifest-path"]).arg(manifest);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let output = command.stderr(Stdio::inherit()).output().context("run cargo to build supercargo")?;
    ensure!(output.status.success(), "supercargo does not build: cargo ended with {}", output.status);
    let messages = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let is_ours =
        |message: &Value| message["target"]["name"] == "supercargo" && message["executable"].is_string();
    let ours = messages.filter_map(Result::ok).find(is_ours);
    let path = ours.as_ref().and_then(|message| message["executable"].as_str()).map(PathBuf::from);
    path.context("cargo does not say where supercargo is")
}

impl fmt::Display for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = if self.way.wire == Wire::Http1 { "HTTP/1.1" } else { "HTTP/2" };
        let encoding = if self.encoding == Encoding::Json { "JSON" } else { "protobuf" };
        write!(f, "{wire}, {encoding}, {} in flight", self.way.in_flight)
    }
}
