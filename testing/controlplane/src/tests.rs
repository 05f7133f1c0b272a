//! Tests of the control plane. Each starts its own.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use serde_json::{Value, json};

use crate::{
    ControlPlane, Method, Options, Program, Release, SchedulerOptions, User, assets_or_skip, shared_or_skip,
};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "annotations": { "kwok.x-k8s.io/node": "fake" } },
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" } },
    })
}

fn pod(name: &str, node: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "none" }] },
    })
}

fn create(plane: &ControlPlane, path: &str, object: &Value) -> Value {
    plane.request(Method::Post, path, Some(object)).unwrap().json().unwrap()
}

fn get(plane: &ControlPlane, path: &str) -> Value {
    plane.request(Method::Get, path, None).unwrap().json().unwrap()
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let started = Instant::now();
    while !check() {
        assert!(started.elapsed() < Duration::from_mins(2), "not within two minutes: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Processes whose command line contains `dir`; zombies have none.
fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let bytes = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
    });
    processes.filter(|command| command.contains(dir)).collect()
}

#[test]
fn control_plane_serves_restarts_and_leaves_nothing() {
    let Some(assets) = assets_or_skip() else { return };
    let users = vec![User::new("viewer").in_group("viewers")];
    let plane = ControlPlane::start(Options { users, ..Options::default() }).unwrap();

    let version = get(&plane, "/version");
    if !assets.is_given(Program::KubeApiserver(Release::Baseline)) {
        assert_eq!(version["gitVersion"], Release::Baseline.version());
    }
    create(&plane, NODES, &node("a"));
    create(&plane, PODS, &pod("p", Some("a")));
    assert!(get(&plane, &format!("{NODES}/a"))["spec"]["taints"].is_null());
    let labelled = json!({ "metadata": { "labels": { "x": "y" } } });
    plane.request(Method::Patch, &format!("{PODS}/p"), Some(&labelled)).unwrap().json().unwrap();
    assert_eq!(plane.request_as("viewer", Method::Get, PODS, None).unwrap().status, 403);
    assert!(plane.request_as("nobody", Method::Get, PODS, None).is_err());
    assert!(plane.audit_log().is_err());

    plane.stop_apiserver();
    assert!(plane.request(Method::Get, "/version", None).is_err());
    plane.start_apiserver().unwrap();
    assert_eq!(get(&plane, &format!("{PODS}/p"))["metadata"]["labels"]["x"], "y");
    plane.kill_apiserver();
    plane.start_apiserver().unwrap();
    assert_eq!(get(&plane, &format!("{PODS}/p"))["spec"]["nodeName"], "a");

    let dir = plane.dir().to_owned();
    assert!(processes_of(&dir).len() >= 2);
    drop(plane);
    assert_eq!(processes_of(&dir), Vec::<String>::new());
    assert!(!dir.exists());
}

#[test]
fn binds_and_runs_a_pod() {
    let Some(plane) = shared_or_skip() else { return };
    assert!(std::ptr::eq(plane, crate::shared()));
    let scheduler = plane.start_kube_scheduler(&SchedulerOptions { json_log: true, ..Default::default() });
    let scheduler = scheduler.unwrap();
    let kwok = plane.start_kwok().unwrap();
    let manager = plane.start_controller_manager(&["replicaset-controller"]).unwrap();
    create(plane, NODES, &node("fake-0"));
    create(plane, PODS, &pod("bound", None));

    eventually("the pod runs", || get(plane, &format!("{PODS}/bound"))["status"]["phase"] == "Running");
    assert_eq!(get(plane, &format!("{PODS}/bound"))["spec"]["nodeName"], "fake-0");
    eventually("the binding is in the audit log", || bindings(plane, "bound") == 1);
    create(plane, "/apis/apps/v1/namespaces/default/replicasets", &replica_set("web", 2));
    eventually("the replicas are ready", || {
        get(plane, "/apis/apps/v1/namespaces/default/replicasets/web")["status"]["readyReplicas"] == 2
    });
    let end = json!({ "gracePeriodSeconds": 1 });
    plane.request(Method::Delete, &format!("{PODS}/bound"), Some(&end)).unwrap().json().unwrap();
    eventually("the deleted pod goes", || {
        plane.request(Method::Get, &format!("{PODS}/bound"), None).unwrap().status == 404
    });

    let first_line = scheduler.log().lines().next().map(serde_json::from_str::<Value>);
    assert!(matches!(first_line, Some(Ok(_))), "not JSON: {}", plane.log_of("kube-scheduler"));
    assert!(scheduler.is_running() && kwok.is_running() && manager.is_running());
    scheduler.stop();
    kwok.kill();
    assert!(!scheduler.is_running() && !kwok.is_running());
}

fn bindings(plane: &ControlPlane, pod: &str) -> usize {
    let events = plane.audit_log().unwrap();
    let of_pod = |event: &&Value| {
        let object = &event["objectRef"];
        event["verb"] == "create" && object["subresource"] == "binding" && object["name"] == pod
    };
    events.iter().filter(of_pod).count()
}

fn replica_set(name: &str, replicas: u32) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "main", "image": "none" }] },
            },
        },
    })
}

#[test]
fn rejected_scheduler_config_is_an_error() {
    let Some(plane) = shared_or_skip() else { return };
    let config_yaml = Some("clientConnection: {kubeconfig: \"{kubeconfig}\"}".to_owned());
    let error = plane.start_kube_scheduler(&SchedulerOptions { config_yaml, ..Default::default() });
    let error = format!("{:#}", error.unwrap_err());
    assert!(error.contains("Kind"), "{error}");
}

#[test]
fn taken_port_is_recognized() {
    if assets_or_skip().is_none() {
        return;
    }
    let taken = |what: &str, error: anyhow::Error| {
        let error = format!("{error:#}");
        assert!(error.contains(what) && error.contains("address already in use"), "{error}");
    };
    let holder = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let etcd_args = vec![format!("--listen-client-urls=http://{}", holder.local_addr().unwrap())];
    taken("etcd", ControlPlane::start(Options { etcd_args, ..Options::default() }).unwrap_err());

    let plane = ControlPlane::start(Options::default()).unwrap();
    plane.kill_apiserver();
    let holder = TcpListener::bind(plane.url().trim_start_matches("https://")).unwrap();
    taken("kube-apiserver", plane.start_apiserver().unwrap_err());
    drop(holder);
    plane.start_apiserver().unwrap();
}

#[test]
fn killed_process_leaves_nothing() {
    // The second process runs this test with a variable that makes it report its control plane and
    // wait.
    if let Ok(report) = env::var("CONTROLPLANE_TEST_REPORT") {
        return start_and_wait_to_be_killed(&report);
    }
    if assets_or_skip().is_none() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let report = scratch.path().join("dir");
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "tests::killed_process_leaves_nothing"])
        .env("CONTROLPLANE_TEST_REPORT", &report)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the second process has a control plane", || report.exists());
    let dir = fs::read_to_string(&report).unwrap();
    let dir = Path::new(&dir);
    assert!(processes_of(dir).len() >= 2);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("its programs and files are gone", || processes_of(dir).is_empty() && !dir.exists());
}

fn start_and_wait_to_be_killed(report: &str) {
    let dir = crate::shared().dir().to_str().unwrap();
    fs::write(format!("{report}.part"), dir).unwrap();
    fs::rename(format!("{report}.part"), report).unwrap();
    thread::sleep(Duration::from_mins(1));
}
