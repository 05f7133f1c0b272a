//! Kubeconfigs whose content or files change.

use bytes::Bytes;
use http::{Request, StatusCode};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Endpoint, Listen};
use tempfile::TempDir;

use super::*;
use crate::api::full_text;
use crate::transport::{BoxError, Transport};

/// A server, and a kubeconfig that can be changed.
struct TestBed {
    endpoint: Endpoint,
    dir: TempDir,
}

impl TestBed {
    async fn new() -> Self {
        let endpoint = ApiServer::default().listen(Listen::default()).await.unwrap();
        Self { endpoint, dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Writes a kubeconfig with these changes of the cluster and the user.
    fn describe(&self, cluster: Value, user: Value) {
        let mut file: Value = serde_json::from_str(&self.endpoint.kubeconfig()).unwrap();
        for (place, changes) in [("/clusters/0/cluster", cluster), ("/users/0/user", user)] {
            let fields = file.pointer_mut(place).unwrap().as_object_mut().unwrap();
            fields.extend(changes.as_object().unwrap().clone());
            fields.retain(|_, value| !value.is_null());
        }
        self.write("kubeconfig", file.to_string());
    }

    async fn open(&self) -> Connection {
        Connection::open(None, Some(Path::new(&self.path("kubeconfig")))).await.unwrap()
    }
}

/// Lets the files be read again.
async fn a_while() {
    tokio::time::pause();
    sleep(PERIOD + Duration::from_secs(1)).await;
    tokio::time::resume();
}

async fn get(transport: &Transport) -> Result<StatusCode, BoxError> {
    let request = Request::get("/api/v1/namespaces/default").body(Bytes::new()).unwrap();
    Ok(transport.send(request).await?.status())
}

/// A certificate and its key, as PEM.
fn identity() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["client".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_renewed_ca_file_is_trusted_without_a_restart() {
    let bed = TestBed::new().await;
    bed.write("ca.crt", identity().0);
    bed.describe(
        json!({ "certificate-authority-data": null, "certificate-authority": bed.path("ca.crt") }),
        json!({}),
    );
    let transport = Transport::connect(bed.open().await).unwrap();
    get(&transport).await.unwrap_err();
    bed.write("ca.crt", bed.endpoint.ca_pem().unwrap());
    a_while().await;
    assert_eq!(get(&transport).await.unwrap(), 200);
    // The file is being written.
    bed.write("ca.crt", "-----BEGIN");
    a_while().await;
    assert_eq!(get(&transport).await.unwrap(), 200);
}

#[tokio::test]
async fn a_renewed_client_certificate_is_used_once_its_key_is_there() {
    let bed = TestBed::new().await;
    let files = json!({ "client-certificate": bed.path("crt"), "client-key": bed.path("key") });
    bed.describe(json!({}), files);
    let (first, second) = (identity(), identity());
    bed.write("crt", &first.0);
    bed.write("key", &first.1);
    let connection = bed.open().await;
    let certificate = || connection.access().config.auth_info.client_certificate_data.clone().unwrap();
    assert_eq!(certificate(), BASE64.encode(&first.0));
    bed.write("crt", &second.0);
    a_while().await;
    assert_eq!(certificate(), BASE64.encode(&first.0));
    bed.write("key", &second.1);
    a_while().await;
    assert_eq!(certificate(), BASE64.encode(&second.0));
    let missing = json!({ "client-certificate": bed.path("nowhere"), "client-key": bed.path("key") });
    bed.describe(json!({}), missing);
    let error = Connection::open(None, Some(Path::new(&bed.path("kubeconfig")))).await.err().unwrap();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[tokio::test]
async fn unchanged_files_do_not_open_connections_anew() {
    let bed = TestBed::new().await;
    bed.describe(json!({}), json!({}));
    let connection = bed.open().await;
    let before = connection.access();
    bed.describe(json!({}), json!({}));
    a_while().await;
    assert!(Arc::ptr_eq(&before, &connection.access()));
}

#[tokio::test]
async fn another_server_in_the_kubeconfig_is_not_followed() {
    let bed = TestBed::new().await;
    bed.describe(json!({}), json!({}));
    let transport = Transport::connect(bed.open().await).unwrap();
    bed.describe(json!({ "server": "https://127.0.0.1:1" }), json!({ "token": "of-another-server" }));
    a_while().await;
    assert_eq!(get(&transport).await.unwrap(), 200);
}

#[tokio::test]
async fn tokens_of_an_exec_plugin_are_renewed_and_kept_while_it_fails() {
    let bed = TestBed::new().await;
    let soon = crate::host::machine_time() + Duration::from_secs(30);
    let print = |token: &str| {
        let status = json!({ "token": token, "expirationTimestamp": soon.to_string() });
        bed.write("credential", json!({ "status": status }).to_string());
    };
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/bin/sh",
        "args": ["-c", format!("cat {}; echo >> {}", bed.path("credential"), bed.path("runs"))],
    });
    bed.describe(json!({}), json!({ "token": null, "exec": exec }));
    let runs = || std::fs::read(bed.path("runs")).unwrap().len();
    // The result of the first run is in use once the second has begun.
    let two_runs = async || {
        for _ in 0..2 {
            let before = runs();
            a_while().await;
            while runs() == before {
                sleep(Duration::from_millis(5)).await;
            }
        }
    };
    print("wrong");
    let transport = Transport::connect(bed.open().await).unwrap();
    assert_eq!(get(&transport).await.unwrap(), StatusCode::UNAUTHORIZED);
    print(bed.endpoint.token());
    two_runs().await;
    assert_eq!(get(&transport).await.unwrap(), 200);
    bed.write("credential", "");
    two_runs().await;
    assert_eq!(get(&transport).await.unwrap(), 200);
}

#[tokio::test]
async fn rejected_credentials_of_an_exec_plugin_are_renewed_once_per_period() {
    let bed = TestBed::new().await;
    let print = |token: &str| {
        bed.write("credential", json!({ "status": { "token": token } }).to_string());
    };
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/bin/sh",
        "args": ["-c", format!("cat {}; echo >> {}", bed.path("credential"), bed.path("runs"))],
    });
    bed.describe(json!({}), json!({ "token": null, "exec": exec }));
    let runs = || std::fs::read(bed.path("runs")).unwrap().len();
    print("revoked");
    let connection = bed.open().await;
    let transport = Transport::connect(&connection).unwrap();
    // Every new token is rejected, too.
    let began = tokio::time::Instant::now();
    for number in 0..100 {
        print(&format!("wrong-{number}"));
        assert_eq!(get(&transport).await.unwrap(), StatusCode::UNAUTHORIZED);
    }
    while runs() < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    let (count, periods) = (runs() as u64, began.elapsed().as_secs() / PERIOD.as_secs());
    assert!(count <= 2 + periods, "{count} runs in {periods} periods");
    print(bed.endpoint.token());
    // Rejected once more, unless the last run has read the right token.
    let _ = get(&transport).await.unwrap();
    a_while().await;
    while get(&transport).await.unwrap() != StatusCode::OK {
        sleep(Duration::from_millis(5)).await;
    }
    let before = runs();
    a_while().await;
    assert_eq!(get(&transport).await.unwrap(), StatusCode::OK);
    assert_eq!(runs(), before, "accepted credentials are kept");
}

