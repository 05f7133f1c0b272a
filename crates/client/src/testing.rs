//! An API server with scripted responses, and a proxy that freezes, for tests.

use std::collections::VecDeque;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::api::Api;

/// The requests so far: method, path, body.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<Vec<(String, String, Value)>>>);

impl Requests {
    /// All requests so far: method, path with query, body.
    pub fn all(&self) -> Vec<(String, String, Value)> {
        self.0.lock().clone()
    }
}

/// An API server that responds with these statuses in turn, and then with 200.
pub fn answering(statuses: Vec<u16>) -> (Api, Requests) {
    let (client, requests) = answering_client(statuses);
    (Api::with_client(client), requests)
}

/// A client of such a server.
pub fn answering_client(statuses: Vec<u16>) -> (Client, Requests) {
    let requests = Requests::default();
    let statuses = Arc::new(Mutex::new(VecDeque::from(statuses)));
    let log = requests.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, statuses) = (log.clone(), Arc::clone(&statuses));
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            log.0.lock().push((parts.method.to_string(), parts.uri.to_string(), body));
            let status = statuses.lock().pop_front().unwrap_or(200);
            let answer =
                json!({"kind": "Status", "status": "", "message": format!("code {status}"), "code": status});
            let response =
                Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
            response.map_err(|error| error.to_string())
        }
    });
    (Client::new(service, "default"), requests)
}

/// A TCP proxy on loopback. Its connections can be frozen: they stay open, acknowledge what they
/// receive, and forward nothing.
pub struct Proxy {
    address: SocketAddr,
    freeze: watch::Sender<()>,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Forwards to this server.
    pub async fn to(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, (freeze, frozen)) = (listener.local_addr()?, watch::channel(()));
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let mut frozen = frozen.clone();
                frozen.mark_unchanged();
                connections.spawn(async move {
                    let Ok(mut upstream) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        // Both streams stay open.
                        _ = frozen.changed() => pending().await,
                        _ = copy_bidirectional(&mut client, &mut upstream) => {}
                    }
                });
            }
        });
        Ok(Self { address, freeze, _accepting: AbortOnDropHandle::new(accepting) })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Freezes the connections of this moment. Later ones work.
    pub fn freeze(&self) {
        self.freeze.send_replace(());
    }
}
