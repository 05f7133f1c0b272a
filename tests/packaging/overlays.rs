//! The overlays as kubectl renders them: an API server accepts each with its pod.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};

use crate::support::access::{ACCESS, ELECTION_ACCESS, GROUP_ACCESS, LOOKUP, REVIEWS};
use serde_json::{Value, json};
use supercargo_config::{Catalog, Config};
use supercargo_controlplane::{
    ControlPlane, Method, Options, Program, assets_or_skip, prometheus_operator_crds,
};

use crate::rbac::manifests::{self, collection, text};
use xtask::workspace::items;

/// The folders in `manifests/overlays`.
pub(super) const OVERLAYS: &[&str] = &["groups", "ha", "insight", "kind", "monitoring", "only-scheduler"];

/// Objects by kind, namespace and name.
pub(super) type Objects = BTreeMap<String, Value>;

pub(super) fn by_name(objects: impl IntoIterator<Item = Value>) -> Objects {
    let mut all = Objects::new();
    for object in objects {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let name = format!("{} {namespace}/{}", text(&object["kind"]), text(&metadata["name"]));
        assert!(all.insert(name.clone(), object).is_none(), "{name} is there twice");
    }
    all
}

/// The only object of a kind among these.
pub(super) fn only<'a>(objects: &'a Objects, kind: &str) -> &'a Value {
    let mut found = objects.values().filter(|object| object["kind"] == kind);
    let object = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "more than one {kind}");
    object
}

/// kubectl with a clean environment.
fn kubectl() -> Option<Command> {
    let program = assets_or_skip()?.path(Program::Kubectl).unwrap();
    let mut command = Command::new(program);
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent");
    Some(command)
}

fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {stderr}");
    assert!(!stderr.contains("Warning"), "{command:?}: {stderr}");
    String::from_utf8(stdout).unwrap()
}

/// The output of `kubectl kustomize` for a folder of `manifests/`, or `None` if kubectl is not
/// available.
pub(super) fn kustomize(folder: &str) -> Option<Objects> {
    let rendered = output(kubectl()?.arg("kustomize").arg(manifests::root().join(folder)));
    Some(by_name(manifests::documents_of(&rendered)))
}

