//! Compares the configurations that kube-scheduler and supercargo write for the same file, except
//! for the differences in `docs/deviations.md`. supercargo must read kube-scheduler's output, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use supercargo_config::feature_gates::FeatureGates;
use supercargo_config::{Catalog, Config};
use supercargo_controlplane::{Assets, Program, assets_or_skip};
use supercargo_framework::features::{Feature, Gate, Stage, Version};

use super::{HEAD, file, refused};

/// Files, each with its special feature.
const FILES: &[(&str, &str)] = &[
    ("nothing", ""),
    (
        "an election",
        "leaderElection: {leaseDuration: 1m30s, retryPeriod: 500ms, resourceName: mine, resourceNamespace: here}\n",
    ),
    ("no election", "leaderElection: {leaderElect: false}\nenableProfiling: false\ndelayCacheUntilActive: true\n"),
    (
        "a connection",
        "clientConnection: {qps: 12.5, burst: 20, contentType: application/json, acceptContentTypes: 'application/json'}\n",
    ),
    ("numbers", "parallelism: 3\npercentageOfNodesToScore: 40\npodInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 60\n"),
    (
        "plugins, merged",
        "profiles:
- schedulerName: a
  percentageOfNodesToScore: 0
  plugins:
    multiPoint:
      disabled: [{name: NodePorts}, {name: NodeName}]
      enabled: [{name: NodeName}, {name: TaintToleration, weight: 9}]
    score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality}]}
    filter: {disabled: [{name: NodeAffinity}]}
- schedulerName: b
",
    ),
    ("points for groups of pods", "profiles: [{plugins: {placementScore: {}, podGroupPostFilter: {}}}]\n"),
    (
        "no default plugins",
        "profiles:
- plugins:
    multiPoint:
      disabled: [{name: '*'}]
      enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: NodeResourcesFit, weight: 4}]
",
    ),
    (
        "arguments",
        "profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args:
      ignoredResources: [example.com/a]
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: cpu}, {name: memory, weight: 3}]
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
  - {name: VolumeBinding, args: {bindTimeoutSeconds: 30}}
  - {name: DefaultPreemption, args: {minCandidateNodesPercentage: 20}}
  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 5}}
  - {name: DynamicResources, args: {filterTimeout: 0s, bindingTimeout: 1m30s}}
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  - {name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu, weight: 1}]}}
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]
",
    ),
    (
        "extenders",
        "extenders:
- urlPrefix: http://127.0.0.1:1/x
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 2
  httpTimeout: 7s
  nodeCacheCapable: true
  managedResources: [{name: example.com/b, ignoredByScheduler: true}]
- {urlPrefix: 'https://127.0.0.1:1', bindVerb: bind, enableHTTPS: true, httpTimeout: 1s, tlsConfig: {insecure: true}}
",
    ),
];

/// Invalid arguments of DynamicResources, and the gates with which they are.
const INVALID: &[(&str, &str)] = &[
    ("filterTimeout: -1s", ""),
    ("bindingTimeout: 999ms", ""),
    ("filterTimeout: 10s", "DRASchedulerFilterTimeout=false"),
];

/// Makes kube-scheduler read a file and write the configuration. It exits before it sends a
/// request.
fn run_upstream(program: &Path, config: &Path, gates: &str) -> Output {
    Command::new(program)
        .arg(format!("--config={}", config.display()))
        .arg(format!("--write-config-to={}", config.with_file_name("written.yaml").display()))
        .args(["--master=http://127.0.0.1:1", "--secure-port=0", &format!("--feature-gates={gates}")])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The configuration that kube-scheduler writes for this file.
fn written_by_upstream(program: &Path, folder: &Path, text: &str) -> String {
    let output = run_upstream(program, &file(folder, text), "");
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    let written = folder.join("written.yaml");
    let text = fs::read_to_string(&written).unwrap_or_else(|error| panic!("{error}: {reported}"));
    fs::remove_file(written).unwrap();
    text
}

/// The field that kube-scheduler refuses, and why, without the field's value.
fn refused_by_upstream(program: &Path, config: &Path, gates: &str) -> String {
    let output = run_upstream(program, config, gates);
    assert!(!output.status.success(), "{output:?}");
    let reported = String::from_utf8(output.stderr).unwrap();
    let said = reported.trim_end().rsplit_once("err=\"").and_then(|(_, said)| said.strip_suffix('"'));
    let (field, why) = said.and_then(|said| said.split_once(": ")).unwrap_or_else(|| panic!("{reported}"));
    format!("{field}: {}", why.rsplit(": ").next().unwrap())
}

fn parsed(text: &str) -> Config {
    let config = Config::parse("c.yaml", text, &Catalog::in_tree());
    config.unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// Removes the differences of `docs/deviations.md` from upstream's output, and empty fields from
/// both.
fn without_deviations(mut upstream: Value, here: &mut Value, text: &str) -> Value {
    let is_set = |field: &str| text.contains(field);
    if !is_set("resourceName") {
        upstream["leaderElection"]["resourceName"] = "supercargo".into();
    }
    if !is_set("qps") {
        upstream["clientConnection"]["qps"] = 0.into();
        upstream["clientConnection"]["burst"] = 0.into();
    }
    // supercargo omits fields that are false.
    if !is_set("delayCacheUntilActive") {
        upstream["delayCacheUntilActive"] = false.into();
    }
    for profile in upstream["profiles"].as_array_mut().into_iter().flatten() {
        if profile["schedulerName"] == "default-scheduler" {
            profile["schedulerName"] = "supercargo".into();
        }
        drop_what_says_nothing(profile);
    }
    for profile in here["profiles"].as_array_mut().into_iter().flatten() {
        without(&mut profile["plugins"]["multiPoint"]["enabled"], "UnsupportedConstraints");
        drop_what_says_nothing(profile);
    }
    upstream
}

fn without(list: &mut Value, name: &str) {
    if let Some(items) = list.as_array_mut() {
        items.retain(|item| item["name"] != name);
    }
}

/// Removes empty plugin sets, and the weights of disabled plugins.
fn drop_what_says_nothing(profile: &mut Value) {
    let Some(sets) = profile["plugins"].as_object_mut() else { return };
    sets.retain(|_, set| set.as_object().is_none_or(|set| !set.is_empty()));
    let disabled = sets.values_mut().filter_map(|set| set.get_mut("disabled")?.as_array_mut()).flatten();
    for plugin in disabled.filter_map(Value::as_object_mut) {
        plugin.remove("weight");
    }
}

/// Compares numbers by value: 1 equals 1.0.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), plain(value)))
            .collect(),
        other => other.clone(),
    }
}

