//! `kube-informers` as clients that follow a server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{Resource, ResourceExt as _};
use kube_informers::testing::EventLog;
use kube_informers::{
    BackoffPolicy, HandlerOptions, InformerOptions, ReflectorOptions, Registration, SharedInformer,
    SharedInformerFactory, Typed,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::follower::{Follower, Held, drop_empty};
use super::target::RUNTIME;
use crate::support::Requests;

/// Unlike client-go's these go through all that goes wrong without being started anew, so their waits must not grow as long.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Shared informers of one factory, each with a handler.
pub(super) struct KubeInformers {
    name: &'static str,
    factory: SharedInformerFactory,
    informers: BTreeMap<&'static str, Box<dyn Followed>>,
    requests: Requests,
    stop: CancellationToken,
}

/// One of them, whatever its kind.
trait Followed {
    /// What the store has, once the handler knows of the same.
    fn held(&self) -> BTreeMap<String, String>;

    fn strange(&self) -> Vec<String>;

    fn objects(&self) -> BTreeMap<String, Value>;
}

struct Informer<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    informer: Arc<SharedInformer<Typed<K>>>,
    told: EventLog<Typed<K>>,
    registration: Registration,
}

impl KubeInformers {
    pub(super) fn start(name: &'static str, config: kube::Config) -> Self {
        let _within = RUNTIME.enter();
        let requests = Requests::default();
        let factory = SharedInformerFactory::new(requests.client(config));
        let (informers, stop) = (BTreeMap::new(), CancellationToken::new());
        let mut started = Self { name, factory, informers, requests, stop };
        started.follow::<Pod>("pods");
        started.follow::<Node>("nodes");
        started.follow::<ConfigMap>("configmaps");
        started.factory.start(&started.stop);
        started
    }

    fn follow<K>(&mut self, resource: &'static str)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + Sync + 'static,
    {
        let informer = self.factory.informer_for(Arc::new(Typed::<K>::new()), |parts| {
            let backoff = BackoffPolicy { max: LONGEST_WAIT, ..BackoffPolicy::default() };
            let reflector = ReflectorOptions { backoff, ..ReflectorOptions::default() };
            SharedInformer::new(
                parts.kind,
                parts.list_watch,
                InformerOptions { reflector, ..InformerOptions::default() },
            )
        });
        let told = EventLog::new(Arc::clone(informer.kind()));
        let registration = informer.add_event_handler(told.clone(), HandlerOptions::named(resource)).unwrap();
        self.informers.insert(resource, Box::new(Informer { informer, told, registration }));
    }

    /// How often they have listed or begun to watch, and how often gone on watching.
    pub(super) fn requests(&self) -> (usize, usize) {
        (self.requests.lists(), self.requests.watches())
    }

    /// The objects of a resource, by `namespace/name`, without what is empty.
    pub(super) fn objects(&self, resource: &str) -> BTreeMap<String, Value> {
        self.informers[resource].objects()
    }
}

impl<K> Followed for Informer<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    fn held(&self) -> BTreeMap<String, String> {
        let version = |object: &Arc<K>| (key_of(&**object), object.resource_version().unwrap_or_default());
        let stored: BTreeMap<_, _> = self.informer.store().list().iter().map(version).collect();
        // Nobody reads the lines.
        self.told.take();
        let agree = self.registration.has_synced() && self.told.content() == stored;
        if agree { stored } else { BTreeMap::new() }
    }

    fn strange(&self) -> Vec<String> {
        self.told.faults()
    }

    fn objects(&self) -> BTreeMap<String, Value> {
        let object = |object: &Arc<K>| {
            let mut value = serde_json::to_value(&**object).unwrap();
            // The list to compare with does not say it of each.
            value.as_object_mut().unwrap().retain(|field, _| field != "apiVersion" && field != "kind");
            drop_empty(&mut value);
            (key_of(&**object), value)
        };
        self.informer.store().list().iter().map(object).collect()
    }
}

fn key_of(object: &impl Resource<DynamicType = ()>) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

impl Follower for KubeInformers {
    fn name(&self) -> &str {
        self.name
    }

    fn held(&mut self) -> Held {
        self.informers.iter().map(|(resource, informer)| ((*resource).to_owned(), informer.held())).collect()
    }

    fn strange(&mut self) -> Vec<String> {
        self.informers.values().flat_map(|informer| informer.strange()).collect()
    }
}

impl Drop for KubeInformers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
