//! Start, stop and settings.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_informer_runs_once_and_rejects_late_settings() {
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
async fn an_informer_syncs_only_after_its_whole_first_list() {
    for queue in crate::queue::tests::KINDS {
        let rig = Rig::with(&["a", "b", "c"], InformerOptions { queue, ..InformerOptions::default() });
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (seeing, informer) = (Arc::clone(&seen), Arc::downgrade(&rig.informer));
        // Called for each object as it is stored.
        let watching: IndexFn<Pod> = Arc::new(move |_, _, _| {
            seeing.lock().extend(informer.upgrade().map(|informer| informer.has_synced()));
        });
        rig.informer.add_indexers([("watching".to_owned(), watching)].into()).unwrap();
        let running = rig.run();
        rig.informer.synced().await;
        assert_eq!(*seen.lock(), [false; 3], "{queue:?}");
        assert_eq!(rig.informer.store().len(), 3);
        rig.stop(running).await;
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_run_future_leaves_no_task() {
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
async fn a_transform_applies_everywhere_once_per_object() {
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

#[tokio::test(start_paused = true)]
async fn no_task_outlives_the_run() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let rig = Rig::new(&["a"]);
    // A handler before the start, one that never acts, and one after the sync.
    let (log, early) = rig.log(HandlerOptions::default());
    let idle = rig.informer.add_event_handler(HandlerFuncs::new(), every(0)).unwrap();
    assert_eq!(tasks(), 0, "nothing runs before the start");
    let running = rig.run();
    early.synced().await;
    let (late_log, late) = rig.log(HandlerOptions::default());
    settle().await;
    assert_eq!(tasks(), 2 + 3, "the informer, its reflector, and one per handler");
    rig.source.apply(pod("b"));
    rig.stop(running).await;
    assert_eq!(tasks(), 0);
    assert!(early.is_stopped() && idle.is_stopped() && late.is_stopped());
    assert_eq!((log.content(), late_log.content()), (rig.source.content(), rig.source.content()));

    // An informer that never runs leaves no task either.
    let never = Rig::new(&["a"]);
    let (log, registration) = never.log(HandlerOptions::default());
    settle().await;
    assert!(tasks() == 0 && log.lines().is_empty() && !registration.has_synced());
}

#[tokio::test(start_paused = true)]
async fn handlers_added_long_before_the_start_miss_nothing() {
    let rig = Rig::with(&["a", "b"], InformerOptions { resync: secs(1), ..InformerOptions::default() });
    let logs = [every(0), every(2), every(3)].map(|options| rig.log(options).0);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(logs.iter().all(|log| log.lines().is_empty()), "nothing before the start");
    let _running = rig.run();
    settle().await;
    for log in &logs {
        assert_eq!(log.take(), ["add ns/a 2 initial", "add ns/b 3 initial"]);
    }
    // Checks are at 2.5 s, 3.5 s and so on; periods start when the handlers were added.
    let mut resyncs = Vec::new();
    for _ in 0..5 {
        tokio::time::sleep(secs(1)).await;
        resyncs.push(logs.each_ref().map(|log| log.take().len()));
    }
    assert_eq!(resyncs, [[0, 2, 0], [0, 0, 2], [0, 2, 0], [0, 0, 0], [0, 2, 2]]);
}
