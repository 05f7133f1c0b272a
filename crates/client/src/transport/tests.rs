//! Servers with correct, faulty or no HTTP/2.

use std::pin::Pin;
use std::sync::atomic::AtomicUsize;

use futures::stream;
use http::Version;
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::Config;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Listen};
use supercargo_framework::binding::Certainty;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};
use tokio_rustls::server::TlsStream;

use super::*;
use crate::api::{Api, Call, CallError, full_text};

type Stream = TlsStream<TcpStream>;

/// How a server handles its connections, numbered from 0.
type Script = fn(usize, Stream, Arc<Notes>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Default)]
struct Notes {
    connections: AtomicUsize,
    requests: AtomicUsize,
    open: AtomicUsize,
    most_open: AtomicUsize,
    /// The test lets the server go on.
    may_answer: tokio::sync::Notify,
}

impl Notes {
    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// A server on loopback that offers these protocols per connection; the last ones apply to all
/// further connections.
async fn server(protocols: &'static [&'static str], script: Script) -> (Config, Arc<Notes>) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.root_cert = Some(vec![certificate.der().to_vec()]);
    config.connect_timeout = None;
    let notes = Arc::new(Notes::default());
    let (der, notes_of_server) = (certificate.der().clone(), Arc::clone(&notes));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let number = notes_of_server.connections.fetch_add(1, Ordering::SeqCst);
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
            let mut tls = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![der.clone()], key)
                .unwrap();
            let protocol = protocols[number.min(protocols.len() - 1)];
            tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
            let notes = Arc::clone(&notes_of_server);
            tokio::spawn(async move {
                if let Ok(stream) = TlsAcceptor::from(Arc::new(tls)).accept(stream).await {
                    script(number, stream, notes).await;
                }
            });
        }
    });
    (config, notes)
}

fn api(config: &Config) -> Api {
    Api::over(Transport::connect(config).unwrap(), None, false)
}

fn get(path: &str) -> Request<Bytes> {
    Request::get(path).body(Bytes::new()).unwrap()
}

async fn post(api: &Api) -> Result<(), CallError> {
    let body = &json!({"kind": "Binding"});
    api.write(Call { method: http::Method::POST, path: "/x", content_type: "application/json", body }).await
}

/// Responds with 200 after a delay, with up to 10 streams.
fn good(_: usize, stream: Stream, notes: Arc<Notes>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut builder = h2::server::Builder::new();
        let mut connection = builder.max_concurrent_streams(10).handshake::<_, Bytes>(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let notes = Arc::clone(&notes);
            notes.requests.fetch_add(1, Ordering::SeqCst);
            let open = notes.open.fetch_add(1, Ordering::SeqCst) + 1;
            notes.most_open.fetch_max(open, Ordering::SeqCst);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                notes.open.fetch_sub(1, Ordering::SeqCst);
                let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                body.send_data("{}".into(), true).unwrap();
            });
        }
    })
}

#[tokio::test]
async fn all_requests_share_one_connection_and_keep_to_its_streams() {
    let (config, notes) = server(&["h2"], good).await;
    let api = api(&config);
    let results = futures::future::join_all((0..300).map(|_| post(&api))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!((notes.connections(), notes.requests()), (1, 300));
    let most = notes.most_open.load(Ordering::SeqCst);
    assert!((2..=10).contains(&most), "{most} at once");
}

/// Reads a frame; returns its type and stream.
async fn frame(stream: &mut Stream) -> (u8, u32) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    stream.read_exact(&mut vec![0; length]).await.unwrap();
    (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]))
}

const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

