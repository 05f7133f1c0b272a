//! The command line.

mod config;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io::{self, BufReader, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use supercargo_scheduler::Scheduler;
use supercargo_scheduler::record::replay;

use crate::config::Catalog;
use crate::demo::{DemoOptions, demo};
use crate::feature_gates;
use crate::flags::{FeatureOptions, Flags, LogFormat, LogOptions};
use crate::logs::LogSink;
use crate::options::scheduler_options;
use crate::run::{RunOptions, load_config, run};
use config::ConfigCommand;

/// A Kubernetes scheduler, built on informers.
#[derive(Debug, Parser)]
#[command(name = "supercargo", version, about, propagate_version = true, max_term_width = 80)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    logs: LogOptions,
}

impl Cli {
    /// Whether whoever reads the log expects JSON.
    pub(crate) fn logs_json(&self) -> bool {
        self.logs.logging_format == LogFormat::Json
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Schedule pods until a signal comes.
    // Whoever takes over kube-scheduler's command line may say a flag twice: the last one counts, as there; lists add up.
    #[command(after_help = feature_gates::help(), args_override_self = true)]
    Run(Box<Flags>),
    /// Show and check configurations.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// See a scheduler at work: a cluster in memory, and pods that arrive.
    Demo(DemoOptions),
    /// Make a recorded run's decisions again, and compare.
    Replay(Replay),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Debug, Args)]
struct Replay {
    /// The record.
    file: PathBuf,
    /// The configuration of the recorded run.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// That of the recorded run.
    #[arg(
        long, value_name = "DURATION", default_value = "5m", value_parser = crate::flags::length
    )]
    pod_max_in_unschedulable_pods_duration: std::time::Duration,
    #[command(flatten)]
    features: FeatureOptions,
}

/// Does what the command line says, with these plugins.
pub fn execute(cli: Cli, catalog: &Catalog) -> Result<ExitCode> {
    let sink = LogSink::default();
    let usual_level = if matches!(cli.command, Command::Demo(_)) { "warn" } else { "info" };
    let log_level = cli.logs.install(&sink, usual_level).context("--log-level")?;
    match cli.command {
        Command::Run(flags) => {
            let catalog = flags.features.applied_to(catalog)?;
            if !flags.write_configuration(&catalog)? {
                on_runtime(run(RunOptions { flags: *flags, log_level }, &catalog))?;
            }
        }
        Command::Config(command) => return config::execute(&command, catalog),
        Command::Demo(options) => on_runtime(demo(options, catalog, &sink))?,
        Command::Replay(options) => options.replay(catalog)?,
        Command::Completions { shell } => print(&completions(shell))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "supercargo", &mut script);
    script
}

/// Writes to standard output. Whoever reads it may have read enough.
fn print(text: &[u8]) -> Result<()> {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

fn on_runtime(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    // What did not end in time must not keep the process.
    runtime.shutdown_background();
    result
}

impl Replay {
    fn replay(&self, catalog: &Catalog) -> Result<()> {
        let mut config = load_config(self.config.as_deref(), &self.features.applied_to(catalog)?)?;
        config.pod_max_in_unschedulable_pods_duration = self.pod_max_in_unschedulable_pods_duration;
        let mut scheduler = Scheduler::new(scheduler_options(&config))?;
        let record = std::fs::File::open(&self.file)
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        let steps = replay(&mut scheduler, BufReader::new(record))
            .with_context(|| self.file.display().to_string())?;
        print(format!("{steps} steps, every decision the same\n").as_bytes())
    }
}
