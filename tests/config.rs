//! Configuration files and flags of the program: output, and errors.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

// Its `main` runs in the build.
#[path = "../build.rs"]
#[allow(dead_code)]
mod build_script;
mod upstream;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use supercargo_config::{Catalog, Config};

use crate::support::{command, output};

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn file(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("config.yaml");
    fs::write(&path, format!("{HEAD}{text}")).unwrap();
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Its output on success.
fn printed(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = output(args);
    assert_eq!(status.code(), Some(0), "{args:?}: {}", text(&stderr));
    text(&stdout)
}

/// Its error output and exit code.
fn refused(args: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } = output(args);
    assert!(!status.success() && stdout.is_empty(), "{args:?}: {}", text(&stdout));
    (status.code().unwrap(), text(&stderr))
}

#[test]
fn default_configuration_is_printed() {
    let default = Config::default_with(&Catalog::in_tree()).unwrap();
    assert_eq!(printed(&["config", "default"]), default.to_yaml());
    assert_eq!(printed(&["config", "show"]), default.to_yaml());
    let json: serde_json::Value =
        serde_json::from_str(&printed(&["config", "default", "-o", "json"])).unwrap();
    assert_eq!(json, default.to_value());
}

#[test]
fn config_file_is_printed_with_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "profiles: [{schedulerName: mine}]\nparallelism: 3\n");
    let shown = printed(&["config", "show", path.to_str().unwrap()]);
    let config = Config::parse("shown.yaml", &shown, &Catalog::in_tree()).unwrap();
    assert_eq!((&*config.profiles[0].scheduler_name, config.parallelism), ("mine", 3));
    assert_eq!(config.to_yaml(), shown);
}

#[test]
fn feature_gates_affect_output_and_validation() {
    let folder = tempfile::tempdir().unwrap();
    let args = "pluginConfig: [{name: VolumeBinding, args: {shape: [{utilization: 0, score: 5}]}}]";
    let path = file(folder.path(), &format!("profiles:\n- {args}\n"));
    let path = path.to_str().unwrap();
    let gate = "--feature-gates=StorageCapacityScoring=false";
    assert_eq!(printed(&["config", "validate", path]), format!("{path}: valid\n"));
    assert!(refused(&["config", "validate", path, gate]).1.contains("StorageCapacityScoring"));
    assert!(printed(&["config", "default"]).contains("utilization: 100"));
    assert!(!printed(&["config", "default", gate]).contains("utilization: 100"));
}

#[test]
fn every_config_error_is_reported_on_its_own_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "parallelism: 0\nprofiles:\n- plugins:\n    filtr: {}\n");
    let path = path.to_str().unwrap();
    let (code, reported) = refused(&["config", "validate", path]);
    assert_eq!(code, 1);
    let expected = format!(
        "{path}:3:14: parallelism: must be greater than 0, is 0\n\
         {path}:6:5: profiles[0].plugins.filtr: unknown field; did you mean \"filter\"?\n"
    );
    assert_eq!(reported, expected);
}

#[test]
fn every_error_of_plugin_arguments_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let args = |plugin: &str, args: &str| format!("  - {{name: {plugin}, args: {{{args}}}}}\n");
    let text = "profiles:\n- pluginConfig:\n".to_owned()
        + &args("NodeResourcesFit", "ignoredResources: [a b, c, d e], ignoredResourceGroups: [f/g], size: 1")
        + &args("DefaultPreemption", "minCandidateNodesPercentage: 200, minCandidateNodesAbsolute: -1")
        + &args("InterPodAffinity", "hardPodAffinityWeight: 101, ignorePreferredTermsOfExistingPods: 1");
    let path = file(folder.path(), &text);
    let (code, reported) = refused(&["config", "validate", path.to_str().unwrap()]);
    assert_eq!(code, 1);
    for field in [
        "args.ignoredResources[0]",
        "args.ignoredResources[2]",
        "args.ignoredResourceGroups[0]",
        "args.size",
        "args.minCandidateNodesPercentage",
        "args.minCandidateNodesAbsolute",
        "args.hardPodAffinityWeight",
        "args.ignorePreferredTermsOfExistingPods",
    ] {
        assert_eq!(reported.matches(&format!(".{field}: ")).count(), 1, "{field}:\n{reported}");
    }
    assert_eq!(reported.lines().count(), 8, "{reported}");
}

