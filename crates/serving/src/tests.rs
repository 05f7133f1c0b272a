//! The server on loopback, with a scripted API server.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::routes::QueryResponse;
use super::testing::{self, access_review, token_review};
use super::*;

/// All paths except health, each with its verb.
const GUARDED: &[&str] = &[
    "/",
    "/metrics",
    "/metrics/resources",
    "/metrics/slis",
    "/configz",
    "/flagz",
    "/statusz",
    "/ask",
    "/debug/cache",
    "/debug/flags/v",
    "/debug/pprof/heap",
    "/debug/queue",
    "/healthz/ping",
    "/readyz/shutdown",
    "/nothing",
];

/// The token `reader` may read, `writer` may do everything, `stranger` nothing; other tokens are
/// invalid.
fn reviews(review: &Value) -> (u16, Value) {
    if let Some(token) = review["spec"]["token"].as_str() {
        return token_review(["reader", "writer", "stranger"].contains(&token).then_some(token));
    }
    let spec = &review["spec"];
    let verb = spec["nonResourceAttributes"]["verb"].as_str().unwrap_or_default();
    access_review(spec["user"] == "writer" || spec["user"] == "reader" && verb == "get", "")
}

struct TestBed {
    api: testing::Server,
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<()>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    is_well: Arc<AtomicBool>,
    /// A request to `/debug/slow` ends when a permit is added here.
    slow: Arc<Semaphore>,
    folder: TempDir,
}

struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl TestBed {
    async fn new() -> Self {
        Self::with(false, Duration::from_secs(10)).await
    }

    async fn with(http1_only: bool, token_cache_ttl: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let serving = ServingOptions {
            bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            cert_dir: Some(folder.path().to_owned()),
            disable_http2_serving: http1_only,
            ..ServingOptions::default()
        };
        let api = testing::Server::default();
        api.answer(reviews);
        let authentication =
            AuthenticationOptions { skip_lookup: true, token_cache_ttl, ..AuthenticationOptions::default() };
        let setup = Setup {
            serving: &serving,
            authentication: &authentication,
            authorization: &AuthorizationOptions::default(),
            connection: &kube::Config::new("https://127.0.0.1:1/".parse().unwrap()).into(),
            hostname: "host",
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = Server::with_apis(api.api(), api.api(), listener, setup).await.unwrap();
        let (address, stop) = (server.local_addr(), CancellationToken::new());
        let (is_well, slow) = (Arc::new(AtomicBool::new(true)), Arc::new(Semaphore::new(0)));
        let endpoints = endpoints(&is_well, &slow);
        let served = tokio::spawn(server.serve(endpoints, stop.clone()));
        let client = client(&fs::read(folder.path().join("kube-scheduler.crt")).unwrap());
        Self { api, address, stop, served, client, is_well, slow, folder }
    }

    async fn request(&self, method: Method, path: &str, token: Option<&str>, body: &str) -> Answered {
        let mut request = Request::builder().method(method).uri(format!("https://{}{path}", self.address));
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answered {
            status: head.status,
            headers: head.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    async fn get(&self, path: &str, token: Option<&str>) -> Answered {
        self.request(Method::GET, path, token, "").await
    }

    /// A client with connections of its own.
    fn another_client(&self) -> Client<HttpsConnector<HttpConnector>, Full<Bytes>> {
        client(&fs::read(self.folder.path().join("kube-scheduler.crt")).unwrap())
    }
}

fn endpoints(is_well: &Arc<AtomicBool>, slow: &Arc<Semaphore>) -> Endpoints {
    let text = |text: &'static str| -> TextPage { Arc::new(move || async move { text.to_owned() }.boxed()) };
    let mut checks = Checks::default();
    let is_well = Arc::clone(is_well);
    checks.readyz.add("shutdown", move || {
        if is_well.load(Ordering::SeqCst) { Ok(()) } else { Err("process is shutting down".to_owned()) }
    });
    let slow = Arc::clone(slow);
    let page = |page: JsonPage| page;
    Endpoints {
        checks,
        metrics: text("scheduler_pending_pods 1\n"),
        resource_metrics: text(""),
        configz: Arc::new(|| json!({"kind": "KubeSchedulerConfiguration"})),
        flagz: Arc::new(|| "secure-port=10259\n".to_owned()),
        debug: BTreeMap::from([
            ("/debug/cache", page(Arc::new(|| async { json!({"nodes": []}) }.boxed()))),
            ("/debug/panic", page(Arc::new(|| async { panic!("on purpose") }.boxed()))),
            (
                "/debug/slow",
                page(Arc::new(move || {
                    let slow = Arc::clone(&slow);
                    async move { json!(slow.acquire().await.is_ok()) }.boxed()
                })),
            ),
        ]),
        queries: BTreeMap::from([
            (
                "/ask".to_owned(),
                Arc::new(|query: Vec<(String, String)>| {
                    let answer = if query.is_empty() {
                        QueryResponse::Busy
                    } else {
                        QueryResponse::answer(format!("{query:?}"), false).with("is-good", "true".to_owned())
                    };
                    async move { answer }.boxed()
                }) as _,
            ),
            (
                "/ask/stream".to_owned(),
                Arc::new(|_| {
                    let parts = futures::stream::iter(["one".into()]).chain(futures::stream::pending());
                    async move { QueryResponse::stream("text/event-stream", parts.boxed()) }.boxed()
                }) as _,
            ),
        ]),
        log_level: Some(supercargo_telemetry::logs::LogLevel::detached("info")),
        emulated_version: "1.37".to_owned(),
        started: jiff::Timestamp::UNIX_EPOCH,
    }
}

fn trusting(pem: &[u8]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem).unwrap()).unwrap();
    ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// A client that trusts this certificate and keeps its connection.
fn client(pem: &[u8]) -> Client<HttpsConnector<HttpConnector>, Full<Bytes>> {
    let connector = hyper_rustls::HttpsConnectorBuilder::new();
    let connector = connector.with_tls_config(trusting(pem)).https_only().enable_all_versions().build();
    Client::builder(TokioExecutor::new()).build(connector)
}

#[tokio::test]
async fn all_paths_but_health_require_authentication_and_authorization() {
    let bed = TestBed::new().await;
    for path in GUARDED {
        for token in [None, Some("made-up")] {
            let answered = bed.get(path, token).await;
            assert_eq!(answered.status, 401, "{path}");
            let body: Value = serde_json::from_str(&answered.body).unwrap();
            assert_eq!((&body["kind"], &body["reason"]), (&json!("Status"), &json!("Unauthorized")));
        }
        let answered = bed.get(path, Some("stranger")).await;
        assert_eq!(answered.status, 403, "{path}");
        let body: Value = serde_json::from_str(&answered.body).unwrap();
        let message = format!("forbidden: User \"stranger\" cannot get path \"{path}\"");
        assert_eq!((&body["message"], &body["code"]), (&json!(message), &json!(403)));
        assert!(![401, 403].contains(&bed.get(path, Some("reader")).await.status.as_u16()), "{path}");
    }
    for path in ["/healthz", "/livez", "/readyz"] {
        for token in [None, Some("made-up"), Some("stranger")] {
            let answered = bed.get(path, token).await;
            assert_eq!((answered.status.as_u16(), answered.body.as_str()), (200, "ok"), "{path}");
        }
    }
}

#[tokio::test]
async fn each_path_serves_its_content() {
    for http1_only in [false, true] {
        let bed = TestBed::with(http1_only, Duration::from_secs(10)).await;
        for (path, status, content_type, body) in [
            ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "scheduler_pending_pods 1\n"),
            ("/metrics/resources", 200, "text/plain; version=0.0.4; charset=utf-8", ""),
            (
                "/configz",
                200,
                "application/json",
                r#"{"componentconfig":{"kind":"KubeSchedulerConfiguration"}}"#,
            ),
            ("/debug/cache", 200, "application/json", r#"{"nodes":[]}"#),
            ("/ask?a=b%26", 200, "text/plain; charset=utf-8", r#"[("a", "b&")]"#),
            ("/ask", 429, "text/plain; charset=utf-8", "Too many requests, please try again later.\n"),
            ("/debug/flags/v", 200, "text/plain; charset=utf-8", "info\n"),
            ("/livez?verbose", 200, "text/plain; charset=utf-8", "[+]ping ok\nlivez check passed\n"),
            ("/readyz/shutdown", 200, "text/plain; charset=utf-8", "ok"),
            ("/readyz/ping", 404, "text/plain; charset=utf-8", "404 page not found\n"),
            ("/nothing", 404, "text/plain; charset=utf-8", "404 page not found\n"),
        ] {
            let answered = bed.get(path, Some("reader")).await;
            assert_eq!((answered.status.as_u16(), answered.body.as_str()), (status, body), "{path}");
            let reported = |name: &str| answered.headers[name].to_str().unwrap();
            assert_eq!(reported("content-type"), content_type, "{path}");
            assert_eq!(reported("cache-control"), "no-cache, private", "{path}");
            assert_eq!(reported("x-content-type-options"), "nosniff", "{path}");
        }
        for (path, part) in [
            ("/flagz", "\nsupercargo flagz\nWarning: This endpoint is not meant to be machine parseable, "),
            ("/flagz", "\n\nsecure-port=10259\n"),
            (
                "/statusz",
                "\nsupercargo statusz\nWarning: This endpoint is not meant to be machine parseable, ",
            ),
            ("/statusz", "\nBinary version: "),
            (
                "/statusz",
                "Emulation version: 1.37\nPaths: /ask /ask/stream /configz /debug/cache /debug/flags/v ",
            ),
            ("/debug/pprof/heap", "pprof is not available"),
        ] {
            let answered = bed.get(path, Some("reader")).await;
            assert!(answered.body.contains(part), "{path}: {}", answered.body);
        }
        bed.is_well.store(false, Ordering::SeqCst);
        assert_eq!(bed.get("/readyz", None).await.status, 500);
        assert_eq!(bed.get("/livez", None).await.status, 200);
    }
}

#[tokio::test]
async fn health_check_results_are_counted_until_reset() {
    let bed = TestBed::new().await;
    let slis = async || bed.get("/metrics/slis", Some("reader")).await.body;
    assert_eq!(slis().await, "");
    for path in ["/readyz", "/readyz?exclude=shutdown", "/readyz/shutdown", "/livez", "/livez"] {
        bed.get(path, Some("reader")).await;
    }
    bed.is_well.store(false, Ordering::SeqCst);
    bed.get("/readyz", None).await;
    let reported: Vec<String> =
        slis().await.lines().filter(|line| !line.starts_with("# HELP")).map(str::to_owned).collect();
    assert_eq!(
        reported,
        [
            "# TYPE kubernetes_healthcheck gauge",
            r#"kubernetes_healthcheck{name="ping",type="livez"} 1"#,
            r#"kubernetes_healthcheck{name="shutdown",type="readyz"} 0"#,
            "# TYPE kubernetes_healthchecks_total counter",
            r#"kubernetes_healthchecks_total{name="ping",type="livez",status="success"} 2"#,
            r#"kubernetes_healthchecks_total{name="shutdown",type="readyz",status="error"} 1"#,
            r#"kubernetes_healthchecks_total{name="shutdown",type="readyz",status="success"} 1"#,
        ]
    );
    assert_eq!(bed.request(Method::DELETE, "/metrics/slis", Some("reader"), "").await.status, 403);
    let reset = bed.request(Method::DELETE, "/metrics/slis", Some("writer"), "").await;
    assert_eq!((reset.status.as_u16(), reset.body.as_str()), (200, "metrics reset\n"));
    assert_eq!(slis().await, "");
}

#[tokio::test]
async fn setting_the_log_level_requires_write_permission() {
    let bed = TestBed::new().await;
    let put = async |token, body: &str| bed.request(Method::PUT, "/debug/flags/v", Some(token), body).await;
    assert_eq!(put("reader", "4").await.status, 403);
    for (body, now) in [("4", "debug"), ("0", "info"), ("warn,supercargo=debug\n", "warn,supercargo=debug")] {
        assert_eq!(put("writer", body).await.status, 200);
        assert_eq!(bed.get("/debug/flags/v", Some("reader")).await.body, format!("{now}\n"));
    }
    for wrong in ["", "loud=quiet=", "warning", "loud"] {
        let answer = put("writer", wrong).await;
        assert_eq!(answer.status, 400, "{wrong:?}");
        let listed = format!("{wrong:?} is not a log level: must be off, error, warn, info, debug or trace");
        assert!(answer.body.starts_with(&listed), "{}", answer.body);
    }
    assert_eq!(put("writer", &"x".repeat(1 << 20)).await.status, 413);
    assert_eq!(bed.request(Method::POST, "/debug/flags/v", Some("writer"), "4").await.status, 406);
    assert_eq!(bed.get("/debug/flags/v", Some("reader")).await.body, "warn,supercargo=debug\n");
}

#[tokio::test]
async fn a_panicking_handler_returns_500_and_the_server_continues() {
    let bed = TestBed::new().await;
    let answered = bed.get("/debug/panic", Some("reader")).await;
    assert_eq!(answered.status, 500);
    assert!(!answered.body.contains("on purpose"), "{}", answered.body);
    assert_eq!(bed.get("/metrics", Some("reader")).await.status, 200);
}

#[tokio::test]
async fn without_api_server_only_health_is_served() {
    let bed = TestBed::new().await;
    assert_eq!(bed.get("/metrics", Some("reader")).await.status, 200);
    bed.api.answer(|_| (500, json!({})));
    // Earlier results are cached for a while.
    assert_eq!(bed.get("/metrics", Some("reader")).await.status, 200);
    assert_eq!(bed.get("/configz", Some("reader")).await.status, 500);
    assert_eq!(bed.get("/metrics", Some("writer")).await.status, 401);
    assert_eq!(bed.get("/readyz", Some("writer")).await.status, 200);
}

#[tokio::test]
async fn requests_in_flight_are_answered_at_shutdown() {
    let bed = TestBed::new().await;
    let slow = bed.get("/debug/slow", Some("reader"));
    let stop = async {
        // The slow request has begun once it is the only unfinished one.
        while bed.api.requests().len() < 2 {
            tokio::task::yield_now().await;
        }
        bed.stop.cancel();
        while tokio::net::TcpStream::connect(bed.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(!bed.served.is_finished());
        bed.slow.add_permits(1);
    };
    let (answered, ()) = tokio::join!(slow, stop);
    assert_eq!((answered.status.as_u16(), answered.body.as_str()), (200, "true"));
    bed.served.await.unwrap();
}

#[tokio::test]
async fn a_stream_lasts_until_shutdown() {
    for http1_only in [false, true] {
        let bed = TestBed::with(http1_only, Duration::from_secs(10)).await;
        let request = Request::get(format!("https://{}/ask/stream", bed.address));
        let request = request.header(header::AUTHORIZATION, "Bearer reader").body(Full::default()).unwrap();
        let mut body = bed.client.request(request).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
        assert!(body.frame().now_or_never().is_none());
        bed.stop.cancel();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "");
        drop(bed.client);
        bed.served.await.unwrap();
    }
}

#[tokio::test]
async fn pages_of_other_sites_get_no_answers_to_queries() {
    for http1_only in [false, true] {
        let bed = TestBed::with(http1_only, Duration::from_secs(10)).await;
        for (path, site, status) in [
            ("/ask?a=b", "same-origin", 200),
            ("/ask?a=b", "cross-site", 403),
            ("/configz", "cross-site", 200),
        ] {
            let request = Request::get(format!("https://{}{path}", bed.address))
                .header(header::AUTHORIZATION, "Bearer reader")
                .header("sec-fetch-site", site)
                .body(Full::default())
                .unwrap();
            assert_eq!(bed.client.request(request).await.unwrap().status(), status, "{path}, {site}");
        }
    }
}

#[tokio::test]
async fn used_addresses_are_reported_and_port_0_disables_serving() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut serving = ServingOptions {
        bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        secure_port: taken.local_addr().unwrap().port(),
        ..ServingOptions::default()
    };
    let (authentication, authorization) = (AuthenticationOptions::default(), AuthorizationOptions::default());
    let connection = kube::Config::new("https://127.0.0.1:1/".parse().unwrap()).into();
    let bind = async |serving: &ServingOptions, authentication: &AuthenticationOptions| {
        let setup = Setup {
            serving,
            authentication,
            authorization: &authorization,
            connection: &connection,
            hostname: "host",
        };
        Server::bind(setup).await
    };
    let error = bind(&serving, &authentication).await.err().unwrap().to_string();
    assert!(error.contains(&taken.local_addr().unwrap().to_string()), "{error}");
    serving.secure_port = 0;
    assert!(bind(&serving, &authentication).await.unwrap().is_none());
    // Port 1 refuses connections, and that is not tolerated.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let intolerant =
        AuthenticationOptions { tolerate_lookup_failure: false, ..AuthenticationOptions::default() };
    let setup = Setup {
        serving: &serving,
        authentication: &intolerant,
        authorization: &authorization,
        connection: &connection,
        hostname: "host",
    };
    let error = Server::on(listener, setup).await.err().unwrap().to_string();
    assert!(error.contains("extension-apiserver-authentication"), "{error}");
}

#[tokio::test]
async fn strangers_do_not_delay_known_callers_or_probes() {
    let bed = TestBed::with(false, Duration::ZERO).await;
    assert_eq!(bed.get("/metrics", Some("reader")).await.status, 200);
    bed.api.answer(|review| match review["spec"]["token"].as_str() {
        Some(token) if token.starts_with("made-up") => (testing::NEVER, json!({})),
        _ => reviews(review),
    });
    let request = |token: String| {
        let request = Request::get(format!("https://{}/metrics", bed.address));
        request.header(header::AUTHORIZATION, format!("Bearer {token}")).body(Full::default()).unwrap()
    };
    // 16 requests per connection.
    let mut strangers = JoinSet::new();
    for number in 0..6 {
        let client = bed.another_client();
        for stream in 0..16 {
            let asking = client.request(request(format!("made-up-{number}-{stream}")));
            strangers.spawn(async move { asking.await.unwrap().status() });
        }
    }
    // As many wait as may; the others are answered.
    for _ in 0..16 {
        assert_eq!(strangers.join_next().await.unwrap().unwrap(), 429);
    }
    let refused = bed.get("/metrics", Some("made-up")).await;
    assert_eq!((refused.status.as_u16(), &refused.headers["retry-after"]), (429, &"1".parse().unwrap()));
    let answers = async {
        assert_eq!(bed.get("/metrics", Some("reader")).await.status, 200);
        assert_eq!(bed.get("/readyz", None).await.status, 200);
        assert_eq!(bed.get("/readyz", Some("made-up")).await.status, 200);
    };
    tokio::time::timeout(Duration::from_secs(5), answers).await.unwrap();
    assert_eq!(strangers.len(), 80);
}

/// More strangers than there are places.
const BESIEGERS: usize = 1500;

#[tokio::test]
async fn a_siege_of_strangers_cuts_off_neither_known_clients_nor_probes() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let bed = TestBed::new().await;
    let siege = async {
        // The slow request has been reviewed, so that its client is known.
        while bed.api.requests().len() < 2 {
            tokio::task::yield_now().await;
        }
        let (mut silent, mut speaking) = (Vec::new(), JoinSet::new());
        for number in 0..BESIEGERS {
            let path = match number % 20 {
                0 => "metrics",
                10 => "livez",
                _ => {
                    silent.push(tokio::net::TcpStream::connect(bed.address).await.unwrap());
                    continue;
                }
            };
            let (client, address) = (bed.another_client(), bed.address);
            speaking.spawn(async move {
                let request = Request::get(format!("https://{address}/{path}")).body(Full::default());
                // Its connection may have been closed for another one.
                let _ = client.request(request.unwrap()).await;
                std::future::pending::<()>().await;
            });
            let probe = Request::get(format!("https://{address}/readyz")).body(Full::default()).unwrap();
            assert_eq!(bed.another_client().request(probe).await.unwrap().status(), 200);
            assert_eq!(bed.get("/metrics", Some("reader")).await.status, 200);
        }
        bed.slow.add_permits(1);
        (silent, speaking)
    };
    // It ends with its connection.
    let slow = bed.get("/debug/slow", Some("reader"));
    let both = async { tokio::join!(slow, siege) };
    let (answered, _strangers) = tokio::time::timeout(Duration::from_mins(1), both).await.unwrap();
    assert_eq!((answered.status.as_u16(), answered.body.as_str()), (200, "true"));
}

#[tokio::test]
async fn large_heads_of_requests_are_refused() {
    for http1_only in [false, true] {
        let bed = TestBed::with(http1_only, Duration::ZERO).await;
        for (size, is_answered) in [(12 << 10, true), (20 << 10, false)] {
            let request = Request::get(format!("https://{}/livez", bed.address));
            let request = request.header("x-large", "x".repeat(size)).body(Full::default()).unwrap();
            let status = bed.another_client().request(request).await.map(|answer| answer.status().as_u16());
            assert_eq!(status.as_ref().is_ok_and(|status| *status == 200), is_answered, "{size}: {status:?}");
        }
    }
}

#[tokio::test]
async fn a_connection_makes_the_server_hold_little() {
    let bed = TestBed::new().await;
    let mut tls = trusting(&fs::read(bed.folder.path().join("kube-scheduler.crt")).unwrap());
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = tokio::net::TcpStream::connect(bed.address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
    let stream = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = || {
        let request = Request::get("https://localhost/debug/slow");
        request.header(header::AUTHORIZATION, "Bearer reader").body(()).unwrap()
    };
    // The settings have arrived with the first answer.
    bed.slow.add_permits(1);
    let (answer, _) = client.send_request(request(), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    assert_eq!(client.current_max_send_streams(), 16);
    bed.slow.forget_permits(1);
    let (mut granted, mut open) = (0, Vec::new());
    for _ in 0..4 {
        client = client.ready().await.unwrap();
        let (answer, mut body) = client.send_request(request(), false).unwrap();
        body.reserve_capacity(1 << 20);
        let capacity = std::future::poll_fn(|cx| body.poll_capacity(cx));
        // Nothing more is granted to the later ones.
        if let Ok(capacity) = tokio::time::timeout(Duration::from_millis(100), capacity).await {
            granted += capacity.unwrap().unwrap();
        }
        open.push((answer, body));
    }
    assert!((1..=64 << 10).contains(&granted), "{granted}");
    connection.abort();
}

/// Answers every request.
struct Open;

impl AnswerRequest for Open {
    async fn answer(&self, _: Request<Body>, _: &[CertificateDer<'static>], _: &Activity) -> Response {
        Response::new(Body::empty())
    }
}

#[tokio::test]
async fn idle_connections_do_not_lock_out_others() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServingOptions { cert_dir: Some(folder.path().to_owned()), ..ServingOptions::default() };
    let certificate = Arc::new(Certificates::new(&options, "host").unwrap());
    let tls = Arc::new(tls::config(&options, certificate).unwrap());
    let connections = Connections { tls, streams: 0, limit: ConnectionLimit::new(3), answer: Arc::new(Open) };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(connections.serve(listener, CancellationToken::new()));
    let mut strangers = Vec::new();
    for _ in 0..10 {
        strangers.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    let client = client(&fs::read(folder.path().join("kube-scheduler.crt")).unwrap());
    let request = Request::get(format!("https://{address}/livez")).body(Full::default()).unwrap();
    // Sooner than the timeout of handshakes.
    let answered = tokio::time::timeout(Duration::from_secs(10), client.request(request)).await.unwrap();
    assert_eq!(answered.unwrap().status(), 200);
    served.abort();
}

#[tokio::test(start_paused = true)]
async fn an_invalid_file_does_not_block_reloading_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let options = ServingOptions { cert_dir: Some(folder.path().to_owned()), ..ServingOptions::default() };
    let certificate = Certificates::new(&options, "host").unwrap();
    let (first, second) = (testing::Authority::new(), testing::Authority::new());
    let mut authentication = AuthenticationOptions { skip_lookup: true, ..AuthenticationOptions::default() };
    authentication.client_ca_file = Some(file("clients.crt"));
    authentication.request_header.client_ca_file = Some(file("proxies.crt"));
    for name in ["clients.crt", "proxies.crt"] {
        fs::write(file(name), &first.pem).unwrap();
    }
    let trust = Trust::new(&authentication).unwrap();
    let reviewer = Reviewer::new(testing::Server::default().api(), "authentication");
    let follow = async || {
        let following = keep_current(&certificate, &trust, &reviewer);
        assert!(tokio::time::timeout(FILES_PERIOD, following).await.is_err());
    };

    fs::write(file("kube-scheduler.crt"), "broken").unwrap();
    fs::write(file("clients.crt"), &second.pem).unwrap();
    follow().await;
    trust.clients().unwrap().verify(&second.client("jane")).unwrap();

    fs::write(file("clients.crt"), "broken").unwrap();
    fs::write(file("proxies.crt"), &second.pem).unwrap();
    follow().await;
    trust.clients().unwrap().verify(&second.client("jane")).unwrap();
    assert!(trust.proxies().unwrap().user(&second.client("proxy"), &HeaderMap::new()).unwrap().is_none());
}

#[tokio::test]
async fn changed_certificates_apply_to_new_connections() {
    let bed = TestBed::new().await;
    let other = tempfile::tempdir().unwrap();
    let options = ServingOptions { cert_dir: Some(other.path().to_owned()), ..ServingOptions::default() };
    Certificates::new(&options, "host").unwrap();
    for file in ["kube-scheduler.key", "kube-scheduler.crt"] {
        fs::copy(other.path().join(file), bed.folder.path().join(file)).unwrap();
    }
    let pem = fs::read(other.path().join("kube-scheduler.crt")).unwrap();
    let begun = std::time::Instant::now();
    loop {
        let request = Request::get(format!("https://{}/livez", bed.address)).body(Full::default()).unwrap();
        // A new client has a new connection.
        if client(&pem).request(request).await.is_ok() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "the new certificate is not served");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
