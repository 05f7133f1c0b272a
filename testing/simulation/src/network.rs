//! The network between schedulers and API servers: delays, partitions, lost and rejected requests,
//! and watches that lag behind. It runs in true time, in the runtime of the server.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures::Stream;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use supercargo_apiserver::ApiServer;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tower::util::ServiceExt as _;

use crate::invariants::{Sender, Witness};
use crate::plan::{MACHINES, REPLICAS};
use crate::sabotage::Sabotage;

/// Connections on which nothing arrives end after this long, by their pings.
const DEAD: Duration = Duration::from_secs(20);
/// The usual time of a message.
const LATENCY: (u64, u64) = (1, 8);

type Frame = http_body::Frame<Bytes>;
type Answer = io::Result<Response<mpsc::UnboundedReceiver<io::Result<Frame>>>>;

/// A request on its way.
pub struct Letter {
    from: Sender,
    request: Request<Bytes>,
    answer: oneshot::Sender<Answer>,
}

/// The network.
pub struct Network {
    server: ApiServer,
    witness: Arc<Mutex<Witness>>,
    state: Mutex<State>,
    /// Wakes what waits for a link.
    changed: Notify,
    sabotage: Option<Sabotage>,
}

struct State {
    random: Rng,
    links: [Link; MACHINES],
    lags: BTreeMap<(usize, &'static str), Duration>,
    /// The status that servers respond with, to this percentage of requests, and whether those take
    /// effect.
    rejects: Option<(StatusCode, u32, bool)>,
    /// Messages since the last look.
    messages: u64,
}

/// The way between a machine and the servers.
#[derive(Clone, Debug, Default)]
struct Link {
    replica: usize,
    up_is_blocked: bool,
    down_is_blocked: bool,
    /// Since when no pings have come back.
    blocked_since: Option<Instant>,
    refuses: bool,
    slower: Duration,
    /// The percentage of requests that are lost, and whether those take effect.
    loses: Option<(u32, bool)>,
    /// The number of times that all connections have ended.
    epoch: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// What happens to a request.
enum Fate {
    Arrives,
    Lost { applied: bool },
    Rejected { status: StatusCode, applied: bool },
}

impl Network {
    /// A network without faults.
    pub fn new(
        server: ApiServer,
        witness: Arc<Mutex<Witness>>,
        random: Rng,
        sabotage: Option<Sabotage>,
    ) -> Arc<Self> {
        let mut links: [Link; MACHINES] = Default::default();
        for (index, link) in links.iter_mut().enumerate() {
            link.replica = index % REPLICAS;
        }
        let state = State { random, links, lags: BTreeMap::new(), rejects: None, messages: 0 };
        Arc::new(Self { server, witness, state: Mutex::new(state), changed: Notify::new(), sabotage })
    }

    /// Carries letters until their senders are gone. A task of the server's runtime.
    pub async fn carry_all(self: Arc<Self>, mut letters: mpsc::UnboundedReceiver<Letter>) {
        while let Some(letter) = letters.recv().await {
            tokio::spawn(Arc::clone(&self).carry(letter));
        }
    }

    /// The number of messages since the last call.
    pub fn take_messages(&self) -> u64 {
        std::mem::take(&mut self.state.lock().messages)
    }

