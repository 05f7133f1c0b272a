//! Records events (events.k8s.io/v1), off the scheduler's path.
//!
//! Upstream's rules: the first event of a kind is created; the second patches it into a series; more only count in
//! memory, and the count is written every half hour and once the series has gone quiet. Failed writes are tried again,
//! and an event that is gone when its series is to be patched is created anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use supercargo_framework::{Text, Uid};
use supercargo_scheduler::{EventType, PodEvent};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::api::{Api, Call, CallError};

/// A series that has been quiet for this long is over.
const QUIET: Duration = Duration::from_mins(6);
/// How often the count of a series that goes on is written.
const REFRESH: Duration = Duration::from_mins(30);
/// How often a write is tried.
const ATTEMPTS: u32 = 12;
/// The pause between tries, ± a quarter.
const PAUSE: Duration = Duration::from_secs(10);
/// So many writes at most are under way.
const WRITES_IN_FLIGHT: usize = 64;
/// The longest name of an event; the rest of the limit is for the dot and the time.
const LONGEST_NAME: usize = 253 - 17;

/// What makes two events one series. The text is not part of it; the pod's resource version is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    uid: Uid,
    resource_version: Arc<str>,
    reason: Text,
    action: Text,
    warning: bool,
}

/// An event object. Many are kept for a while, so what can be made when it is needed is.
struct Object {
    event: PodEvent,
    name: String,
    created: Timestamp,
    hostname: Arc<str>,
}

impl Object {
    fn new(event: PodEvent, created: Timestamp, hostname: Arc<str>) -> Self {
        Self { name: event_name(&event.pod.name, created), event, created, hostname }
    }

    fn collection(&self) -> String {
        format!("/apis/events.k8s.io/v1/namespaces/{}/events", self.event.pod.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

/// An event that has been created.
struct Series {
    object: Arc<Object>,
    /// Cancelled when the last write of the series that was begun has ended.
    last_write: CancellationToken,
    count: u32,
    last_observed: Timestamp,
    /// The count that was last written.
    written: u32,
    seen: Instant,
    refreshed: Instant,
}

/// The place of a write among those of its series: a patch must not overtake what it patches.
struct Turn {
    after: Option<CancellationToken>,
    ended: DropGuard,
}

impl Turn {
    /// Waits for it. Dropping the guard ends it, which a panic does too.
    async fn comes(self) -> DropGuard {
        if let Some(after) = self.after {
            after.cancelled().await;
        }
        self.ended
    }
}

/// Takes events and never blocks.
#[derive(Clone)]
pub(crate) struct Recorder(mpsc::UnboundedSender<PodEvent>);

impl Recorder {
    pub(crate) fn record(&self, event: PodEvent) {
        // When the writer has ended, so has the process.
        let _ = self.0.send(event);
    }
}

/// Writes what the recorder takes.
pub(crate) struct Writer {
    sender: Sender,
    hostname: Arc<str>,
    events: mpsc::UnboundedReceiver<PodEvent>,
    series: HashMap<Key, Series>,
    writes: JoinSet<()>,
}

impl Writer {
    pub(crate) fn new(api: Api, hostname: String) -> (Recorder, Self) {
        let (sender, events) = mpsc::unbounded_channel();
        let in_flight = Arc::new(Semaphore::new(WRITES_IN_FLIGHT));
        let recorder = Recorder(sender);
        let sender = Sender { api, in_flight };
        let hostname = hostname.into();
        (recorder, Self { sender, hostname, events, series: HashMap::new(), writes: JoinSet::new() })
    }

    /// Writes until every recorder is gone, and then finishes what is under way.
    pub(crate) async fn run(mut self) {
        let mut sweep = interval(QUIET);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => self.take(event),
                    None => break,
                },
                _ = sweep.tick() => self.sweep(),
                Some(_) = self.writes.join_next() => {}
            }
        }
        while self.writes.join_next().await.is_some() {}
    }

    fn take(&mut self, event: PodEvent) {
        let now = Timestamp::now();
        let key = Key {
            uid: event.uid.clone(),
            resource_version: Arc::clone(&event.resource_version),
            reason: event.reason.clone(),
            action: event.action.clone(),
            warning: event.kind == EventType::Warning,
        };
        if let Some(series) = self.series.get_mut(&key) {
            series.count += 1;
            series.last_observed = now;
            series.seen = Instant::now();
            if series.count == 2 {
                self.patch(&key);
            }
            return;
        }
        let object = Arc::new(Object::new(event, now, Arc::clone(&self.hostname)));
        let last_write = CancellationToken::new();
        let turn = Turn { after: None, ended: last_write.clone().drop_guard() };
        self.write(turn, Arc::clone(&object), None);
        let at = Instant::now();
        let series =
            Series { object, last_write, count: 1, last_observed: now, written: 1, seen: at, refreshed: at };
        self.series.insert(key, series);
    }

