//! A source with a server's behaviour: objects, a growing resource version, a history to resume from.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use kube::Resource;
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::time::Instant;

use super::{Request, refusal, refused};
use crate::key::ObjectKey;
use crate::kind::{Kind, Typed};
use crate::list_watch::{ListOptions, ListWatchError, ListerWatcher, Page, WatchEvent, WatchStream};

/// What the source makes of a watch that asks for initial events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchListSupport {
    /// It refuses, as a server that does not know of them.
    Refused,
    /// It sends them, but not the bookmark that ends them.
    NoEnd,
    /// It sends them and the bookmark.
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
    version: u64,
    history: Vec<(u64, Change<T>)>,
    /// Watches from versions before this are refused as expired.
    oldest: u64,
    watchers: Vec<UnboundedSender<Event<T>>>,
    watch_list: WatchListSupport,
    list_errors: VecDeque<ListWatchError>,
    watch_errors: VecDeque<ListWatchError>,
    requests: Vec<Request>,
}

#[derive(Clone, Copy)]
enum What {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone)]
struct Change<T>(What, T);

impl<T> Change<T> {
    fn event(self) -> WatchEvent<T> {
        match self.0 {
            What::Added => WatchEvent::Added(self.1),
            What::Modified => WatchEvent::Modified(self.1),
            What::Deleted => WatchEvent::Deleted(self.1),
        }
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
    /// An empty server for a type that `kube` knows.
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
    /// An empty server, told how to set an object's resource version.
    pub fn new(kind: Arc<K>, set_version: impl Fn(&mut K::Object, &str) + Send + Sync + 'static) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            version: 1,
            history: Vec::new(),
            oldest: 1,
            watchers: Vec::new(),
            watch_list: WatchListSupport::Full,
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

    /// Chooses how initial events are treated.
    pub fn with_watch_list(self, support: WatchListSupport) -> Self {
        self.state.lock().watch_list = support;
        self
    }

    /// Adds or replaces an object, and tells the watchers.
    pub fn apply(&self, object: K::Object) {
        self.change(object, false, true);
    }

    /// The same without telling them, as if the events were lost.
    pub fn apply_silently(&self, object: K::Object) {
        self.change(object, false, false);
    }

    /// Deletes an object, and tells the watchers.
    pub fn delete(&self, object: K::Object) {
        self.change(object, true, true);
    }

    /// The same without telling them.
    pub fn delete_silently(&self, object: K::Object) {
        self.change(object, true, false);
    }

    fn change(&self, mut object: K::Object, delete: bool, tell: bool) {
        let mut state = self.state.lock();
        state.version += 1;
        (self.set_version)(&mut object, &state.version.to_string());
        let key = self.kind.key(&object);
        let known = if delete {
            state.objects.remove(&key).is_some()
        } else {
            state.objects.insert(key, object.clone()).is_some()
        };
        let what = match (delete, known) {
            (true, true) => What::Deleted,
            (true, false) => return,
            (false, true) => What::Modified,
            (false, false) => What::Added,
        };
        if tell {
            let version = state.version;
            let change = Change(what, object);
            state.history.push((version, change.clone()));
            state.tell(|| change.clone().event());
        }
    }

    /// Sends every watcher a bookmark.
    pub fn bookmark(&self) {
        let mut state = self.state.lock();
        let resource_version = state.version.to_string();
        state.tell(|| WatchEvent::Bookmark {
            resource_version: resource_version.clone(),
            initial_events_end: false,
        });
    }

    /// Sends every watcher an event of the test's own.
    pub fn send(&self, event: impl Fn() -> WatchEvent<K::Object>) {
        self.state.lock().tell(event);
    }

    /// Closes all watches. They can be resumed.
    pub fn close_watches(&self) {
        self.state.lock().watchers.clear();
    }

    /// Closes all watches and forgets the history, so that resuming one is refused as expired.
    pub fn reset_watch(&self) {
        let mut state = self.state.lock();
        state.watchers.clear();
        state.history.clear();
        state.version += 1;
        state.oldest = state.version;
    }

    /// Makes the next list fail. Errors queue up.
    pub fn fail_list(&self, error: ListWatchError) {
        self.state.lock().list_errors.push_back(error);
    }

    /// Makes the next watch, of either sort, fail to open. Errors queue up.
    pub fn fail_watch(&self, error: ListWatchError) {
        self.state.lock().watch_errors.push_back(error);
    }

    /// Forgets the errors that watches were to fail with.
    pub fn serve_watches(&self) {
        self.state.lock().watch_errors.clear();
    }

    /// The server's resource version.
    pub fn version(&self) -> String {
        self.state.lock().version.to_string()
    }

    /// What exists: resource versions by key.
    pub fn content(&self) -> BTreeMap<String, String> {
        let state = self.state.lock();
        let version = |object| self.kind.resource_version(object).to_owned();
        state.objects.iter().map(|(key, object)| (key.to_string(), version(object))).collect()
    }

    /// How many watches are open.
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
}

impl<T: Clone> State<T> {
    fn tell(&mut self, event: impl Fn() -> WatchEvent<T>) {
        self.watchers.retain(|watcher| watcher.send(Ok(event())).is_ok());
    }

    fn list(&mut self) -> Result<Page<T>, ListWatchError> {
        if let Some(error) = self.list_errors.pop_front() {
            return Err(error);
        }
        Ok(Page {
            items: self.objects.values().cloned().collect(),
            undecodable: Vec::new(),
            resource_version: self.version.to_string(),
            continue_token: None,
        })
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
        let missed = self.history.iter().filter(|(version, _)| *version > from);
        Ok(missed.map(|(_, change)| change.clone().event()).collect())
    }

    fn initial_events(&self) -> Result<Vec<WatchEvent<T>>, ListWatchError> {
        let mut events: Vec<_> = self.objects.values().cloned().map(WatchEvent::Added).collect();
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
            self.state.lock().list()
        })
    }

    fn watch<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<WatchStream<K::Object>, ListWatchError>> {
        Box::pin(async move {
            self.log(true, options);
            let mut state = self.state.lock();
            if let Some(error) = state.watch_errors.pop_front() {
                return Err(error);
            }
            let events = state.first_events(options)?;
            let (sender, receiver) = mpsc::unbounded_channel();
            for event in events {
                // The receiver is right here.
                let _ = sender.send(Ok(event));
            }
            state.watchers.push(sender);
            let next = async |mut receiver: mpsc::UnboundedReceiver<Event<K::Object>>| {
                receiver.recv().await.map(|event| (event, receiver))
            };
            Ok(stream::unfold(receiver, next).boxed())
        })
    }
}
