//! Watches: the changes of a resource since a version, as frames of an endless body.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::encode::Events;
use crate::faults::Fault;
use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::request::QueryOptions;
use crate::response::{Body, Disconnect};
use crate::rest::{invalid_options, parse_version, too_large};
use crate::selector::Selector;
use crate::server::Shared;
use crate::status::{Result, Status, StatusCause};
use crate::store::{EventType, Forgotten, StoreChange};

/// The period of bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);
/// How long before the requested end the last bookmark is sent.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The maximum timeout, which keeps the clock from overflowing.
const LONGEST_TIMEOUT: Duration = Duration::from_hours(24 * 365);
/// The default timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(45);
/// The maximum number of changes written at once.
const BATCH: usize = 256;

/// The options of a watch.
#[derive(Debug)]
pub(crate) struct WatchOptions {
    selector: Selector,
    from: From,
    bookmarks: bool,
    /// Whether to mark the end of the initial events.
    marks_initial_end: bool,
    timeout: Duration,
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug)]
enum From {
    /// With the existing objects, as of this version or later.
    Initial { not_older_than: u64 },
    /// With the changes after a version.
    After(u64),
    /// With the changes from now on.
    Now,
}

impl WatchOptions {
    pub(crate) fn parse(kind: &Kind, query: &QueryOptions) -> Result<Self> {
        validate(query)?;
        let selector = Selector::parse(kind, query)?;
        let unreadable = |status: Status| Status::unknown(StatusCode::INTERNAL_SERVER_ERROR, status.message);
        let version = parse_version(query.text("resourceVersion")).map_err(unreadable)?;
        let initial = query.flag("sendInitialEvents");
        let bookmarks = query.flag("allowWatchBookmarks").unwrap_or_default();
        let from = match (initial, version) {
            // Without a version the watch starts with the existing objects, unless the caller opts
            // out.
            (Some(true), _) | (None, 0) => From::Initial { not_older_than: version },
            (Some(false), 0) => From::Now,
            (Some(false) | None, version) => From::After(version),
        };
        let timeout = query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
        let timeout = timeout.filter(|seconds| *seconds > 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        Ok(Self {
            selector,
            from,
            bookmarks,
            marks_initial_end: initial == Some(true) && bookmarks,
            timeout: timeout.min(LONGEST_TIMEOUT),
        })
    }
}

fn validate(query: &QueryOptions) -> Result<()> {
    let initial = query.flag("sendInitialEvents");
    let matching = query.text("resourceVersionMatch");
    let field = "resourceVersionMatch";
    let mut causes = Vec::new();
    if initial.is_some() && matching != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(StatusCause::forbidden(field, detail));
    }
    if !matching.is_empty() {
        if initial.is_none() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(StatusCause::forbidden(field, detail));
        }
        if matching != "NotOlderThan" {
            causes.push(StatusCause::not_supported(field, &matching.into(), &["NotOlderThan"]));
        }
        if !query.text("continue").is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(StatusCause::forbidden(field, detail));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(invalid_options(causes)) }
}

/// A running watch.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    namespace: String,
    options: WatchOptions,
    events: Events,
    /// The initial objects that are not yet written.
    initial: VecDeque<Arc<StoredObject>>,
    /// Whether the bookmark that ends the initial events is still to be written.
    initial_end_pending: bool,
    /// All changes up to this version are written.
    cursor: u64,
    changed: watch::Receiver<()>,
    /// The restart count when the watch began; a restart ends it.
    run: u64,
    /// The number of cuts when the watch began.
    cuts_seen: u64,
    faults: Vec<Fault>,
    written: usize,
    ends_at: Instant,
    bookmark_at: Instant,
    /// The error that ends the watch at its start.
    failure: Option<Status>,
    ending: Option<Ending>,
}

/// How a watch ends.
#[derive(Clone, Debug)]
enum Ending {
    /// Cleanly.
    Closed,
    /// By closing the connection.
    Broken,
}

type Write = std::result::Result<Frame<Bytes>, Disconnect>;

