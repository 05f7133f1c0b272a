//! The workflows are valid: pinned actions, valid scripts, existing files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::install;
use crate::rbac::manifests::{self, text};
use xtask::workspace::items;

const WORKFLOWS: &[&str] = &["ci.yml", "e2e-kind.yml", "release.yml", "simulation.yml"];

/// The scripts that workflows run.
const SCRIPTS: &[&str] = &[".ci/archives", ".ci/notes", ".ci/run", ".ci/version", "tests/kind/run.sh"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn folder() -> std::path::PathBuf {
    root().join(".github/workflows")
}

fn workflow(name: &str) -> Value {
    manifests::parse(&folder().join(name))
}

/// The jobs of a workflow with their names.
fn jobs(workflow: &Value) -> impl Iterator<Item = (&String, &Value)> {
    workflow["jobs"].as_object().expect("jobs by name").iter()
}

/// The workflow of this repository that a job calls instead of having steps.
fn called(job: &Value) -> Option<&str> {
    job["uses"].as_str().map(|path| path.strip_prefix("./.github/workflows/").expect("a workflow of ours"))
}

fn steps(workflow: &Value) -> impl Iterator<Item = &Value> {
    jobs(workflow).flat_map(|(_, job)| job["steps"].as_array().into_iter().flatten())
}

/// Whether bash accepts this.
fn is_bash(script: &str) -> bool {
    Command::new("bash").args(["-n", "-c", script]).output().unwrap().status.success()
}

#[test]
fn workflow_list_is_complete() {
    let found: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, WORKFLOWS.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
fn jobs_have_timeout_runner_and_permissions() {
    for name in WORKFLOWS {
        let workflow = workflow(name);
        let top = workflow["permissions"].as_object().unwrap_or_else(|| panic!("{name} has no permissions"));
        assert!(top.values().all(|right| right == "read"), "{name}: {top:?}");
        for (job, what) in jobs(&workflow).filter(|(_, what)| called(what).is_none()) {
            assert!(what["timeout-minutes"].is_u64(), "{name}: {job} may run for ever");
            let runner = text(&what["runs-on"]);
            assert!(
                runner.starts_with("ubuntu-") && runner != "ubuntu-latest",
                "{name}: {job} runs on {runner}"
            );
            if top.is_empty() {
                assert!(what["permissions"].is_object(), "{name}: {job} has no permissions");
            }
        }
    }
}

#[test]
fn actions_are_pinned_by_commit_with_version() {
    for name in WORKFLOWS {
        let source = fs::read_to_string(folder().join(name)).unwrap();
        let mut used = 0;
        let lines = source.lines().filter_map(|line| line.split_once("uses: ")).map(|(_, line)| line);
        for line in lines.filter(|line| !line.starts_with("./")) {
            let (action, version) =
                line.split_once(" # v").unwrap_or_else(|| panic!("{name}: {line}: which version?"));
            let (_, commit) =
                action.split_once('@').unwrap_or_else(|| panic!("{name}: {line}: which commit?"));
            assert!(
                commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{name}: {line}"
            );
            assert_eq!(
                version.split('.').filter(|part| part.parse::<u32>().is_ok()).count(),
                3,
                "{name}: {line}"
            );
            used += 1;
        }
        assert_eq!(used, steps(&workflow(name)).filter(|step| step["uses"].is_string()).count(), "{name}");
    }
}

#[test]
fn scripts_are_valid_bash_and_name_existing_files() {
    let mut called = BTreeSet::new();
    for name in WORKFLOWS {
        for step in steps(&workflow(name)) {
            let Some(script) = step["run"].as_str() else {
                assert!(step["uses"].is_string(), "{name}: {step}");
                continue;
            };
            assert!(is_bash(script), "{name}: no bash: {script}");
            // The runner inserts expressions into a script before bash reads it.
            assert!(!script.contains("${{"), "{name}: an expression in a script: {script}");
            for word in script.split(|letter: char| letter.is_whitespace() || "\"'()$;".contains(letter)) {
                let is_ours =
                    [".ci/", "tests/", "manifests/", "charts/"].iter().any(|folder| word.starts_with(folder));
                if is_ours {
                    assert!(root().join(word).exists(), "{name}: there is no {word}");
                    called.extend(SCRIPTS.iter().find(|script| **script == word));
                }
            }
        }
    }
    assert_eq!(called, SCRIPTS.iter().collect());
    for script in SCRIPTS {
        let source = fs::read_to_string(root().join(script)).unwrap();
        assert!(is_bash(&source), "{script} is no bash");
    }
    assert!(!is_bash("if true; then"), "bash takes anything");
}

#[test]
fn ci_runs_every_stage() {
    let script = fs::read_to_string(root().join(".ci/run")).unwrap();
    let stages = script.lines().filter_map(|line| Some(line.strip_prefix("stage_")?.split_once("()")?.0));
    let ci = workflow("ci.yml");
    let jobs = items(&ci["jobs"]["stages"]["strategy"]["matrix"]["include"]);
    let run: BTreeSet<&str> = jobs.flat_map(|job| text(&job["stages"]).split(' ')).collect();
    assert_eq!(run, stages.collect());
}

#[test]
fn published_images_match_the_manifests() {
    let release = workflow("release.yml");
    let image = install::image();
    let (name, _) = image.rsplit_once(':').unwrap();
    assert_eq!(release["env"]["IMAGE"], name);
    for step in steps(&release)
        .filter(|step| step["uses"].as_str().is_some_and(|uses| uses.starts_with("docker/build")))
    {
        assert_eq!(step["with"]["platforms"], "linux/amd64,linux/arm64");
        for argument in ["VERSION=", "REVISION=", "CREATED="] {
            assert!(text(&step["with"]["build-args"]).contains(argument), "{argument}");
        }
    }
}

#[test]
fn called_workflows_exist_and_get_requested_permissions_only() {
    let mut count = 0;
    for name in WORKFLOWS {
        for (job, what) in jobs(&workflow(name)) {
            let Some(called) = called(what) else { continue };
            let called = workflow(called);
            assert!(called["on"].as_object().unwrap().contains_key("workflow_call"), "{name}: {job}");
            assert_eq!(what["permissions"], called["permissions"], "{name}: {job}");
            count += 1;
        }
    }
    assert_eq!(count, 1);
}

/// The jobs that must succeed before a job starts.
fn needs<'a>(workflow: &'a Value, job: &str) -> BTreeSet<&'a str> {
    let needed = &workflow["jobs"][job]["needs"];
    let several = needed.as_array().into_iter().flatten().map(text);
    let direct = needed.as_str().into_iter().chain(several);
    direct.flat_map(|job| needs(workflow, job).into_iter().chain([job])).collect()
}

