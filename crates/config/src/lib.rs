//! KubeSchedulerConfiguration, feature gates and flags of supercargo. This crate makes no requests
//! and knows no cluster.
//!
//! [`Config::load`] reads, completes and validates a `KubeSchedulerConfiguration`
//! (`kubescheduler.config.k8s.io/v1`). [`flags::Flags`] is the command line of `supercargo run`.
//! [`Config::to_yaml`] writes the completed configuration; reading it back gives an equal
//! configuration.
//!
//! | module | content |
//! |---|---|
//! | `yaml` | YAML text to a tree with positions, and back |
//! | `cursor`, `report` | typed values of the tree; collected problems |
//! | `file`, `profile_file`, `extender`, `leader_election` | the file's fields as written |
//! | `args`, `args_errors` | plugin arguments, and all that is wrong with them |
//! | `config_map` | a configuration inside a ConfigMap |
//! | `names`, `points`, `suggest` | names of plugins and points; suggestions for misspelt names |
//! | `merge`, `profile`, `complete` | plugins merged over the defaults; checks across profiles |
//! | `write`, `default_args` | the completed configuration as a file |
//! | `redacted` | the same with other names |
//! | `catalog` | the plugins and features that can be configured |
//! | [`feature_gates`], [`flags`] | `--feature-gates`; the command line |
//!
//! Every part of a file is checked. Unknown and duplicate fields, values of the wrong type and
//! unknown plugins are errors, each with file, line and column, all reported together. Features of
//! kube-scheduler that supercargo does not support yet are rejected by name. These settings are
//! accepted and have no effect: `parallelism`, `enableContentionProfiling`, a `weight` of a plugin
//! that does not score, and disabling an unsupported plugin.
//!
//! Differences from kube-scheduler: the default names of the profile and of the lease are
//! `supercargo`; requests are limited only if `qps` is set; `percentageOfNodesToScore` defaults to
//! all nodes.

mod args;
mod args_errors;
mod catalog;
mod complete;
mod config;
mod config_map;
mod cursor;
mod default_args;
mod error;
mod extender;
pub mod feature_gates;
mod file;
pub mod flags;
mod leader_election;
mod merge;
mod names;
mod points;
mod profile;
mod profile_file;
mod redacted;
mod report;
pub(crate) mod suggest;
mod write;
mod yaml;

#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::path::Path;

pub use catalog::Catalog;
pub use config::{
    ClientConnection, Config, DEFAULT_INITIAL_BACKOFF, DEFAULT_MAX_BACKOFF, DEFAULT_MAX_IN_UNSCHEDULABLE,
    DEFAULT_PARALLELISM, DEFAULT_SCHEDULER_NAME, ExtenderConfig, ExtenderTls, ManagedResource, MediaType,
    PluginSet, ProfileConfig,
};
pub use error::{ConfigError, ConfigErrors, Position, Problem};
pub use leader_election::LeaderElectionConfig;
pub use redacted::UnknownArgs;
pub use yaml::write as to_yaml;

use complete::complete;
use cursor::Cursor;
use file::File;
use leader_election::Election;
use report::Report;

/// Changes the file's leader election.
type Override<'a> = &'a mut dyn FnMut(&mut Election);

/// Maximum size of a file. Large files have some kilobytes.
const MOST_BYTES: u64 = 1 << 20;

impl Config {
    /// Reads a file.
    pub fn load(path: &Path, catalog: &Catalog) -> Result<Self, ConfigErrors> {
        Self::load_with(Some(path), catalog, &mut |_| {})
    }

    /// Reads a text. Errors call it `file_name`.
    pub fn read(file_name: &str, text: impl Read, catalog: &Catalog) -> Result<Self, ConfigErrors> {
        Self::parse(file_name, &read_text(file_name, text)?, catalog)
    }

    /// Reads a configuration file, or returns the default configuration without one.
    pub fn load_or_default(path: Option<&Path>, catalog: &Catalog) -> Result<Self, ConfigErrors> {
        Self::load_with(path, catalog, &mut |_| {})
    }