fn kube_scheduler() -> Option<PathBuf> {
    let assets: Assets = assets_or_skip()?;
    Some(assets.path(Program::KubeScheduler).unwrap())
}

/// The gates in kube-scheduler's help: name, stage and default. Gates that are GA are not in it.
fn gates_of_upstream(program: &Path) -> Vec<(String, String, bool)> {
    let output = Command::new(program).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let gate = |line: &str| {
        let (name, rest) = line.trim().strip_prefix("kube:")?.split_once("=true|false (")?;
        // What follows is about another --min-compatibility-version.
        let (stage, default) = rest.split_once(')')?.0.split_once(" - default=")?;
        Some((name.to_owned(), stage.to_owned(), default.parse().ok()?))
    };
    help.lines().filter_map(gate).collect()
}

#[test]
fn feature_gates_have_kube_schedulers_stages_and_defaults() {
    let Some(program) = kube_scheduler() else { return };
    let gates = gates_of_upstream(&program);
    for (name, _, default) in &gates {
        let gates: FeatureGates = format!("{name}={default}").parse().unwrap();
        assert!(gates.apply(Version::CURRENT).is_ok(), "{name} is accepted with its default");
    }
    for feature in Feature::ALL {
        let Gate { stage, default, .. } = feature.gate(Version::CURRENT);
        let found = gates.iter().find(|(name, ..)| name == feature.name());
        let expected = (stage != Stage::Ga).then(|| (stage.to_string(), default));
        assert_eq!(found.map(|(_, stage, default)| (stage.clone(), *default)), expected, "{feature:?}");
    }
}

#[test]
fn written_config_equals_kube_scheduler_except_on_purpose() {
    let Some(program) = kube_scheduler() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        let written = written_by_upstream(&program, folder.path(), text);
        let config = parsed(&format!("{HEAD}{text}"));
        let mut here = config.to_value();
        let upstream = without_deviations(serde_saphyr::from_str(&written).unwrap(), &mut here, text);
        assert_eq!(format!("{:#}", plain(&here)), format!("{:#}", plain(&upstream)), "{name}");

        let again = parsed(&written);
        let plugins = |config: &Config| -> Vec<String> {
            config.profiles.iter().map(|profile| format!("{:#?}", profile.plugins)).collect()
        };
        assert_eq!(plugins(&again), plugins(&config), "{name}: kube-scheduler's file read here");
    }
}

#[test]
fn invalid_arguments_of_devices_are_refused_in_kube_schedulers_words() {
    let Some(program) = kube_scheduler() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (args, gates) in INVALID {
        let text = format!("profiles:\n- pluginConfig: [{{name: DynamicResources, args: {{{args}}}}}]\n");
        let path = file(folder.path(), &text);
        let upstream = refused_by_upstream(&program, &path, gates);
        let gates = format!("--feature-gates={gates}");
        let (_, ours) = refused(&["config", "validate", path.to_str().unwrap(), &gates]);
        assert!(ours.ends_with(&format!(": {upstream}\n")), "{args}: {upstream:?}, here {ours:?}");
        assert_eq!(ours.lines().count(), 1, "{args}: {ours}");
    }
}
