//! The command line.

mod config;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io::{self, BufReader, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

#[cfg(not(feature = "demo"))]
use anyhow::bail;
use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use supercargo_scheduler::Scheduler;
use supercargo_scheduler::record::replay;

#[cfg(feature = "demo")]
use crate::demo::{DemoOptions, demo};
use crate::options::scheduler_options;
use crate::run::{RunOptions, run};
use config::ConfigCommand;
use supercargo_config::feature_gates;
use supercargo_config::flags::{FeatureOptions, Flags, LogFormat, LogOptions};
use supercargo_config::{Catalog, Config};
use supercargo_telemetry::logs::{self, LogSink};

/// A Kubernetes scheduler built on informers
#[derive(Debug, Parser)]
#[command(name = "supercargo", version, about, propagate_version = true, max_term_width = 80)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    logs: LogOptions,
}

impl Cli {
    /// Whether the log format is JSON.
    pub(crate) fn logs_json(&self) -> bool {
        self.logs.logging_format == LogFormat::Json
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the scheduler
    // As in kube-scheduler, the last occurrence of a repeated flag wins, and lists are appended to.
    #[command(after_help = feature_gates::help(), args_override_self = true)]
    Run(Box<Flags>),
    /// Print or validate a configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Watch supercargo schedule pods on an in-memory cluster
    #[cfg(feature = "demo")]
    Demo(DemoOptions),
    #[cfg(not(feature = "demo"))]
    #[command(hide = true, disable_help_flag = true)]
    Demo {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _arguments: Vec<String>,
    },
    /// Replay a recorded run and report the first decision that differs
    #[command(after_help = feature_gates::help())]
    Replay(Replay),
    /// Print a shell completion script
    Completions {
        /// Shell to print completions for
        shell: Shell,
    },
}

#[derive(Debug, Args)]
struct Replay {
    /// File written by `run --record`
    file: PathBuf,
    /// Configuration of the recorded run
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Value of this flag in the recorded run
    #[arg(
        long, value_name = "DURATION", default_value = "5m", value_parser = supercargo_config::flags::length
    )]
    pod_max_in_unschedulable_pods_duration: std::time::Duration,
    #[command(flatten)]
    features: FeatureOptions,
}

/// Runs the command with these plugins.
pub fn execute(cli: Cli, catalog: &Catalog) -> Result<ExitCode> {
    let sink = LogSink::default();
    let usual_level = if matches!(cli.command, Command::Demo { .. }) { "warn" } else { "info" };
    let verbosity = cli.logs.verbosity.map(logs::level_of_verbosity);
    let level = cli.logs.log_level.as_deref().or(verbosity).unwrap_or(usual_level);
    let log_level = logs::install(&sink, cli.logs_json(), level).context("--log-level")?;
    match cli.command {
        Command::Run(flags) => {
            let catalog = flags.features.applied_to(catalog)?;
            if !flags.write_configuration(&catalog)? {
                on_runtime(run(RunOptions { flags: *flags, log_level }, &catalog))?;
            }
        }
        Command::Config(command) => return config::execute(&command, catalog),
        #[cfg(feature = "demo")]
        Command::Demo(options) => on_runtime(demo(options, catalog, &sink))?,
        #[cfg(not(feature = "demo"))]
        Command::Demo { .. } => bail!(
            "this build does not include the demo; in a source checkout, run `cargo run --release -- demo`"
        ),
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

/// Writes to standard output. A reader that closes the pipe early is not an error.
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
    // Does not wait for tasks that are still running.
    runtime.shutdown_background();
    result
}

impl Replay {
    fn replay(&self, catalog: &Catalog) -> Result<()> {
        let mut config =
            Config::load_or_default(self.config.as_deref(), &self.features.applied_to(catalog)?)?;
        config.pod_max_in_unschedulable_pods_duration = self.pod_max_in_unschedulable_pods_duration;
        let mut scheduler = Scheduler::new(scheduler_options(&config))?;
        let record = std::fs::File::open(&self.file)
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        let steps = replay(&mut scheduler, BufReader::new(record))
            .with_context(|| self.file.display().to_string())?;
        print(format!("{steps} steps, every decision the same\n").as_bytes())
    }
}