async fn send(stream: &mut Stream, kind: u8, payload: &[u8]) {
    let mut frame = vec![0, 0, u8::try_from(payload.len()).unwrap(), kind, 0, 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    stream.write_all(&frame).await.unwrap();
    stream.flush().await.unwrap();
}

/// Reads a request and returns its stream.
async fn request(stream: &mut Stream, notes: &Notes) -> u32 {
    stream.read_exact(&mut [0; 24]).await.unwrap();
    send(stream, SETTINGS, &[]).await;
    loop {
        if let (DATA, id) = frame(stream).await {
            notes.requests.fetch_add(1, Ordering::SeqCst);
            return id;
        }
    }
}

/// Answers the first request with GOAWAY up to this stream.
async fn goodbye(stream: &mut Stream, last: u32) {
    let mut payload = last.to_be_bytes().to_vec();
    payload.extend_from_slice(&[0; 4]);
    send(stream, GOAWAY, &payload).await;
    stream.shutdown().await.unwrap();
}

fn leaves_before(
    number: usize,
    mut stream: Stream,
    notes: Arc<Notes>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    if number > 0 {
        return good(number, stream, notes);
    }
    Box::pin(async move {
        request(&mut stream, &notes).await;
        goodbye(&mut stream, 0).await;
    })
}

#[tokio::test]
async fn streams_beyond_goaway_are_retried() {
    let (config, notes) = server(&["h2"], leaves_before).await;
    post(&api(&config)).await.unwrap();
    assert_eq!((notes.connections(), notes.requests()), (2, 2));
}

fn leaves_after(
    number: usize,
    mut stream: Stream,
    notes: Arc<Notes>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    if number > 0 {
        return good(number, stream, notes);
    }
    Box::pin(async move {
        let id = request(&mut stream, &notes).await;
        goodbye(&mut stream, id).await;
    })
}

#[tokio::test]
async fn streams_before_goaway_are_uncertain_and_not_retried() {
    let (config, notes) = server(&["h2"], leaves_after).await;
    let error = post(&api(&config)).await.unwrap_err();
    assert_eq!(error.error.certainty, Certainty::Unknown, "{}", error.error);
    assert_eq!(notes.requests(), 1);
}

/// Answers the first request, lets the second one take the only stream, and leaves.
fn leaves_one_waiting(
    number: usize,
    stream: Stream,
    notes: Arc<Notes>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    if number > 0 {
        return good(number, stream, notes);
    }
    Box::pin(async move {
        let mut builder = h2::server::Builder::new();
        let mut connection = builder.max_concurrent_streams(1).handshake::<_, Bytes>(stream).await.unwrap();
        let ok = |mut respond: h2::server::SendResponse<Bytes>| {
            notes.requests.fetch_add(1, Ordering::SeqCst);
            let mut body = respond.send_response(http::Response::new(()), false).unwrap();
            body.send_data("{}".into(), true).unwrap();
        };
        ok(connection.accept().await.unwrap().unwrap().1);
        let (_, second) = connection.accept().await.unwrap().unwrap();
        connection.graceful_shutdown();
        tokio::select! {
            more = connection.accept() => panic!("{more:?}"),
            () = notes.may_answer.notified() => ok(second),
        }
        while connection.accept().await.is_some() {}
    })
}

#[tokio::test]
async fn request_without_stream_is_unprocessed_if_it_has_a_body() {
    for (method, body, expected) in [
        (http::Method::POST, &b"{}"[..], Fate::Unprocessed),
        // Its end may have been sent with its head.
        (http::Method::GET, b"", Fate::Unknown),
    ] {
        let (config, notes) = server(&["h2"], leaves_one_waiting).await;
        let transport = Transport::connect(&config).unwrap();
        let send = || {
            let request = Request::builder().method(&method).uri("/x").body(Bytes::from_static(body));
            transport.send(request.unwrap())
        };
        send().await.unwrap();
        let waiting = async {
            let result = send().await;
            notes.may_answer.notify_one();
            result.unwrap_err()
        };
        let (second, error) = futures::join!(send(), waiting);
        second.unwrap();
        assert!(full_text(&*error).contains("dispatch task is gone"), "{}", full_text(&*error));
        assert_eq!(fate(&*error), expected);
        assert_eq!((notes.connections(), notes.requests()), (1, 2));
    }
}

#[tokio::test]
async fn request_left_waiting_for_a_stream_is_sent_again() {
    let (config, notes) = server(&["h2"], leaves_one_waiting).await;
    let api = api(&config);
    post(&api).await.unwrap();
    let waiting = async {
        post(&api).await.unwrap();
        notes.may_answer.notify_one();
    };
    let (second, ()) = futures::join!(post(&api), waiting);
    second.unwrap();
    assert_eq!((notes.connections(), notes.requests()), (2, 3));
}

fn breaks(number: usize, mut stream: Stream, notes: Arc<Notes>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    if number > 0 {
        return good(number, stream, notes);
    }
    Box::pin(async move {
        request(&mut stream, &notes).await;
    })
}

#[tokio::test]
async fn requests_on_a_broken_connection_are_uncertain() {
    let (config, notes) = server(&["h2"], breaks).await;
    let api = api(&config);
    let error = post(&api).await.unwrap_err();
    assert_eq!(error.error.certainty, Certainty::Unknown, "{}", error.error);
    post(&api).await.unwrap();
    assert_eq!((notes.connections(), notes.requests()), (2, 2));
}

/// Refuses every second stream, and answers the others.
fn refuses_some(_: usize, stream: Stream, notes: Arc<Notes>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            if notes.requests.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
            } else {
                let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                body.send_data(Bytes::from("{}"), true).unwrap();
            }
        }
    })
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_over_the_same_connection() {
    let (config, notes) = server(&["h2"], refuses_some).await;
    let api = api(&config);
    for _ in 0..3 {
        post(&api).await.unwrap();
    }
    assert_eq!((notes.connections(), notes.requests()), (1, 6));
}

