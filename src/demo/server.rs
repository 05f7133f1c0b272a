//! The API server that the demo's cluster consists of.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::options::DemoOptions;
use crate::api::connect;

/// An API server. It ends with this value.
pub(crate) struct Server {
    kubeconfig: PathBuf,
    connection: kube::Config,
}

impl Server {
    /// Starts one.
    pub(crate) async fn start(options: &DemoOptions) -> Result<Self> {
        let kubeconfig = options.kubeconfig.clone().context("no API server: give --kubeconfig")?;
        let connection = connect(Some(&kubeconfig)).await?;
        Ok(Self { kubeconfig, connection })
    }

    /// How to reach it, for this process.
    pub(crate) fn connection(&self) -> kube::Config {
        self.connection.clone()
    }

    /// How to reach it, for others.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}