#[test]
fn configuration_is_read_from_standard_input() {
    let validate = |text: &str| {
        let mut child = command(["config", "validate", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    assert_eq!(text(&validate(HEAD).stdout), "<stdin>: valid\n");
    let wrong = validate(&format!("{HEAD}parallelism: 0\n"));
    assert_eq!(wrong.status.code(), Some(1));
    assert_eq!(text(&wrong.stderr), "<stdin>:3:14: parallelism: must be greater than 0, is 0\n");
}

#[test]
fn write_config_to_writes_and_exits() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "leaderElection: {leaseDuration: 20s}\n");
    let written = folder.path().join("written.yaml");
    let config = format!("--config={}", path.display());
    let to = format!("--write-config-to={}", written.display());
    let reported =
        output(&["run", &config, &to, "--leader-elect-retry-period=3s", "--kube-api-qps=5", "--vmodule=a=3"]);
    assert_eq!(reported.status.code(), Some(0), "{}", text(&reported.stderr));
    let found = Config::load(&written, &Catalog::in_tree()).unwrap();
    let election = &found.leader_election;
    assert_eq!((election.lease_duration.as_secs(), election.retry_period.as_secs()), (20, 3));
    assert_eq!(found.client_connection.qps, None, "a deprecated flag does not count beside a file");
    let reported = text(&reported.stdout) + &text(&reported.stderr);
    for warning in ["--kube-api-qps is ignored", "--vmodule is ignored"] {
        assert!(reported.contains(warning), "{warning} is not in\n{reported}");
    }
}

#[test]
fn invalid_command_line_is_rejected_with_a_suggestion() {
    for (args, message) in [
        (&["run", "--secure-prt=1"][..], "--secure-port"),
        (&["run", "now"], "unexpected argument 'now'"),
        (&["run", "--feature-gates=AllBetas=true"], "unrecognized feature gate: AllBetas; did you mean"),
        (&["run", "--feature-gates=SidecarContainers=true"], "Kubernetes 1.37 removed it"),
        (
            &["run", "--feature-gates=DRADerivedAttributes=true"],
            "DRADerivedAttributes is not supported by supercargo yet",
        ),
        (
            &["run", "--leader-elect-lease-duration=1s"],
            "--leader-elect-lease-duration (1s) must be longer than --leader-elect-renew-deadline (10s)",
        ),
        (
            &["run", "--leader-elect", "true"],
            "tip: a boolean flag takes its value after '=': --leader-elect=true",
        ),
        (&["run", "--log-level=loud"], "--log-level: \"loud\" is not a log level"),
        (&["config", "validate"], "<FILE>"),
        (&["man", "nope"], "error: no subcommand \"nope\""),
    ] {
        let (code, reported) = refused(args);
        assert_eq!(code, 2, "{args:?}: {reported}");
        assert!(reported.contains(message), "{args:?}: {reported}");
    }
}

#[test]
fn invalid_log_level_of_the_environment_names_the_variable() {
    let output = command(["config", "default"]).env("SUPERCARGO_LOG", "foo=bar=baz").output().unwrap();
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{reported}");
    assert!(reported.starts_with("error: SUPERCARGO_LOG: \"foo=bar=baz\" is not a log level"), "{reported}");
}

#[test]
fn version_names_the_commit_if_it_is_known() {
    let version = format!("supercargo {}", env!("CARGO_PKG_VERSION"));
    let reported = printed(&["--version"]);
    let commit = reported.trim_end().strip_prefix(&version).unwrap_or_else(|| panic!("{reported}"));
    assert!(commit.is_empty() || (commit.starts_with(" (") && commit.ends_with(')')), "{reported}");
    let package = env!("CARGO_PKG_VERSION");
    assert_eq!(build_script::version(None), package);
    assert_eq!(build_script::version(Some("0123456789abcdef")), format!("{package} (0123456789ab)"));
    assert_eq!(build_script::version(Some("v1")), format!("{package} (v1)"));
    // Without git or a checkout there is no commit.
    let commit = build_script::commit_of_git();
    assert!(commit.is_none_or(|commit| commit.len() == 40), "no commit");
}

#[test]
fn install_guide_builds_images_that_know_their_commit() {
    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/install.md")).unwrap();
    let builds = guide.lines().filter(|line| line.starts_with("    docker build"));
    let mut builds = builds.peekable();
    assert!(builds.peek().is_some(), "no image is built");
    for build in builds {
        assert!(build.contains("--build-arg REVISION=$(git rev-parse HEAD) "), "{build}");
    }
}

#[test]
fn every_command_prints_the_same_version() {
    for args in [&["run", "--version"][..], &["config", "validate", "-V"]] {
        assert_eq!(printed(args), printed(&["--version"]), "{args:?}");
    }
}

#[test]
fn help_and_version_that_cannot_be_written_are_failures() {
    for args in [&["--help"][..], &["run", "--help"], &["help", "why"], &["--version"], &["run", "--version"]]
    {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let ended = command(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let reported = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {reported}");
        assert!(reported.starts_with("error: cannot write to standard output: "), "{args:?}: {reported}");
    }
}

#[test]
fn completions_and_manual_pages_are_printed() {
    assert!(printed(&["man", "config", "validate"]).contains("KubeSchedulerConfiguration"));
    assert!(printed(&["completions", "bash"]).contains("--leader-elect-lease-duration"));
}

#[test]
fn configuration_docs_name_every_flag_and_field() {
    let document =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md")).unwrap();
    let help = printed(&["run", "--help"]);
    let flags = help.split_whitespace().filter_map(|word| {
        let flag = word.strip_prefix("--")?;
        Some(
            flag.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
                .next()
                .unwrap_or_default(),
        )
    });
    let missing: Vec<&str> =
        flags.filter(|flag| !flag.is_empty() && !document.contains(&format!("`--{flag}`"))).collect();
    assert!(missing.is_empty(), "docs/configuration.md does not name {missing:?}");
    let default = Config::default_with(&Catalog::in_tree()).unwrap().to_value();
    let fields =
        default.as_object().unwrap().keys().filter(|field| !["apiVersion", "kind"].contains(&&***field));
    let missing: Vec<_> = fields.filter(|field| !document.contains(&format!("`{field}"))).collect();
    assert!(missing.is_empty(), "docs/configuration.md does not name {missing:?}");
}

#[test]
fn closed_standard_error_does_not_change_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    for (content, expected) in [("parallelism: x\n", 1), ("enableContentionProfiling: true\n", 0)] {
        let path = file(folder.path(), content);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command(["config", "validate", path.to_str().unwrap()]);
        let status = command.stdout(Stdio::null()).stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(expected), "{content}");
    }
}
