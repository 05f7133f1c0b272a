//! The tutorial in docs/plugins.md builds outside the tree, from its text alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use supercargo::config::{Catalog, Config};
use supercargo_framework::plugin::{ExtensionPoints, FilterPlugin};
use supercargo_framework::{Context, CycleState, NodeInfo, Plugin, PodInfo, Status};

/// Stands for the tutorial's plugin where only its name matters.
struct NodeCost;

impl Plugin for NodeCost {
    fn name(&self) -> &'static str {
        "NodeCost"
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().filter(&self)
    }
}

impl FilterPlugin for NodeCost {
    fn filter(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: &NodeInfo) -> Status {
        Status::success()
    }
}

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

fn cargo(project: &Path, arguments: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new(option_env!("CARGO").unwrap_or("cargo"))
        .args(arguments)
        .args(["--offline", "--quiet"])
        .current_dir(project)
        // Kept between runs: only the project itself is compiled each time.
        .env("CARGO_TARGET_DIR", root.join("target/tutorial"))
        .status()
        .unwrap();
    assert!(status.success(), "cargo {arguments:?}");
}

#[test]
fn the_tutorial_builds_outside_the_tree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/plugins.md")).unwrap();
    let files = files(&text);
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path();
    for (path, content) in &files {
        let target = project.join(path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        // The reader has the repository beside the project.
        let root = format!("\"{}", root.display());
        let content = content.replace("\"../../supercargo", &root).replace("\"../supercargo", &root);
        fs::write(target, content).unwrap();
    }
    fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();

    cargo(project, &["test", "--package", "node-cost"]);
    cargo(project, &["check"]);

    let catalog = Catalog::in_tree().with_plugin("NodeCost", |_, _| Ok(Arc::new(NodeCost)));
    let config = Config::load(&project.join("config.yaml"), &catalog);
    config.unwrap_or_else(|errors| panic!("{errors}"));

    let demo = Command::new(env!("CARGO_BIN_EXE_supercargo"))
        .args(["demo", "--manifests"])
        .arg(project.join("manifests"))
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&demo.stdout);
    assert!(demo.status.success() && output.contains("2 nodes, 2 pods"), "{output}");
}
