//! The script for kind clusters without Docker: its dry run, its steps with stand-ins for the
//! programs that it calls, and its cleanup after a failed step.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The programs that the script calls beyond the base system.
const PROGRAMS: [&str; 4] = ["docker", "kind", "kubectl", "cargo"];

/// The installed image.
fn image() -> String {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/install.yaml");
    let text = fs::read_to_string(manifests).unwrap();
    let image = text.lines().find_map(|line| line.trim().strip_prefix("image: "));
    image.unwrap().to_owned()
}

/// A folder with stand-ins, and a run of the script with them.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stand_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kind/stand-in");
        for program in PROGRAMS {
            symlink(&stand_in, folder.path().join(program)).unwrap();
        }
        Self { folder }
    }

    /// The script with a clean environment.
    fn script(&self, args: &[&str]) -> Command {
        let path = format!("{}:/usr/bin:/bin", self.folder.path().display());
        let image = image();
        let version = image.rsplit(':').next().unwrap();
        let mut script = Command::new("bash");
        script
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kind/run.sh"))
            .args(args)
            .env("PATH", path)
            .env("CALLS", self.folder.path().join("calls"))
            .env("VERSION", version)
            .env("LOGS", self.folder.path().join("logs"))
            .env("TMPDIR", self.folder.path())
            .env_remove("KIND_CLUSTER")
            .env_remove("KIND_NODE_IMAGE")
            .env_remove("OVERLAY")
            .env_remove("KEEP")
            .stdin(Stdio::null());
        script
    }

    fn run(&self, args: &[&str], fail_at: &str) -> Output {
        self.script(args).env("FAIL_AT", fail_at).output().unwrap()
    }

    /// The calls in order, with FOLDER for the folder of its kubeconfig.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The commands of a dry run, without headings and remarks.
fn commands(dry: &Output) -> Vec<String> {
    let text = text(&dry.stdout);
    let lines =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with("==") && !line.starts_with(' '));
    lines.map(str::to_owned).collect()
}

#[test]
fn dry_run_prints_every_step_and_runs_none() {
    let dry = Bench::new();
    let reported = dry.run(&["--dry-run"], "");
    assert!(reported.status.success(), "{}", text(&reported.stderr));
    assert_eq!(dry.calls(), Vec::<String>::new());
    let reported = commands(&reported);

    let real = Bench::new();
    let done = real.run(&[], "");
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    assert!(text(&done.stdout).contains("== all of it held"));
    let mut calls = real.calls().into_iter();
    for command in &reported {
        // A dry run omits the files that the script's functions use.
        let command =
            command.strip_prefix("env SUPERCARGO_E2E_KUBECONFIG=FOLDER/kubeconfig ").unwrap_or(command);
        let called = match command.split_once(' ') {
            Some(("node_of" | "scheduled_by" | "nodes_of", what)) => {
                calls.find(|call| call.starts_with("kubectl get") && call.contains(what))
            }
            _ => calls.find(|call| call == command),
        };
        assert!(
            called.is_some(),
            "it says that it would call `{command}` then, and does not: {:#?}",
            real.calls()
        );
    }
    assert!(reported.len() > 25, "{reported:#?}");
}

#[test]
fn suite_runs_on_the_new_cluster_with_the_built_image() {
    let reported = commands(&Bench::new().run(&["--dry-run"], ""));
    let image = image();
    let steps = [
        format!("docker build --tag {image} "),
        "kind create cluster --name supercargo-test --config manifests/kind/cluster.yaml".to_owned(),
        format!("kind load docker-image {image} --name supercargo-test"),
        "kubectl apply --kustomize manifests/overlays/kind".to_owned(),
        "env SUPERCARGO_E2E_KUBECONFIG=FOLDER/kubeconfig cargo test --locked --test integration e2e::suite"
            .to_owned(),
        "kind delete cluster --name supercargo-test".to_owned(),
    ];
    let mut reported = reported.iter();
    for step in steps {
        assert!(
            reported.any(|command| command.starts_with(&step)),
            "{step} is not there, or not in its place"
        );
    }
}

#[test]
fn unsupported_overlay_is_not_installed() {
    let dry = |overlay: &str| Bench::new().script(&["--dry-run"]).env("OVERLAY", overlay).output().unwrap();
    let ha = commands(&dry("ha"));
    assert!(ha.contains(&"kubectl apply --kustomize manifests/overlays/ha".to_owned()), "{ha:#?}");
    for overlay in ["monitoring", "only-scheduler", "../base"] {
        let refused = dry(overlay);
        assert_eq!((refused.status.code(), commands(&refused)), (Some(2), Vec::new()), "{overlay}");
        assert_eq!(text(&refused.stderr), format!("OVERLAY is {overlay}, and should be kind or ha\n"));
    }
}

#[test]
fn failed_step_collects_logs_deletes_cluster_and_fails() {
    for step in ["kubectl apply", "cargo test", "kubectl get pod supercargo-example"] {
        let bench = Bench::new();
        let output = bench.run(&[], step);
        assert!(!output.status.success(), "{step}");
        let calls = bench.calls();
        let last = calls.iter().position(|call| call.starts_with("kind export logs")).expect(step);
        assert!(
            calls[last..].iter().any(|call| call == "kind delete cluster --name supercargo-test"),
            "{step}"
        );
        assert!(!text(&output.stdout).contains("== all of it held"), "{step}");
        assert!(bench.folder.path().join("logs/supercargo.log").is_file(), "{step}");
    }
}

#[test]
fn nothing_is_installed_without_a_new_cluster() {
    for step in ["docker build", "kind create"] {
        let bench = Bench::new();
        assert!(!bench.run(&[], step).status.success(), "{step}");
        assert!(!bench.calls().iter().any(|call| call.starts_with("kubectl apply")), "{step}");
    }
}

#[test]
fn workloads_use_the_tested_scheduler_and_the_loaded_image() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kind/workloads.yaml");
    let text = fs::read_to_string(path).unwrap();
    let kinds = text.lines().filter(|line| line.starts_with("kind: ")).count();
    let ours = text.lines().filter(|line| line.trim() == "schedulerName: supercargo").count();
    assert_eq!((kinds, ours), (4, 4));
    assert!(text.contains(&format!("image: {}\n", image())), "{}", image());
}
