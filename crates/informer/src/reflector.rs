//! The reflector: keeps a queue fed with what the server has, through lists, watches and every failure.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, BackoffPolicy, SplitMix};
use crate::delta::Queue;
use crate::key::ObjectKey;
use crate::kind::{GroupVersionResource, Kind};
use crate::list_watch::{ListWatchError, ListerWatcher, Undecodable, retry_after};

mod list;
mod watch;

/// Shorter watches would cost the server more than they are worth.
const MIN_WATCH_TIMEOUT: Duration = Duration::from_mins(5);
/// No server asks for more patience than this.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// Changes an object before it is stored, say to drop what nobody reads.
///
/// It runs once per object that is read, and cannot fail: what it cannot make sense of it leaves alone.
/// client-go's may fail, which costs the event or the whole list, and runs twice for what a watch-list brings.
pub type Transform<T> = Arc<dyn Fn(&mut T) + Send + Sync>;

/// Is told when a list fails or a watch cannot be opened. What happens within a watch is not an error to it.
pub type WatchErrorHandler = Arc<dyn Fn(&GroupVersionResource, &ReflectorError) + Send + Sync>;

/// Why the reflector has to start over.
#[derive(Debug, Error)]
pub enum ReflectorError {
    /// The list failed.
    #[error("failed to list: {0}")]
    List(#[source] ListWatchError),
    /// The watch could not be opened.
    #[error("failed to watch: {0}")]
    Watch(#[source] ListWatchError),
}

impl ReflectorError {
    /// What went wrong underneath.
    pub fn cause(&self) -> &ListWatchError {
        match self {
            Self::List(cause) | Self::Watch(cause) => cause,
        }
    }
}

/// How to list and watch.
#[derive(Clone, Debug, PartialEq)]
pub struct ReflectorOptions {
    /// Forces lists into pages of this size.
    pub page_size: Option<u32>,
    /// Start with a watch that sends what exists, where the source supports that.
    pub watch_list: bool,
    /// How long such a watch may take to send what exists before it is given up for a list. `None` waits as
    /// long as the watch lasts, same as client-go: for ever, where a server accepts such watches and does not
    /// honour them.
    pub initial_events_timeout: Option<Duration>,
    /// Compare what such a watch sent with a list of the very same version, and panic if they differ: same as
    /// client-go's `KUBE_WATCHLIST_INCONSISTENCY_DETECTOR`. For tests on a real server; costs a list that its
    /// cache cannot answer. See [`consistency_detector`](crate::consistency_detector).
    pub detect_inconsistency: bool,
    /// Watches are asked to end after a random time between this and twice this, but not before five minutes.
    pub min_watch_timeout: Duration,
    /// For how long a watch that ends with an internal error is taken up again without a list.
    pub internal_error_retry: Duration,
    /// The waits between attempts.
    pub backoff: BackoffPolicy,
    /// Fixes the random choices.
    pub seed: Option<u64>,
}

impl Default for ReflectorOptions {
    /// client-go's numbers. The initial events timeout, a minute, is not among those.
    fn default() -> Self {
        Self {
            page_size: None,
            watch_list: true,
            initial_events_timeout: Some(Duration::from_mins(1)),
            detect_inconsistency: false,
            min_watch_timeout: MIN_WATCH_TIMEOUT,
            internal_error_retry: Duration::ZERO,
            backoff: BackoffPolicy::default(),
            seed: None,
        }
    }
}

/// What the reflector shows of itself while it runs.
#[derive(Default)]
pub(crate) struct ReflectorStatus {
    version: Mutex<String>,
    last_error: Mutex<Option<String>>,
    undecodable: AtomicU64,
}

impl ReflectorStatus {
    pub(crate) fn version(&self) -> String {
        self.version.lock().clone()
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    pub(crate) fn undecodable(&self) -> u64 {
        self.undecodable.load(Ordering::Relaxed)
    }
}

pub(crate) struct Reflector<K: Kind, Q> {
    kind: Arc<K>,
    source: Arc<dyn ListerWatcher<K>>,
    queue: Arc<Q>,
    status: Arc<ReflectorStatus>,
    transform: Option<Transform<K::Object>>,
    on_error: Option<WatchErrorHandler>,
    options: ReflectorOptions,
    random: SplitMix,
    backoff: Backoff,
    /// The last version seen is gone, or ahead of the server: ask for the most recent.
    version_unavailable: bool,
    /// Nobody has answered since the last connection failed.
    unreachable: bool,
    /// The server pages even lists that its cache could answer, so it has none: keep asking for pages.
    paginated: bool,
}

/// However the reflector ends, nothing more will come, and who waits for it must know.
struct CloseOnDrop<T: 'static, Q: Queue<T>>(Arc<Q>, PhantomData<fn() -> T>);

impl<T, Q: Queue<T>> Drop for CloseOnDrop<T, Q> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<K: Kind, Q: Queue<K::Object>> Reflector<K, Q> {
    pub(crate) fn new(
        kind: Arc<K>,
        source: Arc<dyn ListerWatcher<K>>,
        queue: Arc<Q>,
        status: Arc<ReflectorStatus>,
        options: ReflectorOptions,
    ) -> Self {
        Self {
            kind,
            source,
            queue,
            status,
            transform: None,
            on_error: None,
            random: SplitMix::new(options.seed),
            backoff: Backoff::new(options.backoff),
            options,
            version_unavailable: false,
            unreachable: false,
            paginated: false,
        }
    }

    pub(crate) fn with_transform(mut self, transform: Option<Transform<K::Object>>) -> Self {
        self.transform = transform;
        self
    }

    pub(crate) fn with_error_handler(mut self, on_error: Option<WatchErrorHandler>) -> Self {
        self.on_error = on_error;
        self
    }

    /// Lists and watches until stopped, then closes the queue.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let _close = CloseOnDrop(Arc::clone(&self.queue), PhantomData);
        let forever = async {
            loop {
                let mut at_least = Duration::ZERO;
                if let Err(error) = self.list_and_watch().await {
                    self.report(&error);
                    // Go's client waits for as long by itself, beneath the reflector.
                    at_least = error.cause().status().map_or(Duration::ZERO, retry_after);
                }
                self.pause(at_least).await;
            }
        };
        stop.run_until_cancelled(forever).await;
    }

    /// One cycle. `Ok` is an ordinary reason to list again.
    async fn list_and_watch(&mut self) -> Result<(), ReflectorError> {
        let mut open = None;
        if self.options.watch_list && self.source.supports_watch_list() {
            match self.watch_list().await {
                Ok(watch) => open = Some(watch),
                Err(reason) => {
                    tracing::debug!(resource = %self.kind.gvr(), reason, "listing instead of watch-list");
                }
            }
        }
        if open.is_none() {
            self.list().await.map_err(ReflectorError::List)?;
        }
        self.watch(open).await
    }

    fn prepare(&self, mut object: K::Object) -> (ObjectKey, Arc<K::Object>) {
        if let Some(transform) = &self.transform {
            transform(&mut object);
        }
        (self.kind.key(&object), Arc::new(object))
    }

    fn advance(&self, version: &str) {
        if !version.is_empty() {
            version.clone_into(&mut self.status.version.lock());
        }
    }

    async fn pause_for(&mut self, error: &ListWatchError) {
        tracing::warn!(resource = %self.kind.gvr(), %error, "watch not open yet; trying again");
        *self.status.last_error.lock() = Some(error.to_string());
        self.pause(error.status().map_or(Duration::ZERO, retry_after)).await;
    }

    /// Whoever was away is back: the waits that grew meanwhile must not delay what has to be caught up with.
    fn note_reachability<T>(&mut self, answer: &Result<T, ListWatchError>) {
        if matches!(answer, Err(ListWatchError::Transport(_))) {
            self.unreachable = true;
        } else if std::mem::take(&mut self.unreachable) {
            self.backoff.reset();
        }
    }

    async fn pause(&mut self, at_least: Duration) {
        let wait = self.backoff.next(&mut self.random);
        tokio::time::sleep(wait.max(at_least.min(MAX_RETRY_AFTER))).await;
    }

    fn report(&self, error: &ReflectorError) {
        *self.status.last_error.lock() = Some(error.to_string());
        match &self.on_error {
            Some(on_error) => on_error(self.kind.gvr(), error),
            None if error.cause().is_expired() => {
                tracing::debug!(resource = %self.kind.gvr(), %error, "starting over");
            }
            None => tracing::error!(resource = %self.kind.gvr(), %error, "failed to list or watch"),
        }
    }

    fn report_undecodable(&self, when: &str, item: &Undecodable) {
        self.status.undecodable.fetch_add(1, Ordering::Relaxed);
        let key = item.key.as_ref().map_or("of unknown name", ObjectKey::as_str);
        tracing::error!(resource = %self.kind.gvr(), key, when, error = %item.error,
            resource_version = item.resource_version, "skipped an object that cannot be decoded");
    }
}

#[cfg(test)]
mod tests;
