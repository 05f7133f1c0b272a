//! The demo's in-memory API server.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use supercargo_apiserver::{ApiServer, Endpoint, Listen, Settings, sim};
use tempfile::TempDir;

use supercargo_client::connection::connect;

/// An API server on loopback, with a kubeconfig in a temporary folder. Both end with this value.
pub(crate) struct Server {
    connection: kube::Config,
    kubeconfig: PathBuf,
    /// Kubelets and workload controllers.
    _simulation: sim::Simulation,
    _endpoint: Endpoint,
    _folder: TempDir,
}

impl Server {
    /// Starts the server.
    pub(crate) async fn start() -> Result<Self> {
        let api = ApiServer::new(Settings { pod_groups: true, ..Settings::default() });
        let simulation = api.simulate(&sim::Options::default());
        let endpoint = api.listen(Listen::default()).await.context("cannot listen on loopback")?;
        let folder = tempfile::Builder::new().prefix("supercargo-demo-").tempdir();
        let folder = folder.context("cannot create a folder for the kubeconfig")?;
        let kubeconfig = folder.path().join("kubeconfig");
        endpoint.write_kubeconfig(&kubeconfig).with_context(|| kubeconfig.display().to_string())?;
        let connection = connect(Some(&kubeconfig)).await?;
        Ok(Self { connection, kubeconfig, _simulation: simulation, _endpoint: endpoint, _folder: folder })
    }

    /// The connection for this process.
    pub(crate) fn connection(&self) -> kube::Config {
        self.connection.clone()
    }

    /// The kubeconfig for other processes.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}
