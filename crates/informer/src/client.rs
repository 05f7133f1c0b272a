//! Clients for informers: locates the API server, and disables retries below the reflector.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;

#[cfg(feature = "http2")]
use crate::http2::{self, Patience};

/// Servers send a bookmark a minute.
const READ_TIMEOUT: Duration = Duration::from_secs(90);

/// Why no client can be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The file is not a kubeconfig. The error omits its content, which may include a token.
    #[error("kubeconfig {}{place}: not a kubeconfig", .path.display())]
    Malformed {
        /// The path of the file.
        path: PathBuf,
        /// Line and column as `:3:14`, if known.
        place: String,
    },
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {}: {}", .path.display(), without_path(.source))]
    Kubeconfig {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: Box<KubeconfigError>,
    },
    /// There is neither a kubeconfig nor a pod's service account.
    #[error("not running in a cluster ({0}); give the path of a kubeconfig")]
    NotInCluster(#[source] Box<InClusterError>),
    /// The configuration is valid, but no client can be built from it, for example because of a
    /// certificate.
    #[error("cannot build a client: {0}")]
    Client(#[source] Box<kube::Error>),
}

/// Loads the client configuration from the kubeconfig at this path. Without a path (`None` or
/// empty), uses the pod's service account. Same as client-go's `BuildConfigFromFlags`.
///
/// Disables kube's retries, which would hide failures from the informer for minutes. To load the
/// kubeconfig that `kubectl` uses, call [`Config::infer`] and set `default_retry = false`.
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

/// Builds a client for informers from [`informer_config`]; see [`informer_client_from`]. Must be
/// called within a tokio runtime.
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
    informer_client_from(informer_config(kubeconfig).await?)
}

/// Builds a client for informers from any configuration. Must be called within a tokio runtime.
///
/// It does not retry, and notices silent connections: a connection counts as dead after 90 s of
/// silence, unless the configuration has another `read_timeout`; bookmarks arrive once a minute.
/// With the feature `http2`, it also pings the server over HTTP/2, and notices a dead connection in
/// 25 s. Not over HTTP/1.1, or through a proxy of the configuration.
pub fn informer_client_from(config: Config) -> Result<Client, ClientError> {
    let config = for_informers(config);
    #[cfg(feature = "http2")]
    let client = http2::connect(config, Patience::default());
    #[cfg(not(feature = "http2"))]
    let client = Client::try_from(config);
    client.map_err(|error| ClientError::Client(Box::new(error)))
}

/// Without retries, and with a read timeout.
fn for_informers(mut config: Config) -> Config {
    config.default_retry = false;
    if config.read_timeout.is_none() {
        config.read_timeout = Some(READ_TIMEOUT);
        // The silence of an idle connection must not count for its next request.
        config.reset_reader_on_write = true;
    }
    config
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

/// kube's error without the path of the kubeconfig, which [`ClientError`] names.
fn without_path(error: &KubeconfigError) -> &dyn Display {
    match error {
        KubeconfigError::ReadConfig(cause, _) => cause,
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn informers_do_not_retry_and_have_a_read_timeout() {
        let settings = |read_timeout| {
            let mut config = Config::new("https://shop.example:6443".parse().unwrap());
            config.read_timeout = read_timeout;
            let config = for_informers(config);
            (config.default_retry, config.read_timeout, config.reset_reader_on_write)
        };
        assert_eq!(settings(None), (false, Some(READ_TIMEOUT), true));
        let own = Some(Duration::from_secs(5));
        assert_eq!(settings(own), (false, own, false));
    }
}
