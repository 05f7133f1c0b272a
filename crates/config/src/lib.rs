//! kube-scheduler's configuration file.
//!
//! [`Config::load`] reads a `KubeSchedulerConfiguration` (`kubescheduler.config.k8s.io/v1`), completes and
//! validates it. The way is text → tree with positions (`yaml`) → the file as written (`file`,
//! `profile_file`) → plugins merged over the defaults and expanded (`merge`), plugins built (`profile`) →
//! checked together (`complete`).
//!
//! Everything in the file counts: an unknown or duplicate field, a value of the wrong type, a plugin that
//! nobody has are errors, each with file, line and column, all at once. What kube-scheduler has and
//! supercargo has not yet is refused by name, so that no part of a file is silently without effect; where it
//! is one of upstream's defaults, so that files name it that do not ask for it, it is a warning
//! ([`Config::warnings`]). Without effect are, because they ask for nothing: `parallelism`,
//! `enableContentionProfiling`, a `weight` where nothing is scored, and disabling plugins that are not here
//! anyway.
//!
//! The way back is `write`: [`Config::to_yaml`] is the completed configuration, and means the same when it is
//! read.
//!
//! Different from kube-scheduler: the one profile without a name is `supercargo`, and so is the lease without
//! one; requests are limited only where `qps` is set, and unset `percentageOfNodesToScore` means all nodes.

mod args;
mod catalog;
mod complete;
mod cursor;
mod default_args;
pub(crate) mod duration;
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
mod report;
pub(crate) mod suggest;
mod write;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::Features;
use supercargo_framework::Plugin;

pub use catalog::Catalog;
pub use error::{ConfigError, ConfigErrors, Position, Problem};
pub use leader_election::LeaderElectionConfig;

use complete::complete;
use cursor::Cursor;
use file::File;
use merge::Sets;
use report::Report;

/// The scheduler name of the only profile, where the file gives it none.
pub const DEFAULT_SCHEDULER_NAME: &str = "supercargo";
/// [`Config::parallelism`], where the file does not set it.
pub const DEFAULT_PARALLELISM: i32 = 16;
/// [`Config::pod_initial_backoff`], where the file does not set it.
pub const DEFAULT_INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// [`Config::pod_max_backoff`], where the file does not set it.
pub const DEFAULT_MAX_BACKOFF: Duration = Duration::from_secs(10);

/// [`Config::pod_max_in_unschedulable_pods_duration`], where no flag sets it.
pub const DEFAULT_MAX_IN_UNSCHEDULABLE: Duration = Duration::from_mins(5);

/// The largest file that is read. A large one has some kilobytes.
const MOST_BYTES: u64 = 1 << 20;

/// A configuration, completed and valid.
#[derive(Clone, Debug)]
pub struct Config {
    /// The profiles, at least one, with distinct scheduler names and the same queue sort.
    pub profiles: Vec<ProfileConfig>,
    /// How many things may be evaluated at a time; at least 1.
    pub parallelism: i32,
    /// How many of the nodes to score, 1 to 100 percent; `None` for all. Profiles have it worked in.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The backoff of a pod after its first failure; more than zero.
    pub pod_initial_backoff: Duration,
    /// The longest backoff; not less than the initial one.
    pub pod_max_backoff: Duration,
    /// How to reach the API server.
    pub client_connection: ClientConnection,
    /// The features that the plugins were built with.
    pub features: Features,
    /// The extenders, in the order of the file.
    pub extenders: Vec<ExtenderConfig>,
    /// Whether, and by which lease, one of several schedulers leads.
    pub leader_election: LeaderElectionConfig,
    /// Whether nothing is watched before this scheduler leads.
    pub delay_cache_until_active: bool,
    /// Whether profiles of the running process are served.
    pub enable_profiling: bool,
    /// Whether they tell of contention; upstream's, and of no meaning here.
    pub enable_contention_profiling: bool,
    /// How long a pod is not tried again at most while nothing happens that could help it. No file says it, only a
    /// flag.
    pub pod_max_in_unschedulable_pods_duration: Duration,
    /// What a file asks for that is not there, where that is no error.
    pub warnings: Vec<ConfigError>,
}

