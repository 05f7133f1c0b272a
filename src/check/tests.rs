//! The check of a cluster in memory.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use clap::{Args as _, FromArgMatches as _};
use http::Response;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use supercargo_framework::{Feature, Features};

use super::*;

/// Keeps what is printed.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The resources of an API version, without those that are not served.
fn resources(path: &str, denied: &[&str]) -> Value {
    let wanted = permissions::read_by_plugins(&with_groups()).unwrap();
    let of_version = wanted.iter().filter(|it| path.ends_with(&format!("/{}", it.group_version())));
    let names =
        of_version.map(|it| it.plural.clone()).filter(|it| !denied.contains(&&*format!("serve {it}")));
    json!({ "resources": names.map(|name| json!({ "name": name })).collect::<Vec<_>>() })
}

/// A configuration with PodGroups.
fn with_groups() -> Config {
    let features = Features::default().with(Feature::GenericWorkload, true);
    Config::default_with(&Catalog::in_tree().with_features(features)).unwrap()
}

/// Answers as an API server of this version, which denies these verbs and resources.
fn api(minor: &'static str, denied: &'static [&'static str], lease: Option<Value>) -> Api {
    let service = tower::service_fn(move |request: Request<Body>| {
        let lease = lease.clone();
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let (status, answer): (u16, Value) = match path.as_str() {
                "/version" => {
                    (200, json!({ "major": "1", "minor": minor, "gitVersion": format!("v1.{minor}.2") }))
                }
                path if path.ends_with("/selfsubjectaccessreviews") => {
                    let review: Value = serde_json::from_slice(&body).unwrap();
                    let asked = &review["spec"]["resourceAttributes"];
                    let asked = format!("{} {}", asked["verb"], asked["resource"]).replace('"', "");
                    (201, json!({ "status": { "allowed": !denied.contains(&asked.as_str()) } }))
                }
                path if path == "/api/v1" || path.split('/').count() == 4 => (200, resources(path, denied)),
                _ => lease.map_or((404, json!({ "reason": "NotFound" })), |lease| (200, lease)),
            };
            let answer = Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    Api::with_client(Client::new(service, "default"))
}

/// What a check prints.
async fn printed(check: impl AsyncFnOnce(&mut Report) -> Result<()>) -> String {
    let printed = Printed::default();
    let mut report = Report::to(printed.clone());
    check(&mut report).await.unwrap();
    report.end().unwrap();
    let text = printed.0.lock().clone();
    String::from_utf8(text).unwrap()
}

async fn checked(api: Api) -> String {
    let config = Config::default_with(&Catalog::in_tree()).unwrap();
    printed(async |report| check_cluster("https://api", &api, &Flags::default(), &config, report).await).await
}

/// Flags without endpoints, so that nothing on this machine is asked.
fn flags(argument: String) -> Flags {
    let command = Flags::augment_args(clap::Command::new("run")).no_binary_name(true);
    let matches = command.get_matches_from(["--secure-port=0", &argument]);
    Flags::from_arg_matches(&matches).unwrap()
}

#[tokio::test]
async fn working_cluster_passes_every_check() {
    let lease = json!({ "spec": {
        "holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": Host::local().wall().to_string(),
    } });
    let printed = checked(api("37", &[], Some(lease))).await;
    for line in [
        "  ok    https://api answers\n",
        "  ok    version v1.37.2\n",
        " are granted\n",
        ": a leads, renewed ",
    ] {
        assert!(printed.contains(line), "{line} is not in\n{printed}");
    }
    assert!(printed.ends_with("0 failed, 0 warnings\n"), "{printed}");
}

#[tokio::test]
async fn resources_that_are_not_served_are_a_warning() {
    let api = api("37", &["serve podgroups"], None);
    let check = async |report: &mut Report| {
        check_cluster("https://api", &api, &Flags::default(), &with_groups(), report).await
    };
    let printed = printed(check).await;
    let line =
        "  WARN  podgroups.scheduling.k8s.io/v1beta1 is not served; plugins see none\n        serve this API";
    assert!(printed.contains(line), "{line} is not in\n{printed}");
}

#[tokio::test]
async fn missing_permissions_and_an_expired_lease_are_reported_with_a_remedy() {
    let lease = json!({ "spec": {
        "holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00Z",
    } });
    let printed = checked(api("29", &["create pods", "watch leases"], Some(lease))).await;
    for line in [
        "  FAIL  no permission to create pods/binding\n        the ClusterRole in manifests/base/clusterrole.yaml grants it",
        "  FAIL  no permission to watch leases.coordination.k8s.io \"supercargo\" in kube-system\n        the Role in",
        "  WARN  version v1.29.2 is not tested\n        tested versions: 1.34, 1.35, 1.36, 1.37\n",
        "        no process leads; look at the log of the holder\n",
    ] {
        assert!(printed.contains(line), "{line} is not in\n{printed}");
    }
    assert!(printed.ends_with("2 failed, 2 warnings\n"), "{printed}");
}

#[tokio::test]
async fn absent_lease_is_fine() {
    let printed = checked(api("37", &[], None)).await;
    assert!(
        printed.contains("  ok    kube-system/supercargo does not exist; the first leader creates it\n"),
        "{printed}"
    );
}

#[test]
fn permissions_follow_from_flags_and_configuration() {
    let config = Config::default_with(&Catalog::in_tree()).unwrap();
    let resources = |flags: &Flags, config: &Config| -> BTreeSet<String> {
        let needed = permissions::needed(flags, config).unwrap();
        needed.into_iter().map(|permission| permission.resource).collect()
    };
    let all = resources(&Flags::default(), &config);
    let only_scheduling = Config {
        leader_election: LeaderElectionConfig { leader_elect: false, ..LeaderElectionConfig::default() },
        ..config
    };
    let mut flags = Flags::default();
    flags.serving.secure_port = 0;
    let fewer = resources(&flags, &only_scheduling);
    let missing: Vec<&String> = all.difference(&fewer).collect();
    assert_eq!(missing, ["configmaps", "leases", "subjectaccessreviews", "tokenreviews"]);
}

#[test]
fn endpoints_are_asked_on_this_machine() {
    let at = |bind_address: &str| {
        own_address(&ServingOptions {
            bind_address: bind_address.parse().unwrap(),
            ..ServingOptions::default()
        })
    };
    assert_eq!(at("0.0.0.0"), "https://127.0.0.1:10259");
    assert_eq!(at("::"), "https://[::1]:10259");
    assert_eq!(at("10.0.0.7"), "https://10.0.0.7:10259");
}

#[tokio::test(start_paused = true)]
async fn hanging_exec_plugin_is_one_failure() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/bin/sh",
        "args": ["-c", "sleep 1000"],
        "interactiveMode": "Never",
    });
    let content = json!({
        "clusters": [{ "name": "a", "cluster": { "server": "http://127.0.0.1:1" } }],
        "users": [{ "name": "a", "user": { "exec": exec } }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "current-context": "a",
    });
    std::fs::write(&kubeconfig, content.to_string()).unwrap();
    let flags = flags(format!("--kubeconfig={}", kubeconfig.display()));
    let printed = printed(async |report| check_all(&flags, &Catalog::in_tree(), report).await).await;
    assert!(
        printed.contains("  FAIL  exec plugin /bin/sh: no credentials within 30 s\n        run"),
        "{printed}"
    );
    assert!(printed.ends_with("1 failed, 0 warnings\n"), "{printed}");
}

#[tokio::test]
async fn invalid_configuration_is_reported_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(
        &file,
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\na: 1\nb: 2\n",
    )
    .unwrap();
    let flags = flags(format!("--config={}", file.display()));
    let printed = printed(async |report| configuration(&flags, &Catalog::in_tree(), report).map(drop)).await;
    assert_eq!(printed.matches("  FAIL  ").count(), 2, "{printed}");
    assert_eq!(printed.matches("\n        docs/configuration.md lists").count(), 1, "{printed}");
}

