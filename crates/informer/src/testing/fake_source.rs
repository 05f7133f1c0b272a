//! A source that behaves like a server: objects, a growing resource version, and a history to
//! resume from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use kube::Resource;
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use super::{Request, refusal, refused};
use crate::key::ObjectKey;
use crate::kind::{DecodeError, Kind, Typed};
use crate::list_watch::{
    ListOptions, ListWatchError, ListerWatcher, Page, Undecodable, WatchEvent, WatchStream,
};

/// How the source handles watches that ask for initial events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchListSupport {
    /// Rejects them, like a server that does not support them.
    Refused,
    /// Sends them without the final bookmark.
    NoEnd,
    /// Sends them with the final bookmark.
    Full,
}

type SetVersion<T> = Arc<dyn Fn(&mut T, &str) + Send + Sync>;
type Event<T> = Result<WatchEvent<T>, ListWatchError>;

/// A server for one kind. Clones share it.
pub struct FakeSource<K: Kind> {
    kind: Arc<K>,
    set_version: SetVersion<K::Object>,
    state: Arc<Mutex<State<K::Object>>>,
    since: Instant,
}

struct State<T> {
    objects: BTreeMap<ObjectKey, T>,
    /// Objects whose current state cannot be decoded.
    undecodable: BTreeSet<ObjectKey>,
    version: u64,
    history: Vec<FakeChange<T>>,
    /// Watches from earlier versions fail as expired.
    oldest: u64,
    watchers: Vec<UnboundedSender<Event<T>>>,
    watch_list: WatchListSupport,
    latency: Duration,
    page_size: Option<usize>,
    /// Lists in progress, by continue token.
    rests: BTreeMap<String, Rest<T>>,
    /// The number of watches that will close immediately.
    short_watches: usize,
    first_list: Option<String>,
    list_errors: VecDeque<ListWatchError>,
    watch_errors: VecDeque<ListWatchError>,
    requests: Vec<Request>,
}

/// A change of an object.
#[derive(Clone, Copy, Default)]
struct Edit {
    delete: bool,
    silent: bool,
    undecodable: bool,
}

#[derive(Clone, Copy)]
enum What {
    Added,
    Modified,
    Deleted,
}

/// One change of one object, without the object if it cannot be decoded.
#[derive(Clone)]
struct FakeChange<T> {
    what: What,
    key: ObjectKey,
    version: u64,
    object: Option<T>,
}

/// The remaining pages of a list, and its version.
struct Rest<T> {
    items: VecDeque<Result<T, Undecodable>>,
    version: String,
}

fn undecodable(key: &ObjectKey, version: &str) -> Undecodable {
    Undecodable {
        key: Some(key.clone()),
        resource_version: Some(version.to_owned()),
        error: DecodeError::Invalid("undecodable for a test".into()),
    }
}

impl<T> FakeChange<T> {
    fn event(self) -> WatchEvent<T> {
        match (self.what, self.object) {
            (What::Added, Some(object)) => WatchEvent::Added(object),
            (What::Modified, Some(object)) => WatchEvent::Modified(object),
            (What::Deleted, Some(object)) => WatchEvent::Deleted(object),
            (what, None) => WatchEvent::Undecodable {
                deleted: matches!(what, What::Deleted),
                item: undecodable(&self.key, &self.version.to_string()),
            },
        }
    }
}

impl<K: Kind> fmt::Debug for FakeSource<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeSource").finish_non_exhaustive()
    }
}

impl<K: Kind> Clone for FakeSource<K> {
    fn clone(&self) -> Self {
        Self {
            kind: Arc::clone(&self.kind),
            set_version: Arc::clone(&self.set_version),
            state: Arc::clone(&self.state),
            since: self.since,
        }
    }
}

impl<K> FakeSource<Typed<K>>
where
    Typed<K>: Kind<Object = K>,
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// An empty server for a type that `kube` knows statically.
    pub fn typed() -> Self {
        Self::new(Arc::new(Typed::new()), |object, version| {
            object.meta_mut().resource_version = Some(version.to_owned());
        })
    }
}

