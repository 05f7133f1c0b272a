//! A child process that never outlives this one.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Waits for the end of stdin, then kills the process `$1` and removes the folder `$2`, if there is
/// one.
const WATCH_STDIN: &str = r#"read -r _; kill -KILL "$1"; [ -z "$2" ] || rm -rf "$2""#;

/// A child process. It ends when this value is dropped, and when this process ends in any way.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    watcher: Child,
}

impl ChildProcess {
    /// Starts a command. If this process dies first, a shell kills the child and removes `folder`.
    pub fn spawn(command: &mut Command, folder: Option<&Path>) -> Result<Self> {
        let mut child = command.spawn().with_context(|| format!("start {}", program(command)))?;
        let watcher = Command::new("sh")
            .args(["-c", WATCH_STDIN, "watch-stdin", &child.id().to_string()])
            .arg(folder.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match watcher {
            Ok(watcher) => Ok(Self { child, watcher }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error).context("start a shell that ends the child with this process")
            }
        }
    }

    /// The process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How the process ended, if it did.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("wait for a child process")
    }

    /// Sends a signal by its name, such as `TERM`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let script = r#"kill -s "$1" "$2""#;
        let id = self.id().to_string();
        let status = Command::new("sh").args(["-c", script, "kill", name, &id]).status()?;
        ensure!(status.success(), "kill -s {name} {id} failed");
        Ok(())
    }

    /// Ends the process by SIGKILL and waits until it has ended.
    pub fn kill(&mut self) {
        // The watcher first: after the child is reaped, another process may get its ID.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn program(command: &Command) -> String {
    command.get_program().display().to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    fn sleeper(folder: Option<&Path>) -> ChildProcess {
        ChildProcess::spawn(Command::new("sleep").arg("60"), folder).unwrap()
    }

    fn signal_that_ended(child: &mut ChildProcess) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = child.exited().unwrap() {
                return status.signal();
            }
            assert!(began.elapsed() < Duration::from_mins(1), "it still runs");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn signal_ends_the_child() {
        let mut child = sleeper(None);
        assert!(child.exited().unwrap().is_none());
        child.signal("TERM").unwrap();
        assert_eq!(signal_that_ended(&mut child), Some(15));
    }

    #[test]
    fn end_of_the_parent_kills_the_child_and_removes_the_folder() {
        let folder = tempfile::tempdir().unwrap().keep();
        let mut child = sleeper(Some(&folder));
        // The system closes the pipe when this process ends.
        drop(child.watcher.stdin.take());
        assert_eq!(signal_that_ended(&mut child), Some(9));
        child.watcher.wait().unwrap();
        assert!(!folder.exists());
    }
}