    /// Blocks or opens a link.
    pub fn block(&self, machine: usize, up: bool, down: bool) {
        let mut state = self.state.lock();
        let link = &mut state.links[machine];
        (link.up_is_blocked, link.down_is_blocked) = (up, down);
        link.blocked_since = (up || down).then(Instant::now);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends connections whose pings have not come back for long. Each uses another server then.
    pub fn age(&self) {
        let mut state = self.state.lock();
        for link in &mut state.links {
            if link.blocked_since.is_some_and(|since| since.elapsed() >= DEAD) {
                link.blocked_since = Some(Instant::now());
                link.epoch += 1;
                link.replica = (link.replica + 1) % REPLICAS;
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends the connections of a machine.
    pub fn disconnect(&self, machine: usize) {
        let mut state = self.state.lock();
        let link = &mut state.links[machine];
        link.epoch += 1;
        link.replica = (link.replica + 1) % REPLICAS;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Whether connections of a machine are refused.
    pub fn refuse(&self, machine: usize, refuses: bool) {
        self.state.lock().links[machine].refuses = refuses;
        if refuses {
            self.disconnect(machine);
        }
    }

    /// How much longer messages of a machine take.
    pub fn slow(&self, machine: usize, by: Duration) {
        self.state.lock().links[machine].slower = by;
    }

    /// Which requests of a machine are lost.
    pub fn lose(&self, machine: usize, loses: Option<(u32, bool)>) {
        self.state.lock().links[machine].loses = loses;
    }

    /// Which requests servers reject.
    pub fn reject(&self, rejects: Option<(StatusCode, u32, bool)>) {
        self.state.lock().rejects = rejects;
    }

    /// How far watches of a resource lag on a server.
    pub fn lag(&self, replica: usize, resource: &'static str, by: Duration) {
        self.state.lock().lags.insert((replica, resource), by);
    }

    async fn carry(self: Arc<Self>, letter: Letter) {
        let Letter { from, request, answer } = letter;
        let Some((epoch, fate)) = self.send_off(&from, &request) else {
            let _ = answer.send(Err(io::ErrorKind::ConnectionRefused.into()));
            return;
        };
        let outcome = self.exchange(&from, request, epoch, fate).await;
        // The caller may have given up, and the request took effect nevertheless.
        let _ = answer.send(outcome);
    }

    /// The state of the connection and the fate of a request; `None` if it is refused.
    fn send_off(&self, from: &Sender, request: &Request<Bytes>) -> Option<(u64, Fate)> {
        let mut state = self.state.lock();
        let State { random, links, rejects, messages, .. } = &mut *state;
        *messages += 1;
        let link = &links[from.machine];
        if link.refuses {
            return None;
        }
        let mut hits = |percent: u32| random.u32(..100) < percent;
        let fate = match (link.loses, *rejects) {
            (Some((percent, applied)), _) if hits(percent) => Fate::Lost { applied },
            (_, Some((status, percent, applied))) if hits(percent) => {
                // A conflict is about a write.
                let applies = status != StatusCode::CONFLICT || request.method() != Method::GET;
                if applies { Fate::Rejected { status, applied } } else { Fate::Arrives }
            }
            _ => Fate::Arrives,
        };
        Some((link.epoch, fate))
    }

    async fn exchange(
        self: &Arc<Self>,
        from: &Sender,
        request: Request<Bytes>,
        epoch: u64,
        fate: Fate,
    ) -> Answer {
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        self.cross(from, Way::Up, epoch).await.ok_or_else(reset)?;
        match fate {
            Fate::Lost { applied: false } => return Err(reset()),
            Fate::Rejected { status, applied: false } => return Ok(rejection(status)),
            _ => {}
        }
        let resource = watched(&request);
        let (head, body) = self.apply(from, request).await?.into_parts();
        match fate {
            Fate::Lost { .. } => return Err(reset()),
            Fate::Rejected { status, .. } => return Ok(rejection(status)),
            Fate::Arrives => {}
        }
        self.cross(from, Way::Down, epoch).await.ok_or_else(reset)?;
        let (frames, received) = mpsc::unbounded_channel();
        let lag = self.lag_of(from.machine, resource.as_deref());
        tokio::spawn(Arc::clone(self).stream(from.clone(), epoch, lag, body, frames));
        Ok(Response::from_parts(head, received))
    }

    /// Lets the server respond, and the witness see it.
    async fn apply(
        &self,
        from: &Sender,
        request: Request<Bytes>,
    ) -> io::Result<Response<supercargo_apiserver::Body>> {
        let seen = Witness::before(&self.witness, &self.server, from, &request).await;
        let response = self.server.service().oneshot(request.map(http_body_util::Full::<Bytes>::new)).await;
        let response = response.map_err(io::Error::other)?;
        Witness::after(&self.witness, &self.server, seen, response.status()).await;
        Ok(response)
    }

    /// Passes on the body of a response. The frames of a watch that lags arrive late, in order.
    async fn stream(
        self: Arc<Self>,
        from: Sender,
        epoch: u64,
        lag: Duration,
        mut body: supercargo_apiserver::Body,
        frames: mpsc::UnboundedSender<io::Result<Frame>>,
    ) {
        let (late, mut due) = mpsc::unbounded_channel();
        let read = async {
            while let Some(frame) = body.frame().await {
                // A broken body repeats its error.
                let is_broken = frame.is_err();
                if late.send((Instant::now() + lag, frame)).is_err() || is_broken {
                    return;
                }
            }
            drop(late);
        };
        let deliver = async {
            while let Some((at, frame)) = due.recv().await {
                sleep_until(at).await;
                let frame = match self.cross(&from, Way::Down, epoch).await {
                    Some(()) => frame.map_err(io::Error::other),
                    None => Err(io::ErrorKind::ConnectionReset.into()),
                };
                if self.is_sabotaged(&frame) {
                    continue;
                }
                let is_broken = frame.is_err();
                if frames.send(frame).is_err() || is_broken {
                    return;
                }
            }
        };
        let both = async {
            tokio::join!(read, deliver);
        };
        tokio::select! {
            biased;
            () = both => {}
            () = frames.closed() => {}
            () = self.ended(from.machine, epoch) => {
                let _ = frames.send(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }

    /// Whether a frame of a watch does not arrive, although the connection works.
    fn is_sabotaged(&self, frame: &io::Result<Frame>) -> bool {
        let Some(event) = frame.as_ref().ok().and_then(|frame| frame.data_ref()) else { return false };
        let is = |what: &[u8]| event.windows(what.len()).any(|part| part == what);
        match self.sabotage {
            Some(Sabotage::LostEventOfWatch) => is(b"ADDED") && self.state.lock().random.u32(..20) == 0,
            Some(Sabotage::LostDeletion) => is(b"DELETED") && self.state.lock().random.u32(..5) == 0,
            _ => false,
        }
    }

    /// Resolves when the connections of a machine have ended since `epoch`.
    async fn ended(&self, machine: usize, epoch: u64) {
        loop {
            let changed = self.changed.notified();
            if self.state.lock().links[machine].epoch != epoch {
                return;
            }
            changed.await;
        }
    }

    /// A message passes a link; `None` if the connection ends first.
    async fn cross(&self, from: &Sender, way: Way, epoch: u64) -> Option<()> {
        let latency = {
            let mut state = self.state.lock();
            state.messages += 1;
            let millis = state.random.u64(LATENCY.0..=LATENCY.1);
            Duration::from_millis(millis) + state.links[from.machine].slower
        };
        sleep(latency).await;
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state.lock();
                let link = &state.links[from.machine];
                let is_blocked = if way == Way::Up { link.up_is_blocked } else { link.down_is_blocked };
                if link.epoch != epoch {
                    return None;
                }
                if !is_blocked {
                    return Some(());
                }
            }
            changed.await;
        }
    }

    fn lag_of(&self, machine: usize, resource: Option<&str>) -> Duration {
        let state = self.state.lock();
        let replica = state.links[machine].replica;
        let of = |resource: &str| {
            state.lags.iter().find(|((of, kind), _)| *of == replica && *kind == resource).map(|(_, lag)| *lag)
        };
        resource.and_then(of).unwrap_or_default()
    }
}

/// The resource that a request watches.
fn watched(request: &Request<Bytes>) -> Option<String> {
    let is_watch =
        request.uri().query().is_some_and(|query| query.contains("watch=true") || query.contains("watch=1"));
    let resource = request.uri().path().rsplit('/').next().map(str::to_owned);
    resource.filter(|_| is_watch)
}

fn rejection(status: StatusCode) -> Response<mpsc::UnboundedReceiver<io::Result<Frame>>> {
    let reason = match status.as_u16() {
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "message": "simulated", "reason": reason, "code": status.as_u16(),
    });
    let (frames, received) = mpsc::unbounded_channel();
    // The receiver is returned.
    let _ = frames.send(Ok(Frame::data(body.to_string().into())));
    let mut response = Response::new(received);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// The client of a machine's process. Call it in the runtime of the machine.
pub fn client(
    from: Sender,
    letters: mpsc::UnboundedSender<Letter>,
    now: impl Fn() -> Duration + Send + Sync + 'static,
) -> Client {
    let now = Arc::new(now);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (mut from, letters, now) = (from.clone(), letters.clone(), Arc::clone(&now));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            let (answer, answered) = oneshot::channel();
            from.sent = now();
            let gone = || io::Error::from(io::ErrorKind::ConnectionReset);
            let letter = Letter { from, request: Request::from_parts(head, body), answer };
            letters.send(letter).map_err(|_| gone())?;
            let response = answered.await.map_err(|_| gone())??;
            io::Result::Ok(response.map(|frames| StreamBody::new(received(frames))))
        }
    });
    Client::new(service, "default")
}

fn received(mut frames: mpsc::UnboundedReceiver<io::Result<Frame>>) -> impl Stream<Item = io::Result<Frame>> {
    futures::stream::poll_fn(move |cx| frames.poll_recv(cx))
}
