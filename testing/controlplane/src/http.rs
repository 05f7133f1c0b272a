//! A minimal HTTP client with or without TLS. Connections are reused, because a handshake costs
//! more than a request.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use crate::connection::{Connection, Idle};

/// The longest silence of a server during one request. kube-apiserver itself gives up after a
/// minute.
const PATIENCE: Duration = Duration::from_secs(70);

/// The time limit for a probe: another process may listen on the port and never answer.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);

/// A request method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates.
    Post,
    /// Replaces.
    Put,
    /// Patches: an array is sent as a JSON patch, an object as a merge patch.
    Patch,
    /// Deletes.
    Delete,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        })
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status code.
    pub status: u16,
    /// The whole body.
    pub body: String,
}

impl Response {
    /// The body as JSON, or an error with the status and body if the status is not a success.
    pub fn json(&self) -> Result<Value> {
        ensure!((200..300).contains(&self.status), "the server answered {}: {}", self.status, self.body);
        serde_json::from_str(&self.body).context("the server's answer is not JSON")
    }
}

/// A client for one server on loopback.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    patience: Duration,
    tls: Option<Arc<ClientConfig>>,
    idle: Idle,
}

impl Client {
    /// A client without TLS.
    pub(crate) fn plain(port: u16) -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            patience: PATIENCE,
            tls: None,
            idle: Idle::default(),
        }
    }

    /// The same client with the time limit of probes.
    pub(crate) fn probe(&self) -> Self {
        Self { patience: PROBE_PATIENCE, idle: Idle::default(), ..self.clone() }
    }

    /// A client with TLS that trusts one authority.
    pub(crate) fn tls(port: u16, ca_pem: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).context("read the authority's PEM")?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: Some(Arc::new(config)), ..Self::plain(port) })
    }

    /// Sends one request and reads the whole response.
    pub(crate) fn send(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Response> {
        let request = encode(method, path, self.address, token, body);
        let answer = self.exchange(&request).with_context(|| format!("{method} {path}"))?;
        decode(&answer).with_context(|| format!("read the answer to {method} {path}"))
    }

    /// Sends a watch and reads its events up to the one that is the end.
    pub(crate) fn watch(
        &self,
        path: &str,
        token: Option<&str>,
        is_end: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>> {
        let request = encode(Method::Get, path, self.address, token, None);
        let mut connection = Connection::open(self.address, self.patience, self.tls.as_ref())?;
        let is_last = |answer: &[u8]| watched(answer).last().is_some_and(&is_end);
        let answer = connection.exchange(&request, is_last).with_context(|| format!("GET {path}"))?;
        let events = watched(&answer.unwrap_or_default());
        ensure!(events.last().is_some_and(&is_end), "GET {path} ended after {events:?}");
        Ok(events)
    }

    /// Closes idle connections.
    pub(crate) fn hang_up(&self) {
        self.idle.clear();
    }

    fn exchange(&self, request: &[u8]) -> Result<Vec<u8>> {
        // A reused connection may be closed. A server that answers nothing has not processed the
        // request.
        while let Some(connection) = self.idle.take() {
            if let Some(answer) = self.exchange_over(connection, request)? {
                return Ok(answer);
            }
        }
        let connection = Connection::open(self.address, self.patience, self.tls.as_ref())
            .with_context(|| format!("connect to {}", self.address))?;
        self.exchange_over(connection, request)?.context("the server hung up without an answer")
    }

    fn exchange_over(&self, mut connection: Connection, request: &[u8]) -> Result<Option<Vec<u8>>> {
        let answer = connection.exchange(request, is_whole)?;
        if answer.as_deref().is_some_and(|answer| is_whole(answer) && !says_goodbye(answer)) {
            self.idle.keep(connection);
        }
        Ok(answer)
    }
}

fn encode(
    method: Method,
    path: &str,
    host: SocketAddr,
    token: Option<&str>,
    body: Option<&Value>,
) -> Vec<u8> {
    let authorization = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\n{authorization}");
    let rest = body.map_or_else(
        || "\r\n".to_owned(),
        |body| {
            let (kind, text) = (content_type(method, body), body.to_string());
            format!("Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{text}", text.len())
        },
    );
    (head + &rest).into_bytes()
}

fn content_type(method: Method, body: &Value) -> &'static str {
    match (method, body) {
        (Method::Patch, Value::Array(_)) => "application/json-patch+json",
        (Method::Patch, _) => "application/merge-patch+json",
        _ => "application/json",
    }
}

