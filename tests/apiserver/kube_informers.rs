//! `kube-informers` as clients that follow a server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube_informers::testing::EventLog;
use kube_informers::{
    BackoffPolicy, GroupVersionResource, HandlerOptions, InformerOptions, Kind, Protobuf, ReflectorOptions,
    Registration, SharedInformer, SharedInformerFactory, Typed,
};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::follower::{Follower, Held, drop_empty};
use super::target::RUNTIME;
use crate::support::{Requests, Slim};

/// Unlike client-go's informers, these are not restarted between faults, so their back-off must
/// stay short.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Shared informers of one factory, each with a handler.
pub(super) struct KubeInformers {
    name: &'static str,
    factory: SharedInformerFactory,
    informers: BTreeMap<&'static str, Box<dyn Followed>>,
    requests: Requests,
    stop: CancellationToken,
}

/// An informer of any kind.
trait Followed {
    /// The content of the store, once the handler has caught up.
    fn held(&self) -> BTreeMap<String, String>;

    fn inconsistencies(&self) -> Vec<String>;

    fn objects(&self) -> Option<BTreeMap<String, Value>>;
}

struct One<K: Kind> {
    informer: Arc<SharedInformer<K>>,
    received: EventLog<K>,
    registration: Registration,
    /// The object as JSON, if it is stored whole.
    json: fn(&K::Object) -> Option<Value>,
}

impl KubeInformers {
    /// Follows all resources in JSON.
    pub(super) fn start(name: &'static str, config: kube::Config) -> Self {
        let mut informers = Self::new(name, config);
        informers.follow("pods", Typed::<Pod>::new(), |object| Some(json_of(object)));
        informers.follow("nodes", Typed::<Node>::new(), |object| Some(json_of(object)));
        informers.follow("configmaps", Typed::<ConfigMap>::new(), |object| Some(json_of(object)));
        informers.started()
    }

    /// Follows pods and nodes in protobuf.
    pub(super) fn start_in_protobuf(name: &'static str, config: kube::Config) -> Self {
        let mut informers = Self::new(name, config);
        let pods = Protobuf::<Slim>::new(GroupVersionResource::of::<Pod>());
        informers.follow("pods", pods, |_| None);
        informers.follow("nodes", Protobuf::<Slim>::new(GroupVersionResource::of::<Node>()), |_| None);
        informers.started()
    }

    fn new(name: &'static str, config: kube::Config) -> Self {
        let _within = RUNTIME.enter();
        let requests = Requests::default();
        let factory = SharedInformerFactory::new(requests.client(config));
        Self { name, factory, informers: BTreeMap::new(), requests, stop: CancellationToken::new() }
    }

    fn started(self) -> Self {
        let _within = RUNTIME.enter();
        self.factory.start(&self.stop);
        self
    }

    fn follow<K: Kind>(&mut self, resource: &'static str, kind: K, json: fn(&K::Object) -> Option<Value>) {
        let informer = self.factory.informer_for(Arc::new(kind), |parts| {
            let backoff = BackoffPolicy::between(BackoffPolicy::default().initial, LONGEST_WAIT);
            let reflector = ReflectorOptions::default().backoff(backoff);
            SharedInformer::new(parts.kind, parts.list_watch, InformerOptions::default().reflector(reflector))
        });
        let received = EventLog::new(Arc::clone(informer.kind()));
        let registration =
            informer.add_event_handler(received.clone(), HandlerOptions::named(resource)).unwrap();
        self.informers.insert(resource, Box::new(One { informer, received, registration, json }));
    }

    /// The number of lists and new watches, and the number of resumed watches.
    pub(super) fn requests(&self) -> (usize, usize) {
        (self.requests.lists(), self.requests.watches())
    }

    /// The number of resources.
    pub(super) fn count(&self) -> usize {
        self.informers.len()
    }

    /// The objects of a resource by `namespace/name`, without empty values; `None` if they are not
    /// stored whole.
    pub(super) fn objects(&self, resource: &str) -> Option<BTreeMap<String, Value>> {
        self.informers[resource].objects()
    }
}

impl<K: Kind> Followed for One<K> {
    fn held(&self) -> BTreeMap<String, String> {
        let kind = self.informer.kind();
        let version = |object: &Arc<K::Object>| {
            (kind.key(object).to_string(), kind.resource_version(object).to_owned())
        };
        let stored: BTreeMap<_, _> = self.informer.store().list().iter().map(version).collect();
        // The log is not used.
        self.received.take();
        let agree = self.registration.has_synced() && self.received.content() == stored;
        if agree { stored } else { BTreeMap::new() }
    }

    fn inconsistencies(&self) -> Vec<String> {
        self.received.faults()
    }

    fn objects(&self) -> Option<BTreeMap<String, Value>> {
        let stored = self.informer.store().list();
        let key = |object: &K::Object| self.informer.kind().key(object).to_string();
        stored.iter().map(|object| Some((key(object), (self.json)(object)?))).collect()
    }
}

fn json_of(object: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(object).unwrap();
    // Items of the list to compare with lack these fields.
    value.as_object_mut().unwrap().retain(|field, _| field != "apiVersion" && field != "kind");
    drop_empty(&mut value);
    value
}

impl Follower for KubeInformers {
    fn name(&self) -> &str {
        self.name
    }

    fn held(&mut self) -> Held {
        self.informers.iter().map(|(resource, informer)| ((*resource).to_owned(), informer.held())).collect()
    }

    fn inconsistencies(&mut self) -> Vec<String> {
        self.informers.values().flat_map(|informer| informer.inconsistencies()).collect()
    }
}

impl Drop for KubeInformers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
