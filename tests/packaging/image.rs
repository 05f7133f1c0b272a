//! The Dockerfile matches the workspace and the manifests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use clap::Parser as _;
use serde_json::Value;
use supercargo::cli::Cli;

use super::dockerfile::{Dockerfile, Instruction};
use super::install;
use crate::rbac::manifests::{self, text};
use xtask::source;
use xtask::workspace::{Workspace, items, shipped_packages};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn dockerfile() -> Dockerfile {
    Dockerfile::parse(&fs::read_to_string(root().join("Dockerfile")).unwrap())
}

/// A path relative to the workspace root.
fn inside(path: &Value) -> String {
    Path::new(text(path)).strip_prefix(root()).expect("inside the workspace").display().to_string()
}

/// The files that the build stage copies before its first compilation, and those between the first
/// and the second.
fn copied(file: &Dockerfile) -> [BTreeSet<String>; 2] {
    let parts: Vec<&[Instruction]> =
        file.stage("build").instructions.split(|instruction| instruction.cargo_build().is_some()).collect();
    assert_eq!(parts.len(), 3, "it compiles twice: the dependencies, and then all");
    assert!(parts[2].is_empty(), "what comes after the last compilation is not in it");
    let copied = |part: &[Instruction]| -> BTreeSet<String> {
        let mut paths = BTreeSet::new();
        for (sources, target) in part.iter().filter_map(Instruction::copies) {
            for source in sources {
                // Sources and destinations are at the same path.
                let (folder, name) = source.rsplit_once('/').unwrap_or((".", source));
                let is_file = target.trim_end_matches('/') == folder && target.ends_with('/');
                assert!(is_file || target == source, "{source} goes to {target}, not {folder}/{name}");
                paths.insert(source.to_owned());
            }
        }
        paths
    };
    [copied(parts[0]), copied(parts[1])]
}

#[test]
fn dependency_layer_copies_only_manifests() {
    let workspace = Workspace::load();
    let mut needed: BTreeSet<String> =
        workspace.members().iter().map(|member| inside(&member["manifest_path"])).collect();
    assert!(
        needed.contains("Cargo.toml") && needed.contains("testing/controlplane/Cargo.toml"),
        "{needed:?}"
    );
    needed.insert("Cargo.lock".to_owned());
    let [before, _] = copied(&dockerfile());
    assert_eq!(before, needed, "left: the Dockerfile, right: the workspace");
}

#[test]
fn build_stage_copies_sources_of_every_crate() {
    let workspace = Workspace::load();
    let reached = shipped_packages();
    let [_, sources] = copied(&dockerfile());
    let parts: Vec<&Value> =
        workspace.members().into_iter().filter(|member| reached.contains(text(&member["name"]))).collect();
    assert!(parts.len() >= 5, "{reached:?}");
    for part in parts {
        for target in items(&part["targets"]) {
            let kind = text(&target["kind"][0]);
            if !["lib", "bin", "proc-macro", "custom-build"].contains(&kind) {
                continue;
            }
            let path = inside(&target["src_path"]);
            let is_there = sources.iter().any(|source| Path::new(&path).starts_with(source));
            assert!(is_there, "{path} is compiled, and the Dockerfile copies {sources:?}");
        }
    }
    for source in &sources {
        assert!(root().join(source).exists(), "there is no {source}");
    }
}

#[test]
fn included_files_are_copied() {
    let [_, sources] = copied(&dockerfile());
    let folders = sources.iter().filter(|source| root().join(source).is_dir());
    for path in folders.flat_map(|folder| source::sources(folder)) {
        if source::is_test(&path) {
            continue;
        }
        let code = fs::read_to_string(root().join(&path)).unwrap();
        for name in included(&code) {
            let file = normal(&path.with_file_name(name));
            let is_there = sources.iter().any(|source| file.starts_with(source));
            assert!(is_there, "{} includes {}, which is not copied", path.display(), file.display());
        }
    }
}

