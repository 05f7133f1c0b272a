//! Rules of this workspace that no compiler checks: which crates may depend on which, and who
//! changes the cluster. What the pure crates must not call is in their `clippy.toml`.
#![allow(clippy::unwrap_used)] // all of it is for tests

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use xtask::root;
use xtask::source::{code, found, is_test, read, sources};
use xtask::workspace::{Workspace, items, shipped_packages, text};

/// The direct dependencies of the pure crates, tests excluded. A new line here is a decision.
const PURE: &[(&str, &[&str])] = &[
    ("supercargo-cel", &["smallvec", "supercargo-go-regex"]),
    (
        "supercargo-devices",
        &["rustc-hash", "serde_json", "smallvec", "supercargo-cel", "supercargo-framework", "thiserror"],
    ),
    ("supercargo-dynamic-resources", &["serde", "serde_json", "supercargo-devices", "supercargo-framework"]),
    (
        "supercargo-evaluation",
        &[
            "rustc-hash",
            "serde",
            "serde_json",
            "smallvec",
            "supercargo-framework",
            "supercargo-queue",
            "supercargo-runtime",
            "thiserror",
        ],
    ),
    (
        "supercargo-framework",
        &["bitflags", "rustc-hash", "serde", "serde_json", "serde_path_to_error", "smallvec", "thiserror"],
    ),
    ("supercargo-go-regex", &["regex"]),
    // The data of the page knows nothing of the scheduler.
    ("supercargo-page", &["serde", "serde_json"]),
    (
        "supercargo-plugins",
        &[
            "rustc-hash",
            "serde",
            "serde_json",
            "smallvec",
            "supercargo-dynamic-resources",
            "supercargo-framework",
            "supercargo-volume-plugins",
        ],
    ),
    (
        "supercargo-queue",
        &["priority-queue", "rustc-hash", "smallvec", "supercargo-framework", "supercargo-runtime"],
    ),
    (
        "supercargo-report",
        &[
            "serde_json",
            "supercargo-devices",
            "supercargo-framework",
            "supercargo-page",
            "supercargo-scheduler",
        ],
    ),
    ("supercargo-redaction", &["serde_json"]),
    ("supercargo-runtime", &["supercargo-framework", "thiserror"]),
    (
        "supercargo-scheduler",
        &[
            "rustc-hash",
            "serde",
            "serde_json",
            "smallvec",
            "supercargo-evaluation",
            "supercargo-framework",
            "supercargo-queue",
            "supercargo-redaction",
            "supercargo-runtime",
            "supercargo-timeline",
            "thiserror",
        ],
    ),
    ("supercargo-timeline", &["serde", "supercargo-framework"]),
    ("supercargo-volume-plugins", &["rustc-hash", "serde", "serde_json", "smallvec", "supercargo-framework"]),
];

#[test]
fn pure_crates_share_one_clippy_configuration() {
    let workspace = Workspace::load();
    let folders: BTreeMap<_, _> = workspace.folders().into_iter().collect();
    let configuration = |name: &str| read(&folders[name].join("clippy.toml"));
    let first = configuration(PURE[0].0);
    for (name, _) in PURE {
        assert!(configuration(name) == first, "clippy.toml of {name} differs from that of {}", PURE[0].0);
    }
}

/// The most lines of code of a crate, without tests and the demo. A larger crate slows its own
/// inner loop: split it.
const MOST_LINES: usize = 8_000;

/// With all features, of which the program does not use all.
const MOST_LINES_OF_INFORMERS: usize = 9_500;

#[test]
fn no_crate_of_the_program_is_too_large() {
    let (workspace, shipped) = (Workspace::load(), shipped_packages());
    let is_demo = |path: &Path| path.starts_with("src/demo") || path == Path::new("src/demo.rs");
    let of_program = workspace.folders().into_iter().filter(|(name, _)| shipped.contains(*name));
    for (name, folder) in of_program {
        let files = sources(folder.join("src").to_str().unwrap())
            .into_iter()
            .filter(|path| !is_test(path) && !is_demo(path));
        let lines =
            |path: PathBuf| code(&read(&path)).iter().filter(|(_, line)| !line.trim().is_empty()).count();
        let lines: usize = files.map(lines).sum();
        let most = if name == "kube-informers" { MOST_LINES_OF_INFORMERS } else { MOST_LINES };
        assert!(lines <= most, "{name} has {lines} lines of code");
    }
}

