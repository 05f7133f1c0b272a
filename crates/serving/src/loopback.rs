//! Plain HTTP on loopback, for a browser of this machine.
//!
//! Every program of this machine can connect, and a browser connects for every site that it shows.
//! So data needs the token of the session, which a page keeps as long as its tab. The secret of a
//! link is traded for the token, once. It is in the link's fragment, which browsers do not send.
//! `Host` must be this address, so a foreign name that resolves to loopback is of no use. Other
//! users of the machine may read the link among a browser's arguments, and are refused.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, Request, StatusCode, header};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::connections::ACCEPT_RETRY_PERIOD;
use super::origin::{self, is_foreign};
use super::routes::{QueryPage, query_routes};
use super::text::{PLAIN, answer, not_found, plain_line};

/// Where the secret of a link is traded for the token of a session.
pub const SESSION: &str = "/session";
/// The header with the secret of a link.
const SECRET: &str = "supercargo-secret";
/// The kernel's tables of connections, with their users.
const CONNECTIONS: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
const ANOTHER_USER: &str = "another user of this machine runs the command";
/// Maximum number of connections. A browser has six.
const MAX_CONNECTIONS: usize = 64;
/// Timeout of request headers, and so of idle connections.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Called with the next link when one has been used. It may block.
pub type NextLink = Arc<dyn Fn(String) + Send + Sync>;

/// What is served on loopback, by path.
pub struct Site {
    /// Pages without any data, which need no session.
    pub open: BTreeMap<String, QueryPage>,
    /// Data.
    pub data: BTreeMap<String, QueryPage>,
}

/// A server on loopback that listens. It answers once [`serve`](Self::serve) is called.
pub struct Loopback {
    listener: TcpListener,
    address: SocketAddr,
    start: &'static str,
    secret: String,
}

impl Loopback {
    /// Listens on a port that the system chooses. Links have this path.
    pub async fn bind(start: &'static str) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, start, secret: random_text() })
    }

    /// The link that a user opens.
    pub fn link(&self) -> String {
        link(self.address, self.start, &self.secret)
    }