    fn patch(&mut self, key: &Key) {
        let Some(series) = self.series.get_mut(key) else {
            return;
        };
        series.written = series.count;
        series.refreshed = Instant::now();
        let count = json!({"count": series.count, "lastObservedTime": micros(series.last_observed)});
        let ended = CancellationToken::new();
        let after = std::mem::replace(&mut series.last_write, ended.clone());
        let turn = Turn { after: Some(after), ended: ended.drop_guard() };
        let object = Arc::clone(&series.object);
        self.write(turn, object, Some(count));
    }

    /// Ends series that have gone quiet, and writes counts that have grown.
    fn sweep(&mut self) {
        let due = |series: &Series| {
            let quiet = series.seen.elapsed() >= QUIET;
            series.count > series.written && (quiet || series.refreshed.elapsed() >= REFRESH)
        };
        let grown = self.series.iter().filter(|(_, series)| due(series)).map(|(key, _)| key.clone());
        for key in grown.collect::<Vec<_>>() {
            self.patch(&key);
        }
        self.series.retain(|_, series| series.seen.elapsed() < QUIET);
    }

    /// Creates the event, or patches a series into it.
    fn write(&mut self, turn: Turn, object: Arc<Object>, series: Option<Value>) {
        let sender = self.sender.clone();
        self.writes.spawn(async move {
            let _ended = turn.comes().await;
            let result = match series {
                None => sender.create(&object, None).await,
                Some(series) => sender.patch(&object, series).await,
            };
            if let Err(error) = result {
                tracing::warn!(path = object.path(), error = %error.error, "cannot write an event");
            }
        });
    }
}

/// Sends writes, a limited number at a time.
#[derive(Clone)]
struct Sender {
    api: Api,
    in_flight: Arc<Semaphore>,
}

impl Sender {
    async fn create(&self, object: &Object, series: Option<Value>) -> Result<(), CallError> {
        let body = body(object, series);
        let (path, content_type) = (&*object.collection(), "application/json");
        self.send(Call { method: Method::POST, path, content_type, body: &body }).await
    }

    async fn patch(&self, object: &Object, series: Value) -> Result<(), CallError> {
        let body = json!({"series": series});
        let (path, content_type) = (&*object.path(), "application/strategic-merge-patch+json");
        match self.send(Call { method: Method::PATCH, path, content_type, body: &body }).await {
            // It was never created, or has expired, which a series can outlive.
            Err(error) if error.status == Some(StatusCode::NOT_FOUND) => {
                self.create(object, Some(series)).await
            }
            result => result,
        }
    }

    /// Tries until the server takes it, or refuses it for good, or too often.
    async fn send(&self, call: Call<'_>) -> Result<(), CallError> {
        let mut attempt = 1;
        loop {
            // The semaphore is never closed, so there is always a permit to be had. Nobody keeps one while waiting.
            let permit = self.in_flight.acquire().await;
            let Err(error) = self.api.write(call.clone()).await else { return Ok(()) };
            drop(permit);
            if error.status == Some(StatusCode::CONFLICT) {
                // A try before this one was carried out after all.
                return Ok(());
            }
            if is_final(&error) || attempt == ATTEMPTS {
                return Err(error);
            }
            tracing::debug!(path = call.path, attempt, error = %error.error, "cannot write an event, will try again");
            let jitter = 0.75 + 0.5 * f64::from(attempt * 7 % 11) / 11.0;
            sleep(PAUSE.mul_f64(jitter)).await;
            attempt += 1;
        }
    }
}

/// The server will not change its mind.
fn is_final(error: &CallError) -> bool {
    error.status.is_some_and(|status| {
        status.is_client_error() && status != StatusCode::CONFLICT && status != StatusCode::TOO_MANY_REQUESTS
    })
}

/// `<pod>.<nanoseconds in hex>`, cut where the pod's name leaves no room.
fn event_name(pod: &str, now: Timestamp) -> String {
    let stem = pod.get(..LONGEST_NAME).unwrap_or(pod).trim_end_matches(['-', '.']);
    format!("{stem}.{:x}", now.as_nanosecond())
}

