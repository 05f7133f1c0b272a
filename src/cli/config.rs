//! `supercargo config`: prints and validates configurations.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

use super::output::{print, print_error};
use supercargo_config::flags::FeatureOptions;
use supercargo_config::{Catalog, Config, ConfigErrors, feature_gates};

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Print the built-in default configuration
    #[command(after_help = feature_gates::help())]
    Default(Output),
    /// Validate a file, and report every error with its position
    #[command(after_help = feature_gates::help())]
    Validate(Validate),
    /// Print a file with all defaults filled in
    #[command(after_help = feature_gates::help())]
    Show(Show),
}

#[derive(Debug, Args)]
pub(super) struct Validate {
    /// KubeSchedulerConfiguration, or ConfigMap with one in its data; - reads standard input
    file: PathBuf,
    #[command(flatten)]
    features: FeatureOptions,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// KubeSchedulerConfiguration, or ConfigMap with one in its data; - reads standard input.
    /// Defaults to the built-in configuration
    file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub(super) struct Output {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    features: FeatureOptions,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    /// YAML
    #[default]
    Yaml,
    /// JSON
    Json,
}

/// Runs the command. The exit code is 1 if the validated file has errors.
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
        let catalog = self.features.applied_to(catalog)?;
        let config = file.map_or_else(|| Config::default_with(&catalog), |file| load(file, &catalog))?;
        let text = match self.output {
            Format::Yaml => config.to_yaml(),
            Format::Json => format!("{:#}\n", config.to_value()),
        };
        print(text.as_bytes())
    }
}

impl Validate {
    fn validate(&self, catalog: &Catalog) -> Result<ExitCode> {
        match load(&self.file, &self.features.applied_to(catalog)?) {
            Ok(_) => {
                print(format!("{}: valid\n", name(&self.file)).as_bytes())?;
                Ok(ExitCode::SUCCESS)
            }
            Err(errors) => {
                // In the format of compilers, so that editors find the positions.
                print_error(&errors.to_string());
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

/// The name of a file in messages.
fn name(file: &Path) -> String {
    if is_stdin(file) { "<stdin>".to_owned() } else { file.display().to_string() }
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

fn load(file: &Path, catalog: &Catalog) -> Result<Config, ConfigErrors> {
    if is_stdin(file) { Config::read(&name(file), io::stdin(), catalog) } else { Config::load(file, catalog) }
}