/// First parts of the names of crates that no pure crate may be built from.
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
    // Randomness.
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

/// Which of our crates each crate is built from, itself excluded.
const OURS: &[(&str, &[&str])] = &[
    ("kube-informers", &[]),
    ("supercargo-apiserver", &[]),
    ("supercargo-cel", &["go-regex"]),
    ("supercargo-client", &["codec", "framework"]),
    ("supercargo-codec", &["framework"]),
    (
        "supercargo-config",
        &["cel", "devices", "dynamic-resources", "framework", "go-regex", "plugins", "volume-plugins"],
    ),
    ("supercargo-controlplane", &[]),
    ("supercargo-devices", &["cel", "framework", "go-regex"]),
    ("supercargo-dynamic-resources", &["cel", "devices", "framework", "go-regex"]),
    ("supercargo-evaluation", &["framework", "queue", "runtime"]),
    ("supercargo-framework", &[]),
    ("supercargo-go-regex", &[]),
    (
        "supercargo-owner",
        &[
            "cel",
            "client",
            "codec",
            "config",
            "devices",
            "dynamic-resources",
            "evaluation",
            "framework",
            "go-regex",
            "plugins",
            "queue",
            "redaction",
            "runtime",
            "scheduler",
            "timeline",
            "volume-plugins",
        ],
    ),
    ("supercargo-page", &[]),
    (
        "supercargo-plugins",
        &["cel", "devices", "dynamic-resources", "framework", "go-regex", "volume-plugins"],
    ),
    ("supercargo-queue", &["framework", "runtime"]),
    (
        "supercargo-report",
        &[
            "cel",
            "devices",
            "evaluation",
            "framework",
            "go-regex",
            "page",
            "queue",
            "redaction",
            "runtime",
            "scheduler",
            "timeline",
        ],
    ),
    ("supercargo-redaction", &[]),
    ("supercargo-runtime", &["framework"]),
    ("supercargo-scheduler", &["evaluation", "framework", "queue", "redaction", "runtime", "timeline"]),
    (
        "supercargo-serving",
        &[
            "cel",
            "client",
            "codec",
            "config",
            "devices",
            "dynamic-resources",
            "framework",
            "go-regex",
            "plugins",
            "runtime",
            "telemetry",
            "volume-plugins",
        ],
    ),
    ("supercargo-telemetry", &["framework", "runtime"]),
    ("supercargo-timeline", &["framework"]),
    ("supercargo-volume-plugins", &["framework"]),
];

/// The modules that change the cluster, and how; no other module outside tests has these words.
const MUTATIONS: &[(&str, &[&str])] = &[
    ("crates/client/src/election/leader_events.rs", &["Method::POST"]),
    ("crates/client/src/election/lease.rs", &["Method::POST", "Method::PUT"]),
    // A review changes nothing.
    ("crates/serving/src/review.rs", &["Method::POST"]),
    // A collector of traces is not part of the cluster.
    ("crates/telemetry/src/traces/exporter.rs", &["Request::post"]),
    // Plugins choose the method of their own requests.
    ("crates/owner/src/binder.rs", &["Method::POST", "Method::from_bytes"]),
    // A review changes nothing.
    ("src/check/permissions.rs", &["Method::POST"]),
    // Only the demo's own cluster.
    ("src/demo/driver.rs", &["Method::PATCH", "Method::POST"]),
    ("crates/owner/src/events.rs", &["Method::PATCH", "Method::POST"]),
    // Extenders are not part of the cluster.
    ("crates/owner/src/extender.rs", &["Request::post"]),
    ("crates/owner/src/preemptor.rs", &["Method::DELETE", "Method::PATCH"]),
    ("crates/owner/src/status_writer.rs", &["Method::PATCH"]),
];

/// The words that a change of the cluster is written with.
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

