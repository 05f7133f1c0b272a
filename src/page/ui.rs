//! The page in a browser of this machine.

use std::io::{self, IsTerminal as _};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use supercargo_serving::{Loopback, Site};

use super::proxy::Proxy;
use super::{PATH, files};
use crate::cli::output;
use crate::insight::Target;
use crate::run::stop_signal;

#[derive(Args, Debug)]
#[command(after_help = "\
The page is served on loopback until Ctrl-C. Its link works once; the command then prints the next one. The command \
adds the token to requests, so the browser does not have it. Nothing is changed in the cluster.")]
pub(crate) struct Ui {
    #[command(flatten)]
    target: Target,
}

impl Ui {
    /// Serves the page of a running supercargo until a signal.
    pub(crate) async fn serve(self) -> Result<()> {
        let stop = stop_signal(|| {})?;
        let proxy = tokio::select! {
            proxy = Proxy::open(self.target) => proxy?,
            () = stop.cancelled() => return Ok(()),
        };
        let loopback = Loopback::bind(PATH).await.context("cannot listen on loopback")?;
        let link = loopback.link();
        output::print(format!("Open {link}\n").as_bytes())?;
        open(&link);
        let site = Site { open: files(), data: proxy.pages() };
        loopback.serve(site, Arc::new(print_next_link), stop).await;
        Ok(())
    }
}

/// Each link works once.
pub(crate) fn print_next_link(link: String) {
    // Nobody may read it.
    let _ = output::print(format!("For another browser: {link}\n").as_bytes());
}

/// Opens the link in a browser, if there is one and standard output is a terminal.
///
/// Other users of the machine can see the arguments of a program. On Linux, [`Loopback`] refuses
/// them.
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
