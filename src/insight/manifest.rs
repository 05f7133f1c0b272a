//! The pod that a question is about: one of the cluster, or one of a manifest.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The most bytes of a manifest.
const MOST_BYTES: u64 = 1 << 20;

/// The UID of a manifest's pod: the API server gives no such one.
pub(super) const UID_OF_MANIFEST: &str = "manifest";

/// Workloads, and where they have the template of their pods.
const WORKLOADS: &[(&str, &str)] = &[
    ("Pod", ""),
    ("Deployment", "/spec/template"),
    ("StatefulSet", "/spec/template"),
    ("DaemonSet", "/spec/template"),
    ("ReplicaSet", "/spec/template"),
    ("Job", "/spec/template"),
    ("CronJob", "/spec/jobTemplate/spec/template"),
];

/// The fields of a container that scheduling reads. Others, such as the environment, may be secret
/// and are not sent.
const CONTAINER_FIELDS: &[&str] =
    &["name", "image", "ports", "resources", "volumeMounts", "restartPolicy", "restartPolicyRules"];

/// What the controller of DaemonSets makes pods tolerate.
const OF_DAEMON_SET: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// The pod that a question is about.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Subject {
    /// Pod: NAME, pod/NAME or NAMESPACE/NAME
    #[arg(
        value_name = "POD",
        required_unless_present_any = ["filename", "manifest"],
        conflicts_with_all = ["filename", "manifest"]
    )]
    pub(super) pod: Option<String>,
    /// Manifest of a pod or a workload, which need not be in the cluster; - reads standard input
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "manifest")]
    #[serde(skip)]
    filename: Option<PathBuf>,
    /// The manifest's pod in JSON, for an endpoint
    #[arg(long, hide = true, value_name = "JSON")]
    pub(super) manifest: Option<String>,
}

impl Subject {
    /// Reads the manifest. Only a command does: a file's name that an endpoint receives is not its
    /// own.
    pub(super) fn read(&mut self) -> Result<()> {
        let Some(file) = &self.filename else { return Ok(()) };
        let (name, text) = if file == Path::new("-") {
            ("standard input".to_owned(), read(stdin()))
        } else {
            (file.display().to_string(), File::open(file).map_err(Into::into).and_then(read))
        };
        let text = text.with_context(|| format!("cannot read {name}"))?;
        self.manifest = Some(pod_of(&text).with_context(|| name)?.to_string());
        Ok(())
    }
}

fn read(from: impl Read) -> Result<String> {
    let mut text = String::new();
    from.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= MOST_BYTES, "it is larger than 1 MiB");
    Ok(text)
}

/// The pod of a manifest that has one pod or workload, as the API server would store it.
fn pod_of(text: &str) -> Result<Value> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, serde_saphyr::options! { with_snippet: false })
            .map_err(|error| {
                let place = error.location().map(|at| format!(" (line {}:{})", at.line(), at.column()));
                anyhow::anyhow!("not YAML{}", place.unwrap_or_default())
            })?;
    let mut objects = Vec::new();
    for mut document in documents {
        let is_list = kind(&document).ends_with("List");
        match document.get_mut("items").filter(|_| is_list).map(Value::take) {
            Some(Value::Array(items)) => objects.extend(items),
            _ => objects.push(document),
        }
    }
    let path =
        |object: &Value| WORKLOADS.iter().find(|(known, _)| *known == kind(object)).map(|(_, path)| *path);
    let mut found = objects.iter().filter_map(|object| Some((object, path(object)?)));
    match (found.next(), found.next()) {
        (Some((object, path)), None) => {
            let pod = object.pointer(path).filter(|pod| pod.is_object());
            let named = || format!("{} {}", kind(object), name(object));
            let pod = pod.with_context(|| format!("{}: {path} is missing", named()))?;
            stored(object, pod).with_context(named)
        }
        (None, _) => {
            let known: Vec<&str> = WORKLOADS.iter().map(|(kind, _)| *kind).collect();
            let kinds: Vec<&str> = objects.iter().map(kind).filter(|kind| !kind.is_empty()).collect();
            let has = if kinds.is_empty() { "nothing with a kind".to_owned() } else { kinds.join(", ") };
            bail!("it has {has}; want one of {}", known.join(", "))
        }
        (Some(one), Some(other)) => {
            let all = [one, other].into_iter().chain(found);
            let all: Vec<String> =
                all.map(|(object, _)| format!("{} {}", kind(object), name(object))).collect();
            bail!("it has {}; give one of them in a file of its own", all.join(", "))
        }
    }
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    let metadata = &object["metadata"];
    let generated = || metadata["generateName"].as_str().map(|name| name.trim_end_matches('-'));
    metadata["name"].as_str().or_else(generated).unwrap_or_default()
}

