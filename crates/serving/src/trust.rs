//! Trusted CAs: for client certificates, and for front proxies that name users.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderMap;
use parking_lot::RwLock;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

use super::error::{LookupError, ServeError};
use super::review::{ReviewError, Reviewer};
use super::tls::provider;
use super::user::{Subject, User};
use supercargo_config::flags::{AuthenticationOptions, RequestHeaderOptions};

/// The ConfigMap in which API servers publish their client CAs.
pub(super) const CONFIG_MAP: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// The certificate chain of a client, leaf first.
pub(super) type Chain = [CertificateDer<'static>];

/// A CA bundle.
pub(super) struct Authorities {
    pem: String,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Authorities {
    /// Parses PEM. Errors do not contain its content.
    fn parse(pem: &str) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| format!("not PEM: {error}"))?;
            roots.add(certificate).map_err(|error| format!("not a CA certificate: {error}"))?;
        }
        if roots.is_empty() {
            return Err("no PEM certificate found".to_owned());
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider()).build();
        let verifier = verifier.map_err(|error| error.to_string())?;
        Ok(Self { pem: pem.to_owned(), verifier })
    }

    /// Verifies that the bundle has signed this client certificate and that it is currently valid.
    pub(super) fn verify(&self, chain: &Chain) -> Result<(), String> {
        let (first, intermediates) = chain.split_first().ok_or("no certificate")?;
        let verified = self.verifier.verify_client_cert(first, intermediates, UnixTime::now());
        verified.map(drop).map_err(|error| format!("client certificate: {error}"))
    }
}

/// A front proxy, which authenticates users and names them in headers.
pub(super) struct FrontProxy {
    authorities: Authorities,
    headers: RequestHeaders,
}

/// The header settings of front proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RequestHeaders {
    /// Allowed common names of proxies; empty for any.
    allowed_names: Vec<String>,
    username: Vec<String>,
    uid: Vec<String>,
    groups: Vec<String>,
    extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// The user in the headers, if the certificate is that of a proxy.
    pub(super) fn user(&self, chain: &Chain, headers: &HeaderMap) -> Result<Option<User>, String> {
        self.authorities.verify(chain)?;
        let subject = chain.first().and_then(Subject::of);
        let name = subject.as_ref().and_then(Subject::common_name).unwrap_or_default();
        let allowed = &self.headers.allowed_names;
        if !allowed.is_empty() && !allowed.iter().any(|of| of == name) {
            return Err(format!("client certificate: {name:?} is not an allowed front proxy"));
        }
        Ok(self.headers.user(headers))
    }
}

impl RequestHeaders {
    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[String]| all(headers, names).next().map(str::to_owned);
        Some(User {
            name: first(&self.username)?,
            uid: first(&self.uid).unwrap_or_default(),
            groups: all(headers, &self.groups).map(str::to_owned).collect(),
            extra: self.extra(headers),
        })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        for prefix in self.extra_prefixes.iter().map(|prefix| prefix.to_ascii_lowercase()) {
            for (name, value) in headers {
                let (Some(key), Ok(value)) = (name.as_str().strip_prefix(&prefix), value.to_str()) else {
                    continue;
                };
                let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
                extra.entry(key).or_default().push(value.to_owned());
            }
        }
        extra
    }
}

/// The non-empty values of these headers.
fn all<'a>(headers: &'a HeaderMap, names: &'a [String]) -> impl Iterator<Item = &'a str> {
    let values = names.iter().flat_map(|name| headers.get_all(name.as_str()));
    values.filter_map(|value| value.to_str().ok()).filter(|value| !value.is_empty())
}

impl From<&RequestHeaderOptions> for RequestHeaders {
    fn from(options: &RequestHeaderOptions) -> Self {
        Self {
            allowed_names: options.allowed_names.clone(),
            username: options.username_headers.clone(),
            uid: options.uid_headers.clone(),
            groups: options.group_headers.clone(),
            extra_prefixes: options.extra_header_prefixes.clone(),
        }
    }
}

/// The source of a CA bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    /// The API server's ConfigMap.
    Cluster,
    Nowhere,
}

impl Source {
    fn of(file: Option<&Path>, skip_lookup: bool) -> Self {
        match file {
            Some(file) => Self::File(file.to_owned()),
            None if skip_lookup => Self::Nowhere,
            None => Self::Cluster,
        }
    }

    /// Reads the file of this flag, if the source is one, and passes it to `believe`.
    fn read(
        &self,
        flag: &'static str,
        believe: impl FnOnce(&str) -> Result<(), String>,
    ) -> Result<(), ServeError> {
        let Self::File(path) = self else { return Ok(()) };
        let pem = std::fs::read_to_string(path).map_err(|error| error.to_string());
        pem.and_then(|pem| believe(&pem)).map_err(|problem| ServeError::ClientAuthority {
            flag,
            path: path.clone(),
            problem,
        })
    }
}

/// The currently trusted CAs. Failed reloads keep the current ones.
pub(super) struct Trust {
    clients_from: Source,
    proxies_from: Source,
    headers: RequestHeaders,
    clients: Reloaded<Authorities>,
    proxies: Reloaded<FrontProxy>,
}

