//! The controllers.

use anyhow::Result;

use crate::assets::Program;
use crate::component::Handle;
use crate::controlplane::ControlPlane;

impl ControlPlane {
    /// Starts kube-controller-manager as `admin`, with these controllers only (`replicaset-controller`, …; `*`
    /// for those that are on by default).
    pub fn start_controller_manager(&self, controllers: &[&str]) -> Result<Handle> {
        let kubeconfig = self.kubeconfig("admin")?;
        self.start_component(Program::KubeControllerManager, |_| {
            Ok(vec![
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--controllers={}", controllers.join(",")),
                format!("--service-account-private-key-file={}", self.certs.service_account_key.display()),
                format!("--root-ca-file={}", self.certs.ca.display()),
                "--leader-elect=false".to_owned(),
                "--secure-port=0".to_owned(),
                "--kube-api-qps=500".to_owned(),
                "--kube-api-burst=1000".to_owned(),
            ])
        })
    }
}
