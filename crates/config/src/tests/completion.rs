//! Valid configurations and their defaults.

use std::path::Path;
use std::time::Duration;

use supercargo_framework::registry::{DefaultPlugin, Registry};

use super::super::{Catalog, ClientConnection, Config, LeaderElectionConfig, MediaType};
use super::{catalog, valid};

/// The comparable part of a configuration.
fn shown(config: &Config) -> String {
    format!("{config:#?}")
}

#[test]
fn without_a_file_there_is_one_profile_with_the_defaults() {
    let config = Config::default_with(&catalog()).expect("the defaults are valid");
    assert_eq!(config.profiles.len(), 1);
    assert_eq!(&*config.profiles[0].scheduler_name, "supercargo");
    assert_eq!(config.parallelism, 16);
    assert_eq!(config.percentage_of_nodes_to_score, None);
    assert_eq!(config.pod_initial_backoff, Duration::from_secs(1));
    assert_eq!(config.pod_max_backoff, Duration::from_secs(10));
    assert_eq!(config.client_connection, ClientConnection::default());
    for text in
        ["", "profiles: []\n", "profiles: [{}]\n", "profiles: null\nparallelism: ~\nleaderElection: {}\n"]
    {
        assert_eq!(shown(&valid(text)), shown(&config), "{text}");
    }
}

#[test]
fn every_field_of_a_file_is_read() {
    let text = "
parallelism: 4.0
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 60
clientConnection:
  kubeconfig: /etc/kubeconfig
  qps: 12.5
  burst: 20
  contentType: application/json
  acceptContentTypes: application/vnd.kubernetes.protobuf, application/json
profiles:
- schedulerName: mine
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      ignoredResources: [example.com/a]
";
    let config = valid(text);
    assert_eq!(config.parallelism, 4);
    assert_eq!(config.percentage_of_nodes_to_score, Some(30));
    assert_eq!(config.pod_initial_backoff, Duration::from_secs(2));
    assert_eq!(config.pod_max_backoff, Duration::from_mins(1));
    let connection = &config.client_connection;
    assert_eq!(connection.kubeconfig.as_deref(), Some(Path::new("/etc/kubeconfig")));
    assert_eq!((connection.qps, connection.burst), (Some(12.5), Some(20)));
    assert_eq!(connection.content_type, MediaType::Json);
    assert_eq!(connection.accept_content_types, [MediaType::Protobuf, MediaType::Json]);
    assert!(connection.reads_protobuf(), "what is accepted best counts");
    let json = valid("clientConnection: {contentType: application/json}");
    assert!(!json.client_connection.reads_protobuf());
    let profile = &config.profiles[0];
    assert_eq!(&*profile.scheduler_name, "mine");
    assert_eq!(profile.args["NodeResourcesFit"], serde_json::json!({"ignoredResources": ["example.com/a"]}));
}

#[test]
fn leader_election_is_on_by_default() {
    let election = valid("").leader_election;
    assert_eq!(election, LeaderElectionConfig::default());
    assert!(election.leader_elect);
    assert_eq!((&*election.resource_name, &*election.resource_namespace), ("supercargo", "kube-system"));
    let nothing =
        "leaderElection: {leaseDuration: 0s, renewDeadline: '0', resourceName: '', resourceLock: ''}\n";
    assert_eq!(valid(nothing).leader_election, election, "what is 0 or empty has its default");
}

#[test]
fn leader_election_is_read_with_every_field() {
    let text = "
leaderElection:
  leaderElect: true
  leaseDuration: 30s
  renewDeadline: 20s
  retryPeriod: 500ms
  resourceLock: leases
  resourceName: mine
  resourceNamespace: here
delayCacheUntilActive: true
enableProfiling: false
";
    let config = valid(text);
    let seconds = Duration::from_secs;
    assert_eq!(
        config.leader_election,
        LeaderElectionConfig {
            leader_elect: true,
            lease_duration: seconds(30),
            renew_deadline: seconds(20),
            retry_period: Duration::from_millis(500),
            resource_name: "mine".to_owned(),
            resource_namespace: "here".to_owned(),
        }
    );
    assert!(config.delay_cache_until_active);
    assert!(
        !config.enable_profiling && !config.enable_contention_profiling,
        "the second only with the first"
    );
    assert!(valid("enableContentionProfiling: true\n").enable_profiling);
    assert!(!valid("enableContentionProfiling: false\n").enable_contention_profiling);
}

#[test]
fn settings_of_disabled_leader_election_are_not_validated() {
    let text = "leaderElection: {leaderElect: no, leaseDuration: 1s, resourceLock: endpoints}\n";
    assert_eq!(valid(text).leader_election.lease_duration, Duration::from_secs(1));
}

