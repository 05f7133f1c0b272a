//! Overviews as they follow each other.
//!
//! Watchers share an overview, and nothing is computed without one. A watcher gets what has changed
//! since what it was sent last, so a slow one has no backlog.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::unfold;
use serde_json::{Value, json};
use supercargo_client::api::full_text;
use supercargo_framework::Timestamp;
use supercargo_page::{MOST_TILES, Overview};
use supercargo_report::overview;
use supercargo_scheduler::Fork;
use supercargo_serving::QueryResponse;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::dated;
use crate::insight::endpoint::{Insight, not_synced};

/// The most streams.
const MOST_WATCHERS: usize = 20;
/// How often an overview is computed: four times a second, or less if it takes long, and at most
/// once a second in a cluster whose nodes have no tile each.
const PERIOD: Duration = Duration::from_millis(250);
const LONG_PERIOD: Duration = Duration::from_secs(1);
const LONGEST_PERIOD: Duration = Duration::from_secs(10);
/// Up to the longest period, overviews take at most one part in this many of a core.
const SHARE: u32 = 100;
/// How long a stream may be silent.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a stream lasts. Then the client authenticates again.
const LIFETIME: Duration = Duration::from_mins(5);
/// How long a stream waits for a scheduler that has just started.
const PATIENCE: Duration = Duration::from_secs(10);
/// Server-sent events.
pub(super) const EVENTS: &str = "text/event-stream";

/// Overviews of one scheduler.
pub(super) struct Live {
    insight: Arc<Insight>,
    last: Mutex<Option<Frame>>,
    changes: parking_lot::Mutex<Option<Changes>>,
    watchers: Arc<Semaphore>,
}

/// The last event of changes. Watchers that keep up get the same one.
struct Changes {
    /// The number of the overview before, and the number and the time of the one after.
    between: (u64, u64, Timestamp),
    text: Bytes,
}

/// An overview.
#[derive(Clone)]
struct Frame {
    /// Grows with each overview that differs from the one before.
    sequence: u64,
    overview: Arc<Overview>,
    as_of: Timestamp,
    until: Instant,
}

impl Live {
    pub(super) fn new(insight: Arc<Insight>) -> Self {
        let watchers = Arc::new(Semaphore::new(MOST_WATCHERS));
        Self { insight, last: Mutex::default(), changes: parking_lot::Mutex::default(), watchers }
    }

    /// The overview as it is.
    pub(super) async fn snapshot(self: &Arc<Self>) -> QueryResponse {
        if !self.insight.is_synced() {
            return not_synced();
        }
        match Arc::clone(self).frame().await {
            Ok(frame) => QueryResponse::answer(frame.snapshot().to_string(), true),
            Err(error) => QueryResponse::unavailable(full_text(&*error)),
        }
    }

    /// The overview, and then its changes.
    pub(super) async fn stream(self: &Arc<Self>) -> QueryResponse {
        if timeout(PATIENCE, self.insight.synced()).await.is_err() {
            return not_synced();
        }
        let Ok(place) = Arc::clone(&self.watchers).try_acquire_owned() else {
            return QueryResponse::unavailable(format!("{MOST_WATCHERS} pages are open already"));
        };
        match Arc::clone(self).frame().await {
            Ok(first) => {
                let text = event("snapshot", &first.snapshot());
                let watcher = Watcher::new(Arc::clone(self), first, keep(place));
                let later = unfold(watcher, async |mut watcher| Some((watcher.next().await?, watcher)));
                let texts = futures::stream::iter([text]).chain(later);
                QueryResponse::stream(EVENTS, texts.boxed())
            }
            Err(error) => QueryResponse::unavailable(full_text(&*error)),
        }
    }

    /// The last overview, while it is new, or a new one.
    async fn frame(self: Arc<Self>) -> Result<Frame> {
        let mut last = self.last.lock().await;
        if let Some(frame) = last.as_ref().filter(|frame| Instant::now() < frame.until) {
            return Ok(frame.clone());
        }
        // A copy that has been read already says the same.
        let known = last.as_ref().map(|frame| frame.as_of);
        let read = move |fork: &Fork, as_of| {
            let began = Instant::now();
            ((known != Some(as_of)).then(|| Arc::new(overview(fork))), as_of, began.elapsed())
        };
        let (read, as_of, took) = self.insight.read(read).await?;
        let (sequence, overview) = match (last.as_ref(), read) {
            (Some(old), None) => (old.sequence, Arc::clone(&old.overview)),
            (Some(old), Some(new)) if old.overview == new => (old.sequence, new),
            (old, new) => (old.map_or(1, |old| old.sequence + 1), new.unwrap_or_default()),
        };
        let until = Instant::now() + period(overview.nodes(), took);
        let frame = Frame { sequence, overview, as_of, until };
        Ok(last.insert(frame).clone())
    }

