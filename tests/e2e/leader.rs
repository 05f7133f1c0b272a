//! `kubectl supercargo` asks the leader, on a real control plane. kubectl's own port forwarding
//! needs a kubelet, so a script forwards to the process.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use supercargo_controlplane::{Assets, Program};

use crate::page::Door;
use crate::support::{Cluster, Supercargo, answer, command, free_port, get, node, own_plane, pod};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/supercargo";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_plugin_of_kubectl_asks_the_leader_by_a_token_for_it_alone() {
    let Some(plane) = own_plane() else { return };
    let (cluster, kubeconfig) = (Cluster::of(&plane), plane.kubeconfig("admin").unwrap());
    let kubectl = Assets::locate().unwrap().path(Program::Kubectl).unwrap();
    let run_kubectl = |args: &[&str]| {
        let output = Command::new(&kubectl).args(args).arg("--kubeconfig").arg(&kubeconfig).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    };
    run_kubectl(&["create", "namespace", "supercargo-system"]);
    run_kubectl(&["apply", "-f", "manifests/insight/insight-reader.yaml"]);
    run_kubectl(&["apply", "-f", "manifests/insight/insight-account.yaml"]);
    cluster.create(&node("n1", &[], &[("cpu", "1")]));
    cluster.create(&pod("large").by("supercargo").asking("cpu", "2").build());

    let port = free_port();
    let args =
        ["--leader-elect=true", "--insight", "--bind-address=127.0.0.1", &format!("--secure-port={port}")];
    let supercargo = Supercargo::start(&plane.kubeconfig("supercargo").unwrap(), None, &args);
    supercargo.wait_until_scheduling();
    supercargo.wait_for_line(&["default/large"]);
    // In a cluster, the host's name is that of the pod.
    let lease = cluster.request("GET", LEASE, None).unwrap();
    let host = lease["spec"]["holderIdentity"].as_str().unwrap().rsplit_once('_').unwrap().0.to_owned();
    cluster.create(&pod(&host).by("another").build());

    let bin = tempfile::tempdir().unwrap();
    let script = bin.path().join("kubectl");
    let forward = format!("echo 'Forwarding from 127.0.0.1:{port} -> 10259'; exec sleep 600");
    let real = kubectl.display();
    fs::write(
        &script,
        format!("#!/bin/sh\nif [ $1 = port-forward ]; then {forward}; fi\nexec {real} \"$@\"\n"),
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let plugin = bin.path().join("kubectl-supercargo");
    symlink(Path::new(command([""; 0]).get_program()), &plugin).unwrap();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let ask_with = |kubeconfig: &Path, args: &[&str]| {
        let mut asking = Command::new(&plugin);
        asking.args(args).arg("--kubeconfig").arg(kubeconfig).env("PATH", &path);
        let Output { status, stdout, stderr } = asking.output().unwrap();
        (status.code(), text(&stdout), text(&stderr))
    };
    let ask = |args: &[&str]| ask_with(&kubeconfig, args);
    let kubeconfig_text = kubeconfig.display().to_string();
    let read = answer(&["why", "large", "--kubeconfig", &kubeconfig_text]);
    assert_eq!(read.0, Some(1), "{read:?}");
    assert_eq!(ask(&["why", "large"]), read, "{}", supercargo.log_tail());
    assert_eq!(ask(&["why", "large", "--standalone"]), read);

    // kubectl's options choose the cluster, whatever the kubeconfig selects.
    let several = bin.path().join("kubeconfig");
    fs::copy(&kubeconfig, &several).unwrap();
    let config = |args: &[&str]| {
        let mut command = Command::new(&kubectl);
        let output = command.arg("config").args(args).arg("--kubeconfig").arg(&several).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let user = format!("--user={}", config(&["view", "-o", "jsonpath={.contexts[0].context.user}"]));
    let of = format!("--cluster={}", config(&["view", "-o", "jsonpath={.contexts[0].context.cluster}"]));
    config(&["set-cluster", "nowhere", "--server=https://127.0.0.1:1"]);
    config(&["set-context", "broken", "--cluster=nowhere"]);
    config(&["set-context", "team", &of, &user, "--namespace=team"]);
    config(&["use-context", "broken"]);
    // Other programs keep fields of their own.
    let (namespace, own) =
        ("    namespace: team\n", "    extensions: [{name: x, extension: {namespace: other}}]\n");
    let kept = fs::read_to_string(&several).unwrap();
    assert!(kept.contains(namespace), "{kept}");
    fs::write(&several, kept.replace(namespace, &format!("{own}{namespace}"))).unwrap();
    run_kubectl(&["create", "namespace", "team"]);
    cluster.create(&pod("wide").within("team").by("supercargo").asking("cpu", "3").build());
    supercargo.wait_for_line(&["team/wide"]);
    let expected = "team/wide is pending: it fits on none of 1 node";
    for source in ["--leader", "--standalone"] {
        for args in [&["wide", "--context=team"][..], &["wide", "-n=team", &of, &user]] {
            let (code, printed, error) = ask_with(&several, &[&["why", source], args].concat());
            assert!(code == Some(1) && printed.starts_with(expected), "{args:?}: {printed}{error}");
        }
        let (code, _, error) = ask_with(&several, &["why", "wide", source, "--context=nobody"]);
        assert!(code == Some(3) && error.contains("context \"nobody\" does not exist"), "{error}");
        assert!(error.contains("broken, team") && error.lines().count() == 1, "{error}");
    }
    let (code, _, error) = ask_with(&several, &["why", "wide", "--leader", "--context=team", "--as=guest"]);
    assert!(code == Some(3) && error.contains("\"guest\" cannot"), "{error}");

    // kubectl runs the same program to complete what is typed.
    symlink(command([""; 0]).get_program(), bin.path().join("kubectl_complete-supercargo")).unwrap();
    let complete = |words: &[&str]| {
        let mut completing = Command::new(&kubectl);
        completing.args(["__complete", "supercargo"]).args(words).env("PATH", &path);
        text(&completing.env("KUBECONFIG", &several).output().unwrap().stdout)
    };
    assert!(complete(&["wh"]).starts_with("why\tExplain why"), "{}", complete(&["wh"]));
    assert_eq!(complete(&["why", "-o", ""]), "table\nwide\njson\nyaml\nname\n:4\n");
    assert_eq!(complete(&["why", "--context=team", "wi"]), "wide\n:4\n");
    assert_eq!(complete(&["pending", "--context", "tea"]), "team\n:4\n");

    // The page, for a browser of this machine.
    let mut ui = Command::new(&plugin);
    ui.args(["ui", "--kubeconfig"]).arg(&kubeconfig).env("PATH", &path);
    let door = Door::start(&mut ui);
    let (origin, secret) = door.link.split_once("/insight/#secret=").unwrap();
    let (status, _, token) = get(&format!("{origin}/session"), &[("supercargo-secret", secret)]);
    assert_eq!(status, 200, "{token}");
    let bearer = format!("Bearer {token}");
    let (status, _, overview) = get(&format!("{origin}/insight/overview"), &[("authorization", &bearer)]);
    assert!(status == 200 && overview.contains(r#""names":["n1"]"#), "{status} {overview}");
    drop(door);

    let (code, _, error) = ask(&["why", "large", "--lease=kube-system/other"]);
    assert!(code == Some(3) && error.contains("kubectl get lease") && error.contains("not found"), "{error}");
    let (code, _, error) = ask(&["why", "large", "--account=supercargo-system/other"]);
    assert!(code == Some(3) && error.contains("kubectl create token"), "{error}");
    let (code, usage, _) = ask(&["why", "--help"]);
    assert!(code == Some(0) && usage.contains("Usage: kubectl supercargo why"), "{usage}");

    // What the leader receives is of no use at the API server.
    let token = ["create", "token", "supercargo-insight", "-n", "supercargo-system", "--audience=supercargo"];
    let token = run_kubectl(&token);
    let server = plane.url().to_owned();
    let insecure = ["--insecure-skip-tls-verify", "--server", &*server, "--token", &*token, "get", "nodes"];
    let output = Command::new(&kubectl).args(insecure).env("KUBECONFIG", "/nothing").output().unwrap();
    assert!(text(&output.stderr).contains("Unauthorized"), "{}", text(&output.stderr));
    supercargo.stop();
}