#[test]
fn overlay_list_is_complete() {
    let folder = std::fs::read_dir(manifests::root().join("overlays")).unwrap();
    let found: BTreeSet<String> =
        folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, OVERLAYS.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
fn install_yaml_equals_kustomized_base() {
    let Some(base) = kustomize("base") else { return };
    assert_eq!(by_name(manifests::documents(&manifests::root().join("install.yaml"))), base);
}

#[test]
fn overlay_role_covers_its_lease() {
    for overlay in OVERLAYS {
        let Some(objects) = kustomize(&format!("overlays/{overlay}")) else { return };
        let maps = objects.values().filter(|object| object["kind"] == "ConfigMap");
        let mut files = maps.filter_map(|map| map["data"]["config.yaml"].as_str());
        let (file, None) = (files.next().unwrap(), files.next()) else {
            panic!("{overlay}: two configurations")
        };
        let config = Config::parse("config.yaml", file, &Catalog::in_tree())
            .unwrap_or_else(|errors| panic!("{overlay}: {errors}"));
        let role = only(&objects, "Role");
        let lease = &config.leader_election;
        assert_eq!(role["metadata"]["namespace"], *lease.resource_namespace, "{overlay}");
        assert_eq!(role["rules"][1]["resourceNames"], json!([lease.resource_name]), "{overlay}");
    }
}

#[test]
fn replicated_overlays_allow_disruption_and_rollout() {
    for overlay in ["ha", "kind", "only-scheduler"] {
        let Some(objects) = kustomize(&format!("overlays/{overlay}")) else { return };
        let (deployment, budget) = (only(&objects, "Deployment"), only(&objects, "PodDisruptionBudget"));
        let spec = &deployment["spec"];
        assert_eq!(spec["replicas"], 2, "{overlay}");
        assert_eq!(budget["spec"]["selector"], spec["selector"], "{overlay}");
        assert_eq!(budget["spec"]["maxUnavailable"], 1, "{overlay}");
        let pod = &spec["template"]["spec"];
        let apart = &pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        assert_eq!(apart["topologyKey"], "kubernetes.io/hostname", "{overlay}");
        assert_eq!(apart["labelSelector"]["matchLabels"], spec["selector"]["matchLabels"], "{overlay}");
        // Pods on the host network with one port never share a node, whatever their revision.
        // Others are spread within a revision only, so that a new pod finds room beside an old one.
        let surge = &spec["strategy"]["rollingUpdate"]["maxSurge"];
        assert_eq!(apart["matchLabelKeys"], json!(["pod-template-hash"]), "{overlay}");
        assert_eq!(*surge, i32::from(pod["hostNetwork"] != true), "{overlay}");
    }
}

#[test]
fn replicated_overlays_have_a_flow_schema_for_the_lease() {
    for overlay in ["ha", "kind", "only-scheduler"] {
        let Some(objects) = kustomize(&format!("overlays/{overlay}")) else { return };
        let flow = &only(&objects, "FlowSchema")["spec"];
        // It precedes the FlowSchema of all service accounts, which every server has.
        assert!(flow["matchingPrecedence"].as_u64().is_some_and(|it| it < 9000), "{overlay}");
        let (rule, role) = (&flow["rules"][0], only(&objects, "Role"));
        let (account, bound) =
            (&rule["subjects"][0]["serviceAccount"], &only(&objects, "ClusterRoleBinding")["subjects"][0]);
        for field in ["name", "namespace"] {
            assert_eq!(account[field], bound[field], "{overlay}");
        }
        let requests = &rule["resourceRules"][0];
        assert_eq!(requests["namespaces"], json!([role["metadata"]["namespace"]]), "{overlay}");
        for verb in items(&requests["verbs"]) {
            let allows = |rule: &Value| {
                rule["resources"] == requests["resources"] && items(&rule["verbs"]).any(|own| own == verb)
            };
            assert!(items(&role["rules"]).any(allows), "{overlay}: {verb} is not allowed");
        }
    }
}

#[test]
fn network_policy_guards_the_pods_and_their_port() {
    for folder in ["base", "overlays/ha", "overlays/monitoring"] {
        let Some(objects) = kustomize(folder) else { return };
        let (policy, pod) = (&only(&objects, "NetworkPolicy")["spec"], &only(&objects, "Deployment")["spec"]);
        assert_eq!(policy["podSelector"], pod["selector"], "{folder}");
        let container = &pod["template"]["spec"]["containers"][0];
        assert_eq!(policy["ingress"][0]["ports"][0]["port"], container["ports"][0]["name"], "{folder}");
        assert_eq!(
            policy["policyTypes"],
            json!(["Ingress"]),
            "{folder}: the API server's address is unknown"
        );
    }
}

#[test]
fn overlay_tolerations_name_keys_and_only_no_schedule() {
    for overlay in OVERLAYS {
        let Some(objects) = kustomize(&format!("overlays/{overlay}")) else { return };
        let pod = &only(&objects, "Deployment")["spec"]["template"]["spec"];
        // NoExecute must evict it: a lost node must not keep it.
        for toleration in pod["tolerations"].as_array().into_iter().flatten() {
            assert!(toleration["key"].is_string(), "{overlay}: {toleration}");
            assert_eq!(toleration["effect"], "NoSchedule", "{overlay}: {toleration}");
        }
    }
}

/// An API server with the kinds of the Prometheus operator.
struct Server {
    plane: ControlPlane,
    /// The discovery cache of kubectl.
    cache: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let plane = ControlPlane::start(Options::default()).unwrap();
        let server = Self { plane, cache: tempfile::tempdir().unwrap() };
        for file in prometheus_operator_crds().unwrap() {
            server.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]);
        }
        server.kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "customresourcedefinitions",
            "--all",
        ]);
        server
    }

    fn kubectl(&self, args: &[&str]) -> String {
        let kubeconfig = self.plane.kubeconfig("admin").unwrap();
        output(
            kubectl()
                .expect("the server is there")
                .arg("--kubeconfig")
                .arg(kubeconfig)
                .arg("--cache-dir")
                .arg(self.cache.path())
                .args(args),
        )
    }

    /// Sets the status of the quota in place of its controller. A quota without a status admits no
    /// pod.
    fn open_quota(&self, quota: &Value) {
        let path = format!("{}/{}/status", collection(quota), text(&quota["metadata"]["name"]));
        let status = json!({"status": {"hard": quota["spec"]["hard"], "used": {"pods": "0"}}});
        self.plane.request(Method::Patch, &path, Some(&status)).unwrap().json().unwrap();
    }

    /// Validates a pod in a dry run.
    fn try_pod(&self, pod: &Value) -> (u16, String) {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(pod));
        let answer = self.plane.request(Method::Post, &path, Some(pod)).unwrap();
        (answer.status, answer.body)
    }
}

