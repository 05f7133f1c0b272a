//! The pod that a question is about: one of the cluster, or one of a manifest.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The most bytes of a manifest.
const MOST_BYTES: u64 = 1 << 20;

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

/// The fields of a pod's spec that scheduling reads. Others may be secret, and are not sent.
const SPEC_FIELDS: &str = "affinity containers hostNetwork hostUsers initContainers nodeSelector overhead \
    preemptionPolicy priority resourceClaims resources schedulerName schedulingGates schedulingGroup tolerations \
    topologySpreadConstraints volumes";

/// The same of the sources of volumes.
const VOLUME_FIELDS: &str = "claimName diskName diskURI driver image iqn kind lun monitors pdName pool readOnly \
    reference targetPortal volumeID";

/// The same of a container. Its environment, for one, may be secret.
const CONTAINER_FIELDS: &str = "image name ports resources restartPolicy restartPolicyRules volumeMounts";

/// What the controller of DaemonSets makes pods tolerate.
const OF_DAEMON_SET: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// The same with the host network.
const OF_DAEMON_SET_ON_HOST: &[(&str, &str)] = &[("node.kubernetes.io/network-unavailable", "NoSchedule")];

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
    // Without `nodeName`: the question is where it would go.
    keep(&mut spec, SPEC_FIELDS);
    for volume in objects(spec.get_mut("volumes")) {
        reduce_volume(volume)?;
    }
    for claim in objects(spec.get_mut("resourceClaims")) {
        ensure!(
            !claim.contains_key("resourceClaimTemplateName"),
            "spec.resourceClaims: a claim of a resourceClaimTemplateName exists only once its pod does"
        );
    }
    spec.entry("schedulerName").or_insert_with(|| "default-scheduler".into());
    let on_host = spec.get("hostNetwork") == Some(&Value::Bool(true));
    let mut requested = BTreeSet::new();
    for field in ["initContainers", "containers"] {
        for container in objects(spec.get_mut(field)) {
            default_container(container, on_host);
            requested.extend(container.get("resources").map(requests).unwrap_or_default());
        }
    }
    write_quantities(spec.get_mut("overhead"));
    // What containers request is the pod's request already.
    default_requests(spec.get_mut("resources"), &requested);
    if kind(object) == "DaemonSet" {
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        let of_controller = OF_DAEMON_SET
            .iter()
            .chain(OF_DAEMON_SET_ON_HOST.iter().filter(|_| on_host))
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
    keep(container, CONTAINER_FIELDS);
    for port in objects(container.get_mut("ports")) {
        port.entry("protocol").or_insert_with(|| "TCP".into());
        if let Some(number) = port.get("containerPort").cloned().filter(|_| on_host) {
            port.entry("hostPort").or_insert(number);
        }
    }
    default_requests(container.get_mut("resources"), &BTreeSet::new());
}

/// The objects of a list.
fn objects(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Keeps only these fields.
fn keep(object: &mut Map<String, Value>, fields: &str) {
    object.retain(|field, _| fields.split(' ').any(|kept| kept == field));
}

/// Keeps what scheduling reads of a volume.
fn reduce_volume(volume: &mut Map<String, Value>) -> Result<()> {
    ensure!(
        !volume.contains_key("ephemeral"),
        "spec.volumes: the claim of an ephemeral volume exists only once its pod does"
    );
    for source in volume.values_mut().filter_map(Value::as_object_mut) {
        keep(source, VOLUME_FIELDS);
    }
    Ok(())
}

/// The names of the resources that are requested.
fn requests(resources: &Value) -> BTreeSet<String> {
    resources["requests"].as_object().into_iter().flat_map(Map::keys).cloned().collect()
}

/// Defaults requests to limits, except those that others request.
fn default_requests(resources: Option<&mut Value>, except: &BTreeSet<String>) {
    let Some(resources) = resources.and_then(Value::as_object_mut) else { return };
    for field in ["limits", "requests"] {
        write_quantities(resources.get_mut(field));
    }
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if let Some(requests) = resources.entry("requests").or_insert_with(|| json!({})).as_object_mut() {
        for (resource, limit) in limits.into_iter().filter(|(resource, _)| !except.contains(resource)) {
            requests.entry(resource).or_insert(limit);
        }
    }
}

/// Writes quantities as the API server does: as strings. A manifest may have numbers.
fn write_quantities(quantities: Option<&mut Value>) {
    for quantity in quantities.and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        if let Value::Number(number) = quantity {
            *quantity = number.to_string().into();
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
        let container = json!({ "name": "c", "resources": { "limits": { "cpu": 2 } } });
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
             args: [secret]\n    ports: [{containerPort: 80}]\n  dnsConfig: {searches: [secret]}\n  volumes:\n  \
             - {name: a, csi: {driver: d, volumeAttributes: {password: secret}}}\n  \
             - {name: b, flexVolume: {driver: d, options: {password: secret}}}\n---\n",
        )
        .unwrap();
        let volumes = json!([
            { "name": "a", "csi": { "driver": "d" } },
            { "name": "b", "flexVolume": { "driver": "d" } },
        ]);
        assert_eq!(pod["spec"]["volumes"], volumes);
        assert_eq!(pod["metadata"]["name"], "web");
        let port = json!({ "containerPort": 80, "hostPort": 80, "protocol": "TCP" });
        assert_eq!(pod["spec"]["containers"], json!([{ "name": "c", "ports": [port] }]));
        assert!(!pod.to_string().contains("secret"));
    }

    #[test]
    fn quantities_may_be_numbers_and_limits_become_requests() {
        let pod = pod_of(
            "kind: DaemonSet\nmetadata: {name: d}\nspec: {template: {spec: {\n  hostNetwork: true,\n  \
             overhead: {cpu: 0.25}, resources: {limits: {cpu: 3, memory: 1Gi}},\n  containers: [{name: c, \
             resources: {limits: {example.com/gpu: 1}, requests: {cpu: 1}}}]}}}",
        )
        .unwrap();
        let spec = &pod["spec"];
        assert_eq!(spec["overhead"], json!({ "cpu": "0.25" }));
        // The pod requests the CPU of its containers.
        let resources = json!({ "limits": { "cpu": "3", "memory": "1Gi" }, "requests": { "memory": "1Gi" } });
        assert_eq!(spec["resources"], resources);
        let of_container = json!({
            "limits": { "example.com/gpu": "1" }, "requests": { "cpu": "1", "example.com/gpu": "1" },
        });
        assert_eq!(spec["containers"][0]["resources"], of_container);
        let tolerations = spec["tolerations"].as_array().unwrap();
        assert!(tolerations.iter().any(|it| it["key"] == "node.kubernetes.io/network-unavailable"));
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
            (
                "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{}], volumes: [{ephemeral: {}}]}",
                "Pod a: spec.volumes: the claim of an ephemeral volume exists only once",
            ),
            (
                "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{}], resourceClaims: \
                 [{resourceClaimTemplateName: t}]}",
                "Pod a: spec.resourceClaims: a claim of a resourceClaimTemplateName exists only once",
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
