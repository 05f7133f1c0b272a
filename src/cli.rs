//! The command line.

use std::future::Future;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use supercargo_framework::features::Version;
use supercargo_scheduler::Scheduler;
use supercargo_scheduler::record::replay;

use crate::config::Catalog;
use crate::demo::{DemoOptions, demo};
use crate::feature_gates::{self, FeatureGates, emulated_version};
use crate::logs::{self, LogLevel, LogSink};
use crate::options::scheduler_options;
use crate::run::{RunOptions, load_config, run};

/// A Kubernetes scheduler, built on informers.
#[derive(Debug, Parser)]
#[command(name = "supercargo", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    logs: Logs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Schedule pods until a signal comes.
    #[command(after_help = feature_gates::help())]
    Run(Run),
    /// See a scheduler at work: a cluster in memory, and pods that arrive.
    Demo(DemoOptions),
    /// Make a recorded run's decisions again, and compare.
    Replay(Replay),
}

#[derive(Debug, Args)]
struct Run {
    /// How to reach the API server. Without it: clientConnection.kubeconfig of the configuration, else the pod's
    /// service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1). Without it: one profile, `supercargo`, with every
    /// plugin.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Record everything that the scheduler is told, for `replay`, in a new file. It grows without bound and has the pods
    /// in it.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    features: FeatureArgs,
}

#[derive(Debug, Args)]
struct FeatureArgs {
    /// Features to turn on or off, as in `StorageCapacityScoring=true,SchedulerAsyncPreemption=false`. Those there are, with
    /// their defaults, stand at the end of this help.
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true)]
    feature_gates: FeatureGates,
    /// The version of kube-scheduler whose defaults of feature gates are taken: 1.34 to 1.37.
    #[arg(long, value_name = "VERSION", value_parser = emulated_version, default_value = "1.36")]
    emulated_version: Version,
}

impl FeatureArgs {
    /// These plugins with the features as given.
    fn applied_to(&self, catalog: &Catalog) -> Result<Catalog> {
        let features = self.feature_gates.apply(self.emulated_version).context("--feature-gates")?;
        Ok(catalog.clone().with_features(features))
    }
}

#[derive(Debug, Args)]
struct Replay {
    /// The record.
    file: PathBuf,
    /// The configuration of the recorded run.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    features: FeatureArgs,
}

#[derive(Debug, Args)]
struct Logs {
    /// What logs look like.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, display_order = 100)]
    logging_format: Format,
    /// What is logged: error, warn, info, debug, trace, or per module as in `info,supercargo=debug`. Without it: info,
    /// for `demo` warn.
    #[arg(long, global = true, env = "SUPERCARGO_LOG", display_order = 101)]
    log_level: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A line each.
    Text,
    /// A JSON object each.
    Json,
}

/// Does what the command line says, with these plugins.
pub fn execute(cli: Cli, catalog: &Catalog) -> Result<()> {
    let sink = LogSink::default();
    let _log_level = cli.logs.install(&sink, if matches!(cli.command, Command::Demo(_)) { "warn" } else { "info" })?;
    match cli.command {
        Command::Run(Run { kubeconfig, config, record, features }) => {
            let catalog = features.applied_to(catalog)?;
            on_runtime(run(RunOptions { kubeconfig, config, record }, &catalog))
        }
        Command::Demo(options) => on_runtime(demo(options, &sink)),
        Command::Replay(Replay { file, config, features }) => {
            let config = load_config(config.as_deref(), &features.applied_to(catalog)?)?;
            let mut scheduler = Scheduler::new(scheduler_options(&config))?;
            let record =
                std::fs::File::open(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let steps =
                replay(&mut scheduler, BufReader::new(record)).with_context(|| file.display().to_string())?;
            println!("{steps} steps, every decision the same");
            Ok(())
        }
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

impl Logs {
    /// Logs go to standard error.
    fn install(&self, sink: &LogSink, usual_level: &str) -> Result<LogLevel> {
        let level = self.log_level.as_deref().unwrap_or(usual_level);
        logs::install(sink, matches!(self.logging_format, Format::Json), level).context("--log-level")
    }
}