impl<K: Kind> FakeSource<K>
where
    K::Object: Clone,
{
    /// An empty server. `set_version` sets an object's resource version.
    pub fn new(kind: Arc<K>, set_version: impl Fn(&mut K::Object, &str) + Send + Sync + 'static) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            undecodable: BTreeSet::new(),
            version: 1,
            history: Vec::new(),
            oldest: 1,
            watchers: Vec::new(),
            watch_list: WatchListSupport::Full,
            latency: Duration::ZERO,
            page_size: None,
            rests: BTreeMap::new(),
            short_watches: 0,
            first_list: None,
            list_errors: VecDeque::new(),
            watch_errors: VecDeque::new(),
            requests: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        Self { kind, set_version: Arc::new(set_version), state, since: Instant::now() }
    }

    /// The descriptor.
    pub fn kind(&self) -> Arc<K> {
        Arc::clone(&self.kind)
    }

    /// Configures initial events.
    pub fn with_watch_list(self, support: WatchListSupport) -> Self {
        self.state.lock().watch_list = support;
        self
    }

    /// Delays responses. They show the state at the time of the request.
    pub fn with_latency(self, latency: Duration) -> Self {
        self.state.lock().latency = latency;
        self
    }

    /// Splits lists with a limit into pages of at most this size. Without it, limits are ignored,
    /// as by a watch cache.
    pub fn with_pages(self, size: usize) -> Self {
        self.state.lock().page_size = Some(size);
        self
    }

    /// Adds or replaces an object, and notifies watches.
    pub fn apply(&self, object: K::Object) {
        self.change(object, Edit::default());
    }

    /// Adds or replaces an object without notifying watches, as if events were lost.
    pub fn apply_silently(&self, object: K::Object) {
        self.change(object, Edit { silent: true, ..Edit::default() });
    }

    /// Adds or replaces an object that cannot be decoded, in events and lists, until it is applied
    /// again.
    pub fn apply_undecodable(&self, object: K::Object) {
        self.change(object, Edit { undecodable: true, ..Edit::default() });
    }

    /// Deletes an object, and notifies watches.
    pub fn delete(&self, object: K::Object) {
        self.change(object, Edit { delete: true, ..Edit::default() });
    }

    /// Deletes an object without notifying watches.
    pub fn delete_silently(&self, object: K::Object) {
        self.change(object, Edit { delete: true, silent: true, ..Edit::default() });
    }

    /// Deletes an object, and notifies watches with an event whose object cannot be decoded.
    pub fn delete_undecodable(&self, object: K::Object) {
        self.change(object, Edit { delete: true, undecodable: true, ..Edit::default() });
    }

    fn change(&self, mut object: K::Object, edit: Edit) {
        let mut state = self.state.lock();
        state.version += 1;
        let version = state.version;
        (self.set_version)(&mut object, &version.to_string());
        let key = self.kind.key(&object);
        let known = if edit.delete {
            state.objects.remove(&key).is_some()
        } else {
            state.objects.insert(key.clone(), object.clone()).is_some()
        };
        let what = match (edit.delete, known) {
            (true, true) => What::Deleted,
            (true, false) => return,
            (false, true) => What::Modified,
            (false, false) => What::Added,
        };
        if edit.undecodable && !edit.delete {
            state.undecodable.insert(key.clone());
        } else {
            state.undecodable.remove(&key);
        }
        if !edit.silent {
            let object = (!edit.undecodable).then_some(object);
            let change = FakeChange { what, key, version, object };
            state.history.push(change.clone());
            state.tell(|| change.clone().event());
        }
    }

    /// Sends a bookmark to every watch.
    pub fn bookmark(&self) {
        let mut state = self.state.lock();
        let resource_version = state.version.to_string();
        state.tell(|| WatchEvent::Bookmark {
            resource_version: resource_version.clone(),
            initial_events_end: false,
        });
    }

    /// Sends this event to every watch.
    pub fn send(&self, event: impl Fn() -> WatchEvent<K::Object>) {
        self.state.lock().tell(event);
    }

    /// Closes all watches. They can be resumed.
    pub fn close_watches(&self) {
        self.state.lock().watchers.clear();
    }

    /// Closes all watches and discards the history, so that resuming one fails as expired.
    pub fn reset_watch(&self) {
        let mut state = self.state.lock();
        state.watchers.clear();
        state.history.clear();
        state.version += 1;
        state.oldest = state.version;
    }

    /// Breaks off all watches within a response. They can be resumed.
    pub fn break_watches(&self) {
        for watcher in self.state.lock().watchers.drain(..) {
            // The watch may be closed already.
            let _ = watcher.send(Err(ListWatchError::Body("broken off for a test".into())));
        }
    }

    /// Makes the next watches close immediately without an event.
    pub fn shorten_watches(&self, count: usize) {
        self.state.lock().short_watches = count;
    }

    /// Discards the lists in progress: their next page fails as expired.
    pub fn expire_pages(&self) {
        self.state.lock().rests.clear();
    }

    /// Makes the next list fail. Errors queue up.
    pub fn fail_list(&self, error: ListWatchError) {
        self.state.lock().list_errors.push_back(error);
    }

    /// Makes the next watch of either form fail to open. Errors queue up.
    pub fn fail_watch(&self, error: ListWatchError) {
        self.state.lock().watch_errors.push_back(error);
    }

    /// Discards queued errors of watches.
    pub fn serve_watches(&self) {
        self.state.lock().watch_errors.clear();
    }

    /// Discards all queued errors and short watches.
    pub fn serve(&self) {
        let mut state = self.state.lock();
        state.list_errors.clear();
        state.watch_errors.clear();
        state.short_watches = 0;
    }

    /// The server's resource version.
    pub fn version(&self) -> String {
        self.state.lock().version.to_string()
    }

    /// The existing objects: resource versions by key.
    pub fn content(&self) -> BTreeMap<String, String> {
        let state = self.state.lock();
        let version = |object| self.kind.resource_version(object).to_owned();
        state.objects.iter().map(|(key, object)| (key.to_string(), version(object))).collect()
    }

    /// The version of the first list that was read completely, or of the first complete initial
    /// events.
    pub fn first_list(&self) -> Option<String> {
        self.state.lock().first_list.clone()
    }

    /// The number of open watches.
    pub fn watchers(&self) -> usize {
        let mut state = self.state.lock();
        state.watchers.retain(|watcher| !watcher.is_closed());
        state.watchers.len()
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().requests.clone()
    }

    /// The requests so far, in short.
    pub fn summaries(&self) -> Vec<String> {
        self.state.lock().requests.iter().map(Request::summary).collect()
    }

    fn log(&self, watch: bool, options: &ListOptions) {
        self.state.lock().requests.push(Request::new(self.since, watch, options));
    }

    async fn take_time(&self) {
        let latency = self.state.lock().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
    }
}