/// Whether the response is complete. Without a length, it ends with the connection.
fn is_whole(answer: &[u8]) -> bool {
    let Some((head, body)) = split(answer) else { return false };
    if is_chunked(head) {
        // The last chunk is empty. The decoder checks that these bytes are not data.
        return body.ends_with(b"0\r\n\r\n") && unchunk(body).is_ok();
    }
    let length = header(head, "content-length").and_then(|length| length.parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

/// Whether the server closes the connection after this response.
fn says_goodbye(answer: &[u8]) -> bool {
    split(answer).and_then(|(head, _)| header(head, "connection")).is_some_and(|word| word == "close")
}

/// The head and the body of a response.
fn split(answer: &[u8]) -> Option<(&str, &[u8])> {
    let end = find(answer, b"\r\n\r\n")?;
    Some((std::str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]))
}

fn is_chunked(head: &str) -> bool {
    header(head, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
}

fn decode(answer: &[u8]) -> Result<Response> {
    let (head, body) = split(answer).context("the answer has no headers, or they are not text")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status code")?;
    let body = if is_chunked(head) {
        unchunk(body)?
    } else if let Some(length) = header(head, "content-length") {
        let length: usize = length.parse().context("Content-Length is not a number")?;
        body.get(..length).context("the body is cut short")?.to_vec()
    } else {
        body.to_vec()
    };
    Ok(Response { status, body: String::from_utf8_lossy(&body).into_owned() })
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The events so far in the response to a watch, one a line.
fn watched(answer: &[u8]) -> Vec<Value> {
    let mut body = Vec::new();
    if let Some((_, rest)) = split(answer) {
        // The last chunk is always missing.
        let _ = unchunk_into(&mut body, rest);
    }
    let lines = body.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn unchunk(rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    unchunk_into(&mut body, rest)?;
    Ok(body)
}

fn unchunk_into(body: &mut Vec<u8>, mut rest: &[u8]) -> Result<()> {
    loop {
        let line_end = find(rest, b"\r\n").context("a chunk has no size line")?;
        let line = std::str::from_utf8(&rest[..line_end]).context("a chunk size is not text")?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).context("a chunk size is not a number")?;
        if size == 0 {
            return Ok(());
        }
        let start = line_end + 2;
        let Some(chunk) = rest.get(start..start + size) else { bail!("the body is cut short") };
        body.extend_from_slice(chunk);
        rest = rest.get(start + size + 2..).context("the body is cut short")?;
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::{Client, Method, decode, is_whole, watched};

    #[test]
    fn response_is_complete_with_its_last_byte() {
        for whole in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n0\r\n\r\n\r\n0\r\n\r\n",
        ] {
            let whole = whole.as_bytes();
            assert!((0..whole.len()).all(|end| !is_whole(&whole[..end])) && is_whole(whole));
        }
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\n\r\nto the end"));
    }

    #[test]
    fn connection_is_reused_until_the_server_closes_it() {
        fn answer(stream: &mut TcpStream, body: &str) {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = Client::plain(listener.local_addr().unwrap().port());
        let server = thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            answer(&mut first, "one");
            answer(&mut first, "two");
            drop(first);
            answer(&mut listener.accept().unwrap().0, "three");
        });
        let bodies = [(); 3].map(|()| client.send(Method::Get, "/", None, None).unwrap().body);
        assert_eq!(bodies, ["one", "two", "three"]);
        server.join().unwrap();
        assert!(client.send(Method::Get, "/", None, None).is_err());
    }

    #[test]
    fn bodies_of_every_encoding_are_decoded() {
        let sized = decode(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokEXTRA").unwrap();
        assert_eq!((sized.status, sized.body.as_str()), (200, "ok"));
        let chunked = decode(
            b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\n\r\n",
        );
        assert_eq!(chunked.unwrap().body, "abc0123456789");
        assert_eq!(decode(b"HTTP/1.1 503 No\r\n\r\nto the end").unwrap().body, "to the end");
    }

    #[test]
    fn watch_has_the_events_whose_lines_are_complete() {
        let answer =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1\n2\n\r\n2\r\n3\n\r\n1\r\n4\r\n";
        assert_eq!(watched(answer), [1, 2, 3]);
        assert_eq!(watched(&answer[..answer.len() - 9]), [1, 2]);
        assert!(watched(b"HTTP/1.1 200 OK\r\n").is_empty());
    }

    #[test]
    fn truncated_bodies_are_errors() {
        assert!(decode(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab").is_err());
        assert!(decode(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab").is_err());
        assert!(decode(b"HTTP/1.1 200").is_err());
    }
}
