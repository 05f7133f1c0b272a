//! A measured process: this crate's informer or `kube_runtime`'s reflector, with counting
//! listeners.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, ready};
use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube_informers::{
    Deleted, EventHandler, HandlerOptions, IndexFn, Indexers, Kind, SharedInformer, Typed, namespace_indexer,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::slim::{SlimPod, SlimPods};
use crate::task::{Answer, Client, Content, Mode, Step, Task, read_task, say};
use crate::{Result, pipeline, wire};

type Events = BoxStream<'static, watcher::Result<watcher::Event<Pod>>>;
/// Starts watching, and waits until the store has synced.
pub(crate) type Start = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// A kind of pod that can be measured.
pub(crate) trait Measured: Kind {
    fn make(content: Content) -> Self;
    fn node(pod: &Self::Object) -> Option<&str>;
    /// Drops managed fields, if any, as kube-scheduler and most controllers do.
    fn trim(pod: &mut Self::Object);
}

impl Measured for Typed<Pod> {
    fn make(_: Content) -> Self {
        Self::new()
    }

    fn node(pod: &Pod) -> Option<&str> {
        pod.spec.as_ref()?.node_name.as_deref()
    }

    fn trim(pod: &mut Pod) {
        pod.metadata.managed_fields = None;
    }
}

impl Measured for SlimPods {
    fn make(content: Content) -> Self {
        Self::new(content == Content::Protobuf)
    }

    fn node(pod: &SlimPod) -> Option<&str> {
        pod.node()
    }

    fn trim(_: &mut SlimPod) {}
}

/// A prepared measurement, with its steps.
pub(crate) struct Bench {
    /// Starts watching.
    pub(crate) start: Start,
    /// Releases the changes. Does nothing if the server sends them.
    pub(crate) release: Box<dyn FnOnce() + Send>,
    pub(crate) tallies: Vec<Arc<Tally>>,
    /// The total number of notifications after which each phase is complete.
    pub(crate) goals: [u64; 2],
    /// Without listeners: whether the store has all changes of a phase.
    pub(crate) has_all: Box<dyn Fn(usize) -> bool + Send>,
    pub(crate) stored: Box<dyn Fn() -> usize + Send>,
}

/// What a listener has received.
#[derive(Default)]
pub(crate) struct Tally {
    seen: AtomicU64,
    adds: AtomicU64,
    updates: AtomicU64,
    deletes: AtomicU64,
    goal: AtomicU64,
    reached: Notify,
}

impl Tally {
    fn count(&self, what: &AtomicU64) {
        // Only the listener writes to it.
        what.store(what.load(Relaxed) + 1, Relaxed);
        let seen = self.seen.load(Relaxed) + 1;
        self.seen.store(seen, Relaxed);
        if seen == self.goal.load(Relaxed) {
            self.reached.notify_one();
        }
    }

    /// For a library that does not distinguish additions from updates.
    pub(crate) fn applied(&self) {
        self.count(&self.updates);
    }
}

/// The listener.
pub(crate) struct Counter(pub(crate) Arc<Tally>);

impl<T: Send + Sync + 'static> EventHandler<T> for Counter {
    fn on_add(&mut self, _: &Arc<T>, _: bool) {
        self.0.count(&self.0.adds);
    }

    fn on_update(&mut self, _: &Arc<T>, _: &Arc<T>) {
        self.0.count(&self.0.updates);
    }

    fn on_delete(&mut self, _: &Deleted<T>) {
        self.0.count(&self.0.deletes);
    }
}