/// The plugins that send requests, or have them sent.
const API_CALLS: &[&str] = &[
    "plugins/dynamic-resources/src/pre_bind.rs",
    "plugins/dynamic-resources/src/release.rs",
    "plugins/src/default_binder.rs",
    "plugins/volumes/src/volume_binding/pre_bind.rs",
];

/// The modules that hash without a seed, by what they hash. Keys that strangers choose belong into
/// a `SeededMap`, a `Numbering` or an ordered map: see `crates/framework/src/hash_seed.rs`.
const FIXED_HASHES: &[(&str, &[&str])] = &[
    (
        "UIDs, which the API server chooses",
        &[
            "crates/framework/src/context.rs",
            "crates/framework/src/objects/members.rs",
            "crates/queue/src/aside.rs",
            "crates/queue/src/context.rs",
            "crates/queue/src/groups.rs",
            "crates/queue/src/in_flight.rs",
            "crates/queue/src/lib.rs",
            "crates/queue/src/nominator.rs",
            "crates/scheduler/src/bindings.rs",
            "crates/scheduler/src/invariants.rs",
            "crates/scheduler/src/preemptions.rs",
            "crates/scheduler/src/record/comparison.rs",
            "crates/scheduler/src/scheduler.rs",
            "crates/scheduler/src/unconfirmed_patches.rs",
            "crates/scheduler/src/views.rs",
            "crates/scheduler/src/what_if.rs",
        ],
    ),
    (
        "UIDs, and names of nodes, which administrators choose",
        &[
            "crates/evaluation/src/cache.rs",
            "crates/evaluation/src/cached_pods.rs",
            "crates/evaluation/src/extender_calls.rs",
            "crates/framework/src/nodes.rs",
            "crates/scheduler/src/what_if/cluster.rs",
        ],
    ),
    (
        "numbers that this process gives, and names of kinds",
        &[
            "crates/devices/src/answers.rs",
            "crates/devices/src/search.rs",
            "crates/devices/src/selectors.rs",
            "crates/evaluation/src/tables/groups.rs",
            "crates/evaluation/src/tables/profile_tables.rs",
            "crates/framework/src/node_statuses.rs",
            "crates/framework/src/objects.rs",
        ],
    ),
    ("a limited number of reasons", &["crates/scheduler/src/why.rs"]),
    (
        "many labels, but looks up equal hashes by binary search",
        &["crates/framework/src/selector_set/index.rs"],
    ),
    (
        "no keys of a map, but the seed, versions, or what random numbers are made of",
        &[
            "crates/client/src/host.rs",
            "crates/framework/src/hash_seed.rs",
            "crates/framework/src/node.rs",
            "plugins/src/default_preemption.rs",
            "plugins/dynamic-resources/src/write.rs",
        ],
    ),
];

/// The words that a hash function without a seed is written with.
const FIXED_HASH_WORDS: &[&str] = &[
    "BuildHasherDefault",
    "DefaultHasher",
    "FixedState",
    "FxBuildHasher",
    "FxHashMap",
    "FxHashSet",
    "FxHasher",
    "SipHasher",
    "ahash",
    "fnv",
    "foldhash",
];

/// The longest source file, in lines.
const MAX_LINES: usize = 700;

#[test]
fn pure_crates_depend_on_what_the_table_says_and_nothing_impure() {
    let workspace = Workspace::load();
    for (name, allowed) in PURE {
        let allowed = allowed.iter().copied().collect();
        assert_eq!(workspace.direct(name), allowed, "left: Cargo.toml of {name}, right: the table here");
        let impure = impure(&workspace.reach(name));
        assert!(impure.is_empty(), "{name} is built from {impure:?}");
    }
}

#[test]
fn impure_crates_are_found() {
    let workspace = Workspace::load();
    let program = impure(&workspace.reach("supercargo"));
    for name in ["kube", "kube-client", "k8s-openapi", "tokio", "tokio-util", "jiff", "rustls"] {
        assert!(program.contains(&name), "{name} should be in {program:?}");
    }
    assert!(impure(&["timely", "logos", "serde", "httparse"].into()).is_empty());
}

