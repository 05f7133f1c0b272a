//! Rules of this repository that no compiler checks: which way dependencies point, what the pure crates keep away from, who
//! changes the cluster.
#![allow(clippy::unwrap_used)] // all of it is for tests

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

use crate::rbac::manifests;

/// What a crate may depend on directly, outside its tests. A new line here is a decision.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    (
        "supercargo-framework",
        &["bitflags", "rustc-hash", "serde", "serde_json", "serde_path_to_error", "smallvec", "thiserror"],
    ),
    ("supercargo-plugins", &["rustc-hash", "serde", "serde_json", "smallvec", "supercargo-framework"]),
    (
        "supercargo-scheduler",
        &[
            "priority-queue",
            "rustc-hash",
            "serde",
            "serde_json",
            "smallvec",
            "supercargo-framework",
            "thiserror",
        ],
    ),
];

/// Crates that decide: the same input gives the same output, whenever and wherever.
const PURE: &[&str] = &["supercargo-framework", "supercargo-plugins", "supercargo-scheduler"];

/// The sources of the pure crates.
const PURE_SOURCES: &[&str] = &["crates/framework/src", "plugins/src", "crates/scheduler/src"];

/// What no pure crate may reach, by however many steps: the beginnings of crate names.
const IMPURE: &[&str] = &[
    // The cluster and the network.
    "kube",
    "k8s-openapi",
    "http",
    "hyper",
    "reqwest",
    "rustls",
    "openssl",
    "mio",
    "socket2",
    // Runtimes and threads.
    "tokio",
    "async-std",
    "smol",
    "futures-executor",
    "rayon",
    "crossbeam",
    // Clocks.
    "jiff",
    "chrono",
    "time",
    "web-time",
    "humantime",
    // Chance.
    "rand",
    "fastrand",
    "getrandom",
    "uuid",
    "ahash",
    // The machine.
    "libc",
    "rustix",
    "nix",
    "windows",
    "tempfile",
    "tracing",
    "log",
];

/// Words that no pure crate's source has: clocks, threads, files, the environment, output, and maps of random order.
const IMPURE_WORDS: &[&str] = &[
    "Instant",
    "SystemTime",
    "UNIX_EPOCH",
    "std::thread",
    "thread_local",
    "thread::",
    "std::env",
    "env::",
    "std::fs",
    "fs::",
    "File",
    "std::net",
    "std::os",
    "std::process",
    "process::",
    "stdin",
    "stdout",
    "stderr",
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "RandomState",
    "HashMap",
    "HashSet",
];

/// Who asks the cluster for a change, and how: no other module of `src/` has these words.
const MUTATIONS: &[(&str, &[&str])] = &[
    // Plugins name the method of a request of their own.
    ("src/binder.rs", &["Method::POST", "Method::from_bytes"]),
    // The demo's own cluster, and nobody else's.
    ("src/demo/driver.rs", &["Method::PATCH", "Method::POST"]),
    ("src/election/event.rs", &["Method::POST"]),
    ("src/election/lease.rs", &["Method::POST", "Method::PUT"]),
    ("src/events.rs", &["Method::PATCH", "Method::POST"]),
    // Extenders are no part of the cluster.
    ("src/extender.rs", &["Request::post"]),
    ("src/preemptor.rs", &["Method::DELETE", "Method::PATCH"]),
    // A review is a question.
    ("src/serve/review.rs", &["Method::POST"]),
    ("src/status_writer.rs", &["Method::PATCH"]),
    // Nor are collectors of traces.
    ("src/traces/exporter.rs", &["Request::post"]),
];

/// What a change would be written with.
const MUTATING_WORDS: &[&str] = &[
    "Method::POST",
    "Method::PUT",
    "Method::PATCH",
    "Method::DELETE",
    "Method::CONNECT",
    "Method::from_bytes",
    "Request::post",
    "Request::put",
    "Request::patch",
    "Request::delete",
    // Its methods are not listed above.
    "kube::Api",
];

/// Which pure modules ask for requests while a pod is bound. Where the type itself is, and what tests do, does not count.
const API_CALLS: &[&str] = &["plugins/src/default_binder.rs", "plugins/src/volume_binding/pre_bind.rs"];

/// The longest source file, in lines.
const MOST_LINES: usize = 700;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What Cargo knows of the workspace.
pub(crate) struct Workspace {
    metadata: Value,
}