    /// The same with an override of the file's leader election, before it is validated.
    fn load_with(path: Option<&Path>, catalog: &Catalog, over: Override<'_>) -> Result<Self, ConfigErrors> {
        let Some(path) = path else {
            return Self::completed(File::default(), catalog, Report::new("default configuration"), over);
        };
        let file_name = path.display().to_string();
        let unreadable = |error: io::Error| whole(&file_name, None, Problem::Unreadable(error.to_string()));
        let file = std::fs::File::open(path).map_err(unreadable)?;
        Self::parse_with(&file_name, &read_text(&file_name, file)?, catalog, over)
    }

    /// Reads the text of a file. Errors name it `file_name`. The file may be a ConfigMap with the
    /// configuration in its data; then errors also name the key, and positions are those in its
    /// text.
    pub fn parse(file_name: &str, text: &str, catalog: &Catalog) -> Result<Self, ConfigErrors> {
        Self::parse_with(file_name, text, catalog, &mut |_| {})
    }

    fn parse_with(
        file_name: &str,
        text: &str,
        catalog: &Catalog,
        over: Override<'_>,
    ) -> Result<Self, ConfigErrors> {
        let root = parse_yaml(file_name, text)?;
        match config_map::data(&root) {
            None => Self::of_tree(file_name, &root, catalog, over),
            Some(Ok((key, text))) => {
                let file_name = format!("{file_name}: {}", key.escape_debug());
                Self::of_tree(&file_name, &parse_yaml(&file_name, text)?, catalog, over)
            }
            Some(Err(problem)) => Err(whole(file_name, Some(root.at), Problem::Invalid(problem))),
        }
    }

    fn of_tree(
        file_name: &str,
        root: &yaml::Node,
        catalog: &Catalog,
        over: Override<'_>,
    ) -> Result<Self, ConfigErrors> {
        let mut report = Report::new(file_name);
        let top = Cursor::top(root);
        cursor::report_duplicates(&top, &mut report);
        let file = file::read(&top, catalog, &mut report);
        Self::completed(file, catalog, report, over)
    }

    /// The default configuration: one profile with the default plugins.
    pub fn default_with(catalog: &Catalog) -> Result<Self, ConfigErrors> {
        Self::load_with(None, catalog, &mut |_| {})
    }

    fn completed(
        mut file: File<'_>,
        catalog: &Catalog,
        mut report: Report<'_>,
        over: Override<'_>,
    ) -> Result<Self, ConfigErrors> {
        over(&mut file.leader_election);
        let config = complete(file, catalog, &mut report);
        report.finish().map_or(Ok(config), Err)
    }
}

fn parse_yaml(file_name: &str, text: &str) -> Result<yaml::Node, ConfigErrors> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    yaml::parse(text).map_err(|error| whole(file_name, Some(error.at), Problem::Syntax(error.message)))
}

/// An error about a file as a whole.
fn whole(file_name: &str, position: Option<Position>, problem: Problem) -> ConfigErrors {
    ConfigErrors::from(ConfigError { file: file_name.to_owned(), position, path: String::new(), problem })
}

/// The whole text.
fn read_text(file_name: &str, text: impl Read) -> Result<String, ConfigErrors> {
    read_utf8(text).map_err(|(position, problem)| whole(file_name, position, problem))
}

/// The whole text, or the problem and its position.
fn read_utf8(text: impl Read) -> Result<String, (Option<Position>, Problem)> {
    let mut bytes = Vec::new();
    // A device or a pipe may be endless.
    if let Err(error) = text.take(MOST_BYTES + 1).read_to_end(&mut bytes) {
        return Err((None, Problem::Unreadable(error.to_string())));
    }
    if bytes.len() as u64 > MOST_BYTES {
        return Err((None, Problem::Unreadable(format!("it has more than {MOST_BYTES} bytes"))));
    }
    decode(bytes)
}

/// Decodes UTF-8.
fn decode(bytes: Vec<u8>) -> Result<String, (Option<Position>, Problem)> {
    String::from_utf8(bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        let last_line = good.rsplit('\n').next().unwrap_or_default();
        let position =
            Position { line: good.matches('\n').count() + 1, column: last_line.chars().count() + 1 };
        (Some(position), Problem::Syntax("the text is not UTF-8".to_owned()))
    })
}
