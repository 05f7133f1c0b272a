//! `supercargo` as a process.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::Duration;

use supercargo_controlplane::{ChildProcess, ControlPlane};
use tempfile::TempDir;

use super::eventually;

/// The log line that reports the start of scheduling.
const SCHEDULING: &str = "scheduling begins";

/// `supercargo` with these arguments. Every start in tests goes through here.
///
/// `SUPERCARGO_TEST_BINARY` names another program, such as a release build. The environment does
/// not point to a cluster. A scheduler gets `--secure-port=0`, so that it serves nothing, unless
/// the arguments name a port: the default port may be in use.
pub(crate) fn command<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
    let names_port = args.iter().any(|arg| arg.to_string_lossy().starts_with("--secure-port"));
    if let Some(run) = args.iter().position(|arg| arg == "run").filter(|_| !names_port) {
        args.insert(run + 1, "--secure-port=0".into());
    }
    let program = std::env::var_os("SUPERCARGO_TEST_BINARY");
    let mut command = Command::new(program.unwrap_or_else(|| env!("CARGO_BIN_EXE_supercargo").into()));
    for name in ["SUPERCARGO_LOG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"] {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// A port on loopback that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Runs it until it ends by itself.
pub(crate) fn output(args: &[&str]) -> Output {
    let mut command = command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id();
    // A thread reads, as the output may be larger than a pipe.
    let reading = thread::spawn(move || child.wait_with_output().unwrap());
    let ended = || reading.is_finished().then_some(());
    eventually(
        &format!("supercargo {args:?} (process {pid}) ends"),
        Duration::from_mins(1),
        ended,
        String::new,
    );
    reading.join().unwrap()
}

/// Runs it, and returns its exit code, standard output and standard error.
pub(crate) fn answer(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = output(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code(), text(&stdout), text(&stderr))
}

/// The only segment of a record in this folder.
pub(crate) fn segment(folder: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let of_record = |path: &&PathBuf| path.extension().is_some_and(|number| number == "0001");
    files.iter().find(of_record).unwrap_or_else(|| panic!("{files:?}")).clone()
}

/// A running scheduler. It ends with this value, and with this process.
pub(crate) struct Supercargo {
    process: ChildProcess,
    folder: TempDir,
}

impl Supercargo {
    /// Starts `supercargo run` with this configuration, or the default one, and these further
    /// arguments. Without `--leader-elect` among them, leader election is off.
    pub(crate) fn start(kubeconfig: &Path, config: Option<&str>, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = command(["run"].iter().chain(args));
        command.arg("--kubeconfig").arg(kubeconfig);
        if !args.iter().any(|arg| arg.starts_with("--leader-elect")) {
            command.arg("--leader-elect=false");
        }
        if let Some(config) = config {
            let path = folder.path().join("config.yaml");
            fs::write(&path, config).unwrap();
            command.arg("--config").arg(path);
        }
        let log = File::create(folder.path().join("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let process = ChildProcess::spawn(&mut command, Some(folder.path())).unwrap();
        Self { process, folder }
    }

    /// Starts it with kube-scheduler's user and permissions, and waits until it schedules.
    pub(crate) fn on(plane: &ControlPlane, config: Option<&str>) -> Self {
        Self::on_as(plane, "system:kube-scheduler", config)
    }

    /// [`Self::on`] with any user.
    pub(crate) fn on_as(plane: &ControlPlane, user: &str, config: Option<&str>) -> Self {
        let supercargo = Self::start(&plane.kubeconfig(user).unwrap(), config, &[]);
        supercargo.wait_until_scheduling();
        supercargo
    }

    pub(crate) fn wait_until_scheduling(&self) {
        self.wait_for_log(SCHEDULING);
    }

    /// Waits until its informers have synced, whether it leads or not.
    pub(crate) fn wait_until_synced(&self) {
        self.wait_for_log("informers and handlers have synced");
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap()).into_owned()
    }

    /// The end of its log, for a failing test.
    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(30)..];
        format!("the last lines of supercargo's log:\n{}", tail.join("\n"))
    }

    /// Waits for a log line with all of the words and returns it.
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

    /// Waits until the probe returns a value. A failure shows the end of the log.
    pub(crate) fn eventually<T>(&self, what: &str, within: Duration, probe: impl FnMut() -> Option<T>) -> T {
        eventually(what, within, probe, || self.log_tail())
    }

    /// The process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.exited().unwrap().is_none()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name).unwrap();
    }

    /// Sends SIGKILL, as the system does when memory runs out.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, within: Duration) -> ExitStatus {
        let (process, log) = (&mut self.process, self.folder.path().join("log"));
        let state = || fs::read_to_string(&log).unwrap();
        eventually("supercargo ends", within, || process.exited().unwrap(), state)
    }

    /// Ends it by SIGTERM and waits for a successful exit.
    pub(crate) fn stop(mut self) {
        self.terminate();
        let status = self.wait(Duration::from_secs(30));
        assert_eq!(status.code(), Some(0), "{}", self.log_tail());
    }
}
