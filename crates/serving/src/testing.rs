//! An API server with scripted responses, and certificates.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;

use supercargo_client::api::Api;

/// A status and a body. [`NEVER`] leaves the request without a response.
type Answer = (u16, Value);

pub(super) const NEVER: u16 = 0;
type Answering = Arc<dyn Fn(&Value) -> Answer + Send + Sync>;

/// An API server. It responds with 404 until `answer` is called.
#[derive(Clone, Default)]
pub(super) struct Server {
    answering: Arc<Mutex<Option<Answering>>>,
    requests: Arc<Mutex<Vec<(String, String, Value)>>>,
}

impl Server {
    /// Sets the response for requests by their body.
    pub(super) fn answer(&self, answer: impl Fn(&Value) -> Answer + Send + Sync + 'static) {
        *self.answering.lock() = Some(Arc::new(answer));
    }

    /// The requests so far: method, path, body.
    pub(super) fn requests(&self) -> Vec<(String, String, Value)> {
        self.requests.lock().clone()
    }

    pub(super) fn api(&self) -> Api {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
                let body = serde_json::from_slice(&bytes).unwrap_or_default();
                let answering = server.answering.lock().clone();
                let (status, answer) = answering.map_or((404, json!({})), |answering| answering(&body));
                server.requests.lock().push((head.method.to_string(), head.uri.to_string(), body));
                if status == NEVER {
                    std::future::pending::<()>().await;
                }
                let answer = Body::from(answer.to_string().into_bytes());
                Response::builder().status(status).body(answer).map_err(|error| error.to_string())
            }
        });
        Api::with_client(Client::new(service, "default"))
    }
}

/// The response to a SubjectAccessReview.
pub(super) fn access_review(allowed: bool, reason: &str) -> Answer {
    (201, json!({"status": {"allowed": allowed, "reason": reason}}))
}

/// The response to a TokenReview: this user, or unauthenticated.
pub(super) fn token_review(user: Option<&str>) -> Answer {
    (201, json!({"status": {"authenticated": user.is_some(), "user": {"username": user}}}))
}

/// A certificate authority.
pub(super) struct Authority {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A client certificate with this common name.
    pub(super) fn client(&self, name: &str) -> Vec<CertificateDer<'static>> {
        self.sign(name, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A server certificate with this common name.
    pub(super) fn server(&self, name: &str) -> Vec<CertificateDer<'static>> {
        self.sign(name, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn sign(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> Vec<CertificateDer<'static>> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        vec![params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().der().clone()]
    }
}