/// An extender: a process that is asked over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtenderConfig {
    /// What the URLs of all calls begin with, without slashes at its end.
    pub url_prefix: String,
    /// What is appended for Filter, if it filters.
    pub filter_verb: Option<String>,
    /// What is appended for preemption, if it has a say in it.
    pub preempt_verb: Option<String>,
    /// What is appended for Prioritize, if it prioritizes.
    pub prioritize_verb: Option<String>,
    /// What its scores are multiplied with; positive if it prioritizes.
    pub weight: i64,
    /// What is appended for Bind, if it binds; one extender at most does.
    pub bind_verb: Option<String>,
    /// Whether certificates are not checked unless there is something to check them against.
    pub enable_https: bool,
    /// How to be sure of each other.
    pub tls: ExtenderTls,
    /// The longest that a call takes.
    pub http_timeout: Duration,
    /// Whether it knows nodes by name, so that they need not be sent.
    pub node_cache_capable: bool,
    /// The resources that make a pod its business; empty means every pod is.
    pub managed_resources: Vec<ManagedResource>,
    /// Whether scheduling goes on without it when it fails.
    pub ignorable: bool,
}

/// A resource that an extender manages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedResource {
    /// The name.
    pub name: Arc<str>,
    /// Whether NodeResourcesFit leaves it to the extender.
    pub ignored_by_scheduler: bool,
}

/// How an extender and the scheduler make sure of each other. What is data is base64, and goes before the file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExtenderTls {
    /// Whether any certificate will do.
    pub insecure: bool,
    /// The name that the certificate must be for, if not the host's.
    pub server_name: Option<String>,
    /// Our certificate.
    pub cert_file: Option<String>,
    /// Its key.
    pub key_file: Option<String>,
    /// Whose certificates to trust.
    pub ca_file: Option<String>,
    /// Our certificate itself.
    pub cert_data: Option<String>,
    /// Its key itself.
    pub key_data: Option<String>,
    /// Whose certificates to trust, themselves.
    pub ca_data: Option<String>,
}

/// The key is not shown.
impl fmt::Debug for ExtenderTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtenderTls")
            .field("insecure", &self.insecure)
            .field("server_name", &self.server_name)
            .field("cert_file", &self.cert_file)
            .field("key_file", &self.key_file)
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}

/// How to reach the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientConnection {
    /// The kubeconfig file; `None` to look where clients look.
    pub kubeconfig: Option<PathBuf>,
    /// Requests per second; `None` for no limit.
    pub qps: Option<f32>,
    /// Requests at once, beyond `qps`; `None` where the file does not say.
    pub burst: Option<i32>,
    /// What requests are encoded in.
    pub content_type: MediaType,
    /// What answers may be encoded in, best first; empty for `content_type`.
    pub accept_content_types: Vec<MediaType>,
}

impl ClientConnection {
    /// Whether pods and nodes are best read as protobuf. JSON is understood in any case.
    pub fn reads_protobuf(&self) -> bool {
        let best = self.accept_content_types.first().unwrap_or(&self.content_type);
        *best == MediaType::Protobuf
    }

    /// Whether objects that are created go as protobuf, where the server takes it.
    pub fn writes_protobuf(&self) -> bool {
        self.content_type == MediaType::Protobuf
    }
}

/// An encoding of API objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MediaType {
    /// `application/vnd.kubernetes.protobuf`
    #[default]
    Protobuf,
    /// `application/json`
    Json,
}

impl MediaType {
    const ALL: [Self; 2] = [Self::Protobuf, Self::Json];

    /// The name in HTTP headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Json => "application/json",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|media_type| media_type.name() == name)
    }
}

/// A profile: the scheduler that pods name in `spec.schedulerName`.
#[derive(Clone, Debug)]
pub struct ProfileConfig {
    /// The name.
    pub scheduler_name: Arc<str>,
    /// How many of the nodes to score, 1 to 100 percent, the file's unless the profile has its own; `None`
    /// for all.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The plugins.
    pub plugins: PluginSet,
    /// The arguments in the file, by plugin.
    pub args: BTreeMap<String, serde_json::Value>,
    /// What the profile itself says of [`Self::percentage_of_nodes_to_score`].
    own_percentage: Option<i32>,
    /// What `plugins` was expanded from.
    sets: Sets,
}

