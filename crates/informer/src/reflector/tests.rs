//! The reflector against scripted servers: requests, their times, and the resulting changes.

use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;
use tokio::task::JoinHandle;

use super::*;
use crate::delta::{Batch, Delta};
use crate::kind::{DecodeError, Typed};
use crate::list_watch::{ListOptions, Page, VersionMatch, WatchEvent};
use crate::queue::InformerQueue;
use crate::real_fifo::InOrder;
use crate::testing::{
    FakeSource, Request, Script, Scripted, WatchListSupport, connection_refused, refusal, refused, settle,
};

mod backoffs;
mod informers;
mod lists;
mod logs;
mod releases;
mod undecodable;
mod watch_lists;
mod watches;

fn pod(name: &str, version: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("ns".to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    }
}

fn page(version: &str, pods: &[(&str, &str)]) -> Page<Pod> {
    Page {
        items: pods.iter().map(|(name, version)| pod(name, version)).collect(),
        undecodable: Vec::new(),
        resource_version: version.to_owned(),
        continue_token: None,
    }
}

/// A transform, and the number of its calls.
fn counting() -> (Transform<Pod>, Arc<AtomicU64>) {
    let calls = Arc::<AtomicU64>::default();
    let counter = Arc::clone(&calls);
    let transform: Transform<Pod> = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    (transform, calls)
}

fn bookmark(version: &str, initial_events_end: bool) -> WatchEvent<Pod> {
    WatchEvent::Bookmark { resource_version: version.to_owned(), initial_events_end }
}

/// A script for plain watches; rejects watch-lists like a server that does not support them.
fn no_watch_list(
    watch: impl Fn(usize, &ListOptions) -> Result<Script<Pod>, ListWatchError> + Send + Sync + 'static,
) -> impl Fn(usize, &ListOptions) -> Result<Script<Pod>, ListWatchError> + Send + Sync + 'static {
    move |n, options| {
        if options.send_initial_events { Err(refused(422, "Invalid")) } else { watch(n, options) }
    }
}

fn queue() -> Arc<InformerQueue<Pod>> {
    Arc::new(InformerQueue::holding(InOrder::new(None)))
}

/// A reflector with a log of its changes.
struct Rig {
    queue: Arc<InformerQueue<Pod>>,
    status: Arc<ReflectorStatus>,
    errors: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Rig {
    fn start(source: impl ListerWatcher<Typed<Pod>>) -> Self {
        Self::with(source, ReflectorOptions { seed: Some(1), ..ReflectorOptions::default() })
    }

    fn with(source: impl ListerWatcher<Typed<Pod>>, options: ReflectorOptions) -> Self {
        Self::transforming(source, options, None)
    }

    fn transforming(
        source: impl ListerWatcher<Typed<Pod>>,
        options: ReflectorOptions,
        transform: Option<Transform<Pod>>,
    ) -> Self {
        let (queue, status) = (queue(), Arc::<ReflectorStatus>::default());
        let errors = Arc::<Mutex<Vec<String>>>::default();
        let stop = CancellationToken::new();
        let log = Arc::clone(&errors);
        let on_error: WatchErrorHandler =
            Arc::new(move |resource, error| log.lock().push(format!("{resource}: {error}")));
        let reflector = Reflector::new(
            Arc::new(Typed::new()),
            Arc::new(source),
            Arc::clone(&queue),
            Arc::clone(&status),
            options,
        );
        let reflector = reflector.with_transform(transform).with_error_handler(Some(on_error));
        let task = tokio::spawn(reflector.run(stop.clone()));
        Self { queue, status, errors, stop, task }
    }

    /// Stops the reflector, and returns what is queued, abbreviated.
    async fn stop(self) -> Vec<String> {
        self.stop.cancel();
        self.task.await.unwrap();
        let mut deltas = Vec::new();
        while let Some(Batch { deltas: batch, .. }) = self.queue.pop_batch().await {
            deltas.extend(batch.iter().map(describe));
        }
        deltas
    }
}

fn describe(delta: &Delta<Pod>) -> String {
    let version = |pod: &Pod| pod.metadata.resource_version.clone().unwrap();
    match delta {
        Delta::Added(key, pod) => format!("+{}@{}", key.name(), version(pod)),
        Delta::Updated(key, pod) => format!("~{}@{}", key.name(), version(pod)),
        Delta::Deleted(key, deleted) => {
            format!("-{}@{}", key.name(), deleted.object().map_or("?".to_owned(), |pod| version(pod)))
        }
        Delta::ReplacedAll(list) => {
            let names: Vec<_> =
                list.objects.iter().map(|(key, pod)| format!("{}@{}", key.name(), version(pod))).collect();
            let kept: Vec<_> = list.keep.iter().map(|key| format!(" keep {}", key.name())).collect();
            format!("={}[{}]{}", list.resource_version, names.join(" "), kept.join(""))
        }
        Delta::Replaced(..) | Delta::Sync(..) => unreachable!("only queues make these"),
        Delta::SyncAll => "sync".to_owned(),
        Delta::Bookmark(version) => format!("@{version}"),
    }
}

async fn sleep(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

fn summaries(requests: &[Request]) -> Vec<String> {
    requests.iter().map(Request::summary).collect()
}

/// Asserts that cycles of `cycle` requests start after waits within [d, 2d) of 0.8 s, 1.6 s and so
/// on.
fn assert_backoff(requests: &[Request], cycle: usize) {
    let starts: Vec<_> = requests.iter().step_by(cycle).map(|request| request.at.as_secs_f64()).collect();
    let mut base = 0.8;
    for pair in starts.windows(2) {
        let wait = pair[1] - pair[0];
        assert!((base..2.0 * base).contains(&wait), "waited {wait} for {base}: {starts:?}");
        base = f64::min(2.0 * base, 30.0);
    }
}
