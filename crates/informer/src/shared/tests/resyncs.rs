//! Resyncs, and updates without a new version.

use super::*;

#[tokio::test(start_paused = true)]
async fn each_handler_is_resynced_with_its_own_period() {
    let rig = Rig::with(&["a"], InformerOptions { resync: secs(1), ..InformerOptions::default() });
    let (never, _) = rig.log(every(0));
    let (two, _) = rig.log(every(2));
    let (three, _) = rig.log(every(3));
    let same = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&same);
    let handler = HandlerFuncs::<Pod>::new().with_update(move |old, new| {
        seen.fetch_and(Arc::ptr_eq(old, new), Ordering::Relaxed);
    });
    rig.informer.add_event_handler(handler, every(1)).unwrap();
    let _running = rig.run();
    settle().await;
    for log in [&never, &two, &three] {
        log.take();
    }
    let mut calls = Vec::new();
    for _ in 0..6 {
        tokio::time::sleep(secs(1)).await;
        calls.push([&never, &two, &three].map(|log| log.take().len()));
    }
    assert_eq!(calls, [[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0], [0, 1, 1]]);
    assert_eq!(rig.source.requests().len(), 1, "a resync sends no request");
    assert!(same.load(Ordering::Relaxed), "old and new are the same object");
}

#[tokio::test(start_paused = true)]
async fn a_period_between_two_checks_extends_to_the_later_one() {
    let rig = Rig::with(&["a"], InformerOptions { resync: secs(2), ..InformerOptions::default() });
    let (three, _) = rig.log(every(3));
    let (two, _) = rig.log(every(2));
    let _running = rig.run();
    settle().await;
    for log in [&two, &three] {
        log.take();
    }
    let mut calls = Vec::new();
    for _ in 0..4 {
        tokio::time::sleep(secs(2)).await;
        calls.push([&two, &three].map(|log| log.take().len()));
    }
    assert_eq!(calls, [[1, 0], [1, 1], [1, 0], [1, 1]], "a period of three seconds becomes four");
}

#[tokio::test(start_paused = true)]
async fn after_a_check_relists_of_unchanged_go_to_resynced_only() {
    let rig = Rig::with(&["a", "b", "c"], InformerOptions { resync: secs(1), ..InformerOptions::default() });
    let (plain, _) = rig.log(every(0));
    let (resynced, _) = rig.log(every(1));
    let _running = rig.run();
    // Between two checks, past the first.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for log in [&plain, &resynced] {
        log.take();
    }
    rig.miss_changes().await;
    let changed = ["tombstone ns/c 4", "update ns/b 3>6", "add ns/d 7"];
    assert_eq!(plain.take(), changed, "only what has changed");
    // The list falls between two checks, so its repetitions are separate from theirs.
    let all = resynced.take();
    let list = all.iter().position(|line| line == changed[0]).unwrap();
    assert_eq!(all[list + 1..list + 4], ["update ns/a 2>2", changed[1], changed[2]]);
}

#[tokio::test(start_paused = true)]
async fn updates_with_equal_version_go_only_to_resynced_handlers() {
    let rig = Rig::with(&["a"], InformerOptions { resync: secs(10), ..InformerOptions::default() });
    let (plain, _) = rig.log(every(0));
    let (resynced, _) = rig.log(every(10));
    let _running = rig.run();
    tokio::time::sleep(secs(11)).await;
    for log in [&plain, &resynced] {
        log.take();
    }
    let mut same = pod("a");
    same.metadata.resource_version = Some("2".to_owned());
    rig.source.send(move || crate::list_watch::WatchEvent::Modified(same.clone()));
    settle().await;
    assert_eq!((plain.take().len(), resynced.take()), (0, vec!["update ns/a 2>2".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn late_handlers_receive_unchanged_updates_until_the_next_check() {
    let rig = Rig::with(&["a"], InformerOptions { resync: secs(10), ..InformerOptions::default() });
    let (early, _) = rig.log(every(0));
    let _running = rig.run();
    tokio::time::sleep(secs(12)).await;
    let (late, _) = rig.log(every(0));
    settle().await;
    let mut received = Vec::new();
    for _ in 0..2 {
        early.take();
        late.take();
        // A relist without changes, at most 4 s later; the second one follows the check at 20 s.
        rig.source.reset_watch();
        tokio::time::sleep(secs(9)).await;
        received.push((early.take(), late.take()));
    }
    assert_eq!(received, [(vec![], vec!["update ns/a 2>2".to_owned()]), (vec![], vec![])]);
}

#[tokio::test(start_paused = true)]
async fn a_late_resync_check_does_not_skip_the_next_resync() {
    let rig = Rig::with(&["a"], InformerOptions { resync: secs(10), ..InformerOptions::default() });
    let (log, _) = rig.log(every(10));
    let _running = rig.run();
    settle().await;
    log.take();
    // As on a busy machine: the first check is late by a little, the others by less.
    tokio::time::advance(secs(10) + Duration::from_millis(3)).await;
    let mut updates = Vec::new();
    for _ in 0..3 {
        settle().await;
        updates.push(log.take().len());
        tokio::time::sleep(secs(10)).await;
    }
    assert_eq!(updates, [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_unrepresentable_resync_period_never_fires() {
    let rig = Rig::with(&["a"], InformerOptions { resync: Duration::MAX, ..InformerOptions::default() });
    let (early, _) = rig.log(HandlerOptions::default());
    let running = rig.run();
    settle().await;
    let (late, _) = rig.log(HandlerOptions { resync: Some(Duration::MAX), ..HandlerOptions::default() });
    settle().await;
    assert_eq!((early.lines().len(), late.lines().len()), (1, 1));
    rig.stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn there_are_no_resyncs_while_the_server_cannot_be_watched() {
    let rig = Rig::with(&["a"], InformerOptions { resync: secs(10), ..InformerOptions::default() });
    let (log, _) = rig.log(every(10));
    let _running = rig.run();
    tokio::time::sleep(secs(15)).await;
    assert_eq!(log.take().len(), 2, "the object, and one resync");
    for _ in 0..100 {
        rig.source.fail_watch(refused(403, "Forbidden"));
        rig.source.fail_list(refused(403, "Forbidden"));
    }
    rig.source.close_watches();
    tokio::time::sleep(secs(100)).await;
    assert!(rig.informer.last_error().is_some_and(|error| error.contains("403")));
    assert_eq!(log.take(), Vec::<String>::new());
    rig.source.serve();
    // The longest wait between two cycles, and a period.
    tokio::time::sleep(secs(75)).await;
    assert!(log.take().contains(&"update ns/a 2>2".to_owned()));
}
