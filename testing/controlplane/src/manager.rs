//! kube-controller-manager.

use anyhow::Result;

use crate::assets::Program;
use crate::component::Handle;
use crate::controlplane::ControlPlane;

/// How to start kube-controller-manager.
#[derive(Clone, Debug, Default)]
pub struct ManagerOptions {
    /// The enabled controllers (`replicaset-controller`, …); `*` for the default ones.
    pub controllers: Vec<String>,
    /// Further flags. They override ours.
    pub extra_args: Vec<String>,
}

impl ControlPlane {
    /// Starts kube-controller-manager as `admin` with these controllers (`replicaset-controller`,
    /// …; `*` for the default ones).
    pub fn start_controller_manager(&self, controllers: &[&str]) -> Result<Handle> {
        let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
        self.start_controller_manager_with(&ManagerOptions { controllers, ..ManagerOptions::default() })
    }

    /// Starts kube-controller-manager as `admin` with options.
    pub fn start_controller_manager_with(&self, options: &ManagerOptions) -> Result<Handle> {
        let kubeconfig = self.kubeconfig("admin")?;
        self.start_component(Program::KubeControllerManager, |_| {
            let mut args = vec![
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--controllers={}", options.controllers.join(",")),
                format!("--service-account-private-key-file={}", self.certs.service_account_key.display()),
                format!("--root-ca-file={}", self.certs.ca.display()),
                "--leader-elect=false".to_owned(),
                "--secure-port=0".to_owned(),
                "--kube-api-qps=500".to_owned(),
                "--kube-api-burst=1000".to_owned(),
            ];
            args.extend(options.extra_args.iter().cloned());
            Ok(args)
        })
    }
}
