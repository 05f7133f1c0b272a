//! Watches, with and without initial events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::core::Status;
use tokio::task::coop;
use tokio::time::{Instant, timeout_at};

use super::list::Listing;
use super::{MIN_WATCH_TIMEOUT, Reflector, ReflectorError};
use crate::backoff::{FOR_EVER, seconds};
use crate::consistency_detector::{compare_initial_events, versions_of};
use crate::delta::{Delta, Queue};
use crate::key::{Deleted, ObjectKey};
use crate::kind::Kind;
use crate::list_watch::{
    ListOptions, ListWatchError, Undecodable, VersionMatch, WatchEvent, WatchStream, is_expired,
    is_internal_error, is_too_many_requests, retry_after,
};
use crate::retry_window::RetryWindow;

/// A watch that ends within this time without an event is a fault, and is not repeated immediately.
const VERY_SHORT: Duration = Duration::from_secs(1);
/// Servers end a watch at its timeout. A connection still open this much later counts as dead.
const GRACE: Duration = Duration::from_secs(5);
/// How long to retry a watch whose connection is lost before it opens. Go's HTTP client repeats
/// such requests itself, so a restarting server costs no list in client-go either.
const LOST_CONNECTION_RETRY: Duration = Duration::from_secs(30);
/// The maximum number of events that are queued without waking the consumer.
const ANNOUNCE_EVERY: usize = 128;
const WARN_EVERY: Duration = Duration::from_secs(10);

/// A watch and its deadline.
pub(super) struct OpenWatch<T> {
    stream: WatchStream<T>,
    opened: Instant,
    deadline: Instant,
    events: usize,
}

/// Why a watch ended.
enum End {
    /// It was closed, broke off, or stalled.
    Closed,
    /// The server ended it with an error.
    Refused(Box<Status>),
    /// Only with initial events: they paused for too long, or did not end before the watch.
    Overdue,
}

