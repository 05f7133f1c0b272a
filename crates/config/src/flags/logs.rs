//! Log format and level.

use clap::{Args, ValueEnum};

/// Log format and level.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Logs flags")]
pub struct LogOptions {
    /// Format of log entries.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, display_order = 100)]
    pub logging_format: LogFormat,
    /// Log level: off, error, warn, info, debug or trace; or a level per module, as in
    /// `info,supercargo=debug`. Defaults to the level of -v, else info for `run`; other commands
    /// log less.
    #[arg(long, global = true, env = "SUPERCARGO_LOG", value_name = "LEVEL", display_order = 101)]
    pub log_level: Option<String>,
    /// Log level as a number, as for kube-scheduler: 0 to 3 is info, 4 and 5 debug, higher trace.
    #[arg(short = 'v', long = "v", id = "v", global = true, value_name = "NUMBER", display_order = 102)]
    pub verbosity: Option<u32>,
}

/// Format of log entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text per entry.
    #[default]
    Text,
    /// One JSON object per entry.
    Json,
}
