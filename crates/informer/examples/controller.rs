//! A typical controller: an informer's handlers enqueue keys, and workers dequeue them, read the
//! newest state from the store, and act. This one acts by printing.
//!
//! ```console
//! $ cargo run --features testing --example controller -- --embedded --for 5s
//! ```
//!
//! `--embedded` needs no cluster: a fake one has some pods that change. Without it, it reads the
//! cluster of your kubeconfig, and changes nothing.

pub(crate) mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube_informers::workqueue::WorkQueue;
use kube_informers::{
    Deleted, HandlerFuncs, HandlerOptions, InformerOptions, Kind as _, ListerWatcher, ObjectKey,
    SharedInformer, Store, Typed, namespace_indexer,
};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use common::{Options, Result, embedded_pods};

const WORKERS: usize = 2;
/// The number of retries of a key that fails.
const RETRIES: usize = 5;
/// The maximum duration of the shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// Receives the lines.
type Print = Arc<dyn Fn(String) + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let ended = async {
        let options = Options::parse(std::env::args().skip(1))?;
        run(&options, Arc::new(|line| println!("{line}"))).await
    };
    match ended.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("controller: {error}");
            ExitCode::FAILURE
        }
    }
}

/// State shared by the workers.
#[derive(Clone)]
struct Controller {
    pods: Store<Pod>,
    queue: WorkQueue<ObjectKey>,
    print: Print,
}

pub(crate) async fn run(options: &Options, print: Print) -> Result<()> {
    if options.embedded {
        control(embedded_pods(), options, print).await
    } else {
        control(options.pods().await?, options, print).await
    }
}

async fn control(source: impl ListerWatcher<Typed<Pod>>, options: &Options, print: Print) -> Result<()> {
    let stop = options.stop();
    let with_index = InformerOptions::default().indexers(namespace_indexer());
    let informer = SharedInformer::new(Typed::<Pod>::new().into(), source, with_index);

    let queue = WorkQueue::builder().name("pods").build();
    let registration = informer.add_event_handler(put_keys_on(&queue), HandlerOptions::named("queue"))?;

    let controller = Controller { pods: informer.store(), queue: queue.clone(), print: Arc::clone(&print) };

    print("Starting Pod controller".to_owned());
    let informing = tokio::spawn(Arc::clone(&informer).run(stop.clone()));
    let workers = TaskTracker::new();
    tokio::select! {
        // Wait for the handlers, not only for the informer: now the key of every existing pod is
        // enqueued.
        () = registration.synced() => {
            print(format!("{} pods known, starting {WORKERS} workers", informer.store().len()));
            for _ in 0..WORKERS {
                workers.spawn(controller.clone().work());
            }
        }
        _ = informer.failed() => stop.cancel(),
        () = stop.cancelled() => print("Timed out waiting for caches to sync".to_owned()),
    }

    tokio::select! {
        () = stop.cancelled() => {}
        // Workers that act on a store without changes do harm.
        _ = informer.failed() => stop.cancel(),
    }
    print("Stopping Pod controller".to_owned());
    // Stop filling the queue before draining it. Of a failed informer, this returns the panic.
    let informed = informing.await;
    workers.close();
    if !workers.is_empty() && timeout(DRAIN, queue.shut_down_with_drain()).await.is_err() {
        print(format!("{} keys left", queue.metrics().depth));
    }
    queue.shut_down();
    workers.wait().await;
    print("Stopped Pod controller".to_owned());
    match informer.failure() {
        Some(failure) => Err(failure.into()),
        None => Ok(informed?),
    }
}

/// Handlers only enqueue: whatever happens to a pod, its key is in the queue once.
fn put_keys_on(queue: &WorkQueue<ObjectKey>) -> HandlerFuncs<Pod> {
    let kind = Arc::new(Typed::<Pod>::new());
    let put = {
        let queue = queue.clone();
        move |pod: &Pod| queue.add(kind.key(pod))
    };
    let (added, updated, deleted, queue) = (put.clone(), put.clone(), put, queue.clone());
    HandlerFuncs::new()
        .with_add(move |pod, _| added(pod))
        .with_update(move |_, pod| updated(pod))
        .with_delete(move |pod| match pod {
            Deleted::Known(pod) => deleted(pod),
            // The deletion was missed. Only the key is certain, and it suffices.
            Deleted::FinalStateUnknown { key, .. } => queue.add(key.clone()),
        })
}

impl Controller {
    /// The purpose of a controller. It receives a key instead of a change, and acts on the current
    /// state.
    fn sync(&self, key: &ObjectKey) -> Result<()> {
        let Some(pod) = self.pods.get(key) else {
            (self.print)(format!("Pod {key} does not exist anymore"));
            return Ok(());
        };
        // Fails on request, to demonstrate retries.
        match pod.labels().get("mood").map(String::as_str) {
            Some("fails") => Err("its label requests it".into()),
            Some("panics") => panic!("the label of {key} requests it"),
            _ => {
                // A pod that was recreated under its name has another UID.
                (self.print)(format!("Sync/Add/Update for Pod {}", pod.name_any()));
                Ok(())
            }
        }
    }

    /// A worker. No two workers process the same key; dropping `key` returns it.
    async fn work(self) {
        while let Some(key) = self.queue.get().await {
            // A panic fails only this key. Even if it ended this worker, the key would be returned.
            let outcome = catch_unwind(AssertUnwindSafe(|| self.sync(&key)));
            match outcome.unwrap_or_else(|_| Err("the worker panicked".into())) {
                // The next failure counts as the first again.
                Ok(()) => key.forget(),
                Err(error) if key.num_requeues() < RETRIES => {
                    (self.print)(format!("Error syncing Pod {}: {error}", *key));
                    key.add_rate_limited();
                }
                Err(error) => {
                    key.forget();
                    (self.print)(format!("Dropping Pod {} out of the queue: {error}", *key));
                }
            }
        }
    }
}
