//! Pods from a server on loopback.

use std::sync::Arc;

use futures::stream::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config};
use kube_informers::{InformerOptions, KubeListWatch, SharedInformer, namespace_indexer};

use crate::Result;
use crate::client::{Bench, Measured, Start, Tally, listen, reflect};
use crate::task::Task;

fn client(task: &Task) -> Result<Client> {
    let mut config = Config::new(task.url.parse()?);
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// This crate's informer, built by a factory.
pub(crate) fn informer<K: Measured>(task: &Task) -> Result<Bench> {
    let kind = Arc::new(K::make(task.content));
    let source = KubeListWatch::new(client(task)?, Arc::clone(&kind));
    let options = InformerOptions::default().indexers(namespace_indexer());
    let informer = SharedInformer::new(kind, source, options);
    informer.set_transform(K::trim)?;
    let (tallies, start) = listen(&informer, task.listeners)?;
    let store = informer.store();
    Ok(bench(task, start, tallies, move || store.len()))
}

/// `kube_runtime`'s watcher and reflector, as in its documentation.
pub(crate) fn kube(task: &Task) -> Result<Bench> {
    let pods: Api<Pod> = Api::all(client(task)?);
    let events = watcher(pods, watcher::Config::default()).default_backoff();
    let events = events.modify(|pod| pod.metadata.managed_fields = None).boxed();
    let (store, tallies, start) = reflect(events, task.listeners);
    Ok(bench(task, start, tallies, move || store.len()))
}

/// A bench whose changes the server sends.
fn bench(
    task: &Task,
    start: Start,
    tallies: Vec<Arc<Tally>>,
    stored: impl Fn() -> usize + Send + 'static,
) -> Bench {
    Bench {
        start,
        release: Box::new(|| ()),
        tallies,
        goals: [task.pods as u64, (task.pods + task.events) as u64],
        has_all: Box::new(|_| true),
        stored: Box::new(stored),
    }
}
