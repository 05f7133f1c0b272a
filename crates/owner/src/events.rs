//! Records events (events.k8s.io/v1), off the scheduler's path and in bounded memory.
//!
//! Upstream's rules: the first event of a kind is created, the second patches it into a series.
//! Further ones are counted in memory; the count is written every half hour and when the series is
//! over. Failed writes are retried. An event that no longer exists when its series is patched is
//! created again. Only warnings form series; normal events such as Scheduled occur once.
//!
//! Events that the API server does not accept fast enough are queued, up to a limit. Beyond that
//! new events are lost, as upstream, so that pods whose events are queued keep theirs. The log
//! reports the number of lost events.

mod event_object;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::json;
use supercargo_framework::{ResourceVersion, Text, Uid};
use supercargo_scheduler::{EventType, PodEvent};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::gauge::EventGauges;
use event_object::{Count, EventObject, EventWithSeries};
use supercargo_client::api::{Api, Call, CallError, Submission};
use supercargo_client::host::Host;

/// A series without an event for this long is over.
const QUIET: Duration = Duration::from_mins(6);
/// How often series are checked.
const SWEEP: Duration = Duration::from_mins(1);
/// How often the count of an active series is written.
const REFRESH: Duration = Duration::from_mins(30);
/// Maximum number of attempts of a write.
const ATTEMPTS: u32 = 12;
/// Delay between attempts.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// No write starts for this long after a request without a response.
const HOLD: Duration = Duration::from_secs(1);
/// Maximum number of writes in flight.
const WRITES_IN_FLIGHT: usize = 64;
/// Maximum number of pending writes: the bindings of a large deployment, in about 20 MB.
const MAX_PENDING: usize = 50_000;
/// Capacity of the channel from the scheduler's thread.
const CHANNEL_CAPACITY: usize = 10_000;
/// Maximum number of series. Further warnings are written individually.
const MAX_SERIES: usize = 50_000;
/// How often lost events are logged.
const LOSS_LOG_PERIOD: Duration = Duration::from_secs(30);

/// Events with equal keys form a series. The note is not part of the key; the pod's resource
/// version is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    uid: Uid,
    resource_version: ResourceVersion,
    reason: Text,
    action: Text,
}

/// A warning that may recur.
struct Series {
    object: Arc<EventObject>,
    count: u32,
    last_observed: Timestamp,
    /// The count last written; 0 before the event is created.
    written: u32,
    seen: Instant,
    refreshed: Instant,
    /// Whether a write is pending. A patch must not overtake the creation of its event.
    is_pending: bool,
}

impl Series {
    fn count(&self) -> Count {
        Count { count: self.count, last_observed: self.last_observed }
    }

    /// Whether to write the count immediately: the first event creates the object, the second turns
    /// it into a series.
    fn is_news(&self) -> bool {
        self.written < self.count.min(2)
    }
}

/// A pending write.
struct Write {
    target: Target,
    attempt: u32,
}

enum Target {
    /// A single event.
    Event(Arc<EventObject>),
    /// The current count of a series.
    Series(Key),
}

/// A request to the API server.
enum WriteOp {
    Create(Option<Count>),
    Patch(Count),
}

/// A completed write, and the count that it wrote.
struct Completed {
    write: Write,
    object: Arc<EventObject>,
    count: u32,
    result: Result<(), CallError>,
}

/// Sends events to the writer. Never blocks.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<PodEvent>,
    lost: Arc<AtomicU64>,
    held: EventGauges,
}

impl Recorder {
    /// Queues an event.
    pub fn record(&self, event: PodEvent) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.sender.try_send(event) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        // The writer ends only with the process.
    }

    /// Numbers of series and pending writes.
    pub fn gauges(&self) -> EventGauges {
        self.held.clone()
    }

    /// Counter of lost events. Holding it does not keep the writer running.
    pub fn losses(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }
}

/// Writes the recorded events.
pub struct Writer {
    api: Api,
    host: Host,
    events: mpsc::Receiver<PodEvent>,
    series: HashMap<Key, Series>,
    ready: VecDeque<Write>,
    /// Failed writes and the times of their retries, soonest first.
    retries: VecDeque<(Instant, Write)>,
    /// No write starts before this time.
    hold: Option<Instant>,
    writes: JoinSet<Completed>,
    loss: Loss,
    held: EventGauges,
}