#[test]
fn releases_need_ci_and_the_named_repository() {
    let release = workflow("release.yml");
    assert_eq!(called(&release["jobs"]["ci"]), Some("ci.yml"));
    let writes = |job: &Value| job["permissions"].as_object().unwrap().values().any(|right| right == "write");
    let publishing: Vec<&String> =
        jobs(&release).filter(|(_, what)| writes(what)).map(|(job, _)| job).collect();
    assert_eq!(publishing, ["image", "release"]);
    for job in publishing {
        assert_eq!(needs(&release, job).intersection(&["check", "ci"].into()).count(), 2, "{job}");
    }
    let repository = text(&release["env"]["IMAGE"]).trim_start_matches("ghcr.io/");
    assert_eq!(release["jobs"]["check"]["if"], format!("github.repository == '{repository}'"));
}

/// The output of a script, or its error.
fn run(script: &str, argument: &str) -> Result<String, String> {
    let output = Command::new(root().join(script)).arg(argument).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn release_tag_must_match_the_version() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(run(".ci/version", &format!("v{version}")), Ok(version.to_owned()));
    for tag in ["v99.0.0", version, ""] {
        let error = run(".ci/version", tag).unwrap_err();
        assert!(error.starts_with(&format!("Cargo.toml says {version}")), "{error}");
    }
}

#[test]
fn release_notes_are_the_changelog_section() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    // The unreleased version, or the last released one.
    let newest = changelog.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    let notes = run(".ci/notes", newest).unwrap();
    assert!(notes.starts_with("### "), "{notes}");
    assert!(!notes.contains("\n## "), "{notes}");
    let error = run(".ci/notes", "99.0.0").unwrap_err();
    assert_eq!(error, "CHANGELOG.md has nothing under \"## 99.0.0\"");
}

#[test]
fn kind_clusters_cover_every_supported_version() {
    let workflow = workflow("e2e-kind.yml");
    let rows: Vec<&Value> = items(&workflow["jobs"]["kind"]["strategy"]["matrix"]["include"]).collect();
    let versions: Vec<&str> = rows.iter().map(|row| text(&row["kubernetes"])).collect();
    assert_eq!(versions, ["1.34", "1.35", "1.36", "1.37"]);
    for row in rows {
        let node = text(&row["node"]);
        let tag = format!("kindest/node:v{}.", text(&row["kubernetes"]));
        assert!(node.starts_with(&tag) && node.contains("@sha256:"), "{node}");
    }
}
