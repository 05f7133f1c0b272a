//! The page in a browser of this machine.

use std::io::{self, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use supercargo_config::Catalog;
use supercargo_config::flags::FeatureOptions;
use supercargo_serving::{Loopback, Site};
use tokio::task::spawn_blocking;

use super::proxy::Proxy;
use super::replay::Replay;
use super::{PATH, files, with_options};
use crate::cli::output;
use crate::insight::{FileCatalog, Target};
use crate::run::stop_signal;

#[derive(Args, Debug)]
#[command(after_help = "\
The page is served on loopback until Ctrl-C. Its link works once; the command then prints the next one. Without --from, \
the command adds the token for the server to requests, so the browser does not have it. Nothing is changed in the \
cluster.")]
pub(crate) struct Ui {
    /// Show this capture, or this record of `run --record`, with a bar that moves through its time;
    /// repeated, from the segments of one record
    #[arg(
        long = "from",
        value_name = "FILE",
        conflicts_with_all = ["server", "kubeconfig", "context", "cluster", "user"]
    )]
    files: Vec<PathBuf>,
    /// Configuration of the record, instead of its own
    #[arg(long, value_name = "FILE", requires = "files")]
    config: Option<PathBuf>,
    #[command(flatten)]
    features: FeatureOptions,
    #[command(flatten)]
    target: Target,
}

impl Ui {
    /// Serves the page of a running supercargo, or of a file, until a signal.
    pub(crate) async fn serve(self, catalog: &Catalog) -> Result<()> {
        let stop = stop_signal(|| {})?;
        let site = tokio::select! {
            site = self.site(catalog) => site?,
            () = stop.cancelled() => return Ok(()),
        };
        let loopback = Loopback::bind(PATH).await.context("cannot listen on loopback")?;
        let link = loopback.link();
        output::print(format!("Open {link}\n").as_bytes())?;
        open(&link);
        loopback.serve(site, Arc::new(print_next_link), stop).await;
        Ok(())
    }

    async fn site(self, catalog: &Catalog) -> Result<Site> {
        if self.files.is_empty() {
            let needs_file = "--feature-gates and --emulated-version require --from";
            ensure!(!self.features.are_given(), needs_file);
            // They name the cluster, and the way to it.
            let options: Vec<_> = std::env::args().skip_while(|it| it != "ui").skip(1).collect();
            return Ok(Site {
                open: files(&with_options(&options)),
                data: Proxy::open(self.target).await?.pages(),
            });
        }
        let catalog = FileCatalog::new(&self.features, catalog)?;
        let replay = spawn_blocking(move || Replay::open(self.files, self.config, catalog));
        Ok(replay.await.context("a plugin panicked")??.site())
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
    // Ctrl-C is for this command, and not for a browser that starts here.
    command.process_group(0);
    // Without a browser, the user opens the link.
    if let Ok(mut opening) = command.spawn() {
        std::thread::spawn(move || opening.wait());
    }
}