#[test]
fn outside_a_cluster_the_advice_is_given_once() {
    let cause = kube::config::InClusterError::ReadDefaultNamespace(std::io::Error::other("no namespace"));
    let error = ConnectError::NotInCluster(Box::new(cause));
    let said = format!("{}\n{}", full_text(&error), connection_advice(&error));
    assert_eq!(said.matches("--kubeconfig").count(), 1, "{said}");
}

#[tokio::test]
async fn version_newer_than_the_tested_ones_is_a_warning() {
    assert!(checked(api("38", &[], None)).await.contains("  WARN  version v1.38.2 is not tested\n"));
}

#[tokio::test]
async fn lease_that_was_never_renewed_has_no_age() {
    let printed = checked(api("37", &[], Some(json!({ "spec": { "holderIdentity": "a" } })))).await;
    let line =
        "  WARN  kube-system/supercargo: a holds it, but renewTime is not set\n        no process leads";
    assert!(printed.contains(line), "{printed}");
}

#[tokio::test]
async fn unreadable_lease_is_reported_with_advice() {
    let service = tower::service_fn(async |_: Request<Body>| {
        let status = json!({ "kind": "Status", "reason": "Forbidden", "message": "not you" });
        let answer = Response::builder().status(403).body(Body::from(status.to_string().into_bytes()));
        Ok::<_, Infallible>(answer.unwrap())
    });
    let api = Api::with_client(Client::new(service, "default"));
    let election = LeaderElectionConfig::default();
    let printed = printed(async |report| check_lease(&api, &election, report).await).await;
    assert!(
        printed.contains("not you\n        the Role in manifests/base/role.yaml grants it\n"),
        "{printed}"
    );
}
