//! Metrics of the informers.

use std::sync::{Arc, Weak};

use kube_informers::{InformerMetrics, Kind, SharedInformer};
use parking_lot::Mutex;
use supercargo_framework::PodInfo;

use supercargo_codec::{NodeKind, PodKind};

type Measure = Box<dyn Fn() -> Option<InformerMetrics> + Send + Sync>;

/// The informers of a scheduler, through weak references: stats keep no informer alive.
#[derive(Clone)]
pub(crate) struct InformerStats {
    pods: Weak<SharedInformer<PodKind>>,
    nodes: Weak<SharedInformer<NodeKind>>,
    all: Arc<Mutex<Vec<Measure>>>,
}

impl InformerStats {
    pub(super) fn new(pods: &Arc<SharedInformer<PodKind>>, nodes: &Arc<SharedInformer<NodeKind>>) -> Self {
        let stats = Self { pods: Arc::downgrade(pods), nodes: Arc::downgrade(nodes), all: Arc::default() };
        stats.add(pods);
        stats.add(nodes);
        stats
    }

    pub(super) fn add<K: Kind>(&self, informer: &Arc<SharedInformer<K>>) {
        let informer = Arc::downgrade(informer);
        self.all.lock().push(Box::new(move || informer.upgrade().map(|informer| informer.metrics())));
    }

    /// Metrics of each informer, pods and nodes first.
    pub(crate) fn metrics(&self) -> Vec<InformerMetrics> {
        self.all.lock().iter().filter_map(|ask| ask()).collect()
    }

    /// All pods that have not finished; `None` once the informers are gone.
    pub(crate) fn pods(&self) -> Option<Vec<Arc<PodInfo>>> {
        Some(self.pods.upgrade()?.lister().list())
    }

    /// By resource, the number of distinct values that the stored objects share. `None` once the
    /// informers are gone.
    pub(crate) fn interned(&self) -> Option<[(&'static str, usize); 2]> {
        let (pods, nodes) = (self.pods.upgrade()?, self.nodes.upgrade()?);
        Some([("pods", pods.kind().interned()), ("nodes", nodes.kind().interned())])
    }
}
