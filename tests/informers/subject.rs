//! An informer of all pods with handlers of every sort.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::{Body, ClientBuilder};
use kube_informers::{
    BackoffPolicy, Filtering, HandlerOptions, InformerOptions, KubeListWatch, ReflectorOptions, Registration,
    SharedInformer, Typed, namespace_indexer,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::util::MapRequestLayer;

use super::model::{Content, Model, key_of, state_of};

/// How often handlers that want it are shown everything again.
const RESYNC: Duration = Duration::from_secs(5);

/// How an informer is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    /// Whether it starts with a watch that sends what exists.
    pub(super) watch_list: bool,
}

/// Which requests an informer has made.
#[derive(Clone, Default)]
pub(super) struct Requests(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// Lists, and watches that begin with what exists.
    lists: AtomicUsize,
    watches: AtomicUsize,
}

impl Requests {
    fn count(&self, request: &Request<Body>) {
        let query = request.uri().query().unwrap_or_default();
        let resumes = query.contains("watch=true") && !query.contains("sendInitialEvents=true");
        // The next page is part of a list.
        let goes_on = query.contains("continue=");
        self.0.watches.fetch_add(usize::from(resumes), Ordering::Relaxed);
        self.0.lists.fetch_add(usize::from(!resumes && !goes_on), Ordering::Relaxed);
    }

    pub(super) fn lists(&self) -> usize {
        self.0.lists.load(Ordering::Relaxed)
    }

    pub(super) fn watches(&self) -> usize {
        self.0.watches.load(Ordering::Relaxed)
    }

    /// A client whose requests are counted.
    fn client(&self, config: kube::Config) -> Client {
        let counts = self.clone();
        let layer = MapRequestLayer::new(move |request: Request<Body>| {
            counts.count(&request);
            request
        });
        ClientBuilder::try_from(config).unwrap().with_layer(&layer).build()
    }
}

/// A handler, and what it makes of what it is told.
struct Handler {
    name: &'static str,
    model: Model,
    registration: Registration,
    /// Whether it is shown only pods that have a node.
    filtered: bool,
}

/// An informer, running.
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) requests: Requests,
    informer: Arc<SharedInformer<Typed<Pod>>>,
    handlers: Vec<Handler>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

pub(super) fn is_assigned(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

impl Subject {
    /// Starts to follow all pods.
    pub(super) fn start(setup: Setup, config: kube::Config) -> Self {
        let requests = Requests::default();
        let kind = Arc::new(Typed::<Pod>::new());
        let source = KubeListWatch::new(requests.client(config), Arc::clone(&kind)).watch_list(setup.watch_list);
        let (initial, max) = (Duration::from_millis(50), Duration::from_millis(500));
        let options = InformerOptions {
            resync: RESYNC,
            indexers: namespace_indexer(),
            reflector: ReflectorOptions {
                backoff: BackoffPolicy { initial, max, ..BackoffPolicy::default() },
                ..ReflectorOptions::default()
            },
        };
        let informer = SharedInformer::new(kind, source, options);
        let stop = CancellationToken::new();
        let running = tokio::spawn(Arc::clone(&informer).run(stop.clone()));
        let mut subject = Self { name: setup.name, requests, informer, handlers: Vec::new(), stop, running };
        for (name, resync) in [("plain", None), ("resynced", Some(RESYNC)), ("removed", None)] {
            subject.join(name, resync);
        }
        subject.join_filtered();
        subject
    }

    /// Adds a handler of all pods.
    pub(super) fn join(&mut self, name: &'static str, resync: Option<Duration>) {
        let model = Model::default();
        let options =
            HandlerOptions { resync: Some(resync.unwrap_or(Duration::ZERO)), ..HandlerOptions::named(name) };
        let registration = self.informer.add_event_handler(model.clone(), options).unwrap();
        self.handlers.push(Handler { name, model, registration, filtered: false });
    }

    fn join_filtered(&mut self) {
        let model = Model::default();
        let options = HandlerOptions { resync: Some(Duration::ZERO), ..HandlerOptions::named("filtered") };
        let filtering = Filtering { filter: is_assigned, handler: model.clone() };
        let registration = self.informer.add_event_handler(filtering, options).unwrap();
        self.handlers.push(Handler { name: "filtered", model, registration, filtered: true });
    }

    /// Removes a handler, and gives what it was told: nothing more is to come.
    pub(super) async fn leave(&mut self, name: &str) -> Model {
        let position = self.handlers.iter().position(|handler| handler.name == name).unwrap();
        let Handler { model, registration, .. } = self.handlers.remove(position);
        self.informer.remove_event_handler(&registration);
        registration.stopped().await;
        model
    }

    /// What the store holds.
    pub(super) fn stored(&self) -> Content {
        self.informer.store().list().iter().map(|pod| (key_of(pod), state_of(pod))).collect()
    }

    /// How many pods of a namespace there are, by the index.
    pub(super) fn stored_in(&self, namespace: &str) -> usize {
        self.informer.lister().namespace(namespace).list().len()
    }

    /// How many changes the handlers have yet to see.
    pub(super) fn pending(&self) -> usize {
        self.handlers.iter().map(|handler| handler.registration.pending()).sum()
    }

    /// Each handler's name, what it knows, and whether that is only what has a node.
    pub(super) fn models(&self) -> impl Iterator<Item = (&'static str, &Model, bool)> {
        self.handlers.iter().map(|handler| (handler.name, &handler.model, handler.filtered))
    }

    pub(super) fn have_synced(&self) -> bool {
        self.handlers.iter().all(|handler| handler.registration.has_synced())
    }

    pub(super) fn last_error(&self) -> Option<String> {
        self.informer.last_error()
    }

    /// Stops, and waits for the end; gives on a panic of a handler or of the informer.
    pub(super) async fn stop(self) {
        assert_eq!(self.informer.undecodable(), 0, "{}", self.name);
        self.stop.cancel();
        self.running.await.unwrap();
    }
}