type Reloaded<T> = RwLock<Option<Arc<T>>>;

impl Trust {
    /// Reads the given files. CAs of the cluster are added by [`lookup`](Self::lookup).
    pub(super) fn new(options: &AuthenticationOptions) -> Result<Self, ServeError> {
        let header_file = options.request_header.client_ca_file.as_deref();
        let trust = Self {
            clients_from: Source::of(options.client_ca_file.as_deref(), options.skip_lookup),
            proxies_from: Source::of(header_file, options.skip_lookup),
            headers: RequestHeaders::from(&options.request_header),
            clients: Reloaded::default(),
            proxies: Reloaded::default(),
        };
        trust.read_files()?;
        Ok(trust)
    }

    pub(super) fn clients(&self) -> Option<Arc<Authorities>> {
        self.clients.read().clone()
    }

    pub(super) fn proxies(&self) -> Option<Arc<FrontProxy>> {
        self.proxies.read().clone()
    }

    /// Whether CAs are looked up in the cluster.
    pub(super) fn needs_lookup(&self) -> bool {
        [&self.clients_from, &self.proxies_from].contains(&&Source::Cluster)
    }

    /// Reloads both files, even if one is invalid.
    pub(super) fn read_files(&self) -> Result<(), ServeError> {
        let clients = self.clients_from.read("--client-ca-file", |pem| self.believe_clients(pem));
        let proxies = self
            .proxies_from
            .read("--requestheader-client-ca-file", |pem| self.believe_proxies(pem, &self.headers));
        clients.and(proxies)
    }

    /// Looks up the CAs in the cluster.
    pub(super) async fn lookup(&self, reviewer: &Reviewer) -> Result<(), LookupError> {
        let map = reviewer.read(CONFIG_MAP).await?;
        let data = &map["data"];
        let broken = |problem| LookupError::Malformed(problem);
        if self.clients_from == Source::Cluster
            && let Some(pem) = data["client-ca-file"].as_str()
        {
            self.believe_clients(pem).map_err(broken)?;
        }
        if self.proxies_from == Source::Cluster
            && let Some(pem) = data["requestheader-client-ca-file"].as_str()
        {
            let list = |key| {
                names(&data[key]).map_err(|problem| LookupError::Malformed(format!("{key}: {problem}")))
            };
            let headers = RequestHeaders {
                allowed_names: list("requestheader-allowed-names")?,
                username: list("requestheader-username-headers")?,
                uid: list("requestheader-uid-headers")?,
                groups: list("requestheader-group-headers")?,
                extra_prefixes: list("requestheader-extra-headers-prefix")?,
            };
            self.believe_proxies(pem, &headers).map_err(broken)?;
        }
        Ok(())
    }

    fn believe_clients(&self, pem: &str) -> Result<(), String> {
        if self.clients().is_none_or(|now| now.pem != pem) {
            *self.clients.write() = Some(Arc::new(Authorities::parse(pem)?));
            tracing::info!("reloaded client CA bundle");
        }
        Ok(())
    }

    fn believe_proxies(&self, pem: &str, headers: &RequestHeaders) -> Result<(), String> {
        if self.proxies().is_none_or(|now| now.authorities.pem != pem || now.headers != *headers) {
            let authorities = Authorities::parse(pem)?;
            *self.proxies.write() = Some(Arc::new(FrontProxy { authorities, headers: headers.clone() }));
            tracing::info!("reloaded front proxy CA bundle");
        }
        Ok(())
    }
}

impl From<ReviewError> for LookupError {
    fn from(error: ReviewError) -> Self {
        Self::Unread(error.to_string())
    }
}

/// A list in a JSON string, as written by API servers. A missing list is empty.
fn names(list: &Value) -> Result<Vec<String>, String> {
    match list.as_str() {
        Some(text) if !text.is_empty() => serde_json::from_str(text).map_err(|error| error.to_string()),
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn invalid_bundle_names_its_flag_and_file() {
        let folder = tempfile::tempdir().unwrap();
        let garbage = folder.path().join("ca.crt");
        fs::write(&garbage, "garbage").unwrap();
        let error_of = |change: fn(&mut AuthenticationOptions, PathBuf), path: &Path| {
            let mut options = AuthenticationOptions::default();
            change(&mut options, path.to_owned());
            Trust::new(&options).err().map(|error| error.to_string())
        };
        let client = |options: &mut AuthenticationOptions, path| options.client_ca_file = Some(path);
        let proxy =
            |options: &mut AuthenticationOptions, path| options.request_header.client_ca_file = Some(path);
        let problem = format!("{}: no PEM certificate found", garbage.display());
        assert_eq!(error_of(client, &garbage), Some(format!("--client-ca-file: {problem}")));
        assert_eq!(error_of(proxy, &garbage), Some(format!("--requestheader-client-ca-file: {problem}")));
        let missing = "--client-ca-file: /nowhere: No such file or directory (os error 2)";
        assert_eq!(error_of(client, Path::new("/nowhere")).as_deref(), Some(missing));
    }
}
