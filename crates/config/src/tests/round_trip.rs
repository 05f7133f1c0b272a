//! Written configurations are read back as equal ones.

use proptest::prelude::*;
use serde_json::{Map, Number, Value, json};

use super::super::yaml;
use super::super::{Catalog, Config};
use super::{HEADER, catalog, parse, valid};

/// Any JSON tree, including strings that YAML could misread.
fn tree() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "",
        "no",
        "010",
        "1e3",
        "0x1F",
        "~",
        "null",
        "- a",
        "a: b",
        "# c",
        "1_000",
        "2001-01-01",
        "15s",
        "*a",
        "<<",
        " a ",
        "a\nb",
        "é\u{1f6a2}",
        "\u{85}\u{2028}\u{feff}\u{7f}\0",
    ]);
    let text = prop_oneof![any::<String>(), word.prop_map(str::to_owned)].boxed();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter_map("JSON has no infinity", |float| Number::from_f64(float).map(Value::Number)),
        text.clone().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::btree_map(text.clone(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Plugins that a set may enable besides or instead of the default ones.
const SCORING: &[&str] =
    &["NodeResourcesFit", "ImageLocality", "InterPodAffinity", "PodTopologySpread", "NodeAffinity"];
const OTHERS: &[&str] =
    &["NodeName", "NodePorts", "VolumeZone", "NodeUnschedulable", "UnsupportedConstraints"];

fn set(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let enabled = prop::collection::btree_map(prop::sample::select(names), 0..50_i32, 0..4);
    let disabled = prop::collection::btree_set(prop::sample::select([SCORING, OTHERS].concat()), 0..4);
    (enabled, disabled).prop_map(|(enabled, disabled)| {
        let enabled: Vec<_> =
            enabled.into_iter().map(|(name, weight)| json!({"name": name, "weight": weight})).collect();
        let disabled: Vec<_> = disabled.into_iter().map(|name| json!({"name": name})).collect();
        json!({"enabled": enabled, "disabled": disabled})
    })
}

fn args() -> impl Strategy<Value = Value> {
    let one = prop_oneof![
        (0..=100_i32).prop_map(|weight| ("InterPodAffinity", json!({"hardPodAffinityWeight": weight}))),
        (1..=100_i32)
            .prop_map(|percent| ("DefaultPreemption", json!({"minCandidateNodesPercentage": percent}))),
        (0..600_i64).prop_map(|seconds| ("VolumeBinding", json!({"bindTimeoutSeconds": seconds}))),
        (0..=100_i64).prop_map(|weight| {
            let resources =
                json!([{"name": "cpu", "weight": weight}, {"name": "example.com/gpu", "weight": 3}]);
            (
                "NodeResourcesFit",
                json!({"scoringStrategy": {"type": "MostAllocated", "resources": resources}}),
            )
        }),
        Just(("NodeResourcesFit", json!({"scoringStrategy": {"type": "LeastAllocated", "resources": []}}))),
        Just(("PodTopologySpread", json!({"defaultingType": "List", "defaultConstraints": null}))),
    ];
    prop::collection::vec(one, 0..3).prop_map(|all| {
        let by_name: Map<String, Value> =
            all.into_iter().map(|(name, args)| (name.to_owned(), args)).collect();
        by_name.into_iter().map(|(name, args)| json!({"name": name, "args": args})).collect()
    })
}

fn profile() -> impl Strategy<Value = Value> {
    (set(OTHERS), set(SCORING), args(), prop::option::of(0..=100_i32)).prop_map(
        |(all, score, args, percentage)| {
            json!({
                "plugins": {"multiPoint": all, "score": score},
                "pluginConfig": args,
                "percentageOfNodesToScore": percentage,
            })
        },
    )
}

fn configuration() -> impl Strategy<Value = Value> {
    let extender = (0..90_000_u64, any::<bool>(), "[a-z]{0,3}").prop_map(|(millis, flag, verb)| {
        json!({
            "urlPrefix": "http://127.0.0.1:1/x/", "filterVerb": verb, "httpTimeout": format!("{millis}ms"),
            "nodeCacheCapable": flag, "ignorable": !flag, "tlsConfig": {"insecure": flag},
            "managedResources": if flag { json!([{"name": "example.com/x", "ignoredByScheduler": true}]) } else { json!([]) },
        })
    });
    let profiles = prop::collection::vec(profile(), 0..4).prop_map(|mut profiles| {
        for (index, profile) in profiles.iter_mut().enumerate() {
            profile["schedulerName"] = format!("s{index}").into();
        }
        profiles
    });
    let connection = (0.0..1e6_f32, 0..1000_i32, any::<bool>()).prop_map(|(qps, burst, is_json)| {
        let name = if is_json { "application/json" } else { "" };
        json!({"qps": qps, "burst": burst, "contentType": name, "acceptContentTypes": name, "kubeconfig": name})
    });
    let election = (any::<bool>(), 20_001..u64::MAX / 2_000_000, "[a-z0-9]{0,5}").prop_map(|(elect, millis, name)| {
        json!({"leaderElect": elect, "leaseDuration": format!("{millis}ms"), "resourceName": name})
    });
    let file = (profiles, prop::option::of(extender), connection, election, 0..=100_i32, any::<bool>());
    file.prop_map(|(profiles, extender, connection, election, percentage, flag)| {
        json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": profiles,
            "extenders": Vec::from_iter(extender),
            "clientConnection": connection,
            "leaderElection": election,
            "percentageOfNodesToScore": percentage,
            "enableProfiling": flag,
            "delayCacheUntilActive": flag,
        })
    })
}

