//! A server with one lease, and candidates with separate connections to it.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use supercargo_apiserver::ApiServer;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use tower::util::ServiceExt as _;

use super::super::{Elector, Fence, Leadership, LeaseName, Loss, Timing};
use crate::api::Api;
use crate::host::Host;

pub(super) const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/supercargo";
pub(super) const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/kube-system/events";

pub(super) const LEASE_DURATION: Duration = Duration::from_secs(15);
pub(super) const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// kube-scheduler's defaults.
pub(super) const TIMING: Timing = Timing {
    lease_duration: LEASE_DURATION,
    renew_deadline: Duration::from_secs(10),
    retry_period: RETRY_PERIOD,
};
/// With `TIMING`: a renew deadline and a retry period.
pub(super) const HOLD: Duration = Duration::from_secs(12);
/// The longest time between two polls of the lease.
pub(super) const LONGEST_LOOK: Duration = Duration::from_millis(4400);

/// The name of `LEASE`.
pub(super) fn lease_name() -> LeaseName {
    LeaseName { namespace: "kube-system".to_owned(), name: "supercargo".to_owned() }
}

/// The fate of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trip {
    /// Before the server sees it.
    pub(super) there: Duration,
    /// Before the answer is back.
    pub(super) back: Duration,
    pub(super) fate: Fate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    #[default]
    Answered,
    /// The request is lost.
    LostThere,
    /// The request is executed and its response lost.
    LostBack,
}

/// A connection to the server.
#[derive(Clone, Default)]
pub(super) struct Connection(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_closed: bool,
    hangs: bool,
    trips: VecDeque<Trip>,
    /// The clock skew of the candidate.
    skew: SignedDuration,
    requests: Vec<String>,
}

impl Connection {
    /// Refuses connections from now on, or accepts them again.
    pub(super) fn close(&self, is_closed: bool) {
        self.0.lock().is_closed = is_closed;
    }

    /// Answers nothing from now on.
    pub(super) fn hang(&self) {
        self.0.lock().hangs = true;
    }

    /// Answers everything at once from now on.
    pub(super) fn end_trouble(&self) {
        let mut state = self.0.lock();
        (state.is_closed, state.hangs) = (false, false);
        state.trips.clear();
    }

    /// Sets the fates of the next requests.
    pub(super) fn plan(&self, trips: impl IntoIterator<Item = Trip>) {
        self.0.lock().trips.extend(trips);
    }

    /// Skews all times that are sent.
    pub(super) fn skew(&self, by: SignedDuration) {
        self.0.lock().skew = by;
    }

    /// The lease requests since the last call.
    pub(super) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().requests)
    }

    fn client(&self, server: &ApiServer) -> Client {
        let (connection, service) = (self.clone(), server.service());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (connection, service) = (connection.clone(), service.clone());
            // A sent request continues even if its caller is gone.
            let under_way = tokio::spawn(async move {
                let (request, trip) = connection.begin(request).await?;
                sleep(trip.there).await;
                if trip.fate == Fate::LostThere {
                    return Err(std::io::Error::from(ErrorKind::ConnectionReset).into());
                }
                let answer = service.oneshot(request).await.map_err(BoxError::from)?;
                sleep(trip.back).await;
                if trip.fate == Fate::LostBack {
                    return Err(std::io::Error::from(ErrorKind::ConnectionReset).into());
                }
                Ok::<Response<_>, BoxError>(answer)
            });
            async { under_way.await.map_err(BoxError::from)? }
        });
        Client::new(service, "default")
    }

    async fn begin(&self, request: Request<Body>) -> io::Result<(Request<Body>, Trip)> {
        let (head, body) = request.into_parts();
        let bytes = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let is_lease = head.uri.path().contains("/leases") && head.uri.query().is_none();
        let (hangs, trip, skew) = {
            let mut state = self.0.lock();
            if is_lease {
                state.requests.push(head.method.to_string());
            }
            if state.is_closed {
                return Err(ErrorKind::ConnectionRefused.into());
            }
            let trip = if is_lease { state.trips.pop_front() } else { None };
            (state.hangs, trip.unwrap_or_default(), state.skew)
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        let body = match serde_json::from_slice::<Value>(&bytes) {
            Ok(mut object) if is_lease && !skew.is_zero() => {
                for field in ["acquireTime", "renewTime"] {
                    let time: Timestamp = object["spec"][field].as_str().unwrap().parse().unwrap();
                    object["spec"][field] = json!(format!("{:.6}", time + skew));
                }
                object.to_string().into_bytes()
            }
            _ => bytes.to_vec(),
        };
        Ok((Request::from_parts(head, Body::from(body)), trip))
    }
}

