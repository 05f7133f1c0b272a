//! The reflector: fills the queue from lists and watches, and recovers from their failures.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, BackoffPolicy, random};
use crate::delta::Queue;
use crate::key::ObjectKey;
use crate::kind::{GroupVersionResource, Kind};
use crate::list_watch::{ListWatchError, ListerWatcher, Undecodable, retry_after};

mod list;
mod watch;

/// The target of log lines about a server that cannot be reached. Every informer logs them, so a
/// program with many may turn them off and report an outage once.
pub const UNREACHABLE_LOG_TARGET: &str = "kube_informers::unreachable";

/// Shorter watches cost the server more than they save.
const MIN_WATCH_TIMEOUT: Duration = Duration::from_mins(5);
/// Limits the wait that a server can request.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// Modifies an object before it is stored, for example to drop unused fields.
///
/// Runs once per object read, and cannot fail: it must leave objects alone that it does not
/// understand. client-go's can fail, which loses the event or the list, and runs twice for objects
/// of a watch-list.
pub type Transform<T> = Arc<dyn Fn(&mut T) + Send + Sync>;

/// Called when a list fails or a watch cannot be opened, but not for errors within a watch.
pub type WatchErrorHandler = Arc<dyn Fn(&GroupVersionResource, &ReflectorError) + Send + Sync>;

/// Why the reflector starts another cycle.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReflectorError {
    /// The list failed.
    #[error("failed to list: {0}")]
    List(#[source] ListWatchError),
    /// The watch could not be opened.
    #[error("failed to watch: {0}")]
    Watch(#[source] ListWatchError),
}

impl ReflectorError {
    /// The underlying error.
    pub fn cause(&self) -> &ListWatchError {
        match self {
            Self::List(cause) | Self::Watch(cause) => cause,
        }
    }
}

/// Options for lists and watches.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReflectorOptions {
    /// Forces lists to use pages of this size.
    pub page_size: Option<u32>,
    /// Starts with a watch that sends initial events, if the source supports it.
    pub watch_list: bool,
    /// The maximum time without an event among the initial events, after which the reflector lists
    /// instead. It also lists if the events go on until the watch times out. `None` waits forever,
    /// same as client-go, if the server accepts such watches and ignores the option.
    pub initial_events_timeout: Option<Duration>,
    /// Compares initial events with a list at their version, and panics if they differ. Same as
    /// client-go's `KUBE_WATCHLIST_INCONSISTENCY_DETECTOR`. For tests against a real server: the
    /// list bypasses its cache. See [`consistency_detector`](crate::consistency_detector).
    pub detect_inconsistency: bool,
    /// Watches request a random timeout between this and twice this, and at least five minutes.
    pub min_watch_timeout: Duration,
    /// How long to resume a watch without a list after internal errors.
    pub internal_error_retry: Duration,
    /// The waits between cycles.
    pub backoff: BackoffPolicy,
    /// The seed of random choices. `None` uses a random seed.
    pub seed: Option<u64>,
}

impl Default for ReflectorOptions {
    /// client-go's values, except for the timeout of initial events, which client-go lacks.
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

impl ReflectorOptions {
    /// Sets [`page_size`](field@Self::page_size).
    pub fn page_size(self, size: u32) -> Self {
        Self { page_size: Some(size), ..self }
    }

    /// Sets [`watch_list`](field@Self::watch_list).
    pub fn watch_list(self, on: bool) -> Self {
        Self { watch_list: on, ..self }
    }

    /// Sets [`initial_events_timeout`](field@Self::initial_events_timeout).
    pub fn initial_events_timeout(self, timeout: Option<Duration>) -> Self {
        Self { initial_events_timeout: timeout, ..self }
    }

    /// Sets [`detect_inconsistency`](field@Self::detect_inconsistency).
    pub fn detect_inconsistency(self, on: bool) -> Self {
        Self { detect_inconsistency: on, ..self }
    }

    /// Sets [`min_watch_timeout`](field@Self::min_watch_timeout).
    pub fn min_watch_timeout(self, timeout: Duration) -> Self {
        Self { min_watch_timeout: timeout, ..self }
    }

    /// Sets [`internal_error_retry`](field@Self::internal_error_retry).
    pub fn internal_error_retry(self, time: Duration) -> Self {
        Self { internal_error_retry: time, ..self }
    }

    /// Sets [`backoff`](field@Self::backoff).
    pub fn backoff(self, policy: BackoffPolicy) -> Self {
        Self { backoff: policy, ..self }
    }

    /// Sets [`seed`](field@Self::seed).
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }
}

/// The reflector's state that others can read.
#[derive(Default)]
pub(crate) struct ReflectorStatus {
    version: Mutex<String>,
    last_error: Mutex<Option<String>>,
    undecodable: AtomicU64,
    watching: AtomicBool,
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

    /// Whether the reflector watches, instead of listing or waiting for its next cycle.
    pub(crate) fn is_watching(&self) -> bool {
        self.watching.load(Ordering::Relaxed)
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
    random: Rng,
    backoff: Backoff,
    /// The last version has expired, or is ahead of the server: request the most recent state.
    version_unavailable: bool,
    /// No response has arrived since the last connection failure.
    unreachable: bool,
    /// The server splits even lists at version 0, so it has no watch cache: keep requesting pages.
    paginated: bool,
}

/// Closes the queue however the reflector ends, because its consumer waits for more.
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
            random: random(options.seed),
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
                    // Go's client honours `Retry-After` below the reflector.
                    at_least = error.cause().status().map_or(Duration::ZERO, retry_after);
                }
                self.pause(at_least).await;
            }
        };
        stop.run_until_cancelled(forever).await;
    }

    /// Runs one cycle. `Ok` means that the next cycle is due without an error.
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
        self.status.watching.store(true, Ordering::Relaxed);
        let ended = self.watch(open).await;
        self.status.watching.store(false, Ordering::Relaxed);
        ended
    }

    /// Transforms an object as it arrives, before others need memory.
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
        let resource = self.kind.gvr();
        if matches!(error, ListWatchError::Transport(_)) {
            tracing::warn!(target: UNREACHABLE_LOG_TARGET, %resource, %error, "failed to open a watch; retrying");
        } else {
            tracing::warn!(%resource, %error, "failed to open a watch; retrying");
        }
        *self.status.last_error.lock() = Some(error.to_string());
        self.pause(error.status().map_or(Duration::ZERO, retry_after)).await;
    }

    /// Resets the waits once an unreachable server responds, because they would delay catching up.
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
            None if matches!(error.cause(), ListWatchError::Transport(_)) => {
                tracing::error!(target: UNREACHABLE_LOG_TARGET, resource = %self.kind.gvr(), %error,
                    "failed to list or watch");
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
