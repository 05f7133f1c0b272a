//! An informer of all pods, with handlers of every form.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube_informers::{
    AddHandlerError, BackoffPolicy, Filtering, GroupVersionResource, HandlerOptions, InformerOptions, Kind,
    KubeListWatch, Lister, Protobuf, QueueKind, ReflectorOptions, Registration, SharedInformer, Typed,
    namespace_indexer,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::model::{Content, Model};
use super::pods::AnyPod;
use crate::support::{Requests, Slim};

/// The resync period of handlers that have one.
const RESYNC: Duration = Duration::from_secs(5);

/// The configuration of an informer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    /// Whether it uses protobuf with slim objects, or JSON with whole ones.
    pub(super) protobuf: bool,
    /// Whether it starts with a watch-list.
    pub(super) watch_list: bool,
    /// Whether initial events are compared with a list of the same version.
    pub(super) checked: bool,
    pub(super) queue: QueueKind,
}

/// A handler with its model.
struct Handler {
    name: &'static str,
    model: Model,
    registration: Registration,
    /// Whether it receives only pods with a node.
    filtered: bool,
}

/// A running informer.
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) requests: Requests,
    informer: Box<dyn Informer>,
    handlers: Vec<Handler>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

/// An informer of pods in any form.
trait Informer: Send {
    fn add(
        &self,
        model: &Model,
        filtered: bool,
        options: HandlerOptions,
    ) -> Result<Registration, AddHandlerError>;
    fn remove(&self, registration: &Registration);
    fn stored(&self) -> Content;
    fn stored_in(&self, namespace: &str) -> usize;
    fn last_error(&self) -> Option<String>;
    fn undecodable(&self) -> u64;
}

impl<K: Kind<Object: AnyPod>> Informer for Arc<SharedInformer<K>> {
    fn add(
        &self,
        model: &Model,
        filtered: bool,
        options: HandlerOptions,
    ) -> Result<Registration, AddHandlerError> {
        let handler = model.clone();
        if filtered {
            self.add_event_handler(
                Filtering { filter: |pod: &K::Object| pod.is_assigned(), handler },
                options,
            )
        } else {
            self.add_event_handler(handler, options)
        }
    }

    fn remove(&self, registration: &Registration) {
        self.remove_event_handler(registration);
    }

    fn stored(&self) -> Content {
        self.store().list().iter().map(|pod| (pod.key(), pod.state())).collect()
    }

    fn stored_in(&self, namespace: &str) -> usize {
        Lister::new(self.store()).namespace(namespace).list().len()
    }

    fn last_error(&self) -> Option<String> {
        SharedInformer::last_error(self)
    }

    fn undecodable(&self) -> u64 {
        SharedInformer::undecodable(self)
    }
}

/// Runs an informer of this kind.
fn run<K: Kind<Object: AnyPod>>(
    kind: K,
    client: Client,
    setup: Setup,
    stop: CancellationToken,
) -> (Box<dyn Informer>, JoinHandle<()>) {
    let kind = Arc::new(kind);
    let source = KubeListWatch::new(client, Arc::clone(&kind)).watch_list(setup.watch_list);
    let backoff = BackoffPolicy::between(Duration::from_millis(50), Duration::from_millis(500));
    let reflector = ReflectorOptions::default().backoff(backoff).detect_inconsistency(setup.checked);
    let options = InformerOptions::default()
        .resync(RESYNC)
        .indexers(namespace_indexer())
        .reflector(reflector)
        .queue(setup.queue);
    let informer = SharedInformer::new(kind, source, options);
    let running = tokio::spawn(Arc::clone(&informer).run(stop));
    (Box::new(informer), running)
}

impl Subject {
    /// Starts to follow all pods.
    pub(super) fn start(setup: Setup, config: kube::Config) -> Self {
        let (requests, stop) = (Requests::default(), CancellationToken::new());
        let client = requests.client(config);
        let (informer, running) = if setup.protobuf {
            let kind = Protobuf::<Slim>::new(GroupVersionResource::of::<Pod>());
            run(kind, client, setup, stop.clone())
        } else {
            run(Typed::<Pod>::new(), client, setup, stop.clone())
        };
        let mut subject = Self { name: setup.name, requests, informer, handlers: Vec::new(), stop, running };
        for (name, resync) in [("plain", None), ("resynced", Some(RESYNC)), ("removed", None)] {
            subject.join(name, resync, false);
        }
        subject.join("filtered", None, true);
        subject
    }

    /// Adds a handler, for all pods or those with a node.
    pub(super) fn join(&mut self, name: &'static str, resync: Option<Duration>, filtered: bool) {
        let model = Model::default();
        let options = HandlerOptions::named(name).resync(resync.unwrap_or(Duration::ZERO));
        let registration = self.informer.add(&model, filtered, options).unwrap();
        self.handlers.push(Handler { name, model, registration, filtered });
    }

    /// Removes a handler. Returns its model, which is final.
    pub(super) async fn leave(&mut self, name: &str) -> Model {
        let position = self.handlers.iter().position(|handler| handler.name == name).unwrap();
        let Handler { model, registration, .. } = self.handlers.remove(position);
        self.informer.remove(&registration);
        registration.stopped().await;
        model
    }

    /// The content of the store.
    pub(super) fn stored(&self) -> Content {
        self.informer.stored()
    }

    /// The number of pods in a namespace, according to the index.
    pub(super) fn stored_in(&self, namespace: &str) -> usize {
        self.informer.stored_in(namespace)
    }

    /// The number of changes that wait for the handlers.
    pub(super) fn pending(&self) -> usize {
        self.handlers.iter().map(|handler| handler.registration.pending()).sum()
    }

    /// Each handler's name and model, and whether it receives only pods with a node.
    pub(super) fn models(&self) -> impl Iterator<Item = (&'static str, &Model, bool)> {
        self.handlers.iter().map(|handler| (handler.name, &handler.model, handler.filtered))
    }

    pub(super) fn have_synced(&self) -> bool {
        self.handlers.iter().all(|handler| handler.registration.has_synced())
    }

    pub(super) fn last_error(&self) -> Option<String> {
        self.informer.last_error()
    }

    /// Stops the informer, and waits for its end. Propagates a panic of a handler or the informer.
    pub(super) async fn stop(self) {
        assert_eq!(self.informer.undecodable(), 0, "{}", self.name);
        self.stop.cancel();
        self.running.await.unwrap();
    }
}
