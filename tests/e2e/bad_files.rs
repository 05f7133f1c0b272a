//! Missing and invalid files: an error that names the file and the place, and exit code 1.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Listen};
use tokio::runtime::Builder;

use crate::support::{FakeApi, Supercargo, config, free_port, node, output};

/// The error output of a failed start.
fn error_of(args: &[&str]) -> String {
    let output = output(args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
    assert!(error.starts_with("error: "), "{args:?}: {error}");
    error
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn invalid_config_names_file_line_column_and_field() {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    let cases = [
        ("profiles: [", ":3:11:", "unclosed bracket"),
        ("profiles: 7", ":3:11: profiles:", "must be a list"),
        ("profils: []", ":3:1: profils:", "did you mean \"profiles\"?"),
        ("parallelism: 1\nparallelism: 2", ":4:1: parallelism:", "duplicate field"),
        ("podMaxBackoffSeconds: soon", ":3:23: podMaxBackoffSeconds:", "must be an integer"),
        (
            "profiles:\n- plugins: {filter: {enabled: [{name: NodeNmae}]}}",
            ":4:39: profiles[0].plugins.filter.enabled[0].name:",
            "NodeName",
        ),
        ("extenders: [{urlPrefix: x}]", ":3:25: extenders[0].urlPrefix:", "must begin with http://"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (index, (text, place, problem)) in cases.into_iter().enumerate() {
        let path = file(folder.path(), &format!("{index}.yaml"), &format!("{head}{text}\n"));
        let error = error_of(&["run", "--config", &path]);
        assert!(error.contains(&path) && error.contains(place), "{text}: {error}");
        assert!(error.contains(problem), "{text}: {error}");
    }
    let other_kind = file(folder.path(), "pod.yaml", "apiVersion: v1\nkind: Pod\n");
    assert!(error_of(&["run", "--config", &other_kind]).contains("must be KubeSchedulerConfiguration"));
}

#[test]
fn json_log_ends_with_a_json_error() {
    let output = output(&["run", "--logging-format=json", "--config", "nowhere.yaml"]);
    let log = String::from_utf8(output.stderr).unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!((output.status.code(), &last["level"]), (Some(1), &json!("ERROR")), "{log}");
    assert!(last["message"].as_str().unwrap().contains("nowhere.yaml"), "{log}");
    for line in log.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
}

fn is_named_once(path: &str, error: &str) -> bool {
    error.matches(path).count() == 1
}

#[test]
fn missing_files_and_invalid_kubeconfigs_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing").display().to_string();
    for args in
        [&["run", "--config", &missing][..], &["run", "--kubeconfig", &missing], &["replay", &missing]]
    {
        let error = error_of(args);
        assert!(is_named_once(&missing, &error) && error.contains("No such file"), "{error}");
    }

    let garbage = file(folder.path(), "garbage", "clusters: 7\n");
    let error = error_of(&["run", "--kubeconfig", &garbage]);
    assert!(is_named_once(&garbage, &error), "{error}");

    let dangling = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "gone" }).to_string();
    let dangling = file(folder.path(), "dangling", &dangling);
    let error = error_of(&["run", "--kubeconfig", &dangling]);
    assert!(is_named_once(&dangling, &error) && error.contains("gone"), "{error}");

    // The configuration may also name the kubeconfig.
    let mut named = serde_json::from_str::<serde_json::Value>(&config(&["x"])).unwrap();
    named["clientConnection"] = json!({ "kubeconfig": missing });
    let named = file(folder.path(), "named.yaml", &named.to_string());
    let error = error_of(&["run", "--config", &named]);
    assert!(is_named_once(&missing, &error), "{error}");
}

#[test]
fn unwritable_record_is_logged_and_scheduling_goes_on() {
    let api = FakeApi::start();
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("missing").join("record").display().to_string();
    let supercargo = Supercargo::start(&api.kubeconfig(), None, &["--record", &nowhere]);
    supercargo.wait_for_line(&["ERROR", "cannot write the record; recording ends", "No such file"]);
    api.set_node(node("n1", &[], &[]));
    supercargo.wait_until_scheduling();
    supercargo.stop();
}

#[test]
fn empty_record_is_not_a_replay() {
    let folder = tempfile::tempdir().unwrap();
    let empty = file(folder.path(), "empty", "");
    assert!(error_of(&["replay", &empty]).ends_with("empty: the record is empty\n"));
    assert!(error_of(&["replay", "/nowhere"]).contains("cannot read /nowhere: No such file"));
}

#[test]
fn missing_kubeconfig_outside_a_cluster_names_the_options() {
    let error = error_of(&["run"]);
    assert!(error.contains("not running in a cluster"), "{error}");
    assert!(error.contains("--kubeconfig FILE"), "{error}");
    assert!(error.contains("clientConnection.kubeconfig"), "{error}");
}

#[test]
fn unreachable_server_is_logged_and_retried() {
    let port = free_port();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "a", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
        "users": [{ "name": "a", "user": { "token": "t" } }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "current-context": "a",
    });
    let kubeconfig = file(folder.path(), "kubeconfig", &kubeconfig.to_string());
    let mut supercargo = Supercargo::start(Path::new(&kubeconfig), None, &[]);
    // Once for all informers, with the server and the reason.
    let address = format!("server=http://127.0.0.1:{port}");
    supercargo.wait_for_line(&["WARN", "no response from the API server; retrying", &address, "refused"]);
    assert!(supercargo.is_running());
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listen = Listen { port, tls: false, token: Some("t".to_owned()) };
    let _endpoint = runtime.block_on(ApiServer::default().listen(listen)).unwrap();
    supercargo.wait_for_line(&["INFO", "the API server answers again", &address]);
    let log = supercargo.log();
    assert_eq!(log.matches("no response from the API server").count(), 1, "{log}");
    assert!(!log.contains("failed to open a watch") && !log.contains("cannot discover"), "{log}");
    supercargo.terminate();
    assert_eq!(supercargo.wait(Duration::from_secs(20)).code(), Some(0), "{}", supercargo.log());
}
