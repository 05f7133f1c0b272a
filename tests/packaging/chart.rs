//! The chart renders the manifests and rejects unknown values.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use supercargo_config::feature_gates::FeatureGates;
use supercargo_controlplane::{Program, Release, assets_or_skip};
use supercargo_framework::features::{Feature, Version};

use super::overlays::{Objects, by_name, kustomize, only};
use crate::rbac::manifests::{self, text};

fn chart() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/charts/supercargo"))
}

/// Renders the chart for a release in the usual namespace, or returns Helm's error; `None` if
/// Helm's packages are not available.
fn render(release: &str, values: &Value) -> Option<Result<Objects, String>> {
    render_in("supercargo-system", release, values)
}

fn render_in(namespace: &str, release: &str, values: &Value) -> Option<Result<Objects, String>> {
    let program = assets_or_skip()?.path(Program::Helm).unwrap();
    let mut helm = Command::new(program)
        .arg(chart())
        .args([release, namespace, Release::Baseline.version()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(helm.stdin.take().unwrap(), values).unwrap();
    let output = helm.wait_with_output().unwrap();
    if !output.status.success() {
        return Some(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let complaints: Vec<&str> = answer["lint"]
        .as_array()
        .unwrap()
        .iter()
        .map(text)
        .filter(|line| !line.starts_with("[INFO]"))
        .collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    let templates = answer["templates"].as_object().unwrap();
    let objects = templates
        .iter()
        .filter(|(path, _)| Path::new(path).extension().is_some_and(|it| it == "yaml"))
        .flat_map(|(_, rendered)| manifests::documents_of(text(rendered)))
        .filter(|document| !document.is_null());
    Some(Ok(by_name(objects)))
}

/// The values of a file besides the chart's defaults.
fn values(file: &str) -> Value {
    manifests::parse(&chart().join(file))
}

/// Objects with embedded YAML and JSON parsed, so that layout does not matter. The Namespace is
/// omitted, because Helm creates it.
fn meant(mut objects: Objects) -> Objects {
    objects.retain(|_, object| object["kind"] != "Namespace");
    for map in objects.values_mut().filter(|object| object["kind"] == "ConfigMap") {
        for file in map["data"].as_object_mut().unwrap().values_mut() {
            *file = serde_saphyr::from_str(text(file)).unwrap();
        }
    }
    objects
}

fn assert_same(values: &Value, folder: &str) {
    let Some(rendered) = render("supercargo", values) else { return };
    let rendered = meant(rendered.unwrap());
    let Some(kustomized) = kustomize(folder) else { return };
    let kustomized = meant(kustomized);
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&rendered), names(&kustomized), "left: the chart, right: {folder}");
    for (name, object) in &kustomized {
        assert_eq!(rendered[name], *object, "{name}: left: the chart, right: {folder}");
    }
}

#[test]
fn default_chart_equals_base() {
    assert_same(&json!({}), "base");
}

#[test]
fn chart_values_render_the_overlays() {
    for name in ["groups", "ha", "insight", "monitoring", "only-scheduler"] {
        assert_same(&values(&format!("values-{name}.yaml")), &format!("overlays/{name}"));
    }
}

#[test]
fn chart_turns_on_all_gates_for_groups() {
    let gates = [
        "TopologyAwareWorkloadScheduling",
        "CompositePodGroup",
        "PodGroupPreemptionPolicy",
        "DRAWorkloadResourceClaims",
    ];
    let with = |gates: Value| json!({"groups": {"enabled": true, "featureGates": gates}});
    let Some(rendered) = render("supercargo", &with(json!(gates))) else { return };
    let rendered = rendered.unwrap();
    let args = &only(&rendered, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"];
    let args = args.as_array().unwrap().iter().map(text);
    let given: Vec<&str> = args.filter_map(|arg| arg.strip_prefix("--feature-gates=")).collect();
    let gates: FeatureGates = given.iter().map(|gates| gates.parse::<FeatureGates>().unwrap()).collect();
    let features = gates.apply(Version::CURRENT).unwrap();
    let off: Vec<&str> =
        Feature::OF_GROUPS.iter().filter(|gate| !features.enabled(**gate)).map(|gate| gate.name()).collect();
    assert!(off.is_empty(), "{given:?} leave off {off:?}");
    let refused = render("supercargo", &with(json!(["GangScheduling"]))).unwrap().unwrap_err();
    assert!(refused.contains("featureGates"), "{refused}");
}

/// The fields of an object that select or name other objects.
fn selectors(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, field)| match name.as_str() {
                "matchLabels" => vec![field],
                // A Service's selector is a plain map.
                "selector" if field["matchLabels"].is_null() => vec![field],
                _ => selectors(field),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(selectors).collect(),
        _ => Vec::new(),
    }
}

/// Whether the selector of an object among `own` matches an object among `other`: pods, or Services
/// for a ServiceMonitor.
fn finds(own: &Objects, kind: &str, other: &Objects) -> Vec<bool> {
    let labels = match kind {
        "ServiceMonitor" => &only(other, "Service")["metadata"]["labels"],
        _ => &only(other, "Deployment")["spec"]["template"]["metadata"]["labels"],
    };
    let selects = |selector: &Value| {
        let pairs = selector.as_object().unwrap();
        assert!(!pairs.is_empty(), "{kind} selects everything");
        pairs.iter().all(|(name, value)| labels[name] == *value)
    };
    let spec = &only(own, kind)["spec"];
    // Its other selectors are about its clients.
    let spec = if kind == "NetworkPolicy" { &spec["podSelector"] } else { spec };
    selectors(spec).into_iter().map(selects).collect()
}

#[test]
fn two_chart_releases_do_not_collide() {
    let mut all = values("values-ha.yaml");
    all["serviceMonitor"] = json!({"enabled": true});
    all["insight"] = json!({"enabled": true});
    all["groups"] = json!({"enabled": true});
    let Some(first) = render("supercargo", &all) else { return };
    let first = first.unwrap();
    let second = render("batch", &all).unwrap().unwrap();
    assert!(first.keys().all(|name| !second.contains_key(name)), "{:?}", second.keys());
    let object = |name: &str| second.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", second.keys()));
    let config = object("ConfigMap supercargo-system/batch-supercargo-config");
    let config: Value = serde_saphyr::from_str(text(&config["data"]["config.yaml"])).unwrap();
    assert_eq!(config["leaderElection"]["resourceName"], "batch-supercargo");
    let role = object("Role kube-system/batch-supercargo");
    assert_eq!(role["rules"][1]["resourceNames"], json!(["batch-supercargo"]));
    // The Deployment's selector, and the two rules that spread replicas.
    for (kind, count) in [
        ("Deployment", 3),
        ("NetworkPolicy", 1),
        ("PodDisruptionBudget", 1),
        ("Service", 1),
        ("ServiceMonitor", 1),
    ] {
        for (own, other) in [(&first, &second), (&second, &first)] {
            assert_eq!(finds(own, kind, own), vec![true; count], "{kind} and its own");
            assert_eq!(finds(own, kind, other), vec![false; count], "{kind} and the other release's");
        }
    }
}

#[test]
fn kube_system_release_has_no_resource_quota() {
    let quota = |namespace: &str| {
        let objects = render_in(namespace, "supercargo", &json!({}))?.unwrap();
        Some(objects.values().any(|object| object["kind"] == "ResourceQuota"))
    };
    let Some(elsewhere) = quota("supercargo-system") else { return };
    assert_eq!((elsewhere, quota("kube-system")), (true, Some(false)));
}

#[test]
fn chart_pod_values_reach_the_pod() {
    let values = json!({
        "replicaCount": 3,
        "image": {"repository": "example.com/it", "digest": format!("sha256:{}", "0".repeat(64)), "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "loggingFormat": "text",
        "securePort": 8443,
        "extraArgs": ["--log-level=debug"],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        "priorityClassName": "",
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {"x": 1}},
        "topologySpreadConstraints": [{"maxSkew": 2}],
        "podAnnotations": {"c": "d"},
        "podLabels": {"e": "f"},
        "spread": true,
        "serviceAccount": {"create": false, "name": "other"},
        "rbac": {"create": false},
    });
    let Some(objects) = render("supercargo", &values) else { return };
    let objects = objects.unwrap();
    let kinds: Vec<&str> = objects.values().map(|object| text(&object["kind"])).collect();
    assert_eq!(kinds, ["ConfigMap", "Deployment", "NetworkPolicy", "Service"]);
    let spec = &objects["Deployment supercargo-system/supercargo"]["spec"];
    let (pod, metadata) = (&spec["template"]["spec"], &spec["template"]["metadata"]);
    let container = &pod["containers"][0];
    assert_eq!(spec["replicas"], 3);
    assert_eq!(container["image"], format!("example.com/it@sha256:{}", "0".repeat(64)));
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(pod["imagePullSecrets"], values["imagePullSecrets"]);
    let args = [
        "run",
        "--config=/etc/supercargo/config.yaml",
        "--logging-format=text",
        "--secure-port=8443",
        "--log-level=debug",
    ];
    assert_eq!(container["args"], json!(args));
    assert_eq!(container["ports"][0]["containerPort"], 8443);
    assert_eq!(container["resources"], values["resources"]);
    assert_eq!(container["volumeMounts"][1], values["extraVolumeMounts"][0]);
    assert_eq!(pod["volumes"][1], values["extraVolumes"][0]);
    assert!(pod["priorityClassName"].is_null());
    assert_eq!(pod["serviceAccountName"], "other");
    for field in ["nodeSelector", "tolerations"] {
        assert_eq!(pod[field], values[field], "{field}");
    }
    // Values are added to the rules that spread replicas.
    assert_eq!(pod["affinity"]["nodeAffinity"], values["affinity"]["nodeAffinity"]);
    assert!(pod["affinity"]["podAntiAffinity"].is_object());
    assert_eq!(pod["topologySpreadConstraints"].as_array().map(Vec::len), Some(2));
    assert_eq!(metadata["annotations"], values["podAnnotations"]);
    assert_eq!(metadata["labels"]["e"], "f");
}

#[test]
fn chart_network_policy_names_its_peers_or_nobody() {
    let ingress = |policy: Value| {
        let objects = render("supercargo", &json!({"networkPolicy": policy}))?.unwrap();
        let policy = objects.values().find(|object| object["kind"] == "NetworkPolicy");
        Some(policy.map(|policy| policy["spec"]["ingress"].clone()))
    };
    let peers = json!([{"podSelector": {"matchLabels": {"app": "prometheus"}}}]);
    let Some(named) = ingress(json!({"from": peers})) else { return };
    let port = json!([{"port": "https", "protocol": "TCP"}]);
    assert_eq!(named, Some(json!([{"from": peers, "ports": port}])));
    assert_eq!(ingress(json!({"from": []})), Some(Some(Value::Null)));
    assert_eq!(ingress(json!({"enabled": false})), Some(None));
}

#[test]
fn chart_without_leader_election_has_no_lease_role() {
    let values = json!({"leaderElection": {"leaderElect": false}, "flowSchema": {"enabled": true}});
    let Some(objects) = render("supercargo", &values) else { return };
    let objects = objects.unwrap();
    assert!(!objects.contains_key("Role kube-system/supercargo"));
    assert!(!objects.contains_key("FlowSchema /supercargo-leader-election"));
    let config = text(&objects["ConfigMap supercargo-system/supercargo-config"]["data"]["config.yaml"]);
    let config: Value = serde_saphyr::from_str(config).unwrap();
    assert_eq!(config["leaderElection"], values["leaderElection"]);
}

#[test]
fn unknown_chart_value_is_rejected_by_name() {
    for (values, name) in [
        (json!({"replicas": 2}), "replicas"),
        (json!({"image": {"tagg": "1"}}), "tagg"),
        (json!({"leaderElection": {"leaseDurationSeconds": 15}}), "leaseDurationSeconds"),
        (json!({"securePort": 0}), "securePort"),
        (json!({"loggingFormat": "xml"}), "loggingFormat"),
        (json!({"config": {"profiles": []}}), "profiles"),
    ] {
        let Some(rendered) = render("supercargo", &values) else { return };
        let error = rendered.expect_err(name);
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn chart_version_matches_the_workspace() {
    let chart = manifests::parse(&chart().join("Chart.yaml"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        chart["description"].as_str().map(|text| text.contains("A Kubernetes scheduler in Rust")),
        Some(true)
    );
    let oldest = format!(">={}.0-0", Release::ALL[0].minor());
    assert_eq!(chart["kubeVersion"], oldest);
}
