//! The path of a pod from the server's bytes into the scheduler.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube_informers::{
    ContentType, HandlerFuncs, HandlerOptions, InformerOptions, Kind, ListOptions, ListWatchError,
    ListerWatcher, Page, SharedInformer, Typed, WatchStream,
};
use supercargo_benches::Bench;
use supercargo_codec::{NodeKind, PodKind};
use supercargo_scheduler::{Input, Notification};
use tokio_util::sync::CancellationToken;

use crate::pods::{Template, node};
use crate::{ALLOCATOR, Case, Measure};

const NO_ANNOTATIONS: [&str; 0] = [];

/// A server with these pods and no changes.
struct Source<K> {
    kind: Arc<K>,
    template: Mutex<Template>,
    content_type: ContentType,
    pods: usize,
    nodes: usize,
}

impl<K: Kind> Source<K> {
    fn items(&self) -> impl Iterator<Item = K::Object> {
        (0..self.pods).map(|number| {
            let mut template = self.template.lock().unwrap_or_else(PoisonError::into_inner);
            let bytes = template.numbered(number, number % self.nodes);
            self.kind.decode(self.content_type, bytes).expect("the template is a pod")
        })
    }
}

impl<K: Kind> ListerWatcher<K> for Source<K> {
    fn list<'a>(&'a self, _: &'a ListOptions) -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>> {
        let page = Page::new(self.items().collect(), "9000000");
        Box::pin(async { Ok(page) })
    }

    fn watch<'a>(
        &'a self,
        _: &'a ListOptions,
    ) -> BoxFuture<'a, Result<WatchStream<K::Object>, ListWatchError>> {
        Box::pin(async { Ok(stream::pending().boxed()) })
    }

    fn supports_watch_list(&self) -> bool {
        false
    }
}

/// Allocated bytes that are not freed.
fn in_use() -> f64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as f64 - stats.bytes_deallocated as f64
}

/// The process's memory in bytes.
fn resident() -> Result<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm").context("read this process's memory")?;
    let pages: f64 = statm.split(' ').nth(1).context("no resident set")?.parse()?;
    Ok(pages * 4096.0)
}

pub(crate) fn measure(case: Case, pods: usize, nodes: usize) -> Result<Measure> {
    let pod = case.shape.pod();
    if case.typed {
        let source = |kind| Source {
            kind,
            template: Mutex::new(Template::json(&pod)),
            content_type: ContentType::Json,
            pods,
            nodes,
        };
        return followed(source, || Arc::new(Typed::<Pod>::new()), None::<fn(Arc<Pod>)>);
    }
    let mut bench = Bench::with_nodes(0);
    let kind = NodeKind::new(NO_ANNOTATIONS);
    let mut template = Template::protobuf(&node())?;
    for number in 0..nodes {
        let node =
            kind.decode_protobuf(template.numbered(number, number)).context("the template is a node")?;
        bench.handle(Input::Node(Notification::Added(Arc::new(node))));
    }
    let encoded = Template::protobuf(&pod)?;
    let encoded = Mutex::new(Some(encoded));
    let source = |kind| {
        let template = encoded.lock().unwrap_or_else(PoisonError::into_inner).take();
        let template = template.or_else(|| Template::protobuf(&pod).ok()).expect("it was encoded before");
        Source { kind, template: Mutex::new(template), content_type: ContentType::Protobuf, pods, nodes }
    };
    let tell = move |pod| bench.handle(Input::AssignedPod(Notification::Added(pod)));
    followed(source, || Arc::new(PodKind::new(NO_ANNOTATIONS)), Some(tell))
}

/// Decodes all pods, then runs an informer, and then notifies the scheduler.
fn followed<K: Kind>(
    source: impl Fn(Arc<K>) -> Source<K>,
    kind: impl Fn() -> Arc<K>,
    tell: Option<impl FnMut(Arc<K::Object>) + Send + 'static>,
) -> Result<Measure> {
    let per_pod = |from: f64, to: f64, pods: usize| (to - from) / pods as f64;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let source_of = &source;
    let (first_kind, second_kind) = (kind(), kind());
    let (alone, source) = (source_of(Arc::clone(&first_kind)), source_of(Arc::clone(&second_kind)));
    let encoded = source.template.lock().unwrap_or_else(PoisonError::into_inner).len();
    let pods = source.pods;

    // Before anything is freed, so that the process cannot grow into freed memory.
    let (before, resident_before) = (in_use(), resident()?);
    let informer = SharedInformer::new(second_kind, source, InformerOptions::default());
    let stop = CancellationToken::new();
    let running = runtime.spawn(Arc::clone(&informer).run(stop.clone()));
    runtime.block_on(informer.synced());
    // Temporary allocations are gone by now.
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
    ensure!(informer.store().len() == pods, "the store has {} pods", informer.store().len());
    let store = per_pod(before, in_use(), pods);
    let (scheduler, resident) = match tell {
        None => (store, per_pod(resident_before, resident()?, pods)),
        Some(mut tell) => {
            let received = HandlerFuncs::new().with_add(move |pod: &Arc<K::Object>, _| tell(Arc::clone(pod)));
            let registration = informer.add_event_handler(received, HandlerOptions::named("cache"))?;
            runtime.block_on(async {
                while !registration.has_synced() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            (per_pod(before, in_use(), pods), per_pod(resident_before, resident()?, pods))
        }
    };
    stop.cancel();
    runtime.block_on(running)?;

    let before = in_use();
    let records: Vec<Arc<K::Object>> = alone.items().map(Arc::new).collect();
    let list = (records.capacity() * size_of::<Arc<K::Object>>()) as f64;
    let records_alone = per_pod(before + list, in_use(), pods);
    drop((records, first_kind));
    Ok(Measure { encoded, records: records_alone, store, scheduler, resident })
}
