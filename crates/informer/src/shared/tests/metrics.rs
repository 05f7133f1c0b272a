//! The metrics of an informer.

use futures::FutureExt;

use super::*;
use crate::informer_name::InformerName;
use crate::metrics::write_prometheus;
use crate::testing::log::CaughtLog;

#[tokio::test(start_paused = true)]
async fn metrics_follow_the_informer() {
    let name = InformerName::new("follow-what-it-does").unwrap();
    let identity = name.with_resource(Pods::new().gvr().clone());
    // An index function can extend the time to apply a batch.
    let slow: IndexFn<Pod> = Arc::new(|_, _, _| {
        let _ = tokio::time::advance(Duration::from_millis(3)).now_or_never();
    });
    let options = InformerOptions {
        identity,
        resync: secs(60),
        indexers: [("slow".to_owned(), slow)].into(),
        ..InformerOptions::default()
    };
    let rig = Rig::with(&["a", "b"], options);
    let before = rig.informer.metrics();
    assert_eq!((before.queued_items, before.objects, before.store_resource_version), (0, 0, None));
    assert_eq!((before.lists, before.watches, before.processing_latency.count()), (0, 0, 0));
    rig.log(HandlerOptions::named("reader"));
    let held_up =
        HandlerFuncs::<Pod>::new().with_add(|_, _| std::panic::resume_unwind(Box::new("on purpose")));
    let panic_policy = PanicPolicy::SkipAfter(secs(3600));
    let options = HandlerOptions { panic_policy, ..HandlerOptions::named("held up") };
    rig.informer.add_event_handler(held_up, options).unwrap();
    let running = rig.run();
    settle().await;
    rig.source.apply(pod("a"));
    rig.source.delete(pod("b"));
    rig.source.send(|| crate::list_watch::WatchEvent::Undecodable {
        deleted: false,
        item: crate::Undecodable {
            key: None,
            resource_version: None,
            error: crate::DecodeError::Invalid("for a test".into()),
        },
    });
    rig.source.bookmark();
    settle().await;
    let metrics = rig.informer.metrics();
    assert_eq!((metrics.added, metrics.updated, metrics.synced, metrics.deleted), (2, 1, 0, 1));
    assert_eq!((metrics.queued_items, metrics.objects, metrics.undecodable), (0, 1, 1));
    assert_eq!(metrics.store_resource_version, Some(5));
    assert_eq!((metrics.lists, metrics.pages, metrics.watches, metrics.failures), (1, 0, 1, 0));
    // The list, which took 6 ms, and the two events; the index function runs for old and new
    // states.
    assert_eq!(metrics.processing_latency.sum, Duration::from_millis(6 + 6 + 3));
    let handlers: Vec<_> = metrics
        .handlers
        .iter()
        .map(|handler| {
            (&*handler.name, handler.pending, handler.processed, handler.panics, handler.has_synced)
        })
        .collect();
    assert_eq!(handlers, [("reader", 0, 4, 0, true), ("held up", 4, 0, 1, false)]);
    let mut text = String::new();
    write_prometheus(&mut text, &[metrics]).unwrap();
    let labels = r#"name="follow-what-it-does",group="",version="v1",resource="pods""#;
    for line in [
        format!("informer_store_resource_version{{{labels}}} 5\n"),
        format!("informer_handler_pending_items{{{labels},handler=\"held up\"}} 4\n"),
    ] {
        assert!(text.contains(&line), "{text}");
    }

    // A watch, two refused relists (watch-list and list), a successful one, and a resync.
    rig.source.fail_watch(refused(422, "Invalid"));
    rig.source.fail_watch(refused(422, "Invalid"));
    rig.source.fail_list(refused(500, "InternalError"));
    rig.source.reset_watch();
    tokio::time::sleep(secs(60)).await;
    let metrics = rig.informer.metrics();
    assert_eq!((metrics.failures, metrics.synced), (3, 2));
    assert_eq!((metrics.lists, metrics.pages), (4, 1));
    rig.stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn queued_items_are_counted() {
    let rig = Rig::new(&[]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (seeing, informer) = (Arc::clone(&seen), Arc::downgrade(&rig.informer));
    // Runs in the processor: the current batch has left the queue.
    let watching: IndexFn<Pod> = Arc::new(move |_, _, _| {
        seeing.lock().extend(informer.upgrade().map(|informer| informer.processor.meters().queued()));
    });
    rig.informer.add_indexers([("watching".to_owned(), watching)].into()).unwrap();
    let _running = rig.run();
    settle().await;
    // Changes of one object are a batch each. The reflector finishes before the first batch.
    for _ in 0..4 {
        rig.source.apply(pod("a"));
    }
    settle().await;
    seen.lock().dedup();
    assert_eq!(*seen.lock(), [3, 2, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_log_names_informers_by_name_and_resource() {
    let log = CaughtLog::new();
    let name = InformerName::new("called-by-its-name").unwrap();
    let identity = name.with_resource(Pods::new().gvr().clone());
    let rig = Rig::with(&[], InformerOptions { identity, ..InformerOptions::default() });
    let running = rig.run();
    settle().await;
    Arc::clone(&rig.informer).run(CancellationToken::new()).await;
    rig.stop(running).await;
    assert_eq!(log.lines(), ["WARN the informer is already started informer=called-by-its-name: v1/pods"]);
}
