//! The page in a browser of this machine.

use std::io::{self, IsTerminal as _};
use std::process::{Command, Stdio};

/// Opens the link in a browser, if there is one and standard output is a terminal.
///
/// Other users of the machine can see the arguments of a program, but they cannot use the link: it
/// works once.
pub(crate) fn open(link: &str) {
    if !io::stdout().is_terminal() {
        return;
    }
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Without a browser, the user opens the link.
    let _ = command.spawn();
}
