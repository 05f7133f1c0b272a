//! kube-scheduler.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::assets::Program;
use crate::component::Handle;
use crate::controlplane::ControlPlane;

/// The placeholder of the kubeconfig's path in [`SchedulerOptions::config_yaml`].
const KUBECONFIG: &str = "{kubeconfig}";

/// How to start kube-scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// A whole `KubeSchedulerConfiguration`. It must contain `clientConnection: {kubeconfig:
    /// "{kubeconfig}"}`; the part in braces is replaced by the path of [`user`](Self::user)'s
    /// kubeconfig. Leader election is always off. By default, a configuration with one profile
    /// named [`scheduler_name`](Self::scheduler_name).
    pub config_yaml: Option<String>,
    /// The name of the only profile without `config_yaml`; `default-scheduler` by default.
    pub scheduler_name: String,
    /// The user; `system:kube-scheduler` by default.
    pub user: String,
    /// The `-v` flag; 2 by default.
    pub verbosity: u8,
    /// Whether it logs JSON.
    pub json_log: bool,
    /// Further flags. They override ours.
    pub extra_args: Vec<String>,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            config_yaml: None,
            scheduler_name: "default-scheduler".to_owned(),
            user: "system:kube-scheduler".to_owned(),
            verbosity: 2,
            json_log: false,
            extra_args: Vec::new(),
        }
    }
}

impl SchedulerOptions {
    fn config(&self, kubeconfig: &Path) -> Result<String> {
        let kubeconfig = kubeconfig.display().to_string();
        let Some(config) = &self.config_yaml else {
            return Ok(json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": { "kubeconfig": kubeconfig },
                "profiles": [{ "schedulerName": self.scheduler_name }],
            })
            .to_string());
        };
        ensure!(
            config.contains(KUBECONFIG),
            "config_yaml does not say where the kubeconfig goes: add `clientConnection: {{kubeconfig: \"{KUBECONFIG}\"}}`"
        );
        Ok(config.replace(KUBECONFIG, &kubeconfig))
    }
}

impl ControlPlane {
    /// Starts kube-scheduler without endpoints.
    pub fn start_kube_scheduler(&self, options: &SchedulerOptions) -> Result<Handle> {
        let config = options.config(&self.kubeconfig(&options.user)?)?;
        self.start_component(Program::KubeScheduler, |name| {
            let path = self.dir().join(format!("{name}.yaml"));
            fs::write(&path, config).with_context(|| format!("write {}", path.display()))?;
            let mut args = vec![
                format!("--config={}", path.display()),
                "--leader-elect=false".to_owned(),
                "--secure-port=0".to_owned(),
                format!("-v={}", options.verbosity),
            ];
            if options.json_log {
                args.push("--logging-format=json".to_owned());
            }
            args.extend(options.extra_args.iter().cloned());
            Ok(args)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::SchedulerOptions;

    #[test]
    fn given_config_must_name_the_kubeconfig() {
        let with =
            |config: &str| SchedulerOptions { config_yaml: Some(config.to_owned()), ..Default::default() };
        let config =
            with("clientConnection: {kubeconfig: \"{kubeconfig}\"}").config(Path::new("/x")).unwrap();
        assert_eq!(config, "clientConnection: {kubeconfig: \"/x\"}");
        assert!(with("profiles: []").config(Path::new("/x")).is_err());
    }
}
