//! Where the control plane's programs are.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::build::{self, Cache};
use crate::release::Release;

/// A program of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The store of the API server.
    Etcd,
    /// The API server of a release.
    KubeApiserver(Release),
    /// Upstream's scheduler.
    KubeScheduler,
    /// The controllers.
    KubeControllerManager,
    /// The simulated kubelets.
    Kwok,
    /// The command line.
    Kubectl,
    /// Helm's packages; renders and lints a chart (`helm/`).
    Helm,
    /// client-go's shared informers; prints their content (`clientgo/`).
    ClientGo,
    /// client-go's shared informers, for benchmarks (`informerbench/`).
    InformerBench,
    /// Upstream's scheduler package; plays histories and prints its decisions (`oracle/`).
    Oracle,
    /// Upstream's device selectors and device allocator (`devicesoracle/`).
    DevicesOracle,
    /// Upstream's scheduler package, for benchmarks (`schedbench/`).
    SchedBench,
}

impl Program {
    /// The programs that `.ci/run` needs: all except [`Program::SchedBench`], for one benchmark,
    /// and the API servers between the oldest release and the baseline.
    pub const ALL: [Self; 12] = [
        Self::Etcd,
        Self::KubeApiserver(Release::Baseline),
        Self::KubeScheduler,
        Self::KubeControllerManager,
        Self::Kubectl,
        Self::ClientGo,
        Self::InformerBench,
        Self::Oracle,
        Self::DevicesOracle,
        // After the programs of the baseline, because their modules share packages with it.
        Self::Kwok,
        Self::Helm,
        Self::KubeApiserver(Release::EARLIER[0]),
    ];

    /// The minimum for a control plane.
    const LEAST: [Self; 2] = [Self::Etcd, Self::KubeApiserver(Release::Baseline)];

    /// Its file name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver(release) => release.apiserver(),
            Self::KubeScheduler => "kube-scheduler",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Kwok => "kwok",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::ClientGo => "clientgo",
            Self::InformerBench => "informerbench",
            Self::Oracle => "oracle",
            Self::DevicesOracle => "devicesoracle",
            Self::SchedBench => "schedbench",
        }
    }

    /// The Go package that builds it.
    pub(crate) const fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver(_) => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Helm => "supercargo.dev/tests/controlplane/helm",
            Self::ClientGo => "supercargo.dev/tests/controlplane/clientgo",
            Self::InformerBench => "supercargo.dev/tests/controlplane/informerbench",
            Self::Oracle => "supercargo.dev/tests/controlplane/oracle",
            Self::DevicesOracle => "supercargo.dev/tests/controlplane/devicesoracle",
            Self::SchedBench => "supercargo.dev/tests/controlplane/schedbench",
        }
    }

    /// The Go module of this crate that requires the package.
    pub(crate) fn module(self) -> PathBuf {
        let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        crate_dir.join(match self {
            Self::Kwok => "kwok",
            Self::Helm => "helm",
            Self::KubeApiserver(release) => release.module(),
            _ => "",
        })
    }

    /// The Kubernetes release that it belongs to, or reports.
    pub(crate) const fn release(self) -> Release {
        match self {
            Self::KubeApiserver(release) => release,
            _ => Release::Baseline,
        }
    }

    /// Its source files in this crate.
    pub(crate) const fn sources(self) -> &'static [&'static str] {
        match self {
            Self::ClientGo => &["clientgo/main.go"],
            Self::Helm => &["main.go"],
            Self::InformerBench => {
                &["informerbench/main.go", "informerbench/pipeline.go", "informerbench/wire.go"]
            }
            Self::Oracle => &[
                "oracle/answer.go",
                "oracle/claims.go",
                "oracle/client.go",
                "oracle/cluster.go",
                "oracle/cycle.go",
                "oracle/extender.go",
                "oracle/features.go",
                "oracle/grouporder.go",
                "oracle/groups.go",
                "oracle/history.go",
                "oracle/log.go",
                "oracle/main.go",
                "oracle/oracle.s",
                "oracle/order.go",
                "oracle/preemption.go",
                "oracle/supervisor.go",
                "oracle/turnstile.go",
            ],
            Self::DevicesOracle => {
                &["devicesoracle/allocate.go", "devicesoracle/main.go", "devicesoracle/selectors.go"]
            }
            Self::SchedBench => &["schedbench/bench.go", "schedbench/group.go", "schedbench/main.go"],
            _ => &[],
        }
    }
}

/// The reason why no control plane is available, with advice.
#[derive(Debug)]
pub struct Unavailable(anyhow::Error);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no control plane: {:#}", self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Finds programs: in `KUBEBUILDER_ASSETS` first, then in the cache, which builds missing ones.
#[derive(Clone, Debug)]
pub struct Assets {
    given: Option<PathBuf>,
}

impl Assets {
    /// Reads and checks the environment. Builds nothing.
    pub fn locate() -> Result<Self> {
        let given = env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(dir) = &given {
            for program in Program::LEAST {
                let path = dir.join(program.name());
                ensure!(
                    path.is_file(),
                    "KUBEBUILDER_ASSETS is {}, but {} is not there: point it to a folder that has it, or unset it",
                    dir.display(),
                    program.name(),
                );
            }
        }
        Ok(Self { given })
    }

    /// Finds every program of `wanted`, and builds those that are missing, with progress on stderr.
    pub fn locate_or_build(wanted: &[Program]) -> Result<Self> {
        let assets = Self::locate()?;
        for program in wanted {
            assets.path(*program)?;
        }
        Ok(assets)
    }

    /// The minimum for a control plane: etcd and kube-apiserver.
    pub fn available() -> Result<Self, Unavailable> {
        Self::locate_or_build(&Program::LEAST).map_err(Unavailable)
    }

    /// The path of one program. Builds the program if it is missing.
    pub fn path(&self, program: Program) -> Result<PathBuf> {
        match self.given_path(program) {
            Some(path) => Ok(path),
            None => build::find_or_build(program),
        }
    }

    /// The programs of [`Program::ALL`] that are not built yet.
    pub(crate) fn missing(&self) -> Vec<Program> {
        let is_built = |program: Program| {
            self.is_given(program)
                || Cache::of(program).is_ok_and(|cache| cache.dir.join(program.name()).is_file())
        };
        Program::ALL.into_iter().filter(|program| !is_built(*program)).collect()
    }

    /// Whether `KUBEBUILDER_ASSETS` has this program; its version is unknown then.
    pub fn is_given(&self, program: Program) -> bool {
        self.given_path(program).is_some()
    }

    fn given_path(&self, program: Program) -> Option<PathBuf> {
        self.given.as_ref().map(|dir| dir.join(program.name())).filter(|path| path.is_file())
    }

    /// The cache folder of `program`'s Go module.
    pub fn cache_dir(program: Program) -> Result<PathBuf> {
        Ok(Cache::of(program)?.dir)
    }
}

/// The folder for all caches of this project.
pub(crate) fn cache_root() -> Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    set("SUPERCARGO_CACHE_DIR")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("supercargo")))
        .or_else(|| Some(set("HOME")?.join(".cache").join("supercargo")))
        .context("no place for built programs: set SUPERCARGO_CACHE_DIR")
}