/// Resets streams with a reason that leaves the effect unknown.
fn resets(_: usize, stream: Stream, notes: Arc<Notes>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            notes.requests.fetch_add(1, Ordering::SeqCst);
            respond.send_reset(h2::Reason::INTERNAL_ERROR);
        }
    })
}

#[tokio::test]
async fn a_stream_that_is_reset_is_uncertain() {
    let (config, notes) = server(&["h2"], resets).await;
    let error = post(&api(&config)).await.unwrap_err();
    assert_eq!(error.error.certainty, Certainty::Unknown, "{}", error.error);
    assert_eq!(notes.requests(), 1);
}

/// A minimal HTTP/1.1 server that responds with the version of each request.
fn old(_: usize, mut stream: Stream, notes: Arc<Notes>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut seen = Vec::new();
        while let Ok(byte) = stream.read_u8().await {
            seen.push(byte);
            // The end of the only request body.
            if seen.ends_with(b"}") {
                let request = String::from_utf8(std::mem::take(&mut seen)).unwrap();
                assert!(request.starts_with("POST /x HTTP/1.1\r\n"), "{request}");
                notes.requests.fetch_add(1, Ordering::SeqCst);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                stream.flush().await.unwrap();
            }
        }
    })
}

#[tokio::test]
async fn a_server_without_http2_is_spoken_to_in_http1() {
    let (config, notes) = server(&["http/1.1"], old).await;
    let api = api(&config);
    for _ in 0..3 {
        post(&api).await.unwrap();
    }
    assert_eq!((notes.connections(), notes.requests()), (1, 3));
}

fn new_and_then_old(
    number: usize,
    stream: Stream,
    notes: Arc<Notes>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    if number > 0 {
        return old(number, stream, notes);
    }
    Box::pin(async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_, mut respond) = connection.accept().await.unwrap().unwrap();
        notes.requests.fetch_add(1, Ordering::SeqCst);
        let mut body = respond.send_response(http::Response::new(()), false).unwrap();
        body.send_data(Bytes::from("{}"), true).unwrap();
        connection.graceful_shutdown();
        while connection.accept().await.is_some() {}
    })
}

#[tokio::test]
async fn a_server_that_no_longer_speaks_http2_is_spoken_to_in_http1() {
    let (config, notes) = server(&["h2", "http/1.1"], new_and_then_old).await;
    let api = api(&config);
    for _ in 0..3 {
        post(&api).await.unwrap();
    }
    assert_eq!((notes.connections(), notes.requests()), (2, 3));
}

/// Answers once and then nothing, not even pings.
fn dies(_: usize, stream: Stream, notes: Arc<Notes>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_, mut respond) = connection.accept().await.unwrap().unwrap();
        let mut body = respond.send_response(http::Response::new(()), false).unwrap();
        body.send_data(Bytes::from("{}"), true).unwrap();
        // Until the response is sent.
        let _ = tokio::time::timeout(Duration::from_millis(50), connection.accept()).await;
        notes.requests.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>().await;
        drop(connection);
    })
}

