//! Watches: with initial events in place of a list, and plain ones.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::core::Status;
use tokio::task::coop;
use tokio::time::{Instant, timeout_at};

use super::list::Listing;
use super::{MIN_WATCH_TIMEOUT, Reflector, ReflectorError};
use crate::backoff::FOR_EVER;
use crate::consistency_detector::{compare_initial_events, versions_of};
use crate::delta::{Delta, Queue};
use crate::key::{Deleted, ObjectKey};
use crate::kind::Kind;
use crate::list_watch::{
    ListOptions, ListWatchError, Undecodable, VersionMatch, WatchEvent, WatchStream, is_expired,
    is_internal_error, is_too_many_requests, retry_after,
};
use crate::retry_window::RetryWindow;

/// A watch that ends sooner than this with nothing to say is a fault, and not to be repeated at once.
const VERY_SHORT: Duration = Duration::from_secs(1);
/// Servers end a watch after its timeout; a connection still open after this much more is taken for dead.
const GRACE: Duration = Duration::from_secs(5);
/// For how long a watch is tried again whose connection is lost before it opens. Go's HTTP client repeats such
/// requests by itself; a server that restarts should not cost a list here either.
const LOST_CONNECTION_RETRY: Duration = Duration::from_secs(30);
/// So many events at most are kept from the consumer while more are at hand.
const ANNOUNCE_EVERY: usize = 128;
const WARN_EVERY: Duration = Duration::from_secs(10);

/// A watch, and when it is to be over.
pub(super) struct OpenWatch<T> {
    stream: WatchStream<T>,
    opened: Instant,
    deadline: Instant,
    events: usize,
}

/// How a watch ended.
enum End {
    /// It closed, broke off or fell silent.
    Closed,
    /// The server ended it with an error.
    Refused(Box<Status>),
    /// Only with initial events: they did not come to an end in time.
    Overdue,
}

impl<T> OpenWatch<T> {
    /// The next event, or how the watch ended. Counts.
    async fn next(&mut self, deadline: Instant) -> Result<WatchEvent<T>, End> {
        // Sources that always have something ready would otherwise keep the worker to themselves.
        coop::consume_budget().await;
        match timeout_at(deadline.min(self.deadline), self.stream.next()).await {
            Ok(Some(Ok(WatchEvent::Error(status)))) => Err(End::Refused(status)),
            Ok(Some(Ok(event))) => {
                // A server, or whatever is in front of it, that only ever sends what nobody can read and then
                // ends the watch is not to be asked again at once.
                self.events += usize::from(!matches!(event, WatchEvent::Undecodable { .. }));
                Ok(event)
            }
            Ok(Some(Err(error))) => {
                tracing::debug!(%error, "watch broke off");
                Err(End::Closed)
            }
            Err(_) if deadline < self.deadline => Err(End::Overdue),
            Ok(None) | Err(_) => Err(End::Closed),
        }
    }

    fn was_very_short(&self) -> bool {
        self.events == 0 && self.opened.elapsed() < VERY_SHORT
    }
}

impl<K: Kind, Q: Queue<K::Object>> Reflector<K, Q> {
    async fn open(&mut self, mut options: ListOptions) -> Result<OpenWatch<K::Object>, ListWatchError> {
        let shortest = self.options.min_watch_timeout.clamp(MIN_WATCH_TIMEOUT, FOR_EVER);
        let timeout = self.random.seconds(shortest..2 * shortest);
        options.allow_bookmarks = true;
        options.timeout = Some(timeout);
        let opened = Instant::now();
        let answer = self.source.watch(&options).await;
        self.note_reachability(&answer);
        let stream = answer?;
        *self.status.last_error.lock() = None;
        Ok(OpenWatch { stream, opened, deadline: opened + timeout + GRACE, events: 0 })
    }

