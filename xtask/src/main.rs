//! `cargo xtask`: what to run while changing supercargo.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use xtask::root;
use xtask::workspace::{Workspace, cargo};

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  check    format, clippy and unit tests of the packages that differ from HEAD,
           and the workspace's rules
  test     unit tests of all packages; they need neither Go nor the network
  parity   every scenario on the API server in memory
  simulate the whole system under seeds, with faults; --help lists the options
  full     what CI runs by itself (.ci/run)
";

type Step = Result<(), String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let began = Instant::now();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["check"] => check(),
        ["test"] => test(),
        ["parity"] => parity(),
        ["simulate", ..] => simulate(&arguments[1..]),
        ["full"] => run(Command::new(root().join(".ci/run"))),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => {
            eprintln!("xtask: passed in {} s", began.elapsed().as_secs());
            ExitCode::SUCCESS
        }
        Err(step) => {
            eprintln!("xtask: failed: {step}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Step {
    let workspace = Workspace::load();
    let changed = changed_packages(&workspace)?;
    run(subcommand("fmt", &["--all", "--", "--check"]))?;
    if changed.is_empty() {
        eprintln!("xtask: no package differs from HEAD");
    } else {
        let packages: Vec<&str> = changed.iter().flat_map(|name| ["--package", name]).collect();
        run(subcommand("clippy", &[&packages[..], &["--all-targets", "--", "-D", "warnings"]].concat()))?;
        let tested = with_testing_packages(&changed);
        let packages: Vec<&str> = tested.iter().flat_map(|name| ["--package", name]).collect();
        run(unit_tests(&packages))?;
    }
    run(subcommand("test", &["--package", "xtask"]))
}

/// Packages whose behaviour another package tests.
const TESTED_BY: &[(&str, &str)] = &[
    ("supercargo-devices", "supercargo-dynamic-resources"),
    ("supercargo-devices", "supercargo-plugins"),
    ("supercargo-dynamic-resources", "supercargo-plugins"),
    ("supercargo-evaluation", "supercargo-scheduler"),
    ("supercargo-runtime", "supercargo-scheduler"),
    ("supercargo-volume-plugins", "supercargo-plugins"),
];

/// These packages, and those that test them.
fn with_testing_packages(changed: &BTreeSet<String>) -> BTreeSet<&str> {
    let testing = TESTED_BY.iter().filter(|(name, _)| changed.contains(*name)).map(|(_, by)| *by);
    changed.iter().map(String::as_str).chain(testing).collect()
}

fn test() -> Step {
    run(unit_tests(&["--workspace"]))?;
    run(subcommand("test", &["--package", "xtask"]))
}

/// The unit tests of these packages. A few in the crates for tests would need Go: they are skipped.
fn unit_tests(packages: &[&str]) -> Command {
    let mut command = subcommand("test", &[packages, &["--lib", "--bins"]].concat());
    command.env("SUPERCARGO_NO_GO", "1");
    command
}

fn parity() -> Step {
    run(subcommand("test", &["--test", "integration", "--", "parity::in_memory"]))
}

fn simulate(arguments: &[String]) -> Step {
    let mut command =
        subcommand("run", &["--quiet", "--release", "--package", "supercargo-simulation", "--"]);
    command.args(arguments);
    run(command)
}

/// The packages with files that differ from HEAD, those that git does not track yet included.
fn changed_packages(workspace: &Workspace) -> Result<BTreeSet<String>, String> {
    let mut packages = BTreeSet::new();
    for arguments in [&["diff", "--name-only", "HEAD"][..], &["ls-files", "--others", "--exclude-standard"]] {
        for path in git(arguments)?.lines() {
            packages.extend(package_of(workspace, Path::new(path)).map(str::to_owned));
        }
    }
    Ok(packages)
}

/// The package in whose folder a file is; the innermost where packages are nested.
fn package_of<'a>(workspace: &'a Workspace, path: &Path) -> Option<&'a str> {
    let folders = workspace.folders();
    // Text outside the other packages' folders changes no unit test.
    let is_code = |folder: &Path| {
        !folder.as_os_str().is_empty() || ["src", "tests", "Cargo.toml"].iter().any(|it| path.starts_with(it))
    };
    folders
        .into_iter()
        .filter(|(_, folder)| path.starts_with(folder) && is_code(folder))
        .max_by_key(|(_, folder)| folder.components().count())
        .map(|(name, _)| name)
}

fn git(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).current_dir(root()).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {}", arguments.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn subcommand(name: &str, arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.arg(name).args(arguments);
    command
}

/// Runs a command, says which, and fails when it fails.
fn run(mut command: Command) -> Step {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    eprintln!("xtask: {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(line),
        Err(error) => Err(format!("{line}: {error}")),
    }
}
