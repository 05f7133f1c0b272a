//! Updates the model from the API, like any client.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use kube::Client;
use kube_informers::{Deleted, EventHandler, HandlerOptions, Indexers, SharedInformerFactory};
use parking_lot::{Mutex, MutexGuard};
use supercargo_framework::objects::{Object, resources};
use supercargo_framework::{NodeRecord, PodInfo};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::model::Model;
use supercargo_client::watch_service::WatchService;
use supercargo_codec::{NodeKind, ObjectKind, PodKind};

/// The model, its clock, and notifications of changes.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

struct Inner {
    model: Mutex<Model>,
    started: Instant,
    changed: watch::Sender<()>,
    phase: Mutex<&'static str>,
}

impl Shared {
    /// Starts the clock.
    pub(crate) fn new(model: Model) -> Self {
        let (changed, _) = watch::channel(());
        Self(Arc::new(Inner {
            model: Mutex::new(model),
            started: Instant::now(),
            changed,
            phase: Mutex::new("starting"),
        }))
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.started.elapsed()
    }

    /// The current phase.
    pub(crate) fn phase(&self) -> &'static str {
        *self.0.phase.lock()
    }

    /// Sets the phase.
    pub(crate) fn set_phase(&self, phase: &'static str) {
        *self.0.phase.lock() = phase;
    }

    /// Locks the model for reading.
    pub(crate) fn read(&self) -> MutexGuard<'_, Model> {
        self.0.model.lock()
    }

    /// Changes the model, and notifies receivers.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Model, Duration)) {
        change(&mut self.0.model.lock(), self.elapsed());
        self.0.changed.send_replace(());
    }

    /// A receiver that is notified of later changes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }
}

struct Pods(Shared);

impl EventHandler<PodInfo> for Pods {
    fn on_add(&mut self, pod: &Arc<PodInfo>, _is_in_initial_list: bool) {
        self.0.change(|model, at| model.update_pod(at, pod));
    }

    fn on_update(&mut self, old: &Arc<PodInfo>, new: &Arc<PodInfo>) {
        self.0.change(|model, at| {
            if old.uid != new.uid {
                model.remove_pod(at, &old.key());
            }
            model.update_pod(at, new);
        });
    }

    fn on_delete(&mut self, deleted: &Deleted<PodInfo>) {
        if let Some(pod) = deleted.object() {
            self.0.change(|model, at| model.remove_pod(at, &pod.key()));
        }
    }
}

struct Nodes(Shared);

impl EventHandler<NodeRecord> for Nodes {
    fn on_add(&mut self, node: &Arc<NodeRecord>, is_in_initial_list: bool) {
        self.0.change(|model, at| model.update_node(at, node, is_in_initial_list));
    }

    fn on_update(&mut self, _old: &Arc<NodeRecord>, new: &Arc<NodeRecord>) {
        self.0.change(|model, at| model.update_node(at, new, false));
    }

    fn on_delete(&mut self, deleted: &Deleted<NodeRecord>) {
        if let Some(node) = deleted.object() {
            self.0.change(|model, at| model.remove_node(at, &node.name));
        }
    }
}

struct Objects(Shared);

impl EventHandler<Object> for Objects {
    fn on_add(&mut self, object: &Arc<Object>, _is_in_initial_list: bool) {
        self.0.change(|model, _| model.replace_object(None, Some(object)));
    }

    fn on_update(&mut self, old: &Arc<Object>, new: &Arc<Object>) {
        self.0.change(|model, _| model.replace_object(Some(old), Some(new)));
    }

    fn on_delete(&mut self, deleted: &Deleted<Object>) {
        if let Some(object) = deleted.object() {
            self.0.change(|model, _| model.replace_object(Some(object), None));
        }
    }
}

/// Watches pods, nodes, and what the devices are. Returns once the model contains all existing
/// ones.
pub(crate) async fn watch(
    connection: kube::Config,
    shared: &Shared,
    stop: &CancellationToken,
) -> Result<SharedInformerFactory> {
    let service = WatchService::connect(connection)?;
    let factory = SharedInformerFactory::new(Client::new(service, "default"));
    let no_annotations: [&str; 0] = [];
    // Finished pods are watched, too: they count as bound.
    let pods = factory
        .informer_for(Arc::new(PodKind::new(no_annotations)), |parts| parts.build(Indexers::default()));
    let nodes = factory
        .informer_for(Arc::new(NodeKind::new(no_annotations)), |parts| parts.build(Indexers::default()));
    pods.add_event_handler(Pods(shared.clone()), HandlerOptions::named("demo's pods"))?;
    nodes.add_event_handler(Nodes(shared.clone()), HandlerOptions::named("demo's nodes"))?;
    for kind in
        [resources::RESOURCE_SLICE, resources::RESOURCE_CLAIM].iter().filter_map(|it| ObjectKind::of(it))
    {
        let objects = factory.informer_for(Arc::new(kind), |parts| parts.build(Indexers::default()));
        objects.add_event_handler(Objects(shared.clone()), HandlerOptions::named("demo's devices"))?;
    }
    factory.start(stop);
    let synced = factory.wait_for_handlers_sync(stop).await;
    if let Some(failure) = synced.failed.first().filter(|_| !stop.is_cancelled()) {
        bail!("cannot watch {}: {}", failure.resource, failure.reason.as_deref().unwrap_or("no response"));
    }
    Ok(factory)
}