    /// Lists by way of a watch that begins with what exists. `Err` says why a list has to do.
    pub(super) async fn watch_list(&mut self) -> Result<OpenWatch<K::Object>, String> {
        loop {
            let version = if self.version_unavailable { String::new() } else { self.status.version() };
            let options = ListOptions {
                resource_version: version,
                version_match: Some(VersionMatch::NotOlderThan),
                send_initial_events: true,
                ..ListOptions::default()
            };
            let mut watch = match self.open(options).await {
                Ok(watch) => watch,
                Err(error) if self.try_again(&error).await => continue,
                Err(error) => return Err(error.to_string()),
            };
            let end = match self.initial_events(&mut watch).await {
                Ok(listing) => {
                    if self.options.detect_inconsistency {
                        self.detect_inconsistency(&listing).await;
                    }
                    self.replace(listing).await;
                    (watch.opened, watch.events) = (Instant::now(), 0);
                    return Ok(watch);
                }
                Err(end) => end,
            };
            let (very_short, short) = (watch.was_very_short(), watch.opened.elapsed() < VERY_SHORT);
            // Nothing keeps a connection while it waits.
            drop(watch);
            match end {
                End::Overdue => return Err("the initial events do not end".to_owned()),
                End::Closed if very_short => return Err("a very short watch".to_owned()),
                // A server that keeps breaking off early would otherwise be asked in a tight loop.
                End::Closed if short => self.pause(Duration::ZERO).await,
                End::Closed => {}
                End::Refused(status) => {
                    let error = ListWatchError::Status(status);
                    if !self.try_again(&error).await {
                        return Err(error.to_string());
                    }
                }
            }
        }
    }

    /// Whether a watch for initial events is worth another try; waits first if there is reason to.
    async fn try_again(&mut self, error: &ListWatchError) -> bool {
        if error.is_retriable() {
            self.pause_for(error).await;
            return true;
        }
        // Without a version there is none to give up, and the same request would only fail again.
        let drop_version =
            !self.version_unavailable && (error.is_expired() || error.is_too_large_resource_version());
        self.version_unavailable |= drop_version;
        drop_version
    }