impl<T: Clone> State<T> {
    fn tell(&mut self, event: impl Fn() -> WatchEvent<T>) {
        self.watchers.retain(|watcher| watcher.send(Ok(event())).is_ok());
    }

    /// The existing objects, as far as they can be decoded.
    fn items(&self) -> impl Iterator<Item = Result<T, Undecodable>> {
        let version = self.version.to_string();
        self.objects.iter().map(move |(key, object)| {
            if self.undecodable.contains(key) { Err(undecodable(key, &version)) } else { Ok(object.clone()) }
        })
    }

    fn list(&mut self, options: &ListOptions) -> Result<Page<T>, ListWatchError> {
        if let Some(error) = self.list_errors.pop_front() {
            return Err(error);
        }
        let rest = match &options.continue_token {
            Some(token) => self.rests.remove(token).ok_or_else(|| refused(410, "Expired"))?,
            None => Rest { items: self.items().collect(), version: self.version.to_string() },
        };
        let limit = options.limit.and(self.page_size).unwrap_or(usize::MAX);
        Ok(self.page(rest, limit))
    }

    fn page(&mut self, mut rest: Rest<T>, limit: usize) -> Page<T> {
        let (mut items, mut undecodable) = (Vec::new(), Vec::new());
        for item in rest.items.drain(..limit.min(rest.items.len())) {
            match item {
                Ok(item) => items.push(item),
                Err(item) => undecodable.push(item),
            }
        }
        let resource_version = rest.version.clone();
        let continue_token = (!rest.items.is_empty()).then(|| {
            let token = format!("{resource_version}/{}", rest.items.len());
            self.rests.insert(token.clone(), rest);
            token
        });
        if continue_token.is_none() {
            self.first_list.get_or_insert_with(|| resource_version.clone());
        }
        Page { items, undecodable, resource_version, continue_token }
    }

    fn first_events(&self, options: &ListOptions) -> Result<Vec<WatchEvent<T>>, ListWatchError> {
        if options.send_initial_events {
            return self.initial_events();
        }
        let from = options.resource_version.parse().unwrap_or(0);
        if from > self.version {
            return Err(refused(504, "Timeout"));
        }
        if from < self.oldest {
            return Ok(vec![WatchEvent::Error(refusal(410, "Expired"))]);
        }
        let missed = self.history.iter().filter(|change| change.version > from);
        Ok(missed.map(|change| change.clone().event()).collect())
    }

    fn initial_events(&self) -> Result<Vec<WatchEvent<T>>, ListWatchError> {
        let added = self.items().map(|item| match item {
            Ok(object) => WatchEvent::Added(object),
            Err(item) => WatchEvent::Undecodable { deleted: false, item },
        });
        let mut events: Vec<_> = added.collect();
        match self.watch_list {
            WatchListSupport::Refused => return Err(refused(422, "Invalid")),
            WatchListSupport::NoEnd => {}
            WatchListSupport::Full => events.push(WatchEvent::Bookmark {
                resource_version: self.version.to_string(),
                initial_events_end: true,
            }),
        }
        Ok(events)
    }

    /// The events of a new watch.
    fn watch(&mut self, options: &ListOptions) -> Result<UnboundedReceiver<Event<T>>, ListWatchError> {
        if let Some(error) = self.watch_errors.pop_front() {
            return Err(error);
        }
        let events = self.first_events(options)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        if self.short_watches > 0 {
            self.short_watches -= 1;
            return Ok(receiver);
        }
        if options.send_initial_events && self.watch_list == WatchListSupport::Full {
            self.first_list.get_or_insert_with(|| self.version.to_string());
        }
        for event in events {
            // The receiver still exists.
            let _ = sender.send(Ok(event));
        }
        self.watchers.push(sender);
        Ok(receiver)
    }
}

impl<K: Kind> ListerWatcher<K> for FakeSource<K>
where
    K::Object: Clone,
{
    fn list<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>> {
        Box::pin(async move {
            self.log(false, options);
            let answer = self.state.lock().list(options);
            self.take_time().await;
            answer
        })
    }

    fn watch<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<WatchStream<K::Object>, ListWatchError>> {
        Box::pin(async move {
            self.log(true, options);
            let answer = self.state.lock().watch(options);
            self.take_time().await;
            let next = async |mut receiver: UnboundedReceiver<Event<K::Object>>| {
                receiver.recv().await.map(|event| (event, receiver))
            };
            Ok(stream::unfold(answer?, next).boxed())
        })
    }
}