/// A time as the API's MicroTime.
fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// The whole object, with a series if there is one.
fn body(object: &Object, series: Option<Value>) -> Value {
    let Object { event, name, created, hostname } = object;
    let mut body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": event.pod.namespace},
        "eventTime": micros(*created),
        "reportingController": event.scheduler_name,
        "reportingInstance": format!("{}-{hostname}", event.scheduler_name),
        "action": event.action,
        "reason": event.reason,
        "regarding": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": event.pod.namespace,
            "name": event.pod.name,
            "uid": event.uid,
            "resourceVersion": event.resource_version,
        },
        "note": event.note,
        "type": if event.kind == EventType::Warning { "Warning" } else { "Normal" },
    });
    if let Some(series) = series {
        body["series"] = series;
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Requests, answering};
    use supercargo_framework::pod::PodKey;

    fn event(uid: &str, version: &str, note: &str) -> PodEvent {
        PodEvent {
            pod: PodKey { namespace: "ns".into(), name: "pod".into() },
            uid: uid.into(),
            resource_version: version.into(),
            scheduler_name: "supercargo".into(),
            kind: EventType::Warning,
            reason: "FailedScheduling".into(),
            action: "Scheduling".into(),
            note: note.into(),
        }
    }

    async fn written(events: Vec<PodEvent>, statuses: Vec<u16>) -> Requests {
        let (api, requests) = answering(statuses);
        let (recorder, writer) = Writer::new(api, "host".into());
        for event in events {
            recorder.record(event);
        }
        drop(recorder);
        writer.run().await;
        requests
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_has_upstreams_form() {
        let requests =
            written(vec![event("u1", "7", "0/1 nodes are available: 1 Insufficient cpu.")], vec![201]).await;
        let [(method, path, body)] = &requests.all()[..] else { panic!("{requests:?}") };
        assert_eq!((method.as_str(), path.as_str()), ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events"));
        let name = body["metadata"]["name"].as_str().unwrap();
        let nanos = name.strip_prefix("pod.").unwrap();
        assert!(i128::from_str_radix(nanos, 16).unwrap() > 0);
        assert_eq!(body["reportingInstance"], "supercargo-host");
        assert_eq!(body["regarding"]["uid"], "u1");
        assert_eq!(body["regarding"]["resourceVersion"], "7");
        assert_eq!(body["type"], "Warning");
        let time = body["eventTime"].as_str().unwrap();
        assert_eq!(time.len(), "2026-01-01T00:00:00.000000Z".len(), "{time}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_of_a_series_patches_and_more_only_count() {
        let events =
            vec![event("u1", "7", "a"), event("u1", "7", "b"), event("u1", "7", "c"), event("u1", "8", "d")];
        let requests = written(events, vec![]).await;
        let mut methods: Vec<_> = requests.all().iter().map(|(method, ..)| method.clone()).collect();
        methods.sort();
        assert_eq!(methods, ["PATCH", "POST", "POST"]);
        let all = requests.all();
        let patch = all.iter().find(|(method, ..)| method == "PATCH").unwrap();
        assert_eq!(patch.2["series"]["count"], 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_tried_again_unless_the_server_refuses_it() {
        assert_eq!(written(vec![event("u1", "7", "a")], vec![500, 503, 201]).await.all().len(), 3);
        assert_eq!(written(vec![event("u1", "7", "a")], vec![403]).await.all().len(), 1);
        assert_eq!(written(vec![event("u1", "7", "a")], vec![500, 409]).await.all().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_waits_for_the_event_to_be_created() {
        let events = vec![event("u1", "7", "a"), event("u1", "7", "b")];
        let requests = written(events, vec![500, 503, 201]).await;
        let methods: Vec<_> = requests.all().into_iter().map(|(method, ..)| method).collect();
        assert_eq!(methods, ["POST", "POST", "POST", "PATCH"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_is_gone_is_created_again_with_its_series() {
        let events = vec![event("u1", "7", "a"), event("u1", "7", "b")];
        let requests = written(events, vec![201, 404]).await;
        let [(.., first), (patch, ..), (method, path, again)] = &requests.all()[..] else {
            panic!("{requests:?}")
        };
        assert_eq!(patch, "PATCH");
        assert_eq!((method.as_str(), path.as_str()), ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events"));
        assert_eq!(again["series"]["count"], 2);
        assert_eq!(again["metadata"]["name"], first["metadata"]["name"]);
        assert_eq!(again["note"], "a");
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_can_be_neither_patched_nor_created_is_given_up() {
        let events = vec![event("u1", "7", "a"), event("u1", "7", "b")];
        assert_eq!(written(events, vec![403, 404, 404]).await.all().len(), 3);
    }

    #[test]
    fn a_long_pod_name_leaves_room_for_the_time() {
        let name = event_name(&"a".repeat(253), Timestamp::now());
        assert!(name.len() <= 253, "{}", name.len());
    }
}
