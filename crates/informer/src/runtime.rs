//! Bridges to `kube_runtime`: informers as the source of its controllers.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use kube::Resource;
use kube::runtime::reflector::{Lookup, ObjectRef};
use kube::runtime::watcher::{self, Event};

use crate::event_stream::{EventStream, StreamItem};
use crate::key::{Deleted, KeyMap, ObjectKey};
use crate::kind::resource_key;
use crate::notification::Notification;

impl ObjectKey {
    /// The key as a reference of `kube_runtime`, for example to request a reconciliation.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kube::runtime::reflector::ObjectRef;
    /// use kube_informers::ObjectKey;
    ///
    /// let key = ObjectKey::new(Some("shop"), "web");
    /// let reference: ObjectRef<Pod> = key.to_object_ref(());
    /// assert_eq!((reference.to_string().as_str(), ObjectKey::from(&reference)), ("Pod.v1./web.shop", key));
    /// ```
    pub fn to_object_ref<K: Lookup>(&self, dynamic_type: K::DynamicType) -> ObjectRef<K> {
        let reference = ObjectRef::new_with(self.name(), dynamic_type);
        match self.namespace() {
            Some(namespace) => reference.within(namespace),
            None => reference,
        }
    }
}

impl<K: Lookup> From<&ObjectRef<K>> for ObjectKey {
    fn from(reference: &ObjectRef<K>) -> Self {
        Self::new(reference.namespace.as_deref(), &reference.name)
    }
}

impl<K> EventStream<K> {
    /// The changes as events of `kube_runtime`'s watcher, which fill its reflector and trigger its
    /// controllers. They share the list and the watch of the informer with all its handlers.
    ///
    /// Objects are cloned: the reflector has a store of its own. The stream has no errors, and ends
    /// with the informer.
    ///
    /// ```no_run
    /// use futures::StreamExt;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kube::runtime::controller::{Action, Controller};
    /// use kube::runtime::{WatchStreamExt, reflector};
    /// use kube_informers::{HandlerOptions, SharedInformer, Typed};
    /// # use std::sync::Arc;
    /// # async fn reconcile(_: Arc<Pod>, _: Arc<()>) -> Result<Action, std::fmt::Error> { Ok(Action::await_change()) }
    /// # fn on_error(_: Arc<Pod>, _: &std::fmt::Error, _: Arc<()>) -> Action { Action::await_change() }
    ///
    /// # async fn example(pods: &SharedInformer<Typed<Pod>>) -> Result<(), Box<dyn std::error::Error>> {
    /// let changes = pods.add_event_stream(HandlerOptions::named("controller"))?;
    /// let (reader, writer) = reflector::store();
    /// let trigger = reflector(writer, changes.into_watcher_events()).applied_objects();
    /// Controller::for_stream(trigger, reader)
    ///     .run(reconcile, on_error, Arc::new(()))
    ///     .for_each(|_| std::future::ready(()))
    ///     .await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_watcher_events(self) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send
    where
        K: Resource + Clone + Send + Sync + 'static,
    {
        let ready = VecDeque::from([Event::Init]);
        WatcherEvents { stream: self, has_synced: false, ready, gone: KeyMap::default() }
    }
}

struct WatcherEvents<K> {
    stream: EventStream<K>,
    has_synced: bool,
    ready: VecDeque<Event<K>>,
    /// Objects deleted among the initial ones. The reflector would ignore that until their end.
    gone: KeyMap<K>,
}

impl<K: Resource + Clone> WatcherEvents<K> {
    fn add(&mut self, object: &K) {
        if self.has_synced {
            self.ready.push_back(Event::Apply(object.clone()));
        } else {
            self.gone.remove(&resource_key(object));
            self.ready.push_back(Event::InitApply(object.clone()));
        }
    }

    fn delete(&mut self, object: &K) {
        if self.has_synced {
            self.ready.push_back(Event::Delete(object.clone()));
        } else {
            self.gone.insert(resource_key(object), object.clone());
        }
    }

    fn step(&mut self, step: StreamItem<K>) {
        match step {
            StreamItem::Change(
                Notification::Add { object, .. } | Notification::Update { new: object, .. },
            ) => {
                self.add(&object);
            }
            // Without its last state the object was never in the store.
            StreamItem::Change(Notification::Delete(Deleted::FinalStateUnknown { last: None, .. })) => {}
            StreamItem::Change(Notification::Delete(
                Deleted::Known(object) | Deleted::FinalStateUnknown { last: Some(object), .. },
            )) => self.delete(&object),
            StreamItem::Synced => {
                self.has_synced = true;
                self.ready.push_back(Event::InitDone);
                self.ready.extend(self.gone.drain().map(|(_, object)| Event::Delete(object)));
            }
        }
    }
}