    /// What has changed between two overviews.
    fn changes(&self, old: &Frame, new: &Frame) -> Bytes {
        let between = (old.sequence, new.sequence, new.as_of);
        let mut last = self.changes.lock();
        if let Some(known) = last.as_ref().filter(|known| known.between == between) {
            return known.text.clone();
        }
        let text = match new.overview.changes_since(&old.overview) {
            Some(changes) => event("changes", &new.signed(changes.json(&new.overview))),
            None => event("snapshot", &new.snapshot()),
        };
        last.insert(Changes { between, text }).text.clone()
    }
}

/// The time until the next overview.
fn period(nodes: usize, took: Duration) -> Duration {
    let shortest = if nodes > MOST_TILES { LONG_PERIOD } else { PERIOD };
    (took * SHARE).clamp(shortest, LONGEST_PERIOD)
}

impl Frame {
    fn snapshot(&self) -> Value {
        self.signed(self.overview.snapshot())
    }

    /// With the number and the time of the overview.
    fn signed(&self, mut value: Value) -> Value {
        value["sequence"] = self.sequence.into();
        dated(value, self.as_of)
    }
}

/// A stream's client.
struct Watcher {
    live: Arc<Live>,
    /// What it was sent last.
    sent: Frame,
    heartbeat: Instant,
    end: Instant,
    _here: oneshot::Sender<()>,
}

/// Keeps the place until the watcher drops its end, and no longer than a stream lasts: nothing asks
/// for the events of a client that does not read.
fn keep(place: OwnedSemaphorePermit) -> oneshot::Sender<()> {
    let (here, gone) = oneshot::channel();
    tokio::spawn(async move {
        let _ = timeout(LIFETIME, gone).await;
        drop(place);
    });
    here
}

impl Watcher {
    fn new(live: Arc<Live>, sent: Frame, here: oneshot::Sender<()>) -> Self {
        let now = Instant::now();
        Self { live, sent, heartbeat: now + HEARTBEAT, end: now + LIFETIME, _here: here }
    }

    /// The next event; `None` if the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            sleep_until(self.sent.until.min(self.heartbeat)).await;
            if Instant::now() >= self.end {
                return None;
            }
            // The task goes on if the heartbeat is due first: others need its overview.
            let frame = tokio::spawn(Arc::clone(&self.live).frame());
            let text = match timeout_at(self.heartbeat, frame).await {
                // A pause: the owner is busy, or nothing changes.
                Err(_) => Some(event("heartbeat", &self.sent.signed(json!({})))),
                // The scheduler has ended, or a plugin of the copy panicked.
                Ok(Err(_) | Ok(Err(_))) => return None,
                Ok(Ok(Ok(frame))) => self.take(frame),
            };
            if let Some(text) = text {
                self.heartbeat = Instant::now() + HEARTBEAT;
                return Some(text);
            }
        }
    }

    /// What has changed; `None` if nothing has and the heartbeat is not due.
    fn take(&mut self, frame: Frame) -> Option<Bytes> {
        let old = std::mem::replace(&mut self.sent, frame);
        let new = &self.sent;
        if new.sequence == old.sequence {
            return (Instant::now() >= self.heartbeat).then(|| event("heartbeat", &new.signed(json!({}))));
        }
        Some(self.live.changes(&old, new))
    }
}

