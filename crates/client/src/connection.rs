//! How to reach the API server. Follows the kubeconfig, the files that it names, and its exec
//! plugin, so that renewed certificates and tokens need no restart.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Uri;
use http::uri::Scheme;
use jiff::Timestamp;
use kube::client::ConfigExt as _;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_rustls::rustls;

use crate::exec_plugin::ExecPlugin;
pub use crate::exec_plugin::PluginError;
use crate::kubeconfig;
pub use crate::kubeconfig::Choice;

/// How often files are read again, and credentials that expire soon are renewed.
const PERIOD: Duration = Duration::from_secs(5);

/// Why no client could be created.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {problem}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong.
        problem: Box<kubeconfig::KubeconfigProblem>,
    },
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "not running in a cluster ({0}); give --kubeconfig FILE, or clientConnection.kubeconfig in the configuration"
    )]
    NotInCluster(#[source] Box<kube::config::InClusterError>),
    /// The client cannot be created.
    #[error("cannot create a client: {}", client_problem(.0))]
    Client(#[source] Box<kube::Error>),
    /// The kubeconfig names another server than at the start.
    #[error("the server has changed; restart to use another server")]
    AnotherServer,
    /// There is a CA bundle, and it is empty.
    #[error("certificate-authority, or certificate-authority-data, contains no PEM certificate")]
    NoAuthority,
    /// The exec plugin of the kubeconfig gave no credentials.
    #[error("exec plugin {command}: {source}")]
    ExecPlugin {
        /// The command, without arguments.
        command: String,
        /// Why.
        source: PluginError,
    },
}

/// How to reach the API server at the moment. Clones follow the same changes.
#[derive(Clone)]
pub struct Connection(watch::Receiver<Arc<Access>>);

/// A server, whom to trust, and credentials.
pub(crate) struct Access {
    pub(crate) config: Config,
    /// When the credentials expire, if they do.
    pub(crate) expires: Option<Timestamp>,
    /// Notified when the server rejects the credentials, so that they are renewed.
    pub(crate) rejected: Notify,
}

impl Connection {
    /// Connects by a kubeconfig, or else by the pod's service account. `server` takes precedence
    /// over the server in the kubeconfig.
    pub async fn open(server: Option<&Uri>, kubeconfig: Option<&Path>) -> Result<Self, ConnectError> {
        Self::open_chosen(server, kubeconfig, Choice::default()).await
    }

    /// Like [`open`](Self::open), with these parts of the kubeconfig.
    pub async fn open_chosen(
        server: Option<&Uri>,
        kubeconfig: Option<&Path>,
        choice: Choice,
    ) -> Result<Self, ConnectError> {
        let (server, kubeconfig) = (server.cloned(), kubeconfig.map(Path::to_owned));
        let mut source = Source { server, kubeconfig, choice, plugin: ExecPlugin::default() };
        let access = source.load().await?;
        access.check()?;
        let (current, connection) = watch::channel(Arc::new(access));
        tokio::spawn(source.follow(current));
        Ok(Self(connection))
    }

    /// The URL of the server.
    pub fn server(&self) -> Uri {
        self.access().config.cluster_url.clone()
    }

    /// The namespace of the kubeconfig's context, or of the service account.
    pub fn namespace(&self) -> String {
        self.access().config.default_namespace.clone()
    }

    /// A connection with credentials that have expired.
    #[cfg(test)]
    pub(crate) fn expired(config: Config) -> Self {
        Self(watch::channel(Arc::new(Access::new(config, Some(Timestamp::UNIX_EPOCH)))).1)
    }

    pub(crate) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.0.borrow())
    }
}

/// A connection that never changes.
impl From<Config> for Connection {
    fn from(config: Config) -> Self {
        Self(watch::channel(Arc::new(Access::new(config, None))).1)
    }
}

impl From<&Config> for Connection {
    fn from(config: &Config) -> Self {
        Self::from(config.clone())
    }
}

impl From<&Connection> for Connection {
    fn from(connection: &Connection) -> Self {
        connection.clone()
    }
}

/// Where a connection is described.
struct Source {
    server: Option<Uri>,
    kubeconfig: Option<PathBuf>,
    choice: Choice,
    plugin: ExecPlugin,
}