impl Writer {
    /// A recorder, and the writer that sends what it records.
    pub fn new(api: Api, host: Host) -> (Recorder, Self) {
        let (sender, events) = mpsc::channel(CHANNEL_CAPACITY);
        let loss = Loss::default();
        let held = EventGauges::default();
        let recorder = Recorder { sender, lost: Arc::clone(&loss.lost), held: held.clone() };
        let writer = Self {
            api,
            host,
            events,
            series: HashMap::new(),
            ready: VecDeque::new(),
            retries: VecDeque::new(),
            hold: None,
            writes: JoinSet::new(),
            loss,
            held,
        };
        (recorder, writer)
    }

    /// Writes until all recorders are gone, and then flushes.
    pub async fn run(mut self) {
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut open = true;
        while open || self.pending() > 0 {
            self.start_ready();
            self.loss.log();
            self.held.series.set(self.series.len());
            self.held.writes.set(self.pending());
            let wake = self.wake();
            tokio::select! {
                event = self.events.recv(), if open => match event {
                    Some(event) => self.take(event),
                    None => open = false,
                },
                Some(completed) = self.writes.join_next() => match completed {
                    Ok(completed) => self.completed(completed),
                    Err(error) => tracing::error!(%error, "event write failed"),
                },
                _ = sweep.tick(), if open => self.sweep(),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
        self.loss.logged_at = None;
        self.loss.log();
    }

    /// Number of writes that are queued or in flight.
    fn pending(&self) -> usize {
        self.ready.len() + self.retries.len() + self.writes.len()
    }

    fn take(&mut self, event: PodEvent) {
        let now = self.host.wall();
        let key = Key {
            uid: event.uid.clone(),
            resource_version: event.resource_version.clone(),
            reason: event.reason.clone(),
            action: event.action.clone(),
        };
        let is_warning = event.kind == EventType::Warning;
        if let Some(series) = self.series.get_mut(&key).filter(|_| is_warning) {
            series.count += 1;
            series.last_observed = now;
            series.seen = Instant::now();
            self.write_news(key);
            return;
        }
        if self.pending() >= MAX_PENDING {
            self.loss.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let object = Arc::new(EventObject::new(event, now, Arc::clone(&self.host.name)));
        if !is_warning || self.series.len() >= MAX_SERIES {
            self.ready.push_back(Write { target: Target::Event(object), attempt: 1 });
            return;
        }
        let at = Instant::now();
        let (count, written, is_pending) = (1, 0, false);
        let series =
            Series { object, count, last_observed: now, written, seen: at, refreshed: at, is_pending };
        self.series.insert(key.clone(), series);
        self.write_news(key);
    }

    /// Queues a write of the series if its count must be written immediately.
    fn write_news(&mut self, key: Key) {
        if self.series.get(&key).is_some_and(Series::is_news) {
            self.write_series(key);
        }
    }

    /// Queues a write of the series, unless one is pending. If the queue is full, a later sweep
    /// tries again.
    fn write_series(&mut self, key: Key) {
        let has_room = self.pending() < MAX_PENDING;
        if let Some(series) = self.series.get_mut(&key).filter(|series| !series.is_pending && has_room) {
            series.is_pending = true;
            self.ready.push_back(Write { target: Target::Series(key), attempt: 1 });
        }
    }

    /// Ends quiet series, and writes counts that have grown.
    fn sweep(&mut self) {
        let due = |series: &Series| {
            let quiet = series.seen.elapsed() >= QUIET;
            series.count > series.written && (quiet || series.refreshed.elapsed() >= REFRESH)
        };
        let grown = self.series.iter().filter(|(_, series)| due(series)).map(|(key, _)| key.clone());
        for key in grown.collect::<Vec<_>>() {
            self.write_series(key);
        }
        self.series.retain(|_, series| series.is_pending || series.seen.elapsed() < QUIET);
        // A storm of events must not keep its memory.
        self.series.shrink_to(2 * self.series.len());
        self.ready.shrink_to(2 * self.ready.len());
    }

    /// Starts queued writes up to the limit.
    fn start_ready(&mut self) {
        let now = Instant::now();
        if self.hold.is_some_and(|hold| hold > now) {
            return;
        }
        while let Some((_, write)) = self.retries.pop_front_if(|(at, _)| *at <= now) {
            self.ready.push_back(write);
        }
        while self.writes.len() < WRITES_IN_FLIGHT {
            let Some(write) = self.ready.pop_front() else { return };
            self.start(write);
        }
    }

    fn start(&mut self, write: Write) {
        let (object, op, count) = match &write.target {
            Target::Event(object) => (Arc::clone(object), WriteOp::Create(None), 1),
            Target::Series(key) => {
                // Series with a pending write are not removed.
                let Some(series) = self.series.get(key) else { return };
                let count = series.count();
                let op = match series.written {
                    0 => WriteOp::Create((count.count > 1).then_some(count)),
                    _ => WriteOp::Patch(count),
                };
                (Arc::clone(&series.object), op, count.count)
            }
        };
        let api = self.api.clone();
        self.writes.spawn(async move {
            let result = match op {
                WriteOp::Create(series) => create(&api, &object, series).await,
                WriteOp::Patch(series) => patch(&api, &object, series).await,
            };
            Completed { write, object, count, result }
        });
    }

    fn completed(&mut self, Completed { mut write, object, count, result }: Completed) {
        match result {
            // On a conflict, an earlier attempt was successful after all.
            Err(error) if error.status != Some(StatusCode::CONFLICT) => {
                let now = Instant::now();
                if error.status.is_none() {
                    self.hold = Some(now + HOLD);
                }
                if !is_permanent(&error) && write.attempt < ATTEMPTS {
                    write.attempt += 1;
                    self.retries.push_back((now + RETRY_DELAY, write));
                    return;
                }
                if error.status.is_none() {
                    self.loss.lost.fetch_add(1, Ordering::Relaxed);
                } else {
                    tracing::warn!(path = object.path(), error = %error.error, "cannot write event");
                }
            }
            _ => {}
        }
        if let Target::Series(key) = write.target {
            if let Some(series) = self.series.get_mut(&key) {
                series.written = count;
                series.refreshed = Instant::now();
                series.is_pending = false;
            }
            self.write_news(key);
        }
    }

    /// When the next retry or held write is due.
    fn wake(&self) -> Option<Instant> {
        let hold = self.hold.filter(|hold| *hold > Instant::now() && self.pending() > self.writes.len());
        hold.or_else(|| self.retries.front().map(|(at, _)| *at))
    }
}

/// Counts lost events, and logs the number periodically.
#[derive(Default)]
struct Loss {
    lost: Arc<AtomicU64>,
    logged: u64,
    logged_at: Option<Instant>,
}

impl Loss {
    fn log(&mut self) {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > self.logged && self.logged_at.is_none_or(|at| at.elapsed() >= LOSS_LOG_PERIOD) {
            let newly = lost - self.logged;
            tracing::warn!(newly, total = lost, "events are lost: the API server accepts events too slowly");
            self.logged = lost;
            self.logged_at = Some(Instant::now());
        }
    }
}

async fn create(api: &Api, object: &EventObject, series: Option<Count>) -> Result<(), CallError> {
    let (path, object) = (&*object.collection(), &EventWithSeries { object, series });
    api.submit(Submission { method: Method::POST, path, object }).await
}

async fn patch(api: &Api, object: &EventObject, series: Count) -> Result<(), CallError> {
    let (path, body) = (&*object.path(), &json!({"series": series.json()}));
    let content_type = "application/strategic-merge-patch+json";
    match api.write(Call { method: Method::PATCH, path, content_type, body }).await {
        // It was never created, or has expired: a series can outlive its event.
        Err(error) if error.status == Some(StatusCode::NOT_FOUND) => create(api, object, Some(series)).await,
        result => result,
    }
}

/// Whether a retry would fail again.
fn is_permanent(error: &CallError) -> bool {
    error.status.is_some_and(|status| {
        status.is_client_error() && status != StatusCode::CONFLICT && status != StatusCode::TOO_MANY_REQUESTS
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use supercargo_client::testing::{Requests, answering};
    use supercargo_framework::objects::GroupKind;
    use supercargo_framework::pod::PodKey;
    use supercargo_scheduler::GroupReference;

    fn host() -> Host {
        Host { name: "host".into(), ..Host::local() }
    }

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
            related: None,
        }
    }

    async fn written(events: Vec<PodEvent>, statuses: Vec<u16>) -> Requests {
        let (api, requests) = answering(statuses);
        let (recorder, writer) = Writer::new(api, host());
        for event in events {
            recorder.record(event);
        }
        drop(recorder);
        writer.run().await;
        requests
    }

    #[tokio::test(start_paused = true)]
    async fn gauges_count_a_series_until_it_is_over() {
        let (api, _requests) = answering(vec![201]);
        let (recorder, writer) = Writer::new(api, host());
        tokio::spawn(writer.run());
        recorder.record(event("u1", "7", "why"));
        let held = recorder.gauges();
        let after = async |time| {
            tokio::time::sleep(time).await;
            (held.series.get(), held.writes.get())
        };
        assert_eq!(after(QUIET.saturating_sub(SWEEP)).await, (1, 0));
        assert_eq!(after(3 * SWEEP).await, (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn series_that_are_over_leave_no_memory() {
        let (api, _requests) = answering(Vec::new());
        let (_recorder, mut writer) = Writer::new(api, host());
        for uid in 0..MAX_SERIES {
            writer.take(event(&uid.to_string(), "7", "why"));
            writer.ready.clear();
        }
        writer.series.values_mut().for_each(|series| (series.written, series.is_pending) = (1, false));
        assert_eq!(writer.series.len(), MAX_SERIES);
        tokio::time::advance(QUIET).await;
        writer.sweep();
        assert_eq!((writer.series.capacity(), writer.ready.capacity()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn event_has_the_fields_of_upstream() {
        let group = GroupReference {
            kind: GroupKind::Groups,
            namespace: "ns".into(),
            name: "g".into(),
            uid: "u2".into(),
            resource_version: "8".into(),
        };
        let mut event = event("u1", "7", "0/1 nodes are available: 1 Insufficient cpu.");
        event.related = Some(group);
        let requests = written(vec![event], vec![201]).await;
        let [(method, path, body)] = &requests.all()[..] else { panic!("{requests:?}") };
        assert_eq!((method.as_str(), path.as_str()), ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events"));
        let name = body["metadata"]["name"].as_str().unwrap();
        let nanos = name.strip_prefix("pod.").unwrap();
        assert!(i128::from_str_radix(nanos, 16).unwrap() > 0);
        assert_eq!(body["reportingInstance"], "supercargo-host");
        assert_eq!(body["regarding"]["uid"], "u1");
        assert_eq!(body["regarding"]["resourceVersion"], "7");
        let related = json!({
            "apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "CompositePodGroup", "namespace": "ns",
            "name": "g", "uid": "u2", "resourceVersion": "8",
        });
        assert_eq!(body["related"], related);
        assert_eq!(body["type"], "Warning");
        let time = body["eventTime"].as_str().unwrap();
        assert_eq!(time.len(), "2026-01-01T00:00:00.000000Z".len(), "{time}");
    }

    #[tokio::test(start_paused = true)]
    async fn second_event_patches_and_further_ones_only_count() {
        let events =
            vec![event("u1", "7", "a"), event("u1", "7", "b"), event("u1", "7", "c"), event("u1", "8", "d")];
        let requests = written(events, vec![]).await;
        let mut methods: Vec<_> = requests.all().iter().map(|(method, ..)| method.clone()).collect();
        methods.sort();
        assert_eq!(methods, ["PATCH", "POST", "POST"]);
        let all = requests.all();
        let patch = all.iter().find(|(method, ..)| method == "PATCH").unwrap();
        assert!([2, 3].map(|count| json!(count)).contains(&patch.2["series"]["count"]), "{patch:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn writes_are_retried_unless_the_server_rejects_them() {
        assert_eq!(written(vec![event("u1", "7", "a")], vec![500, 503, 201]).await.all().len(), 3);
        assert_eq!(written(vec![event("u1", "7", "a")], vec![403]).await.all().len(), 1);
        assert_eq!(written(vec![event("u1", "7", "a")], vec![500, 409]).await.all().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn series_of_an_event_that_is_not_yet_created_is_created_with_it() {
        let events = vec![event("u1", "7", "a"), event("u1", "7", "b")];
        let all = written(events, vec![500, 503, 201]).await.all();
        let counts: Vec<_> =
            all.iter().map(|(method, _, body)| (&**method, body["series"]["count"].as_u64())).collect();
        assert_eq!(counts, [("POST", None), ("POST", Some(2)), ("POST", Some(2))]);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_event_is_created_again_with_its_series() {
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
    async fn event_that_can_be_neither_patched_nor_created_is_dropped() {
        let events = vec![event("u1", "7", "a"), event("u1", "7", "b")];
        assert_eq!(written(events, vec![403, 404, 404]).await.all().len(), 3);
    }

    fn binding(pod: usize) -> PodEvent {
        PodEvent {
            kind: EventType::Normal,
            reason: "Scheduled".into(),
            ..event(&format!("u{pod}"), "7", "Successfully assigned")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn newest_events_are_lost_when_the_queue_is_full() {
        const MORE: usize = 1_000;
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let api = Api::with_client(kube::Client::new(service, "default"));
        let (recorder, mut writer) = Writer::new(api, host());
        for pod in 0..MAX_PENDING + MORE {
            recorder.record(binding(pod));
            // Drains the channel as the running writer would.
            if pod % CHANNEL_CAPACITY == CHANNEL_CAPACITY - 1 {
                writer.take_all();
            }
        }
        writer.take_all();
        assert_eq!((writer.pending(), recorder.lost.load(Ordering::Relaxed)), (MAX_PENDING, MORE as u64));
        for pod in 0..CHANNEL_CAPACITY + MORE {
            recorder.record(binding(pod));
        }
        assert_eq!(recorder.lost.load(Ordering::Relaxed), 2 * MORE as u64, "the channel is bounded");
    }

    impl Writer {
        fn take_all(&mut self) {
            while let Ok(event) = self.events.try_recv() {
                self.take(event);
                self.start_ready();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn normal_events_form_no_series() {
        let (api, requests) = answering(vec![]);
        let (recorder, mut writer) = Writer::new(api, host());
        for pod in [1, 1, 2] {
            recorder.record(binding(pod));
        }
        writer.take_all();
        assert!(writer.series.is_empty());
        drop(recorder);
        writer.run().await;
        let methods: Vec<_> = requests.all().into_iter().map(|(method, ..)| method).collect();
        assert_eq!(methods, ["POST"; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn writes_pause_after_a_request_without_response() {
        let asked = Arc::new(AtomicU64::new(0));
        let log = Arc::clone(&asked);
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            log.fetch_add(1, Ordering::Relaxed);
            async {
                Err::<http::Response<kube::client::Body>, _>(std::io::Error::from(
                    std::io::ErrorKind::ConnectionRefused,
                ))
            }
        });
        let api = Api::with_client(kube::Client::new(service, "default"));
        let (recorder, writer) = Writer::new(api, host());
        for pod in 0..5_000 {
            recorder.record(binding(pod));
        }
        let writing = tokio::spawn(writer.run());
        tokio::time::sleep(Duration::from_millis(9_500)).await;
        let asked = asked.load(Ordering::Relaxed);
        let each_second = WRITES_IN_FLIGHT as u64;
        assert!((10..=10 * each_second).contains(&asked), "{asked} times in 10 s");
        writing.abort();
    }

    #[test]
    fn event_name_of_a_long_pod_name_is_within_the_limit() {
        let name = event_object::event_name(&"a".repeat(253), Timestamp::UNIX_EPOCH);
        assert!(name.len() <= 253, "{}", name.len());
    }
}
