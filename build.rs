//! Passes the version, with the commit, to the program.

use std::env;
use std::path::Path;
use std::process::Command;

/// Characters of a commit that are shown.
const SHOWN: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=SUPERCARGO_COMMIT");
    let given = env::var("SUPERCARGO_COMMIT").ok().filter(|commit| !["", "unknown"].contains(&&**commit));
    // A debug build would have to be built again after each commit.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| is_release.then(commit_of_git).flatten());
    println!("cargo::rustc-env=SUPERCARGO_VERSION={}", version(commit.as_deref()));
}

/// The version of the package, and the commit, if it is known.
pub(crate) fn version(commit: Option<&str>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    match commit {
        Some(commit) => format!("{version} ({})", commit.get(..SHOWN).unwrap_or(commit)),
        None => version.to_owned(),
    }
}

/// The checked-out commit; `None` without git or outside a checkout of this package.
pub(crate) fn commit_of_git() -> Option<String> {
    // A copy of the sources may lie in another repository.
    let top = Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if top != Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().ok()? {
        return None;
    }
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        println!("cargo::rerun-if-changed={path}");
    }
    git(&["rev-parse", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
