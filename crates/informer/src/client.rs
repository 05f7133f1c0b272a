//! Clients for informers: where the server is, and no retries beneath the reflector.

use std::path::{Path, PathBuf};

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The kubeconfig is no YAML of its sort. What is there is not told: it may be a token.
    #[error("kubeconfig {}{place}: not a kubeconfig", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// As `:3:14`, line and column, if known.
        place: String,
    },
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {}: {source}", .path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<KubeconfigError>,
    },
    /// There is no kubeconfig, and this is no pod with a service account either.
    #[error("not running in a cluster ({0}); give the path of a kubeconfig")]
    NotInCluster(#[source] Box<InClusterError>),
    /// The configuration is sound, but no client can be made of it, say because of a certificate.
    #[error("cannot make a client: {0}")]
    Client(#[source] Box<kube::Error>),
}

/// How to reach the API server: as the kubeconfig at this path says, or without one (`None` or empty) as a pod's
/// service account does; same as client-go's `BuildConfigFromFlags`.
///
/// kube's own retries are off: beneath an informer they would hide for minutes what is wrong. For the kubeconfig
/// that `kubectl` would take, use [`Config::infer`] and set `default_retry = false`.
pub async fn informer_config(kubeconfig: Option<&Path>) -> Result<Config, ClientError> {
    let mut config = match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            let named = |source| in_file(path, source);
            let file = Kubeconfig::read_from(path).map_err(named)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(named)?
        }
        None => Config::incluster().map_err(|error| ClientError::NotInCluster(Box::new(error)))?,
    };
    config.default_retry = false;
    Ok(config)
}

/// A client for informers, of what [`informer_config`] finds. It must be called within a tokio runtime.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use kube_informers::{SharedInformerFactory, informer_client};
///
/// let client = informer_client(Some("/root/.kube/config".as_ref())).await?;
/// let factory = SharedInformerFactory::new(client);
/// # Ok(())
/// # }
/// ```
pub async fn informer_client(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    let config = informer_config(kubeconfig).await?;
    Client::try_from(config).map_err(|error| ClientError::Client(Box::new(error)))
}

fn in_file(path: &Path, source: KubeconfigError) -> ClientError {
    let path = path.to_owned();
    match source {
        KubeconfigError::Parse(error) => {
            let place = error.location().map(|at| format!(":{}:{}", at.line(), at.column()));
            ClientError::Malformed { path, place: place.unwrap_or_default() }
        }
        source => ClientError::Kubeconfig { path, source: Box::new(source) },
    }
}