    /// Serves until `stop` is cancelled.
    pub async fn serve(self, site: Site, next_link: NextLink, stop: CancellationToken) {
        let Self { listener, address, start, secret } = self;
        let guard = Arc::new(Guard {
            address,
            start,
            all: query_routes(&site.open).merge(query_routes(&site.data)).fallback(async || not_found()),
            open: query_routes(&site.open).fallback(async || unknown()),
            secret: Mutex::new(secret),
            token: random_text(),
            next_link,
        });
        let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        // Dropped, and with them responses that last.
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(_) = open.join_next() => {}
                accepted = accept(&listener, &free) => match accepted {
                    Ok((stream, place)) => {
                        let guard = Arc::clone(&guard);
                        open.spawn(async move {
                            let _place = place;
                            guard.serve_one(stream).await;
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(ACCEPT_RETRY_PERIOD).await;
                    }
                },
            }
        }
    }
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    free: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(free).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

/// Checks requests.
struct Guard {
    address: SocketAddr,
    start: &'static str,
    /// For everybody.
    open: Router,
    /// For those with the token.
    all: Router,
    /// The secret of the link that has not been used.
    secret: Mutex<String>,
    token: String,
    next_link: NextLink,
}

impl Guard {
    async fn serve_one(self: Arc<Self>, stream: TcpStream) {
        let is_stranger = is_of_another_user(&stream).await;
        let service = service_fn(|request: Request<hyper::body::Incoming>| {
            let guard = Arc::clone(&self);
            async move {
                if is_stranger {
                    return Ok(plain_line(StatusCode::FORBIDDEN, ANOTHER_USER.to_owned()));
                }
                Ok::<_, Infallible>(guard.answer(request.map(Body::new)).await)
            }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
        builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
        // The browser has closed the connection.
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    }

    async fn answer(&self, request: Request<Body>) -> Response {
        let is_start = request.uri().path() == self.start;
        if let Err((status, problem)) = self.check(request.headers(), is_start) {
            return plain_line(status, problem.to_owned());
        }
        if request.uri().path() == SESSION {
            return self.session(request.headers());
        }
        let is_trusted = bearer(request.headers()).is_some_and(|token| is_equal(token, &self.token));
        let routes = if is_trusted { &self.all } else { &self.open };
        match routes.clone().oneshot(request).await {
            Ok(response) => response,
            Err(impossible) => match impossible {},
        }
    }

    /// Whether the request is for this address, and from no other site. A link to the start may be
    /// on another site, such as a terminal in a browser.
    fn check(&self, headers: &HeaderMap, is_start: bool) -> Result<(), (StatusCode, &'static str)> {
        let address = self.address.to_string();
        if headers.get(header::HOST).is_none_or(|host| host.as_bytes() != address.as_bytes()) {
            return Err((StatusCode::MISDIRECTED_REQUEST, "the request is for another host"));
        }
        if is_foreign(headers, &format!("http://{address}"), is_start) {
            return Err((StatusCode::FORBIDDEN, origin::REFUSAL));
        }
        Ok(())
    }

    /// Trades the secret of a link for the token.
    fn session(&self, headers: &HeaderMap) -> Response {
        let given = headers.get(SECRET).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let next = {
            let mut secret = self.secret.lock();
            if !is_equal(given, &secret) {
                return unknown();
            }
            *secret = random_text();
            link(self.address, self.start, &secret)
        };
        let tell = Arc::clone(&self.next_link);
        // The browser does not wait for the reader of the links.
        drop(tokio::task::spawn_blocking(move || tell(next)));
        answer(StatusCode::OK, PLAIN, self.token.clone())
    }
}

/// Whether another user's program has connected. Known on Linux only.
async fn is_of_another_user(stream: &TcpStream) -> bool {
    let (Ok(own), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return false };
    let check = move || {
        let table = CONNECTIONS.map(|file| std::fs::read_to_string(file).unwrap_or_default()).concat();
        is_stranger(&table, own, peer, std::env::var("SUDO_UID").ok().as_deref())
    };
    // The table of a machine with many connections takes a while.
    tokio::task::spawn_blocking(check).await.unwrap_or(false)
}

/// Whether the peer's user is none of those who may connect: the user of this process, who may have
/// used sudo, and root, which relays for users and can read everything anyway.
fn is_stranger(table: &str, own: SocketAddr, peer: SocketAddr, sudo_user: Option<&str>) -> bool {
    let (Some(mine), Some(theirs)) = (user(table, own, peer), user(table, peer, own)) else { return false };
    ![mine, "0"].contains(&theirs) && sudo_user != Some(theirs)
}

/// The user of the connection's end that is `local`, from the kernel's table: columns 2, 3 and 8.
/// Some programs connect to IPv4 addresses by IPv6, and then zeros and `FFFF0000` come before.
fn user(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<&str> {
    let hex = |address: SocketAddr| match address {
        SocketAddr::V4(it) => format!("{:08X}:{:04X}", u32::from_ne_bytes(it.ip().octets()), it.port()),
        SocketAddr::V6(_) => "none: the listener has IPv4".to_owned(),
    };
    let (local, remote) = (hex(local), hex(remote));
    let has = |column: Option<&str>, address: &str| column.is_some_and(|it| it.ends_with(address));
    table.lines().find_map(|row| {
        let mut columns = row.split_ascii_whitespace().skip(1);
        let is_ours = has(columns.next(), &local) && has(columns.next(), &remote);
        if is_ours { columns.nth(4) } else { None }
    })
}

fn link(address: SocketAddr, start: &str, secret: &str) -> String {
    format!("http://{address}{start}#secret={secret}")
}

fn unknown() -> Response {
    plain_line(StatusCode::UNAUTHORIZED, "open the link that the command printed last".to_owned())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// Compares in constant time.
fn is_equal(one: &str, other: &str) -> bool {
    digest(&SHA256, one.as_bytes()).as_ref() == digest(&SHA256, other.as_bytes()).as_ref()
}

/// 256 random bits.
fn random_text() -> String {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers: TLS needs them, too");
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};
    use hyper_util::client::legacy::Client;
    use hyper_util::client::legacy::connect::HttpConnector;
    use tokio::sync::mpsc;

    use super::super::routes::QueryResponse;
    use super::*;

    type Sender = Client<HttpConnector, Full<bytes::Bytes>>;

    fn page(text: &'static str) -> QueryPage {
        Arc::new(move |_| Box::pin(async move { QueryResponse::answer(text.to_owned(), false) }))
    }

    async fn get(client: &Sender, url: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut request = Request::get(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = client.request(request.body(Full::default()).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// A server, the address, the secret of the first link, and the next links.
    async fn site(stop: &CancellationToken) -> (String, String, mpsc::UnboundedReceiver<String>) {
        let one = |path: &str, text| BTreeMap::from([(path.to_owned(), page(text))]);
        let site = Site { open: one("/start/", "page"), data: one("/start/data", "data") };
        let server = Loopback::bind("/start/").await.unwrap();
        let (link, (sender, links)) = (server.link(), mpsc::unbounded_channel());
        let next_link: NextLink = Arc::new(move |link| drop(sender.send(link)));
        tokio::spawn(server.serve(site, next_link, stop.clone()));
        let (address, secret) = link.split_once("/start/#secret=").unwrap();
        (address.to_owned(), secret.to_owned(), links)
    }

    #[tokio::test]
    async fn a_link_starts_one_session() {
        let stop = CancellationToken::new();
        let client: Sender = Client::builder(TokioExecutor::new()).build_http();
        let (address, secret, mut links) = site(&stop).await;
        assert_eq!(get(&client, &format!("{address}/start/"), &[]).await, (200, "page".to_owned()));
        let data = format!("{address}/start/data");
        assert_eq!(get(&client, &data, &[]).await.0, 401);
        assert_eq!(get(&client, &data, &[("authorization", "Bearer ")]).await.0, 401);
        let session = format!("{address}{SESSION}");
        assert_eq!(get(&client, &session, &[]).await.0, 401);
        let (status, token) = get(&client, &session, &[(SECRET, &secret)]).await;
        assert_eq!(status, 200);
        let bearer = format!("Bearer {token}");
        let with_token = [("authorization", &*bearer)];
        assert_eq!(get(&client, &data, &with_token).await, (200, "data".to_owned()));
        assert_eq!(get(&client, &format!("{address}/other"), &with_token).await.0, 404);
        assert_eq!(get(&client, &session, &[(SECRET, &secret)]).await.0, 401);
        let next = links.recv().await.unwrap();
        let next = next.split_once("#secret=").unwrap().1;
        assert_eq!(get(&client, &session, &[(SECRET, next)]).await.0, 200);
        stop.cancel();
    }

    #[tokio::test]
    async fn other_hosts_and_sites_are_refused() {
        let stop = CancellationToken::new();
        let client: Sender = Client::builder(TokioExecutor::new()).build_http();
        let (address, ..) = site(&stop).await;
        let start = format!("{address}/start/");
        assert_eq!(get(&client, &start, &[("sec-fetch-site", "cross-site")]).await.0, 200);
        let url = format!("{address}/start/data");
        for (status, header) in [
            (421, ("host", "evil.example")),
            (421, ("host", "localhost")),
            (403, ("origin", "https://evil.example")),
            (403, ("origin", "null")),
            (403, ("sec-fetch-site", "cross-site")),
            (401, ("sec-fetch-site", "same-origin")),
            (401, ("origin", &*address)),
        ] {
            assert_eq!(get(&client, &url, &[header]).await.0, status, "{header:?}");
        }
        stop.cancel();
    }

    #[tokio::test]
    async fn a_link_that_nobody_reads_holds_up_no_session() {
        let one = |path: &str, text| BTreeMap::from([(path.to_owned(), page(text))]);
        let site = Site { open: one("/start/", "page"), data: one("/start/data", "data") };
        let server = Loopback::bind("/start/").await.unwrap();
        let (link, stop) = (server.link(), CancellationToken::new());
        let (reader, unread) = std::sync::mpsc::sync_channel(0);
        let next_link: NextLink = Arc::new(move |link| drop(reader.send(link)));
        tokio::spawn(server.serve(site, next_link, stop.clone()));
        let client: Sender = Client::builder(TokioExecutor::new()).build_http();
        let (address, secret) = link.split_once("/start/#secret=").unwrap();
        let session = format!("{address}{SESSION}");
        assert_eq!(get(&client, &session, &[(SECRET, secret)]).await.0, 200);
        assert_eq!(get(&client, &session, &[(SECRET, secret)]).await.0, 401);
        drop(unread);
        stop.cancel();
    }

    #[test]
    fn the_user_of_a_connection_is_in_the_table() {
        let table =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 1 1 0
   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 2 1 0
   2: 0000000000000000FFFF00000100007F:C351 0000000000000000FFFF00000100007F:1F90 01 0:0 00:0 0 1002 0 3
   3: short\n";
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert_eq!(user(table, at(8080), at(50_000)), Some("1000"));
        assert_eq!(user(table, at(50_000), at(8080)), Some("1001"));
        assert_eq!(user(table, at(50_001), at(8080)), Some("1002"));
        assert_eq!(user(table, at(8080), at(8081)), None);
        let (own, peer) = (at(8080), at(50_000));
        assert!(is_stranger(table, own, peer, None) && is_stranger(table, own, peer, Some("7")));
        assert!(!is_stranger(table, own, peer, Some("1001")), "sudo");
        assert!(!is_stranger(&table.replace("1001", "1000"), own, peer, None), "the same user");
        assert!(!is_stranger(&table.replace("1001", "0"), own, peer, None), "root");
        assert!(!is_stranger(table, own, at(50_001), None), "one end is unknown");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_knows_both_ends() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let table = std::fs::read_to_string(CONNECTIONS[0]).unwrap();
        assert!(user(&table, address, peer).is_some());
        assert_eq!(user(&table, address, peer), user(&table, peer, address));
        assert!(!is_of_another_user(&stream).await);
        drop(client);
    }
}
