//! What benchmarks with a command line of their own take alike.

use clap::{Args, ValueEnum};

/// How a benchmark is run, and what it writes.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// What the result is written as
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Run everything once with little, to see that it works
    #[arg(long)]
    pub test: bool,
    // What cargo and the other benchmarks' library pass or take, so that one command line serves all.
    #[arg(long, hide = true)]
    bench: bool,
    #[arg(long, hide = true)]
    save_baseline: Option<String>,
    #[arg(long, hide = true)]
    baseline: Option<String>,
}

/// What a result is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "they would be in the help, and say nothing")]
pub enum Output {
    Table,
    Json,
}

/// Which benchmarks are run, where one command line is for all of them.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Run only if the name of this benchmark holds this text
    filter: Option<String>,
}

impl FilterArgs {
    /// Whether the benchmark of this name is not to be run.
    pub fn leaves_out(&self, name: &str) -> bool {
        self.filter.as_ref().is_some_and(|filter| !name.contains(filter.as_str()))
    }
}