impl Source {
    async fn load(&mut self) -> Result<Access, ConnectError> {
        let mut config = connect_to(self.server.as_ref(), self.kubeconfig.as_deref(), &self.choice).await?;
        if checks_certificate(&config) && config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err(ConnectError::NoAuthority);
        }
        let expires = self.apply_plugin(&mut config.auth_info).await?;
        Ok(Access::new(config, expires))
    }

    /// Replaces an exec plugin by the credentials that it prints, and returns when they expire.
    async fn apply_plugin(&mut self, user: &mut AuthInfo) -> Result<Option<Timestamp>, ConnectError> {
        // kube's own runner waits for the plugin forever and logs its environment.
        let Some(exec) = user.exec.take() else { return Ok(None) };
        if user.token.is_some() || user.token_file.is_some() || user.username.is_some() {
            return Ok(None);
        }
        let credential = self.plugin.credential(&exec).await.map_err(|source| {
            let command = exec.command.clone().unwrap_or_default();
            ConnectError::ExecPlugin { command, source }
        })?;
        user.token = credential.token.clone().map(Into::into);
        if let (Some(certificate), Some(key)) =
            (&credential.client_certificate_data, &credential.client_key_data)
        {
            user.client_certificate_data = Some(BASE64.encode(certificate));
            user.client_key_data = Some(BASE64.encode(key).into());
        }
        Ok(credential.expires())
    }

    /// Loads the sources again, and publishes what has changed.
    async fn renew(&mut self, current: &watch::Sender<Arc<Access>>) -> Result<(), ConnectError> {
        let (next, now) = (self.load().await?, Arc::clone(&current.borrow()));
        if next.config.cluster_url != now.config.cluster_url {
            return Err(ConnectError::AnotherServer);
        }
        if !next.is_like(&now) {
            next.check()?;
            tracing::info!("reloaded the connection to the API server");
            current.send_replace(Arc::new(next));
        }
        Ok(())
    }

    /// Renews the connection as long as anyone uses it. Sources that cannot be used leave the last
    /// one in effect: files are often renewed one after the other.
    async fn follow(mut self, current: watch::Sender<Arc<Access>>) {
        let (mut last_problem, mut was_rejected) = (None, false);
        loop {
            let access = Arc::clone(&current.borrow());
            tokio::select! {
                () = current.closed() => return,
                () = sleep(PERIOD) => was_rejected = false,
                // At most once per period: the new credentials may be rejected, too.
                () = access.rejected.notified(), if !was_rejected => {
                    self.plugin.forget();
                    was_rejected = true;
                }
            }
            let problem = self.renew(&current).await.err().map(|error| error.to_string());
            if let Some(error) = problem.as_ref().filter(|_| problem != last_problem) {
                tracing::warn!(
                    error,
                    "cannot reload the connection to the API server; keeping the current one"
                );
            }
            last_problem = problem;
        }
    }
}

impl Access {
    fn new(config: Config, expires: Option<Timestamp>) -> Self {
        Self { config, expires, rejected: Notify::new() }
    }

    /// Whether connections can be opened: certificates are valid, and keys belong to them.
    fn check(&self) -> Result<(), ConnectError> {
        let invalid = |error| ConnectError::Client(Box::new(error));
        self.config.rustls_client_config().map_err(invalid)?;
        self.config.auth_layer().map_err(invalid)?;
        Ok(())
    }

    /// Whether open connections can stay.
    fn is_like(&self, other: &Self) -> bool {
        let user = |of: &Self| serde_json::to_value(&of.config.auth_info).ok();
        let server = |of: &Self| {
            let Config { root_cert, tls_server_name, accept_invalid_certs, .. } = &of.config;
            (root_cert.clone(), tls_server_name.clone(), *accept_invalid_certs)
        };
        server(self) == server(other) && user(self) == user(other) && self.expires == other.expires
    }
}

/// Reads the connection to the API server from a kubeconfig, or else from the pod's service
/// account.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    connect_to(None, kubeconfig, &Choice::default()).await
}

