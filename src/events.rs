//! Records events (events.k8s.io/v1), off the scheduler's path and in bounded memory.
//!
//! Upstream's rules: the first event of a kind is created; the second patches it into a series; more only count in
//! memory, and the count is written every half hour and once the series has gone quiet. Failed writes are tried again,
//! and an event that is gone when its series is to be patched is created anew. Only warnings come in series: what is normal, such
//! as a binding, happens once.
//!
//! What the API server does not take fast enough waits, up to a number. Beyond that the newest are lost, as upstream has it: those
//! that wait are about to be sent, and their pods would be without a word otherwise. The log says how many.

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

/// A series that has been quiet for this long is over.
const QUIET: Duration = Duration::from_mins(6);
/// How often series are looked at that may be over.
const SWEEP: Duration = Duration::from_mins(1);
/// How often the count of a series that goes on is written.
const REFRESH: Duration = Duration::from_mins(30);
/// How often a write is tried.
const ATTEMPTS: u32 = 12;
/// The pause between tries.
const PAUSE: Duration = Duration::from_secs(10);
/// A server that does not answer is left alone for so long.
const HOLD: Duration = Duration::from_secs(1);
/// So many writes at most are under way.
const WRITES_IN_FLIGHT: usize = 64;
/// So many writes at most wait: a large deployment's worth of bindings, in some 20 MB.
const WAITING: usize = 50_000;
/// So many events at most are on their way from the scheduler's thread.
const HANDED_OVER: usize = 10_000;
/// So many series at most are followed; warnings beyond that are written one by one.
const SERIES: usize = 50_000;
/// How often the log says that events are lost.
const LOSS_TOLD: Duration = Duration::from_secs(30);

/// What makes two events one series. The text is not part of it; the pod's resource version is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    uid: Uid,
    resource_version: ResourceVersion,
    reason: Text,
    action: Text,
}

/// A warning that may come again.
struct Series {
    object: Arc<EventObject>,
    count: u32,
    last_observed: Timestamp,
    /// The count that was last written; 0 before the event is created.
    written: u32,
    seen: Instant,
    refreshed: Instant,
    /// It waits to be written, or is being written. A patch must not overtake what it patches.
    is_busy: bool,
}

impl Series {
    fn count(&self) -> Count {
        Count { count: self.count, last_observed: self.last_observed }
    }

    /// Whether its count is to be written without waiting: the first tells of the event, the second that it is a series.
    fn is_news(&self) -> bool {
        self.written < self.count.min(2)
    }
}

/// Something to be written.
struct Write {
    what: What,
    attempt: u32,
}

enum What {
    /// An event of its own.
    Event(Arc<EventObject>),
    /// How things stand with this series.
    Series(Key),
}

/// What is asked of the API server.
enum WriteOp {
    Create(Option<Count>),
    Patch(Count),
}

/// A write that has ended, and the count that it wrote.
struct Ended {
    write: Write,
    object: Arc<EventObject>,
    count: u32,
    result: Result<(), CallError>,
}

/// Takes events and never blocks.
#[derive(Clone)]
pub(crate) struct Recorder {
    sender: mpsc::Sender<PodEvent>,
    lost: Arc<AtomicU64>,
    held: EventGauges,
}

impl Recorder {
    pub(crate) fn record(&self, event: PodEvent) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.sender.try_send(event) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        // When the writer has ended, so has the process.
    }

    /// How much the writer holds.
    pub(crate) fn gauges(&self) -> EventGauges {
        self.held.clone()
    }

    /// How many have been lost, now and later. Keeping this does not keep the writer from ending.
    pub(crate) fn losses(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }
}

/// Writes what the recorder takes.
pub(crate) struct Writer {
    api: Api,
    hostname: Arc<str>,
    events: mpsc::Receiver<PodEvent>,
    series: HashMap<Key, Series>,
    ready: VecDeque<Write>,
    /// What has failed, and when it is tried again, the soonest first.
    later: VecDeque<(Instant, Write)>,
    /// Until when nothing is begun.
    hold: Option<Instant>,
    writes: JoinSet<Ended>,
    loss: Loss,
    held: EventGauges,
}

impl Writer {
    pub(crate) fn new(api: Api, hostname: String) -> (Recorder, Self) {
        let (sender, events) = mpsc::channel(HANDED_OVER);
        let loss = Loss::default();
        let held = EventGauges::default();
        let recorder = Recorder { sender, lost: Arc::clone(&loss.lost), held: held.clone() };
        let writer = Self {
            api,
            hostname: hostname.into(),
            events,
            series: HashMap::new(),
            ready: VecDeque::new(),
            later: VecDeque::new(),
            hold: None,
            writes: JoinSet::new(),
            loss,
            held,
        };
        (recorder, writer)
    }

