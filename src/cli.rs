//! The command line.

mod complete;
mod config;
pub(crate) mod output;
mod replay;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::future::Future;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::check::check;
#[cfg(feature = "demo")]
use crate::demo::{DemoOptions, demo};
use crate::insight::{
    Ask, CaptureQuestion, Empty, FitsQuestion, Pending, Resilience, TimelineQuestion, Watched,
    WhatIfQuestion, WhyQuestion, is_completion_for_kubectl, is_plugin_of_kubectl,
};
use crate::page::ui::Ui;
use crate::run::{RunOptions, run};
use config::ConfigCommand;
use output::{NO_OUTPUT, print, tolerate_closed_pipe};
use replay::Replay;
use supercargo_config::Catalog;
use supercargo_config::feature_gates;
use supercargo_config::flags::{Flags, LogFormat, LogOptions};
use supercargo_telemetry::logs::{self, LogSink};
use thiserror::Error;

/// A Kubernetes scheduler built on informers
#[derive(Debug, Parser)]
#[command(name = "supercargo", version = crate::VERSION, about, propagate_version = true, max_term_width = 80)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    logs: LogOptions,
}

impl Cli {
    /// Parses the command line of this process; `None` if it asks for a help or the version, which
    /// is printed. Exits with an error if it is invalid.
    pub(crate) fn of_command_line() -> Result<Option<Self>> {
        let args: Vec<OsString> = std::env::args_os().collect();
        if is_completion_for_kubectl() {
            print(&complete::answer(Self::command(), args.get(1..).unwrap_or_default()))?;
            return Ok(None);
        }
        let name = if is_plugin_of_kubectl() { "kubectl supercargo" } else { "supercargo" };
        let matches = Self::command().bin_name(name).try_get_matches_from(&args);
        let error = match matches.and_then(|mut matches| Self::from_arg_matches_mut(&mut matches)) {
            Ok(cli) => return Ok(Some(cli)),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::DisplayVersion => print(version().as_bytes())?,
            ErrorKind::DisplayHelp => print_help(&error)?,
            _ => with_boolean_tip(error, &args).exit(),
        }
        Ok(None)
    }

    /// Whether the log format is JSON.
    pub(crate) fn logs_json(&self) -> bool {
        self.logs.logging_format == LogFormat::Json
    }
}

/// Wrong usage that clap cannot see.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum UsageError {
    /// `man` of a subcommand that does not exist.
    #[error("no subcommand {0:?}")]
    NoSubcommand(String),
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the scheduler
    // As in kube-scheduler, the last occurrence of a repeated flag wins, and lists are appended to.
    #[command(after_help = feature_gates::help(), args_override_self = true)]
    Run(Box<Flags>),
    /// Check what `run` with the same flags needs: the API server, permissions, the lease
    #[command(after_help = feature_gates::help(), args_override_self = true)]
    Check(Box<Flags>),
    /// Explain why a pod is pending, or why it is on its node
    Why(Watched<WhyQuestion>),
    /// List what is pending in the cluster, by reason
    Pending(Watched<Pending>),
    /// Count how many more pods like one fit
    Fits(Ask<FitsQuestion>),
    /// Show where pods go if nodes are drained, fail or are added
    WhatIf(Ask<WhatIfQuestion>),
    /// Show which pods stay down if a node or a zone fails
    Resilience(Ask<Resilience>),
    /// List nodes that can be drained one after another so that every pod gets another node
    Empty(Ask<Empty>),
    /// Show what happened to a pod: attempts, waits, preemption, binding
    Timeline(Ask<TimelineQuestion>),
    /// Print the state of the scheduler, for questions with --from
    Capture(Ask<CaptureQuestion>),
    /// Show the page of a running supercargo, or of a record, in a browser
    Ui(Ui),
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
    /// Replay a recorded run, and report the first decision that differs, or all that differ with
    /// another configuration
    #[command(after_help = feature_gates::help())]
    Replay(Replay),
    /// Print a shell completion script
    Completions {
        /// Shell to print completions for
        shell: Shell,
    },
    /// Print a manual page, for `man -l`
    Man {
        /// Subcommand to describe, such as `run`; without it, the program
        subcommand: Vec<String>,
    },
}

/// What `--version` prints. clap would call the program `supercargo-run` after a subcommand.
fn version() -> String {
    format!("{}\n", name_and_version())
}

