//! Just enough of an HTTP client: one request per connection, over TLS that trusts one authority only.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

/// How long a server may stay silent within one request; kube-apiserver gives up after a minute itself.
const PATIENCE: Duration = Duration::from_secs(70);

/// The same for a probe of a server that may not be ours: another process may hold the port and say nothing.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates.
    Post,
    /// Replaces.
    Put,
    /// Changes: an array is sent as a JSON patch, an object as a merge patch.
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

/// What the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status code.
    pub status: u16,
    /// The whole body.
    pub body: String,
}

impl Response {
    /// The body as JSON, or an error with the status and body when the status is no success.
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
}

impl Client {
    /// A client that speaks plain text.
    pub(crate) fn plain(port: u16) -> Self {
        Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), patience: PATIENCE, tls: None }
    }

    /// The same client, for asking whether the server is there.
    pub(crate) fn probe(&self) -> Self {
        Self { patience: PROBE_PATIENCE, ..self.clone() }
    }

    /// A client that speaks TLS to a server whose certificate the given authority signed.
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

    /// Sends one request and reads the whole answer.
    pub(crate) fn send(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Response> {
        let request = encode(method, path, self.address, token, body);
        let tcp = TcpStream::connect_timeout(&self.address, Duration::from_secs(5))
            .with_context(|| format!("connect to {}", self.address))?;
        tcp.set_read_timeout(Some(self.patience)).context("set the read timeout")?;
        tcp.set_nodelay(true).context("set TCP_NODELAY")?;
        let answer = match &self.tls {
            None => exchange(tcp, &request),
            Some(config) => {
                let name = ServerName::from(self.address.ip());
                exchange(StreamOwned::new(ClientConnection::new(config.clone(), name)?, tcp), &request)
            }
        };
        decode(&answer.with_context(|| format!("{method} {path}"))?)
            .with_context(|| format!("read the answer to {method} {path}"))
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
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: application/json\r\n{authorization}"
    );
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

fn exchange(mut stream: impl Read + Write, request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    stream.flush()?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // A server that drops TLS without saying goodbye: `decode` sees whether the answer is whole.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !answer.is_empty() => Ok(answer),
        result => result.map(|_| answer),
    }
}

fn decode(answer: &[u8]) -> Result<Response> {
    let split = find(answer, b"\r\n\r\n").context("the answer has no end of headers")?;
    let head = std::str::from_utf8(&answer[..split]).context("the headers are not text")?;
    let body = &answer[split + 4..];
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status code")?;
    let body = if header(head, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    {
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

fn unchunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = find(rest, b"\r\n").context("a chunk has no size line")?;
        let line = std::str::from_utf8(&rest[..line_end]).context("a chunk size is not text")?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).context("a chunk size is not a number")?;
        if size == 0 {
            return Ok(body);
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
    use super::decode;

    #[test]
    fn bodies_of_each_kind() {
        let sized = decode(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokEXTRA").unwrap();
        assert_eq!((sized.status, sized.body.as_str()), (200, "ok"));
        let chunked = decode(
            b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\n\r\n",
        );
        assert_eq!(chunked.unwrap().body, "abc0123456789");
        assert_eq!(decode(b"HTTP/1.1 503 No\r\n\r\nto the end").unwrap().body, "to the end");
    }

    #[test]
    fn cut_bodies_are_errors() {
        assert!(decode(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab").is_err());
        assert!(decode(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab").is_err());
        assert!(decode(b"HTTP/1.1 200").is_err());
    }
}