/// The files that a source includes outside its tests.
fn included(source: &str) -> Vec<&str> {
    let mut files = Vec::new();
    for (_, line) in source::code(source) {
        for with in ["include_str!(\"", "include_bytes!(\"", "include!(\""] {
            files.extend(line.split(with).skip(1).filter_map(|rest| rest.split('"').next()));
        }
    }
    files
}

/// Resolves `..` in a path.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            assert!(normal.pop(), "{} leaves the workspace", path.display());
        } else {
            normal.push(part);
        }
    }
    normal
}

#[test]
fn included_files_of_tests_are_ignored() {
    let source = "const A: &str = include_str!(\"a/b.txt\");\nconst B: &[u8] = include_bytes!(\"../c\");\n\
        #[cfg(test)]\nconst C: &str = include_str!(\"d\");\n";
    assert_eq!(included(source), ["a/b.txt", "../c"]);
    assert_eq!(normal(Path::new("src/wire/tests/../x")), Path::new("src/wire/x"));
}

#[test]
fn build_context_has_only_copied_files() {
    let file = dockerfile();
    let instructions = file.stages.iter().flat_map(|stage| &stage.instructions);
    let copied: BTreeSet<String> = instructions
        .filter_map(Instruction::copies)
        .flat_map(|(sources, _)| sources)
        .map(str::to_owned)
        .collect();
    let ignore = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let mut patterns = ignore.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(patterns.next(), Some("*"), "first nothing is let in");
    let admitted: BTreeSet<String> =
        patterns.map(|line| line.strip_prefix('!').unwrap_or_else(|| panic!("{line}")).to_owned()).collect();
    assert_eq!(admitted, copied, "left: .dockerignore, right: the Dockerfile");
    for path in admitted {
        assert!(root().join(&path).exists(), "there is no {path}");
    }
}

#[test]
fn dependency_and_program_builds_use_one_command() {
    let file = dockerfile();
    let commands: Vec<&str> =
        file.stage("build").instructions.iter().filter_map(Instruction::cargo_build).collect();
    assert_eq!(commands.len(), 2);
    assert_eq!(commands[0], commands[1]);
    for flag in ["--release", "--locked"] {
        assert!(commands[0].contains(flag), "{} without {flag}", commands[0]);
    }
}

