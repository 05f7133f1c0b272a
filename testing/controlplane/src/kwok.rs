//! Simulated kubelets.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::assets::Program;
use crate::build;
use crate::component::Handle;
use crate::controlplane::ControlPlane;

/// How to start kwok.
#[derive(Clone, Debug, Default)]
pub struct KwokOptions {
    /// Whether nodes renew their leases, which the node lifecycle controller needs. Off by default,
    /// because it is a write per node every few seconds.
    pub node_leases: bool,
    /// Further files with stages or other configuration.
    pub configs: Vec<PathBuf>,
    /// Further flags. They override ours.
    pub extra_args: Vec<String>,
}

impl ControlPlane {
    /// Starts kwok for all nodes with the annotation `kwok.x-k8s.io/node: fake`: the nodes become
    /// ready, their pods run, and deleted pods are removed.
    pub fn start_kwok(&self) -> Result<Handle> {
        self.start_kwok_with(&KwokOptions::default())
    }

    /// Starts kwok with options.
    pub fn start_kwok_with(&self, options: &KwokOptions) -> Result<Handle> {
        let kubeconfig = self.kubeconfig("admin")?;
        let stages = stages(options.node_leases)?;
        self.start_component(Program::Kwok, |_| {
            let mut args = vec![
                format!("--kubeconfig={}", kubeconfig.display()),
                "--manage-all-nodes=false".to_owned(),
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
                "--node-ip=127.0.0.1".to_owned(),
                format!("--node-lease-duration-seconds={}", if options.node_leases { 40 } else { 0 }),
            ];
            args.extend(
                stages.iter().chain(&options.configs).map(|path| format!("--config={}", path.display())),
            );
            args.extend(options.extra_args.iter().cloned());
            Ok(args)
        })
    }
}

/// The stage files of kwok's module.
fn stages(node_leases: bool) -> Result<Vec<PathBuf>> {
    let module = Program::Kwok.module();
    build::go(&module, &["mod", "download", "sigs.k8s.io/kwok"])?;
    let source = build::go(&module, &["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"])?;
    ensure!(!source.is_empty(), "kwok's module is not there: run `go mod download` in {}", module.display());
    let folder = Path::new(&source).join("kustomize").join("stage");
    let mut kinds = vec!["node/fast", "pod/fast"];
    if node_leases {
        kinds.push("node/heartbeat-with-lease");
    }
    let files: Vec<Vec<PathBuf>> =
        kinds.iter().map(|kind| stage_files(&folder.join(kind))).collect::<Result<_>>()?;
    Ok(files.concat())
}

fn stage_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("read {}", folder.display()))?.path();
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml");
        if is_yaml && path.file_name().is_some_and(|name| name != "kustomization.yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