    /// Writes until every recorder is gone, and then finishes what is left.
    pub(crate) async fn run(mut self) {
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut open = true;
        while open || self.waiting() > 0 {
            self.begin_ready();
            self.loss.tell();
            self.held.series.set(self.series.len());
            self.held.writes.set(self.waiting());
            let wake = self.wake();
            tokio::select! {
                event = self.events.recv(), if open => match event {
                    Some(event) => self.take(event),
                    None => open = false,
                },
                Some(ended) = self.writes.join_next() => match ended {
                    Ok(ended) => self.ended(ended),
                    Err(error) => tracing::error!(%error, "writing an event broke down"),
                },
                _ = sweep.tick(), if open => self.sweep(),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
        self.loss.told_at = None;
        self.loss.tell();
    }

    /// How many writes have not ended.
    fn waiting(&self) -> usize {
        self.ready.len() + self.later.len() + self.writes.len()
    }

    fn take(&mut self, event: PodEvent) {
        let now = Timestamp::now();
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
        if self.waiting() >= WAITING {
            self.loss.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let object = Arc::new(EventObject::new(event, now, Arc::clone(&self.hostname)));
        if !is_warning || self.series.len() >= SERIES {
            self.ready.push_back(Write { what: What::Event(object), attempt: 1 });
            return;
        }
        let at = Instant::now();
        let (count, written, is_busy) = (1, 0, false);
        let series = Series { object, count, last_observed: now, written, seen: at, refreshed: at, is_busy };
        self.series.insert(key.clone(), series);
        self.write_news(key);
    }

    /// Lets the series be written if it has something new to say.
    fn write_news(&mut self, key: Key) {
        if self.series.get(&key).is_some_and(Series::is_news) {
            self.write_series(key);
        }
    }

    /// Lets the series be written, unless that is under way, or too much waits: then it is looked at again later.
    fn write_series(&mut self, key: Key) {
        let has_room = self.waiting() < WAITING;
        if let Some(series) = self.series.get_mut(&key).filter(|series| !series.is_busy && has_room) {
            series.is_busy = true;
            self.ready.push_back(Write { what: What::Series(key), attempt: 1 });
        }
    }

    /// Ends series that have gone quiet, and writes counts that have grown.
    fn sweep(&mut self) {
        let due = |series: &Series| {
            let quiet = series.seen.elapsed() >= QUIET;
            series.count > series.written && (quiet || series.refreshed.elapsed() >= REFRESH)
        };
        let grown = self.series.iter().filter(|(_, series)| due(series)).map(|(key, _)| key.clone());
        for key in grown.collect::<Vec<_>>() {
            self.write_series(key);
        }
        self.series.retain(|_, series| series.is_busy || series.seen.elapsed() < QUIET);
    }

    /// Begins what is ready, as far as there are places.
    fn begin_ready(&mut self) {
        let now = Instant::now();
        if self.hold.is_some_and(|hold| hold > now) {
            return;
        }
        while let Some((_, write)) = self.later.pop_front_if(|(at, _)| *at <= now) {
            self.ready.push_back(write);
        }
        while self.writes.len() < WRITES_IN_FLIGHT {
            let Some(write) = self.ready.pop_front() else { return };
            self.begin(write);
        }
    }

    fn begin(&mut self, write: Write) {
        let (object, op, count) = match &write.what {
            What::Event(object) => (Arc::clone(object), WriteOp::Create(None), 1),
            What::Series(key) => {
                // Series that wait to be written are kept.
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
            Ended { write, object, count, result }
        });
    }

    fn ended(&mut self, Ended { mut write, object, count, result }: Ended) {
        match result {
            // With a conflict, a try before this one was carried out after all.
            Err(error) if error.status != Some(StatusCode::CONFLICT) => {
                let now = Instant::now();
                if error.status.is_none() {
                    self.hold = Some(now + HOLD);
                }
                if !is_final(&error) && write.attempt < ATTEMPTS {
                    write.attempt += 1;
                    self.later.push_back((now + PAUSE, write));
                    return;
                }
                if error.status.is_none() {
                    self.loss.lost.fetch_add(1, Ordering::Relaxed);
                } else {
                    tracing::warn!(path = object.path(), error = %error.error, "cannot write an event");
                }
            }
            _ => {}
        }
        if let What::Series(key) = write.what {
            if let Some(series) = self.series.get_mut(&key) {
                series.written = count;
                series.refreshed = Instant::now();
                series.is_busy = false;
            }
            self.write_news(key);
        }
    }

    /// When there is something to do that nothing else wakes this for.
    fn wake(&self) -> Option<Instant> {
        let hold = self.hold.filter(|hold| *hold > Instant::now() && self.waiting() > self.writes.len());
        hold.or_else(|| self.later.front().map(|(at, _)| *at))
    }
}

/// Counts events that are lost, and tells the log now and then.
#[derive(Default)]
struct Loss {
    lost: Arc<AtomicU64>,
    told: u64,
    told_at: Option<Instant>,
}

impl Loss {
    fn tell(&mut self) {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > self.told && self.told_at.is_none_or(|at| at.elapsed() >= LOSS_TOLD) {
            let newly = lost - self.told;
            tracing::warn!(
                newly,
                in_all = lost,
                "events are lost: the API server does not take them fast enough"
            );
            self.told = lost;
            self.told_at = Some(Instant::now());
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
        // It was never created, or has expired, which a series can outlive.
        Err(error) if error.status == Some(StatusCode::NOT_FOUND) => create(api, object, Some(series)).await,
        result => result,
    }
}

/// The server will not change its mind.
fn is_final(error: &CallError) -> bool {
    error.status.is_some_and(|status| {
        status.is_client_error() && status != StatusCode::CONFLICT && status != StatusCode::TOO_MANY_REQUESTS
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use supercargo_client::testing::{Requests, answering};
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
    async fn a_series_is_held_until_it_has_been_quiet_for_long_enough_and_the_recorder_says_so() {
        let (api, _requests) = answering(vec![201]);
        let (recorder, writer) = Writer::new(api, "host".into());
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
        assert!([2, 3].map(|count| json!(count)).contains(&patch.2["series"]["count"]), "{patch:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_tried_again_unless_the_server_refuses_it() {
        assert_eq!(written(vec![event("u1", "7", "a")], vec![500, 503, 201]).await.all().len(), 3);
        assert_eq!(written(vec![event("u1", "7", "a")], vec![403]).await.all().len(), 1);
        assert_eq!(written(vec![event("u1", "7", "a")], vec![500, 409]).await.all().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_series_waits_for_its_event_to_be_created_and_is_created_with_it_if_that_takes_long() {
        let events = vec![event("u1", "7", "a"), event("u1", "7", "b")];
        let all = written(events, vec![500, 503, 201]).await.all();
        let counts: Vec<_> =
            all.iter().map(|(method, _, body)| (&**method, body["series"]["count"].as_u64())).collect();
        assert_eq!(counts, [("POST", None), ("POST", Some(2)), ("POST", Some(2))]);
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

    fn binding(pod: usize) -> PodEvent {
        PodEvent {
            kind: EventType::Normal,
            reason: "Scheduled".into(),
            ..event(&format!("u{pod}"), "7", "Successfully assigned")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_slow_server_does_not_take_waits_up_to_a_number_and_the_newest_are_lost() {
        const MORE: usize = 1_000;
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let api = Api::with_client(kube::Client::new(service, "default"));
        let (recorder, mut writer) = Writer::new(api, "host".into());
        for pod in 0..WAITING + MORE {
            recorder.record(binding(pod));
            // As the writer would, if the scheduler's thread left it the time.
            if pod % HANDED_OVER == HANDED_OVER - 1 {
                writer.take_all();
            }
        }
        writer.take_all();
        assert_eq!((writer.waiting(), recorder.lost.load(Ordering::Relaxed)), (WAITING, MORE as u64));
        for pod in 0..HANDED_OVER + MORE {
            recorder.record(binding(pod));
        }
        assert_eq!(
            recorder.lost.load(Ordering::Relaxed),
            2 * MORE as u64,
            "nor does what is handed over grow"
        );
    }

    impl Writer {
        fn take_all(&mut self) {
            while let Ok(event) = self.events.try_recv() {
                self.take(event);
                self.begin_ready();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_normal_is_an_event_of_its_own_each_time_and_not_remembered() {
        let (api, requests) = answering(vec![]);
        let (recorder, mut writer) = Writer::new(api, "host".into());
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
    async fn a_server_that_does_not_answer_is_left_alone_for_a_while() {
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
        let (recorder, writer) = Writer::new(api, "host".into());
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
    fn a_long_pod_name_leaves_room_for_the_time() {
        let name = event_object::event_name(&"a".repeat(253), Timestamp::now());
        assert!(name.len() <= 253, "{}", name.len());
    }
}
