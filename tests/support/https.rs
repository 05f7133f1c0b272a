//! An HTTPS client with or without a client certificate.

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::Runtime;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// A client certificate and its key, as PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answered {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Sends requests to one server, whose certificate must be one of these or signed by one of them.
pub(crate) struct Https {
    runtime: Runtime,
    client: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
}

impl Https {
    pub(crate) fn to(port: u16, believed_pem: &str, identity: Option<&Identity>) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(believed_pem.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            Some(Identity { certificate, key }) => {
                let chain =
                    CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap).collect();
                config
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                    .unwrap()
            }
            None => config.with_no_client_auth(),
        };
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only();
        let client =
            legacy::Client::builder(TokioExecutor::new()).build(connector.enable_all_versions().build());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { runtime, client, url: format!("https://127.0.0.1:{port}") }
    }

    pub(crate) fn get(&self, path: &str, token: Option<&str>) -> Answered {
        self.try_send(Method::GET, path, token, "").unwrap()
    }

    /// Sends a request. The error is a failed connection.
    pub(crate) fn try_send(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> Result<Answered, String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        self.runtime.block_on(async {
            let response = self.client.request(request).await.map_err(|error| format!("{error:?}"))?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            Ok(Answered { status: head.status.as_u16(), headers: head.headers, body })
        })
    }
}
