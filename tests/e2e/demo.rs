//! `supercargo demo` on a terminal, in a pipe, and with given manifests.

mod recording;
mod terminal;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use supercargo_controlplane::{Program, assets_or_skip};

use crate::support::{command, eventually, output};
use terminal::Terminal;

/// The time limit for a demo on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// Its output in a pipe, and whether it succeeds.
fn printed(args: &[&str]) -> (Option<i32>, String, String) {
    let args: Vec<&str> = ["demo"].iter().chain(args).copied().collect();
    let output = output(&args);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Ends with the value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn terminate(child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("sh").args(["-c", r#"kill -TERM "$1""#, "kill", &pid]).status().unwrap().success());
}

#[test]
fn unwritable_output_is_named() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = command(["demo"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot write to standard output: No space left on device"), "{error}");
}

#[test]
fn demo_in_a_pipe_prints_lines_and_summary() {
    let (code, out, err) = printed(&["--speed", "8"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("supercargo demo: seed 1, 30 nodes, 200 pods\n"), "{out}");
    assert!(!out.contains('\x1b') && out.is_ascii(), "{out}");
    for line in
        ["  * node c-gpu joins\n", "  * the scheduling gates of 24 pods are removed\n", " -> c-gpu  ("]
    {
        assert!(out.contains(line), "{line:?}: {out}");
    }
    assert_eq!(out.matches(" gang-").count(), 4, "it starts whole, and never waits with a reason: {out}");
    let summary = &out[out.find("\n\n").unwrap()..];
    assert!(summary.contains("194 of 200 pods bound, on 30 nodes in 3 zones.\n"), "{out}");
    assert!(summary.contains(" of 16 devices.\n"), "{out}");
    let waiting = &summary[summary.find("6 pods wait:\n").unwrap()..];
    for part in
        ["2  mars-1, mars-2\n", "1  giant-1\n", "Insufficient cpu", "didn't have free ports", "ingress-"]
    {
        assert!(waiting.contains(part), "{part:?}: {out}");
    }
    assert!(summary.lines().all(|line| line.chars().count() <= 80), "{out}");
}

#[test]
fn demo_schedules_given_manifests() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "cluster.yaml",
        "apiVersion: v1\nkind: Node\nmetadata: {name: mine}\nstatus: {capacity: {cpu: 2, memory: 4Gi, pods: 10}}\n",
    );
    write(
        "app.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec:\n  replicas: 3\n  \
         selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n      \
         - {name: c, image: example.com/web, resources: {requests: {cpu: 900m}}}\n",
    );
    let path = folder.path().display().to_string();
    let (code, out, err) = printed(&["--manifests", &path]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    for part in [
        "3 pods were given spec.schedulerName supercargo here",
        "  shop/web-",
        " -> mine",
        "2 of 3 pods bound, on 1 node.\n",
        "\n       0/1 nodes are available: 1 Insufficient cpu.",
    ] {
        assert!(out.contains(part), "{part:?}: {out}");
    }
}

#[test]
fn demo_names_rejected_manifest_and_schedules_others() {
    let folder = tempfile::tempdir().unwrap();
    let pod = |name: &str| {
        format!(
            "---\n\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
        )
    };
    let text = pod("Bad_Name") + &pod("good");
    fs::write(folder.path().join("bad.yaml"), text).unwrap();
    let (code, out, err) = printed(&["--manifests", &folder.path().display().to_string()]);
    assert_eq!((code, err.as_str()), (Some(1), "error: the API server rejected 1 object\n"));
    let place = "bad.yaml:3:1: cannot create pod Bad_Name: ";
    for part in [place, "metadata.name: Invalid value", "good -> ", "1 of 1 pod bound", "\nRejected:\n"] {
        assert!(out.contains(part), "{part:?}: {out}");
    }
}

#[test]
fn demo_rejects_invalid_arguments_before_start() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.yaml");
    fs::write(&bad, "kind: Pod\nmetadata: {name: [x\n").unwrap();
    let error = |args: &[&str]| {
        let output = output(args);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = error(&["demo", "--manifests", &bad.display().to_string()]);
    assert_eq!(code, Some(1));
    assert!(text.contains("bad.yaml:") && text.contains("this is not YAML"), "{text}");
    let (code, text) = error(&["demo", "--manifests", "/nowhere"]);
    assert_eq!(
        (code, text.as_str()),
        (Some(1), "error: --manifests /nowhere: No such file or directory (os error 2)\n")
    );
    for (args, expected) in [
        (["demo", "--nodes", "0"], "0 is not in 1..=5000"),
        (["demo", "--speed", "0"], "must be a number from 0.01 to 1000"),
        (["demo", "--pods", "99999999"], "99999999 is not in 0..=50000"),
    ] {
        let (code, text) = error(&args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn demo_survives_a_closed_pipe() {
    let mut command = command(["demo", "--speed", "20"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let mut first = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("supercargo demo"), "{first}");
    let status = eventually("it ends", PATIENCE, || process.0.try_wait().unwrap(), String::new);
    let error = std::io::read_to_string(process.0.stderr.take().unwrap()).unwrap();
    assert_eq!((status.code(), error.as_str()), (Some(0), ""));
}

/// A demo that stays up: its process, its kubeconfig, and what it has printed before.
fn kept_demo(args: &[&str]) -> (Process, String, Vec<String>) {
    let mut command = command(["demo", "--keep"]);
    let mut process = Process(command.args(args).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let mut reported = Vec::new();
    loop {
        let line = lines.next().unwrap_or_else(|| panic!("{reported:?}")).unwrap();
        if let Some(path) = line.strip_prefix("  export KUBECONFIG=") {
            let path = path.to_owned();
            std::thread::spawn(move || lines.for_each(drop));
            return (process, path, reported);
        }
        reported.push(line);
    }
}

#[test]
fn demo_with_keep_stays_up_and_prints_kubeconfig() {
    let (mut process, path, reported) = kept_demo(&["--nodes", "3", "--pods", "5", "--speed", "100"]);
    assert!(reported.contains(&"5 of 5 pods bound, on 3 nodes in 3 zones.".to_owned()), "{reported:?}");
    assert!(Path::new(&path).is_file(), "{path}");
    assert!(process.0.try_wait().unwrap().is_none());
    terminate(&process.0);
    let status = eventually("it ends", PATIENCE, || process.0.try_wait().unwrap(), String::new);
    assert_eq!(status.code(), Some(0));
}

#[test]
fn documented_commands_give_the_demos_waiting_pod_a_gpu() {
    let Some(assets) = assets_or_skip() else { return };
    let kubectl = assets.path(Program::Kubectl).unwrap();
    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/devices.md")).unwrap();
    let section = guide.split("## Try it without a GPU").nth(1).unwrap().split("\n## ").next().unwrap();
    let commands: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("    kubectl ")).collect();
    let [objects, pods, publish] = commands[..] else { panic!("{commands:?}") };
    let (process, kubeconfig, _) = kept_demo(&["--speed", "8"]);
    let run = |command: &str| {
        let script = format!("\"$0\" {command}");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(&kubectl).env("KUBECONFIG", &kubeconfig);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let found = run(objects);
    for object in ["resourceslice.resource.k8s.io/c-gpu", "deviceclass", "resourceclaim"] {
        assert!(found.contains(object), "{object}: {found}");
    }
    let waiting = |pods: &str| pods.lines().filter(|pod| pod.contains("Pending")).count();
    let before = run(pods);
    assert_eq!(waiting(&before), 1, "{before}");
    run(publish);
    eventually("the pod gets a GPU", PATIENCE, || (waiting(&run(pods)) == 0).then_some(()), || run(pods));
    drop(process);
}

#[test]
fn demo_draws_on_a_terminal_and_ctrl_c_restores_it() {
    let mut terminal = Terminal::start(80, 24, &["demo"]);
    terminal.wait_for("bound pods are shown", |screen| {
        screen.row(0).starts_with("supercargo demo")
            && screen.text().contains(" → ")
            && screen.text().contains("zone a")
    });
    assert!(terminal.is_alternate() && !terminal.shows_cursor() && !terminal.is_as_found());
    // Typed keys are not echoed.
    terminal.type_keys("x\r");
    terminal.resize(120, 40);
    terminal.wait_for("the picture is as large as the terminal", |screen| {
        screen.row(0).chars().count() > 80
            && screen
                .text()
                .lines()
                .any(|line| line.starts_with("why pods wait") && line.contains("decisions"))
    });
    terminal.type_keys("\x03");
    let status = terminal.wait();
    assert_eq!(status.code(), Some(0), "{}", terminal.sent());
    assert!(!terminal.is_alternate() && terminal.shows_cursor(), "{:?}", terminal.sent());
    assert!(terminal.is_as_found());
    let last = terminal.sent();
    let after = &last[last.rfind("\x1b[?1049l").unwrap()..];
    assert!(after.contains("Ended early.") && after.contains(" bound, on "), "{after}");
}

#[test]
fn demo_restores_the_terminal_on_sigterm_and_q() {
    for key in [None, Some("q")] {
        let mut terminal = Terminal::start(40, 10, &["demo", "--pods", "50"]);
        terminal.wait_for("there is a picture", |screen| screen.row(0).starts_with("supercargo demo"));
        match key {
            Some(key) => terminal.type_keys(key),
            None => terminate(terminal.child()),
        }
        assert_eq!(terminal.wait().code(), Some(0), "{}", terminal.sent());
        assert!(!terminal.is_alternate() && terminal.shows_cursor(), "{:?}", terminal.sent());
    }
}

#[test]
fn demo_respects_no_color() {
    let mut terminal = small_demo(("NO_COLOR", "1"));
    assert_eq!(terminal.wait().code(), Some(0), "{}", terminal.sent());
    let sent = terminal.sent();
    assert!(sent.contains("\x1b[?1049h") && !sent.contains("\x1b[0;3"), "{sent:?}");
}

#[test]
fn demo_prints_lines_on_a_dumb_terminal() {
    let mut terminal = small_demo(("TERM", "dumb"));
    assert_eq!(terminal.wait().code(), Some(0), "{}", terminal.sent());
    assert!(
        terminal.sent().contains("4 of 4 pods bound") && !terminal.sent().contains('\x1b'),
        "{:?}",
        terminal.sent()
    );
}

fn small_demo(variable: (&str, &str)) -> Terminal {
    let args = ["demo", "--nodes", "3", "--pods", "4", "--speed", "50"];
    Terminal::start_with(80, 24, &args, &[variable])
}
