//! A source whose responses come from closures.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Request;
use crate::kind::Kind;
use crate::list_watch::{ListOptions, ListWatchError, ListerWatcher, Page, WatchEvent, WatchStream};

/// The content of a watch.
pub struct Script<T> {
    /// The events, each with the wait before it.
    steps: Vec<(Duration, WatchEvent<T>)>,
    /// Whether the watch then stays open.
    stay_open: bool,
}

impl<T> Script<T> {
    /// These events immediately, then the end.
    pub fn end_after(events: Vec<WatchEvent<T>>) -> Self {
        let steps = events.into_iter().map(|event| (Duration::ZERO, event)).collect();
        Self { steps, stay_open: false }
    }

    /// These events immediately, then silence.
    pub fn stay_after(events: Vec<WatchEvent<T>>) -> Self {
        Self { stay_open: true, ..Self::end_after(events) }
    }

    /// Adds an event, with the wait before it.
    pub fn then(mut self, wait: Duration, event: WatchEvent<T>) -> Self {
        self.steps.push((wait, event));
        self
    }
}

impl<T> fmt::Debug for Script<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("Script");
        it.field("steps", &self.steps.len()).field("stay_open", &self.stay_open).finish()
    }
}

type OnList<T> = dyn Fn(usize, &ListOptions) -> Result<Page<T>, ListWatchError> + Send + Sync;
type OnWatch<T> = dyn Fn(usize, &ListOptions) -> Result<Script<T>, ListWatchError> + Send + Sync;

/// Answers lists and watches with closures, whose argument counts the earlier requests of the same
/// form. Clones share the request log.
pub struct Scripted<T> {
    on_list: Arc<OnList<T>>,
    on_watch: Arc<OnWatch<T>>,
    requests: Arc<Mutex<Vec<Request>>>,
    watches: Arc<Watches>,
    since: Instant,
}

/// Counts opened and dropped watches.
#[derive(Default)]
struct Watches {
    opened: AtomicUsize,
    released: AtomicUsize,
}

/// Held by the stream of a watch.
struct Release(Arc<Watches>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.released.fetch_add(1, Ordering::Relaxed);
    }
}

impl<T> fmt::Debug for Scripted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("requests", &self.summaries()).finish_non_exhaustive()
    }
}

impl<T> Clone for Scripted<T> {
    fn clone(&self) -> Self {
        Self {
            on_list: Arc::clone(&self.on_list),
            on_watch: Arc::clone(&self.on_watch),
            requests: Arc::clone(&self.requests),
            watches: Arc::clone(&self.watches),
            since: self.since,
        }
    }
}

impl<T> Scripted<T> {
    /// A source with these responses.
    pub fn new(
        on_list: impl Fn(usize, &ListOptions) -> Result<Page<T>, ListWatchError> + Send + Sync + 'static,
        on_watch: impl Fn(usize, &ListOptions) -> Result<Script<T>, ListWatchError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            on_list: Arc::new(on_list),
            on_watch: Arc::new(on_watch),
            requests: Arc::default(),
            watches: Arc::default(),
            since: Instant::now(),
        }
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }

    /// The requests so far, in short.
    pub fn summaries(&self) -> Vec<String> {
        self.requests.lock().iter().map(Request::summary).collect()
    }

    /// The number of watches opened, and of those that the reader has dropped.
    pub fn opened_and_released(&self) -> (usize, usize) {
        (self.watches.opened.load(Ordering::Relaxed), self.watches.released.load(Ordering::Relaxed))
    }

    /// Logs a request, and returns the number of earlier ones of the same form.
    fn log(&self, watch: bool, options: &ListOptions) -> usize {
        let mut requests = self.requests.lock();
        let before = requests.iter().filter(|request| request.watch == watch).count();
        requests.push(Request::new(self.since, watch, options));
        before
    }
}

impl<K: Kind> ListerWatcher<K> for Scripted<K::Object> {
    fn list<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>> {
        Box::pin(async move { (self.on_list)(self.log(false, options), options) })
    }

    fn watch<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<WatchStream<K::Object>, ListWatchError>> {
        Box::pin(async move {
            let script = (self.on_watch)(self.log(true, options), options)?;
            self.watches.opened.fetch_add(1, Ordering::Relaxed);
            let release = Release(Arc::clone(&self.watches));
            let steps = stream::iter(script.steps).then(async |(wait, event)| {
                // Even a zero wait takes a millisecond.
                if !wait.is_zero() {
                    tokio::time::sleep(wait).await;
                }
                Ok(event)
            });
            let end = if script.stay_open { stream::pending().boxed() } else { stream::empty().boxed() };
            Ok(steps.chain(end).inspect(move |_| _ = &release).boxed())
        })
    }
}
