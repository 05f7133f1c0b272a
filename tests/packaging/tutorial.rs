//! The tutorial in docs/plugins.md compiles outside the tree, from its text alone. It is built and
//! run only with `SUPERCARGO_TUTORIAL=1`: that compiles all dependencies once more.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// How the demo of the tutorial ends for its two pods.
const TUTORIAL_OUTCOMES: [&str; 2] =
    ["thrifty -> cheap", "penniless waits: 0/2 nodes are available: 2 node(s) cost too much."];

/// The files of a text, by path: a line that is a path in backticks and a colon, then a fenced
/// block.
fn files(text: &str) -> BTreeMap<&str, String> {
    let mut files = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(path) = line.strip_prefix('`').and_then(|line| line.strip_suffix("`:")) else { continue };
        let mut block = lines.by_ref().skip_while(|line| line.is_empty());
        assert!(block.next().is_some_and(|fence| fence.starts_with("```")), "no block after {path}");
        let content: String = block.take_while(|line| *line != "```").flat_map(|line| [line, "\n"]).collect();
        files.insert(path, content);
    }
    files
}

/// Runs cargo in the project.
fn cargo(project: &Path, arguments: &[&str]) {
    let status = xtask::workspace::cargo()
        .args(arguments)
        .args(["--offline", "--quiet"])
        .current_dir(project)
        .env("CARGO_TARGET_DIR", target_dir())
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .status()
        .unwrap();
    assert!(status.success(), "cargo {arguments:?}");
}

fn target_dir() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_supercargo")).ancestors().nth(2).unwrap()
}

/// What the tutorial's program prints.
fn output(project: &Path, arguments: &[&str]) -> String {
    let program = target_dir().join("debug/my-scheduler");
    let result = Command::new(program).args(arguments).current_dir(project).output().unwrap();
    let output = String::from_utf8_lossy(&result.stdout).into_owned();
    assert!(result.status.success(), "{output}{}", String::from_utf8_lossy(&result.stderr));
    output
}

#[test]
fn the_tutorial_compiles_outside_the_tree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/plugins.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path();
    for (path, content) in files(&text) {
        let target = project.join(path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        // The reader has the repository beside the project.
        let root = format!("\"{}", root.display());
        let content = content.replace("\"../../supercargo", &root).replace("\"../supercargo", &root);
        fs::write(target, content).unwrap();
    }
    fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();

    if std::env::var_os("SUPERCARGO_TUTORIAL").is_none() {
        cargo(project, &["check", "--workspace", "--all-targets"]);
        return;
    }
    cargo(project, &["test", "--package", "node-cost"]);
    cargo(project, &["build"]);

    output(project, &["config", "validate", "config.yaml"]);
    let demo = output(project, &["demo", "--config", "config.yaml", "--manifests", "manifests"]);
    for outcome in TUTORIAL_OUTCOMES {
        assert!(demo.contains(outcome), "{demo}");
    }
}