/// The effective part of a configuration, with completed arguments.
fn meaning(config: &Config) -> String {
    let plugins: Vec<_> = config.profiles.iter().map(|profile| &profile.plugins).collect();
    let percentages: Vec<_> =
        config.profiles.iter().map(|profile| profile.percentage_of_nodes_to_score).collect();
    format!(
        "{plugins:#?} {percentages:?} {:?} {:?} {:?} {:#}",
        config.client_connection,
        config.leader_election,
        config.extenders,
        config.to_value()
    )
}

proptest! {
    #[test]
    fn every_tree_round_trips(tree in tree()) {
        let written = yaml::write(&json!([tree]));
        let read = yaml::parse(&written).map_err(|error| TestCaseError::fail(format!("{} in {written}", error.message)))?;
        prop_assert_eq!(read.to_json(), json!([tree]), "{}", written);
    }

    #[test]
    fn a_completed_configuration_equals_its_source(file in configuration()) {
        let catalog = Catalog::in_tree();
        let read = |text: &str| Config::parse("c.yaml", text, &catalog).map_err(|errors| TestCaseError::fail(format!("{errors}\n{text}")));
        let config = read(&file.to_string())?;
        let again = read(&config.to_yaml())?;
        prop_assert_eq!(meaning(&again), meaning(&config));
        prop_assert_eq!(meaning(&read(&config.to_value().to_string())?), meaning(&config));
    }
}

#[test]
fn written_yaml_is_in_block_style() {
    let tree = json!({
        "a": [{"name": "one", "list": ["two", ["three"]]}, {}],
        "b": {"c": {"time": "15s", "path": "/etc/x.yaml", "odd": "no", "octal": "010", "number": 1.5}},
        "empty": [],
        "quoted": "a: \"b\"\n\u{e9}",
    });
    let expected = "\
a:
- list:
  - two
  - - three
  name: one
- {}
b:
  c:
    number: 1.5
    octal: \"010\"
    odd: \"no\"
    path: /etc/x.yaml
    time: 15s
empty: []
quoted: \"a: \\\"b\\\"\\n\\xe9\"
";
    assert_eq!(yaml::write(&tree), expected);
}

#[test]
fn written_configurations_have_every_default() {
    let written = valid("").to_value();
    assert_eq!(written["leaderElection"]["renewDeadline"], "10s");
    assert_eq!(written["clientConnection"]["contentType"], "application/vnd.kubernetes.protobuf");
    let profile = &written["profiles"][0];
    assert_eq!(profile["schedulerName"], "supercargo");
    assert_eq!(
        profile["plugins"]["multiPoint"]["enabled"][4],
        json!({"name": "TaintToleration", "weight": 3})
    );
    for point in ["filter", "placementScore", "podGroupPostFilter"] {
        assert_eq!(profile["plugins"][point], json!({}), "{point}");
    }
    let fit = profile["pluginConfig"]
        .as_array()
        .unwrap()
        .iter()
        .find(|config| config["name"] == "NodeResourcesFit");
    assert_eq!(fit.unwrap()["args"]["scoringStrategy"]["type"], "LeastAllocated");
}

#[test]
fn private_keys_are_written_to_files_but_not_served() {
    let text = "extenders: [{urlPrefix: 'https://x', tlsConfig: {certData: Y2VydA==, keyData: c2VjcmV0}}]\n";
    let config = valid(text);
    assert!(config.to_yaml().contains("c2VjcmV0"));
    let shared = Config::parse("shared.yaml", &config.to_yaml_without_keys(), &catalog()).unwrap();
    assert_eq!(shared.extenders.len(), 1);
    assert!(!shared.to_yaml().contains("c2VjcmV0"));
    let served = config.configz();
    assert!(!served.to_string().contains("c2VjcmV0"));
    assert_eq!(served["componentconfig"]["extenders"][0]["tlsConfig"]["certData"], "Y2VydA==");
}

#[test]
fn written_configurations_of_fake_plugins_round_trip() {
    let text = format!(
        "{HEADER}profiles:\n- plugins: {{multiPoint: {{disabled: [{{name: NodeName}}], enabled: [{{name: Everywhere, weight: 7}}, {{name: NodeName}}]}}}}\n"
    );
    let config = parse(&text).unwrap();
    let again = Config::parse("again.yaml", &config.to_yaml(), &catalog()).unwrap();
    assert_eq!(meaning(&again), meaning(&config));
}
