//! The configuration: complete, valid, with its plugins built.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::{Features, Plugin};

use crate::leader_election::LeaderElectionConfig;
use crate::merge::Sets;

/// The default scheduler name of a single profile.
pub const DEFAULT_SCHEDULER_NAME: &str = "supercargo";
/// Default of [`Config::parallelism`].
pub const DEFAULT_PARALLELISM: i32 = 16;
/// Default of [`Config::pod_initial_backoff`].
pub const DEFAULT_INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Default of [`Config::pod_max_backoff`].
pub const DEFAULT_MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Default of [`Config::pod_max_in_unschedulable_pods_duration`].
pub const DEFAULT_MAX_IN_UNSCHEDULABLE: Duration = Duration::from_mins(5);

/// A completed and valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The profiles, at least one, with distinct scheduler names and the same queue sort.
    pub profiles: Vec<ProfileConfig>,
    /// kube-scheduler's parallelism; at least 1. Has no effect here.
    pub parallelism: i32,
    /// Percentage of nodes to score, 1 to 100; `None` for all. Already applied to the profiles.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Backoff of a pod after its first failed attempt; more than zero.
    pub pod_initial_backoff: Duration,
    /// Maximum backoff; not less than the initial one.
    pub pod_max_backoff: Duration,
    /// Connection to the API server.
    pub client_connection: ClientConnection,
    /// The features with which the plugins were built.
    pub features: Features,
    /// The extenders, in the order of the file.
    pub extenders: Vec<ExtenderConfig>,
    /// Leader election settings.
    pub leader_election: LeaderElectionConfig,
    /// Whether informers start only once this replica leads.
    pub delay_cache_until_active: bool,
    /// Whether `/debug/flags/v` is served.
    pub enable_profiling: bool,
    /// kube-scheduler's contention profiling. Has no effect here.
    pub enable_contention_profiling: bool,
    /// Maximum time that a pod stays in the unschedulable pods without a cluster event. Set by a
    /// flag only.
    pub pod_max_in_unschedulable_pods_duration: Duration,
    /// Memory limit of evaluation tables, in bytes; `None` derives it from the container's. Set by
    /// a flag only.
    pub table_memory: Option<usize>,
    /// Memory limit of the log of what happened to pods, in bytes; 0 switches it off. Set by a flag
    /// only.
    pub timeline_memory: usize,
}

/// A scheduler extender, called over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtenderConfig {
    /// URL prefix of all calls, without trailing slashes.
    pub url_prefix: String,
    /// Path of Filter calls, if the extender filters.
    pub filter_verb: Option<String>,
    /// Path of preemption calls, if the extender takes part in preemption.
    pub preempt_verb: Option<String>,
    /// Path of Prioritize calls, if the extender prioritizes.
    pub prioritize_verb: Option<String>,
    /// Weight of its scores; positive if it prioritizes.
    pub weight: i64,
    /// Path of Bind calls, if the extender binds. At most one extender does.
    pub bind_verb: Option<String>,
    /// kube-scheduler's `enableHTTPS`: certificates are verified only against a given CA.
    pub enable_https: bool,
    /// TLS settings.
    pub tls: ExtenderTls,
    /// Timeout of a call.
    pub http_timeout: Duration,
    /// Whether the extender caches nodes. Calls then carry node names only.
    pub node_cache_capable: bool,
    /// Only pods that request one of these resources are sent; empty for all pods.
    pub managed_resources: Vec<ManagedResource>,
    /// Whether scheduling continues if the extender fails.
    pub ignorable: bool,
}

/// A resource that an extender manages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedResource {
    /// The name.
    pub name: Arc<str>,
    /// Whether NodeResourcesFit ignores it.
    pub ignored_by_scheduler: bool,
}

/// TLS settings of an extender. Data is base64 and takes precedence over the file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExtenderTls {
    /// Whether to skip verification of the server certificate.
    pub insecure: bool,
    /// Expected server name, if it differs from the host.
    pub server_name: Option<String>,
    /// File of the client certificate.
    pub cert_file: Option<String>,
    /// File of its key.
    pub key_file: Option<String>,
    /// File of the CA bundle.
    pub ca_file: Option<String>,
    /// The client certificate.
    pub cert_data: Option<String>,
    /// Its key.
    pub key_data: Option<String>,
    /// The CA bundle.
    pub ca_data: Option<String>,
}

/// Omits the key.
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

/// Connection to the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientConnection {
    /// The kubeconfig file; `None` for the default lookup.
    pub kubeconfig: Option<PathBuf>,
    /// Requests per second; `None` for no limit.
    pub qps: Option<f32>,
    /// Burst of requests above `qps`; `None` if the file does not set it.
    pub burst: Option<i32>,
    /// Encoding of requests.
    pub content_type: MediaType,
    /// Accepted encodings of responses in order of preference; empty for `content_type`.
    pub accept_content_types: Vec<MediaType>,
}

impl ClientConnection {
    /// Whether to request pods and nodes as protobuf. JSON responses are always accepted.
    pub fn reads_protobuf(&self) -> bool {
        let best = self.accept_content_types.first().unwrap_or(&self.content_type);
        *best == MediaType::Protobuf
    }

    /// Whether to send created objects as protobuf, if the server accepts it.
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
    pub(crate) const ALL: [Self; 2] = [Self::Protobuf, Self::Json];

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

/// A profile. Pods select it by `spec.schedulerName`.
#[derive(Clone, Debug)]
pub struct ProfileConfig {
    /// The name.
    pub scheduler_name: Arc<str>,
    /// Percentage of nodes to score, 1 to 100: the profile's, or else the file's. `None` for all.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The plugins.
    pub plugins: PluginSet,
    /// The arguments in the file, keyed by plugin.
    pub args: BTreeMap<String, serde_json::Value>,
    /// The profile's own value of [`Self::percentage_of_nodes_to_score`].
    pub(crate) own_percentage: Option<i32>,
    /// The sets from which `plugins` was expanded.
    pub(crate) sets: Sets,
}

/// The plugins of a profile by extension point, in order. Every name is in `instances`.
#[derive(Clone, Default)]
pub struct PluginSet {
    /// PreEnqueue.
    pub pre_enqueue: Vec<String>,
    /// QueueSort; exactly one.
    pub queue_sort: Vec<String>,
    /// PreFilter.
    pub pre_filter: Vec<String>,
    /// Filter.
    pub filter: Vec<String>,
    /// PostFilter.
    pub post_filter: Vec<String>,
    /// PlacementGenerate; at most one.
    pub placement_generate: Vec<String>,
    /// PlacementScore, with nonzero weights.
    pub placement_score: Vec<(String, i32)>,
    /// PodGroupPostFilter.
    pub pod_group_post_filter: Vec<String>,
    /// PreScore.
    pub pre_score: Vec<String>,
    /// Score, with nonzero weights.
    pub score: Vec<(String, i32)>,
    /// Reserve.
    pub reserve: Vec<String>,
    /// Permit.
    pub permit: Vec<String>,
    /// PreBind.
    pub pre_bind: Vec<String>,
    /// Bind; at least one.
    pub bind: Vec<String>,
    /// PostBind.
    pub post_bind: Vec<String>,
    /// Every enabled plugin, built once per profile, including those disabled at all of their
    /// points.
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
            .field("placement_generate", &self.placement_generate)
            .field("placement_score", &self.placement_score)
            .field("pod_group_post_filter", &self.pod_group_post_filter)
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
