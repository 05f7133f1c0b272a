//! The real binary, in a process of its own.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use serde_json::Value;
use supercargo_controlplane::ControlPlane;
use tempfile::TempDir;

use super::cluster::eventually;
use super::manifests;

/// `$1` is the log, the rest the program. A word on the standard input is a signal to send; its end kills. So the program
/// ends when we do, in whatever way, and whoever signals it knows that it is still ours.
const SUPERVISE: &str = r#"
log=$1
shift
exec 3<&0
"$@" </dev/null >>"$log" 2>&1 3<&- &
program=$!
(
    while read -r signal; do kill -s "$signal" "$program"; done
    kill -s KILL "$program"
) <&3 2>/dev/null &
listener=$!
wait "$program"
status=$?
kill "$listener" 2>/dev/null
exit "$status"
"#;

/// A running scheduler. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Scheduler {
    shell: Child,
    leash: Option<ChildStdin>,
    /// The configuration and the log.
    folder: TempDir,
}

impl Scheduler {
    /// Starts it with the Deployment's arguments, but for where its configuration is and how it reaches the API server.
    pub(super) fn start(plane: &ControlPlane, config: &str, kubeconfig: &Value) -> Self {
        // There it goes with the control plane, should we be killed.
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
        let mut shell = Command::new("sh")
            .args(["-c", SUPERVISE, "supervise"])
            .arg(path("log"))
            .arg(env!("CARGO_BIN_EXE_supercargo"))
            .args(args)
            // Others on this machine serve there, too.
            .arg("--secure-port=0")
            .arg("--kubeconfig")
            .arg(path("kubeconfig"))
            .env_remove("SUPERCARGO_LOG")
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let leash = shell.stdin.take();
        Self { shell, leash, folder }
    }

    /// Everything logged so far, for a message.
    pub(super) fn log(&self) -> String {
        read(&self.folder.path().join("log"))
    }

    /// What has been logged so far: `--logging-format=json` makes every line an object.
    pub(super) fn entries(&self) -> Vec<Value> {
        let log = self.log();
        // A last line without its end is still being written.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        let entry = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        whole.lines().map(entry).collect()
    }

    /// How many entries have a message that begins so.
    pub(super) fn count(&self, beginning: &str) -> usize {
        let begins =
            |entry: &Value| entry["message"].as_str().is_some_and(|text| text.starts_with(beginning));
        self.entries().iter().filter(|entry| begins(entry)).count()
    }

    /// Whether it says that it schedules.
    pub(super) fn has_synced(&self) -> bool {
        self.count("informers and handlers have synced") > 0
    }

    /// Ends it by SIGTERM, and says how it ended.
    pub(super) fn terminate(&mut self) -> ExitStatus {
        let leash = self.leash.as_mut().expect("the leash goes with the process");
        leash.write_all(b"TERM\n").unwrap();
        eventually("the scheduler ends", || self.shell.try_wait().unwrap())
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the scheduler's log:\n{}", self.log());
        }
        self.leash = None;
        // It cannot fail but for having been waited for already.
        let _ = self.shell.wait();
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