#[test]
fn percentage_of_a_profile_takes_precedence_over_the_files() {
    let text = "
percentageOfNodesToScore: 30
profiles:
- schedulerName: a
- schedulerName: b
  percentageOfNodesToScore: 50
- schedulerName: c
  percentageOfNodesToScore: 0
";
    let config = valid(text);
    let percentages: Vec<Option<i32>> =
        config.profiles.iter().map(|profile| profile.percentage_of_nodes_to_score).collect();
    assert_eq!(percentages, [Some(30), Some(50), None]);
}

#[test]
fn a_limit_of_zero_or_below_is_none() {
    for qps in ["0", "-1"] {
        let config = valid(&format!("clientConnection: {{qps: {qps}, burst: 0}}\n"));
        assert_eq!((config.client_connection.qps, config.client_connection.burst), (None, None));
    }
}

#[test]
fn profiles_have_separate_plugins() {
    let text = "
profiles:
- schedulerName: a
- schedulerName: b
  plugins: {score: {disabled: [{name: '*'}]}}
";
    let config = valid(text);
    let [a, b] = config.profiles.as_slice() else { panic!("{config:#?}") };
    assert_eq!((&*a.scheduler_name, a.plugins.score.len()), ("a", 5));
    assert_eq!((&*b.scheduler_name, b.plugins.score.len()), ("b", 0));
    let (a, b) = (&a.plugins.instances["NodeName"], &b.plugins.instances["NodeName"]);
    assert!(!std::sync::Arc::ptr_eq(a, b));
}

#[test]
fn profiles_may_share_a_queue_sort_with_arguments() {
    let text = "
profiles:
- &a
  schedulerName: a
  plugins: {queueSort: {disabled: [{name: '*'}], enabled: [{name: OtherSort}]}}
  pluginConfig: [{name: OtherSort, args: {x: 1}}]
- {<<: *a, schedulerName: b}
";
    assert_eq!(valid(text).profiles.len(), 2);
    // Empty arguments equal no arguments.
    let text = "profiles:\n- {schedulerName: a, pluginConfig: [{name: PrioritySort, args: {}}]}\n- schedulerName: b\n";
    assert_eq!(valid(text).profiles.len(), 2);
}

#[test]
fn missing_default_plugins_are_errors() {
    let defaults = [DefaultPlugin::new("PrioritySort", 0)];
    let errors =
        Config::default_with(&Catalog::new(Registry::new(), &defaults)).expect_err("nothing is registered");
    assert_eq!(
        errors.to_string(),
        "default configuration: PrioritySort cannot be built: it is not registered"
    );
}

/// The output of `kube-scheduler --write-config-to`, without unsupported plugins.
const WRITTEN: &str = "
clientConnection:
  acceptContentTypes: \"\"
  burst: 100
  contentType: application/vnd.kubernetes.protobuf
  kubeconfig: \"\"
  qps: 50
delayCacheUntilActive: false
enableContentionProfiling: true
enableProfiling: true
leaderElection:
  leaderElect: false
  leaseDuration: 15s
  renewDeadline: 10s
  resourceLock: leases
  resourceName: kube-scheduler
  resourceNamespace: kube-system
  retryPeriod: 2s
parallelism: 16
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
profiles:
- pluginConfig:
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeAffinityArgs
    name: NodeAffinity
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesBalancedAllocationArgs
      resources:
      - name: cpu
        weight: 1
      - name: memory
        weight: 1
    name: NodeResourcesBalancedAllocation
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy:
        resources:
        - name: cpu
          weight: 1
        - name: memory
          weight: 1
    name: NodeResourcesFit
  plugins:
    bind: {}
    filter: {}
    multiPoint:
      enabled:
      - name: SchedulingGates
      - name: PrioritySort
      - name: NodeUnschedulable
      - name: NodeName
      - name: TaintToleration
        weight: 3
      - name: NodeAffinity
        weight: 2
      - name: NodePorts
      - name: NodeResourcesFit
        weight: 1
      - name: NodeResourcesBalancedAllocation
        weight: 1
      - name: ImageLocality
        weight: 1
      - name: DefaultBinder
    permit: {}
    placementGenerate: {}
    placementScore: {}
    podGroupPostFilter: {}
    postBind: {}
    postFilter: {}
    preBind: {}
    preEnqueue: {}
    preFilter: {}
    preScore: {}
    queueSort: {}
    reserve: {}
    score: {}
  schedulerName: default-scheduler
";

#[test]
fn output_of_kube_scheduler_is_accepted() {
    let config = valid(WRITTEN);
    let default = valid("");
    assert_eq!(&*config.profiles[0].scheduler_name, "default-scheduler");
    assert_eq!(format!("{:?}", config.profiles[0].plugins), format!("{:?}", default.profiles[0].plugins));
    assert_eq!((config.client_connection.qps, config.client_connection.burst), (Some(50.0), Some(100)));
    assert_eq!(config.percentage_of_nodes_to_score, None);
}