#[tokio::test]
async fn pings_find_a_connection_that_is_dead() {
    for (period, limit) in [(None, Duration::from_secs(21)), (Some(2), Duration::from_secs(5))] {
        let (config, notes) = server(&["h2"], dies).await;
        let transport = Transport::connect(&config).unwrap();
        let transport = match period {
            Some(seconds) => transport.pinged_every(Duration::from_secs(seconds)),
            None => transport,
        };
        transport.send(get("/x")).await.unwrap();
        while notes.requests() == 0 {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let error = transport.send(get("/x")).await.unwrap_err();
        assert!(full_text(&*error).contains("keep-alive"), "{}", full_text(&*error));
        assert!(began.elapsed() <= limit, "{:?}", began.elapsed());
        assert_eq!(fate(&*error), Fate::Unknown);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn refused_connections_send_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
    drop(listener);
    let error = post(&api(&config)).await.unwrap_err();
    assert!(error.connection_refused, "{}", error.error);
    assert_eq!(error.error.certainty, Certainty::Refused);
}

#[tokio::test]
async fn a_server_with_another_certificate_is_sent_nothing() {
    let (mut config, notes) = server(&["h2"], good).await;
    let other = KeyPair::generate().unwrap();
    let other = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&other).unwrap();
    config.root_cert = Some(vec![other.der().to_vec()]);
    let error = post(&api(&config)).await.unwrap_err();
    assert_eq!(error.error.certainty, Certainty::Refused, "{}", error.error);
    assert_eq!(notes.requests(), 0);
}

#[tokio::test]
async fn requests_succeed_with_token_over_tls_and_plain() {
    for tls in [true, false] {
        let server = ApiServer::default();
        let endpoint = server.listen(Listen { tls, ..Listen::default() }).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        endpoint.write_kubeconfig(&path).unwrap();
        let mut config = crate::connection::connect(Some(&path)).await.unwrap();
        let ask = |config: &Config| {
            let transport = Transport::connect(config).unwrap();
            async move { transport.send(get("/api/v1/namespaces/default")).await }
        };
        let answer = ask(&config).await.unwrap();
        let version = if tls { Version::HTTP_2 } else { Version::HTTP_11 };
        assert_eq!((answer.status(), answer.version()), (StatusCode::OK, version));
        let namespace: Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!(namespace["metadata"]["name"], "default");
        config.auth_info.token = None;
        assert_eq!(ask(&config).await.unwrap().status(), StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn without_a_token_that_is_still_good_nothing_is_sent() {
    let (mut config, notes) = server(&["h2"], good).await;
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    config.auth_info.token_file = Some(token.display().to_string());
    post(&api(&config)).await.unwrap();
    let expired = Connection::expired(config);
    let error = Transport::connect(expired).unwrap().send(get("/x")).await.unwrap_err();
    assert_eq!(fate(&*error), Fate::NotSent, "{}", full_text(&*error));
    assert!(full_text(&*error).contains("exec plugin"), "{}", full_text(&*error));
    assert_eq!(notes.requests(), 1);
}

#[tokio::test]
async fn after_a_reconnect_requests_use_a_new_connection() {
    let (config, notes) = server(&["h2"], good).await;
    let api = api(&config);
    let in_flight = post(&api);
    let later = async {
        while notes.requests() == 0 {
            tokio::task::yield_now().await;
        }
        api.reconnect();
        post(&api).await
    };
    let (first, second) = futures::future::join(in_flight, later).await;
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    assert_eq!((notes.connections(), notes.requests()), (2, 2));
}

#[tokio::test]
async fn a_server_that_accepts_but_never_shakes_hands_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.root_cert = Some(Vec::new());
    let transport = Transport::connect(&config).unwrap();
    let accepted = tokio::spawn(async move { listener.accept().await.unwrap() });
    let sending = tokio::spawn(async move { transport.send(get("/x")).await });
    let _open = accepted.await.unwrap();
    tokio::time::pause();
    let error = sending.await.unwrap().unwrap_err();
    assert_eq!(fate(&*error), Fate::NotSent, "{}", full_text(&*error));
}

#[tokio::test]
async fn answers_are_bounded() {
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let endless = StreamBody::new(stream::repeat_with(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok::<_, BoxError>(Frame::data(piece.clone()))
    }));
    let error = read_answer(endless).await.unwrap_err();
    assert_eq!(error.to_string(), "answer exceeds 64 MiB");
    assert_eq!(sent.load(Ordering::SeqCst), 65);
    let largest = Bytes::from(vec![b'x'; MAX_ANSWER]);
    assert_eq!(read_answer(http_body_util::Full::new(largest)).await.unwrap().len(), MAX_ANSWER);
}
