//! Starting, stopping, settings.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_informer_runs_once_and_what_comes_too_late_is_refused() {
    let rig = Rig::new(&["a"]);
    rig.informer.set_transform(|_| {}).unwrap();
    let running = rig.run();
    settle().await;
    Arc::clone(&rig.informer).run(CancellationToken::new()).await;
    assert_eq!(rig.informer.set_transform(|_| {}), Err(SettingError::AlreadyStarted));
    assert_eq!(rig.informer.set_watch_error_handler(Arc::new(|_, _| {})), Err(SettingError::AlreadyStarted));
    rig.informer.add_indexers(namespace_indexer()).unwrap();
    assert_eq!(rig.informer.store().by_index(NAMESPACE_INDEX, "ns").unwrap().len(), 1);
    let (_, registration) = rig.log(HandlerOptions::default());
    rig.stop(running).await;
    assert!(rig.informer.is_stopped() && rig.informer.is_started());
    registration.stopped().await;
    rig.informer.remove_event_handler(&registration);
    let late = rig.informer.add_event_handler(HandlerFuncs::new(), HandlerOptions::default());
    assert_eq!(late.err(), Some(AddHandlerError::Stopped));
    assert_eq!(rig.informer.add_indexers(namespace_indexer()), Err(IndexError::Stopped));
    Arc::clone(&rig.informer).run(CancellationToken::new()).await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_run_leaves_no_task_behind() {
    let rig = Rig::new(&["a"]);
    let (_, registration) = rig.log(HandlerOptions::default());
    let running = rig.run();
    settle().await;
    running.abort();
    registration.stopped().await;
    settle().await;
    assert_eq!(rig.source.watchers(), 0);
    assert!(rig.informer.is_stopped());
}

#[tokio::test(start_paused = true)]
async fn a_transform_is_seen_everywhere_and_runs_once_per_object() {
    let rig = Rig::new(&["a"]);
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let transform = move |pod: &mut Pod| {
        counter.fetch_add(1, Ordering::Relaxed);
        pod.metadata.labels = Some([("seen".to_owned(), "yes".to_owned())].into());
    };
    rig.informer.set_transform(transform).unwrap();
    let labelled = Arc::new(AtomicUsize::new(0));
    let (added, updated, deleted) = (Arc::clone(&labelled), Arc::clone(&labelled), Arc::clone(&labelled));
    let count = |labelled: &AtomicUsize, pod: &Pod| {
        labelled.fetch_add(usize::from(pod.metadata.labels.is_some()), Ordering::Relaxed);
    };
    let handler = HandlerFuncs::<Pod>::new()
        .with_add(move |pod, _| count(&added, pod))
        .with_update(move |old, new| [old, new].into_iter().for_each(|pod| count(&updated, pod)))
        .with_delete(move |gone| count(&deleted, gone.object().unwrap()));
    rig.informer.add_event_handler(handler, HandlerOptions::default()).unwrap();
    let _running = rig.run();
    settle().await;
    rig.source.apply(pod("a"));
    rig.source.delete(pod("a"));
    settle().await;
    assert_eq!((runs.load(Ordering::Relaxed), labelled.load(Ordering::Relaxed)), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn a_list_error_reaches_the_watch_error_handler() {
    let rig = Rig::new(&["a"]);
    let source = rig.source.clone().with_watch_list(WatchListSupport::Refused);
    source.fail_list(refused(403, "Forbidden"));
    let errors = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&errors);
    let on_error = move |resource: &crate::GroupVersionResource, error: &crate::ReflectorError| {
        log.lock().push((resource.to_string(), error.cause().status().map(|status| status.code)));
    };
    rig.informer.set_watch_error_handler(Arc::new(on_error)).unwrap();
    let _running = rig.run();
    settle().await;
    assert!(
        !rig.informer.has_synced() && rig.informer.last_error().is_some_and(|error| error.contains("403"))
    );
    rig.informer.synced().await;
    assert_eq!(*errors.lock(), [("v1/pods".to_owned(), Some(403))]);
    assert_eq!(rig.informer.last_error(), None);
}