fn name_and_version() -> String {
    format!("supercargo {}", crate::VERSION)
}

/// Prints a help, in colour on a terminal. clap itself would ignore that it cannot be written.
fn print_help(help: &clap::Error) -> Result<()> {
    let written = help.print().and_then(|()| io::stdout().flush());
    tolerate_closed_pipe(written.context(NO_OUTPUT))
}

/// Adds how to write the value of a boolean flag: only after `=`, as for kube-scheduler.
fn with_boolean_tip(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return error };
    let is_boolean = matches!(word.as_str(), "true" | "false");
    let flag = args.iter().zip(&args[1..]).find(|(_, next)| *next == word.as_str()).map(|(flag, _)| flag);
    if let Some(flag) =
        flag.and_then(|flag| flag.to_str()).filter(|flag| is_boolean && flag.starts_with("--"))
    {
        let tip = format!("a boolean flag takes its value after '=': {flag}={word}");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// What set the log level: the variable counts only without the flag.
fn level_source(level: &str) -> &'static str {
    if std::env::var("SUPERCARGO_LOG").is_ok_and(|of_variable| of_variable == level) {
        "SUPERCARGO_LOG"
    } else {
        "--log-level"
    }
}

/// Runs the command with these plugins.
pub fn execute(cli: Cli, catalog: &Catalog, sink: &LogSink) -> Result<ExitCode> {
    let usual_level = match cli.command {
        Command::Demo { .. } => "warn",
        // kube warns of what --insecure-skip-tls-verify already says.
        Command::Capture(_)
        | Command::Empty(_)
        | Command::Fits(_)
        | Command::Pending(_)
        | Command::Resilience(_)
        | Command::Timeline(_)
        | Command::Ui(_)
        | Command::WhatIf(_)
        | Command::Why(_) => "warn,kube_client::client::tls=error",
        // Everything else is in its report.
        Command::Check(_) => "error",
        _ => "info",
    };
    let verbosity = cli.logs.verbosity.map(logs::level_of_verbosity);
    let level = cli.logs.log_level.as_deref().or(verbosity).unwrap_or(usual_level);
    let log_level = logs::install(sink, cli.logs_json(), level).context(level_source(level))?;
    match cli.command {
        Command::Run(flags) => {
            let catalog = flags.features.applied_to(catalog)?;
            if !flags.write_configuration(&catalog)? {
                on_runtime(run(RunOptions { flags: *flags, log_level }, &catalog))?;
            }
        }
        Command::Check(flags) => {
            return on_runtime(check(&flags, &flags.features.applied_to(catalog)?));
        }
        Command::Why(ask) => return on_runtime(ask.print(catalog)),
        Command::Fits(ask) => return on_runtime(ask.print(catalog)),
        Command::Pending(ask) => return on_runtime(ask.print(catalog)),
        Command::WhatIf(ask) => return on_runtime(ask.print(catalog)),
        Command::Resilience(ask) => return on_runtime(ask.print(catalog)),
        Command::Empty(ask) => return on_runtime(ask.print(catalog)),
        Command::Timeline(ask) => return on_runtime(ask.print(catalog)),
        Command::Capture(ask) => return on_runtime(ask.print(catalog)),
        Command::Ui(ui) => on_runtime(ui.serve(catalog))?,
        Command::Config(command) => return config::execute(&command, catalog),
        #[cfg(feature = "demo")]
        Command::Demo(options) => on_runtime(demo(options, catalog, sink))?,
        #[cfg(not(feature = "demo"))]
        Command::Demo { .. } => anyhow::bail!(
            "this build does not include the demo; in a source checkout, run `cargo run --release -- demo`"
        ),
        Command::Replay(options) => return options.run(catalog),
        Command::Completions { shell } => print(&completions(shell))?,
        Command::Man { subcommand } => print(&manual(&subcommand)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "supercargo", &mut script);
    script
}

/// The manual page of a subcommand, by its words.
fn manual(words: &[String]) -> Result<Vec<u8>> {
    let mut command = Cli::command();
    command.build();
    for word in words {
        let known = command.find_subcommand(word).cloned();
        command = known.ok_or_else(|| UsageError::NoSubcommand(words.join(" ")))?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).source(name_and_version()).render(&mut page)?;
    Ok(page)
}

fn on_runtime<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    // Does not wait for tasks that are still running.
    runtime.shutdown_background();
    result
}
