//! Observes bindings of pods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt as _};
use kube_informers::{HandlerFuncs, HandlerOptions, InformerOptions, KubeListWatch, SharedInformer, Typed};
use tokio::runtime::Runtime;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Watches all pods of a cluster and their nodes.
pub(crate) struct Sightings {
    seen: Arc<Mutex<Seen>>,
    _watching: DropGuard,
}

#[derive(Default)]
struct Seen {
    /// The node of each pod, and the time when the binding was seen.
    bound: BTreeMap<String, (String, Instant)>,
    /// Pods that were seen on a second node, or unbound again.
    moved: Vec<String>,
}

impl Seen {
    fn see(&mut self, pod: &Pod) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        match (self.bound.get(&pod.name_any()), node) {
            (None, Some(node)) => {
                self.bound.insert(pod.name_any(), (node, Instant::now()));
            }
            (Some((first, _)), node) if Some(first) != node.as_ref() => self.moved.push(pod.name_any()),
            _ => {}
        }
    }
}

impl Sightings {
    pub(super) fn begin(runtime: &Runtime, client: Client) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let see = || {
            let seen = Arc::clone(&seen);
            move |pod: &Pod| seen.lock().unwrap().see(pod)
        };
        let (added, updated) = (see(), see());
        let handler = HandlerFuncs::<Pod>::new()
            .with_add(move |pod, _| added(pod))
            .with_update(move |_, pod| updated(pod));
        let kind = Arc::new(Typed::<Pod>::new());
        let source = KubeListWatch::new(client, Arc::clone(&kind));
        let stop = CancellationToken::new();
        let _inside = runtime.enter();
        let informer = SharedInformer::new(kind, source, InformerOptions::default());
        informer.add_event_handler(handler, HandlerOptions::named("sightings")).unwrap();
        runtime.spawn(informer.run(stop.clone()));
        Self { seen, _watching: stop.drop_guard() }
    }

    /// The number of bound pods.
    pub(crate) fn bound(&self) -> usize {
        self.seen.lock().unwrap().bound.len()
    }

    /// The longest time without a binding since this moment.
    pub(crate) fn longest_gap_since(&self, since: Instant) -> Duration {
        let seen = self.seen.lock().unwrap();
        let mut times: Vec<Instant> =
            seen.bound.values().map(|(_, at)| *at).filter(|at| *at > since).collect();
        times.push(since);
        times.sort();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// Asserts that no pod has changed its node.
    pub(crate) fn assert_none_moved(&self) {
        let moved = &self.seen.lock().unwrap().moved;
        assert!(moved.is_empty(), "{moved:?}");
    }
}
