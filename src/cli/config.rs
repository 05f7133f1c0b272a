//! `supercargo config`: what a configuration means, and whether it is one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

use super::print;
use supercargo_config::flags::FeatureOptions;
use supercargo_config::{Catalog, Config};

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Print the configuration that counts without a file.
    Default(Output),
    /// Check a file: print that it is valid, or everything that is wrong with it and where.
    Validate(Validate),
    /// Print a file with all defaults, as it counts.
    Show(Show),
}

#[derive(Debug, Args)]
pub(super) struct Validate {
    /// A KubeSchedulerConfiguration.
    file: PathBuf,
    #[command(flatten)]
    features: FeatureOptions,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// A KubeSchedulerConfiguration. Without it: the default one.
    file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub(super) struct Output {
    /// What it looks like.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    features: FeatureOptions,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    /// A few kilobytes of YAML.
    #[default]
    Yaml,
    /// The same as JSON.
    Json,
}

/// Does what the command says; the exit code is 1 when the file that is to be checked is wrong.
pub(super) fn execute(command: &ConfigCommand, catalog: &Catalog) -> Result<ExitCode> {
    match command {
        ConfigCommand::Default(output) => output.show(None, catalog)?,
        ConfigCommand::Show(Show { file, output }) => output.show(file.as_deref(), catalog)?,
        ConfigCommand::Validate(options) => return options.validate(catalog),
    }
    Ok(ExitCode::SUCCESS)
}

impl Output {
    fn show(&self, file: Option<&Path>, catalog: &Catalog) -> Result<()> {
        let config = Config::load_or_default(file, &self.features.applied_to(catalog)?)?;
        tell_warnings(&config);
        let text = match self.output {
            Format::Yaml => config.to_yaml(),
            Format::Json => format!("{:#}\n", config.to_value()),
        };
        print(text.as_bytes())
    }
}

impl Validate {
    fn validate(&self, catalog: &Catalog) -> Result<ExitCode> {
        match Config::load(&self.file, &self.features.applied_to(catalog)?) {
            Ok(config) => {
                tell_warnings(&config);
                print(format!("{}: valid\n", self.file.display()).as_bytes())?;
                Ok(ExitCode::SUCCESS)
            }
            Err(errors) => {
                // As compilers have it, so that editors find the places.
                eprintln!("{errors}");
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

fn tell_warnings(config: &Config) {
    for warning in &config.warnings {
        eprintln!("warning: {warning}");
    }
}