/// An event on the wire. JSON of one line needs no escapes.
fn event(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::endpoint::testing::{add_pod, owner};

    /// The kind and the data of the next event.
    async fn next(response: &mut QueryResponse) -> (String, Value) {
        let QueryResponse::Stream { parts, .. } = response else { panic!("no stream") };
        let part = parts.next().await.unwrap();
        let text = std::str::from_utf8(&part).unwrap();
        let (kind, data) = text.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        (kind.to_owned(), serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap())
    }

    #[test]
    fn overviews_that_take_long_are_made_less_often() {
        let millis = |nodes, took| period(nodes, Duration::from_millis(took)).as_millis();
        let periods = [(100, 1), (100, 5), (100, 200), (MOST_TILES + 1, 1), (MOST_TILES + 1, 20)];
        assert_eq!(periods.map(|(nodes, took)| millis(nodes, took)), [250, 500, 10_000, 1000, 2000]);
    }

    #[tokio::test]
    async fn a_slow_watcher_gets_all_changes_as_one() {
        let (insight, _owner) = owner();
        let live = Arc::new(Live::new(Arc::clone(&insight)));
        let mut stream = live.stream().await;
        let (kind, snapshot) = next(&mut stream).await;
        assert_eq!((&*kind, &snapshot["sequence"]), ("snapshot", &json!(1)));
        assert_eq!(snapshot["tiles"]["names"], json!(["n"]));
        assert_eq!(
            (&snapshot["summary"]["pods"], &snapshot["summary"]["queue"]["active"]),
            (&json!(0), &json!(1))
        );
        for name in ["a", "b"] {
            add_pod(&insight, name);
            // Another watcher sees each of them.
            let seen =
                async || live.clone().frame().await.unwrap().overview.snapshot()["tiles"]["pods"][0].clone();
            while seen().await != if name == "a" { 1 } else { 2 } {
                sleep_until(live.last.lock().await.as_ref().unwrap().until).await;
            }
        }
        let (kind, changes) = next(&mut stream).await;
        assert_eq!((&*kind, &changes["sequence"]), ("changes", &json!(3)));
        let changed = &changes["changed"];
        assert_eq!(
            (&changed["at"], &changed["pods"], &changed["cpu"]),
            (&json!([0]), &json!([2]), &json!([100]))
        );
    }

    #[tokio::test]
    async fn watchers_that_keep_up_share_the_changes() {
        let (insight, _owner) = owner();
        let live = Arc::new(Live::new(Arc::clone(&insight)));
        let before = Arc::clone(&live).frame().await.unwrap();
        add_pod(&insight, "a");
        let after = loop {
            sleep_until(live.last.lock().await.as_ref().unwrap().until).await;
            let frame = Arc::clone(&live).frame().await.unwrap();
            if frame.sequence > before.sequence {
                break frame;
            }
        };
        let [one, other] = [(), ()].map(|()| live.changes(&before, &after));
        assert_eq!((one.as_ptr(), one.len()), (other.as_ptr(), other.len()));
        let none = live.changes(&after, &after);
        assert!(none != one && none.starts_with(b"event: changes"), "{none:?}");
    }

    #[tokio::test]
    async fn watchers_are_few_and_leave_their_places() {
        let (insight, _owner) = owner();
        let live = Arc::new(Live::new(insight));
        let mut streams = Vec::new();
        for _ in 0..MOST_WATCHERS {
            streams.push(live.stream().await);
        }
        let QueryResponse::Text { status, .. } = live.stream().await else { panic!("one too many") };
        assert_eq!(status.as_u16(), 503);
        streams.pop();
        timeout(PATIENCE, live.watchers.acquire()).await.unwrap().unwrap().forget();
    }

    #[tokio::test(start_paused = true)]
    async fn a_watcher_that_does_not_read_leaves_its_place() {
        let watchers = Arc::new(Semaphore::new(1));
        let here = keep(Arc::clone(&watchers).try_acquire_owned().unwrap());
        let start = Instant::now();
        drop(watchers.acquire().await.unwrap());
        assert_eq!(start.elapsed(), LIFETIME);
        drop(here);
    }

    #[tokio::test]
    async fn silence_is_broken_and_a_stream_ends() {
        let (insight, _owner) = owner();
        let live = Arc::new(Live::new(insight));
        let frame = Arc::clone(&live).frame().await.unwrap();
        let place = Arc::clone(&live.watchers).try_acquire_owned().unwrap();
        let mut watcher = Watcher::new(live, frame.clone(), keep(place));
        assert_eq!(watcher.take(frame.clone()), None);
        watcher.heartbeat = Instant::now();
        let heartbeat = watcher.take(frame).unwrap();
        assert!(heartbeat.starts_with(b"event: heartbeat\ndata: {\"asOf\":"));
        watcher.end = Instant::now();
        assert_eq!(watcher.next().await, None);
    }
}
