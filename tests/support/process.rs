//! `supercargo` as a process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use supercargo_controlplane::ControlPlane;
use tempfile::TempDir;

use super::eventually;

/// Ends the process `$1` and removes the folder `$2` when whoever holds our standard input is gone, in whatever way.
const LEASH: &str = r#"read -r _; kill -KILL "$1"; rm -rf "$2""#;

/// What it says once it schedules.
const SCHEDULING: &str = "scheduling begins";

/// The binary, with nothing in its environment that would tell it where a cluster is.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_supercargo"));
    for name in ["SUPERCARGO_LOG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs it to its end, which must come by itself.
pub(crate) fn output(args: &[&str]) -> Output {
    let mut command = command();
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut ended = || child.try_wait().unwrap();
    let within = Duration::from_mins(1);
    eventually(&format!("supercargo {args:?} ends"), within, &mut ended, String::new);
    child.wait_with_output().unwrap()
}

/// A running scheduler. It ends with this value, and with this process.
pub(crate) struct Supercargo {
    child: Child,
    leash: Child,
    folder: TempDir,
}

impl Supercargo {
    /// Starts `supercargo run` with this configuration (else the default one) and these further arguments. It is the only
    /// scheduler, unless the arguments say something of leader election, and serves nothing, unless they say where.
    pub(crate) fn start(kubeconfig: &Path, config: Option<&str>, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = command();
        command.arg("run").arg("--kubeconfig").arg(kubeconfig).args(args);
        if !args.iter().any(|arg| arg.starts_with("--leader-elect")) {
            command.arg("--leader-elect=false");
        }
        // Several of them would want the same port.
        if !args.iter().any(|arg| arg.starts_with("--secure-port")) {
            command.arg("--secure-port=0");
        }
        if let Some(config) = config {
            let path = folder.path().join("config.yaml");
            fs::write(&path, config).unwrap();
            command.arg("--config").arg(path);
        }
        let log = File::create(folder.path().join("log")).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let leash = Command::new("sh")
            .args(["-c", LEASH, "leash", &child.id().to_string()])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, leash, folder }
    }

    /// Starts it as the user that kube-scheduler is, so with that one's permissions, and waits until it schedules.
    pub(crate) fn on(plane: &ControlPlane, config: Option<&str>) -> Self {
        Self::on_as(plane, "system:kube-scheduler", config)
    }

    /// The same as any user.
    pub(crate) fn on_as(plane: &ControlPlane, user: &str, config: Option<&str>) -> Self {
        let supercargo = Self::start(&plane.kubeconfig(user).unwrap(), config, &[]);
        supercargo.wait_until_scheduling();
        supercargo
    }

    pub(crate) fn wait_until_scheduling(&self) {
        self.wait_for_log(SCHEDULING);
    }

    /// Waits until it knows the cluster, whether it leads or not.
    pub(crate) fn wait_until_synced(&self) {
        self.wait_for_log("informers and handlers have synced");
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap()).into_owned()
    }

    /// The end of its log, for a test that fails.
    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(30)..];
        format!("the last lines of supercargo's log:\n{}", tail.join("\n"))
    }

    /// Waits until a line of the log has all of the words, and returns it.
    pub(crate) fn wait_for_line(&self, words: &[&str]) -> String {
        let find = || {
            let log = self.log();
            let mut lines = log.lines();
            let found = lines.find(|line| words.iter().all(|word| line.contains(word)));
            found.map(str::to_owned)
        };
        self.eventually(&format!("a log line with {words:?}"), Duration::from_secs(90), find)
    }

    pub(crate) fn wait_for_log(&self, text: &str) {
        self.wait_for_line(&[text]);
    }

    /// Waits for what the probe gives; a failure shows the log's end.
    pub(crate) fn eventually<T>(&self, what: &str, within: Duration, probe: impl FnMut() -> Option<T>) -> T {
        eventually(what, within, probe, || self.log_tail())
    }

    /// The process's number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal, by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let script = r#"kill -s "$1" "$2""#;
        let killed = Command::new("sh").args(["-c", script, "kill", name, &pid]).status().unwrap();
        assert!(killed.success());
    }

    /// Sends SIGKILL, as the system does when memory runs out.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, within: Duration) -> ExitStatus {
        let (child, log) = (&mut self.child, self.folder.path().join("log"));
        let state = || fs::read_to_string(&log).unwrap();
        eventually("supercargo ends", within, || child.try_wait().unwrap(), state)
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) {
        self.terminate();
        let status = self.wait(Duration::from_secs(30));
        assert_eq!(status.code(), Some(0), "{}", self.log_tail());
    }
}

impl Drop for Supercargo {
    fn drop(&mut self) {
        // The leash first: once the process is reaped its number may be somebody else's.
        let _ = self.leash.kill();
        let _ = self.leash.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