/// A new pod of this object, with the API server's defaults that scheduling needs.
fn stored(object: &Value, pod: &Value) -> Result<Value> {
    ensure!(!name(object).is_empty(), "metadata.name is missing");
    let spec = pod["spec"].as_object().context("the pod's spec is missing")?;
    let has_containers = spec.get("containers").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    ensure!(has_containers, "the pod's spec.containers is missing");
    let mut spec = spec.clone();
    // The question is where it would go.
    for field in ["nodeName", "ephemeralContainers", "imagePullSecrets", "securityContext"] {
        spec.remove(field);
    }
    spec.entry("schedulerName").or_insert_with(|| "default-scheduler".into());
    let on_host = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for field in ["initContainers", "containers"] {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                default_container(container, on_host);
            }
        }
    }
    if kind(object) == "DaemonSet" {
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        let of_controller = OF_DAEMON_SET
            .iter()
            .map(|(key, effect)| json!({ "key": key, "operator": "Exists", "effect": effect }));
        if let Some(tolerations) = tolerations.as_array_mut() {
            tolerations.extend(of_controller);
        }
    }
    let metadata = &object["metadata"];
    Ok(json!({
        "metadata": {
            "name": name(object),
            "namespace": metadata["namespace"],
            "labels": pod["metadata"]["labels"],
        },
        "spec": spec,
    }))
}

fn default_container(container: &mut Map<String, Value>, on_host: bool) {
    container.retain(|field, _| CONTAINER_FIELDS.contains(&&**field));
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut() else { continue };
        port.entry("protocol").or_insert_with(|| "TCP".into());
        if let Some(number) = port.get("containerPort").cloned().filter(|_| on_host) {
            port.entry("hostPort").or_insert(number);
        }
    }
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if let Some(requests) = resources.entry("requests").or_insert_with(|| json!({})).as_object_mut() {
        for (resource, limit) in limits {
            requests.entry(resource).or_insert(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        format!("{:#}", pod_of(text).unwrap_err())
    }

    /// A workload with this template.
    fn workload(kind: &str, path: &str, template: &Value) -> String {
        let mut object = template.clone();
        for field in path.split('/').rev().filter(|field| !field.is_empty()) {
            object = json!({ field: object });
        }
        object["kind"] = kind.into();
        object["metadata"]["name"] = "web".into();
        object["metadata"]["namespace"] = "team".into();
        object.to_string()
    }

    #[test]
    fn every_workload_has_the_pod_of_its_template() {
        let container = json!({ "name": "c", "resources": { "limits": { "cpu": "2" } } });
        let spec = json!({ "nodeName": "n", "containers": [container] });
        let template = json!({ "metadata": { "labels": { "app": "web" } }, "spec": spec });
        for (kind, path) in WORKLOADS {
            let pod = pod_of(&workload(kind, path, &template)).unwrap();
            let metadata = json!({ "name": "web", "namespace": "team", "labels": { "app": "web" } });
            assert_eq!(pod["metadata"], metadata, "{kind}");
            let resources = json!({ "limits": { "cpu": "2" }, "requests": { "cpu": "2" } });
            assert_eq!(pod["spec"]["containers"], json!([{ "name": "c", "resources": resources }]));
            assert_eq!(
                (&pod["spec"]["nodeName"], &pod["spec"]["schedulerName"]),
                (&Value::Null, &json!("default-scheduler"))
            );
            assert_eq!(pod["spec"]["tolerations"].is_array(), *kind == "DaemonSet");
        }
    }

    #[test]
    fn a_pod_has_the_defaults_that_scheduling_needs_and_no_secrets() {
        let pod = pod_of(
            "kind: Service\nmetadata: {name: s}\n---\nkind: Pod\nmetadata: {generateName: web-}\nspec:\n  \
             hostNetwork: true\n  containers:\n  - name: c\n    env: [{name: PASSWORD, value: secret}]\n    \
             args: [secret]\n    ports: [{containerPort: 80}]\n---\n",
        )
        .unwrap();
        assert_eq!(pod["metadata"]["name"], "web");
        let port = json!({ "containerPort": 80, "hostPort": 80, "protocol": "TCP" });
        assert_eq!(pod["spec"]["containers"], json!([{ "name": "c", "ports": [port] }]));
        assert!(!pod.to_string().contains("secret"));
    }

    #[test]
    fn errors_say_what_is_missing_and_what_is_there() {
        for (text, expected) in [
            ("", "it has nothing with a kind; want one of Pod, Deployment, "),
            ("kind: [", "not YAML (line 1"),
            ("7", "it has nothing with a kind"),
            ("kind: Service", "it has Service; want one of Pod"),
            (
                "kind: Pod\nmetadata: {name: a}\n---\nkind: Job\nmetadata: {name: b}",
                "it has Pod a, Job b; give one",
            ),
            ("kind: Deployment\nmetadata: {name: a}", "Deployment a: /spec/template is missing"),
            ("kind: Pod\nspec: {}", "Pod : metadata.name is missing"),
            ("kind: Pod\nmetadata: {name: a}", "Pod a: the pod's spec is missing"),
            (
                "kind: Pod\nmetadata: {name: a}\nspec: {containers: 7}",
                "Pod a: the pod's spec.containers is missing",
            ),
        ] {
            let error = error(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        // Each alias doubles the text.
        let alias = |i| format!("a{i}: &a{i} [*a{0}, *a{0}]", i - 1);
        let bomb: Vec<String> = ["a0: &a0 [x, x]".to_owned()].into_iter().chain((1..40).map(alias)).collect();
        assert!(error(&bomb.join("\n")).starts_with("not YAML"));
    }
}
