//! A TCP proxy on loopback that fails as networks do.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Forwards connections until told to cut them. Dropping it closes its connections.
pub(super) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    _running: DropGuard,
}

struct Shared {
    server: SocketAddr,
    /// Closes new connections immediately.
    blocked: AtomicBool,
    /// Breaks a new connection after this many bytes of responses, even within an event.
    budget: AtomicU64,
    connections: Mutex<Connections>,
    cuts: AtomicUsize,
}

#[derive(Default)]
struct Connections {
    next: u64,
    open: BTreeMap<u64, CancellationToken>,
}

impl Proxy {
    /// Listens on a port chosen by the system, for a server on loopback.
    pub(super) async fn start(server_port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            server: SocketAddr::from((Ipv4Addr::LOCALHOST, server_port)),
            blocked: AtomicBool::new(false),
            budget: AtomicU64::new(u64::MAX),
            connections: Mutex::default(),
            cuts: AtomicUsize::new(0),
        });
        let stop = CancellationToken::new();
        let accepting = accept(listener, Arc::clone(&shared), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(accepting));
        Ok(Self { port, shared, _running: stop.drop_guard() })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Cuts each open connection for which `choose` returns true.
    pub(super) fn cut(&self, mut choose: impl FnMut() -> bool) {
        let connections = self.shared.connections.lock();
        for connection in connections.open.values().filter(|_| choose()) {
            connection.cancel();
        }
    }

    /// Blocks or allows new connections. Open ones remain until they are cut.
    pub(super) fn block(&self, blocked: bool) {
        self.shared.blocked.store(blocked, Ordering::SeqCst);
    }

    /// Breaks new connections after this many bytes of responses.
    pub(super) fn limit(&self, bytes: u64) {
        self.shared.budget.store(bytes, Ordering::SeqCst);
    }

    /// The number of connections that were cut or broken.
    pub(super) fn cuts(&self) -> usize {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    // On any other failure, such as too many open files, the clients reconnect.
    while let Ok((client, _)) = listener.accept().await {
        if !shared.blocked.load(Ordering::SeqCst) {
            tokio::spawn(serve(client, Arc::clone(&shared), stop.child_token()));
        }
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>, cut: CancellationToken) {
    let number = shared.connections.lock().enrol(&cut);
    // Without a shutdown, the request of a client that was cut would stay open at the server.
    let ended = cut.run_until_cancelled(pass(client, &shared)).await;
    shared.connections.lock().open.remove(&number);
    shared.cuts.fetch_add(usize::from(!matches!(ended, Some(Ok(false)))), Ordering::SeqCst);
}

/// Forwards bytes until one side ends. Returns whether the limit was the cause.
async fn pass(client: TcpStream, shared: &Shared) -> io::Result<bool> {
    let server = TcpStream::connect(shared.server).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (mut from_client, mut to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let limit = shared.budget.load(Ordering::SeqCst);
    let mut answers = from_server.take(limit);
    tokio::select! {
        requests = copy(&mut from_client, &mut to_server) => requests.map(|_| false),
        answered = copy(&mut answers, &mut to_client) => answered.map(|bytes| bytes == limit),
    }
}

impl Connections {
    fn enrol(&mut self, cut: &CancellationToken) -> u64 {
        self.next += 1;
        self.open.insert(self.next, cut.clone());
        self.next
    }
}
