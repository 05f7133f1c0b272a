//! CustomResourceDefinitions of other projects.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::build;

/// The module of the definitions, which the Go module in `prometheus/` requires.
const PROMETHEUS_OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator";

/// The CustomResourceDefinitions of ServiceMonitor and PrometheusRule in the Prometheus operator's
/// module.
pub fn prometheus_operator_crds() -> Result<[PathBuf; 2]> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("prometheus");
    build::go(&module, &["mod", "download", PROMETHEUS_OPERATOR])?;
    let source = build::go(&module, &["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", PROMETHEUS_OPERATOR])?;
    let folder = Path::new(&source).join("example").join("prometheus-operator-crd");
    let file = |kind: &str| folder.join(format!("monitoring.coreos.com_{kind}.yaml"));
    let files = [file("servicemonitors"), file("prometheusrules")];
    for file in &files {
        ensure!(file.is_file(), "{} is not there: another version of the module?", file.display());
    }
    Ok(files)
}