impl Watch {
    /// Starts a watch.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        events: Events,
        namespace: &str,
        options: WatchOptions,
        faults: Vec<Fault>,
    ) -> Result<Self> {
        let state = shared.state.lock();
        let now = state.store.version();
        let table = state.store.table(&events.kind.resource_key()).ok_or_else(Status::no_such_path)?;
        let (mut cursor, mut initial, mut failure) = (now, VecDeque::new(), None);
        match options.from {
            From::Initial { not_older_than } if not_older_than > now => {
                return Err(too_large(not_older_than, now));
            }
            From::Initial { .. } => {
                let matching = |object: &&Arc<StoredObject>| options.selector.matches(object);
                initial = table.range(namespace, None).filter(matching).cloned().collect();
            }
            From::After(after) => {
                cursor = after;
                failure = table.check(after).err().map(|forgotten| too_old(after, forgotten));
            }
            From::Now => {}
        }
        let started = Instant::now();
        let (run, cuts_seen) = shared.interruptions();
        Ok(Self {
            shared: Arc::clone(shared),
            namespace: namespace.to_owned(),
            initial_end_pending: options.marks_initial_end,
            cursor,
            changed: table.subscribe(),
            initial,
            run,
            cuts_seen,
            faults,
            written: 0,
            ends_at: started + options.timeout,
            bookmark_at: next_bookmark(started, started + options.timeout),
            failure,
            ending: None,
            options,
            events,
        })
    }

    /// The body of the response.
    pub(crate) fn into_body(self) -> Body {
        let stream = futures::stream::unfold(self, async |mut watch| {
            let frame = watch.next().await?;
            Some((frame, watch))
        });
        let stream: Pin<Box<dyn futures::Stream<Item = Write> + Send>> = Box::pin(stream);
        Body::new(StreamBody::new(stream))
    }

    /// The next frame of the body; `None` at its end.
    async fn next(&mut self) -> Option<Write> {
        loop {
            match self.ending {
                Some(Ending::Closed) => return None,
                Some(Ending::Broken) => {
                    // Frames that are already written must reach the caller before the connection
                    // closes.
                    tokio::task::yield_now().await;
                    return Some(Err(Disconnect));
                }
                None => {}
            }
            self.changed.mark_unchanged();
            let mut out = Vec::new();
            self.write(&mut out);
            if !out.is_empty() {
                return Some(Ok(Frame::data(out.into())));
            }
            if self.ending.is_none() {
                self.wait().await;
            }
        }
    }

    /// Waits until there may be something to write.
    async fn wait(&mut self) {
        let until = if self.options.bookmarks { self.ends_at.min(self.bookmark_at) } else { self.ends_at };
        tokio::select! {
            changed = self.changed.changed() => {
                // The resource is no longer served.
                if changed.is_err() {
                    self.ending = Some(Ending::Closed);
                }
            }
            () = sleep_until(until) => {}
        }
    }

    /// Writes the pending events.
    fn write(&mut self, out: &mut Vec<u8>) {
        let (run, cuts) = self.shared.interruptions();
        if run != self.run {
            self.ending = Some(Ending::Broken);
            return;
        }
        if cuts != self.cuts_seen {
            let cut = self.shared.cut_since(self.cuts_seen, &self.events.info);
            self.cuts_seen = cuts;
            if let Some(mid_frame) = cut {
                self.cut(out, mid_frame);
                return;
            }
        }
        if let Some(failure) = self.failure.take() {
            self.events.error(out, &failure);
            self.ending = Some(Ending::Closed);
            return;
        }
        self.events.at((self.shared.settings.clock)());
        self.write_initial(out);
        if self.ending.is_none() && self.initial.is_empty() {
            self.write_changes(out);
        }
        // A busy watch must time out, too.
        if self.ending.is_none() && self.initial.is_empty() {
            self.write_timed(out);
        }
    }

    fn write_initial(&mut self, out: &mut Vec<u8>) {
        for _ in 0..BATCH {
            let Some(object) = self.initial.pop_front() else { break };
            if !self.emit(out, EventType::Added, &object, None) {
                return;
            }
        }
        if self.initial.is_empty() && std::mem::take(&mut self.initial_end_pending) && !self.holds_bookmarks()
        {
            self.events.bookmark(out, self.cursor, true);
        }
    }

    fn write_changes(&mut self, out: &mut Vec<u8>) {
        let shared = Arc::clone(&self.shared);
        let changes: Vec<StoreChange> = {
            let state = shared.state.lock();
            let Some(table) = state.store.table(&self.events.kind.resource_key()) else {
                self.ending = Some(Ending::Closed);
                return;
            };
            let changes =
                table.since(self.cursor).map(|changes| changes.take(BATCH).cloned().collect::<Vec<_>>());
            match changes {
                Ok(changes) => {
                    if changes.is_empty() {
                        if table.is_retired() {
                            self.ending = Some(Ending::Closed);
                        }
                        // There are no changes of this resource up to the current version.
                        self.cursor = self.cursor.max(state.store.version());
                    }
                    changes
                }
                Err(forgotten) => {
                    self.events.error(out, &too_old(self.cursor, forgotten));
                    self.ending = Some(Ending::Closed);
                    return;
                }
            }
        };
        for change in changes {
            self.cursor = change.version;
            if !self.write_change(out, &change) {
                return;
            }
        }
    }

    /// Writes a change as the selector sees it: objects that start to match are added, objects that
    /// stop matching are deleted.
    fn write_change(&mut self, out: &mut Vec<u8>, change: &StoreChange) -> bool {
        if !self.namespace.is_empty() && *change.object.namespace != *self.namespace {
            return true;
        }
        let matches = |object: &Arc<StoredObject>| self.options.selector.matches(object);
        let before = change.old.as_ref().filter(|old| matches(old));
        let after = change.event != EventType::Deleted && matches(&change.object);
        match (before, after) {
            (None, false) => true,
            (None, true) => self.emit(out, EventType::Added, &change.object, None),
            (Some(_), true) => self.emit(out, EventType::Modified, &change.object, None),
            (Some(_), false) if change.event == EventType::Deleted => {
                self.emit(out, EventType::Deleted, &change.object, None)
            }
            // As upstream: the last matching state, with the version of this change.
            (Some(old), false) => {
                let old = Arc::clone(old);
                self.emit(out, EventType::Deleted, &old, Some(change.version))
            }
        }
    }

    /// Writes an event, unless a fault cuts the watch before it.
    fn emit(
        &mut self,
        out: &mut Vec<u8>,
        event: EventType,
        object: &StoredObject,
        version: Option<u64>,
    ) -> bool {
        let cut = self.faults.iter().find_map(|fault| match fault {
            Fault::CutWatch { after, mid_frame } if self.written >= *after => Some(*mid_frame),
            _ => None,
        });
        if let Some(mid_frame) = cut {
            let mut frame = Vec::new();
            self.events.event(&mut frame, event, object, version);
            out.extend_from_slice(&frame[..if mid_frame { frame.len() / 2 } else { 0 }]);
            self.ending = Some(if mid_frame { Ending::Broken } else { Ending::Closed });
            return false;
        }
        self.events.event(out, event, object, version);
        self.written += 1;
        true
    }

    fn cut(&mut self, out: &mut Vec<u8>, mid_frame: bool) {
        if mid_frame {
            self.events.half(out);
        }
        self.ending = Some(if mid_frame { Ending::Broken } else { Ending::Closed });
    }

    fn write_timed(&mut self, out: &mut Vec<u8>) {
        let now = Instant::now();
        if self.options.bookmarks && now >= self.bookmark_at {
            self.bookmark_at = next_bookmark(now, self.ends_at);
            if !self.holds_bookmarks() {
                self.events.bookmark(out, self.cursor, false);
            }
        }
        if now >= self.ends_at {
            self.ending = Some(Ending::Closed);
        }
    }

    fn holds_bookmarks(&self) -> bool {
        self.faults.contains(&Fault::HoldBookmarks)
    }
}

/// The time of the next bookmark: every minute, and shortly before the end.
fn next_bookmark(now: Instant, ends_at: Instant) -> Instant {
    let last = ends_at.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
    last.unwrap_or(ends_at + BOOKMARK_PERIOD).min(now + BOOKMARK_PERIOD)
}

fn too_old(version: u64, forgotten: Forgotten) -> Status {
    Status::expired(format!("too old resource version: {version} ({})", forgotten.up_to))
}