/// The plugins of a profile: who takes part where, in order. Every name is in `instances`.
#[derive(Clone, Default)]
pub struct PluginSet {
    /// PreEnqueue.
    pub pre_enqueue: Vec<String>,
    /// QueueSort: exactly one.
    pub queue_sort: Vec<String>,
    /// PreFilter.
    pub pre_filter: Vec<String>,
    /// Filter.
    pub filter: Vec<String>,
    /// PostFilter.
    pub post_filter: Vec<String>,
    /// PreScore.
    pub pre_score: Vec<String>,
    /// Score, with weights that are not 0.
    pub score: Vec<(String, i32)>,
    /// Reserve.
    pub reserve: Vec<String>,
    /// Permit.
    pub permit: Vec<String>,
    /// PreBind.
    pub pre_bind: Vec<String>,
    /// Bind: at least one.
    pub bind: Vec<String>,
    /// PostBind.
    pub post_bind: Vec<String>,
    /// Every enabled plugin, built once for the profile, also one that is disabled at each of its points.
    pub instances: BTreeMap<String, Arc<dyn Plugin>>,
}

impl fmt::Debug for PluginSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginSet")
            .field("pre_enqueue", &self.pre_enqueue)
            .field("queue_sort", &self.queue_sort)
            .field("pre_filter", &self.pre_filter)
            .field("filter", &self.filter)
            .field("post_filter", &self.post_filter)
            .field("pre_score", &self.pre_score)
            .field("score", &self.score)
            .field("reserve", &self.reserve)
            .field("permit", &self.permit)
            .field("pre_bind", &self.pre_bind)
            .field("bind", &self.bind)
            .field("post_bind", &self.post_bind)
            .field("instances", &self.instances.keys())
            .finish()
    }
}

impl Config {
    /// Reads a file.
    pub fn load(path: &Path, catalog: &Catalog) -> Result<Self, ConfigErrors> {
        let file_name = path.display().to_string();
        let text = read_text(path).map_err(|(position, problem)| whole(&file_name, position, problem))?;
        Self::parse(&file_name, &text, catalog)
    }

    /// Reads a configuration file, or returns the default configuration if there is none.
    pub fn load_or_default(path: Option<&Path>, catalog: &Catalog) -> Result<Self, ConfigErrors> {
        path.map_or_else(|| Self::default_with(catalog), |path| Self::load(path, catalog))
    }

    /// Reads the text of a file; `file_name` is for errors.
    pub fn parse(file_name: &str, text: &str, catalog: &Catalog) -> Result<Self, ConfigErrors> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root = yaml::parse(text)
            .map_err(|error| whole(file_name, Some(error.at), Problem::Syntax(error.message)))?;
        let mut report = Report::new(file_name);
        let top = Cursor::top(&root);
        cursor::report_duplicates(&top, &mut report);
        let file = file::read(&top, &catalog.registry, &mut report);
        Self::completed(file, catalog, report)
    }

    /// The configuration without a file: one profile with the default plugins.
    pub fn default_with(catalog: &Catalog) -> Result<Self, ConfigErrors> {
        Self::completed(File::default(), catalog, Report::new("default configuration"))
    }

    fn completed(file: File<'_>, catalog: &Catalog, mut report: Report<'_>) -> Result<Self, ConfigErrors> {
        let config = complete(file, catalog, &mut report);
        let (errors, warnings) = report.finish();
        errors.map_or(Ok(Self { warnings, ..config }), Err)
    }
}

/// What is wrong with a file as a whole.
fn whole(file_name: &str, position: Option<Position>, problem: Problem) -> ConfigErrors {
    ConfigErrors::from(ConfigError { file: file_name.to_owned(), position, path: String::new(), problem })
}

/// The text of a file, or what is wrong with it, and where.
fn read_text(path: &Path) -> Result<String, (Option<Position>, Problem)> {
    let mut bytes = Vec::new();
    // A device or a pipe may never end.
    let read = std::fs::File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        return Err((None, Problem::Unreadable(error.to_string())));
    }
    if bytes.len() as u64 > MOST_BYTES {
        return Err((None, Problem::Unreadable(format!("it has more than {MOST_BYTES} bytes"))));
    }
    decode(bytes)
}

/// The text in these bytes.
fn decode(bytes: Vec<u8>) -> Result<String, (Option<Position>, Problem)> {
    String::from_utf8(bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        let last_line = good.rsplit('\n').next().unwrap_or_default();
        let position =
            Position { line: good.matches('\n').count() + 1, column: last_line.chars().count() + 1 };
        (Some(position), Problem::Syntax("the text is not UTF-8".to_owned()))
    })
}