impl Workspace {
    pub(crate) fn load() -> Self {
        // For this platform only: what others need may not be on this machine.
        let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into()))
            .args(["metadata", "--format-version=1", "--offline", "--locked"])
            .args(["--filter-platform", &host()])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { metadata: serde_json::from_slice(&output.stdout).unwrap() }
    }

    fn packages(&self) -> impl Iterator<Item = &Value> {
        items(&self.metadata["packages"])
    }

    pub(crate) fn members(&self) -> Vec<&Value> {
        let members: Vec<&Value> = items(&self.metadata["workspace_members"]).collect();
        self.packages().filter(|package| members.contains(&&package["id"])).collect()
    }

    fn member(&self, name: &str) -> &Value {
        let mut members = self.members().into_iter();
        members
            .find(|package| package["name"] == name)
            .unwrap_or_else(|| panic!("no {name} in the workspace"))
    }

    /// What the package depends on directly, on any platform, with or without features, outside its tests.
    fn direct(&self, name: &str) -> BTreeSet<&str> {
        items(&self.member(name)["dependencies"])
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| text(&dependency["name"]))
            .collect()
    }

    /// Everything that the package is built from, and what builds that.
    pub(crate) fn reach(&self, name: &str) -> BTreeSet<&str> {
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

/// The platform that the compiler runs on.
fn host() -> String {
    let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("-vV")
        .current_dir(root())
        .output()
        .unwrap();
    let version = String::from_utf8(output.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}

pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().expect("a list").iter()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

/// What begins like one of the impure crates, as a name or the first part of one.
fn impure<'a>(crates: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let is_of = |name: &str, family: &str| {
        let rest = name.strip_prefix(family);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
    };
    let is_impure = |name: &&str| IMPURE.iter().any(|family| is_of(name, family));
    crates.iter().copied().filter(is_impure).collect()
}

/// The Rust files below a folder, as paths from the root, sorted.
pub(crate) fn sources(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                let name = entry.file_name();
                // Not what Cargo or an editor keeps here.
                let is_source = name != "target" && !name.to_string_lossy().starts_with('.');
                folders.extend(is_source.then_some(path));
            } else if path.extension().is_some_and(|end| end == "rs") {
                files.push(path);
            }
        }
    }
    assert!(!files.is_empty(), "nothing in {folder}");
    files.sort();
    files
}

/// Whether a file is compiled for tests only, by its name.
pub(crate) fn is_test(path: &Path) -> bool {
    let names = path.components().map(Component::as_os_str);
    names
        .into_iter()
        .any(|name| ["tests", "tests.rs", "testing", "testing.rs"].iter().any(|test| name == *test))
}

/// The lines that are compiled outside tests and documentation, without comments, with their numbers. It relies on rustfmt: what
/// is for tests begins with an attribute at some depth and ends with a line at the same depth.
pub(crate) fn code(source: &str) -> Vec<(usize, &str)> {
    let mut code = Vec::new();
    let mut lines = source.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let depth = line.len() - line.trim_start().len();
        if ["#[cfg(test)]", "#[cfg(doc)]", "#[cfg(doctest)]"].contains(&line.trim_start()) {
            let is_end = |line: &str| {
                let is_item =
                    line.len() - line.trim_start().len() == depth && !line.trim_start().starts_with("//");
                is_item && (line.ends_with(';') || line.ends_with('}') || line.ends_with(','))
            };
            lines.by_ref().find(|(_, line)| is_end(line));
            continue;
        }
        let line = line.split("//").next().unwrap_or_default();
        code.push((number + 1, line));
    }
    code
}

/// Whether a line has a word, with no name going on at either end.
fn has_word(line: &str, word: &str) -> bool {
    let goes_on =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        // A word that ends in punctuation ends there.
        let ends = word.ends_with([':', '!']) || !goes_on(after.chars().next());
        !goes_on(before.chars().next_back()) && ends
    })
}

/// Where code has words: the line's number and the word.
fn found<'a>(source: &str, words: &[&'a str]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (number, line) in code(source) {
        let here = words.iter().filter(|word| has_word(line, word));
        found.extend(here.map(|word| (number, *word)));
    }
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_pure_crates_depend_on_what_the_table_says_and_on_nothing_impure() {
    let workspace = Workspace::load();
    let listed: Vec<&str> = DEPENDENCIES.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, PURE);
    for (name, allowed) in DEPENDENCIES {
        assert_eq!(
            workspace.direct(name),
            allowed.iter().copied().collect(),
            "left: Cargo.toml of {name}, right: the table here"
        );
        let impure = impure(&workspace.reach(name));
        assert!(impure.is_empty(), "{name} is built from {impure:?}");
    }
}

#[test]
fn impure_crates_are_found_where_they_are() {
    let workspace = Workspace::load();
    let shell = impure(&workspace.reach("supercargo"));
    for name in ["kube", "kube-client", "k8s-openapi", "tokio", "tokio-util", "jiff", "rustls"] {
        assert!(shell.contains(&name), "{name} should be in {shell:?}");
    }
    assert!(impure(&["timely", "logos", "serde", "httparse"].into()).is_empty());
}

