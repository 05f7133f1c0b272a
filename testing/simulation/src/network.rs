//! The network between schedulers and API servers: delays, partitions, lost and rejected requests,
//! and watches that lag behind. It runs in true time, in the runtime of the server.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures::Stream;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use supercargo_apiserver::ApiServer;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tower::util::ServiceExt as _;

use crate::invariants::{InvariantChecker, Sender};
use crate::plan::{MACHINES, REPLICAS};
use crate::sabotage::{Sabotage, TOO_LONG, work_for};

/// Connections on which nothing arrives end after this long, by their pings.
const DEAD: Duration = Duration::from_secs(20);
/// How long requests wait behind the fence, if that is the sabotage. Leases last 15 s.
const BEHIND_FENCE: Duration = Duration::from_secs(40);
/// How late requests arrive, if that is the sabotage.
const LATE: Duration = Duration::from_mins(2);
/// When after the faults renewals end, if that is the sabotage. The last pods are checked before.
const LAST_RENEWAL: Duration = Duration::from_mins(4);
/// The usual time of a message.
const LATENCY: (u64, u64) = (1, 8);

type Frame = http_body::Frame<Bytes>;
type Answer = io::Result<Response<mpsc::UnboundedReceiver<io::Result<Frame>>>>;

/// A request that is under way.
pub struct Letter {
    from: Sender,
    request: Request<Bytes>,
    answer: oneshot::Sender<Answer>,
}

/// The network.
pub struct Network {
    server: ApiServer,
    checker: Arc<Mutex<InvariantChecker>>,
    state: Mutex<State>,
    /// Wakes what waits for a link.
    changed: Notify,
    /// Whether servers stream initial lists.
    streams_lists: bool,
    /// Whether the last pods are being deleted.
    is_ending: AtomicBool,
    sabotage: Option<Sabotage>,
}

struct State {
    random: Rng,
    links: [Link; MACHINES],
    faults: Faults,
    /// When all faults ended.
    healed: Option<Instant>,
    /// The UID that watches gave last, for a sabotage.
    last_uid: Option<Vec<u8>>,
    /// Messages since the last look.
    messages: u64,
}

/// What is wrong with the network and the servers.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// By machine.
    pub links: [LinkFaults; MACHINES],
    /// The status that servers respond with, to this percentage of requests, and whether those take
    /// effect.
    pub rejects: Option<(StatusCode, u32, bool)>,
    /// How far watches lag, by server and resource.
    pub lags: BTreeMap<(usize, &'static str), Duration>,
    /// The resourceVersion at which the cache of a server stands still.
    pub stale: [Option<u64>; REPLICAS],
}

/// What is wrong with the link between a machine and the servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkFaults {
    /// Nothing passes from the machine.
    pub blocks_up: bool,
    /// Nothing passes to the machine.
    pub blocks_down: bool,
    /// Connections are refused.
    pub refuses: bool,
    /// How much longer messages take.
    pub slower: Duration,
    /// The percentage of requests that are lost, and whether those take effect.
    pub loses: Option<(u32, bool)>,
}

/// The link between a machine and the servers.
#[derive(Clone, Debug, Default)]
struct Link {
    replica: usize,
    /// Since when no pings have come back.
    blocked_since: Option<Instant>,
    /// The number of times that all connections have ended.
    epoch: u64,
}

