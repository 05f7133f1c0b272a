//! The doors to the page: processes that print a link.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use supercargo_controlplane::ChildProcess;

use crate::support::command;

/// A process that serves the page. It ends with this value.
pub(crate) struct Door {
    _process: ChildProcess,
    /// The link that it printed.
    pub(crate) link: String,
}

impl Door {
    /// Starts `supercargo` with these arguments, and waits for the link.
    pub(super) fn open(args: &[&str]) -> Self {
        Self::start(&mut command(args))
    }

    /// Starts a command, and waits for the link.
    pub(crate) fn start(command: &mut Command) -> Self {
        let (output, input) = std::io::pipe().unwrap();
        command.stdout(input).stderr(Stdio::inherit());
        let process = ChildProcess::spawn(command, None).unwrap();
        // Only the process has the end to write to, so that its end is seen.
        command.stdout(Stdio::null());
        let mut lines = BufReader::new(output).lines();
        let link = lines.by_ref().find_map(|line| line.unwrap().strip_prefix("Open ").map(str::to_owned));
        let link = link.unwrap_or_else(|| panic!("{command:?} printed no link"));
        // It continues to print.
        std::thread::spawn(move || lines.for_each(drop));
        Self { _process: process, link }
    }

    /// The page without the secret.
    pub(super) fn page(&self) -> &str {
        self.link.split('#').next().unwrap()
    }
}