#[tokio::test]
async fn the_follower_ends_with_its_last_connection() {
    let bed = TestBed::new().await;
    bed.describe(json!({}), json!({}));
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let connection = bed.open().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks(), before + 1);
    drop(connection);
    while tasks() > before {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_missing_kubeconfig_is_named() {
    let error = connect(Some(Path::new("/nowhere/kubeconfig"))).await.unwrap_err();
    assert!(error.to_string().starts_with("kubeconfig /nowhere/kubeconfig: "), "{error}");
}

#[tokio::test]
async fn system_cas_are_loaded_only_if_needed() {
    let asked = |config: Config| config.root_cert.is_none();
    let server = |url: &str| Config::new(url.parse().unwrap());
    let plain: Uri = "http://127.0.0.1:1".parse().unwrap();
    assert!(!asked(connect_to(Some(&plain), None, &Choice::default()).await.unwrap()));
    let secure: Uri = "https://127.0.0.1:1".parse().unwrap();
    assert!(asked(connect_to(Some(&secure), None, &Choice::default()).await.unwrap()));
    let mut unchecked = server("https://127.0.0.1:1");
    unchecked.accept_invalid_certs = true;
    assert!(!asked(without_needless_trust(unchecked)));
    let mut given = server("http://127.0.0.1:1");
    given.root_cert = Some(vec![vec![1]]);
    assert_eq!(without_needless_trust(given).root_cert, Some(vec![vec![1]]));
}

#[tokio::test]
async fn malformed_kubeconfigs_are_located_but_not_printed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    std::fs::write(&path, "users:\n- {name: x, user: {token: secret-token-123\n").unwrap();
    let error = full_text(&connect(Some(&path)).await.unwrap_err());
    assert!(error.contains("config:") && !error.contains("secret"), "{error}");
}

/// The error of a kubeconfig with this text in one of its fields.
async fn error_with(place: &str, text: &str) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
    let certificate = BASE64.encode(certificate);
    let mut file = serde_json::json!({
        "clusters": [{ "name": "a", "cluster": {
            "server": "https://127.0.0.1:1", "certificate-authority-data": certificate,
        } }],
        "users": [{ "name": "a", "user": {
            "client-certificate-data": certificate, "client-key-data": BASE64.encode(key.serialize_pem()),
        } }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "current-context": "a",
    });
    *file.pointer_mut(place).unwrap() = text.into();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    std::fs::write(&path, file.to_string()).unwrap();
    let opened = Connection::open(None, Some(&path)).await;
    opened.err().map(|error| full_text(&error)).unwrap_or_default()
}

#[tokio::test]
async fn garbage_in_a_kubeconfig_is_reported_with_its_field() {
    let garbage = BASE64.encode("garbage");
    let authority = "/clusters/0/cluster/certificate-authority-data";
    let certificate = "/users/0/user/client-certificate-data";
    let key = "/users/0/user/client-key-data";
    assert_eq!(error_with("/current-context", "a").await, "");
    for (place, text, expected) in [
        (authority, "!", "certificate-authority-data: not base64"),
        (authority, &*garbage, "certificate-authority-data, contains no PEM certificate"),
        (certificate, "!", "client-certificate-data: not base64"),
        (certificate, &garbage, "client-certificate-data: no PEM certificate found"),
        (key, "!", "client-key-data: not base64"),
        (key, &garbage, "client-key-data: no PEM private key found"),
    ] {
        let error = error_with(place, text).await;
        assert!(error.contains(expected), "{error}");
    }
}
