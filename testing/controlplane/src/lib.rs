//! A real Kubernetes control plane for tests: etcd, kube-apiserver and, on request, kube-scheduler,
//! kube-controller-manager and kwok (simulated kubelets). Clients and tools are built in the same
//! way: kubectl, client-go's informers in a small program (`clientgo/`), upstream's scheduler
//! package, which plays histories (`oracle/`), its packages of devices (`devicesoracle/`), and
//! Helm's packages, which render a chart (`helm/`).
//! The Prometheus operator's module has the definitions of its kinds (`prometheus/`).
//!
//! The programs are built once from the Go modules in this crate (`go.mod`, `kwok/go.mod`,
//! `helm/go.mod`, and for the API servers of other releases `apiserver-*/go.mod`) into a cache
//! outside the source tree, or taken from `KUBEBUILDER_ASSETS`. All modules require the same
//! version of what they share, so that Go compiles it once: after a change of `go.mod`, align the
//! others. Builds report their progress on stderr. Everything listens on free ports on loopback and
//! ends with the process that started it, however that process ends.
//!
//! ```no_run
//! use supercargo_controlplane::{ControlPlane, Method, Options};
//!
//! # fn main() -> anyhow::Result<()> {
//! let plane = ControlPlane::start(Options::default())?;
//! let version = plane.request(Method::Get, "/version", None)?;
//! assert_eq!(version.status, 200);
//! # Ok(())
//! # }
//! ```
//!
//! A test binary with many tests shares one:
//!
//! ```no_run
//! # fn a_test() {
//! let Some(plane) = supercargo_controlplane::shared_or_skip() else { return };
//! let kubeconfig = plane.kubeconfig("admin").expect("admin is always a user");
//! # }
//! ```
//!
//! | Variable | Meaning |
//! |---|---|
//! | `KUBEBUILDER_ASSETS` | a folder with `etcd` and `kube-apiserver` (other programs there are used too) |
//! | `SUPERCARGO_CACHE_DIR` | where built programs are kept; else `$XDG_CACHE_HOME/supercargo`, `~/.cache/supercargo` |
//! | `SUPERCARGO_REQUIRE_CONTROLPLANE` | `1`: a test that cannot have a control plane fails, not skips |
//! | `SUPERCARGO_NO_GO` | `1`: tests that need Go are skipped, as in `cargo xtask test` |
//! | `SUPERCARGO_KEEP_CONTROLPLANE` | `1`: keep the working folder (logs, etcd data), and print its path |

mod apiserver;
mod assets;
mod build;
mod certs;
mod child_process;
mod component;
mod connection;
mod controlplane;
mod crds;
mod etcd;
mod http;
mod kubeconfig;
mod kwok;
mod manager;
mod oracle;
mod ports;
mod process;
mod progress;
mod release;
mod sched_bench;
mod scheduler;
mod shared;
#[cfg(test)]
mod tests;
mod tool;

pub use assets::{Assets, Program, Unavailable};
pub use child_process::ChildProcess;
pub use component::Handle;
pub use controlplane::{ControlPlane, Options};
pub use crds::prometheus_operator_crds;
pub use http::{Method, Response};
pub use kubeconfig::User;
pub use kwok::KwokOptions;
pub use manager::ManagerOptions;
pub use oracle::Oracle;
pub use release::Release;
pub use sched_bench::{SchedBench, SchedBenchInput, SchedBenchWriter};
pub use scheduler::SchedulerOptions;
pub use shared::{assets_or_skip, required, shared, shared_or_skip};
pub use tool::{run_tool, run_tool_or_skip};