#[test]
fn program_in_the_image_knows_its_commit() {
    let file = dockerfile();
    let build = &file.stage("build").instructions;
    let last = build.iter().rposition(|instruction| instruction.cargo_build().is_some()).unwrap();
    let at = |name: &str, words: &str| {
        build
            .iter()
            .position(|it| it.name == name && it.rest == words)
            .unwrap_or_else(|| panic!("no {words}"))
    };
    let order = [at("ARG", "REVISION=unknown"), at("ENV", "SUPERCARGO_COMMIT=$REVISION"), last];
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn image_compiler_satisfies_rust_version() {
    let file = dockerfile();
    let argument =
        file.arguments.iter().find_map(|instruction| instruction.rest.strip_prefix("RUST_VERSION="));
    let image = version(argument.expect("ARG RUST_VERSION"));
    assert!(file.stage("tools").base.starts_with("rust:${RUST_VERSION}-"));
    for member in Workspace::load().members() {
        let wanted = version(text(&member["rust_version"]));
        assert!(image >= wanted, "{} wants Rust {wanted:?}, the image has {image:?}", member["name"]);
    }
}

fn version(text: &str) -> Vec<u64> {
    text.split('.').map(|part| part.parse().unwrap_or_else(|_| panic!("{text} is no version"))).collect()
}

#[test]
fn every_architecture_links_a_static_program() {
    let file = dockerfile();
    assert!(file.stage("tools").has("ENV", "-C target-feature=+crt-static"));
    assert_eq!(file.stage("build").base, "for-$TARGETARCH");
    let architectures: BTreeSet<&str> =
        file.stages.iter().filter_map(|stage| stage.name.strip_prefix("for-")).collect();
    assert_eq!(architectures, ["amd64", "arm64"].into());
    for (architecture, cpu) in [("amd64", "x86_64"), ("arm64", "aarch64")] {
        let stage = file.stage(&format!("for-{architecture}"));
        assert_eq!(stage.base, "tools");
        // With an explicit target, the flags do not apply to build scripts.
        assert!(stage.has("ENV", &format!("CARGO_BUILD_TARGET={cpu}-unknown-linux-gnu ")));
        let variable = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_LINKER", cpu.to_uppercase());
        assert!(stage.has("ENV", &format!("{variable}={cpu}-linux-gnu-gcc ")), "{variable}");
        assert!(stage.has("ENV", &format!("libc6-dev-{architecture}-cross")));
    }
    assert!(file.stage("build").has("RUN", "grep INTERP"), "nothing checks that it is static");
}

#[test]
fn image_has_only_the_program_and_its_user() {
    let file = dockerfile();
    let image = file.last();
    assert_eq!(image.base, "scratch");
    assert!(image.has("COPY", "--from=build /build/supercargo /supercargo"));
    // The CA certificates that rustls reads.
    let authorities = "/etc/ssl/certs/ca-certificates.crt";
    assert!(image.has("COPY", &format!("--from=build {authorities} {authorities}")));
    assert!(!image.instructions.iter().any(|instruction| instruction.name == "RUN"));

    let pod = manifests::pod_of(&manifests::object("Deployment"));
    let security = &pod["spec"]["securityContext"];
    let user = format!("{}:{}", security["runAsUser"], security["runAsGroup"]);
    assert_eq!(image.only("USER").unwrap().rest, user);
    assert!(!user.starts_with('0'));
}

#[test]
fn sbom_scans_the_build_context() {
    let file = dockerfile();
    // The scan covers the context only if the last stage sets this argument.
    assert!(file.last().has("ARG", "BUILDKIT_SBOM_SCAN_CONTEXT=true"));
    let [before, _] = copied(&file);
    assert!(before.contains("Cargo.lock"), "{before:?}");
}

#[test]
fn image_entrypoint_takes_deployment_arguments() {
    let file = dockerfile();
    let image = file.last();
    let entrypoint = image.only("ENTRYPOINT").unwrap().exec();
    assert_eq!(entrypoint, ["/supercargo"]);
    let command = image.only("CMD").unwrap().exec();
    Cli::try_parse_from(entrypoint.iter().chain(&command)).unwrap();

    let container = &manifests::pod_of(&manifests::object("Deployment"))["spec"]["containers"][0];
    assert!(container["command"].is_null(), "the entry point is the image's");
    assert_eq!(command, manifests::args()[..1]);

    let ports = container["ports"].as_array().into_iter().flatten();
    let ports: BTreeSet<String> = ports.map(|port| port["containerPort"].to_string()).collect();
    let exposed = image.instructions.iter().filter(|instruction| instruction.name == "EXPOSE");
    let exposed: BTreeSet<String> =
        exposed.flat_map(|ports| ports.rest.split(' ').map(str::to_owned)).collect();
    assert_eq!(exposed, ports, "left: the Dockerfile, right: the Deployment");
}

#[test]
fn image_labels_match_cargo_metadata() {
    let file = dockerfile();
    let image = file.last();
    let version = env!("CARGO_PKG_VERSION");
    assert!(image.has("ARG", &format!("VERSION={version}")));
    let label = |name: &str, value: &str| {
        let label = format!("org.opencontainers.image.{name}=\"{value}\"");
        assert!(image.has("LABEL", &label), "{label}");
    };
    label("title", env!("CARGO_PKG_NAME"));
    label("description", env!("CARGO_PKG_DESCRIPTION"));
    label("licenses", env!("CARGO_PKG_LICENSE"));
    label("version", "$VERSION");
    label("revision", "$REVISION");
    label("created", "$CREATED");
    for place in ["source", "url"] {
        label(place, "https://github.com/supercargo-dev/supercargo");
    }
    let head = fs::read_to_string(root().join("Dockerfile")).unwrap();
    assert!(
        head.contains(&format!("docker build -t {} .", install::image())),
        "the usage names another image"
    );
}
