//! Common arguments of the benchmarks with their own command lines.

use clap::{Args, ValueEnum};

/// How a benchmark runs, and its output.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Run everything once at a small size, as a smoke test
    #[arg(long)]
    pub test: bool,
    // Flags of cargo and criterion, accepted so that one command line serves all benchmarks.
    #[arg(long, hide = true)]
    bench: bool,
    #[arg(long, hide = true)]
    save_baseline: Option<String>,
    #[arg(long, hide = true)]
    baseline: Option<String>,
}

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "they would be in the help, and say nothing")]
pub enum Output {
    Table,
    Json,
}

/// Selects benchmarks, where one command line is for all of them.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Run only if the name of this benchmark contains this text
    filter: Option<String>,
}

impl FilterArgs {
    /// Whether the filter excludes this benchmark.
    pub fn leaves_out(&self, name: &str) -> bool {
        self.filter.as_ref().is_some_and(|filter| !name.contains(filter.as_str()))
    }
}
