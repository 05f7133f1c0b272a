//! What logs look like, and what is in them.

use clap::{Args, ValueEnum};

/// What logs look like, and what is in them.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Logs flags")]
pub struct LogOptions {
    /// What logs look like.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, display_order = 100)]
    pub logging_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or per module as in `info,supercargo=debug`. Without it: what -v
    /// says, else info, for `demo` warn.
    #[arg(long, global = true, env = "SUPERCARGO_LOG", value_name = "LEVEL", display_order = 101)]
    pub log_level: Option<String>,
    /// The same as a number, as kube-scheduler has it: up to 3 info, 4 and 5 debug, above trace.
    #[arg(short = 'v', long = "v", id = "v", global = true, value_name = "NUMBER", display_order = 102)]
    pub verbosity: Option<u32>,
}

/// What a log looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line each.
    #[default]
    Text,
    /// A JSON object each.
    Json,
}
