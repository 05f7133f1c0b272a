//! Decoded pods, through queue, store and listeners.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{reflector, watcher};
use kube_informers::{
    ContentType, InformerOptions, Kind, ListOptions, ListWatchError, ListerWatcher, Page, SharedInformer,
    Typed, WatchEvent, WatchStream,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Result;
use crate::client::{Bench, Measured, indexers, listen, reflect};
use crate::pods::{CHANGED_VERSION, Change, FIRST_VERSION, LISTED_VERSION, Template, change, key};
use crate::task::Task;

/// The changes, sent once they are released.
type Released<T> = oneshot::Receiver<Vec<T>>;

/// Pods in memory, listed and watched once.
struct Prepared<K: Kind> {
    listed: Mutex<Vec<K::Object>>,
    changes: Mutex<Option<Released<WatchEvent<K::Object>>>>,
}

impl<K: Kind> ListerWatcher<K> for Prepared<K> {
    fn list<'a>(&'a self, _: &'a ListOptions) -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>> {
        let page = Page::new(std::mem::take(&mut *self.listed.lock()), LISTED_VERSION.to_string());
        Box::pin(async { Ok(page) })
    }

    fn watch<'a>(
        &'a self,
        _: &'a ListOptions,
    ) -> BoxFuture<'a, Result<WatchStream<K::Object>, ListWatchError>> {
        let changes = self.changes.lock().take();
        Box::pin(async { Ok(when_released(changes).map(Ok).boxed()) })
    }

    fn supports_watch_list(&self) -> bool {
        false
    }
}

/// The released changes, followed by silence.
fn when_released<T: Send + 'static>(released: Option<Released<T>>) -> BoxStream<'static, T> {
    let Some(released) = released else { return stream::pending().boxed() };
    stream::once(released)
        .flat_map(|all| stream::iter(all.unwrap_or_default()))
        .chain(stream::pending())
        .boxed()
}

/// Decodes pods as listed, and as changed.
struct Source<K> {
    kind: K,
    template: Template,
    text: Vec<u8>,
}

impl<K: Measured> Source<K> {
    fn new(task: &Task) -> Self {
        Self {
            kind: K::make(task.content),
            template: Template::new(task.template.clone().into()),
            text: Vec::new(),
        }
    }

    fn pod(&mut self, number: usize, version: usize) -> Result<K::Object> {
        self.text.clear();
        self.template.write(number, version, &mut self.text);
        let mut pod = self.kind.decode(ContentType::Json, &self.text)?;
        K::trim(&mut pod);
        Ok(pod)
    }

    fn listed(&mut self, pods: usize) -> Result<Vec<K::Object>> {
        (0..pods).map(|number| self.pod(number, FIRST_VERSION + number)).collect()
    }

    fn changes(&mut self, task: &Task) -> Result<Vec<(Change, K::Object)>> {
        let change = |index| {
            let (what, number) = change(index, task.pods);
            Ok((what, self.pod(number, CHANGED_VERSION + index)?))
        };
        (0..task.events).map(change).collect()
    }
}

/// The last pod of each phase, with its version.
fn last(task: &Task) -> [(String, String); 2] {
    let changed = task.events.saturating_sub(1);
    [
        (task.pods - 1, FIRST_VERSION + task.pods - 1),
        (change(changed, task.pods).1, CHANGED_VERSION + changed),
    ]
    .map(|(pod, version)| (key(pod), version.to_string()))
}

/// This crate's informer.
pub(crate) fn informer<K: Measured>(task: &Task) -> Result<Bench> {
    let mut source = Source::<K>::new(task);
    let listed = source.listed(task.pods)?;
    let changes = source.changes(task)?.into_iter().map(|(what, pod)| match what {
        Change::Added => WatchEvent::Added(pod),
        Change::Modified => WatchEvent::Modified(pod),
        Change::Deleted => WatchEvent::Deleted(pod),
    });
    let changes: Vec<_> = changes.collect();
    let (release, released) = oneshot::channel();
    let prepared = Prepared::<K> { listed: Mutex::new(listed), changes: Mutex::new(Some(released)) };
    let options = InformerOptions::default().indexers(indexers::<K>());
    let informer = SharedInformer::new(Arc::new(source.kind), prepared, options);
    let (tallies, start) = listen(&informer, task.listeners)?;
    let (store, last) = (informer.store(), last(task));
    let kind = Arc::clone(informer.kind());
    let has_all = move |phase: usize| {
        let (key, version) = &last[phase];
        store.get(key).is_some_and(|pod| kind.resource_version(&pod) == version)
    };
    let store = informer.store();
    Ok(Bench {
        start,
        release: Box::new(move || drop(release.send(changes))),
        tallies,
        goals: [task.pods as u64, (task.pods + task.events) as u64],
        has_all: Box::new(has_all),
        stored: Box::new(move || store.len()),
    })
}

/// `kube_runtime`'s reflector, without indices. Deletions are omitted: listeners do not receive
/// them, and one that finds its pod deleted is never woken again.
pub(crate) fn kube(task: &Task) -> Result<Bench> {
    let mut source = Source::<Typed<Pod>>::new(task);
    let listed = source.listed(task.pods)?;
    let changes = source.changes(task)?.into_iter().filter(|(what, _)| *what != Change::Deleted);
    let changes: Vec<_> = changes.map(|(_, pod)| watcher::Event::Apply(pod)).collect();
    let goals = [task.pods as u64, (task.pods + changes.len()) as u64];
    let (release, released) = oneshot::channel();
    let first = std::iter::once(watcher::Event::Init)
        .chain(listed.into_iter().map(watcher::Event::InitApply).collect::<Vec<_>>())
        .chain(std::iter::once(watcher::Event::InitDone));
    let events = stream::iter(first).chain(when_released(Some(released))).map(Ok).boxed();
    let (store, tallies, start) = reflect(events, task.listeners);
    let (reader, last) = (store.clone(), last(task));
    let has_all = move |phase: usize| {
        let (key, version) = &last[phase];
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let pod = reader.get(&reflector::ObjectRef::new(name).within(namespace));
        pod.is_some_and(|pod| pod.metadata.resource_version.as_ref() == Some(version))
    };
    Ok(Bench {
        start,
        release: Box::new(move || drop(release.send(changes))),
        tallies,
        goals,
        has_all: Box::new(has_all),
        stored: Box::new(move || store.len()),
    })
}