/// Executes the task from stdin.
pub(crate) fn run() -> Result<()> {
    let task: Task = read_task()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Clients of servers spawn tasks when they are built.
    let context = runtime.enter();
    let bench = match (task.mode, task.client) {
        (_, Client::Go) => return Err("that is for the program in Go".into()),
        (Mode::Pipeline, Client::Typed) => pipeline::informer::<Typed<Pod>>(&task)?,
        (Mode::Pipeline, Client::Slim) => pipeline::informer::<SlimPods>(&task)?,
        (Mode::Pipeline, Client::Kube) => pipeline::kube(&task)?,
        (Mode::Wire, Client::Typed) => wire::informer::<Typed<Pod>>(&task)?,
        (Mode::Wire, Client::Slim) => wire::informer::<SlimPods>(&task)?,
        (Mode::Wire, Client::Kube) => wire::kube(&task)?,
    };
    drop(context);
    let Bench { start, release, tallies, goals, has_all, stored } = bench;
    let (mut start, mut release) = (Some(start), Some(release));
    say(&Answer::default())?;
    while let Some(step) = Step::read()? {
        let phase = usize::from(step == Step::Events);
        if matches!(step, Step::Start | Step::Events) {
            for tally in &tallies {
                tally.goal.store(goals[phase], Relaxed);
            }
        }
        let began = Instant::now();
        match step {
            Step::Start => {
                if let Some(start) = start.take() {
                    runtime.block_on(start());
                }
            }
            Step::Events => {
                if let Some(release) = release.take() {
                    release();
                }
            }
            Step::Collect | Step::Trim => {}
        }
        if matches!(step, Step::Start | Step::Events) {
            runtime.block_on(wait(&tallies, goals[phase], || has_all(phase)));
        }
        let sum =
            |what: fn(&Tally) -> &AtomicU64| tallies.iter().map(|tally| what(tally).load(Relaxed)).sum();
        say(&Answer {
            nanos: u64::try_from(began.elapsed().as_nanos())?,
            stored: stored(),
            adds: sum(|tally| &tally.adds),
            updates: sum(|tally| &tally.updates),
            deletes: sum(|tally| &tally.deletes),
        })?;
    }
    Ok(())
}

/// Waits until every listener has received everything.
async fn wait(tallies: &[Arc<Tally>], goal: u64, has_all: impl Fn() -> bool) {
    for tally in tallies {
        while tally.seen.load(Relaxed) < goal {
            tally.reached.notified().await;
        }
    }
    while !has_all() {
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

/// The indices of the pods: those of a factory's informer, and one by node.
pub(crate) fn indexers<K: Measured>() -> Indexers<K::Object> {
    let by_node: IndexFn<K::Object> = Arc::new(|_, pod, file| K::node(pod).into_iter().for_each(file));
    let mut indexers = namespace_indexer();
    indexers.insert("node".to_owned(), by_node);
    indexers
}

/// Adds listeners to an informer, and returns a function that starts it.
pub(crate) fn listen<K: Measured>(
    informer: &Arc<SharedInformer<K>>,
    listeners: usize,
) -> Result<(Vec<Arc<Tally>>, Start)> {
    let tallies: Vec<Arc<Tally>> = (0..listeners).map(|_| Arc::default()).collect();
    for tally in &tallies {
        informer.add_event_handler(Counter(Arc::clone(tally)), HandlerOptions::default())?;
    }
    let informer = Arc::clone(informer);
    let start = move || -> BoxFuture<'static, ()> {
        Box::pin(async move {
            tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
            informer.synced().await;
        })
    };
    Ok((tallies, Box::new(start)))
}

/// `kube_runtime`'s reflector on a stream of events, with subscribers as listeners, and a function
/// that starts it.
pub(crate) fn reflect(events: Events, listeners: usize) -> (reflector::Store<Pod>, Vec<Arc<Tally>>, Start) {
    /// Large, because a full buffer stops the stream.
    const BUFFER: usize = 1024;
    let tallies: Vec<Arc<Tally>> = (0..listeners).map(|_| Arc::default()).collect();
    let (store, writer) = if listeners == 0 { reflector::store() } else { reflector::store_shared(BUFFER) };
    let handles: Vec<_> = tallies.iter().map(|tally| (writer.subscribe(), Arc::clone(tally))).collect();
    let reader = store.clone();
    let start = move || -> BoxFuture<'static, ()> {
        Box::pin(async move {
            for (handle, tally) in handles {
                let seen = stream::iter(handle).flatten().for_each(move |_| {
                    tally.applied();
                    ready(())
                });
                tokio::spawn(seen);
            }
            if listeners == 0 {
                tokio::spawn(reflector::reflector(writer, events).for_each(|_| ready(())));
            } else {
                tokio::spawn(events.reflect_shared(writer).for_each(|_| ready(())));
            }
            // The writer lives as long as the stream, which does not end.
            let _ = reader.wait_until_ready().await;
        })
    };
    (store, tallies, Box::new(start))
}