    /// Collects what exists, up to the bookmark that marks its end.
    async fn initial_events(&mut self, watch: &mut OpenWatch<K::Object>) -> Result<Listing<K::Object>, End> {
        let patience = self.options.initial_events_timeout.unwrap_or(FOR_EVER).min(FOR_EVER);
        let deadline = watch.opened + patience;
        let (mut next_check, mut last_event) = (watch.opened + WARN_EVERY, None);
        let mut objects = BTreeMap::<ObjectKey, Result<K::Object, Undecodable>>::new();
        loop {
            let event = match watch.next(deadline.min(next_check)).await {
                Err(End::Overdue) if Instant::now() < deadline => {
                    self.warn_of_missing_end(watch.opened, last_event);
                    next_check += WARN_EVERY;
                    continue;
                }
                event => event?,
            };
            last_event = Some(Instant::now());
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    objects.insert(self.kind.key(&object), Ok(object));
                }
                WatchEvent::Deleted(object) => {
                    objects.remove(&self.kind.key(&object));
                }
                WatchEvent::Bookmark { resource_version, initial_events_end: true } => {
                    return Ok(Listing::collect(objects, resource_version));
                }
                WatchEvent::Undecodable { deleted, item } => match (&item.key, deleted) {
                    _ if item.is_of_another_type() => self.report_undecodable("watched", &item),
                    (Some(key), true) => drop(objects.remove(key)),
                    (Some(key), false) => drop(objects.insert(key.clone(), Err(item))),
                    (None, _) => self.report_undecodable("watched", &item),
                },
                // Errors end the watch above.
                WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => {}
            }
        }
    }

    /// As long as events keep coming all is well, however many there are.
    fn warn_of_missing_end(&self, opened: Instant, last_event: Option<Instant>) {
        let resource = self.kind.gvr();
        match last_event.map(|at| at.elapsed()) {
            None => tracing::warn!(%resource, elapsed = ?opened.elapsed(),
                "no initial events yet, nor the bookmark that ends them"),
            Some(quiet) if quiet >= WARN_EVERY => tracing::warn!(%resource, ?quiet,
                "no more initial events, but the bookmark that ends them is missing"),
            Some(_) => {}
        }
    }

    async fn detect_inconsistency(&self, listing: &Listing<K::Object>) {
        let watched = versions_of(&*self.kind, &listing.items, &listing.undecodable);
        compare_initial_events(&*self.kind, &*self.source, &listing.version, watched).await;
    }

    /// Watches until it takes a list to go on.
    pub(super) async fn watch(
        &mut self,
        mut open: Option<OpenWatch<K::Object>>,
    ) -> Result<(), ReflectorError> {
        let mut internal_errors = RetryWindow::new(self.options.internal_error_retry);
        let mut lost_connections = RetryWindow::new(LOST_CONNECTION_RETRY);
        loop {
            let opened = match open.take() {
                Some(watch) => Ok(watch),
                None => {
                    self.open(ListOptions {
                        resource_version: self.status.version(),
                        ..ListOptions::default()
                    })
                    .await
                }
            };
            let mut watch = match opened {
                Ok(watch) => watch,
                Err(error)
                    if error.is_retriable()
                        || (error.is_connection_lost() && lost_connections.may_retry()) =>
                {
                    self.pause_for(&error).await;
                    continue;
                }
                Err(error) => return Err(ReflectorError::Watch(error)),
            };
            let end = self.follow(&mut watch).await;
            let very_short = watch.was_very_short();
            drop(watch);
            match end {
                End::Closed | End::Overdue if very_short => {
                    tracing::warn!(resource = %self.kind.gvr(), "a very short watch: no events within a second");
                    return Ok(());
                }
                End::Closed | End::Overdue => {}
                End::Refused(status) if is_too_many_requests(&status) => {
                    self.pause(retry_after(&status)).await;
                }
                End::Refused(status) if is_internal_error(&status) && internal_errors.may_retry() => {}
                End::Refused(status) if is_expired(&status) => {
                    tracing::debug!(resource = %self.kind.gvr(), status = status.message, "watch expired");
                    return Ok(());
                }
                End::Refused(status) => {
                    tracing::warn!(resource = %self.kind.gvr(), code = status.code, reason = status.reason,
                        status = status.message, "watch ended with an error");
                    return Ok(());
                }
            }
        }
    }

    /// Hands events on until the watch ends.
    async fn follow(&mut self, watch: &mut OpenWatch<K::Object>) -> End {
        // A watch from no version in particular begins with what exists, in no order that could be resumed.
        let mut unordered = matches!(self.status.version.lock().as_str(), "" | "0");
        let mut unannounced = 0;
        loop {
            let deadline = watch.deadline;
            // To wake the consumer for every event would cost more than the event: only when there is no other at hand.
            let outcome = match watch.next(deadline).now_or_never() {
                Some(outcome) if unannounced < ANNOUNCE_EVERY => outcome,
                outcome => {
                    self.queue.announce();
                    unannounced = 0;
                    match outcome {
                        Some(outcome) => outcome,
                        None => watch.next(deadline).await,
                    }
                }
            };
            match outcome {
                Ok(event) => {
                    unordered &= matches!(event, WatchEvent::Added(_));
                    self.hand_on(event, !unordered);
                    unannounced += 1;
                }
                Err(end) => {
                    self.queue.announce();
                    return end;
                }
            }
        }
    }

    fn hand_on(&self, event: WatchEvent<K::Object>, advance: bool) {
        let advance = |version: &str| {
            if advance {
                self.advance(version);
            }
        };
        match event {
            WatchEvent::Added(object) => {
                advance(self.kind.resource_version(&object));
                let (key, object) = self.prepare(object);
                self.queue.append(Delta::Added(key, object));
            }
            WatchEvent::Modified(object) => {
                advance(self.kind.resource_version(&object));
                let (key, object) = self.prepare(object);
                self.queue.append(Delta::Updated(key, object));
            }
            WatchEvent::Deleted(object) => {
                advance(self.kind.resource_version(&object));
                let (key, object) = self.prepare(object);
                self.queue.append(Delta::Deleted(key, Deleted::Known(object)));
            }
            WatchEvent::Bookmark { resource_version, .. } => {
                advance(&resource_version);
                self.queue.append(Delta::Bookmark(resource_version));
            }
            WatchEvent::Undecodable { deleted, item } => {
                self.report_undecodable("watched", &item);
                if item.is_of_another_type() {
                    return;
                }
                advance(item.resource_version.as_deref().unwrap_or_default());
                // That the object is gone is news enough; its last state is not needed for it.
                if let (true, Some(key)) = (deleted, item.key) {
                    let tombstone = Deleted::FinalStateUnknown { key: key.clone(), last: None };
                    self.queue.append(Delta::Deleted(key, tombstone));
                }
            }
            // Ends the watch before it gets here.
            WatchEvent::Error(_) => {}
        }
    }
}