fn impure<'a>(crates: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let is_of = |name: &str, family: &str| {
        let rest = name.strip_prefix(family);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
    };
    let is_impure = |name: &&str| IMPURE.iter().any(|family| is_of(name, family));
    crates.iter().copied().filter(is_impure).collect()
}

#[test]
fn our_crates_are_built_from_what_the_table_says() {
    let workspace = Workspace::load();
    for (name, expected) in OURS {
        let reached: Vec<String> = workspace
            .reach(name)
            .into_iter()
            .filter(|reached| {
                reached != name && (reached.starts_with("supercargo") || *reached == "kube-informers")
            })
            .filter(|reached| *reached != "kube-informers")
            .map(|reached| reached.trim_start_matches("supercargo-").to_owned())
            .collect();
        assert_eq!(reached, *expected, "{name}");
    }
}

#[test]
fn the_apiserver_shares_no_beliefs_with_our_clients() {
    let workspace = Workspace::load();
    let apiserver = workspace.reach("supercargo-apiserver");
    assert!(
        !apiserver.iter().any(|name| name.starts_with("kube") || *name == "k8s-openapi"),
        "{apiserver:?}"
    );
}

#[test]
fn the_program_without_default_features_has_no_apiserver() {
    assert!(Workspace::load().reach("supercargo").contains("supercargo-apiserver"));
    assert!(!shipped_packages().contains("supercargo-apiserver"));
}

#[test]
fn only_the_listed_modules_change_the_cluster() {
    let mut changes: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for path in ["crates", "plugins", "src"].into_iter().flat_map(sources) {
        // Examples and benchmarks of the informers run against a server of their own.
        let is_shipped = path.components().any(|part| part.as_os_str() == "src");
        if !is_shipped || is_test(&path) {
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
fn only_the_listed_plugins_send_requests() {
    let sends = |path: &std::path::PathBuf| !is_test(path) && !found(&read(path), &["ApiCall::"]).is_empty();
    let modules: Vec<String> =
        sources("plugins").iter().filter(|path| sends(path)).map(|path| path.display().to_string()).collect();
    assert_eq!(modules, API_CALLS);
}

#[test]
fn only_the_listed_modules_hash_without_a_seed() {
    let names = |path: &PathBuf| !is_test(path) && !found(&read(path), FIXED_HASH_WORDS).is_empty();
    let modules: BTreeSet<String> = ["crates", "plugins", "src"]
        .into_iter()
        .flat_map(sources)
        .filter(names)
        .map(|path| path.display().to_string())
        .collect();
    let table: BTreeSet<String> =
        FIXED_HASHES.iter().flat_map(|(_, paths)| *paths).map(|path| (*path).to_owned()).collect();
    assert_eq!(modules, table, "left: the sources, right: the table here");
}

#[test]
fn no_source_file_is_too_long() {
    let workspace = Workspace::load();
    let folders: BTreeSet<String> = workspace
        .members()
        .into_iter()
        .flat_map(|member| items(&member["targets"]))
        .map(|target| Path::new(text(&target["src_path"])).parent().expect("a folder"))
        .map(|folder| folder.strip_prefix(root()).expect("inside").display().to_string())
        // The root has only a build script.
        .filter(|folder| !folder.is_empty())
        .collect();
    assert!(folders.contains("src") && folders.contains("tests"), "{folders:?}");
    let long: Vec<(String, usize)> = folders
        .iter()
        .flat_map(|folder| sources(folder))
        .map(|path| (path.display().to_string(), read(&path).lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_crate_has_the_licence_and_the_lints() {
    for member in Workspace::load().members() {
        let name = text(&member["name"]);
        assert_eq!(member["license"], "Apache-2.0", "{name}");
        let manifest = fs::read_to_string(text(&member["manifest_path"])).unwrap();
        // The simulation answers getrandom(2), which no safe code can.
        if name == "supercargo-simulation" {
            assert!(manifest.contains("\nunsafe_code = \"deny\"\n"), "{name} has other lints");
            continue;
        }
        let inherits = manifest.contains("\n[lints]\nworkspace = true\n");
        assert!(inherits, "{name} does not inherit the workspace's lints");
    }
}
