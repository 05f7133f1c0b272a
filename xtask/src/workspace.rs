//! The packages of the workspace and what they depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::root;

/// What `cargo metadata` reports.
pub struct Workspace {
    metadata: Value,
}

impl Workspace {
    /// The workspace with its default features, resolved for this platform only: packages for other
    /// platforms may not be on this machine.
    pub fn load() -> Self {
        let metadata = ["metadata", "--format-version=1", "--filter-platform", &host()].map(str::to_owned);
        Self { metadata: serde_json::from_str(&output(&metadata)).expect("cargo prints JSON") }
    }

    fn packages(&self) -> impl Iterator<Item = &Value> {
        items(&self.metadata["packages"])
    }

    /// The workspace's own packages.
    pub fn members(&self) -> Vec<&Value> {
        let members: Vec<&Value> = items(&self.metadata["workspace_members"]).collect();
        self.packages().filter(|package| members.contains(&&package["id"])).collect()
    }

    /// Each member's name and folder, relative to the root; the root package's folder is empty.
    pub fn folders(&self) -> Vec<(&str, PathBuf)> {
        let folder = |member: &Value| {
            let manifest = PathBuf::from(text(&member["manifest_path"]));
            let folder = manifest.parent().expect("a manifest is in a folder");
            folder.strip_prefix(root()).expect("a member is inside the repository").to_owned()
        };
        self.members().into_iter().map(|member| (text(&member["name"]), folder(member))).collect()
    }

    /// A member by its name.
    pub fn member(&self, name: &str) -> &Value {
        let mut members = self.members().into_iter();
        members
            .find(|package| package["name"] == name)
            .unwrap_or_else(|| panic!("no {name} in the workspace"))
    }

    /// The direct dependencies of a member on any platform and with any feature, tests excluded.
    pub fn direct(&self, name: &str) -> BTreeSet<&str> {
        items(&self.member(name)["dependencies"])
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| text(&dependency["name"]))
            .collect()
    }

    /// Everything that a member is built from, build dependencies included, tests excluded.
    pub fn reach(&self, name: &str) -> BTreeSet<&str> {
        let nodes: BTreeMap<&str, &Value> =
            items(&self.metadata["resolve"]["nodes"]).map(|node| (text(&node["id"]), node)).collect();
        let mut reached = BTreeSet::new();
        let mut next = vec![text(&self.member(name)["id"])];
        while let Some(id) = next.pop() {
            if !reached.insert(id) {
                continue;
            }
            let dependencies = items(&nodes[id]["deps"])
                .filter(|dependency| items(&dependency["dep_kinds"]).any(|kind| kind["kind"] != "dev"));
            next.extend(dependencies.map(|dependency| text(&dependency["pkg"])));
        }
        self.packages()
            .filter(|package| reached.contains(text(&package["id"])))
            .map(|package| text(&package["name"]))
            .collect()
    }
}

/// The packages that the program of the image is built from: without default features and tests.
pub fn shipped_packages() -> BTreeSet<String> {
    let tree =
        "tree --no-default-features --edges normal,build --package supercargo --prefix none --format {p}";
    let tree = output(&tree.split(' ').map(str::to_owned).collect::<Vec<_>>());
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// What cargo prints, without the network.
fn output(arguments: &[String]) -> String {
    let output = cargo().args(arguments).args(["--offline", "--locked"]).output();
    let output = output.expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints text")
}

/// The cargo that runs this, or the one on the path, without what cargo tells this program about
/// its own package: build scripts that read such a variable would run again, and their crates be
/// built again.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"]
            .iter()
            .any(|own| name.to_string_lossy().starts_with(own))
        {
            command.env_remove(name);
        }
    }
    command.current_dir(root());
    command
}

/// The platform that the compiler runs on.
fn host() -> String {
    let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("-vV")
        .current_dir(root())
        .output()
        .expect("rustc can be started");
    let version = String::from_utf8(output.stdout).expect("rustc prints text");
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}

/// The elements of a JSON list.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().expect("a list").iter()
}

/// A JSON string.
pub fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}