#[test]
fn overlays_and_their_pods_apply_with_kubectl() {
    if assets_or_skip().is_none() {
        return;
    }
    let server = Server::start();
    for overlay in OVERLAYS {
        let folder = manifests::root().join("overlays").join(overlay);
        let folder = folder.to_str().unwrap();
        server.kubectl(&["apply", "--server-side", "--force-conflicts", "-k", folder]);
        let objects = kustomize(&format!("overlays/{overlay}")).unwrap();
        server.open_quota(only(&objects, "ResourceQuota"));
        let (status, body) = server.try_pod(&manifests::pod_of(only(&objects, "Deployment")));
        assert_eq!(status, 201, "{overlay}: {body}");
        let again = server.kubectl(&["diff", "--server-side", "--force-conflicts", "-k", folder]);
        assert_eq!(again, "", "{overlay}");
    }
    // The namespace is privileged now, which needs the last overlay's patch.
    let objects = kustomize("overlays/only-scheduler").unwrap();
    server.kubectl(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "-k",
        manifests::root().join("base").to_str().unwrap(),
    ]);
    let (status, body) = server.try_pod(&manifests::pod_of(only(&objects, "Deployment")));
    assert_eq!((status, body.contains("host namespaces")), (403, true), "{body}");
}

/// The static pod and its configuration.
fn static_pod() -> (Value, Value) {
    (manifests::read("static-pod/supercargo.yaml"), manifests::read("static-pod/config.yaml"))
}

#[test]
fn static_pod_differs_from_base_in_host_settings_only() {
    let (pod, config) = static_pod();
    let Some(objects) = kustomize("overlays/only-scheduler") else { return };
    let maps = by_name(objects.values().filter(|object| object["kind"] == "ConfigMap").cloned());
    let mut of_overlay: Value =
        serde_saphyr::from_str(text(&only(&maps, "ConfigMap")["data"]["config.yaml"])).unwrap();
    // Its identity comes from a file there, and from a service account here.
    of_overlay["clientConnection"] = config["clientConnection"].clone();
    assert_eq!(config, of_overlay);

    let here = &only(&objects, "Deployment")["spec"]["template"]["spec"];
    let (mine, there) = (&pod["spec"]["containers"][0], &here["containers"][0]);
    assert_eq!(pod["spec"]["hostNetwork"], here["hostNetwork"]);
    assert_eq!(mine["image"], there["image"]);
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let mut probed = mine[probe].clone();
        // It listens on localhost only.
        assert_eq!(probed["httpGet"].as_object_mut().unwrap().remove("host"), Some(json!("127.0.0.1")));
        assert_eq!(probed, there[probe], "{probe}");
    }
    let mounts: BTreeSet<&str> =
        mine["volumeMounts"].as_array().unwrap().iter().map(|mount| text(&mount["mountPath"])).collect();
    for arg in mine["args"].as_array().unwrap() {
        if let Some((_, file)) = text(arg).split_once("=/") {
            let file = format!("/{file}");
            assert!(mounts.iter().any(|mount| Path::new(&file).starts_with(mount)), "{file} is not mounted");
        }
    }
    let kubeconfig = text(&config["clientConnection"]["kubeconfig"]);
    assert!(mounts.contains(kubeconfig), "{kubeconfig} is not mounted");
}

#[test]
fn static_pod_runs_with_kube_scheduler_permissions() {
    if assets_or_skip().is_none() {
        return;
    }
    // The API server grants kube-scheduler what gates need that it has, too.
    let gates = ["GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup"];
    let feature_gates = gates.map(|gate| format!("{gate}=true")).to_vec();
    let group = "scheduling.k8s.io";
    let apiserver_args = vec![format!("--runtime-config={group}/v1beta1=true,{group}/v1alpha3=true")];
    let plane = ControlPlane::start(Options { feature_gates, apiserver_args, ..Options::default() }).unwrap();
    let (pod, config) = static_pod();
    let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(&pod));
    let answer = plane.request(Method::Post, &path, Some(&pod)).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.body);

    let lease = text(&config["leaderElection"]["resourceName"]).to_owned();
    let review = |attributes: Value| {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": "system:kube-scheduler", "resourceAttributes": attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = plane.request(Method::Post, path, Some(&review)).unwrap().json().unwrap();
        answer["status"]["allowed"] == true
    };
    let lists = [ACCESS, GROUP_ACCESS, ELECTION_ACCESS, REVIEWS, &[LOOKUP]];
    for access in lists.into_iter().flatten() {
        let (resource, subresource) = access.resource.split_once('/').unwrap_or((access.resource, ""));
        let mut attributes = json!({
            "group": access.group,
            "resource": resource,
            "subresource": subresource,
            "verb": access.verb,
        });
        if resource == "leases" {
            attributes["namespace"] = "kube-system".into();
            attributes["name"] = lease.clone().into();
        }
        // The ConfigMap with the client CA needs a role in that namespace.
        if resource == "configmaps" {
            attributes["namespace"] = "kube-system".into();
            attributes["name"] = "extension-apiserver-authentication".into();
        }
        assert!(review(attributes.clone()), "system:kube-scheduler may not {attributes}");
    }
    assert!(!review(json!({"resource": "secrets", "verb": "list"})), "it may do anything");
}
