//! Child processes that never outlive this one.
//!
//! Each program runs under a small shell that holds the read end of a pipe. A line on the pipe ends
//! the program gracefully: SIGTERM, and SIGKILL after a grace period. If the pipe closes, because
//! it is dropped or because this process dies, the program is killed: its data is removed, too. If
//! it ends by itself, the shell ends with its status. Each shell has its own process group, so that
//! Ctrl-C reaches only this process.

use std::ffi::OsStr;
use std::fs;
use std::io::{PipeWriter, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// The grace period between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// `$1` is the log, `$2` the grace period in tenths of a second, the rest is the program.
const SUPERVISE: &str = r#"
log=$1 grace=$2
shift 2
exec 3<&0
"$@" </dev/null >>"$log" 2>&1 3<&- &
program=$!
(
    if read -r _ <&3; then
        kill -TERM "$program"
        while [ "$grace" -gt 0 ] && kill -0 "$program"; do
            sleep 0.1
            grace=$((grace - 1))
        done
    fi
    kill -KILL "$program"
) 2>/dev/null &
watcher=$!
wait "$program"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"#;

/// Waits until no process holds the pipe, then removes the folder `$1`.
const CLEAN: &str = r#"read -r _; rm -rf "$1""#;

/// One running program.
#[derive(Debug)]
pub(crate) struct Process {
    shell: Child,
    stop_pipe: Option<ChildStdin>,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with its output appended to `log`. `workspace` stays until it ends. `gogc`
    /// is in `Options`.
    pub(crate) fn start<A: AsRef<OsStr>>(
        program: &Path,
        args: impl IntoIterator<Item = A>,
        gogc: Option<u32>,
        log: &Path,
        workspace: &Workspace,
    ) -> Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", SUPERVISE, "supervise"])
            .arg(log)
            .arg((GRACE.as_millis() / 100).to_string())
            .arg(program)
            .args(args)
            .envs(gogc.map(|percent| ("GOGC", percent.to_string())))
            .current_dir(workspace.path())
            .stdin(Stdio::piped())
            .stdout(workspace.hold()?)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("start a shell to run {}", program.display()))?;
        let stop_pipe = shell.stdin.take();
        Ok(Self { shell, stop_pipe, log: log.to_owned() })
    }

    /// How the program ended, if it did.
    pub(crate) fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.shell.try_wait().with_context(|| format!("ask after the program of {}", self.log.display()))
    }

    /// Ends the program gracefully and waits for its end.
    pub(crate) fn stop(&mut self) {
        if let Some(stop_pipe) = &mut self.stop_pipe {
            // A broken pipe means that the program has ended already.
            let _ = stop_pipe.write_all(b"stop\n");
        }
        // A failure means that the shell is reaped already. The pipe must live until here.
        let _ = self.shell.wait();
    }

    /// Kills the program and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.stop_pipe = None;
        let _ = self.shell.wait();
    }

    /// The end of the log, for an error message.
    pub(crate) fn log_tail(&self) -> String {
        let log = read_log(&self.log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The text of a log; empty if the file does not exist.
pub(crate) fn read_log(path: &Path) -> String {
    fs::read(path).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Polls until `ready` returns a value. Fails after `give_up`, or if the process ends.
pub(crate) fn wait_until<T>(
    what: &str,
    give_up: Duration,
    process: &mut Process,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<T> {
    let started = Instant::now();
    loop {
        if let Some(status) = process.exited()? {
            anyhow::bail!("{what} ended with {status}; its last lines:\n{}", process.log_tail());
        }
        if let Some(value) = ready() {
            return Ok(value);
        }
        if started.elapsed() > give_up {
            let waited = give_up.as_secs();
            anyhow::bail!("{what} is not ready after {waited} s; its last lines:\n{}", process.log_tail());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// A working folder. It is removed when this process and every process started in it have ended,
/// even if they are killed.
#[derive(Debug)]
pub(crate) struct Workspace {
    path: PathBuf,
    hold: Option<PipeWriter>,
    cleaner: Option<Child>,
}

impl Workspace {
    /// Creates a folder. With `SUPERCARGO_KEEP_CONTROLPLANE=1`, it stays, and its path is printed.
    pub(crate) fn create() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("supercargo-controlplane-").tempdir();
        let path = folder.context("make a working folder (is TMPDIR writable?)")?.keep();
        let (reader, writer) = std::io::pipe().context("make a pipe")?;
        let keep = std::env::var_os("SUPERCARGO_KEEP_CONTROLPLANE").is_some_and(|value| value == "1");
        let cleaner = if keep {
            eprintln!("control plane: logs and data stay in {}", path.display());
            None
        } else {
            Some(clean_after(&path, Stdio::from(reader))?)
        };
        Ok(Self { path, hold: Some(writer), cleaner })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn hold(&self) -> Result<Stdio> {
        let hold = self.hold.as_ref().expect("the pipe is held until drop");
        Ok(Stdio::from(hold.try_clone().context("share the pipe of the working folder")?))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.hold = None;
        if let Some(cleaner) = &mut self.cleaner {
            // At worst, the folder stays.
            let _ = cleaner.wait();
        }
    }
}

fn clean_after(path: &Path, holders: Stdio) -> Result<Child> {
    Command::new("sh")
        .args(["-c", CLEAN, "clean"])
        .arg(path)
        .stdin(holders)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("start a shell to clean up")
}
