//! Building the programs from their Go modules, once, into a cache outside the source tree.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::assets::{Program, cache_root};
use crate::progress::{self, Build};
use crate::release::Release;

/// Build information besides the version. No commit applies, because the programs are built from
/// modules.
const ORIGIN: [(&str, &str); 3] = [
    ("gitCommit", "0000000000000000000000000000000000000000"),
    ("gitTreeState", "clean"),
    ("buildDate", "2026-01-01T00:00:00Z"),
];

/// The interval of progress lines during a build.
const REPORT: Duration = Duration::from_secs(30);

/// The folder for the programs that one Go module builds with one toolchain.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    pub(crate) dir: PathBuf,
}

impl Cache {
    /// The cache that holds `program`. The key of each module is computed once, because that runs
    /// `go`.
    pub(crate) fn of(program: Program) -> Result<Self> {
        type Sources = (PathBuf, &'static [&'static str]);
        static KNOWN: Mutex<Option<HashMap<Sources, Cache>>> = Mutex::new(None);
        let sources = (program.module(), program.sources());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        if let Some(cache) = known.get(&sources) {
            return Ok(cache.clone());
        }
        let cache = Self { dir: cache_root()?.join("controlplane").join(key(program)?) };
        known.insert(sources, cache.clone());
        Ok(cache)
    }
}

/// The program's path in the cache. Builds the program if it is missing.
pub(crate) fn find_or_build(program: Program) -> Result<PathBuf> {
    let cache = Cache::of(program)?;
    let path = cache.dir.join(program.name());
    if path.is_file() {
        return Ok(path);
    }
    fs::create_dir_all(&cache.dir).with_context(|| {
        format!("make {} (set SUPERCARGO_CACHE_DIR to a writable folder)", cache.dir.display())
    })?;
    let _lock = lock(&cache.dir.join(format!("{}.lock", program.name())), program)?;
    if !path.is_file() {
        build(program, &path)?;
    }
    Ok(path)
}

/// Runs `go` in a module folder and returns its output.
pub(crate) fn go(module: &Path, args: &[&str]) -> Result<String> {
    go_with_input(module, args, Stdio::null())
}

/// [`go`] with an input.
pub(crate) fn go_with_input(module: &Path, args: &[&str], input: Stdio) -> Result<String> {
    ensure!(!is_without_go(), "SUPERCARGO_NO_GO=1: Go does not run");
    let output = go_command(module, args).stdin(input).output().map_err(explain_start)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`go {}` failed: {}", args.join(" "), explain_failure(&errors));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether this is a run of unit tests, which need neither Go nor the network.
fn is_without_go() -> bool {
    std::env::var_os("SUPERCARGO_NO_GO").is_some_and(|value| value == "1")
}

fn go_command(module: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("go");
    // Ignores a workspace or vendored tree around this one.
    command.args(args).current_dir(module).env("GOWORK", "off").env("CGO_ENABLED", "0").stdin(Stdio::null());
    command
}

fn key(program: Program) -> Result<String> {
    let module = &program.module();
    let read = |name: &str| {
        let path = module.join(name);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    };
    let toolchain = go(module, &["env", "GOVERSION", "GOOS", "GOARCH"])?;
    let mut parts = vec![read("go.mod")?, read("go.sum")?, ldflags(program.release()), toolchain];
    for source in program.sources() {
        parts.push(read(source)?);
    }
    let hash = fnv1a(&parts);
    Ok(format!("{hash:016x}"))
}

fn fnv1a(parts: &[String]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The linker's flags: no debug information, and a version, because clients reject a server without
/// a valid version.
fn ldflags(release: Release) -> String {
    let (major, minor) = release.minor().split_once('.').unwrap_or((release.minor(), ""));
    let version = [("gitVersion", release.version()), ("gitMajor", major), ("gitMinor", minor)];
    version.iter().chain(&ORIGIN).fold("-s -w".to_owned(), |flags, (name, value)| {
        flags + &format!(" -X k8s.io/component-base/version.{name}={value}")
    })
}

/// Locks a file. The system releases the lock with the file, so also when its holder is killed.
fn lock(path: &Path, program: Program) -> Result<File> {
    let file = File::create(path).with_context(|| format!("make {}", path.display()))?;
    if file.try_lock().is_err() {
        progress::say(&format!("waiting for another process that builds {}", program.name()));
        file.lock().with_context(|| format!("lock {}", path.display()))?;
    }
    Ok(file)
}

fn build(program: Program, path: &Path) -> Result<()> {
    let name = program.name();
    let scratch = tempfile::Builder::new()
        .prefix(".building-")
        .tempdir_in(path.parent().context("a cached program has a folder")?)
        .context("make a folder to build in")?;
    let (built, log) = (scratch.path().join(name), scratch.path().join("log"));
    let running = Build::begin(program);
    compile(program, &built, &log, &|| running.still_running())
        .with_context(|| format!("build {name} in {}", program.module().display()))?;
    fs::rename(&built, path).with_context(|| format!("move {name} to {}", path.display()))?;
    running.finish();
    Ok(())
}

fn compile(program: Program, built: &Path, log: &Path, report: &dyn Fn()) -> Result<()> {
    let output = built.to_str().context("the cache folder's path is not UTF-8: set SUPERCARGO_CACHE_DIR")?;
    let ldflags = ldflags(program.release());
    let args = ["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", &ldflags, "-o", output];
    let stderr = File::create(log).context("make a build log")?;
    let mut child = go_command(&program.module(), &args)
        .arg(program.package())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .map_err(explain_start)?;
    let mut reported = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().context("wait for go")? {
            break status;
        }
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            report();
        }
        thread::sleep(Duration::from_millis(100));
    };
    if !status.success() {
        bail!("{}", explain_failure(&fs::read_to_string(log).unwrap_or_default()));
    }
    Ok(())
}

fn explain_start(error: std::io::Error) -> anyhow::Error {
    let missing = error.kind() == ErrorKind::NotFound;
    let error = anyhow::Error::new(error);
    if missing {
        error.context("Go is not installed: install the version go.mod asks for, or set KUBEBUILDER_ASSETS")
    } else {
        error.context("`go` does not start")
    }
}

fn explain_failure(errors: &str) -> String {
    const NO_NETWORK: [&str; 5] =
        ["dial tcp", "no such host", "i/o timeout", "module lookup disabled", "connection refused"];
    let advice = if NO_NETWORK.iter().any(|sign| errors.contains(sign)) {
        "the Go modules cannot be fetched: check the network or GOPROXY, or set KUBEBUILDER_ASSETS"
    } else if errors.contains("requires go >=") {
        "Go is too old: install the version go.mod asks for, or set GOTOOLCHAIN=auto"
    } else if errors.contains("no space left") {
        "the disk is full: Go's build cache needs some 3 GB"
    } else {
        "see the last lines of `go`"
    };
    let lines: Vec<&str> = errors.lines().collect();
    format!("{advice}\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::{explain_failure, ldflags};
    use crate::release::Release;

    #[test]
    fn build_failures_give_advice() {
        assert!(explain_failure("dial tcp: lookup: no such host").contains("GOPROXY"));
        assert!(explain_failure("x.go:1: syntax error").contains("syntax error"));
    }

    #[test]
    fn version_is_linked_in() {
        let flags = ldflags(Release::Baseline);
        assert!(flags.contains("-X k8s.io/component-base/version.gitVersion=v1.37.2"), "{flags}");
        let flags = ldflags(Release::V1_34);
        assert!(flags.contains(" -X k8s.io/component-base/version.gitMinor=34 "), "{flags}");
    }
}
