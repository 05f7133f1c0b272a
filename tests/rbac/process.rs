//! The program as a process.

use std::fs::{self, File};
use std::path::Path;
use std::process::ExitStatus;

use serde_json::Value;
use supercargo_controlplane::{ChildProcess, ControlPlane};
use tempfile::TempDir;

use super::cluster::eventually;
use super::manifests;
use crate::support::command;

/// A running scheduler. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Scheduler {
    process: ChildProcess,
    /// The configuration and the log.
    folder: TempDir,
}

impl Scheduler {
    /// Starts it with the Deployment's arguments, except for the paths of its configuration and
    /// kubeconfig.
    pub(super) fn start(plane: &ControlPlane, config: &str, kubeconfig: &Value) -> Self {
        Self::start_with(plane, config, kubeconfig, &[])
    }

    /// The same with further arguments.
    pub(super) fn start_with(
        plane: &ControlPlane,
        config: &str,
        kubeconfig: &Value,
        further_args: &[String],
    ) -> Self {
        // Removed with the control plane if this process is killed.
        let folder = tempfile::tempdir_in(plane.dir()).unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("config.yaml"), config).unwrap();
        // JSON is YAML.
        fs::write(path("kubeconfig"), kubeconfig.to_string()).unwrap();
        let args = manifests::args().into_iter().map(|arg| {
            if arg.starts_with("--config=") {
                format!("--config={}", path("config.yaml").display())
            } else {
                arg
            }
        });
        let log = File::create(path("log")).unwrap();
        let mut command = command(args.chain(further_args.iter().cloned()));
        command.arg("--kubeconfig").arg(path("kubeconfig")).current_dir(folder.path());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let process = ChildProcess::spawn(&mut command, None).unwrap();
        Self { process, folder }
    }

    /// The log so far.
    pub(super) fn log(&self) -> String {
        read(&self.folder.path().join("log"))
    }

    /// The log entries so far, each an object by `--logging-format=json`.
    pub(super) fn entries(&self) -> Vec<Value> {
        let log = self.log();
        // A last line without a newline is still being written.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        let entry = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        whole.lines().map(entry).collect()
    }

    /// The number of entries whose message starts with this text.
    pub(super) fn count(&self, beginning: &str) -> usize {
        let begins =
            |entry: &Value| entry["message"].as_str().is_some_and(|text| text.starts_with(beginning));
        self.entries().iter().filter(|entry| begins(entry)).count()
    }

    /// Whether its informers have synced.
    pub(super) fn has_synced(&self) -> bool {
        self.count("informers and handlers have synced") > 0
    }

    /// Ends it by SIGTERM and returns its exit status.
    pub(super) fn terminate(&mut self) -> ExitStatus {
        self.process.signal("TERM").unwrap();
        eventually("the scheduler ends", || self.process.exited().unwrap())
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the scheduler's log:\n{}", self.log());
        }
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