#[test]
fn informers_and_api_server_know_nothing_of_the_scheduler() {
    let workspace = Workspace::load();
    let ours = |name: &str| -> Vec<String> {
        let reached = workspace.reach(name).into_iter();
        reached.filter(|name| name.starts_with("supercargo")).map(str::to_owned).collect()
    };
    assert_eq!(ours("kube-informers"), Vec::<String>::new());
    assert_eq!(ours("supercargo-controlplane"), ["supercargo-controlplane"]);
    assert_eq!(ours("supercargo-apiserver"), ["supercargo-apiserver"]);
    // What it answers must not be what our own client believes.
    let apiserver = workspace.reach("supercargo-apiserver");
    assert!(
        !apiserver.iter().any(|name| name.starts_with("kube") || *name == "k8s-openapi"),
        "{apiserver:?}"
    );
    assert_eq!(ours("supercargo-plugins"), ["supercargo-framework", "supercargo-plugins"]);
}

#[test]
fn the_pure_crates_have_no_clock_thread_file_or_chance() {
    let mut all = Vec::new();
    for path in PURE_SOURCES.iter().flat_map(|folder| sources(folder)) {
        if is_test(&path) {
            continue;
        }
        for (line, word) in found(&read(&path), IMPURE_WORDS) {
            all.push(format!("{}:{line}: {word}", path.display()));
        }
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn the_scanner_sees_code_and_neither_comments_nor_tests() {
    let source = "\
use std::time::{Duration, Instant}; // not SystemTime
/// Like a HashMap.
fn pure(map: FxHashMap<u8, u8>) -> Instantaneous {
    eprintln!(\"{}\", std::thread::current().id());
}
#[cfg(test)]
use std::fs;
#[cfg(test)]
mod tests {
    use std::env;
}
#[cfg(doc)]
mod docs {
    use std::process;
}
impl X {
    #[cfg(test)]
    fn for_tests() {
        println!();
    }
    fn last(&self) -> HashSet<u8> {}
}
";
    let words = found(source, IMPURE_WORDS);
    let expected = [(1, "Instant"), (4, "std::thread"), (4, "thread::"), (4, "eprintln!"), (21, "HashSet")];
    assert_eq!(words, expected);
}

#[test]
fn only_the_listed_modules_change_the_cluster() {
    let mut changes: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let folders = ["src", "crates/informer/src"];
    for path in folders.into_iter().chain(PURE_SOURCES.iter().copied()).flat_map(sources) {
        if is_test(&path) {
            continue;
        }
        let words: BTreeSet<&str> =
            found(&read(&path), MUTATING_WORDS).into_iter().map(|(_, word)| word).collect();
        if !words.is_empty() {
            changes.insert(path.display().to_string(), words);
        }
    }
    let table: BTreeMap<String, BTreeSet<&str>> =
        MUTATIONS.iter().map(|(path, words)| ((*path).to_owned(), words.iter().copied().collect())).collect();
    assert_eq!(changes, table, "left: the sources, right: the table here");
}

#[test]
fn only_the_listed_plugins_ask_for_requests() {
    let mut modules = Vec::new();
    for path in PURE_SOURCES.iter().flat_map(|folder| sources(folder)) {
        if !is_test(&path) && !found(&read(&path), &["ApiCall::"]).is_empty() {
            modules.push(path.display().to_string());
        }
    }
    assert_eq!(modules, API_CALLS);
}

#[test]
fn no_source_file_is_too_long() {
    let workspace = Workspace::load();
    // Where what is compiled begins.
    let folders: BTreeSet<String> = workspace
        .members()
        .into_iter()
        .flat_map(|member| items(&member["targets"]))
        .map(|target| Path::new(text(&target["src_path"])).parent().expect("a folder"))
        .map(|folder| folder.strip_prefix(root()).expect("inside").display().to_string())
        .collect();
    assert!(folders.contains("src") && folders.contains("tests"), "{folders:?}");
    let length = |path: &PathBuf| read(path).lines().count();
    let long: Vec<(PathBuf, usize)> = folders
        .iter()
        .flat_map(|folder| sources(folder))
        .map(|path| (path.clone(), length(&path)))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_crate_has_the_license_and_the_lints() {
    let workspace = Workspace::load();
    let members = workspace.members();
    assert!(members.len() >= 6, "{}", members.len());
    for member in members {
        let name = text(&member["name"]);
        assert_eq!(member["license"], "Apache-2.0", "{name}");
        let manifest = fs::read_to_string(text(&member["manifest_path"])).unwrap();
        assert!(
            manifest.contains("\n[lints]\nworkspace = true\n"),
            "{name} does not inherit the workspace's lints"
        );
    }
    let lock = read(Path::new("Cargo.lock"));
    let foreign: Vec<&str> = lock.lines().filter(|line| line.starts_with("source = \"git+")).collect();
    assert!(foreign.is_empty(), "dependencies that are not released: {foreign:?}");
}

#[test]
fn every_manifest_is_yaml() {
    let files = manifests::yaml_files();
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        for object in manifests::documents(&file) {
            for field in ["apiVersion", "kind"] {
                assert!(object[field].is_string(), "{} has no {field}", file.display());
            }
        }
    }
}
