//! A source that answers each request as a closure says.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Request;
use crate::kind::Kind;
use crate::list_watch::{ListOptions, ListWatchError, ListerWatcher, Page, WatchEvent, WatchStream};

/// What a watch delivers.
pub struct Script<T> {
    /// The events, at once.
    pub events: Vec<WatchEvent<T>>,
    /// Whether the watch then stays open.
    pub stay_open: bool,
}

impl<T> Script<T> {
    /// These events, and then the end.
    pub fn end_after(events: Vec<WatchEvent<T>>) -> Self {
        Self { events, stay_open: false }
    }

    /// These events, and then silence.
    pub fn stay_after(events: Vec<WatchEvent<T>>) -> Self {
        Self { events, stay_open: true }
    }
}

type OnList<T> = dyn Fn(usize, &ListOptions) -> Result<Page<T>, ListWatchError> + Send + Sync;
type OnWatch<T> = dyn Fn(usize, &ListOptions) -> Result<Script<T>, ListWatchError> + Send + Sync;

/// Answers lists and watches from closures, which are told how many of their sort came before. Clones share
/// the request log.
pub struct Scripted<T> {
    on_list: Arc<OnList<T>>,
    on_watch: Arc<OnWatch<T>>,
    requests: Arc<Mutex<Vec<Request>>>,
    since: Instant,
}

impl<T> Clone for Scripted<T> {
    fn clone(&self) -> Self {
        Self {
            on_list: Arc::clone(&self.on_list),
            on_watch: Arc::clone(&self.on_watch),
            requests: Arc::clone(&self.requests),
            since: self.since,
        }
    }
}

impl<T> Scripted<T> {
    /// A source with these answers.
    pub fn new(
        on_list: impl Fn(usize, &ListOptions) -> Result<Page<T>, ListWatchError> + Send + Sync + 'static,
        on_watch: impl Fn(usize, &ListOptions) -> Result<Script<T>, ListWatchError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            on_list: Arc::new(on_list),
            on_watch: Arc::new(on_watch),
            requests: Arc::default(),
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

    /// Logs a request, and says how many of its sort came before.
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
            let events = stream::iter(script.events.into_iter().map(Ok));
            Ok(if script.stay_open { events.chain(stream::pending()).boxed() } else { events.boxed() })
        })
    }
}
