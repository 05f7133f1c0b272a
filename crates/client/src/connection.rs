//! How to reach the API server. Follows the kubeconfig, the files that it names, and its exec
//! plugin, so that renewed certificates and tokens need no restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Uri;
use jiff::Timestamp;
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::AuthInfo;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::api::{ConnectError, checks_certificate, connect_to};
use crate::exec_plugin::ExecPlugin;

/// How often files are read again, and credentials that expire soon are renewed.
const PERIOD: Duration = Duration::from_secs(5);

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
        let (server, kubeconfig) = (server.cloned(), kubeconfig.map(Path::to_owned));
        let mut source = Source { server, kubeconfig, plugin: ExecPlugin::default() };
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
    plugin: ExecPlugin,
}

impl Source {
    async fn load(&mut self) -> Result<Access, ConnectError> {
        let mut config = connect_to(self.server.as_ref(), self.kubeconfig.as_deref()).await?;
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

    /// Whether connections need not be opened anew.
    fn is_like(&self, other: &Self) -> bool {
        let user = |of: &Self| serde_json::to_value(&of.config.auth_info).ok();
        let server = |of: &Self| {
            let Config { root_cert, tls_server_name, accept_invalid_certs, .. } = &of.config;
            (root_cert.clone(), tls_server_name.clone(), *accept_invalid_certs)
        };
        server(self) == server(other) && user(self) == user(other) && self.expires == other.expires
    }
}

#[cfg(test)]
mod tests;
