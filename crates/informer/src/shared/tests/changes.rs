//! The changes that handlers and the store receive.

use super::*;

#[tokio::test(start_paused = true)]
async fn every_change_reaches_the_store_before_all_handlers() {
    let rig = Rig::new(&["a"]);
    let (first, registration) = rig.log(HandlerOptions::default());
    let (second, _) = rig.log(HandlerOptions::default());
    let (third, _) = rig.log(HandlerOptions::default());
    let store = rig.informer.store();
    let seen_in_store = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&seen_in_store);
    let checker = HandlerFuncs::new().with_add(move |pod: &Arc<Pod>, _| {
        let key = format!("ns/{}", pod.metadata.name.as_deref().unwrap());
        seen.fetch_add(usize::from(store.get(key).is_some()), Ordering::Relaxed);
    });
    rig.informer.add_event_handler(checker, HandlerOptions::default()).unwrap();
    assert!(!rig.informer.has_synced() && !rig.informer.is_started() && !rig.informer.is_stopped());
    assert!(rig.informer.store().is_empty() && rig.informer.last_sync_resource_version().is_empty());

    let running = rig.run();
    registration.synced().await;
    assert!(rig.informer.has_synced() && rig.informer.is_started());
    assert_eq!(rig.informer.last_sync_resource_version(), "2", "the list's");
    rig.source.apply(pod("b"));
    settle().await;
    rig.source.apply(pod("a"));
    rig.source.delete(pod("b"));
    settle().await;
    assert_eq!(rig.informer.last_sync_resource_version(), "5", "the last event's");
    // No handler receives this, but the server has reached version 6.
    rig.source.apply_silently(pod("c"));
    rig.source.bookmark();
    settle().await;
    let expected = ["add ns/a 2 initial", "add ns/b 3", "update ns/a 2>4", "delete ns/b 5"];
    assert_eq!(first.lines(), expected);
    assert_eq!((second.take(), third.take()), (first.lines(), first.take()));
    assert_eq!(seen_in_store.load(Ordering::Relaxed), 2);
    assert_eq!(rig.informer.last_sync_resource_version(), "6", "the bookmark's");
    assert_eq!(rig.informer.store().resource_version(), "6");
    assert_eq!(rig.source.requests().len(), 1);
    rig.stop(running).await;
    assert_eq!(rig.source.watchers(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_relist_delivers_tombstones_then_updates_then_adds() {
    let rig = Rig::new(&["a", "b", "c"]);
    // Without resyncs, all handlers receive the same, whatever their periods.
    let logs = [HandlerOptions::default(), every(0), every(60), every(1)].map(|options| rig.log(options).0);
    let _running = rig.run();
    settle().await;
    for log in &logs {
        log.take();
    }
    rig.miss_changes().await;
    for log in logs {
        assert_eq!(log.take(), ["tombstone ns/c 4", "update ns/a 2>2", "update ns/b 3>6", "add ns/d 7"]);
        assert!(log.faults().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn during_relist_calls_the_store_has_the_whole_list() {
    let rig = Rig::new(&["a", "b"]);
    let store = rig.informer.store();
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let (on_add, on_delete) = (Arc::clone(&sizes), Arc::clone(&sizes));
    let (adding, deleting) = (store.clone(), store);
    let handler = HandlerFuncs::<Pod>::new()
        .with_add(move |_, _| on_add.lock().push(adding.keys().len()))
        .with_delete(move |_| on_delete.lock().push(deleting.keys().len()));
    rig.informer.add_event_handler(handler, HandlerOptions::default()).unwrap();
    let _running = rig.run();
    settle().await;
    rig.source.delete_silently(pod("a"));
    for name in ["c", "d", "e"] {
        rig.source.apply_silently(pod(name));
    }
    rig.source.reset_watch();
    tokio::time::sleep(secs(4)).await;
    assert_eq!(*sizes.lock(), [2, 2, 4, 4, 4, 4]);
}

#[tokio::test(start_paused = true)]
async fn an_object_recreated_in_a_gap_is_one_update() {
    let rig = Rig::new(&[]);
    let with_uid = |uid: &str| {
        let mut pod = pod("a");
        pod.metadata.uid = Some(uid.to_owned());
        pod
    };
    rig.source.apply(with_uid("1"));
    let uids = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&uids);
    let handler = HandlerFuncs::new().with_update(move |old: &Arc<Pod>, new: &Arc<Pod>| {
        seen.lock().push((old.metadata.uid.clone().unwrap(), new.metadata.uid.clone().unwrap()));
    });
    rig.informer.add_event_handler(handler, HandlerOptions::default()).unwrap();
    let _running = rig.run();
    settle().await;
    rig.source.delete_silently(with_uid("1"));
    rig.source.apply_silently(with_uid("2"));
    rig.source.reset_watch();
    tokio::time::sleep(secs(4)).await;
    assert_eq!(*uids.lock(), [("1".to_owned(), "2".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn one_registration_feeds_cache_and_queue_in_order() {
    let rig = Rig::new(&["a", "b"]);
    let (cache, queue) = (EventLog::new(rig.source.kind()), EventLog::new(rig.source.kind()));
    let assigned = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let both = FanOut::new()
        .then(Filtering { filter: assigned, handler: cache.clone() })
        .then(Filtering { filter: move |pod: &Pod| !assigned(pod), handler: queue.clone() });
    rig.informer.add_event_handler(both, HandlerOptions::named("pods")).unwrap();
    let _running = rig.run();
    settle().await;
    rig.source.apply(on_node("a", "n1"));
    settle().await;
    assert_eq!(cache.take(), ["add ns/a 4"]);
    assert_eq!(queue.take(), ["add ns/a 2 initial", "add ns/b 3 initial", "delete ns/a 2"]);
    // The binding of b and its deletion are both missed, so the tombstone has b without a node.
    rig.source.apply_silently(on_node("b", "n1"));
    rig.source.delete_silently(pod("b"));
    rig.source.reset_watch();
    tokio::time::sleep(secs(4)).await;
    assert_eq!(
        (cache.take(), queue.take()),
        (vec!["update ns/a 4>4".to_owned()], vec!["tombstone ns/b 3".to_owned()])
    );
    // A deletion with a known node belongs to the cache.
    rig.source.delete_silently(on_node("a", "n1"));
    rig.source.reset_watch();
    tokio::time::sleep(secs(8)).await;
    assert_eq!((cache.take(), queue.take().len()), (vec!["tombstone ns/a 4".to_owned()], 0));
    assert!(cache.faults().is_empty() && queue.faults().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_multi_valued_index_added_late_is_maintained() {
    let labelled = |name: &str, labels: &[&str]| {
        let mut pod = pod(name);
        let labels = labels.iter().map(|label| ((*label).to_owned(), "yes".to_owned()));
        pod.metadata.labels = Some(labels.collect());
        pod
    };
    let rig = Rig::new(&[]);
    rig.source.apply(labelled("a", &["red", "round"]));
    let _running = rig.run();
    rig.informer.synced().await;
    let by_label: IndexFn<Pod> =
        Arc::new(|_, pod, file| pod.metadata.labels.iter().flatten().for_each(|(label, _)| file(label)));
    rig.informer.add_indexers([("label".to_owned(), by_label)].into()).unwrap();
    let store = rig.informer.store();
    let keys = |value: &str| {
        let mut keys = store.index_keys("label", value).unwrap();
        keys.sort_unstable();
        keys.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!((keys("red"), keys("round")), (vec!["ns/a".to_owned()], vec!["ns/a".to_owned()]));
    rig.source.apply(labelled("b", &["round", "small"]));
    settle().await;
    assert_eq!(keys("round"), ["ns/a", "ns/b"]);
    rig.source.apply(labelled("a", &["small"]));
    settle().await;
    let mut values = store.index_values("label").unwrap();
    values.sort_unstable();
    assert_eq!(values, ["round", "small"]);
    assert_eq!((keys("round"), keys("small").len()), (vec!["ns/b".to_owned()], 2));
    assert_eq!(rig.informer.lister().namespace("ns").list().len(), 2);
}