/// A candidate under test.
pub(super) struct Candidate {
    pub(super) connection: Connection,
    pub(super) fence: Fence,
    pub(super) leadership: watch::Receiver<Leadership>,
    resign: CancellationToken,
    asleep_until: Arc<Mutex<Instant>>,
    pub(super) task: JoinHandle<Option<Loss>>,
}

impl Candidate {
    /// Starts a candidate with this timing.
    pub(super) fn start(server: &ApiServer, timing: Timing, watches: bool) -> Self {
        Self::start_by(server, timing, watches, Connection::default())
    }

    pub(super) fn start_by(
        server: &ApiServer,
        timing: Timing,
        watches: bool,
        connection: Connection,
    ) -> Self {
        let (client, host) = (connection.client(server), Host::local());
        let fence = Fence::new(Arc::clone(&host.clock));
        let api = Api::with_client(client.clone());
        let watch = watches.then_some(client);
        let elector =
            Elector::new(lease_name(), timing, api, watch, "supercargo".into(), fence.clone(), host);
        let (leadership, resign) = (elector.leadership(), CancellationToken::new());
        let asleep_until = Arc::new(Mutex::new(Instant::now()));
        let task = tokio::spawn(sleepy(elector.run(resign.clone()), Arc::clone(&asleep_until)));
        Self { connection, fence, leadership, resign, asleep_until, task }
    }

    pub(super) fn identity(&self) -> String {
        self.leadership.borrow().identity.to_string()
    }

    pub(super) fn leads(&self) -> bool {
        self.leadership.borrow().is_leader
    }

    pub(super) async fn until_it_leads(&self) {
        let mut leadership = self.leadership.clone();
        leadership.wait_for(|leadership| leadership.is_leader).await.unwrap();
    }

    /// Suspends the candidate, like SIGSTOP. Sent requests continue.
    pub(super) fn sleep(&self, duration: Duration) {
        *self.asleep_until.lock() = Instant::now() + duration;
    }

    /// Kills the candidate, like SIGKILL.
    pub(super) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// Resigns.
    pub(super) fn begin_to_resign(&self) {
        self.resign.cancel();
    }

    /// Resigns and waits for the end.
    pub(super) async fn resign(self) {
        self.resign.cancel();
        assert!(self.task.await.unwrap().is_none(), "it was not to lose the lease");
    }
}

/// Polls the future, except while it is suspended.
async fn sleepy<T>(inner: impl Future<Output = T>, asleep_until: Arc<Mutex<Instant>>) -> T {
    let (mut inner, mut alarm) = (pin!(inner), pin!(sleep(Duration::ZERO)));
    poll_fn(|cx| {
        let until = *asleep_until.lock();
        if Instant::now() < until {
            alarm.set(sleep_until(until));
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        inner.as_mut().poll(cx)
    })
    .await
}

/// Sends a request directly to the server.
pub(super) async fn ask(server: &ApiServer, method: Method, path: &str, body: &Value) -> Value {
    let content_type =
        if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let answer = server.service().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    assert!(head.status.is_success(), "{path}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

/// The lease's spec.
pub(super) async fn spec(server: &ApiServer) -> Value {
    ask(server, Method::GET, LEASE, &Value::Null).await["spec"].take()
}

/// The notes of the lease's events, oldest first.
pub(super) async fn notes(server: &ApiServer) -> Vec<String> {
    let list = ask(server, Method::GET, EVENTS, &Value::Null).await;
    let mut events = list["items"].as_array().unwrap().clone();
    events.sort_by_key(|event| event["eventTime"].as_str().unwrap().to_owned());
    events.iter().map(|event| event["note"].as_str().unwrap().to_owned()).collect()
}