impl<T> OpenWatch<T> {
    /// The next event, or why the watch ended. Counts events.
    async fn next(&mut self, deadline: Instant) -> Result<WatchEvent<T>, End> {
        // A source that is always ready would otherwise monopolize the worker.
        coop::consume_budget().await;
        match timeout_at(deadline.min(self.deadline), self.stream.next()).await {
            Ok(Some(Ok(WatchEvent::Error(status)))) => Err(End::Refused(status)),
            Ok(Some(Ok(event))) => {
                // A watch that delivers only undecodable objects and ends counts as very short, and
                // is not repeated immediately.
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

    /// Whether the watch has lasted for the time that the request asked for.
    fn has_timed_out(&self) -> bool {
        Instant::now() + GRACE >= self.deadline
    }

    fn was_very_short(&self) -> bool {
        self.events == 0 && self.opened.elapsed() < VERY_SHORT
    }
}

impl<K: Kind, Q: Queue<K::Object>> Reflector<K, Q> {
    async fn open(&mut self, mut options: ListOptions) -> Result<OpenWatch<K::Object>, ListWatchError> {
        let shortest = self.options.min_watch_timeout.clamp(MIN_WATCH_TIMEOUT, FOR_EVER);
        let timeout = seconds(&mut self.random, shortest..2 * shortest);
        options.allow_bookmarks = true;
        options.timeout = Some(timeout);
        let opened = Instant::now();
        let answer = self.source.watch(&options).await;
        self.note_reachability(&answer);
        let stream = answer?;
        *self.status.last_error.lock() = None;
        Ok(OpenWatch { stream, opened, deadline: opened + timeout + GRACE, events: 0 })
    }

    /// Replaces the content by a watch with initial events. `Err` explains why a list is required.
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
                    self.replace(listing);
                    (watch.opened, watch.events) = (Instant::now(), 0);
                    return Ok(watch);
                }
                Err(end) => end,
            };
            let (very_short, short) = (watch.was_very_short(), watch.opened.elapsed() < VERY_SHORT);
            // Free the connection before waiting.
            drop(watch);
            match end {
                End::Overdue => return Err("the initial events timed out".to_owned()),
                End::Closed if very_short => return Err("very short watch".to_owned()),
                // A server that breaks off early would otherwise cause a tight loop.
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

    /// Whether to retry a watch with initial events. Waits first if the error requires it.
    async fn try_again(&mut self, error: &ListWatchError) -> bool {
        if error.is_retriable() {
            self.pause_for(error).await;
            return true;
        }
        // Without a version, the same request would only fail again.
        let drop_version =
            !self.version_unavailable && (error.is_expired() || error.is_too_large_resource_version());
        self.version_unavailable |= drop_version;
        drop_version
    }

    /// Collects existing objects, up to the bookmark that ends the initial events.
    async fn initial_events(&mut self, watch: &mut OpenWatch<K::Object>) -> Result<Listing<K::Object>, End> {
        let patience = self.options.initial_events_timeout.unwrap_or(FOR_EVER).min(FOR_EVER);
        let mut deadline = watch.opened + patience;
        let (mut next_check, mut last_event) = (watch.opened + WARN_EVERY, None);
        let mut objects = BTreeMap::<ObjectKey, Result<Arc<K::Object>, Undecodable>>::new();
        loop {
            let event = match watch.next(deadline.min(next_check)).await {
                Err(End::Overdue) if Instant::now() < deadline => {
                    self.warn_of_missing_end(watch.opened, last_event);
                    next_check += WARN_EVERY;
                    continue;
                }
                // The server has sent events all along, but not the end: it ignores the option.
                Err(End::Closed) if watch.has_timed_out() && patience < FOR_EVER => return Err(End::Overdue),
                event => event?,
            };
            let now = Instant::now();
            (deadline, last_event) = (now + patience, Some(now));
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let (key, object) = self.prepare(object);
                    objects.insert(key, Ok(object));
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
                // `next` turns errors into the end of the watch.
                WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => {}
            }
        }
    }

    /// Warns if events stop arriving. Many events are fine.
    fn warn_of_missing_end(&self, opened: Instant, last_event: Option<Instant>) {
        let resource = self.kind.gvr();
        match last_event.map(|at| at.elapsed()) {
            None => tracing::warn!(%resource, elapsed = ?opened.elapsed(),
                "no initial events or final bookmark yet"),
            Some(quiet) if quiet >= WARN_EVERY => tracing::warn!(%resource, ?quiet,
                "no more initial events, but the final bookmark is missing"),
            Some(_) => {}
        }
    }

    async fn detect_inconsistency(&self, listing: &Listing<K::Object>) {
        let objects = listing.objects.iter().map(|(_, object)| &**object);
        let watched = versions_of(&*self.kind, objects, &listing.undecodable);
        let (source, transform) = (&*self.source, self.transform.as_ref());
        compare_initial_events(&*self.kind, source, transform, &listing.version, watched).await;
    }

    /// Watches until a list is required.
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
                    tracing::warn!(resource = %self.kind.gvr(), "very short watch: no events within a second");
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

    /// Queues events until the watch ends.
    async fn follow(&mut self, watch: &mut OpenWatch<K::Object>) -> End {
        // A watch from no specific version starts with existing objects, in an order that cannot be
        // resumed.
        let mut unordered = matches!(self.status.version.lock().as_str(), "" | "0");
        let mut unannounced = 0;
        loop {
            let deadline = watch.deadline;
            // Waking the consumer costs more than an event, so wake it only when no other event is
            // ready.
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
                // The deletion is known; the last state is not required.
                if let (true, Some(key)) = (deleted, item.key) {
                    let tombstone = Deleted::FinalStateUnknown { key: key.clone(), last: None };
                    self.queue.append(Delta::Deleted(key, tombstone));
                }
            }
            // `next` turns errors into the end of the watch.
            WatchEvent::Error(_) => {}
        }
    }
}