impl Link {
    /// Ends all connections. The next ones go to another server.
    fn end(&mut self) {
        self.epoch += 1;
        self.replica = (self.replica + 1) % REPLICAS;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
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
        checker: Arc<Mutex<InvariantChecker>>,
        random: Rng,
        streams_lists: bool,
        sabotage: Option<Sabotage>,
    ) -> Arc<Self> {
        let mut links: [Link; MACHINES] = Default::default();
        for (index, link) in links.iter_mut().enumerate() {
            link.replica = index % REPLICAS;
        }
        let faults = Faults::default();
        let state = State { random, links, faults, healed: None, last_uid: None, messages: 0 };
        let (state, changed, is_ending) = (Mutex::new(state), Notify::new(), AtomicBool::new(false));
        Arc::new(Self { server, checker, state, changed, streams_lists, is_ending, sabotage })
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

    /// These faults, and no others, are there from now on.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.state.lock();
        let State { links, faults: before, .. } = &mut *state;
        for (index, link) in links.iter_mut().enumerate() {
            let now = &faults.links[index];
            let is_blocked = now.blocks_up || now.blocks_down;
            link.blocked_since = is_blocked.then(|| link.blocked_since.unwrap_or_else(Instant::now));
            if now.refuses && !before.links[index].refuses {
                link.end();
            }
        }
        *before = faults;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends connections whose pings have not come back for long. Each uses another server then.
    pub fn age(&self) {
        let mut has_ended = false;
        for link in &mut self.state.lock().links {
            if link.blocked_since.is_some_and(|since| since.elapsed() >= DEAD) {
                link.blocked_since = Some(Instant::now());
                link.end();
                has_ended = true;
            }
        }
        // Each connection waits for this: waking them in each slice takes long.
        if has_ended {
            self.changed.notify_waiters();
        }
    }

    /// Ends the connections of a machine.
    pub fn disconnect(&self, machine: usize) {
        self.state.lock().links[machine].end();
        self.changed.notify_waiters();
    }

    /// No more faults come.
    pub fn heal(&self) {
        self.state.lock().healed = Some(Instant::now());
    }

    /// The last pods are being deleted from now on.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
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
        let State { random, links, faults, messages, .. } = &mut *state;
        *messages += 1;
        let (epoch, link) = (links[from.machine].epoch, &faults.links[from.machine]);
        if link.refuses {
            return None;
        }
        let mut hits = |percent: u32| random.u32(..100) < percent;
        let fate = match (link.loses, faults.rejects) {
            (Some((percent, applied)), _) if hits(percent) => Fate::Lost { applied },
            (_, Some((status, percent, applied))) if hits(percent) => {
                // A conflict is about a write.
                let applies = status != StatusCode::CONFLICT || request.method() != Method::GET;
                if applies { Fate::Rejected { status, applied } } else { Fate::Arrives }
            }
            _ => Fate::Arrives,
        };
        Some((epoch, fate))
    }

    async fn exchange(
        self: &Arc<Self>,
        from: &Sender,
        request: Request<Bytes>,
        epoch: u64,
        fate: Fate,
    ) -> Answer {
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        self.cross(from, Direction::Up, epoch).await.ok_or_else(reset)?;
        match fate {
            Fate::Lost { applied: false } => return Err(reset()),
            Fate::Rejected { status, applied: false } => return Ok(rejection(status)),
            _ => {}
        }
        // As servers before 1.34 do.
        if !self.streams_lists && asks(&request, "sendInitialEvents=true") {
            return Ok(rejection(StatusCode::UNPROCESSABLE_ENTITY));
        }
        let resource = watched(&request);
        let Some(request) = self.spoil(request).await else {
            return Ok(rejection(StatusCode::INTERNAL_SERVER_ERROR));
        };
        let (head, body) = self.apply(from, request).await?.into_parts();
        match fate {
            Fate::Lost { .. } => return Err(reset()),
            Fate::Rejected { status, .. } => return Ok(rejection(status)),
            Fate::Arrives => {}
        }
        self.cross(from, Direction::Down, epoch).await.ok_or_else(reset)?;
        let (frames, received) = mpsc::unbounded_channel();
        tokio::spawn(Arc::clone(self).stream(from.clone(), epoch, resource, body, frames));
        Ok(Response::from_parts(head, received))
    }

    /// Lets the server respond, and the checker see it.
    async fn apply(
        &self,
        from: &Sender,
        request: Request<Bytes>,
    ) -> io::Result<Response<supercargo_apiserver::Body>> {
        let seen = InvariantChecker::before(&self.checker, &self.server, from, &request).await;
        let response = match self.stale(from.machine, &request) {
            Some(old) => {
                let response = self.answer(old).await?;
                // Not even a cache is as old as that.
                if response.status() == StatusCode::GONE { self.answer(request).await? } else { response }
            }
            None => self.answer(request).await?,
        };
        InvariantChecker::after(&self.checker, &self.server, seen, response.status()).await;
        Ok(response)
    }

    async fn answer(&self, request: Request<Bytes>) -> io::Result<Response<supercargo_apiserver::Body>> {
        let answer = self.server.service().oneshot(request.map(http_body_util::Full::<Bytes>::new)).await;
        answer.map_err(io::Error::other)
    }

