//! How the informers are doing, for metrics.

use std::sync::{Arc, Weak};

use kube_informers::{InformerMetrics, Kind, SharedInformer};
use parking_lot::Mutex;
use supercargo_framework::PodInfo;

use supercargo_codec::PodKind;

type Ask = Box<dyn Fn() -> Option<InformerMetrics> + Send + Sync>;

/// The informers of a scheduler, as long as there are any: this keeps none of them.
#[derive(Clone)]
pub(crate) struct Observed {
    pods: Weak<SharedInformer<PodKind>>,
    all: Arc<Mutex<Vec<Ask>>>,
}

impl Observed {
    pub(super) fn new(pods: &Arc<SharedInformer<PodKind>>) -> Self {
        let observed = Self { pods: Arc::downgrade(pods), all: Arc::default() };
        observed.add(pods);
        observed
    }

    pub(super) fn add<K: Kind>(&self, informer: &Arc<SharedInformer<K>>) {
        let informer = Arc::downgrade(informer);
        self.all.lock().push(Box::new(move || informer.upgrade().map(|informer| informer.metrics())));
    }

    /// One for each kind, pods and nodes first.
    pub(crate) fn metrics(&self) -> Vec<InformerMetrics> {
        self.all.lock().iter().filter_map(|ask| ask()).collect()
    }

    /// The pods that are not over.
    pub(crate) fn pods(&self) -> Option<Vec<Arc<PodInfo>>> {
        Some(self.pods.upgrade()?.lister().list())
    }
}
