//! The scheduler program: the in-tree plugins, and any that are added.

use std::process::ExitCode;

use clap::Parser as _;
use supercargo_framework::registry::Factory;

use crate::cli::{Cli, execute};
use supercargo_client::api::full_text;
use supercargo_config::Catalog;

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

    /// Parses the command line and runs the command.
    pub fn main(self) -> ExitCode {
        let cli = Cli::parse();
        let logs_json = cli.logs_json();
        match execute(cli, &self.catalog) {
            Ok(code) => code,
            Err(error) => {
                report_error(logs_json, &full_text(&*error));
                ExitCode::FAILURE
            }
        }
    }
}

/// Reports why the process exits: in the log if that is JSON, so that its reader can parse every
/// line, else on standard error. Errors before logging starts always go to standard error.
fn report_error(logs_json: bool, error: &str) {
    if logs_json && tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!("{error}");
    } else {
        eprintln!("supercargo: {error}");
    }
}
