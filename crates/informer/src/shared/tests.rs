//! Informers on a fake server, under a paused clock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;
use tokio::task::JoinHandle;

use super::*;
use crate::handler::{FanOut, Filtering, HandlerFuncs};
use crate::kind::Typed;
use crate::listener::PanicPolicy;
use crate::store::{IndexFn, NAMESPACE_INDEX, namespace_indexer};
use crate::testing::{EventLog, FakeSource, WatchListSupport, refused, settle};

mod changes;
mod histories;
mod lifecycle;
mod metrics;
mod panics;
mod races;
mod registrations;
mod removals;
mod resyncs;
mod streams;

type Pods = Typed<Pod>;

fn pod(name: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("ns".to_owned()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    }
}

fn on_node(name: &str, node: &str) -> Pod {
    let mut pod = pod(name);
    pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
    pod
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn every(period: u64) -> HandlerOptions {
    HandlerOptions { resync: Some(secs(period)), ..HandlerOptions::default() }
}

/// Runs on real threads, for tests that block one or race. They do not wait for the clock.
fn on_threads(workers: usize, future: impl Future<Output = ()> + Send + 'static) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_time().build().unwrap();
    let task = runtime.spawn(future);
    let outcome = runtime.block_on(async { tokio::time::timeout(secs(60), task).await });
    // A blocked thread must not keep a failed test running.
    runtime.shutdown_background();
    outcome.expect("it hangs").unwrap();
}

/// An informer on a fake server.
struct Rig {
    source: FakeSource<Pods>,
    informer: Arc<SharedInformer<Pods>>,
    stop: CancellationToken,
}

impl Rig {
    fn new(pods: &[&str]) -> Self {
        Self::with(pods, InformerOptions::default())
    }

    fn with(pods: &[&str], options: InformerOptions<Pod>) -> Self {
        let source = FakeSource::typed();
        for name in pods {
            source.apply(pod(name));
        }
        let informer = SharedInformer::new(source.kind(), source.clone(), options);
        Self { source, informer, stop: CancellationToken::new() }
    }

    fn log(&self, options: HandlerOptions) -> (EventLog<Pods>, Registration) {
        let log = EventLog::new(self.source.kind());
        let registration = self.informer.add_event_handler(log.clone(), options).unwrap();
        (log, registration)
    }

    /// Deletes c, changes b and adds d without events, and waits for the list that shows it.
    async fn miss_changes(&self) {
        self.source.delete_silently(pod("c"));
        self.source.apply_silently(pod("b"));
        self.source.apply_silently(pod("d"));
        self.source.reset_watch();
        tokio::time::sleep(secs(4)).await;
    }

    fn run(&self) -> JoinHandle<()> {
        tokio::spawn(Arc::clone(&self.informer).run(self.stop.clone()))
    }

    async fn stop(&self, running: JoinHandle<()>) {
        self.stop.cancel();
        running.await.unwrap();
    }
}