    /// The request for an old state by which a server with a stale cache answers this one.
    fn stale(&self, machine: usize, request: &Request<Bytes>) -> Option<Request<Bytes>> {
        let version = {
            let state = self.state.lock();
            state.faults.stale[state.links[machine].replica]?
        };
        let uri = request.uri().to_string();
        let accepts_any = |part: &str| part == "resourceVersion=0";
        if request.method() != Method::GET || !uri.split(['?', '&']).any(accepts_any) {
            return None;
        }
        let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
        let mut old = request.clone();
        *old.uri_mut() = uri.replace("resourceVersion=0", &exact).parse().ok()?;
        self.checker.lock().trace.count("stale lists answered", 1);
        Some(old)
    }

    /// Passes on the body of a response. The frames of a watch that lags arrive late, in order.
    async fn stream(
        self: Arc<Self>,
        from: Sender,
        epoch: u64,
        resource: Option<String>,
        mut body: supercargo_apiserver::Body,
        frames: mpsc::UnboundedSender<io::Result<Frame>>,
    ) {
        let (late, mut due) = mpsc::unbounded_channel();
        let read = async {
            while let Some(frame) = body.frame().await {
                // A broken body repeats its error.
                let is_broken = frame.is_err();
                let lag = self.lag_of(from.machine, resource.as_deref());
                if late.send((Instant::now() + lag, frame)).is_err() || is_broken {
                    return;
                }
            }
            drop(late);
        };
        let deliver = async {
            while let Some((at, frame)) = due.recv().await {
                sleep_until(at).await;
                let frame = match self.cross(&from, Direction::Down, epoch).await {
                    Some(()) => frame.map_err(io::Error::other).map(|frame| self.spoil_frame(frame)),
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

    /// The request as the sabotage has it; `None` if the server rejects it.
    async fn spoil(&self, request: Request<Bytes>) -> Option<Request<Bytes>> {
        let path = request.uri().path();
        match self.sabotage {
            Some(Sabotage::LateArrival) if path.contains("/pods/") && path.ends_with("/status") => {
                let is_late = self.state.lock().random.u32(..5) == 0;
                sleep(if is_late { LATE } else { Duration::ZERO }).await;
                Some(request)
            }
            Some(Sabotage::LostRenewal) => {
                let healed = self.state.lock().healed;
                let is_over = healed.is_some_and(|healed| healed.elapsed() > LAST_RENEWAL);
                let is_write = path.contains("/leases") && request.method() != Method::GET;
                (!is_over || !is_write).then_some(request)
            }
            Some(Sabotage::LostReservation) if path.contains("/resourceclaims/") => {
                Some(request.map(|body| without_reservations(&body)))
            }
            Some(Sabotage::LostMapping) if path.ends_with("/status") => {
                let is_mapping = contains(request.body(), b"extendedResourceClaimStatus");
                Some(request.map(|body| if is_mapping { Bytes::from_static(b"{}") } else { body }))
            }
            Some(Sabotage::KeptClaim) => {
                let is_deletion = path.contains("/resourceclaims/") && request.method() == Method::DELETE;
                (!is_deletion).then_some(request)
            }
            _ => Some(request),
        }
    }

    /// Whether a frame of a watch does not arrive, although the connection works.
    fn is_sabotaged(&self, frame: &io::Result<Frame>) -> bool {
        let Some(event) = frame.as_ref().ok().and_then(|frame| frame.data_ref()) else { return false };
        let is = |what: &[u8]| contains(event, what);
        match self.sabotage {
            Some(Sabotage::LostEventOfWatch) => is(b"ADDED") && self.state.lock().random.u32(..20) == 0,
            Some(Sabotage::LostDeletion) => is(b"DELETED") && self.state.lock().random.u32(..5) == 0,
            Some(Sabotage::Leak) => is(b"DELETED") && self.is_ending.load(Ordering::Relaxed),
            _ => false,
        }
    }

    /// A part of a response as the sabotage has it.
    fn spoil_frame(&self, frame: Frame) -> Frame {
        match self.sabotage {
            Some(Sabotage::SharedUid) => self.with_shared_uid(frame),
            Some(Sabotage::HiddenTaints) => without_field_of_devices(frame, "taints"),
            Some(Sabotage::HiddenCounters) => without_field_of_devices(frame, "consumesCounters"),
            _ => frame,
        }
    }

    /// The frame, with the UID of another pod.
    fn with_shared_uid(&self, frame: Frame) -> Frame {
        let Some(event) = frame.data_ref() else { return frame };
        // Pods of users: they have no owner.
        let mut places = (0..event.len().saturating_sub(UID)).filter(|at| is_uid(&event[*at..][..UID]));
        let (Some(at), None) = (places.next(), places.next()) else { return frame };
        if !contains(event, b"ADDED") || !contains(event, b"schedulerName") {
            return frame;
        }
        let mut bytes = event.to_vec();
        let uid = bytes[at..][..UID].to_vec();
        match self.state.lock().last_uid.replace(uid.clone()) {
            Some(last) if last != uid => bytes[at..][..UID].copy_from_slice(&last),
            _ => {}
        }
        Frame::data(bytes.into())
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
    async fn cross(&self, from: &Sender, direction: Direction, epoch: u64) -> Option<()> {
        let latency = {
            let mut state = self.state.lock();
            state.messages += 1;
            let millis = state.random.u64(LATENCY.0..=LATENCY.1);
            Duration::from_millis(millis) + state.faults.links[from.machine].slower
        };
        sleep(latency).await;
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state.lock();
                let link = &state.faults.links[from.machine];
                let is_blocked = if direction == Direction::Up { link.blocks_up } else { link.blocks_down };
                if state.links[from.machine].epoch != epoch {
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
            state
                .faults
                .lags
                .iter()
                .find(|((of, kind), _)| *of == replica && *kind == resource)
                .map(|(_, lag)| *lag)
        };
        resource.and_then(of).unwrap_or_default()
    }
}

/// The length of a UID.
const UID: usize = 36;

fn contains(event: &[u8], what: &[u8]) -> bool {
    event.windows(what.len()).any(|part| part == what)
}

fn is_uid(text: &[u8]) -> bool {
    text.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// ResourceSlices in which a field has a name that nobody knows; other frames as they are.
fn without_field_of_devices(frame: Frame, field: &str) -> Frame {
    let text = frame.data_ref().and_then(|data| std::str::from_utf8(data).ok());
    match text.filter(|text| text.contains(r#""kind":"ResourceSlice"#)) {
        Some(text) => Frame::data(text.replace(&format!("\"{field}\":"), r#""hidden":"#).into()),
        None => frame,
    }
}

/// Whether the query of a request has this part.
fn asks(request: &Request<Bytes>, part: &str) -> bool {
    request.uri().query().is_some_and(|query| query.split('&').any(|it| it == part))
}

/// The resource that a request watches.
fn watched(request: &Request<Bytes>) -> Option<String> {
    let is_watch = asks(request, "watch=true") || asks(request, "watch=1");
    let resource = request.uri().path().rsplit('/').next().map(str::to_owned);
    resource.filter(|_| is_watch)
}

fn rejection(status: StatusCode) -> Response<mpsc::UnboundedReceiver<io::Result<Frame>>> {
    let reason = match status.as_u16() {
        409 => "Conflict",
        422 => "Invalid",
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
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}

/// A claim without its consumers; other bodies as they are.
fn without_reservations(body: &Bytes) -> Bytes {
    let claim = serde_json::from_slice::<Value>(body).ok();
    let reserved = claim.filter(|claim| claim["status"]["reservedFor"].is_array());
    reserved.map_or_else(
        || body.clone(),
        |mut claim| {
            claim["status"]["reservedFor"] = json!([]);
            claim.to_string().into()
        },
    )
}

/// What a sabotage does to a request within its process.
async fn spoil_within(sabotage: Sabotage, path: &str, number: u64) {
    match sabotage {
        // Not those of gangs, which would start in part.
        Sabotage::OpenFence if path.contains("/pods/pod-") && number % 5 == 3 => sleep(BEHIND_FENCE).await,
        Sabotage::SlowTask if number % 100 == 50 => work_for(TOO_LONG),
        _ => {}
    }
}

/// The client of a machine's process. Call it in the runtime of the machine.
pub fn client(
    from: Sender,
    letters: mpsc::UnboundedSender<Letter>,
    sabotage: Option<Sabotage>,
    now: impl Fn() -> Duration + Send + Sync + 'static,
) -> Client {
    let (now, requests) = (Arc::new(now), Arc::<AtomicU64>::default());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (mut from, letters, now) = (from.clone(), letters.clone(), Arc::clone(&now));
        let number = requests.fetch_add(1, Ordering::Relaxed);
        async move {
            let (head, body) = request.into_parts();
            if let Some(sabotage) = sabotage {
                spoil_within(sabotage, head.uri.path(), number).await;
            }
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
