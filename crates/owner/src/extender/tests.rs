//! Calls to servers on loopback.

use std::time::Duration;

use supercargo_apiserver::{ApiServer, Listen};
use supercargo_framework::NodeRecord;
use supercargo_framework::testing::{node, pod};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

/// An extender with all verbs that receives node names.
fn configured(url_prefix: &str) -> ExtenderConfig {
    let verb = |verb: &str| Some(verb.to_owned());
    ExtenderConfig {
        url_prefix: url_prefix.to_owned(),
        filter_verb: verb("filter"),
        preempt_verb: verb("preempt"),
        prioritize_verb: verb("prioritize"),
        weight: 1,
        bind_verb: verb("bind"),
        enable_https: false,
        tls: ExtenderTls::default(),
        http_timeout: Duration::from_secs(20),
        node_cache_capable: true,
        managed_resources: Vec::new(),
        ignorable: false,
    }
}

fn spec() -> ExtenderSpec {
    ExtenderSpec { name: "x".into(), ..ExtenderSpec::default() }
}

fn nodes() -> Vec<Arc<NodeRecord>> {
    vec![Arc::new(node("n1").build()), Arc::new(node("n2").build())]
}

async fn filter(config: ExtenderConfig) -> Result<ExtenderAnswer, String> {
    let extenders = HttpExtenders::new(&[config]).await.unwrap();
    let pod = Arc::new(pod("p").build());
    extenders.ask(&spec(), ExtenderQuestion::Filter { pod: &pod, nodes: &nodes() }).await
}