// No field is pinned.
impl<K> Unpin for WatcherEvents<K> {}

impl<K: Resource + Clone> Stream for WatcherEvents<K> {
    type Item = Result<Event<K>, watcher::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let events = self.get_mut();
        loop {
            if let Some(event) = events.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            match ready!(events.stream.poll_step(context)) {
                Some(step) => events.step(step),
                None => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use kube::runtime::controller::{Action, Controller};
    use kube::runtime::{WatchStreamExt, reflector};
    use parking_lot::Mutex;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::kind::Typed;
    use crate::listener::HandlerOptions;
    use crate::queue::QueueKind;
    use crate::shared::{InformerOptions, SharedInformer};
    use crate::testing::{FakeSource, settle};

    fn config_map(name: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map.metadata.namespace = Some("ns".to_owned());
        map
    }

    fn informer(
        source: &FakeSource<Typed<ConfigMap>>,
        queue: QueueKind,
    ) -> Arc<SharedInformer<Typed<ConfigMap>>> {
        SharedInformer::new(source.kind(), source.clone(), InformerOptions::default().queue(queue))
    }

    fn describe(event: Result<Event<ConfigMap>, watcher::Error>) -> String {
        match event.unwrap() {
            Event::Init => "init".to_owned(),
            Event::InitApply(map) => format!("={}", map.name_any()),
            Event::InitDone => "done".to_owned(),
            Event::Apply(map) => format!("+{}", map.name_any()),
            Event::Delete(map) => format!("-{}", map.name_any()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watcher_events_mark_initial_objects_and_their_end() {
        let source = FakeSource::typed();
        source.apply(config_map("a"));
        let informer = informer(&source, QueueKind::default());
        let events = informer.add_event_stream(HandlerOptions::default()).unwrap().into_watcher_events();
        let stop = CancellationToken::new();
        let running = tokio::spawn(Arc::clone(&informer).run(stop.clone()));
        settle().await;
        source.apply(config_map("a"));
        source.apply(config_map("b"));
        source.delete(config_map("a"));
        settle().await;
        stop.cancel();
        running.await.unwrap();
        let events: Vec<_> = events.map(describe).collect().await;
        assert_eq!(events, ["init", "=a", "done", "+a", "+b", "-a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_among_initial_objects_follows_their_end() {
        let source = FakeSource::typed();
        let stream = informer(&source, QueueKind::default()).add_event_stream(HandlerOptions::default());
        let ready = VecDeque::new();
        let mut events =
            WatcherEvents { stream: stream.unwrap(), has_synced: false, ready, gone: KeyMap::default() };
        let [a, b] = ["a", "b"].map(|name| Arc::new(config_map(name)));
        let add = |object: &Arc<ConfigMap>| Notification::Add {
            object: Arc::clone(object),
            is_in_initial_list: true,
        };
        for change in [
            add(&a),
            add(&b),
            Notification::Delete(Deleted::Known(Arc::clone(&a))),
            Notification::Delete(Deleted::Known(Arc::clone(&b))),
            add(&b),
        ] {
            events.step(StreamItem::Change(change));
        }
        events.step(StreamItem::Synced);
        let events: Vec<_> = events.ready.into_iter().map(|event| describe(Ok(event))).collect();
        assert_eq!(events, ["=a", "=b", "=b", "done", "-a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_reconciles_the_objects_of_an_informer() {
        let source = FakeSource::typed();
        source.apply(config_map("a"));
        let informer = informer(&source, QueueKind::default());
        let changes = informer.add_event_stream(HandlerOptions::default()).unwrap();
        let (reader, writer) = reflector::store();
        let trigger = reflector(writer, changes.into_watcher_events()).applied_objects();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let reconcile = async |map: Arc<ConfigMap>, seen: Arc<Mutex<Vec<String>>>| {
            seen.lock().push(map.name_any());
            Ok::<_, std::fmt::Error>(Action::await_change())
        };
        let controller = Controller::for_stream(trigger, reader)
            .run(reconcile, |_, _, _| Action::await_change(), Arc::clone(&seen))
            .for_each(|_| std::future::ready(()));
        let controller = tokio::spawn(controller);
        let stop = CancellationToken::new();
        let running = tokio::spawn(Arc::clone(&informer).run(stop.clone()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        source.apply(config_map("b"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*seen.lock(), ["a", "b"]);
        stop.cancel();
        running.await.unwrap();
        controller.abort();
    }
}
