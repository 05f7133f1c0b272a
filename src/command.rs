//! A scheduler program of one's own: the in-tree plugins, and others.

use std::process::ExitCode;

use clap::Parser as _;
use supercargo_framework::registry::Factory;

use crate::cli::{Cli, execute};
use supercargo_client::api::full_text;
use supercargo_config::Catalog;

/// The `supercargo` program with plugins of one's own in it; the same as upstream's `app.NewSchedulerCommand`.
///
/// A plugin that is added is off until a profile of the configuration enables it, by the name it is added under.
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

    /// The same with one more plugin, or another one under the name of an in-tree plugin.
    #[must_use]
    pub fn with_plugin(mut self, name: &'static str, factory: Factory) -> Self {
        self.catalog = self.catalog.with_plugin(name, factory);
        self
    }

    /// Does what the command line says.
    pub fn main(self) -> ExitCode {
        let cli = Cli::parse();
        let logs_json = cli.logs_json();
        match execute(cli, &self.catalog) {
            Ok(code) => code,
            Err(error) => {
                complain(logs_json, &full_text(&*error));
                ExitCode::FAILURE
            }
        }
    }
}

/// Says why the process ends. Whoever reads JSON reads nothing else, but before there is a log there is only standard error.
fn complain(logs_json: bool, error: &str) {
    if logs_json && tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!("{error}");
    } else {
        eprintln!("supercargo: {error}");
    }
}
