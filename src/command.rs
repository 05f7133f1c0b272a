//! The scheduler program: the in-tree plugins, and any that are added.

use std::process::ExitCode;

use supercargo_framework::registry::Factory;

use crate::cli::output::{error_line, print_error};
use crate::cli::{Cli, UsageError, execute};
use crate::insight::is_wrong_file;
use supercargo_client::api::full_text;
use supercargo_config::Catalog;
use supercargo_config::flags::FlagError;
use supercargo_telemetry::logs::{LevelError, LogSink};

/// Exit code of an invalid command line, as clap's.
const USAGE_ERROR: u8 = 2;

/// The `supercargo` program with custom plugins; the same as upstream's `app.NewSchedulerCommand`.
///
/// An added plugin is off until a profile of the configuration enables it by name.
///
/// ```no_run
/// # use std::process::ExitCode;
/// # use std::sync::Arc;
/// # use supercargo_framework::plugin::{ExtensionPoints, Plugin};
/// # struct Mine;
/// # impl Plugin for Mine {
/// #     fn name(&self) -> &'static str { "Mine" }
/// #     fn extension_points(self: Arc<Self>) -> ExtensionPoints { ExtensionPoints::new() }
/// # }
/// fn main() -> ExitCode {
///     supercargo::SchedulerCommand::new().with_plugin("Mine", |_args, _features| Ok(Arc::new(Mine))).main()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SchedulerCommand {
    catalog: Catalog,
}

impl Default for SchedulerCommand {
    fn default() -> Self {
        Self { catalog: Catalog::in_tree() }
    }
}

impl SchedulerCommand {
    /// The program with the in-tree plugins.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a plugin, or replaces the in-tree plugin of the same name.
    #[must_use]
    pub fn with_plugin(mut self, name: &'static str, factory: Factory) -> Self {
        self.catalog = self.catalog.with_plugin(name, factory);
        self
    }

    /// Parses the command line and runs the command. Exits with 0 on success, with 2 if the command
    /// line is invalid, and else with 1.
    pub fn main(self) -> ExitCode {
        let cli = match Cli::of_command_line() {
            Ok(Some(cli)) => cli,
            Ok(None) => return ExitCode::SUCCESS,
            Err(error) => {
                print_error(&error_line(&full_text(&*error)));
                return ExitCode::FAILURE;
            }
        };
        let logs_json = cli.logs_json();
        let sink = match LogSink::start() {
            Ok(sink) => sink,
            Err(error) => {
                print_error(&error_line(&format!("cannot start the thread that writes logs: {error}")));
                return ExitCode::FAILURE;
            }
        };
        let _flush = FlushOnDrop(&sink);
        execute(cli, &self.catalog, &sink).unwrap_or_else(|error| {
            report_error(&sink, logs_json, &full_text(&*error));
            if is_usage_error(&error) { ExitCode::from(USAGE_ERROR) } else { ExitCode::FAILURE }
        })
    }
}

/// Writes queued logs however the program ends.
struct FlushOnDrop<'a>(&'a LogSink);

impl Drop for FlushOnDrop<'_> {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Whether the command line or the environment is wrong, as clap's errors are.
fn is_usage_error(error: &anyhow::Error) -> bool {
    error.is::<FlagError>() || error.is::<LevelError>() || error.is::<UsageError>() || is_wrong_file(error)
}

/// Reports why the process exits: in the log if that is JSON, so that its reader can parse every
/// line, else as text. Errors before logging starts are always text.
fn report_error(sink: &LogSink, logs_json: bool, error: &str) {
    if logs_json && tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!("{error}");
    } else {
        sink.write_line(&error_line(error));
    }
}
