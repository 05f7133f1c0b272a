//! Plain HTTP on loopback, for a browser of this machine.
//!
//! Every program of this machine can connect, and a browser connects for every site that it shows.
//! So data needs the token of a session, which a page keeps in memory. The secret of a link starts
//! a session, once. It is in the link's fragment, which browsers do not send. `Host` must be this
//! address, so a foreign name that resolves to loopback is of no use.

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
use http::{HeaderMap, HeaderName, Request, StatusCode, header};
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
use super::routes::{QueryPage, query_routes};
use super::text::{PLAIN, answer, not_found, plain_line};

/// Where the secret of a link is traded for the token of a session.
pub const SESSION: &str = "/session";
/// The header with the secret of a link.
const SECRET: &str = "supercargo-secret";
/// The header in which a browser tells whose page sends a request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Maximum number of connections. A browser has six.
const MAX_CONNECTIONS: usize = 64;
/// Timeout of request headers, and so of idle connections.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Called with the next link when one has been used.
pub type NextLink = Box<dyn Fn(String) + Send + Sync>;

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
        let service = service_fn(|request: Request<hyper::body::Incoming>| {
            let guard = Arc::clone(&self);
            async move { Ok::<_, Infallible>(guard.answer(request.map(Body::new)).await) }
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
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let address = self.address.to_string();
        if text(header::HOST) != Some(&*address) {
            return Err((StatusCode::MISDIRECTED_REQUEST, "the request is for another host"));
        }
        let is_own = |origin: &str| origin.strip_prefix("http://") == Some(&*address);
        let is_foreign = |site: &str| !is_start && !["same-origin", "none"].contains(&site);
        if text(header::ORIGIN).is_some_and(|origin| !is_own(origin))
            || text(FETCH_SITE).is_some_and(is_foreign)
        {
            return Err((StatusCode::FORBIDDEN, "the request is from another site"));
        }
        Ok(())
    }

    /// Trades the secret of a link for the token.
    fn session(&self, headers: &HeaderMap) -> Response {
        let given = headers.get(SECRET).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut secret = self.secret.lock();
        if !is_equal(given, &secret) {
            return unknown();
        }
        *secret = random_text();
        (self.next_link)(link(self.address, self.start, &secret));
        answer(StatusCode::OK, PLAIN, self.token.clone())
    }
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

/// Takes as long for texts that begin alike.
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
        let next_link: NextLink = Box::new(move |link| drop(sender.send(link)));
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
}