/// Like [`connect`], with this server. Without a kubeconfig, requests carry no credentials.
async fn connect_to(
    server: Option<&Uri>,
    kubeconfig: Option<&Path>,
    choice: &Choice,
) -> Result<Config, ConnectError> {
    let mut config = match (kubeconfig, server) {
        (Some(path), _) => {
            let named = |problem| ConnectError::Kubeconfig {
                path: path.display().to_string(),
                problem: Box::new(problem),
            };
            kubeconfig::read(path, choice).await.map_err(named)?
        }
        (None, Some(server)) => Config::new(server.clone()),
        (None, None) => Config::incluster().map_err(|error| ConnectError::NotInCluster(Box::new(error)))?,
    };
    if let Some(server) = server {
        config.cluster_url = server.clone();
    }
    choice.impersonate(&mut config.auth_info);
    // Retries of the client would hide failures from reflectors, and repeat binds with unknown
    // effect.
    config.default_retry = false;
    config.disable_compression = true;
    Ok(without_needless_trust(config))
}

/// A kubeconfig of one cluster and one user, with the fields of these objects that are not null, so
/// that kube reads, decodes and validates files.
pub fn kubeconfig_of(mut cluster: Value, mut user: Value) -> Result<Kubeconfig, serde_json::Error> {
    const NAME: &str = "endpoint";
    for fields in [&mut cluster, &mut user].into_iter().filter_map(Value::as_object_mut) {
        fields.retain(|_, value| !value.is_null());
    }
    serde_json::from_value(json!({
        "clusters": [{ "name": NAME, "cluster": cluster }],
        "users": [{ "name": NAME, "user": user }],
        "contexts": [{ "name": NAME, "context": { "cluster": NAME, "user": NAME } }],
        "current-context": NAME,
    }))
}

/// The connection to something else than an API server: without proxy, compression and retries,
/// which exceed the timeouts of callers.
pub async fn to_endpoint(kubeconfig: Kubeconfig) -> Result<Config, KubeconfigError> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.disable_compression = true;
    config.proxy_url = None;
    Ok(without_needless_trust(config))
}

/// Skips loading the system's CA certificates if no certificate is verified. In an image without
/// any, loading them would be an error.
pub fn without_needless_trust(mut config: Config) -> Config {
    if !checks_certificate(&config) && config.root_cert.is_none() {
        config.root_cert = Some(Vec::new());
    }
    config
}

/// Whether the server has to show a certificate that a CA has signed.
fn checks_certificate(config: &Config) -> bool {
    config.cluster_url.scheme() == Some(&Scheme::HTTPS) && !config.accept_invalid_certs
}

/// A client certificate in the kubeconfig itself has no file to name, but a field. rustls prints
/// its errors as Rust does.
fn client_problem(error: &kube::Error) -> String {
    use kube::client::RustlsTlsError;
    use kube::config::LoadDataError;
    use rustls::{CertificateError, InconsistentKeys};
    let field = match error {
        kube::Error::RustlsTls(RustlsTlsError::MissingCertificate) => {
            Some("client-certificate-data: no PEM certificate found")
        }
        kube::Error::RustlsTls(RustlsTlsError::MissingPrivateKey) => {
            Some("client-key-data: no PEM private key found")
        }
        kube::Error::InferKubeconfig(KubeconfigError::LoadClientCertificate(
            LoadDataError::DecodeBase64(_),
        )) => Some("client-certificate-data: not base64"),
        kube::Error::InferKubeconfig(KubeconfigError::LoadClientKey(LoadDataError::DecodeBase64(_))) => {
            Some("client-key-data: not base64")
        }
        _ => None,
    };
    if let Some(problem) = field {
        return problem.to_owned();
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        match error.downcast_ref() {
            Some(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                return "the client key does not belong to the client certificate".to_owned();
            }
            Some(rustls::Error::InvalidCertificate(CertificateError::Other(_))) => {
                return "the client certificate is unusable; X.509 version 3 is needed".to_owned();
            }
            _ => cause = error.source(),
        }
    }
    error.to_string()
}

/// Creates a client.
pub fn client(config: Config) -> Result<Client, ConnectError> {
    Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))
}

#[cfg(test)]
mod tests;