/// A server that sends the same response to each request, and reports connections and heads of
/// requests.
async fn server(answer: &'static str) -> (String, UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a/b", listener.local_addr().unwrap());
    let (sender, received) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = sender.send("connection".to_owned());
            let sender = sender.clone();
            tokio::spawn(async move {
                while let Some(head) = read_request(&mut stream).await {
                    let _ = sender.send(head);
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    (url, received)
}

/// The head of the next request, after its body has arrived.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let length = head.split("content-length: ").nth(1)?.lines().next()?.parse::<usize>().ok()?;
            if body.len() >= length {
                return Some(head);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

#[tokio::test]
async fn calls_are_json_posts_below_the_prefix_on_one_connection() {
    let (url, mut received) =
        server("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"NodeNames\":[\"n2\"]}").await;
    let extenders = HttpExtenders::new(&[configured(&url)]).await.unwrap();
    let pod = Arc::new(pod("p").build());
    for _ in 0..2 {
        let question = ExtenderQuestion::Filter { pod: &pod, nodes: &nodes() };
        let answer = extenders.ask(&spec(), question).await.unwrap();
        assert!(matches!(answer, ExtenderAnswer::Filtered { nodes, .. } if nodes == ["n2".into()]));
    }
    assert_eq!(extenders.bind(&spec(), &pod, "n1").await, Ok(()));
    assert_eq!(received.recv().await.unwrap(), "connection");
    for path in ["/a/b/filter", "/a/b/filter", "/a/b/bind"] {
        let head = received.recv().await.unwrap();
        assert!(head.starts_with(&format!("post {path} http/1.1\r\n")), "{head}");
        assert!(head.contains("content-type: application/json"), "{head}");
    }
    assert!(received.try_recv().is_err());
}

#[tokio::test]
async fn errors_have_the_texts_of_gos_client() {
    for answer in
        ["HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 201 OK\r\nContent-Length: 2\r\n\r\n{}"]
    {
        let (url, _heard) = server(answer).await;
        let code = &answer[9..12];
        let expected = format!("failed filter with extender at URL {url}/filter, code {code}");
        assert_eq!(filter(configured(&url)).await, Err(expected));
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    let expected = format!("Post \"{url}/filter\": dial tcp {closed}: connect: connection refused");
    assert_eq!(filter(configured(&url)).await, Err(expected));
    let (url, _heard) = server("").await;
    let config = ExtenderConfig { http_timeout: Duration::from_millis(50), ..configured(&url) };
    let expected = format!(
        "Post \"{url}/filter\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    );
    assert_eq!(filter(config).await, Err(expected));
}

#[tokio::test]
async fn an_endless_answer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await.unwrap();
        let piece = vec![b' '; 1 << 20];
        while stream.write_all(&piece).await.is_ok() {}
    });
    let error = filter(configured(&url)).await.unwrap_err();
    assert_eq!(error, format!("Post \"{url}/filter\": answer exceeds 64 MiB"));
}

#[tokio::test]
async fn call_without_a_configured_verb_fails() {
    let config = ExtenderConfig { filter_verb: None, ..configured("http://127.0.0.1:1") };
    assert_eq!(filter(config).await, Err("extender http://127.0.0.1:1 has no verb for this".to_owned()));
}

/// Base64 of a text.
fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    // Trailing spaces are ignored in PEM files, and avoid padding.
    let padded = format!("{text}{}", " ".repeat((3 - text.len() % 3) % 3));
    let letters = padded.as_bytes().chunks(3).flat_map(|three| {
        let bits = three.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(LETTERS[bits >> shift & 63]))
    });
    letters.collect()
}

#[tokio::test]
async fn certificates_are_verified_unless_there_is_no_ca_bundle() {
    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let ca = endpoint.ca_pem().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, &ca).unwrap();
    let config = |enable_https, tls| ExtenderConfig { enable_https, tls, ..configured(&endpoint.url()) };
    let tls = ExtenderTls::default;
    let by_file = ExtenderTls { ca_file: Some(file.display().to_string()), ..tls() };
    let by_data = ExtenderTls { ca_data: Some(base64(&ca)), ..tls() };
    let another_name = ExtenderTls { server_name: Some("elsewhere.example".to_owned()), ..by_file.clone() };
    let cases = [
        ("system roots", config(false, tls()), false),
        ("enableHTTPS without CA bundle", config(true, tls()), true),
        ("insecure", config(false, ExtenderTls { insecure: true, ..tls() }), true),
        ("CA file", config(false, by_file.clone()), true),
        ("CA data", config(true, by_data), true),
        ("other server name", config(true, another_name), false),
    ];
    for (name, config, is_trusted) in cases {
        let error = filter(config).await.unwrap_err();
        // The server responds with 404, but only after a successful handshake.
        assert_eq!(error.starts_with("failed filter with extender at URL"), is_trusted, "{name}: {error}");
    }
    let missing = ExtenderTls { ca_file: Some("/nowhere/ca.pem".to_owned()), ..tls() };
    let error = HttpExtenders::new(&[config(true, missing)]).await.err().unwrap();
    let error = full_text(&error);
    assert!(
        error.starts_with(&format!("extender {}", endpoint.url())) && error.contains("/nowhere/ca.pem"),
        "{error}"
    );
}

#[test]
fn raw_objects_are_kept_only_for_extenders_that_receive_them() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let needs = |config: ExtenderConfig| {
        let extenders = runtime.block_on(HttpExtenders::new(&[config])).unwrap();
        (extenders.need_whole_pods(), extenders.need_whole_nodes())
    };
    let by_name = || configured("http://127.0.0.1:1");
    let binds =
        || ExtenderConfig { filter_verb: None, preempt_verb: None, prioritize_verb: None, ..by_name() };
    assert_eq!(needs(by_name()), (true, false));
    assert_eq!(needs(ExtenderConfig { node_cache_capable: false, ..by_name() }), (true, true));
    assert_eq!(needs(ExtenderConfig { node_cache_capable: false, ..binds() }), (false, false));
    let managed = supercargo_config::ManagedResource { name: "a.b/c".into(), ignored_by_scheduler: false };
    assert_eq!(needs(ExtenderConfig { managed_resources: vec![managed], ..binds() }), (true, false));
    assert!(!HttpExtenders::default().need_whole_pods() && !HttpExtenders::default().need_whole_nodes());
}
